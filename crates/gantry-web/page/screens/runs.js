// Runs: what agents did and are doing, and one run as bars over time. Lists carry no bodies.

import { each, h } from "../core/dom.js";
import { duration, exactTime } from "../core/format.js";
import { path, route, setQuery } from "../core/route.js";
import { derived, onDispose, signal, untracked } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { timeline } from "../model/timeline.js";
import { json, longText, resultText } from "../parts/message.js";
import { Resource, ask, badge, empty, header, icon, tabs, time } from "../parts/ui.js";

/** @import { Bar, RunBars } from "../model/timeline.js" */
/** @typedef {{ id: string, name: string, kind: string, state: string, started: number, took: number | null, href: string }} RunRow */

const TONES = /** @type {Record<string, string>} */ ({ ok: "ok", completed: "ok", error: "error", failed: "error", rejected: "error", running: "run", queued: "run", working: "run", parked: "warn", waiting: "warn", interrupted: "warn", stopped: "" });
const SLOW_MS = 5 * 60_000;

export default function Runs() {
  const key = derived(() => route().parts[0] ?? "");
  return h("div", null, () => (key() ? untracked(() => oneSession(key.peek())) : untracked(runList)));
}

/** Runs of schedules, pipelines and sessions, newest first. @returns {Promise<RunRow[]>} */
async function readRuns() {
  await ask("runs.listen");
  const [cron, pipelines, sessions, jobs] = await Promise.all([ask("cron.history", { limit: 200 }), ask("pipelines.runs", { limit: 200 }), ask("sessions.list", { limit: 200 }), ask("cron.list", { limit: 500 })]);
  const names = new Map(jobs.jobs.map((/** @type {any} */ job) => [job.id, job.name]));
  /** @type {RunRow[]} */
  const rows = [
    ...cron.runs.filter((/** @type {any} */ run) => run.sessionKey).map((/** @type {any} */ run) => ({ id: `c${run.runId}`, name: names.get(run.jobId) ?? run.jobId, kind: "schedule", state: run.status, started: run.startedAtMs ?? run.scheduledAtMs, took: run.durationMs ?? null, href: path(["runs", run.sessionKey]) })),
    ...pipelines.runs.map((/** @type {any} */ run) => ({ id: `p${run.runId}`, name: run.name, kind: "pipeline", state: run.status, started: run.started, took: run.ended ? run.ended - run.started : null, href: path(["pipelines", run.pipelineId, "runs", run.runId]) })),
    ...sessions.sessions.map((/** @type {any} */ s) => ({ id: `s${s.sessionKey}`, name: s.label || s.sessionKey, kind: s.parent ? "child" : "session", state: s.waiting ? "waiting" : s.running ? "working" : "ended", started: s.lastActivity, took: null, href: path(["runs", s.sessionKey]) })),
  ];
  return rows.sort((a, b) => b.started - a.started);
}

function runList() {
  const list = new Resource(readRuns, { events: ["run.event"], everyMs: 10_000 });
  const filter = derived(() => route().query.get("show") ?? "all");
  const shown = derived(() =>
    (list.value() ?? []).filter((run) => {
      if (filter() === "failed") return TONES[run.state] === "error";
      if (filter() === "slow") return (run.took ?? 0) > SLOW_MS;
      if (filter() === "active") return TONES[run.state] === "run" || TONES[run.state] === "warn";
      return true;
    }),
  );
  return h(
    "div",
    { class: "screen" },
    header("Runs", null, "What agents do and did, from schedules, pipelines and conversations."),
    h("div", { class: "toolbar" }, tabs("Show", [["all", "All"], ["active", "Active"], ["failed", "Failed"], ["slow", "Slow"]], filter, (value) => setQuery({ show: value === "all" ? null : value }))),
    list.view(() => [
      () => (shown().length ? null : empty("No runs here", "Runs appear as soon as an agent works.")),
      each(shown, (run) => run.id, (run) => h("a", { class: "list-row", href: run.peek().href }, h("span", { class: "list-main" }, h("span", { class: "list-title" }, h("span", null, () => run().name)), h("span", { class: "list-sub block" }, () => run().kind)), h("span", { class: "list-side" }, () => badge(TONES[run().state] ?? "", run().state === "parked" || run().state === "waiting" ? "waits for you" : run().state), () => (run().took ? duration(run().took ?? 0) : ""), () => time(run().started), icon("right"))), { props: { class: "list" } }),
    ]),
  );
}

