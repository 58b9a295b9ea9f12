// The field for a message. It shares no state with the transcript, so typing costs the same in every session.
// The gateway accepts a message at once, also during a run: nothing is queued here.

import { h } from "../core/dom.js";
import { scope, signal, watch } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { ask, button, icon, say, showError } from "./ui.js";

/** @typedef {{ text: string, id: string }} Draft */

export const COMMANDS = /** @type {const} */ ([
  ["/stop", "Stop the run"],
  ["/new", "Start a new conversation; the journal keeps the old one"],
  ["/compact", "Replace older messages by a summary"],
  ["/status", "Show the session's state"],
  ["/model", "Show or change the model"],
  ["/think", "off, on, low, medium, high or a number of tokens"],
  ["/trust", "Trust a place, such as node:laptop"],
  ["/help", "List the commands"],
]);

/** @param {string} key */
const place = (key) => `gantry.draft.${key}`;

/** A draft and the id that its message will have: a repeated id is the same message. @param {string} key @returns {Draft} */
export function readDraft(key) {
  try {
    const stored = JSON.parse(localStorage.getItem(place(key)) ?? "null");
    if (stored && typeof stored.text === "string" && typeof stored.id === "string") return stored;
  } catch {
    // Not a draft: begin with an empty one.
  }
  return { text: "", id: newId() };
}

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {string} key @param {Draft} draft */
function writeDraft(key, draft) {
  if (draft.text) localStorage.setItem(place(key), JSON.stringify(draft));
  else localStorage.removeItem(place(key));
}

/** Whether Enter sends: not while an input method composes, and not on a touch screen. @param {KeyboardEvent} event @param {boolean} touch */
export const enterSends = (event, touch) =>
  event.key === "Enter" && !event.shiftKey && !event.altKey && !event.isComposing && event.keyCode !== 229 && (!touch || event.ctrlKey || event.metaKey);

/**
 * @param {{ sessionKey: string, agent: () => string, running: () => boolean, onsent: (told: string) => void }} given
 */
