// Lines of text that grow: followed at the end, searched, wrapped as the reader chose. The oldest lines leave.

import { h } from "../core/dom.js";
import { findText, markFound } from "../core/find.js";
import { number } from "../core/format.js";
import { onDispose, signal } from "../core/signal.js";
import { ask, button } from "./ui.js";

/** @import { AnsiRun, AnsiStyle } from "../../tests/api.d.ts" */

const MOST_LINES = 4000;
const LONGEST_LINE = 4000;
const WRAP = "gantry.log.wrap";

/** The sixteen colours have names in the sheet; the others are computed. @param {string | undefined} color */
export function colorOf(color) {
  if (!color) return "";
  if (/^#[0-9a-f]{6}$/i.test(color)) return color;
  const n = Number(color);
  if (!Number.isInteger(n) || n < 0 || n > 255) return "";
  if (n < 16) return `var(--ansi-${n})`;
  if (n >= 232) {
    const level = 8 + (n - 232) * 10;
    return `rgb(${level} ${level} ${level})`;
  }
  const level = (/** @type {number} */ part) => (part ? 55 + part * 40 : 0);
  return `rgb(${level(Math.floor((n - 16) / 36))} ${level(Math.floor((n - 16) / 6) % 6)} ${level((n - 16) % 6)})`;
}

/** @param {AnsiRun} run */
function drawRun(run) {
  const { text, color, background, bold, dim, italic, underline, strike, inverse } = run;
  if (!color && !background && !bold && !dim && !italic && !underline && !strike && !inverse) return text;
  const [front, back] = inverse ? [background ?? "bg", color ?? "fg"] : [color, background];
  const named = (/** @type {string | undefined} */ value) => (value === "bg" ? "var(--sunken)" : value === "fg" ? "var(--text)" : colorOf(value));
  return h("span", { class: ["run", bold && "bold", dim && "dim", italic && "italic", underline && "underline", strike && "strike"].filter(Boolean).join(" "), style: { ...(front ? { color: named(front) } : {}), ...(back ? { background: named(back) } : {}) } }, text);
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
    const wanted = query.peek();
    ranges = findText(lines, wanted);
    markFound(ranges);
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
  onDispose(() => markFound([]));

  const stick = () => {
    if (following.peek()) box.scrollTop = box.scrollHeight;
  };
  /** @type {AnsiStyle} */
  let style = {};
  // One piece after the other: the style at the end of a piece begins the next one.
  let queue = Promise.resolve();
  /** @param {() => Promise<void>} step */
  const next = (step) => {
    queue = queue.then(step).catch((error) => add([[{ text: `! ${error.message}` }]], 0));
    return queue;
  };
  /** @param {AnsiRun[][]} more @param {number} left */
  const add = (more, left) => {
    const fragment = document.createDocumentFragment();
    for (const runs of more) {
      const length = runs.reduce((sum, run) => sum + run.text.length, 0);
      fragment.append(h("div", { class: "log-line" }, length > LONGEST_LINE ? `${runs.map((run) => run.text).join("").slice(0, LONGEST_LINE)} … ${number(length - LONGEST_LINE)} more characters` : length ? runs.map(drawRun) : " "));
    }
    lines.append(fragment);
    count += more.length;
    let out = left;
    while (count > MOST_LINES) {
      lines.firstChild?.remove();
      count--;
      out++;
    }
    if (out) dropped.update((n) => n + out);
    stick();
  };
  /** Replaces the last lines, which may have been incomplete. @param {number} drop @param {readonly string[]} more */
  const replaceEnd = (drop, more) =>
    next(async () => {
      const kept = more.slice(-MOST_LINES);
      const rendered = kept.length ? await ask("ansi.render", { text: kept.join("\n"), style }) : { lines: [], style };
      style = rendered.style;
      for (let n = 0; n < drop && lines.lastChild; n++) {
        lines.lastChild.remove();
        count--;
      }
      add(rendered.lines, more.length - kept.length);
    });
  /** @param {readonly string[]} more */
  const append = (more) => replaceEnd(0, more);
  const clear = () =>
    next(async () => {
      lines.replaceChildren();
      count = 0;
      style = {};
      dropped.set(0);
    });
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
