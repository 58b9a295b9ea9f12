// One session: its transcript, its open questions, and the field for a message.

import { each, h } from "../core/dom.js";
import { clockTime, exactTime, money, number, short } from "../core/format.js";
import { go, path, route } from "../core/route.js";
import { derived, onDispose, scope, signal, untracked, watch } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { openQuestions } from "../model/fold.js";
import { SessionView } from "../model/session.js";
import { sumOfRun } from "../model/usage.js";
import { composer } from "../parts/composer.js";
import { askBeforeLinks, callCard, markdown } from "../parts/message.js";
import { Resource, ask, badge, button, copyButton, copyText, dialog, empty, icon, problem, say, time } from "../parts/ui.js";

/** @import { Read } from "../core/signal.js" */
/** @import { CallItem, Item, NoteItem, RunUsage, TextItem, ThinkingItem, UserItem } from "../model/fold.js" */
/** @import { ModelReport, SessionInfo } from "../../tests/api.d.ts" */

/** Within this distance of the end the transcript follows what is written. */
const FOLLOW_PX = 40;
export const READING = "gantry.reading";

export default function Chat() {
  const key = derived(() => route().parts[0] ?? "main");
  const body = h("div", { class: "chat" });
  /** @type {() => void} */
  let dispose = () => {};
  watch(() => {
    const sessionKey = key();
    untracked(() => {
      dispose();
      const [element, end] = scope(() => conversation(sessionKey));
      dispose = end;
      body.replaceChildren(element);
    });
  });
  onDispose(() => dispose());
  return h("div", { class: "chat-screen" }, sessionList(key), body);
}

/** @param {() => string} key */
function sessionList(key) {
  const sessions = new Resource(() => ask("sessions.list", { limit: 60 }), { everyMs: 8000 });
  onDispose(wire.on("session.event", (data) => /begun|final|stopped|error|approval|asked/.test(data.event.event) && sessions.soon()));
  const shown = () => (sessions.value()?.sessions ?? []).filter((/** @type {SessionInfo} */ session) => !session.parent);
  return h(
    "aside",
    { class: "chat-list", "aria-label": "Sessions" },
    h("div", { class: "chat-list-head" }, h("h2", null, "Sessions"), button(null, () => go(path(["chat", newSessionKey()])), { icon: "plus", kind: "bare", title: "New session" })),
    each(shown, (session) => session.sessionKey, (session) =>
      h(
        "a",
        { class: "chat-link", href: path(["chat", session.peek().sessionKey]), "aria-current": () => (sameSession(key(), session().sessionKey) ? "page" : null) },
        h("span", { class: "chat-link-title" }, () => session().label || shortKey(session().sessionKey)),
        h("span", { class: "chat-link-sub" }, () => (session().waiting ? badge("warn", "waits for you") : session().running ? badge("run", "working") : time(session().lastActivity))),
      ),
    ),
  );
}

/** @param {string} key */
export const shortKey = (key) => key.replace(/^agent:[^:]+:/, "");

/** @param {string} a @param {string} b */
const sameSession = (a, b) => a === b || shortKey(a) === shortKey(b);

export function newSessionKey() {
  const at = new Date();
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `chat-${at.getFullYear()}${two(at.getMonth() + 1)}${two(at.getDate())}-${two(at.getHours())}${two(at.getMinutes())}${two(at.getSeconds())}`;
}

/** @param {string} sessionKey */
function conversation(sessionKey) {
  const view = new SessionView(sessionKey);
  onDispose(() => view.close());
  watch(() => {
    wire.epoch();
    if (wire.state.peek() === "online") untracked(() => void view.open());
  });
  watch(() => {
    const labels = view.status()?.labels ?? [];
    askBeforeLinks.set(labels.includes("untrusted") && labels.includes("private"));
  });

  const questions = derived(() => openQuestions(view.status()));
  const dockPlace = h("div", { class: "dock-place" });
  watch(() => {
    if (questions().length && !dockPlace.firstChild) {
      // The part is loaded with the first question.
      void import("../parts/approval.js").then(({ dock }) => {
        if (dockPlace.firstChild) return;
        const [element, end] = scope(() => dock(() => view.sessionKey, questions));
        dockPlace.append(element);
        onEnd.push(end);
      });
    }
  });
  /** @type {(() => void)[]} */
  const onEnd = [];
  onDispose(() => onEnd.forEach((end) => end()));

  const scroll = transcript(view);
  const input = composer({
    sessionKey,
    // A session that does not exist yet has its agent in its key only.
    agent: () => view.status.peek()?.agent ?? /^agent:([^:]+):/.exec(sessionKey)?.[1] ?? "main",
    running: view.running,
    onsent: (told) => {
      if (told) showTold(told);
      scroll.toEnd();
      view.readOn();
    },
  });
  onDispose(input.stop);
  if (!matchMedia("(pointer: coarse)").matches) requestAnimationFrame(input.focus);

  return h(
    "section",
    { class: "conversation", "aria-label": "Conversation" },
    chatHead(sessionKey, view, scroll),
    scroll.element,
    h("div", { class: "chat-foot" }, h("div", { class: "chat-column" }, scroll.newer, dockPlace, statusLine(view), input.element)),
    h("p", { class: "unseen", role: "status", "aria-live": "polite" }, view.spoken),
  );
}

