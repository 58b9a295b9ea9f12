// The small parts that all screens share: icons, buttons, states of loading, dialogs, messages.

import { each, h } from "../core/dom.js";
import { ago, exactTime } from "../core/format.js";
import { derived, onDispose, scope, signal, untracked, watch } from "../core/signal.js";
import { wire } from "../core/wire.js";

/** @import { Child, Props } from "../core/dom.js" */
/** @import { Signal } from "../core/signal.js" */
/** @import { Events, Methods } from "../../tests/api.d.ts" */

/** Lines of the icons, on a grid of 20. */
const ICONS = /** @type {const} */ ({
  chat: "M3 5.5A2.5 2.5 0 0 1 5.5 3h9A2.5 2.5 0 0 1 17 5.5v6a2.5 2.5 0 0 1-2.5 2.5H9l-4 3v-3.05A2.5 2.5 0 0 1 3 11.5z",
  inbox: "M3 11l2.200-6.200A1.5 1.5 0 0 1 6.600 4h6.800a1.5 1.5 0 0 1 1.400.8L17 11v3.5a1.5 1.5 0 0 1-1.5 1.5h-11A1.5 1.5 0 0 1 3 14.5zM3 11h4l1 2h4l1-2h4",
  sessions: "M4 5h12M4 10h12M4 15h7",
  nodes: "M3 5.5A1.5 1.5 0 0 1 4.5 4h11A1.5 1.5 0 0 1 17 5.5v6a1.5 1.5 0 0 1-1.5 1.5h-11A1.5 1.5 0 0 1 3 11.5zM7 16.5h6M10 13v3.5",
  files: "M3 6a1.5 1.5 0 0 1 1.5-1.5h3L9 6.5h6.5A1.5 1.5 0 0 1 17 8v6a1.5 1.5 0 0 1-1.5 1.5h-11A1.5 1.5 0 0 1 3 14z",
  tools: "M12.5 3.300a4 4 0 0 0-4.900 5.100L3.200 12.800a1.600 1.600 0 0 0 0 2.300l1.700 1.700a1.600 1.600 0 0 0 2.300 0l4.400-4.400a4 4 0 0 0 5.100-4.900L14 10l-2.700-.7L10.600 6.600z",
  schedules: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 6.200V10l2.5 1.800",
  tasks: "M4 4.5h12v11H4zM7 10l2 2 4-4.5",
  pipelines: "M5.5 7a1.800 1.800 0 1 0 0-3.600 1.800 1.800 0 0 0 0 3.600zM14.5 11.800a1.800 1.800 0 1 0 0-3.600 1.800 1.800 0 0 0 0 3.600zM5.5 16.600a1.800 1.800 0 1 0 0-3.600 1.800 1.800 0 0 0 0 3.600zM7.300 5.400c3 .2 3.300 3.400 5.400 4.200M7.300 14.600c3-.2 3.300-3.400 5.400-4.200",
  runs: "M4 5h6M7 10h7M11 15h5M4 3v14",
  channels: "M4 8.5v3l9 3.5V5zM13 8a2.200 2.200 0 0 1 0 4M6 12.200V16h2l.6-3",
  outbox: "M3 11h4l1 2h4l1-2h4v3.5a1.5 1.5 0 0 1-1.5 1.5h-11A1.5 1.5 0 0 1 3 14.5zM10 9V3.5M7.2 6.200L10 3.400l2.800 2.800",
  audit: "M5 3h7l3 3v11H5zM12 3v3h3M7.5 10h5M7.5 13h5",
  usage: "M4 16V9M8 16V4M12 16v-5M16 16V7",
  settings: "M10 12.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM10 3v2M10 15v2M17 10h-2M5 10H3M15 5l-1.400 1.400M6.400 13.600L5 15M15 15l-1.400-1.400M6.400 6.400L5 5",
  more: "M5 10h.01M10 10h.01M15 10h.01",
  search: "M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11zM13 13l4 4",
  plus: "M10 4v12M4 10h12",
  close: "M5 5l10 10M15 5L5 15",
  check: "M4 10.5l4 4 8-9",
  stop: "M5.5 5.5h9v9h-9z",
  send: "M10 16V4M5 9l5-5 5 5",
  copy: "M7 7V4.5A1.5 1.5 0 0 1 8.5 3h7A1.5 1.5 0 0 1 17 4.5v7a1.5 1.5 0 0 1-1.5 1.5H13M3 8.5A1.5 1.5 0 0 1 4.5 7h7A1.5 1.5 0 0 1 13 8.5v7a1.5 1.5 0 0 1-1.5 1.5h-7A1.5 1.5 0 0 1 3 15.5z",
  down: "M5 8l5 5 5-5",
  right: "M8 5l5 5-5 5",
  left: "M12 5l-5 5 5 5",
  up: "M5 12l5-5 5 5",
  warn: "M10 3.5L17.5 16h-15zM10 8v4M10 14h.01",
  info: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 9v4M10 6.5h.01",
  play: "M6 4.5l9 5.5-9 5.5z",
  pause: "M7 4.5v11M13 4.5v11",
  trash: "M4 6h12M8 6V4h4v2M6 6l.7 10.5h6.600L14 6",
  refresh: "M16 10a6 6 0 1 1-1.800-4.300L16 7.5M16 3.5v4h-4",
  download: "M10 3v9M6 8.5l4 4 4-4M4 16.5h12",
  upload: "M10 13V4M6 7.5l4-4 4 4M4 16.5h12",
  edit: "M4 16l.8-3.5L13 4.300a1.5 1.5 0 0 1 2.100 0l.6.6a1.5 1.5 0 0 1 0 2.100L7.5 15.200z",
  terminal: "M3 4.5h14v11H3zM6 8l2.5 2L6 12M10.5 12.5h3.5",
  globe: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM3 10h14M10 3c2.5 2 2.5 12 0 14M10 3c-2.5 2-2.5 12 0 14",
  user: "M10 9.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM4 16.5c.6-3 3-4.5 6-4.5s5.400 1.5 6 4.5",
  key: "M7 13a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM10.5 9.5H17v3M14 9.5V12",
  brand: "M3 16.5V6.5L17 3v13.5M3 10l14-3.5M10 8.300V13M8 13h4v3.5H8z",
});

