// The bar that searches in a transcript.

import { findText, markFound } from "../core/find.js";
import { h } from "../core/dom.js";
import { signal } from "../core/signal.js";
import { button } from "./ui.js";

/** @param {HTMLElement} place The bar stands before it. @param {HTMLElement} column What is searched. @param {() => void} leave Called before the place scrolls. */
export function findBar(place, column, leave) {
  const there = place.parentElement?.querySelector(".find input");
  if (there instanceof HTMLElement) return there.focus();
  const count = signal("");
  /** @type {Range[]} */
  let hits = [];
  let at = 0;
  const show = () => {
    markFound(hits);
    count.set(input.value ? (hits.length ? `${at + 1} of ${hits.length}` : "not found") : "");
    if (!hits[at]) return;
    leave();
    hits[at].startContainer.parentElement?.scrollIntoView({ block: "center" });
  };
  const run = () => {
    hits = findText(column, input.value);
    at = Math.max(0, hits.length - 1);
    show();
  };
  const move = (/** @type {number} */ by) => {
    if (hits.length) at = (at + by + hits.length) % hits.length;
    show();
  };
  const close = () => {
    markFound([]);
    bar.remove();
  };
  const input = h("input", {
    type: "search",
    "aria-label": "Search in this conversation",
    placeholder: "Search in this conversation",
    oninput: run,
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter") move(event.shiftKey ? 1 : -1);
      if (event.key === "Escape") close();
    },
  });
  const bar = h("div", { class: "find", role: "search" }, input, h("span", { class: "muted", role: "status" }, count), button(null, () => move(-1), { icon: "up", kind: "bare", title: "Earlier" }), button(null, () => move(1), { icon: "down", kind: "bare", title: "Later" }), button(null, close, { icon: "close", kind: "bare", title: "Close" }));
  place.before(bar);
  input.focus();
}