/** @param {string} told */
function showTold(told) {
  if (!told.includes("\n") && told.length < 120) say(told);
  else void dialog("Answer", () => h("pre", { class: "plain wrap dialog-text" }, told));
}

/** @param {string} sessionKey @param {SessionView} view @param {ReturnType<typeof transcript>} scroll */
function chatHead(sessionKey, view, scroll) {
  const labels = { untrusted: "The conversation holds text that others wrote", private: "The conversation holds private data" };
  return h(
    "header",
    { class: "chat-head" },
    h("div", { class: "chat-title" }, h("h1", null, () => /** @type {any} */ (view.status())?.label || shortKey(view.status()?.sessionKey ?? sessionKey)), h("p", { class: "sub" }, () => {
      const status = view.status();
      return status ? [h("span", null, status.agent), " · ", h("span", null, status.model)] : "";
    })),
    h(
      "div",
      { class: "chat-meta" },
      () => (view.status()?.labels ?? []).map((label) => h("span", { class: "badge", title: labels[/** @type {"private"} */ (label)] ?? "" }, label)),
      () => contextMeter(view),
      button(null, () => menu(sessionKey, view, scroll), { icon: "more", kind: "bare", title: "More" }),
    ),
  );
}

/** How full the model's window is: the newest request alone, not the sum of all. @param {SessionView} view */
function contextMeter(view) {
  const usage = view.usage();
  if (!usage?.input) return null;
  const window = modelNamed(usage.model)?.contextWindow ?? 0;
  const text = window ? `${Math.round((100 * usage.input) / window)} % of the window` : `${short(usage.input)} tokens`;
  return h(
    "span",
    { class: "meter", title: `The last request had ${number(usage.input)} tokens${window ? ` of ${number(window)}` : ""}, ${number(usage.cached)} of them from the cache` },
    window ? h("progress", { max: String(window), value: usage.input, "aria-label": "context window" }) : null,
    h("span", null, text),
  );
}

const models = signal(/** @type {Record<string, ModelReport>} */ ({}));
let modelsRead = false;

/** What the gateway knows about a model. It is read once, when it is first needed. @param {string} name @returns {ModelReport | undefined} */
function modelNamed(name) {
  if (!modelsRead) {
    modelsRead = true;
    ask("gateway.status").then(
      (status) => models.set(Object.fromEntries((status.models?.models ?? []).map((/** @type {ModelReport} */ entry) => [entry.name, entry]))),
      () => (modelsRead = false),
    );
  }
  return models()[name];
}

/** What a run used, below its last answer. @param {RunUsage} run */
function runUsage(run) {
  const { input, output, cached, usd } = sumOfRun(run, (model) => modelNamed(model)?.price);
  const words = [`${run.requests} request${run.requests > 1 ? "s" : ""}`, `${short(input + output)} tokens`, usd === null ? "" : `about ${money(usd)}`];
  return h("span", { class: "run-usage", title: `${number(input)} tokens in, ${number(cached)} of them from the cache, and ${number(output)} out` }, words.filter(Boolean).join(" · "));
}

/** @param {string} sessionKey @param {SessionView} view @param {ReturnType<typeof transcript>} scroll */
function menu(sessionKey, view, scroll) {
  const status = view.status.peek();
  void dialog("Session", (close) => [
    status
      ? h(
          "dl",
          { class: "facts dialog-text" },
          fact("Key", [h("code", null, status.sessionKey), copyButton(status.sessionKey)]),
          fact("Agent", status.agent),
          fact("Model", status.model),
          fact("Directory", h("code", null, status.workspace)),
          fact("Runs", number(status.runs)),
          fact("Tokens", `${number(status.usage.input_tokens + status.usage.cache_read_tokens + status.usage.cache_write_tokens)} in, ${number(status.usage.output_tokens)} out`),
          status.child ? fact("Started by", h("a", { href: path(["chat", status.child.parent]), onclick: () => close() }, status.child.parent)) : null,
        )
      : null,
    h(
      "div",
      { class: "menu" },
      button("Search in this conversation", () => (close(), scroll.search()), { icon: "search" }),
      button("Jump to my previous message", () => (close(), scroll.jump(-1)), { icon: "up" }),
      button("Copy as text", () => copyText(asText(view.items.peek())), { icon: "copy" }),
      button("Download the journal", () => download(sessionKey), { icon: "download" }),
      button(localStorage.getItem(READING) === "head" ? "Reading: stops at the head of an answer" : "Reading: follows an answer to its end", () => {
        localStorage.setItem(READING, localStorage.getItem(READING) === "head" ? "follow" : "head");
        close();
      }, { icon: "down" }),
      button("New conversation", () => ask("sessions.send", { sessionKey, message: "/new" }).then((answer) => (close(), say(answer.told || "New conversation"))), { icon: "plus" }),
    ),
  ]);
}

