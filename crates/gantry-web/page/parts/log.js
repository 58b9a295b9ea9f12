// Lines of text that grow: followed at the end, searched, wrapped as the reader chose. The oldest lines leave.

import { h } from "../core/dom.js";
import { number } from "../core/format.js";
import { onDispose, signal } from "../core/signal.js";
import { button } from "./ui.js";

const MOST_LINES = 4000;
const LONGEST_LINE = 4000;
const WRAP = "gantry.log.wrap";

/** Escape sequences of terminals: colours are dropped here, and so is everything that acts. */
// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[@-Z\\-_]|[ -/]+[0-~])/g;

/** @param {string} text */
export function plainLine(text) {
  const clean = text.replace(ESCAPES, "");
  // What a carriage return overwrites was progress.
  const last = clean.replace(/\r+$/, "").split("\r").pop() ?? "";
  // eslint-disable-next-line no-control-regex
  return last.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "\ufffd");
}

/** @typedef {ReturnType<typeof logView>} LogView */

/** @param {string} label */
export function logView(label) {
  const wrap = signal(localStorage.getItem(WRAP) !== "no");
  const following = signal(true);
  const query = signal("");
  const hits = signal("");
  const dropped = signal(0);
  let count = 0;
  const lines = h("div", { class: "log-lines" });
  const box = h(
    "div",
    {
      class: () => `log-box ${wrap() ? "wrap-on" : ""}`,
      tabindex: "0",
      role: "log",
      "aria-live": "off",
      "aria-label": label,
      onscroll: () => following.set(box.scrollHeight - box.scrollTop - box.clientHeight < 40),
    },
    lines,
  );
  /** @type {Range[]} */
  let ranges = [];
  let at = 0;
  const mark = () => {
    ranges = [];
    const wanted = query.peek().toLowerCase();
    if (wanted) {
      for (const line of lines.children) {
        const text = line.firstChild;
        const lower = (text?.textContent ?? "").toLowerCase();
        for (let from = lower.indexOf(wanted); text && from >= 0 && ranges.length < 2000; from = lower.indexOf(wanted, from + wanted.length)) {
          const range = new Range();
          range.setStart(text, from);
          range.setEnd(text, Math.min(from + wanted.length, lower.length));
          ranges.push(range);
        }
      }
    }
    if (ranges.length) CSS.highlights?.set("found", new Highlight(...ranges));
    else CSS.highlights?.delete("found");
    at = Math.min(at, Math.max(0, ranges.length - 1));
    hits.set(wanted ? (ranges.length ? `${at + 1} of ${number(ranges.length)}` : "not found") : "");
  };
  const move = (/** @type {number} */ by) => {
    mark();
    if (!ranges.length) return;
    at = (at + by + ranges.length) % ranges.length;
    hits.set(`${at + 1} of ${number(ranges.length)}`);
    following.set(false);
    ranges[at].startContainer.parentElement?.scrollIntoView({ block: "center" });
  };
  onDispose(() => CSS.highlights?.delete("found"));

  const stick = () => {
    if (following.peek()) box.scrollTop = box.scrollHeight;
  };
  /** @param {readonly string[]} more */
  const append = (more) => {
    const kept = more.slice(-MOST_LINES);
    const fragment = document.createDocumentFragment();
    for (const line of kept) {
      const text = plainLine(line);
      fragment.append(h("div", { class: "log-line" }, text.length > LONGEST_LINE ? `${text.slice(0, LONGEST_LINE)} … ${number(text.length - LONGEST_LINE)} more characters` : text || " "));
    }
    lines.append(fragment);
    count += kept.length;
    let out = more.length - kept.length;
    while (count > MOST_LINES) {
      lines.firstChild?.remove();
      count--;
      out++;
    }
    if (out) dropped.update((n) => n + out);
    stick();
  };
  /** Replaces the last lines, which may have been incomplete. @param {number} drop @param {readonly string[]} more */
  const replaceEnd = (drop, more) => {
    for (let n = 0; n < drop && lines.lastChild; n++) {
      lines.lastChild.remove();
      count--;
    }
    append(more);
  };
  const clear = () => {
    lines.replaceChildren();
    count = 0;
    dropped.set(0);
  };
  const element = h(
    "div",
    { class: "log" },
    h(
      "div",
      { class: "log-bar" },
      h("input", { type: "search", placeholder: "Search", "aria-label": `Search in ${label}`, oninput: (/** @type {any} */ e) => (query.set(e.target.value), (at = 0), mark()), onkeydown: (/** @type {KeyboardEvent} */ e) => e.key === "Enter" && (e.preventDefault(), move(e.shiftKey ? -1 : 1)) }),
      h("span", { class: "muted", role: "status" }, hits),
      h("span", { class: "right" }),
      h("button", { type: "button", class: "btn small", "aria-pressed": () => String(wrap()), onclick: () => (wrap.update((was) => !was), localStorage.setItem(WRAP, wrap.peek() ? "yes" : "no")) }, "Wrap"),
      () => (following() ? null : button("To the end", () => (following.set(true), stick()), { small: true, icon: "down" })),
    ),
    () => (dropped() ? h("p", { class: "log-dropped muted" }, `${number(dropped())} earlier lines are not shown`) : null),
    box,
  );
  return { element, append, replaceEnd, clear, text: () => [...lines.children].map((line) => line.textContent).join("\n") };
}