/** @typedef {keyof typeof ICONS} IconName */

/** @param {IconName} name @param {string} [extra] */
export function icon(name, extra = "") {
  return h("svg", { class: `icon ${extra}`, viewBox: "0 0 20 20", "aria-hidden": "true" }, h("path", { d: ICONS[name] }));
}

/**
 * @param {Child} label
 * @param {(event: Event) => unknown} run
 * @param {{ icon?: IconName, kind?: "primary" | "danger" | "bare", title?: string, disabled?: boolean | (() => boolean), small?: boolean, extra?: Props }} [options]
 */
export function button(label, run, options = {}) {
  const busy = signal(false);
  const start = async (/** @type {Event} */ event) => {
    if (busy.peek()) return;
    const result = run(event);
    if (!(result instanceof Promise)) return;
    busy.set(true);
    try {
      await result;
    } catch (error) {
      showError(error);
    } finally {
      busy.set(false);
    }
  };
  const disabled = options.disabled;
  return h(
    "button",
    {
      type: "button",
      class: `btn ${options.kind ?? ""} ${options.small ? "small" : ""} ${label ? "" : "only-icon"}`,
      title: options.title,
      "aria-label": label ? undefined : options.title,
      "aria-busy": () => (busy() ? "true" : null),
      disabled: typeof disabled === "function" ? () => disabled() || busy() : () => Boolean(disabled) || busy(),
      onclick: start,
      ...options.extra,
    },
    options.icon ? icon(options.icon) : null,
    label ? h("span", null, label) : null,
  );
}

/** Marks of state. The word says the same as the colour. @param {string} tone @param {Child} label */
export const badge = (tone, label) => h("span", { class: `badge ${tone}` }, label);

