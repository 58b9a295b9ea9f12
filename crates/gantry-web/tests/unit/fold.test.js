import assert from "node:assert/strict";
import { test } from "node:test";
import { Fold, Live } from "../../page/model/fold.js";
import { sumOfRun } from "../../page/model/usage.js";

const entry = (/** @type {number} */ seq, /** @type {string} */ kind, /** @type {any} */ data = {}) => ({ seq, at: 1000 + seq, kind, data });
const reply = (/** @type {any[]} */ ...content) => ({ reply: { message: { content }, usage: { input_tokens: 10, cache_read_tokens: 90, output_tokens: 5 }, model: "lab/m" } });
const text = (/** @type {string} */ value) => ({ type: "text", text: value });
const use = (/** @type {string} */ id) => ({ type: "tool_use", id, name: "Bash", input: { command: "ls" } });

const journal = [
  entry(0, "message_in", { id: "m1", from: "operator", text: "hello" }),
  entry(1, "run_begun", { run: "r1" }),
  entry(2, "joined", { messages: ["m1"] }),
  entry(3, "request_begun", { model: "lab/m" }),
  entry(4, "replied", reply({ type: "thinking", text: "hm" }, text("I look."), use("c1"))),
  entry(5, "call_begun", { call: "c1" }),
  entry(6, "call_ended", { call: "c1", result: { content: [text("a.txt")], is_error: false, command: { failed: true, exit_code: 2 } } }),
  entry(7, "replied", reply(text("Done."))),
  entry(8, "run_ended", { end: { end: "final", text: "Done." } }),
];

test("a journal becomes items in order", () => {
  const fold = new Fold();
  fold.add(journal);
  assert.deepEqual(fold.items.map((item) => item.type), ["user", "thinking", "text", "call", "text"]);
  const call = /** @type {any} */ (fold.items[3]);
  assert.equal(call.state, "done");
  assert.equal(call.failed, true);
  assert.equal(call.exitCode, 2);
  assert.equal(call.result, "a.txt");
  assert.equal(/** @type {any} */ (fold.items[0]).waiting, false);
  assert.equal(fold.next, 9);
});

test("entries that were read already are passed over", () => {
  const fold = new Fold();
  fold.add(journal.slice(0, 6));
  fold.add(journal);
  const whole = new Fold();
  whole.add(journal);
  assert.deepEqual(fold.items, whole.items);
});

test("the context meter counts the last request, not all of them", () => {
  const fold = new Fold();
  fold.add(journal);
  assert.equal(fold.lastRequest?.input, 100);
});

test("the last answer of a run has what the whole run used", () => {
  const fold = new Fold();
  fold.add(journal);
  const texts = /** @type {any[]} */ (fold.items.filter((item) => item.type === "text"));
  assert.equal(texts[0].run, undefined);
  assert.deepEqual(texts[1].run, { requests: 2, models: { "lab/m": { input: 20, output: 10, cacheRead: 180, cacheWrite: 0 } } });
  const price = { input: 1, output: 4, cacheRead: 0.5, cacheWrite: 0 };
  assert.deepEqual(sumOfRun(texts[1].run, () => price), { input: 200, output: 10, cached: 180, usd: (20 + 40 + 90) / 1e6 });
  assert.equal(sumOfRun(texts[1].run, () => null).usd, null);
});

test("a run whose beginning was not read shows no sum", () => {
  const fold = new Fold();
  fold.add(journal.slice(4));
  assert.equal(fold.items.some((item) => item.type === "text" && item.run), false);
});

test("a run that ends leaves no call running", () => {
  const fold = new Fold();
  fold.add([...journal.slice(0, 6), entry(6, "run_ended", { end: { end: "stopped", by: "operator" } })]);
  const call = /** @type {any} */ (fold.items.find((item) => item.type === "call"));
  assert.equal(call.state, "interrupted");
});

test("an unknown kind of entry is passed over", () => {
  const fold = new Fold();
  fold.add([entry(0, "of_a_newer_gateway", { anything: 1 }), ...journal.slice(1)]);
  assert.equal(fold.next, 9);
});

test("live text is given up when its entry comes, and keeps its key", () => {
  const aliases = new Map();
  const fold = new Fold(aliases);
  const live = new Live();
  fold.add(journal.slice(0, 4));
  const known = (/** @type {string} */ call) => fold.hasCall(call);
  live.take({ event: "run_begun", run: "r1" }, known);
  live.take({ event: "thinking", run: "r1", delta: "hm" }, known);
  live.take({ event: "text", run: "r1", delta: "I " }, known);
  live.take({ event: "text", run: "r1", delta: "look." }, known);
  const before = live.all(fold).find((item) => item.type === "text");
  assert.equal(/** @type {any} */ (before).text, "I look.");
  live.take({ event: "tool_start", run: "r1", call: "c1", tool: "Bash", input: { command: "ls" } }, known);
  // The next answer begins before the journal was read.
  live.take({ event: "tool_end", run: "r1", call: "c1", tool: "Bash", isError: false, failed: false, result: "a.txt" }, known);
  live.take({ event: "text", run: "r1", delta: "Do" }, known);
  const fresh = journal.slice(4, 7);
  live.covered(fresh, aliases);
  fold.add(fresh);
  const all = live.all(fold);
  assert.deepEqual(all.map((item) => item.type), ["user", "thinking", "text", "call", "text"]);
  assert.equal(all.find((item) => item.type === "text")?.key, before?.key);
  assert.equal(/** @type {any} */ (all[4]).text, "Do");
  live.covered(journal.slice(7), aliases);
  fold.add(journal.slice(7));
  assert.deepEqual(live.all(fold).map((item) => item.type), ["user", "thinking", "text", "call", "text"]);
});

test("a call that the journal knows is not shown twice", () => {
  const fold = new Fold();
  const live = new Live();
  fold.add(journal.slice(0, 5));
  live.take({ event: "tool_start", run: "r1", call: "c1", tool: "Bash", input: {} }, (call) => fold.hasCall(call));
  live.take({ event: "tool_progress", run: "r1", call: "c1", done: 1, total: 2, message: "lines" }, () => true);
  const calls = live.all(fold).filter((item) => item.type === "call");
  assert.equal(calls.length, 1);
  assert.equal(/** @type {any} */ (calls[0]).progress.done, 1);
});

test("a restarted request discards its output", () => {
  const live = new Live();
  live.take({ event: "text", run: "r", delta: "half" });
  live.take({ event: "restart", run: "r", reason: "overloaded" });
  live.take({ event: "text", run: "r", delta: "whole" });
  assert.deepEqual(live.items(new Fold()).map((item) => /** @type {any} */ (item).text), ["whole"]);
});

test("the text so far comes with listening", () => {
  const live = new Live();
  live.begin({ run: "r", text: "so far", thinking: "" }, 4);
  live.take({ event: "text", run: "r", delta: " and on" });
  assert.equal(/** @type {any} */ (live.items(new Fold())[0]).text, "so far and on");
  assert.equal(live.running, true);
});
