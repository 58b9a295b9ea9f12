// The connection to the gateway: one WebSocket for the tab. It reconnects by itself, and says when it did, so that
// whoever listens can continue from the number that it knows.

import { signal } from "./signal.js";

/** @import { Events, Methods, ServerInfo } from "../../tests/api.d.ts" */
/** @typedef {"connecting" | "online" | "offline" | "signed_out"} WireState */

const FIRST_PAUSE = 400;
const LONGEST_PAUSE = 15_000;
const ANSWER_MS = 60_000;

export class WireError extends Error {
  /** @param {string} code @param {string} message @param {any} [details] */
  constructor(code, message, details) {
    super(message);
    this.code = code;
    this.details = details;
  }

  /** All violations of a schema, each with the path of its field. @returns {{ path: string, message: string }[]} */
  get violations() {
    return Array.isArray(this.details?.violations) ? this.details.violations : [];
  }

  get hint() {
    return typeof this.details?.hint === "string" ? this.details.hint : "";
  }
}

export class Wire {
  /** @type {import("./signal.js").Signal<WireState>} */
  state = signal(/** @type {WireState} */ ("connecting"));
  /** @type {import("./signal.js").Signal<ServerInfo | null>} */
  server = signal(/** @type {ServerInfo | null} */ (null));
  /** The directory that relative paths start in on the gateway's machine. */
  workspace = signal("");
  /** When the next attempt starts, while offline. */
  retryAt = signal(0);
  /** Counts the connections that were made. Whoever listens watches it, and listens again. */
  epoch = signal(0);
  /** Milliseconds that the gateway's clock is ahead of this one. */
  clockAhead = 0;

  /** @type {WebSocket | null} */
  #socket = null;
  #ids = 0;
  #attempts = 0;
  #closed = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {Map<number, { settle: (error: WireError | null, result?: any) => void, call?: (data: any) => void }>} */
  #open = new Map();
  /** @type {Map<string, Set<(data: any) => void>>} */
  #listeners = new Map();
  /** @type {(params: any) => Promise<unknown>} */
  onApproval = async () => ({ allow: false, reason: "the page cannot ask now" });

  /** @param {{ url: string, key: () => string | null }} options */
  constructor(options) {
    this.options = options;
  }