export function composer({ sessionKey, agent, running, onsent }) {
  const draft = readDraft(sessionKey);
  const text = signal(draft.text);
  const sending = signal(false);
  const failed = signal("");
  const dragged = signal(false);
  const touch = matchMedia("(pointer: coarse)").matches;

  const save = (/** @type {string} */ value) => {
    draft.text = value;
    writeDraft(sessionKey, draft);
    text.set(value);
    failed.set("");
  };

  /** The files of the message. The part is loaded with the first of them. */
  const attached = signal(/** @type {import("./attachments.js").Files | null} */ (null));
  let stopped = false;
  let endAttached = () => {};
  const attach = async (/** @type {readonly File[]} */ files) => {
    if (!files.length) return;
    if (!attached.peek()) {
      const { attachments } = await import("./attachments.js");
      if (!attached.peek() && !stopped) {
        const [made, end] = scope(() => attachments(agent));
        endAttached = end;
        attached.set(made);
      }
    }
    attached.peek()?.add(files);
    area.focus();
  };
  const choose = h("input", { type: "file", multiple: true, hidden: true, tabindex: "-1", "aria-hidden": "true", onchange: () => {
    void attach([...(choose.files ?? [])]).catch(showError);
    choose.value = "";
  } });

  const send = async () => {
    const files = attached.peek()?.ready() ?? { ids: [], pictures: [], message: (/** @type {string} */ given) => given };
    const typed = draft.text.trim();
    const message = files.message(typed);
    if (!message || sending.peek() || attached.peek()?.blocked.peek()) return;
    const id = draft.id;
    sending.set(true);
    try {
      const answer = await ask("sessions.send", { sessionKey, message, id, ...(files.pictures.length ? { pictures: files.pictures } : {}) });
      attached.peek()?.remove(files.ids);
      // Only the text that was sent is removed, not what was typed meanwhile.
      if (draft.text.trim() === typed) {
        draft.id = newId();
        area.value = "";
        save("");
      }
      onsent(answer.status === "command" ? answer.told : "");
    } catch (error) {
      const { message: reason, code } = /** @type {any} */ (error);
      failed.set(code === "lost" ? "Not sent: the gateway is not reachable. Your text is kept; send it again when the connection is back." : `Not sent: ${reason}`);
    } finally {
      sending.set(false);
    }
  };

  const stop = () => ask("sessions.send", { sessionKey, message: "/stop", id: newId() }).then((answer) => say(answer.told || "Stopping")).catch(showError);

  const matching = () => {
    const typed = text();
    if (!/^\/\w*$/.test(typed)) return [];
    return COMMANDS.filter(([name]) => name.startsWith(typed) && name !== typed);
  };

  const area = h("textarea", {
    class: "composer-text",
    rows: "1",
    placeholder: "Message the agent, or / for commands",
    "aria-label": "Message",
    "aria-describedby": "composer-hint",
    enterkeyhint: touch ? "enter" : "send",
    value: draft.text,
    oninput: () => save(area.value),
    onpaste: (/** @type {ClipboardEvent} */ event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      void attach(files).catch(showError);
    },
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Tab" && matching().length && !event.shiftKey) {
        event.preventDefault();
        pick(matching()[0][0]);
      } else if (enterSends(event, touch)) {
        event.preventDefault();
        void send();
      } else if (event.key === "Escape" && running()) {
        area.blur();
      }
    },
  });

  const pick = (/** @type {string} */ name) => {
    area.value = `${name} `;
    save(area.value);
    area.focus();
  };

  // A tab that is opened beside this one has the same draft; the last writer counts.
  const follow = (/** @type {StorageEvent} */ event) => {
    if (event.key !== place(sessionKey) || document.activeElement === area) return;
    const other = readDraft(sessionKey);
    draft.id = other.id;
    draft.text = other.text;
    area.value = other.text;
    text.set(other.text);
  };
  addEventListener("storage", follow);

  const element = h(
    "form",
    {
      class: "composer",
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        void send();
      },
      ondragover: (/** @type {DragEvent} */ event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        dragged.set(true);
      },
      ondragleave: () => dragged.set(false),
      ondrop: (/** @type {DragEvent} */ event) => {
        dragged.set(false);
        const files = [...(event.dataTransfer?.files ?? [])];
        if (!files.length) return;
        event.preventDefault();
        void attach(files).catch(showError);
      },
    },
    () =>
      matching().length
        ? h("ul", { class: "slash", "aria-label": "Commands" }, matching().map(([name, what]) => h("li", null, h("button", { type: "button", onclick: () => pick(name) }, h("code", null, name), h("span", null, what)))))
        : null,
    () => (failed() ? h("p", { class: "composer-failed", role: "alert" }, failed()) : null),
    () => attached()?.element ?? null,
    h(
      "div",
      { class: () => `composer-box ${dragged() ? "dragged" : ""}` },
      button(null, () => choose.click(), { icon: "plus", kind: "bare", title: "Attach files", extra: { class: "btn bare round" } }),
      choose,
      area,
      () => (running() ? button(null, stop, { icon: "stop", title: "Stop the run", extra: { class: "btn round stop" } }) : null),
      h("button", { type: "submit", class: "btn round send", "aria-label": "Send", disabled: () => !(text().trim() || attached()?.count()) || attached()?.blocked() || sending() || wire.state() !== "online" }, icon("send")),
    ),
    h("p", { id: "composer-hint", class: "composer-hint" }, () =>
      running() ? "A message now joins the run after the next result." : touch ? "Enter starts a new line." : "Enter sends, Shift+Enter starts a new line.",
    ),
  );
  watch(() => {
    area.readOnly = false;
    element.classList.toggle("sending", sending());
  });
  watch(() => {
    // Measured by the benchmark: from here on a message can be sent.
    if (wire.state() === "online" && !performance.getEntriesByName("gantry.usable").length) performance.mark("gantry.usable");
  });
  return { element, focus: () => area.focus(), stop: () => {
    removeEventListener("storage", follow);
    stopped = true;
    attached.peek()?.end();
    endAttached();
  } };
}
