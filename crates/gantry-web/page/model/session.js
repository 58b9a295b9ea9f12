// One session as the transcript shows it: a window of its journal, its live output, its open questions.

import { derived, signal } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { Fold, Live } from "./fold.js";

/** @import { HistoryEvent, SessionStatus } from "../../tests/api.d.ts" */
/** @import { Item } from "./fold.js" */

/** Entries that are read at a time, and items that the window holds. */
const PAGE = 300;
const MOST_ITEMS = 300;
/** The window may grow by this much before it is cut, so that it is not cut for each entry. */
const SLACK = 60;

export class SessionView {
  /** @type {HistoryEvent[]} */
  #entries = [];
  /** @type {Map<number, number>} */
  #aliases = new Map();
  #fold = new Fold(this.#aliases);
  #live = new Live();
  #syncing = false;
  #again = false;
  #drawing = false;
  #stopped = false;
  #start = 0;
  /** Answers of an earlier opening are discarded. */
  #opening = 0;

  items = signal(/** @type {Item[]} */ ([]));
  status = signal(/** @type {SessionStatus | null} */ (null));
  error = signal(/** @type {Error | null} */ (null));
  loaded = signal(false);
  /** There are earlier entries, and whether they are being read. */
  older = signal(false);
  reading = signal(false);
  /** The window ends at the newest entry. */
  atEnd = signal(true);
  /** Items that came while the window ended earlier. */
  running = signal(false);
  usage = signal(/** @type {import("./fold.js").RequestUsage | null} */ (null));
  /** What a screen reader hears: beginnings, ends and questions, never tokens. */
  spoken = signal("");
  waiting = derived(() => {
    const status = this.status();
    return (status?.questions.length ?? 0) + (status?.asks.length ?? 0) > 0;
  });

  /** @param {string} key */
  constructor(key) {
    this.key = key;
    this.#stops = [
      wire.on("session.event", (data) => data.sessionKey === this.sessionKey && this.#event(data)),
      wire.on("missed", () => this.open()),
    ];
  }

  /** @type {(() => void)[]} */
  #stops;
  /** The full key, which the gateway answers. */
  sessionKey = "";

