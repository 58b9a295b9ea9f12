import assert from "node:assert/strict";
import { test } from "node:test";
import { derived, flush, scope, signal, watch } from "../../page/core/signal.js";

test("a watch runs once for several changes", () => {
  const a = signal(1);
  const b = signal(2);
  const seen = /** @type {number[]} */ ([]);
  watch(() => void seen.push(a() + b()));
  a.set(10);
  b.set(20);
  flush();
  assert.deepEqual(seen, [3, 30]);
});

test("a derived value that stays equal does not run its watches", () => {
  const n = signal(1);
  const odd = derived(() => n() % 2);
  let runs = 0;
  watch(() => {
    odd();
    runs++;
  });
  n.set(3);
  flush();
  assert.equal(runs, 1);
  n.set(4);
  flush();
  assert.equal(runs, 2);
});

test("a derived value is current as soon as it is read", () => {
  const n = signal(1);
  const twice = derived(() => n() * 2);
  const more = derived(() => twice() + 1);
  n.set(5);
  assert.equal(more(), 11);
  assert.equal(more.peek(), 11);
});

test("a watch forgets what it did not read again", () => {
  const which = signal(true);
  const a = signal("a");
  let runs = 0;
  watch(() => {
    runs++;
    if (which()) a();
  });
  which.set(false);
  flush();
  a.set("b");
  flush();
  assert.equal(runs, 2);
});

test("what a scope created ends with it", () => {
  const n = signal(0);
  let runs = 0;
  const [, dispose] = scope(() =>
    watch(() => {
      n();
      runs++;
    }),
  );
  dispose();
  n.set(1);
  flush();
  assert.equal(runs, 1);
});

test("a watch inside a watch ends when the outer one runs again", () => {
  const outer = signal(0);
  const inner = signal(0);
  let runs = 0;
  watch(() => {
    outer();
    watch(() => {
      inner();
      runs++;
    });
  });
  outer.set(1);
  flush();
  inner.set(1);
  flush();
  assert.equal(runs, 3);
});

test("a watch that changes its own source ends with an error", () => {
  const n = signal(0);
  watch(() => {
    if (n() > 0) n.set(n.peek() + 1);
  });
  n.set(1);
  assert.throws(flush, /keep changing/);
});
