// Turns a session's journal and its live events into what the transcript shows.
//
// The journal is the truth. Live events only fill the time until their entry can be read: `Live` holds the output of
// requests that have no entry yet, and gives it up when the entry arrives.

/** @import { HistoryEvent, Question, SessionEvent, UserAsked } from "../../tests/api.d.ts" */

/**
 * @typedef {"writing" | "running" | "done" | "error" | "interrupted"} CallState
 * @typedef {{ type: "user", key: string, seq: number, at: number, id: string, from: string, text: string, images: number, waiting: boolean }} UserItem
 * @typedef {{ type: "text", key: string, seq: number, at: number, text: string, live: boolean, run?: RunUsage }} TextItem
 * @typedef {{ type: "thinking", key: string, seq: number, at: number, text: string, live: boolean }} ThinkingItem
 * @typedef {{ type: "call", key: string, seq: number, at: number, call: string, tool: string, input: any, inputText: string, state: CallState,
 *   result: string, images: { media_type: string, data: string }[], endedAt: number, startedAt: number, exitCode: number | null, failed: boolean, labels: string[],
 *   progress: { done: number, total: number | null, message: string } | null, answered: string }} CallItem
 * @typedef {{ type: "note", key: string, seq: number, at: number, tone: "info" | "error" | "end", text: string, from: string, body?: string }} NoteItem
 * @typedef {UserItem | TextItem | ThinkingItem | CallItem | NoteItem} Item
 * @typedef {{ input: number, output: number, cached: number, model: string }} RequestUsage
 * @typedef {{ input: number, output: number, cacheRead: number, cacheWrite: number }} Tokens
 * @typedef {{ requests: number, models: Record<string, Tokens> }} RunUsage
 */

/** The part of a journal that was read, as items in order. */
export class Fold {
  /** `aliases` has the live segment of a reply, by its number: the item keeps the key that it had while it was written. @param {Map<number, number>} [aliases] */
  constructor(aliases = new Map()) {
    this.aliases = aliases;
  }

  /** @type {Item[]} */
  items = [];
  /** @type {Map<string, number>} */
  #calls = new Map();
  /** @type {Map<string, Question>} */
  #questions = new Map();
  /** The usage of the newest request to the model. @type {RequestUsage | null} */
  lastRequest = null;
  /** What the run so far used, and the place of its first item. Null if its beginning was not read. @type {{ usage: RunUsage, place: number } | null} */
  #run = null;
  /** The numbers of the first and the next entry. */
  first = -1;
  next = 0;

  /** Adds entries that follow the ones that were read. @param {readonly HistoryEvent[]} entries */
  add(entries) {
    for (const entry of entries) {
      if (entry.seq < this.next) continue;
      if (this.first < 0) this.first = entry.seq;
      this.next = entry.seq + 1;
      this.#entry(entry);
    }
  }