/** @param {string} name @param {import("../core/dom.js").Child} value */
const fact = (name, value) => h("div", null, h("dt", null, name), h("dd", null, value));

/** @param {readonly Item[]} items */
export function asText(items) {
  return items
    .map((item) => {
      if (item.type === "user") return `${item.from}: ${item.text}`;
      if (item.type === "text") return `agent: ${item.text}`;
      if (item.type === "call") return `[${item.tool} ${JSON.stringify(item.input)}]`;
      return item.type === "note" ? `(${item.text})` : "";
    })
    .filter(Boolean)
    .join("\n\n");
}

/** Saves the whole journal, page by page. @param {string} sessionKey */
async function download(sessionKey) {
  const lines = [];
  for (let from = 0; ; ) {
    const page = await ask("sessions.history", { sessionKey, from, limit: 500 });
    for (const event of page.events) lines.push(JSON.stringify(event));
    if (page.next === null) break;
    from = page.next;
  }
  const url = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "application/x-ndjson" }));
  h("a", { href: url, download: `${shortKey(sessionKey).replace(/[^\w-]/g, "_")}.jsonl` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** @param {SessionView} view */
function statusLine(view) {
  return h("div", { class: "run-line" }, () => {
    const status = view.status();
    const waits = (status?.questions.length ?? 0) + (status?.asks.length ?? 0);
    if (waits) return waits > 1 ? h("span", { class: "badge warn" }, `${waits} questions wait for you`) : null;
    if (view.running()) return [h("span", { class: "pulse", "aria-hidden": "true" }), h("span", null, "Working"), status?.queued ? h("span", { class: "muted" }, ` · ${status.queued} message${status.queued > 1 ? "s" : ""} will join`) : null];
    return null;
  });
}

/** The scrolling window of items. @param {SessionView} view */
function transcript(view) {
  const following = signal(true);
  const unseen = signal(0);
  let known = 0;
  const column = each(view.items, (item) => item.key, (item) => drawItem(item), { props: { class: "chat-column items", role: "log", "aria-live": "off", "aria-label": "Messages" } });
  const head = h("div", { class: "chat-column" }, () => (view.older() ? h("div", { class: "older" }, button(() => (view.reading() ? "Loading…" : "Earlier messages"), () => readOlder(), { small: true, kind: "bare" })) : null));
  const element = h(
    "div",
    { class: "transcript", tabindex: "0", role: "region", "aria-label": "Transcript" },
    head,
    () => (view.error() && !view.loaded() ? problem(/** @type {Error} */ (view.error()), () => view.open()) : null),
    () => (view.loaded() && view.items().length === 0 ? empty("What should be done?", "Write below. The agent has tools on your machines and asks before it acts, as your policy says.") : null),
    column,
  );

  const distance = () => element.scrollHeight - element.scrollTop - element.clientHeight;
  /** @type {HTMLElement | null} */
  let answer = null;
  const toEnd = () => {
    answer = null;
    following.set(true);
    unseen.set(0);
    if (!view.atEnd.peek()) void view.toEnd();
    stick();
  };
  const stick = () => {
    if (!following.peek()) return;
    let top = element.scrollHeight;
    if (localStorage.getItem(READING) === "head") {
      // The answer that is being written stays at its head, also when it has ended.
      if (!answer?.isConnected) answer = column.querySelector(".item.live");
      if (answer) top = Math.min(top, answer.offsetTop - 16);
    }
    element.scrollTop = top;
  };
  const leave = () => {
    if (!following.peek()) return;
    following.set(false);
    known = view.items.peek().length;
  };
  element.addEventListener("wheel", (event) => event.deltaY < 0 && leave(), { passive: true });
  element.addEventListener("touchmove", leave, { passive: true });
  element.addEventListener("keydown", (event) => ["PageUp", "ArrowUp", "Home"].includes(event.key) && leave());
  let lastTop = 0;
  element.addEventListener(
    "scroll",
    () => {
      const upward = element.scrollTop < lastTop - 2;
      lastTop = element.scrollTop;
      if (distance() <= FOLLOW_PX && view.atEnd.peek()) {
        if (!upward) following.set(true);
        unseen.set(0);
      } else if (upward && distance() > FOLLOW_PX) leave();
      if (element.scrollTop < 600 && view.older.peek() && !following.peek()) void readOlder();
      if (distance() < 600 && !view.atEnd.peek()) void view.readNewer();
    },
    { passive: true },
  );

  /** Keeps what is read in its place while items come above it. */
  async function readOlder() {
    if (view.reading.peek()) return;
    const top = element.getBoundingClientRect().top;
    const anchor = [...column.children].find((child) => child.getBoundingClientRect().bottom > top);
    const before = anchor?.getBoundingClientRect().top ?? 0;
    following.set(false);
    await view.readOlder().catch(() => {});
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    if (anchor?.isConnected) element.scrollTop += anchor.getBoundingClientRect().top - before;
  }

  const observer = new ResizeObserver(stick);
  observer.observe(column);
  observer.observe(element);
  onDispose(() => observer.disconnect());
  watch(() => {
    const count = view.items().length;
    untracked(() => {
      if (following.peek()) known = count;
      else unseen.set(Math.max(0, count - known));
    });
  });

  const newer = h("div", { class: "newer" }, () =>
    following() ? null : button(() => (unseen() ? `${unseen()} new` : "To the end"), toEnd, { icon: "down", small: true }),
  );

  /** @param {number} step */
  const jump = (step) => {
    const own = [...column.querySelectorAll(".item.user")];
    const top = element.getBoundingClientRect().top;
    const place = own.findIndex((item) => item.getBoundingClientRect().top >= top + 20);
    const target = own[(place === -1 ? own.length : place) + (step < 0 ? -1 : 1)];
    leave();
    target?.scrollIntoView({ block: "start" });
  };

  /** Searches in the window. The part is loaded when it is first used. */
  const search = () => void import("../parts/find-bar.js").then(({ findBar }) => findBar(element, column, leave));
  return { element, newer, toEnd, jump, search };
}

/** @param {Read<Item>} item @returns {HTMLElement} */
function drawItem(item) {
  switch (item.peek().type) {
    case "user":
      return userItem(/** @type {Read<UserItem>} */ (item));
    case "text":
      return textItem(/** @type {Read<TextItem>} */ (item));
    case "thinking":
      return thinkingItem(/** @type {Read<ThinkingItem>} */ (item));
    case "call":
      return h("div", { class: "item" }, callCard(/** @type {Read<CallItem>} */ (item)));
    default:
      return noteItem(/** @type {NoteItem} */ (item.peek()));
  }
}

/** @param {Read<UserItem>} item */
function userItem(item) {
  const { from, text, at, images } = item.peek();
  const mine = from === "operator" || from.startsWith("page") || !from;
  return h(
    "article",
    { class: "item user", "aria-label": mine ? "You" : `From ${from}` },
    h("div", { class: "bubble" }, mine ? null : h("p", { class: "from" }, from), h("p", { class: "plain" }, text), images ? h("p", { class: "muted" }, `${images} picture${images > 1 ? "s" : ""}`) : null),
    h("p", { class: "item-foot" }, () => (item().waiting ? h("span", null, "waits for the next step") : null), h("time", { title: exactTime(at) }, clockTime(at)), copyButton(text)),
  );
}

/** @param {Read<TextItem>} item */
function textItem(item) {
  return h(
    "article",
    { class: () => `item text ${item().live ? "live" : ""}`, "aria-label": "Agent" },
    markdown(derived(() => item().text)),
    () => (item().live ? null : h("p", { class: "item-foot" }, h("time", { title: exactTime(item().at) }, item().at ? clockTime(item().at) : ""), () => { const { run } = item(); return run ? runUsage(run) : null; }, copyButton(item().text))),
  );
}

/** @param {Read<ThinkingItem>} item */
function thinkingItem(item) {
  const open = signal(false);
  return h(
    "div",
    { class: "item thinking" },
    h("button", { type: "button", class: "thinking-line", "aria-expanded": () => String(open()), onclick: () => open.update((was) => !was) }, icon("right", "chevron"), () => (item().live ? "Thinking…" : "Thoughts")),
    () => (open() ? h("p", { class: "plain thoughts" }, () => item().text) : null),
  );
}

/** @param {NoteItem} note */
function noteItem(note) {
  const long = note.body && note.body !== note.text;
  return h(
    "div",
    { class: `item note ${note.tone}`, role: note.tone === "error" ? "note" : undefined },
    h("span", null, note.tone === "error" ? icon("warn") : null, h("span", null, note.text), note.from && note.tone === "info" ? h("span", { class: "muted" }, ` · ${note.from}`) : null),
    long ? h("details", null, h("summary", null, "Show all"), h("p", { class: "plain" }, note.body)) : null,
  );
}

