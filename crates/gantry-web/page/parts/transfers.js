// Uploads and copies in progress, over all screens of this tab: speed, time left, retry.

import { each, h } from "../core/dom.js";
import { bytes, duration } from "../core/format.js";
import { signal } from "../core/signal.js";
import { pageKey } from "../core/wire.js";
import { callJson } from "./call.js";
import { ask, badge, button } from "./ui.js";

/** @typedef {{ id: number, label: string, done: number, total: number | null, began: number, state: "running" | "done" | "failed" | "cancelled", error: string, retry: () => Promise<void>, abort: AbortController }} Transfer */

const CHUNK = 4 << 20;
const ATTEMPTS = 5;

const transfers = signal(/** @type {Transfer[]} */ ([]));
let ids = 0;

/** @param {number} id @param {Partial<Transfer>} change */
const change = (id, change) => transfers.update((list) => list.map((one) => (one.id === id ? { ...one, ...change } : one)));

/** Runs `work` with a place in the tray. @param {string} label @param {number | null} total @param {(progress: (done: number, total?: number | null) => void, signal: AbortSignal) => Promise<void>} work */
async function track(label, total, work) {
  const id = ++ids;
  const run = async () => {
    const abort = new AbortController();
    change(id, { state: "running", error: "", began: Date.now(), done: 0, abort });
    try {
      await work((done, whole) => change(id, { done, ...(whole ? { total: whole } : {}) }), abort.signal);
      change(id, { state: "done" });
    } catch (error) {
      change(id, { state: abort.signal.aborted ? "cancelled" : "failed", error: /** @type {Error} */ (error).message });
      throw error;
    }
  };
  /** @type {Transfer} */
  const first = { id, label, done: 0, total, began: Date.now(), state: "running", error: "", retry: () => run().catch(() => {}), abort: new AbortController() };
  transfers.update((list) => [first, ...list].slice(0, 50));
  await run();
}

/** Copies between machines and the storage. @param {string} source @param {string} destination */
export const startTransfer = (source, destination) =>
  track(`${source} → ${destination}`, null, async (progress, signal) => {
    await callJson("gsv__Transfer", { source, destination }, { signal, progress: (data) => progress(data.done, data.total), deadlineMs: 24 * 3_600_000 });
  });

/**
 * Sends a file to an agent's storage in pieces, and continues where the gateway stopped.
 * @param {File} file @param {string} path @param {string | null} agent @param {(done: number) => void} progress @param {AbortSignal} signal
 */
export async function sendFile(file, path, agent, progress, signal) {
  const whose = { path, size: file.size, ...(agent ? { agent } : {}) };
  const begun = await ask("uploads.begin", whose);
  let have = begun.have;
  for (let failures = 0; have < file.size; ) {
    signal.throwIfAborted();
    try {
      const response = await fetch(`/v1/uploads/${encodeURIComponent(begun.upload)}`, {
        method: "PUT",
        headers: { "Gantry-Page-Key": pageKey.read() ?? "", "Gantry-Offset": String(have) },
        body: file.slice(have, have + CHUNK),
        signal,
      });
      if (response.ok) have = (await response.json()).have;
      else if (response.status === 409) have = (await ask("uploads.begin", { ...whose, upload: begun.upload })).have;
      else throw new Error((await response.json()).error?.message ?? `the gateway answered ${response.status}`);
      failures = 0;
      progress(have);
    } catch (error) {
      if (signal.aborted || ++failures >= ATTEMPTS) throw error;
      await new Promise((done) => setTimeout(done, 500 * 2 ** failures));
    }
  }
  return ask("uploads.finish", { upload: begun.upload });
}

/** Uploads a file to the storage, or through it to a machine. @param {File} file @param {string} place @param {string} path */
export function upload(file, place, path) {
  const stored = place === "gsv" ? path : `uploads/${file.name}`;
  return track(`${file.name} → ${place}`, file.size, async (progress, signal) => {
    await sendFile(file, stored, null, progress, signal);
    if (place !== "gsv") await callJson("gsv__Transfer", { source: `gsv:${stored}`, destination: `${place}:${path}` }, { signal });
    progress(file.size);
  }).catch(() => {});
}

const TONES = { running: "run", done: "ok", failed: "error", cancelled: "" };

export function transferTray() {
  return h("section", { class: "tray", "aria-label": "Transfers", hidden: () => transfers().length === 0 }, h("h2", null, "Transfers"), each(transfers, (one) => one.id, (one) =>
    h(
      "div",
      { class: "list-row" },
      h("div", { class: "list-main" }, h("div", { class: "list-title" }, h("span", null, one.peek().label), () => badge(TONES[one().state], one().state)), () => (one().state === "running" ? h("progress", { max: "1", value: one().total ? one().done / /** @type {number} */ (one().total) : undefined, "aria-label": "progress" }) : null), h("div", { class: "list-sub" }, () => speedText(one()))),
      () => (one().state === "running" ? button("Cancel", () => one.peek().abort.abort(), { small: true }) : one().state === "done" ? null : button("Retry", () => one.peek().retry(), { small: true })),
    ), { props: { class: "list" } }));
}

/** @param {Transfer} one */
function speedText(one) {
  if (one.state === "failed") return one.error;
  if (one.state !== "running") return one.total ? bytes(one.total) : "";
  const seconds = (Date.now() - one.began) / 1000;
  const speed = one.done / Math.max(0.2, seconds);
  const left = one.total && speed > 0 ? ` · ${duration(((one.total - one.done) / speed) * 1000)} left` : "";
  return `${bytes(one.done)}${one.total ? ` of ${bytes(one.total)}` : ""} · ${bytes(speed)} a second${left}`;
}