  /** @param {HistoryEvent} entry */
  #entry(entry) {
    const { seq, at } = entry;
    const data = /** @type {any} */ (entry.data ?? {});
    switch (entry.kind) {
      case "message_in":
        this.#push({
          type: "user", key: `u${seq}`, seq, at: data.at ?? at, id: String(data.id ?? ""), from: String(data.from ?? ""),
          text: String(data.text ?? ""), images: data.images?.length ?? 0, waiting: true,
        });
        break;
      case "run_begun":
        this.#run = { usage: { requests: 0, models: {} }, place: this.items.length };
        break;
      case "joined":
        for (const id of data.messages ?? []) {
          const index = this.items.findIndex((item) => item.type === "user" && item.id === id && item.waiting);
          if (index >= 0) this.items[index] = { .../** @type {UserItem} */ (this.items[index]), waiting: false };
        }
        break;
      case "notice":
        this.#note(seq, data.at ?? at, "info", firstLine(data.text), data.from, data.text);
        break;
      case "replied":
        this.#replied(seq, at, data.reply);
        break;
      case "request_failed":
        this.#note(seq, at, "error", String(data.error ?? "the request to the model failed"), "model");
        break;
      case "call_begun":
        this.#change(data.call, (call) => ({ ...call, state: "running", startedAt: at }));
        break;
      case "call_ended":
        this.#change(data.call, (call) => ended(call, data.result ?? {}, at));
        break;
      case "call_again":
        this.#change(data.call, (call) => ({ ...call, state: "running" }));
        break;
      case "call_interrupted":
        this.#change(data.call, (call) => ({ ...call, state: "interrupted", endedAt: at }));
        break;
      case "approval_asked":
        this.#questions.set(data.id, data);
        break;
      case "approval_answered": {
        const question = this.#questions.get(data.question);
        if (question) this.#change(question.call, (call) => ({ ...call, answered: answerText(data.answer, data.by) }));
        break;
      }
      case "user_answered":
        if (data.answers?.length) this.#note(seq, at, "info", `Answered: ${data.answers.join("; ")}`, data.by);
        else this.#note(seq, at, "info", "The question expired without an answer", data.by);
        break;
      case "compacted":
        this.#note(seq, at, "info", `${data.replaced ?? "Earlier"} earlier messages were replaced by a summary`, "");
        break;
      case "reset":
        this.#note(seq, at, "end", "New conversation", "", data.why);
        break;
      case "set":
        this.#note(seq, at, "info", setText(data), "");
        break;
      case "run_ended":
        this.#runEnded(seq, at, data.end ?? {});
        break;
    }
  }

  /** @param {number} seq @param {number} at @param {any} reply */
  #replied(seq, at, reply) {
    const blocks = reply?.message?.content ?? [];
    const segment = this.aliases.get(seq);
    const aliased = new Set();
    const keyOf = (/** @type {string} */ type, /** @type {number} */ index) => {
      if (segment === undefined || aliased.has(type)) return `r${seq}.${index}`;
      aliased.add(type);
      return `${type}${segment}`;
    };
    blocks.forEach((/** @type {any} */ block, /** @type {number} */ index) => {
      if (block.type === "text" && block.text) this.#push({ type: "text", key: keyOf("lx", index), seq, at, text: block.text, live: false });
      else if (block.type === "thinking" && block.text) this.#push({ type: "thinking", key: keyOf("lt", index), seq, at, text: block.text, live: false });
      else if (block.type === "tool_use") {
        this.#calls.set(block.id, this.items.length);
        this.#push(newCall(block.id, block.name, { seq, at, input: block.input, inputText: block.malformed ?? "" }));
      }
    });
    const usage = reply?.usage;
    if (usage) {
      const cached = (usage.cache_read_tokens ?? 0) + (usage.cache_write_tokens ?? 0);
      this.lastRequest = { input: (usage.input_tokens ?? 0) + cached, output: usage.output_tokens ?? 0, cached, model: reply.model ?? "" };
      if (this.#run) addUsage(this.#run.usage, reply.model ?? "", usage);
    }
  }

  /** @param {number} seq @param {number} at @param {any} end */
  #runEnded(seq, at, end) {
    // What runs when the run ends was given up.
    this.items.forEach((item, index) => {
      if (item.type === "call" && (item.state === "running" || item.state === "writing")) {
        this.items[index] = { ...item, state: "interrupted", endedAt: at };
      }
    });
    const run = this.#run;
    this.#run = null;
    // The last text of the run shows what the run used.
    const last = run?.usage.requests ? this.items.findLastIndex((item, index) => index >= run.place && item.type === "text") : -1;
    if (run && last >= 0) this.items[last] = { .../** @type {TextItem} */ (this.items[last]), run: run.usage };
    if (end.end === "stopped") this.#note(seq, at, "end", `Stopped by ${end.by}`, "");
    if (end.end === "failed") this.#note(seq, at, "error", String(end.error), "");
  }

  /** @param {number} seq @param {number} at @param {NoteItem["tone"]} tone @param {string} text @param {string} from @param {string} [body] */
  #note(seq, at, tone, text, from, body) {
    this.#push({ type: "note", key: `n${seq}`, seq, at, tone, text, from: String(from ?? ""), body });
  }

  /** @param {Item} item */
  #push(item) {
    this.items.push(item);
  }

  /** @param {string} id @param {(call: CallItem) => CallItem} change */
  #change(id, change) {
    const index = this.#calls.get(id);
    const item = index === undefined ? undefined : this.items[index];
    if (item?.type === "call" && index !== undefined) this.items[index] = change(item);
  }

  /** @param {string} id */
  hasCall(id) {
    return this.#calls.has(id);
  }
}

