// Reactive values: a signal holds a value, a derived value is computed from others, a watch runs again
// when what it read has changed. Watches run in one microtask after the change, in the order of creation.

/** @typedef {{ run: () => void, stale: boolean, sources: Set<Source>, owned: (() => void)[], order: number, off: boolean }} Watcher */
/** @typedef {{ observers: Set<Watcher> }} Source */
/**
 * @template T
 * @typedef {{ (): T, peek(): T }} Read
 */
/**
 * @template T
 * @typedef {Read<T> & { set(value: T): void, update(change: (value: T) => T): void }} Signal
 */

/** The watch or derived value that runs now: what it reads is recorded. @type {Watcher | null} */
let reader = null;
/** What is created now belongs to this owner, and is disposed with it. @type {{ owned: (() => void)[] } | null} */
let owner = null;
/** @type {Set<Watcher>} */
const waiting = new Set();
let scheduled = false;
let orders = 0;

/**
 * @template T
 * @param {T} initial
 * @returns {Signal<T>}
 */
export function signal(initial) {
  let value = initial;
  /** @type {Source} */
  const source = { observers: new Set() };
  const read = () => {
    record(source);
    return value;
  };
  return Object.assign(read, {
    peek: () => value,
    set: (/** @type {T} */ next) => {
      if (Object.is(next, value)) return;
      value = next;
      notify(source);
    },
    update: (/** @type {(value: T) => T} */ change) => {
      const next = change(value);
      if (Object.is(next, value)) return;
      value = next;
      notify(source);
    },
  });
}

/**
 * A value that is computed from others, at most once for each change.
 * @template T
 * @param {() => T} compute
 * @returns {Read<T>}
 */
export function derived(compute) {
  const result = signal(/** @type {T} */ (/** @type {unknown} */ (undefined)));
  watchNow(() => result.set(compute()), -1);
  const read = () => {
    settle();
    return result();
  };
  return Object.assign(read, {
    peek: () => {
      settle();
      return result.peek();
    },
  });
}

/**
 * Runs `effect` now, and again after each change of what it read. Returns a function that ends it.
 * @param {() => void} effect
 */
export function watch(effect) {
  return watchNow(effect, ++orders);
}

/** @param {() => void} effect @param {number} order */
function watchNow(effect, order) {
  /** @type {Watcher} */
  const watcher = { run: () => {}, stale: false, sources: new Set(), owned: [], order, off: false };
  watcher.run = () => {
    watcher.stale = false;
    release(watcher);
    const [outerReader, outerOwner] = [reader, owner];
    reader = watcher;
    owner = watcher;
    try {
      effect();
    } finally {
      reader = outerReader;
      owner = outerOwner;
    }
  };
  const stop = () => {
    watcher.off = true;
    waiting.delete(watcher);
    release(watcher);
  };
  owner?.owned.push(stop);
  watcher.run();
  return stop;
}

/** @param {Watcher} watcher */
function release(watcher) {
  for (const source of watcher.sources) source.observers.delete(watcher);
  watcher.sources.clear();
  const owned = watcher.owned;
  watcher.owned = [];
  for (const stop of owned) stop();
}

/** @param {Source} source */
function record(source) {
  if (!reader || reader.off) return;
  source.observers.add(reader);
  reader.sources.add(source);
}

/** @param {Source} source */
function notify(source) {
  for (const watcher of source.observers) {
    watcher.stale = true;
    waiting.add(watcher);
  }
  if (scheduled || waiting.size === 0) return;
  scheduled = true;
  queueMicrotask(flush);
}

/** Brings derived values up to date before one of them is read. */
function settle() {
  for (let round = 0; round < 100; round++) {
    const stale = [...waiting].filter((watcher) => watcher.order === -1);
    if (stale.length === 0) return;
    for (const watcher of stale) {
      waiting.delete(watcher);
      if (!watcher.off && watcher.stale) untracked(watcher.run);
    }
  }
}

/** Runs all waiting watches. A watch that changes its own source stops after 100 rounds with an error. */
export function flush() {
  scheduled = false;
  for (let round = 0; waiting.size > 0; round++) {
    if (round === 100) {
      waiting.clear();
      throw new Error("watches keep changing what they read");
    }
    settle();
    const batch = [...waiting].sort((a, b) => a.order - b.order);
    for (const watcher of batch) {
      if (!waiting.delete(watcher) || watcher.off) continue;
      try {
        watcher.run();
      } catch (error) {
        reportError(error);
      }
    }
  }
}

/**
 * Reads without recording.
 * @template T
 * @param {() => T} read
 */
export function untracked(read) {
  const outer = reader;
  reader = null;
  try {
    return read();
  } finally {
    reader = outer;
  }
}

/**
 * Runs `build` with an owner of its own. Returns its result, and a function that disposes what it created.
 * @template T
 * @param {() => T} build
 * @returns {[T, () => void]}
 */
export function scope(build) {
  /** @type {{ owned: (() => void)[] }} */
  const own = { owned: [] };
  const [outerReader, outerOwner] = [reader, owner];
  reader = null;
  owner = own;
  try {
    const result = build();
    return [result, () => own.owned.splice(0).forEach((stop) => stop())];
  } finally {
    reader = outerReader;
    owner = outerOwner;
  }
}

/** Runs `action` when the current owner is disposed. @param {() => void} action */
export function onDispose(action) {
  owner?.owned.push(action);
}
