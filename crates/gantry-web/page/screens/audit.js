// The audit log: each call with its two lines as one row, searched by the gateway, with the state of the chain on top.

import { each, h } from "../core/dom.js";
import { duration, exactTime, number } from "../core/format.js";
import { path, route, setQuery } from "../core/route.js";
import { derived, onDispose, signal, untracked } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { json } from "../parts/message.js";
import { ask, badge, button, empty, header, problem, select } from "../parts/ui.js";

/** @typedef {any} Line */
/** @typedef {{ call: string, begin: Line | null, end: Line | null, other: Line[], at: string, seq: number }} Row */

const PAGE = 200;
const FILTERS = /** @type {const} */ (["text", "tool", "principal", "agent", "status"]);
const SPANS = /** @type {Record<string, number>} */ ({ hour: 3_600_000, day: 86_400_000, week: 604_800_000 });

/** The filters of the URL, as the gateway takes them. @param {URLSearchParams} query @param {number} now */
export function searchOf(query, now) {
  /** @type {Record<string, unknown>} */
  const search = {};
  for (const name of FILTERS) if (query.get(name)) search[name] = query.get(name);
  const span = SPANS[query.get("span") ?? ""];
  if (span) search.since = now - span;
  return search;
}

/** Lines of a call become one row; the newest first. @param {readonly Line[]} lines @returns {Row[]} */
export function rowsOf(lines) {
  /** @type {Map<string, Row>} */
  const rows = new Map();
  for (const line of lines) {
    const key = line.call || `seq${line.seq}`;
    let row = rows.get(key);
    if (!row) rows.set(key, (row = { call: key, begin: null, end: null, other: [], at: line.at, seq: line.seq }));
    if (line.phase === "begin") row.begin = line;
    else if (line.phase === "end") row.end = line;
    else row.other.push(line);
  }
  return [...rows.values()];
}

export default function Audit() {
  const lines = signal(/** @type {Line[]} */ ([]));
  const previous = signal(/** @type {number | null} */ (null));
  const failed = signal(/** @type {Error | null} */ (null));
  const loaded = signal(false);
  let reading = 0;
  const read = async (/** @type {number | null} */ before) => {
    const mine = ++reading;
    try {
      const page = await ask("audit.search", { ...searchOf(route.peek().query, Date.now() + wire.clockAhead), limit: PAGE, ...(before ? { before } : {}) });
      if (mine !== reading) return;
      lines.update((shown) => (before ? [...shown, ...page.lines] : page.lines));
      previous.set(page.previous ?? null);
      failed.set(null);
      loaded.set(true);
    } catch (error) {
      if (mine === reading && /** @type {any} */ (error).code !== "lost") failed.set(/** @type {Error} */ (error));
    }
  };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  const change = (/** @type {string} */ name, /** @type {string} */ value, wait = 0) => {
    setQuery({ [name]: value || null });
    clearTimeout(typing);
    typing = setTimeout(() => read(null), wait);
  };
  const query = derived(() => route().query);
  onDispose(() => clearTimeout(typing));
  void read(null);
  const rows = derived(() => rowsOf(lines()));
  const open = signal("");
  return h(
    "div",
    { class: "screen wide-screen" },
    header("Audit", [button("Verify the chain", verify), button("Download", () => save(), { icon: "download" })], "Every call, before and after its effect."),
    chain,
    h(
      "div",
      { class: "toolbar" },
      h("input", { type: "search", class: "search", placeholder: "Search in all lines", "aria-label": "Search in all lines", value: query.peek().get("text") ?? "", oninput: (/** @type {any} */ e) => change("text", e.target.value, 250) }),
      h("input", { type: "search", class: "narrow-field", placeholder: "Tool", "aria-label": "Tool", value: query.peek().get("tool") ?? "", oninput: (/** @type {any} */ e) => change("tool", e.target.value, 250) }),
      h("input", { type: "search", class: "narrow-field", placeholder: "Caller", "aria-label": "Caller", value: query.peek().get("principal") ?? "", oninput: (/** @type {any} */ e) => change("principal", e.target.value, 250) }),
      select("Outcome", [["", "any outcome"], ["success", "success"], ["error", "error"], ["denied", "denied"], ["cancelled", "cancelled"]], () => query().get("status") ?? "", (value) => change("status", value)),
      select("Time", [["", "any time"], ["hour", "last hour"], ["day", "last day"], ["week", "last week"]], () => query().get("span") ?? "", (value) => change("span", value)),
    ),
    () => (failed() ? problem(/** @type {Error} */ (failed()), () => read(null)) : null),
    () => (loaded() && !rows().length ? empty("No line matches", "Change the search or the filters.") : null),
    each(rows, (row) => row.call, (row) => auditRow(row, open, change), { props: { class: "list" } }),
    () => (previous() ? h("div", { class: "older section" }, button("Earlier lines", () => read(previous.peek()), { small: true })) : null),
  );
}