  start() {
    addEventListener("online", () => this.retryNow());
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.retryNow());
    this.#connect();
  }

  retryNow() {
    if (this.#socket || this.#closed || this.state.peek() === "signed_out") return;
    clearTimeout(this.#timer);
    this.#connect();
  }

  /** Ends the connection for good, as after signing out. */
  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#socket?.close(1000);
  }

  #connect() {
    this.state.set(this.state.peek() === "online" ? "connecting" : this.state.peek());
    const socket = new WebSocket(this.options.url);
    this.#socket = socket;
    socket.onopen = () => {
      this.#send("connect", {
        protocol: { min: 1, max: 2 },
        role: "client",
        id: "page",
        version: "1",
        platform: "browser",
        pageKey: this.options.key() ?? "",
      }).then(
        (answer) => this.#connected(answer),
        (error) => {
          if (error.code === "unauthorized") this.#signedOut();
        },
      );
    };
    socket.onmessage = (message) => {
      if (typeof message.data === "string") this.#receive(JSON.parse(message.data));
    };
    socket.onclose = (close) => this.#lost(socket, close.reason);
  }

  /** @param {any} answer */
  #connected(answer) {
    this.#attempts = 0;
    this.clockAhead = answer.server.now - Date.now();
    this.server.set(answer.server);
    this.workspace.set(answer.workspace ?? "");
    this.state.set("online");
    this.epoch.update((n) => n + 1);
  }

  #signedOut() {
    this.state.set("signed_out");
  }

  /** @param {WebSocket} socket @param {string} reason */
  #lost(socket, reason) {
    if (this.#socket !== socket) return;
    this.#socket = null;
    const lost = new WireError("lost", "the connection to the gateway was lost");
    for (const [, waiting] of this.#open) waiting.settle(lost);
    this.#open.clear();
    if (this.#closed || this.state.peek() === "signed_out") return;
    /** @type {any} */
    let why = {};
    try {
      why = JSON.parse(reason);
    } catch {
      // A close without a reason: the connection was lost.
    }
    const ended = ["page_session_ended", "token_revoked", "token_expired"];
    if (ended.includes(why.code) || (why.code === "refused" && why.error === "unauthorized")) return this.#signedOut();
    const limit = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.#attempts++);
    const pause = limit / 2 + Math.random() * (limit / 2);
    this.state.set("offline");
    this.retryAt.set(Date.now() + pause);
    this.#timer = setTimeout(() => this.#connect(), pause);
  }

  /** @param {any} frame */
  #receive(frame) {
    if (frame.type === "res") {
      const waiting = this.#open.get(frame.id);
      this.#open.delete(frame.id);
      if (frame.ok) waiting?.settle(null, frame.result);
      else waiting?.settle(new WireError(frame.error.code, frame.error.message, frame.error.details));
    } else if (frame.type === "evt") {
      if (frame.event === "call.progress") this.#open.get(Number(frame.data.call))?.call?.(frame.data);
      for (const listener of this.#listeners.get(frame.event) ?? []) listener(frame.data);
    } else if (frame.type === "req") {
      this.#answer(frame);
    }
  }

  /** @param {any} frame */
  async #answer(frame) {
    const socket = this.#socket;
    /** @type {any} */
    let answer = { ok: false, error: { code: "unknown_method", message: `unknown method ${frame.method}`, retryable: false } };
    if (frame.method === "approval.ask") {
      answer = { ok: true, result: await this.onApproval(frame.params) };
    }
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: "res", id: frame.id, ...answer }));
  }

  /**
   * @param {string} method
   * @param {any} params
   * @param {{ deadlineMs?: number, signal?: AbortSignal, progress?: (data: any) => void }} [options]
   * @returns {Promise<any>}
   */
  #send(method, params, options = {}) {
    const socket = this.#socket;
    if (!socket || socket.readyState !== WebSocket.OPEN) {
      return Promise.reject(new WireError("lost", "the gateway is not reachable now"));
    }
    const id = ++this.#ids;
    return new Promise((resolve, reject) => {
      const cancel = () => this.#socket?.send(JSON.stringify({ type: "cancel", id }));
      this.#open.set(id, {
        call: options.progress,
        settle: (error, result) => {
          options.signal?.removeEventListener("abort", cancel);
          if (error) reject(error);
          else resolve(result);
        },
      });
      options.signal?.addEventListener("abort", cancel);
      socket.send(JSON.stringify({ type: "req", id, method, params, deadlineMs: options.deadlineMs ?? ANSWER_MS }));
    });
  }

  /**
   * Sends a request, once the connection is there. Fails with `lost` if it ends before the answer.
   * @template {keyof Methods} M
   * @param {M} method
   * @param {Methods[M]["params"]} params
   * @param {{ deadlineMs?: number, signal?: AbortSignal, progress?: (data: any) => void }} [options]
   * @returns {Promise<Methods[M]["result"]>}
   */
  async request(method, params, options) {
    if (this.state.peek() !== "online") {
      throw new WireError("lost", "the gateway is not reachable now");
    }
    return this.#send(method, params, options);
  }

  /**
   * Calls `listener` for each event of this name. Returns a function that ends it.
   * @template {keyof Events} E
   * @param {E} event
   * @param {(data: Events[E]) => void} listener
   */
  on(event, listener) {
    let set = this.#listeners.get(event);
    if (!set) this.#listeners.set(event, (set = new Set()));
    set.add(listener);
    return () => {
      set.delete(listener);
    };
  }
}

const KEY = "gantry.key";

/** The key of this page's session. The cookie is the other half. */
export const pageKey = {
  read: () => localStorage.getItem(KEY),
  /** @param {string} key */
  write: (key) => localStorage.setItem(KEY, key),
  forget: () => localStorage.removeItem(KEY),
};

/** The connection of this tab. It speaks to the origin of the page; there is no setting for another. */
export const wire = new Wire({
  url: `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/ws`,
  key: pageKey.read,
});
