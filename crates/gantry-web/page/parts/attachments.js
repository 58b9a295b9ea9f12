// What goes with a message: pictures for the model, and files that are stored in the agent's storage first.

import { each, h } from "../core/dom.js";
import { bytes } from "../core/format.js";
import { derived, signal } from "../core/signal.js";
import { sendFile } from "./transfers.js";
import { button, icon, showError } from "./ui.js";

/** @import { Read } from "../core/signal.js" */
/** @typedef {{ mediaType: string, data: string }} Picture */
/** @typedef {{ id: number, file: File, state: "working" | "ready" | "failed", done: number, error: string, url: string, picture: Picture | null, path: string, abort: AbortController }} Attached */

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MOST_PICTURES = 20;
/** In base64, over all pictures of a message. */
const MOST_PICTURE_CHARS = 10_000_000;
const MOST_FILES = 20;

/** @param {string} name @param {Date} [at] */
export function storedName(name, at = new Date()) {
  const stamp = at.toISOString().replace(/[-:]/g, "").replace("T", "-").slice(0, 15);
  // A name of its own: a file that the agent has already is never replaced.
  return `inbox/${stamp}-${name.replace(/[^\p{L}\p{N}._-]+/gu, "_").replace(/^\.+/, "").slice(-100) || "file"}`;
}

/** The text that is sent: it names the files that were stored. @param {string} text @param {readonly string[]} paths @param {number} pictures */
export function withFiles(text, paths, pictures) {
  if (paths.length) return [text, `Files: ${paths.join(", ")}`].filter(Boolean).join("\n\n");
  return text || (pictures ? "Look at this." : "");
}

/** @typedef {ReturnType<typeof attachments>} Files */

/** @param {() => string} agent */
export function attachments(agent) {
  const list = signal(/** @type {Attached[]} */ ([]));
  let ids = 0;
  const change = (/** @type {number} */ id, /** @type {Partial<Attached>} */ to) => list.update((all) => all.map((one) => (one.id === id ? { ...one, ...to } : one)));
  const remove = (/** @type {readonly number[]} */ gone) => {
    for (const one of list.peek()) {
      if (!gone.includes(one.id)) continue;
      one.abort.abort();
      if (one.url) URL.revokeObjectURL(one.url);
    }
    list.update((all) => all.filter((one) => !gone.includes(one.id)));
  };

  const start = async (/** @type {Attached} */ one) => {
    change(one.id, { state: "working", error: "", done: 0 });
    try {
      if (PICTURES.includes(one.file.type)) {
        const picture = { mediaType: one.file.type, data: await base64(one.file) };
        const others = list.peek().filter((other) => other.picture && other.id !== one.id);
        if (others.length >= MOST_PICTURES) throw new Error(`a message has at most ${MOST_PICTURES} pictures`);
        if (others.reduce((sum, other) => sum + (other.picture?.data.length ?? 0), picture.data.length) > MOST_PICTURE_CHARS) throw new Error("the pictures of a message have at most 7.5 MB together");
        change(one.id, { state: "ready", picture });
      } else {
        const stored = await sendFile(one.file, storedName(one.file.name), agent(), (done) => change(one.id, { done }), one.abort.signal);
        change(one.id, { state: "ready", path: stored.path });
      }
    } catch (error) {
      change(one.id, { state: "failed", error: /** @type {Error} */ (error).message });
    }
  };

  const add = (/** @type {readonly File[]} */ files) => {
    if (list.peek().length + files.length > MOST_FILES) return showError(new Error(`A message takes at most ${MOST_FILES} files`));
    for (const file of files) {
      /** @type {Attached} */
      const one = { id: ++ids, file, state: "working", done: 0, error: "", url: PICTURES.includes(file.type) ? URL.createObjectURL(file) : "", picture: null, path: "", abort: new AbortController() };
      list.update((all) => [...all, one]);
      void start(one);
    }
  };

  const element = each(list, (one) => one.id, (one) => chip(one, () => remove([one.peek().id]), () => void start(one.peek())), { tag: "ul", props: { class: "attached", "aria-label": "Files of the message" } });
  return {
    add,
    element,
    /** Something is still read or stored, or has failed: the message would be without it. */
    blocked: derived(() => list().some((one) => one.state !== "ready")),
    count: derived(() => list().length),
    /** What goes with the message that is sent now. */
    ready: () => {
      const all = list.peek().filter((one) => one.state === "ready");
      const pictures = all.flatMap((one) => one.picture ?? []);
      const paths = all.map((one) => one.path).filter(Boolean);
      return { ids: all.map((one) => one.id), pictures, message: (/** @type {string} */ text) => withFiles(text, paths, pictures.length) };
    },
    remove,
    end: () => remove(list.peek().map((one) => one.id)),
  };
}

/** @param {Read<Attached>} one @param {() => void} remove @param {() => void} again */
function chip(one, remove, again) {
  const { file, url } = one.peek();
  const words = () => {
    const { state, done, error } = one();
    if (state === "failed") return error;
    return state === "working" && !url ? `${bytes(done)} of ${bytes(file.size)}` : bytes(file.size);
  };
  return h(
    "li",
    { class: () => `attached-one ${one().state}` },
    url ? h("img", { src: url, alt: "", class: "attached-picture" }) : icon("files"),
    h("span", { class: "attached-name" }, h("span", null, file.name || "picture"), h("span", { class: "attached-state", role: "status" }, words)),
    () => (one().state === "failed" ? button(null, again, { icon: "refresh", kind: "bare", small: true, title: `Try ${file.name} again` }) : null),
    button(null, remove, { icon: "close", kind: "bare", small: true, title: `Leave out ${file.name || "the picture"}` }),
  );
}

/** @param {File} file @returns {Promise<string>} */
const base64 = (file) =>
  new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result).split(",")[1] ?? "");
    reader.onerror = () => failed(new Error("the file cannot be read"));
    reader.readAsDataURL(file);
  });