/** The runs of a session, from the last part of its journal. @param {string} key */
function oneSession(key) {
  const entries = new Resource(async () => {
    const status = await ask("sessions.listen", { sessionKey: key });
    const events = (status.status ?? status).events ?? 0;
    return (await ask("sessions.history", { sessionKey: key, from: Math.max(0, events - 1000), limit: 1000 })).events;
  }, { everyMs: 5000 });
  onDispose(wire.on("session.event", (data) => data.sessionKey === key && !["text", "thinking", "call_input"].includes(data.event.event) && entries.soon()));
  const runs = derived(() => timeline(entries.value() ?? [], Date.now() + wire.clockAhead).reverse());
  const chosen = signal("");
  return h(
    "div",
    { class: "screen" },
    h("p", null, h("a", { href: "/runs" }, "Runs")),
    header("Timeline", h("a", { class: "btn", href: path(["chat", key]) }, icon("chat"), "Open the session"), h("span", { class: "mono" }, key)),
    entries.view(() => [
      () => (runs().length ? null : empty("No run yet", "The session has not asked its model.")),
      each(runs, (run) => run.run || String(run.start), (run) => runCard(run, chosen), { props: { class: "detail" } }),
    ]),
  );
}

/** @param {import("../core/signal.js").Read<RunBars>} run @param {import("../core/signal.js").Signal<string>} chosen */
function runCard(run, chosen) {
  const failures = () => run().bars.filter((bar) => bar.failed);
  const scale = () => Math.max(1, run().end - run().start);
  return h(
    "section",
    null,
    h("div", { class: "toolbar" }, h("h2", null, () => exactTime(run().start)), () => badge(TONES[run().outcome] ?? "", run().outcome), h("span", { class: "muted" }, () => `${duration(run().end - run().start)} · ${run().bars.length} steps`), () => (failures().length ? h("span", { class: "badge error" }, `${failures().length} failed`) : null)),
    each(
      // In a long run the failures come first; a short one is read in its order.
      () => (run().bars.length > 60 ? [...failures(), ...run().bars.filter((bar) => !bar.failed)].slice(0, 400) : run().bars),
      (bar) => bar.key,
      (bar) => barRow(bar, run, scale, chosen),
      { props: { class: "timeline" } },
    ),
  );
}

const KINDS = { model: "model", call: "call", human: "human" };

/** @param {import("../core/signal.js").Read<Bar>} bar @param {() => RunBars} run @param {() => number} scale @param {import("../core/signal.js").Signal<string>} chosen */
function barRow(bar, run, scale, chosen) {
  const key = bar.peek().key;
  return h(
    "div",
    null,
    h(
      "button",
      { type: "button", class: "bar-row", "aria-expanded": () => String(chosen() === key), onclick: () => chosen.set(chosen.peek() === key ? "" : key) },
      h("span", { class: "bar-name" }, () => [bar().name, bar().failed ? " · failed" : "", bar().kind === "human" ? ` · ${bar().open ? "waits for a person" : bar().what}` : ""]),
      h("span", { class: "bar-track" }, h("span", { class: () => `bar ${KINDS[bar().kind]} ${bar().failed ? "failed" : ""}`, style: () => ({ left: `${(100 * (bar().start - run().start)) / scale()}%`, width: `${(100 * (bar().end - bar().start)) / scale()}%` }) })),
      h("span", { class: "bar-time" }, () => duration(bar().end - bar().start)),
    ),
    () =>
      chosen() === key
        ? untracked(() => h("div", { class: "bar-open detail" }, bar().what && bar().kind === "model" ? h("p", { class: "muted" }, bar().what) : null, bar().input ? [h("h3", null, "Input"), json(bar().input)] : null, bar().output ? [h("h3", null, "Output"), longText(resultText(bar().output ?? ""))] : null))
        : null,
  );
}