/** A time relative to now, with the exact one on hover. @param {number | null | undefined} at */
export function time(at) {
  if (!at) return h("span", { class: "muted" }, "never");
  return h("time", { datetime: new Date(at).toISOString(), title: exactTime(at) }, () => ago(at));
}

/** @param {string} title @param {Child} text @param {Child} [action] */
export const empty = (title, text, action) => h("div", { class: "empty" }, h("h2", null, title), h("p", null, text), action ?? null);

/** @param {Child} title @param {Child} [actions] @param {Child} [sub] */
export const header = (title, actions, sub) =>
  h("header", { class: "head" }, h("div", { class: "head-text" }, h("h1", null, title), sub ? h("p", { class: "sub" }, sub) : null), h("div", { class: "head-actions" }, actions ?? null));

/**
 * Something that is read from the gateway. It is read again after a reconnection; answers that a later reading overtook
 * are discarded, and while it is read again the old value stays.
 * @template T
 */
export class Resource {
  value = signal(/** @type {T | null} */ (null));
  error = signal(/** @type {Error | null} */ (null));
  #number = 0;

  /** @param {() => Promise<T>} load @param {{ events?: (keyof Events)[], everyMs?: number }} [options] */
  constructor(load, options = {}) {
    this.load = load;
    watch(() => {
      wire.epoch();
      if (wire.state.peek() === "online") untracked(() => void this.reload());
    });
    for (const event of options.events ?? []) onDispose(wire.on(event, () => this.soon()));
    if (options.everyMs) {
      const timer = setInterval(() => document.visibilityState === "visible" && this.reload(), options.everyMs);
      onDispose(() => clearInterval(timer));
    }
    onDispose(() => {
      this.#number = -1;
      clearTimeout(this.#timer);
    });
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** Reads again in a moment. Many calls make one reading. */
  soon() {
    if (this.#timer || this.#number < 0) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.reload();
    }, 150);
  }

  async reload() {
    if (this.#number < 0) return;
    const number = ++this.#number;
    try {
      const value = await this.load();
      if (number !== this.#number) return;
      this.value.set(value);
      this.error.set(null);
    } catch (error) {
      if (number === this.#number && /** @type {any} */ (error).code !== "lost") this.error.set(/** @type {Error} */ (error));
    }
  }

  /** Shows the value, or why there is none. Built once: what changes later reads `value()` itself. @param {(value: T) => Child} show @returns {Child} */
  view(show) {
    const state = derived(() => (this.value() !== null ? "ready" : this.error() ? "failed" : "loading"));
    return () => {
      if (state() === "loading") return h("p", { class: "loading", role: "status" }, "Loading…");
      return untracked(() => (this.value() === null ? problem(/** @type {Error} */ (this.error()), () => this.reload()) : show(/** @type {T} */ (this.value()))));
    };
  }

  /** As `view`, but built again for each new value. @param {(value: T) => Child} show @returns {Child} */
  redraw(show) {
    return this.view(() => () => {
      const value = /** @type {T} */ (this.value());
      return untracked(() => show(value));
    });
  }
}

/** @param {keyof Methods} method @param {any} [params] @returns {Promise<any>} */
export const ask = (method, params = {}) => wire.request(method, params);

/** @param {Error} error @param {() => unknown} [again] */
export function problem(error, again) {
  return h(
    "div",
    { class: "problem", role: "alert" },
    icon("warn"),
    h("div", null, h("p", null, error.message), /** @type {any} */ (error).hint ? h("p", { class: "muted" }, /** @type {any} */ (error).hint) : null),
    again ? button("Try again", again, { small: true }) : null,
  );
}

/** @type {Signal<{ id: number, text: string, tone: string }[]>} */
const messages = signal(/** @type {{ id: number, text: string, tone: string }[]} */ ([]));
let messageIds = 0;

/** Shows a short message for some seconds. @param {string} text @param {"info" | "error"} [tone] */
export function say(text, tone = "info") {
  const id = ++messageIds;
  messages.update((list) => [...list.slice(-3), { id, text, tone }]);
  setTimeout(() => messages.update((list) => list.filter((message) => message.id !== id)), tone === "error" ? 9000 : 4000);
}

/** @param {unknown} error */
export function showError(error) {
  const { message, hint } = /** @type {any} */ (error);
  say(hint ? `${message}. ${hint}` : String(message ?? error), "error");
}

export const messageList = () =>
  each(messages, (message) => message.id, (message) => h("div", { class: () => `toast ${message().tone}` }, () => message().text), {
    props: { class: "toasts", role: "status", "aria-live": "polite" },
  });

/**
 * Opens a dialog. `build` gets a function that closes it. The result resolves when it is closed.
 * @param {string} title
 * @param {(close: (value?: string) => void) => Child} build
 * @param {{ wide?: boolean, side?: boolean }} [options]
 * @returns {Promise<string>}
 */
export function dialog(title, build, options = {}) {
  return new Promise((resolve) => {
    /** @returns {void} */
    const close = (/** @type {string} */ value = "") => element.close(value);
    const [content, dispose] = scope(() => build(close));
    /** @type {HTMLDialogElement} */
    const element = h(
      "dialog",
      {
        class: options.side ? "drawer" : options.wide ? "wide" : "",
        "aria-label": title,
        onclose: () => {
          element.remove();
          dispose();
          resolve(element.returnValue);
        },
        onclick: (/** @type {Event} */ event) => {
          if (event.target === element) close();
        },
      },
      h(
        "div",
        { class: "dialog-box" },
        h("div", { class: "dialog-head" }, h("h2", null, title), button(null, () => close(), { icon: "close", kind: "bare", title: "Close" })),
        content,
      ),
    );
    document.body.append(element);
    element.showModal();
  });
}

/** Asks before something that cannot be undone. The focus is never on the yes. @param {string} title @param {Child} text @param {string} yes */
export async function confirmed(title, text, yes) {
  const answer = await dialog(title, (close) => [
    h("div", { class: "dialog-text" }, text),
    h("div", { class: "dialog-actions" }, button("Cancel", () => close(), { extra: { autofocus: true } }), button(yes, () => close("yes"), { kind: "danger" })),
  ]);
  return answer === "yes";
}

/** @param {string} text @param {string} [what] */
export async function copyText(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    say(what);
  } catch {
    say("The browser did not allow copying. Select the text instead.", "error");
  }
}

/** @param {string} text */
export const copyButton = (text) => button(null, () => copyText(text), { icon: "copy", kind: "bare", small: true, title: "Copy" });

/** A labelled field. `problem` shows what the gateway refused. @param {string} label @param {HTMLElement} input @param {Child} [hint] @param {() => string} [problem] */
export function field(label, input, hint, problem) {
  const id = `f${++fieldIds}`;
  input.id = id;
  if (hint || problem) input.setAttribute("aria-describedby", `${id}h`);
  return h(
    "div",
    { class: "field" },
    h("label", { for: id }, label),
    input,
    h("div", { id: `${id}h`, class: "field-notes" }, hint ? h("p", { class: "hint" }, hint) : null, problem ? () => (problem() ? h("p", { class: "field-problem" }, problem()) : null) : null),
  );
}
let fieldIds = 0;

/** @param {string} label @param {readonly (readonly [string, string])[]} options @param {() => string} value @param {(value: string) => void} change */
export function select(label, options, value, change) {
  return h(
    "select",
    { "aria-label": label, value, onchange: (/** @type {Event} */ event) => change(/** @type {HTMLSelectElement} */ (event.target).value) },
    options.map(([id, text]) => h("option", { value: id }, text)),
  );
}

/** A choice between a few views. @param {string} label @param {readonly (readonly [string, string])[]} options @param {() => string} value @param {(value: string) => void} change */
export function tabs(label, options, value, change) {
  return h(
    "div",
    { class: "tabs", role: "group", "aria-label": label },
    options.map(([id, text]) =>
      h("button", { type: "button", class: "tab", "aria-pressed": () => String(value() === id), onclick: () => change(id) }, text),
    ),
  );
}
