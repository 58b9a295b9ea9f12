// All sessions: state, agent, last words. Children stand below the session that started them.

import { each, h } from "../core/dom.js";
import { number } from "../core/format.js";
import { go, path, route, setQuery } from "../core/route.js";
import { derived, onDispose, signal } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { formDialog } from "../parts/form-dialog.js";
import { Resource, ask, badge, button, confirmed, empty, header, icon, say, showError, tabs, time } from "../parts/ui.js";
import { newSessionKey, shortKey } from "./chat.js";

/** @import { SessionInfo } from "../../tests/api.d.ts" */

const PAGE = 200;

export default function Sessions() {
  const limit = signal(PAGE);
  const query = derived(() => route().query.get("q") ?? "");
  const state = derived(() => route().query.get("state") ?? "all");
  const list = new Resource(() => ask("sessions.list", { limit: limit.peek() }), { everyMs: 5000 });
  /** Messages that hold the text, found by the gateway. */
  const found = signal(/** @type {any[]} */ ([]));
  let searching = 0;
  const search = async (/** @type {string} */ text) => {
    const mine = ++searching;
    const { matches } = text.trim().length < 2 ? { matches: [] } : await ask("sessions.search", { text: text.trim(), limit: 50 });
    if (mine === searching) found.set(matches);
  };
  if (query.peek()) void search(query.peek()).catch(showError);
  onDispose(wire.on("session.event", (data) => /begun|final|stopped|error|approval|asked/.test(data.event.event) && list.soon()));
  const shown = derived(() => {
    const all = /** @type {SessionInfo[]} */ (list.value()?.sessions ?? []);
    const wanted = query().toLowerCase();
    const chosen = all.filter((s) => !wanted || `${s.sessionKey} ${s.label ?? ""} ${s.agent}`.toLowerCase().includes(wanted)).filter((s) => state() === "all" || (state() === "waiting" ? s.waiting : s.running));
    const known = new Set(chosen.map((s) => s.sessionKey));
    /** @type {(SessionInfo & { depth: number })[]} */
    const ordered = [];
    const add = (/** @type {SessionInfo} */ session, /** @type {number} */ depth) => {
      ordered.push({ ...session, depth });
      if (depth < 8) for (const child of chosen) if (child.parent === session.sessionKey) add(child, depth + 1);
    };
    for (const session of chosen) if (!session.parent || !known.has(session.parent)) add(session, 0);
    return ordered;
  });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  return h(
    "div",
    { class: "screen" },
    header("Sessions", button("New session", () => go(path(["chat", newSessionKey()])), { icon: "plus", kind: "primary" })),
    h(
      "div",
      { class: "toolbar" },
      h("input", {
        type: "search", class: "search", placeholder: "Search sessions", "aria-label": "Search sessions", value: query.peek(),
        oninput: (/** @type {any} */ event) => {
          setQuery({ q: event.target.value });
          clearTimeout(typing);
          typing = setTimeout(() => search(event.target.value).catch(showError), 250);
        },
      }),
      tabs("State", [["all", "All"], ["running", "Working"], ["waiting", "Waiting for you"]], state, (value) => setQuery({ state: value === "all" ? null : value })),
    ),
    list.view(() => [
      () => (shown().length || found().length ? null : query() || state() !== "all" ? empty("No session found", "Change the search or the filter.") : empty("No sessions yet", "Start one: it keeps its history, also over restarts.", button("New session", () => go(path(["chat", newSessionKey()])), { kind: "primary" }))),
      each(shown, (session) => session.sessionKey, (session) => row(session, list), { props: { class: "list" } }),
      () => (found().length ? h("h2", { class: "section" }, "In messages") : null),
      each(found, (match) => `${match.sessionKey} ${match.seq}`, (match) => h("a", { class: "list-row", href: path(["chat", match.peek().sessionKey]) }, h("span", { class: "list-main" }, h("span", { class: "list-title" }, h("span", null, match.peek().label || shortKey(match.peek().sessionKey))), h("span", { class: "list-sub block" }, match.peek().excerpt)), h("span", { class: "list-side" }, time(match.peek().at))), { props: { class: "list" } }),
      () => ((list.value()?.total ?? 0) > (list.value()?.sessions.length ?? 0) && !query() ? h("div", { class: "older" }, button(`Show more of ${number(list.value()?.total ?? 0)}`, () => (limit.update((n) => n + PAGE), list.reload()), { small: true })) : null),
    ]),
  );
}

/** @param {import("../core/signal.js").Read<SessionInfo & { depth: number }>} session @param {Resource<any>} list */
function row(session, list) {
  const key = session.peek().sessionKey;
  const reset = async () => {
    if (!(await confirmed("Start over?", `The conversation "${shortKey(key)}" begins anew. Its journal keeps the earlier messages.`, "Start over"))) return;
    const answer = await ask("sessions.send", { sessionKey: key, message: "/new" });
    say(answer.told || "Started over");
    list.soon();
  };
  const rename = () =>
    formDialog("Title of the session", [{ name: "label", label: "Title", required: true, value: session.peek().label ?? "" }], async ({ label = "" }) => {
      await ask("sessions.rename", { sessionKey: key, label });
      list.soon();
    });
  return h(
    "div",
    { class: "list-row session-row", style: () => ({ "padding-left": `${14 + session().depth * 22}px` }) },
    h(
      "a",
      { class: "list-main", href: path(["chat", key]) },
      h("span", { class: "list-title" }, h("span", null, () => session().label || shortKey(key)), () => (session().waiting ? badge("warn", "waits for you") : session().running ? badge("run", "working") : null)),
      h("span", { class: "list-sub block" }, () => `${session().agent} · ${key}`),
    ),
    h("span", { class: "list-side" }, h("span", { class: "hide-small" }, () => `${number(session().events)} entries`), () => time(session().lastActivity), button(null, rename, { icon: "edit", kind: "bare", small: true, title: "Rename" }), button(null, reset, { icon: "refresh", kind: "bare", small: true, title: "Start over" }), h("a", { class: "hide-small", href: path(["chat", key]), "aria-label": "Open", tabindex: "-1" }, icon("right"))),
  );
}
