// The command palette (Ctrl+K or Command+K) over screens, sessions, machines and tools; and the list of keys (`?`).

import { each, h } from "../core/dom.js";
import { addShortcut, shortcuts, startKeys } from "../core/keys.js";
import { go, path } from "../core/route.js";
import { derived, signal } from "../core/signal.js";
import { ask, dialog, icon } from "./ui.js";

/** @import { IconName } from "./ui.js" */
/** @typedef {{ id: string, label: string, kind: string, icon: IconName, run: () => void }} Entry */

/** @param {readonly { id: string, place?: string[], label: string, icon: IconName, key: string }[]} screens */
export function startPalette(screens) {
  startKeys();
  const open = () => void palette(screens);
  addShortcut({ keys: "mod+k", label: "Search everything", run: open });
  addShortcut({ keys: "/", label: "Write a message", run: () => document.querySelector("textarea")?.focus() });
  addShortcut({ keys: "?", label: "Show these keys", run: showKeys });
  for (const screen of screens) addShortcut({ keys: `g ${screen.key}`, label: `Go to ${screen.label}`, run: () => go(path(screen.place ?? [screen.id])) });
  document.addEventListener("gantry:palette", open);
}

function showKeys() {
  const name = (/** @type {string} */ keys) => keys.replace("mod+", /Mac|iPhone|iPad/.test(navigator.userAgent) ? "⌘ " : "Ctrl ").toUpperCase();
  void dialog("Keys", () => h("dl", { class: "keys dialog-text" }, shortcuts.map(({ keys, label }) => h("div", null, h("dt", null, name(keys).split(" ").map((key) => h("kbd", null, key))), h("dd", null, label)))));
}

/** Ranks by where the words occur; every word must. @param {string} label @param {string} query */
export function rank(label, query) {
  const lower = label.toLowerCase();
  let score = 0;
  for (const word of query.toLowerCase().split(/\s+/).filter(Boolean)) {
    const at = lower.indexOf(word);
    if (at < 0) return -1;
    score += at === 0 ? 3 : /[\s_\-:./]/.test(lower[at - 1]) ? 2 : 1;
  }
  return score;
}

/** @param {readonly { id: string, place?: string[], label: string, icon: IconName, key: string }[]} screens */
async function palette(screens) {
  if (document.querySelector("dialog.palette")) return;
  const query = signal("");
  const at = signal(0);
  const entries = signal(/** @type {Entry[]} */ (screens.map((screen) => ({ id: `screen:${screen.id}`, label: screen.label, kind: "Screen", icon: screen.icon, run: () => go(path(screen.place ?? [screen.id])) }))));
  const add = (/** @type {Entry[]} */ more) => entries.update((list) => [...list, ...more]);
  const has = (/** @type {string} */ id) => screens.some((screen) => screen.id === id);
  ask("sessions.list", { limit: 300 }).then(({ sessions }) => add(sessions.map((/** @type {any} */ s) => ({ id: `s:${s.sessionKey}`, label: s.label || s.sessionKey, kind: "Session", icon: "chat", run: () => go(path(["chat", s.sessionKey])) }))), () => {});
  if (has("nodes")) ask("nodes.list").then(({ nodes }) => add(nodes.map((/** @type {any} */ n) => ({ id: `n:${n.id}`, label: n.id, kind: "Machine", icon: "nodes", run: () => go(path(["nodes", n.id])) }))), () => {});
  if (has("tools")) ask("tools.list").then(({ tools }) => add(tools.map((/** @type {any} */ t) => ({ id: `t:${t.name}`, label: t.name, kind: "Tool", icon: "tools", run: () => go(path(["tools", t.name])) }))), () => {});
  const shown = derived(() => {
    const wanted = query();
    const ranked = entries().map((entry) => ({ entry, score: rank(entry.label, wanted) }));
    return ranked.filter(({ score }) => score >= 0).sort((a, b) => b.score - a.score).slice(0, 40).map(({ entry }) => entry);
  });
  await dialog("Search", (close) => {
    const run = (/** @type {Entry | undefined} */ entry) => {
      if (!entry) return;
      close();
      entry.run();
    };
    const move = (/** @type {number} */ by) => {
      const count = shown().length;
      if (count) at.update((n) => (n + by + count) % count);
      document.getElementById(`palette-${at.peek()}`)?.scrollIntoView({ block: "nearest" });
    };
    return h(
      "div",
      { class: "palette-box" },
      h("input", {
        type: "text",
        role: "combobox",
        "aria-label": "Search screens, sessions, machines and tools",
        "aria-expanded": "true",
        "aria-controls": "palette-list",
        "aria-activedescendant": () => `palette-${at()}`,
        placeholder: "Search screens, sessions, machines, tools",
        autofocus: true,
        autocomplete: "off",
        oninput: (/** @type {any} */ event) => {
          query.set(event.target.value);
          at.set(0);
        },
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.isComposing) return;
          if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            move(event.key === "ArrowDown" ? 1 : -1);
          } else if (event.key === "Enter") {
            event.preventDefault();
            run(shown()[at.peek()]);
          }
        },
      }),
      each(
        () => shown().map((entry, index) => ({ entry, index })),
        ({ entry }) => entry.id,
        (row) =>
          h(
            "div",
            { class: "palette-row", role: "option", id: () => `palette-${row().index}`, "aria-selected": () => String(row().index === at()), onclick: () => run(row.peek().entry), onmousemove: () => at.set(row.peek().index) },
            icon(row.peek().entry.icon),
            h("span", { class: "palette-label" }, () => row().entry.label),
            h("span", { class: "muted" }, () => row().entry.kind),
          ),
        { props: { class: "palette-list", id: "palette-list", role: "listbox", "aria-label": "Found" } },
      ),
      () => (shown().length ? null : h("p", { class: "muted palette-none" }, "Nothing has this name.")),
    );
  });
}