const chainState = signal(/** @type {any} */ (null));

async function verify() {
  chainState.set(await ask("audit.verify"));
}

function chain() {
  const state = chainState();
  if (!state) return null;
  return h(
    "div",
    { class: `banner section-gap ${state.intact ? "" : "quiet"}`, role: "status" },
    state.intact ? badge("ok", "intact") : badge("error", "not intact"),
    h("span", null, `${number(state.lines)} lines in ${number(state.files)} ${state.files === 1 ? "file" : "files"}`),
    state.problems.map((/** @type {any} */ p) => h("span", null, `${p.file || "audit.log"}${p.line ? `, line ${p.line}` : ""}: ${p.problem}`)),
    state.furtherProblems ? h("span", null, `and ${state.furtherProblems} more`) : null,
  );
}

/** Saves what the search finds, all pages. */
async function save() {
  const search = searchOf(route.peek().query, Date.now() + wire.clockAhead);
  /** @type {string[]} */
  const out = [];
  for (let before = 0, more = true; more && out.length < 200_000; ) {
    const page = await ask("audit.search", { ...search, limit: 1000, ...(before ? { before } : {}) });
    for (const line of page.lines) out.push(JSON.stringify(line));
    before = page.previous ?? 0;
    more = before > 0;
  }
  const url = URL.createObjectURL(new Blob([out.join("\n") + "\n"], { type: "application/x-ndjson" }));
  h("a", { href: url, download: "audit.jsonl" }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

const TONES = /** @type {Record<string, string>} */ ({ success: "ok", error: "error", denied: "error", failed: "error", cancelled: "warn", deadline: "warn" });

/** @param {import("../core/signal.js").Read<Row>} row @param {import("../core/signal.js").Signal<string>} open @param {(name: string, value: string) => void} change */
function auditRow(row, open, change) {
  const key = row.peek().call;
  const line = () => row().begin ?? row().end ?? row().other[0] ?? {};
  const status = () => row().end?.status ?? (row().begin ? "begun" : (line().phase ?? ""));
  return h(
    "div",
    { class: "process" },
    h(
      "button",
      { type: "button", class: "list-row", "aria-expanded": () => String(open() === key), onclick: () => open.set(open.peek() === key ? "" : key) },
      h("span", { class: "list-main" }, h("span", { class: "list-title" }, h("span", { class: "mono" }, () => line().tool ?? line().phase ?? "event"), () => badge(TONES[status()] ?? "", status())), h("span", { class: "list-sub block" }, () => `${line().principal ?? ""} · ${inputLine(line().input)}`)),
      h("span", { class: "list-side" }, h("span", { class: "hide-small" }, () => (row().end?.durationMs ? duration(row().end.durationMs) : "")), h("span", null, () => exactTime(Date.parse(row().at)))),
    ),
    () =>
      open() === key
        ? untracked(() =>
            h(
              "div",
              { class: "process-open detail" },
              h("div", { class: "row" }, chip("tool", line().tool, change), chip("principal", line().principal, change), chip("agent", line().agent, change), line().rule ? badge("", `rule ${line().rule}`) : null, line().session ? h("a", { class: "btn small", href: path(["chat", line().session]) }, "Session") : null),
              [row().begin, ...row().other, row().end].filter(Boolean).map(json),
            ),
          )
        : null,
  );
}

/** @param {string} name @param {string | undefined} value @param {(name: string, value: string) => void} change */
const chip = (name, value, change) => (value ? button(`${name}: ${value}`, () => change(name, value), { small: true, title: "Show only these" }) : null);

/** @param {any} input */
function inputLine(input) {
  if (!input) return "";
  const first = input.command ?? input.path ?? input.url ?? input.pattern;
  return typeof first === "string" ? first.split("\n")[0] : JSON.stringify(input).slice(0, 200);
}