/** @param {CallItem} call @param {any} result @param {number} at @returns {CallItem} */
function ended(call, result, at) {
  const blocks = result.content ?? [];
  return {
    ...call,
    state: result.is_error ? "error" : "done",
    failed: Boolean(result.command?.failed) || Boolean(result.is_error),
    exitCode: result.command?.exit_code ?? null,
    result: blocks.map((/** @type {any} */ block) => (block.type === "text" ? block.text : "")).join(""),
    images: blocks.filter((/** @type {any} */ block) => block.type === "image"),
    labels: result.labels ?? [],
    endedAt: at,
    progress: null,
  };
}

/** @param {string} call @param {string} tool @param {Partial<CallItem>} given @returns {CallItem} */
function newCall(call, tool, given) {
  return {
    type: "call", key: `c${call}`, seq: 0, at: 0, call, tool, input: {}, inputText: "", state: "writing", result: "", images: [],
    startedAt: 0, endedAt: 0, exitCode: null, failed: false, labels: [], progress: null, answered: "", ...given,
  };
}

/** @param {RunUsage} run @param {string} model @param {any} usage */
function addUsage(run, model, usage) {
  const sum = (run.models[model] ??= { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 });
  run.requests++;
  sum.input += usage.input_tokens ?? 0;
  sum.output += usage.output_tokens ?? 0;
  sum.cacheRead += usage.cache_read_tokens ?? 0;
  sum.cacheWrite += usage.cache_write_tokens ?? 0;
}

/** @param {any} text */
const firstLine = (text) => String(text ?? "").split("\n")[0].slice(0, 200);

/** @param {any} answer @param {string} by */
function answerText(answer, by) {
  const said = /** @type {Record<string, string>} */ ({ yes: "Allowed", no: "Denied", always: "Allowed from now on", expired: "Denied: nobody answered in time" });
  const text = said[answer?.answer] ?? "Answered";
  return answer?.answer === "expired" || !by ? text : `${text} by ${by}`;
}

/** @param {any} data */
function setText(data) {
  const parts = [];
  if (data.model) parts.push(`model ${data.model}`);
  if (data.thinking) parts.push(`thinking ${typeof data.thinking === "string" ? data.thinking : "with a budget"}`);
  if (data.effort) parts.push(`effort ${data.effort}`);
  if (data.workspace) parts.push(`directory ${data.workspace}`);
  return `Changed: ${parts.join(", ")}`;
}

/**
 * @typedef {{ id: number, seq: number, open: boolean, text: string, thinking: string, calls: Map<string, CallItem> }} Segment
 */

/** Output of the run in progress that the journal does not have yet. A segment is one request to the model. */
export class Live {
  /** @type {Segment[]} */
  segments = [];
  #ids = 0;
  /** @type {string | null} */
  run = null;
  /** The run was announced, and neither ended nor was suspended. */
  running = false;

  /** Begins with the text so far, as the answer to listening has it. @param {{ run: string, text: string, thinking: string } | null} unfinished @param {number} seq */
  begin(unfinished, seq) {
    this.segments = [];
    this.overlay.clear();
    this.run = unfinished?.run ?? null;
    this.running = Boolean(unfinished);
    if (!unfinished || (!unfinished.text && !unfinished.thinking)) return;
    const segment = this.#segment(seq);
    segment.text = unfinished.text;
    segment.thinking = unfinished.thinking;
  }

  /** @param {number} seq @returns {Segment} */
  #segment(seq) {
    const last = this.segments[this.segments.length - 1];
    if (last?.open) return last;
    /** @type {Segment} */
    const segment = { id: ++this.#ids, seq, open: true, text: "", thinking: "", calls: new Map() };
    this.segments.push(segment);
    return segment;
  }