  /** Listens, and reads the newest page. Called again after each reconnection. */
  async open() {
    const opening = ++this.#opening;
    this.sessionKey ||= this.key;
    try {
      const listening = /** @type {any} */ (await wire.request("sessions.listen", { sessionKey: this.key }));
      if (opening !== this.#opening || this.#stopped) return;
      this.sessionKey = listening.sessionKey;
      // A session that does not exist yet has no state.
      const known = Boolean(listening.agent);
      this.status.set(known ? listening : null);
      this.#live.begin(listening.unfinished ?? null, listening.seq ?? 0);
      this.#live.running = Boolean(listening.running);
      this.running.set(this.#live.running);
      if (this.loaded.peek() && this.atEnd.peek()) {
        await this.#sync();
      } else if (!this.loaded.peek()) {
        await this.#tail(listening.seq ?? 0, opening);
      }
      this.error.set(null);
      this.#draw();
    } catch (error) {
      if (opening === this.#opening) this.error.set(/** @type {Error} */ (error));
    }
  }

  /** Reads the newest page in place of the window. @param {number} events @param {number} opening */
  async #tail(events, opening = this.#opening) {
    const from = Math.max(0, events - PAGE);
    const page = events === 0 ? { events: [] } : await wire.request("sessions.history", { sessionKey: this.key, from, limit: PAGE + 100 });
    if (opening !== this.#opening) return;
    // Entries that came after listening began cover what its events said.
    this.#live.covered(page.events, this.#aliases);
    this.#start = from;
    this.#setEntries(page.events, "start");
    this.atEnd.set(true);
    this.loaded.set(true);
  }

  async toEnd() {
    const status = await wire.request("sessions.status", { sessionKey: this.key });
    this.status.set(status);
    await this.#tail(status.events);
    this.#draw();
  }

  /** Reads the page before the window. The newest entries leave it, if it becomes too long. */
  async readOlder() {
    if (this.reading.peek() || this.#start === 0) return;
    this.reading.set(true);
    try {
      const from = Math.max(0, this.#start - PAGE);
      const page = await wire.request("sessions.history", { sessionKey: this.key, from, limit: this.#start - from });
      const entries = [...page.events.filter((entry) => entry.seq < this.#start), ...this.#entries];
      this.#start = from;
      this.#setEntries(entries, "end");
      this.#draw();
    } finally {
      this.reading.set(false);
    }
  }

  /** Reads the page after the window, if it ends before the newest entry. */
  async readNewer() {
    if (this.reading.peek() || this.atEnd.peek()) return;
    this.reading.set(true);
    try {
      const page = await wire.request("sessions.history", { sessionKey: this.key, from: this.#fold.next, limit: PAGE });
      this.#setEntries([...this.#entries, ...page.events], "start");
      if (page.next === null) this.atEnd.set(true);
      this.#draw();
    } finally {
      this.reading.set(false);
    }
  }

  /** Sets the window. If it is too long, its `cut` side leaves it. @param {HistoryEvent[]} entries @param {"start" | "end"} cut */
  #setEntries(entries, cut) {
    let fold = foldOf(entries, this.#aliases);
    if (fold.items.length > MOST_ITEMS) {
      const at = fold.items[cut === "start" ? fold.items.length - MOST_ITEMS : MOST_ITEMS].seq;
      entries = entries.filter((entry) => (cut === "start" ? entry.seq >= at : entry.seq < at));
      fold = foldOf(entries, this.#aliases);
      if (cut === "start") this.#start = at;
      else this.atEnd.set(false);
    }
    this.#entries = entries;
    this.#fold = fold;
    this.older.set(this.#start > 0);
    this.usage.set(fold.lastRequest);
  }

  /** @param {any} data */
  #event(data) {
    const event = /** @type {import("../../tests/api.d.ts").SessionEvent} */ (data.event);
    const readJournal = this.#live.take(event, (call) => this.#fold.hasCall(call), data.seq ?? -1);
    this.running.set(this.#live.running);
    this.#speak(event);
    if (["approval", "approval_answered", "asked", "asked_answered", "final", "stopped", "error", "run_begun", "missed"].includes(event.event)) {
      this.refreshStatus();
    }
    if (readJournal) this.#sync();
    this.#draw();
  }

  /** @param {import("../../tests/api.d.ts").SessionEvent} event */
  #speak(event) {
    if (event.event === "run_begun") this.spoken.set("The agent works");
    else if (event.event === "final") this.spoken.set("The agent answered");
    else if (event.event === "stopped") this.spoken.set("The run was stopped");
    else if (event.event === "error") this.spoken.set(`The run failed: ${event.message}`);
    else if (event.event === "approval") this.spoken.set("The agent asks for an approval");
    else if (event.event === "asked") this.spoken.set("The agent asks a question");
  }

  /** Reads what the journal has by now, as after a message was accepted. */
  readOn() {
    void this.#sync();
    void this.refreshStatus();
  }

  #statusNumber = 0;

  /** Open questions are state, so they are read, not collected from events. */
  async refreshStatus() {
    const number = ++this.#statusNumber;
    try {
      const status = await wire.request("sessions.status", { sessionKey: this.key });
      if (number !== this.#statusNumber || this.#stopped) return;
      this.status.set(status);
      this.running.set(Boolean(status.running));
      this.#live.running = Boolean(status.running);
      this.#draw();
    } catch {
      // The next connection reads it again.
    }
  }

  /** Reads what the journal has beyond the window's end. One reading at a time. */
  async #sync() {
    if (!this.loaded.peek() || !this.atEnd.peek()) return;
    if (this.#syncing) {
      this.#again = true;
      return;
    }
    this.#syncing = true;
    try {
      do {
        this.#again = false;
        const page = await wire.request("sessions.history", { sessionKey: this.key, from: this.#fold.next, limit: PAGE });
        if (!this.atEnd.peek()) return;
        const fresh = page.events.filter((entry) => entry.seq >= this.#fold.next);
        this.#entries.push(...fresh);
        this.#live.covered(fresh, this.#aliases);
        this.#fold.add(fresh);
        if (this.#fold.items.length > MOST_ITEMS + SLACK) this.#setEntries(this.#entries, "start");
        this.usage.set(this.#fold.lastRequest);
        if (page.next !== null) this.#again = true;
      } while (this.#again);
    } catch {
      // A lost connection: the next one reads on from the same number.
    } finally {
      this.#syncing = false;
      this.#draw();
    }
  }

  /** Draws at most once per frame, and twice a second in a tab that nobody sees. */
  #draw() {
    if (this.#drawing || this.#stopped) return;
    this.#drawing = true;
    const draw = () => {
      this.#drawing = false;
      this.items.set(this.atEnd.peek() ? this.#live.all(this.#fold) : [...this.#fold.items]);
    };
    if (document.visibilityState === "visible") requestAnimationFrame(draw);
    else setTimeout(draw, 500);
  }

  close() {
    this.#stopped = true;
    for (const stop of this.#stops) stop();
  }
}

/** @param {readonly HistoryEvent[]} entries @param {Map<number, number>} aliases */
function foldOf(entries, aliases) {
  const fold = new Fold(aliases);
  fold.add(entries);
  return fold;
}
