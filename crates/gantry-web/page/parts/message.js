// Draws what an agent says. Markdown arrives from the gateway as a tree of nodes; only known tags become elements.

import { h } from "../core/dom.js";
import { duration, number, visible } from "../core/format.js";
import { derived, onDispose, signal, untracked, watch } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { ask, button, copyButton, dialog, icon } from "./ui.js";

/** @import { Child } from "../core/dom.js" */
/** @import { Read } from "../core/signal.js" */
/** @import { CallItem } from "../model/fold.js" */
/** @import { MarkdownBlock, MarkdownInline, MarkdownItem } from "../../tests/api.d.ts" */
/** @typedef {{ blocks: MarkdownBlock[], settled: number, settledBlocks: number }} Drawn */

const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** @param {MarkdownBlock} block @returns {Node} */
export function drawBlock(block) {
  switch (block.block) {
    case "paragraph":
      return h("p", null, block.content.map(drawInline));
    case "heading":
      // Headings of an answer are below those of the page.
      return h(`h${Math.min(6, block.level + 2)}`, null, block.content.map(drawInline));
    case "code":
      return h("div", { class: "code" }, h("div", { class: "code-head" }, h("span", null, block.language || "text"), copyButton(block.text)), h("pre", { tabindex: "0" }, h("code", null, block.text)));
    case "quote":
      return h("blockquote", null, block.blocks.map(drawBlock));
    case "list":
      return h(block.start === undefined || block.start === null ? "ul" : "ol", block.start ? { start: String(block.start) } : null, block.items.map(drawListItem));
    case "table":
      return h(
        "div",
        { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" },
        h("table", null, h("thead", null, h("tr", null, block.header.map((cell, at) => drawCell("th", cell, block.align[at])))), h("tbody", null, block.rows.map((row) => h("tr", null, row.map((cell, at) => drawCell("td", cell, block.align[at])))))),
      );
    case "rule":
      return h("hr");
    default:
      return h("p", null);
  }
}

/** @param {MarkdownItem} item */
function drawListItem(item) {
  const box = typeof item.done === "boolean" ? h("input", { type: "checkbox", checked: item.done, disabled: true, "aria-label": item.done ? "done" : "open" }) : null;
  // A short item is one line, not a paragraph.
  const [first, ...rest] = item.blocks;
  const line = first?.block === "paragraph" ? first.content.map(drawInline) : first ? drawBlock(first) : null;
  return h("li", { class: box ? "todo" : undefined }, box, line, rest.map(drawBlock));
}

/** @param {"th" | "td"} tag @param {MarkdownInline[]} content @param {string | undefined} align */
const drawCell = (tag, content, align) => h(tag, align && align !== "none" ? { style: { "text-align": align } } : null, content.map(drawInline));

/** @param {MarkdownInline} inline @returns {Node} */
function drawInline(inline) {
  switch (inline.inline) {
    case "text":
      return document.createTextNode(inline.text);
    case "code":
      return h("code", null, inline.text);
    case "emphasis":
      return h("em", null, inline.content.map(drawInline));
    case "strong":
      return h("strong", null, inline.content.map(drawInline));
    case "strike":
      return h("del", null, inline.content.map(drawInline));
    case "link":
      return link(inline.href, inline.host ?? "", inline.content.map(drawInline));
    case "break":
      return h("br");
    default:
      return document.createTextNode("");
  }
}

/** While the conversation holds private data and untrusted text, a click shows the whole address first. */
export const askBeforeLinks = signal(false);

/** `host` is where the link leads, if its text names another one. @param {string} href @param {string} host @param {Child[]} children */
function link(href, host, children) {
  /** @type {URL | null} */
  let url = null;
  try {
    url = new URL(href);
  } catch {
    // Not an address: its text is shown.
  }
  if (!url || !SCHEMES.has(url.protocol)) return h("span", null, children);
  const target = url.href;
  const open = async (/** @type {Event} */ event) => {
    if (!askBeforeLinks.peek() && !host) return;
    event.preventDefault();
    const answer = await dialog("Open this address?", (close) => [
      h("p", { class: "dialog-text" }, host ? "The text of the link names another host than its address." : "The agent has read untrusted text and private data. The address itself can carry data away."),
      h("pre", { class: "plain wrap" }, visible(target)),
      h("div", { class: "dialog-actions" }, button("Cancel", () => close(), { extra: { autofocus: true } }), button("Open", () => close("open"), { kind: "primary" })),
    ]);
    if (answer === "open") window.open(target, "_blank", "noopener,noreferrer");
  };
  return h("a", { href: target, target: "_blank", rel: "noopener noreferrer", title: target, onclick: open }, children, host ? h("span", { class: "real-host" }, ` [${host}]`) : null);
}

/** Texts that wait for the next request, drawn together. @type {{ text: string, done: (drawn: Drawn | null) => void }[]} */
let queue = [];
/** @type {Map<string, Drawn>} */
const drawnTexts = new Map();

/** @param {string} text @returns {Promise<Drawn | null>} null: the text stays plain */
function render(text) {
  const known = drawnTexts.get(text);
  if (known) return Promise.resolve(known);
  return new Promise((done) => {
    queue.push({ text, done });
    if (queue.length === 1) queueMicrotask(sendQueue);
  });
}

async function sendQueue() {
  const batch = queue;
  queue = [];
  // The newest messages are at the end, and are seen first.
  for (let end = batch.length; end > 0; end -= 60) {
    const part = batch.slice(Math.max(0, end - 60), end);
    try {
      const answer = await ask("markdown.render", { texts: part.map(({ text }) => text) });
      part.forEach(({ text, done }, index) => {
        const drawn = answer.documents[index];
        if (text.length < 20_000) drawnTexts.set(text, drawn);
        done(drawn);
      });
      for (const old of drawnTexts.keys()) {
        if (drawnTexts.size <= 600) break;
        drawnTexts.delete(old);
      }
    } catch {
      for (const { done } of part) done(null);
    }
  }
}

/** Markdown that may still grow. What is settled is not drawn again. @param {Read<string>} text */
export function markdown(text) {
  const root = h("div", { class: "md" });
  let settled = 0;
  let settledBlocks = 0;
  let busy = false;
  let shown = "";
  let off = false;
  let plain = true;
  const draw = async () => {
    if (busy || off) return;
    busy = true;
    while (!off && shown !== text.peek()) {
      const whole = text.peek();
      if (!whole.startsWith(shown.slice(0, settled))) {
        settled = settledBlocks = 0;
        root.replaceChildren();
      }
      const drawn = await render(whole.slice(settled));
      if (off) return;
      shown = whole;
      if (!drawn) {
        showPlain(whole.slice(settled));
        continue;
      }
      plain = false;
      while (root.childNodes.length > settledBlocks) root.lastChild?.remove();
      for (const block of drawn.blocks) root.append(drawBlock(block));
      settled += drawn.settled;
      settledBlocks += drawn.settledBlocks;
    }
    busy = false;
  };
  const showPlain = (/** @type {string} */ rest) => {
    while (root.childNodes.length > settledBlocks) root.lastChild?.remove();
    if (rest) root.append(h("p", { class: "plain" }, rest));
  };
  watch(() => {
    const whole = text();
    untracked(() => {
      if (plain) showPlain(whole);
      // A reconnection draws again what could not be drawn.
      void draw();
    });
  });
  watch(() => {
    if (wire.epoch() > 1 && untracked(() => plain)) {
      shown = "";
      void draw();
    }
  });
  onDispose(() => (off = true));
  return root;
}

/** What a call does, in one line, and on which machine. @param {string} tool @param {any} input @returns {{ name: string, machine: string, line: string }} */
export function callSummary(tool, input) {
  const given = input && typeof input === "object" ? input : {};
  const split = /^([a-z0-9][a-z0-9-]*)__(.+)$/.exec(tool);
  const machine = split && split[1] !== "gsv" && split[1] !== "tool" ? split[1] : String(given.node ?? "");
  const name = split ? (split[1] === "gsv" || split[1] === "tool" ? split[2] : split[2]) : tool;
  for (const key of ["command", "path", "file_path", "filePath", "url", "query", "pattern", "task", "name", "title", "sessionId", "to", "text", "message", "question"]) {
    const value = given[key];
    if (typeof value === "string" && value) return { name, machine, line: value.split("\n").find((line) => line.trim()) ?? "" };
  }
  const rest = JSON.stringify(given);
  return { name, machine, line: rest === "{}" ? "" : rest.slice(0, 200) };
}

/** @param {string} tool @returns {import("./ui.js").IconName} */
export function toolIcon(tool) {
  const name = tool.replace(/^.*__/, "").toLowerCase();
  if (/bash|exec|process|command/.test(name)) return "terminal";
  if (/edit|write|patch/.test(name)) return "edit";
  if (/read|file|glob|grep|list/.test(name)) return "files";
  if (/web|http|fetch|research/.test(name)) return "globe";
  if (/agent|session/.test(name)) return "user";
  if (/cron/.test(name)) return "schedules";
  return "tools";
}

const STATES = { writing: "writing", running: "running", done: "done", error: "failed", interrupted: "interrupted" };

/** A tool call: one line, with input and result on opening. @param {Read<CallItem>} item */
export function callCard(item) {
  const open = signal(false);
  const summary = derived(() => callSummary(item().tool, item().state === "writing" ? partial(item().inputText) : item().input));
  const state = () => (item().state === "done" && item().failed ? "error" : item().state);
  return h(
    "div",
    { class: () => `call ${state()}` },
    h(
      "button",
      { type: "button", class: "call-line", "aria-expanded": () => String(open()), onclick: () => open.update((was) => !was) },
      h("span", { class: "call-icon" }, icon(toolIcon(item.peek().tool))),
      h("span", { class: "call-name" }, () => summary().name),
      () => (summary().machine ? h("span", { class: "machine" }, summary().machine) : null),
      h("span", { class: "call-what" }, () => summary().line),
      h("span", { class: "call-state" }, () => stateText(item())),
      icon("down", "chevron"),
    ),
    () => (item().progress ? progressLine(item) : null),
    () => (item().answered ? h("p", { class: "call-answered" }, item().answered) : null),
    () => (open() ? callDetails(item) : null),
  );
}

/** @param {CallItem} item */
function stateText(item) {
  if (item.state === "done" || item.state === "error") {
    const time = item.startedAt && item.endedAt >= item.startedAt ? duration(item.endedAt - item.startedAt) : "";
    if (item.exitCode) return `exit ${item.exitCode}${time ? " · " + time : ""}`;
    return item.state === "error" || item.failed ? `failed${time ? " · " + time : ""}` : time || "done";
  }
  return STATES[item.state];
}

/** @param {Read<CallItem>} item */
function progressLine(item) {
  const part = () => {
    const progress = item().progress;
    return progress?.total ? Math.min(1, progress.done / progress.total) : null;
  };
  return h(
    "div",
    { class: "call-progress" },
    h("progress", { max: "1", "aria-label": "progress", value: () => part() ?? undefined }),
    h("span", null, () => item().progress?.message ?? ""),
  );
}

/** The values that an unfinished input already shows. @param {string} text */
function partial(text) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const match of text.matchAll(/"(\w+)"\s*:\s*"((?:[^"\\]|\\.)*)/g)) {
    try {
      found[match[1]] = JSON.parse(`"${match[2].replace(/\\$/, "")}"`);
    } catch {
      found[match[1]] = match[2];
    }
  }
  return found;
}