  #close() {
    for (const segment of this.segments) segment.open = false;
  }

  /** What events said about calls, until the journal has their end. @type {Map<string, Partial<CallItem>>} */
  overlay = new Map();

  /** @param {string} call @param {Partial<CallItem>} change */
  #change(call, change) {
    this.overlay.set(call, { ...this.overlay.get(call), ...change });
  }

  /**
   * Takes an event. Answers whether the journal has something new to read. Calls of the journal are changed by `overlay`.
   * @param {SessionEvent} event @param {(call: string) => boolean} known @param {number} [seq]
   */
  take(event, known = () => false, seq = -1) {
    switch (event.event) {
      case "run_begun":
        this.run = event.run;
        this.running = true;
        return true;
      case "text":
        this.#segment(seq).text += event.delta;
        return false;
      case "thinking":
        this.#segment(seq).thinking += event.delta;
        return false;
      case "call_writing":
        this.#segment(seq).calls.set(event.call, newCall(event.call, event.tool, {}));
        return false;
      case "call_input":
        for (const segment of this.segments) {
          const call = segment.calls.get(event.call);
          if (call && call.inputText.length < 20_000) segment.calls.set(event.call, { ...call, inputText: call.inputText + event.delta });
        }
        return false;
      case "restart":
        this.segments = this.segments.filter((segment) => !segment.open);
        return true;
      case "tool_start": {
        const live = this.segments.some((segment) => segment.calls.has(event.call));
        if (!live && !known(event.call)) this.#segment(seq).calls.set(event.call, newCall(event.call, event.tool, {}));
        this.#change(event.call, { input: event.input, state: "running", startedAt: Date.now() });
        this.#close();
        return true;
      }
      case "tool_progress":
        this.#change(event.call, { progress: { done: event.done, total: event.total, message: event.message } });
        return false;
      case "tool_end":
        this.#change(event.call, {
          state: event.isError ? "error" : "done", failed: event.failed, exitCode: event.exitCode ?? null, result: event.result, endedAt: Date.now(), progress: null,
        });
        return true;
      case "final":
      case "stopped":
      case "error":
        this.running = false;
        this.run = null;
        this.#close();
        return true;
      case "suspended":
        this.#close();
        return true;
      default:
        return event.event !== "unknown";
    }
  }

  /** Gives up segments that the journal has now: each reply is one segment, in order. @param {readonly HistoryEvent[]} entries @param {Map<number, number>} [aliases] */
  covered(entries, aliases = new Map()) {
    for (const entry of entries) {
      if (entry.kind === "call_ended") this.overlay.delete(/** @type {any} */ (entry.data).call);
      if (entry.kind === "replied") {
        const first = this.segments[0];
        if (first && first.seq <= entry.seq) {
          this.segments.shift();
          aliases.set(entry.seq, first.id);
        }
      } else if (entry.kind === "run_ended") {
        this.segments = this.segments.filter((segment) => segment.seq > entry.seq && segment.open);
      }
    }
  }

  /** @param {Fold} fold @returns {Item[]} */
  items(fold) {
    /** @type {Item[]} */
    const items = [];
    for (const segment of this.segments) {
      if (segment.thinking) items.push({ type: "thinking", key: `lt${segment.id}`, seq: segment.seq, at: 0, text: segment.thinking, live: segment.open && !segment.text });
      if (segment.text) items.push({ type: "text", key: `lx${segment.id}`, seq: segment.seq, at: 0, text: segment.text, live: segment.open });
      for (const call of segment.calls.values()) {
        if (!fold.hasCall(call.call)) items.push({ ...call, ...this.overlay.get(call.call) });
      }
    }
    return items;
  }

  /** All items: those of the journal with what events add, then the live ones. @param {Fold} fold @returns {Item[]} */
  all(fold) {
    const stored = fold.items.map((item) => {
      const change = item.type === "call" && (item.state === "running" || item.state === "writing") ? this.overlay.get(item.call) : undefined;
      return change ? /** @type {CallItem} */ ({ ...item, ...change }) : item;
    });
    return [...stored, ...this.items(fold)];
  }
}

/** The open questions, as a list that both kinds share. @param {{ questions?: Question[], asks?: UserAsked[] } | null} status */
export function openQuestions(status) {
  return [...(status?.questions ?? []).map((question) => ({ id: question.id, question })), ...(status?.asks ?? []).map((asked) => ({ id: asked.id, asked }))];
}
