// A session's journal as bars: requests to the model, calls, and the time that a person was waited for.

/** @import { HistoryEvent } from "../../tests/api.d.ts" */
/** @typedef {{ key: string, kind: "model" | "call" | "human", name: string, what: string, start: number, end: number, failed: boolean, open: boolean, input?: any, output?: string, session?: string }} Bar */
/** @typedef {{ run: string, start: number, end: number, outcome: string, bars: Bar[] }} RunBars */

/** @param {readonly HistoryEvent[]} entries @param {number} now @returns {RunBars[]} */
export function timeline(entries, now) {
  /** @type {RunBars[]} */
  const runs = [];
  const current = { run: /** @type {RunBars | null} */ (null) };
  /** @type {Map<string, Bar>} */
  const open = new Map();
  /** @type {Map<string, any>} */
  const calls = new Map();
  const begin = (/** @type {string} */ id, /** @type {number} */ at) => {
    /** @type {RunBars} */
    const run = { run: id, start: at, end: at, outcome: "running", bars: [] };
    runs.push(run);
    current.run = run;
    return run;
  };
  const start = (/** @type {string} */ key, /** @type {Partial<Bar> & Pick<Bar, "kind" | "name">} */ given, /** @type {number} */ at) => {
    /** @type {Bar} */
    const bar = { key, what: "", start: at, end: at, failed: false, open: true, ...given };
    open.set(key, bar);
    (current.run ?? begin("", at)).bars.push(bar);
  };
  const end = (/** @type {string} */ key, /** @type {number} */ at, /** @type {Partial<Bar>} */ change = {}) => {
    const bar = open.get(key);
    if (bar) Object.assign(bar, { end: at, open: false, ...change });
    open.delete(key);
  };
  for (const { seq, at, kind, data } of entries) {
    const d = /** @type {any} */ (data ?? {});
    if (current.run) current.run.end = at;
    if (kind === "run_begun") begin(d.run, at);
    else if (kind === "request_begun") start("model", { kind: "model", name: d.model || "model", key: `m${seq}` }, at);
    else if (kind === "replied") {
      const content = d.reply?.message?.content ?? [];
      for (const block of content) if (block.type === "tool_use") calls.set(block.id, block);
      end("model", at, { output: content.map((/** @type {any} */ b) => b.text ?? "").join("\n").trim(), what: usageText(d.reply?.usage) });
    } else if (kind === "request_failed") end("model", at, { failed: true, output: d.error });
    else if (kind === "request_lost") end("model", at, { failed: true, output: "The gateway stopped" });
    else if (kind === "call_begun") start(`c${d.call}`, { kind: "call", name: calls.get(d.call)?.name ?? "call", input: calls.get(d.call)?.input, key: `c${d.call}.${seq}` }, at);
    else if (kind === "call_ended") {
      const text = (d.result?.content ?? []).map((/** @type {any} */ b) => b.text ?? "").join("");
      const failed = Boolean(d.result?.is_error || d.result?.command?.failed);
      if (!open.has(`c${d.call}`)) start(`c${d.call}`, { kind: "call", name: calls.get(d.call)?.name ?? "call", input: calls.get(d.call)?.input, key: `c${d.call}.${seq}` }, at);
      end(`c${d.call}`, at, { failed, output: text });
    } else if (kind === "call_interrupted") end(`c${d.call}`, at, { failed: true, output: "Interrupted: the outcome is unknown" });
    else if (kind === "approval_asked" || kind === "user_asked") start(`q${d.id}`, { kind: "human", name: kind === "user_asked" ? "answer of a person" : "approval", what: d.tool ?? "", key: `q${d.id}` }, at);
    else if (kind === "approval_answered" || kind === "user_answered") end(`q${d.question}`, at, { what: d.by ? `by ${d.by}` : "" });
    else if (kind === "run_ended") {
      for (const key of [...open.keys()]) end(key, at);
      if (current.run) current.run.outcome = { final: "ok", stopped: "stopped", failed: "failed" }[/** @type {"final"} */ (d.end?.end)] ?? "ended";
      current.run = null;
    }
  }
  for (const bar of open.values()) bar.end = now;
  if (current.run && open.size) current.run.end = now;
  return runs.filter((one) => one.bars.length);
}

/** @param {any} usage */
const usageText = (usage) => (usage ? `${(usage.input_tokens ?? 0) + (usage.cache_read_tokens ?? 0) + (usage.cache_write_tokens ?? 0)} tokens in, ${usage.output_tokens ?? 0} out` : "");