/** @param {Read<CallItem>} item */
function callDetails(item) {
  return h(
    "div",
    { class: "call-details" },
    h("h3", null, "Input"),
    () => callInput(item()),
    () => (item().result || item().images.length ? [h("h3", null, item().state === "error" ? "Error" : "Result"), longText(resultText(item().result))] : null),
    () => item().images.map((image) => picture(image)),
    () => (item().labels.length ? h("p", { class: "muted" }, `The result is ${item().labels.join(" and ")}.`) : null),
  );
}

/** @param {CallItem} item @returns {Child} */
function callInput(item) {
  const input = item.input ?? {};
  if (item.state === "writing" || item.inputText) return h("pre", { class: "plain wrap", tabindex: "0" }, item.inputText || "…");
  if (typeof input.command === "string") {
    const { command, ...rest } = input;
    return [h("pre", { class: "plain wrap command", tabindex: "0" }, command), Object.keys(rest).length ? json(rest) : null];
  }
  const before = input.oldString ?? input.old_string ?? input.old_text;
  const after = input.newString ?? input.new_string ?? input.new_text;
  if (typeof before === "string" && typeof after === "string") return [h("p", { class: "mono" }, input.path ?? input.filePath ?? ""), diffView({ before, after })];
  return json(input);
}

/** A result that is JSON, indented; of a command its output first. @param {string} text */
export function resultText(text) {
  if (text.length > 200_000 || !/^\s*[[{]/.test(text)) return text;
  try {
    const value = JSON.parse(text);
    if (typeof value?.output === "string" && ("exitCode" in value || "status" in value)) {
      const { output, tail: _tail, ...rest } = value;
      return `${output}${output.endsWith("\n") || !output ? "" : "\n"}${JSON.stringify(rest)}`;
    }
    return JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}

/** @param {unknown} value */
export const json = (value) => longText(JSON.stringify(value, null, 2));

const SHOWN = 6_000;

/** Text that is shown in parts, so that a huge result does not stop the page. @param {string} text */
export function longText(text) {
  const shown = signal(SHOWN);
  return h(
    "div",
    { class: "long-text" },
    h("pre", { class: "plain wrap", tabindex: "0" }, () => text.slice(0, shown())),
    () =>
      shown() < text.length
        ? button(`Show more (${number(text.length - shown())} characters left)`, () => shown.update((n) => n * 4), { small: true })
        : null,
  );
}

/** What an edit takes away and adds, in pages. The gateway compares. @param {{ before?: string, after?: string, patch?: string }} change */
export function diffView(change) {
  const rows = h("div", { class: "diff", role: "group", "aria-label": "Change", tabindex: "0" });
  const next = signal(/** @type {number | null} */ (null));
  const trouble = signal("");
  const read = async (/** @type {number} */ offset) => {
    try {
      const page = await ask("diff.render", { ...change, offset });
      const signs = { same: " ", added: "+", removed: "-", gap: "", file: "" };
      for (const row of page.rows) rows.append(h("div", { class: `line ${row.kind}` }, `${signs[/** @type {"same"} */ (row.kind)] ?? " "} ${row.text}`));
      next.set(page.nextOffset ?? null);
    } catch (error) {
      trouble.set(/** @type {Error} */ (error).message);
    }
  };
  void read(0);
  return h("div", null, rows, () => (trouble() ? h("p", { class: "field-problem" }, trouble()) : null), () => (next() === null ? null : button("Show more", () => read(next.peek() ?? 0), { small: true })));
}

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** A picture of a result, as a blob of this page. @param {{ media_type: string, data: string }} image */
function picture(image) {
  if (!PICTURES.includes(image.media_type)) return null;
  const bytes = Uint8Array.from(atob(image.data), (char) => char.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([bytes], { type: image.media_type }));
  onDispose(() => URL.revokeObjectURL(url));
  return h("img", { class: "picture", src: url, alt: "A picture of the result" });
}
