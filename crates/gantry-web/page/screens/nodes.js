// The machines: state at a glance, and for each its tools, log, processes and a place to run a command.

import { each, h } from "../core/dom.js";
import { duration, exactTime, number } from "../core/format.js";
import { go, path, route, setQuery } from "../core/route.js";
import { derived, onDispose, signal, untracked, watch } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { shellQuote } from "../model/commands.js";
import { callJson } from "../parts/call.js";
import { logView } from "../parts/log.js";
import { Resource, ask, badge, button, confirmed, dialog, empty, field, header, icon, problem, say, showError, tabs, time } from "../parts/ui.js";

/** @import { Read } from "../core/signal.js" */
/** @import { NodeInfo } from "../../tests/api.d.ts" */

export default function Nodes() {
  const list = new Resource(() => ask("nodes.listen"));
  onDispose(wire.on("nodes.changed", (now) => list.value.set(now)));
  const nodes = derived(() => /** @type {NodeInfo[]} */ (list.value()?.nodes ?? []));
  const chosen = derived(() => route().parts[0] ?? "");
  return h("div", { class: "split nodes-split", "data-open": () => (chosen() ? "yes" : "no") },
    h(
      "div",
      { class: "split-list" },
      header("Machines", button("Add", () => addNode(list), { icon: "plus", small: true })),
      list.view(() => [
        h("a", { class: "chat-link", href: "/nodes/all", "aria-current": () => (chosen() === "all" ? "page" : null) }, h("span", { class: "chat-link-title" }, "Run on several"), h("span", { class: "chat-link-sub" }, "One command on all machines, or on a tag")),
        each(nodes, (node) => node.id, (node) => nodeLink(node, chosen)),
      ]),
    ),
    h("div", { class: "split-main" }, () => {
      const id = chosen();
      if (!id) return empty("Choose a machine", "Its tools, its log, what runs on it, and a place to run a command.");
      return untracked(() => (id === "all" ? several(nodes) : oneNode(id, nodes, list)));
    }),
  );
}

/** @param {Read<NodeInfo>} node @param {() => string} chosen */
function nodeLink(node, chosen) {
  return h(
    "a",
    { class: "chat-link node-link", href: path(["nodes", node.peek().id]), "aria-current": () => (chosen() === node().id ? "page" : null) },
    h("span", { class: "chat-link-title row" }, h("span", { class: () => `dot ${node().online ? "on" : ""}`, "aria-hidden": "true" }), h("span", null, () => node().id), () => (node().inFlight ? badge("run", `${node().inFlight} running`) : null)),
    h("span", { class: "chat-link-sub" }, () => [stateWord(node()), latency(node()), node().clientPlatform, ...node().tags].filter(Boolean).join(" · ")),
  );
}

/** @param {NodeInfo} node */
const stateWord = (node) => (node.online ? "online" : node.revoked ? "revoked" : node.lastSeen ? "offline" : "never connected");

/** @param {NodeInfo} node */
const latency = (node) => (node.online && typeof node.latencyMs === "number" ? `${node.latencyMs < 10 ? node.latencyMs.toFixed(1) : Math.round(node.latencyMs)} ms` : "");

/** @param {string} id @param {() => NodeInfo[]} nodes @param {Resource<any>} list */
function oneNode(id, nodes, list) {
  const node = derived(() => nodes().find((each) => each.id === id) ?? null);
  const view = derived(() => route().query.get("view") ?? "run");
  return h(
    "div",
    { class: "screen node-screen" },
    h("p", { class: "back" }, h("a", { href: "/nodes" }, "All machines")),
    () => {
      if (list.value() && !node()) return empty("No machine has this name", h("a", { href: "/nodes" }, "All machines"));
      return null;
    },
    header(h("span", { class: "mono" }, id), h("span", { class: "row" }, () => badge(node()?.online ? "ok" : "", node() ? stateWord(/** @type {NodeInfo} */ (node())) : "")), () => {
      const info = node();
      return info ? [info.clientPlatform ?? "", info.clientVersion ? ` · version ${info.clientVersion}` : "", info.online ? "" : [" · last seen ", time(info.lastSeen)], info.tags.map((tag) => h("span", { class: "machine tag" }, tag))] : null;
    }),
    h("div", { class: "toolbar" }, tabs("View", [["run", "Run"], ["processes", "Processes"], ["log", "Log"], ["tools", "Tools"], ["about", "About"]], view, (value) => setQuery({ view: value }))),
    () => {
      const shown = view();
      return untracked(() => {
        if (shown === "processes") return processes(id);
        if (shown === "log") return nodeLog(id);
        if (shown === "tools") return nodeTools(node);
        if (shown === "about") return about(id, node, list);
        return runView(() => id, `Commands on ${id}`);
      });
    },
  );
}

/** A command view, as in a terminal: what was run, and what came. @param {() => string} target @param {string} label */
function runView(target, label) {
  const log = logView(label);
  const running = signal(/** @type {AbortController | null} */ (null));
  const place = signal("");
  /** @type {string[]} */
  let history = [];
  try {
    history = JSON.parse(sessionStorage.getItem("gantry.commands") ?? "[]");
  } catch {
    // Begin with an empty one.
  }
  let back = history.length;
  const input = h("input", {
    type: "text", class: "mono grow", placeholder: "Command", "aria-label": "Command", autocomplete: "off", spellcheck: "false", autocapitalize: "off",
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
      event.preventDefault();
      back = Math.min(history.length, Math.max(0, back + (event.key === "ArrowUp" ? -1 : 1)));
      input.value = history[back] ?? "";
    },
  });
  const run = async () => {
    const command = input.value.trim();
    if (!command || running.peek()) return;
    history = [...history.filter((each) => each !== command), command].slice(-100);
    back = history.length;
    sessionStorage.setItem("gantry.commands", JSON.stringify(history));
    input.value = "";
    log.append([`$ ${command}`]);
    const abort = new AbortController();
    running.set(abort);
    try {
      const answer = await callJson("Bash", { command, node: target(), ...(place.peek() ? { workdir: place.peek() } : {}) }, { signal: abort.signal });
      for (const part of answer.results ?? [{ node: "", ok: true, result: answer }]) showAnswer(log, part);
    } catch (error) {
      log.append([`! ${/** @type {Error} */ (error).message}`]);
    } finally {
      running.set(null);
      input.focus();
    }
  };
  return h(
    "div",
    { class: "run-view" },
    log.element,
    h(
      "form",
      { class: "row run-form", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void run()) },
      h("span", { class: "mono muted", "aria-hidden": "true" }, "$"),
      input,
      () => (running() ? button("Stop", () => running.peek()?.abort(), { icon: "stop" }) : h("button", { type: "submit", class: "btn primary" }, "Run")),
    ),
    h("details", { class: "muted" }, h("summary", null, "Directory"), h("input", { type: "text", class: "mono", placeholder: "the workspace", "aria-label": "Directory", oninput: (/** @type {any} */ e) => place.set(e.target.value.trim()) })),
  );
}

/** @param {import("../parts/log.js").LogView} log @param {any} part */
function showAnswer(log, part) {
  if (part.node) log.append([`── ${part.node}`]);
  if (!part.ok) return log.append([`! ${part.error?.message ?? "failed"}`]);
  const { output = "", exitCode, signal: ended, durationMs, truncated, status, sessionId } = part.result ?? {};
  if (output) log.append(output.replace(/\n$/, "").split("\n"));
  if (truncated) log.append(["… the beginning is left out; Processes has the whole output"]);
  if (status === "running") log.append([`… goes on in the background as ${sessionId}`]);
  else if (exitCode !== 0) log.append([`exit ${exitCode ?? ended} after ${duration(durationMs ?? 0)}`]);
}

/** @param {() => NodeInfo[]} nodes */
function several(nodes) {
  const target = signal("*");
  const tags = derived(() => [...new Set(nodes().flatMap((node) => node.tags))].sort());
  return h(
    "div",
    { class: "screen node-screen" },
    h("p", { class: "back" }, h("a", { href: "/nodes" }, "All machines")),
    header("Run on several machines", null, "Each machine answers for itself. Machines that are offline are listed too."),
    h("div", { class: "toolbar" }, () => {
      const options = /** @type {[string, string][]} */ ([["*", "all machines"], ...tags().map((tag) => [`tag:${tag}`, `tag ${tag}`])]);
      return tabs("Machines", options, target, target.set);
    }),
    runView(target, "Commands on several machines"),
  );
}

/** @param {string} id */
function processes(id) {
  const list = new Resource(() => callJson("Process", { action: "list", node: id }), { events: ["process.ended"], everyMs: 4000 });
  const ended = new Resource(() => ask("nodes.processes", { id, limit: 20 }), { events: ["process.ended"] });
  const open = signal("");
  const command = h("input", { type: "text", class: "mono grow", placeholder: "Start a command in the background", "aria-label": "Start a command in the background", autocomplete: "off", spellcheck: "false" });
  const start = async () => {
    if (!command.value.trim()) return;
    try {
      const answer = await callJson("Bash", { command: command.value, background: true, node: id });
      command.value = "";
      await list.reload();
      open.set(answer.sessionId);
    } catch (error) {
      showError(error);
    }
  };
  return h(
    "div",
    null,
    h("form", { class: "row run-form", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void start()) }, command, h("button", { type: "submit", class: "btn" }, "Start")),
    list.view(() => [
      () => (list.value()?.sessions?.length ? null : empty("Nothing runs here", "Commands that you start in the background appear here, with their output.")),
      each(() => list.value()?.sessions ?? [], (/** @type {any} */ p) => p.sessionId, (p) => processRow(id, p, open, list), { props: { class: "list" } }),
    ]),
    h("section", { class: "section" }, h("h2", null, "Ended"), ended.view(() => h("div", null,
      () => (ended.value()?.processes.length ? null : h("p", { class: "muted" }, "No background command of this machine has ended yet.")),
      each(() => ended.value()?.processes ?? [], (/** @type {any} */ p) => p.eventId, (p) => h("div", { class: "list-row" }, h("div", { class: "list-main" }, h("div", { class: "list-title mono" }, h("span", null, p.peek().event.command)), h("div", { class: "list-sub" }, `${p.peek().event.principal} · ${p.peek().event.tail.trim().split("\n").pop() ?? ""}`)), h("div", { class: "list-side" }, exitBadge(p.peek().event), time(p.peek().event.endedAt))), { props: { class: "list" } }),
    ))),
  );
}

/** @param {{ exitCode: number | null, signal: string | null, timedOut?: boolean }} end */
const exitBadge = (end) => (end.exitCode === 0 ? badge("ok", "exit 0") : badge("error", end.timedOut ? "timed out" : end.exitCode === null ? String(end.signal ?? "ended") : `exit ${end.exitCode}`));

/** @param {string} id @param {Read<any>} process @param {import("../core/signal.js").Signal<string>} open @param {Resource<any>} list */
function processRow(id, process, open, list) {
  const session = process.peek().sessionId;
  const isOpen = () => open() === session;
  const running = () => process().running ?? process().status === "running";
  return h(
    "div",
    { class: "process" },
    h(
      "button",
      { type: "button", class: "list-row", "aria-expanded": () => String(isOpen()), onclick: () => open.set(isOpen() ? "" : session) },
      icon("terminal"),
      h("span", { class: "list-main" }, h("span", { class: "list-title mono" }, h("span", null, () => process().command ?? session)), h("span", { class: "list-sub block" }, session)),
      h("span", { class: "list-side" }, () => (running() ? badge("run", "running") : exitBadge(process())), () => time(process().startedAt)),
    ),
    () => (isOpen() ? untracked(() => followProcess(id, session, running, list)) : null),
  );
}

/** The whole output, followed while it grows; with input and stop. @param {string} node @param {string} sessionId @param {() => boolean} running @param {Resource<any>} list */
function followProcess(node, sessionId, running, list) {
  const log = logView(`Output of ${sessionId}`);
  const trouble = signal("");
  let off = false;
  onDispose(() => (off = true));
  const follow = async () => {
    let offset = 0;
    let partial = 0;
    while (!off) {
      const page = await callJson("Process", { action: "log", sessionId, offset, limit: 2000, node });
      if (off) return;
      log.replaceEnd(partial, page.lines);
      partial = 0;
      if (page.nextOffset !== undefined && page.nextOffset !== null) {
        offset = page.nextOffset;
        continue;
      }
      // The last line may still grow, so it is read again.
      partial = page.lines.length ? 1 : 0;
      offset = Math.max(0, page.offset + page.lines.length - partial);
      const state = await callJson("Process", { action: "poll", sessionId, waitMs: 10_000, node });
      if (!state.running) {
        const rest = await callJson("Process", { action: "log", sessionId, offset, limit: 5000, node });
        if (!off) log.replaceEnd(partial, rest.lines);
        list.soon();
        return;
      }
    }
  };
  follow().catch((error) => trouble.set(error.message));
  const input = h("input", { type: "text", class: "mono grow", "aria-label": "Input", placeholder: "Input for the command", autocomplete: "off" });
  const act = (/** @type {any} */ params) => callJson("Process", { sessionId, node, ...params }).then(() => list.soon());
  return h(
    "div",
    { class: "process-open" },
    log.element,
    () => (trouble() ? h("p", { class: "field-problem" }, trouble()) : null),
    () =>
      running()
        ? h(
            "form",
            { class: "row run-form", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void act({ action: "submit", data: input.value }).then(() => (input.value = ""), showError)) },
            input,
            h("button", { type: "submit", class: "btn" }, "Send"),
            button("Close input", () => act({ action: "close" })),
            button("Stop", () => act({ action: "kill" }), { kind: "danger" }),
          )
        : null,
  );
}

/** @param {string} id */
function nodeLog(id) {
  const log = logView(`Log of ${id}`);
  const trouble = signal("");
  /** @type {string[]} */
  let shown = [];
  const read = async () => {
    try {
      const { lines } = await callJson("gsv__LogsGet", { nodeId: id, lines: 500 });
      const last = shown[shown.length - 1];
      const at = last === undefined ? -1 : lines.lastIndexOf(last);
      if (at < 0) log.clear();
      log.append(lines.slice(at + 1));
      shown = lines;
      trouble.set("");
    } catch (error) {
      trouble.set(/** @type {Error} */ (error).message);
    }
  };
  watch(() => {
    if (wire.state() === "online") untracked(() => void read());
  });
  const timer = setInterval(() => document.visibilityState === "visible" && wire.state.peek() === "online" && read(), 3000);
  onDispose(() => clearInterval(timer));
  return h("div", null, () => (trouble() ? problem(new Error(trouble()), read) : null), log.element);
}

/** @param {() => NodeInfo | null} node */
function nodeTools(node) {
  return h("div", { class: "list" }, () =>
    Object.entries(node()?.toolCapabilities ?? {}).map(([tool, capabilities]) => h("a", { class: "list-row", href: path(["tools", `${node()?.id}__${tool}`]) }, icon("tools"), h("span", { class: "list-main" }, h("span", { class: "list-title mono" }, h("span", null, tool)), h("span", { class: "list-sub block" }, capabilities.join(", "))), icon("right"))),
  );
}

/** @param {string} id @param {() => NodeInfo | null} node @param {Resource<any>} list */
function about(id, node, list) {
  const own = id === "local";
  const changed = (/** @type {string} */ what) => {
    say(what);
    return list.reload();
  };
  const editTags = () =>
    dialog(`Tags of ${id}`, (close) => {
      const input = h("input", { type: "text", value: node()?.tags.join(" ") ?? "" });
      const save = () => ask("nodes.tag", { id, tags: input.value.split(/[\s,]+/).filter(Boolean) }).then(() => (close(), changed("Tags saved")));
      return h("form", { onsubmit: (/** @type {Event} */ e) => (e.preventDefault(), void save().catch(showError)) }, field("Tags", input, "Words, separated by spaces. A call to tag:NAME reaches all machines with it."), h("div", { class: "form-foot" }, h("button", { type: "submit", class: "btn primary" }, "Save")));
    });
  const rename = () =>
    dialog(`Rename ${id}`, (close) => {
      const input = h("input", { type: "text", value: id });
      const save = async () => {
        const answer = await ask("nodes.rename", { id, newId: input.value.trim() });
        close();
        if (answer.rules.length) say(`These policy rules name the old id: ${answer.rules.join(", ")}`, "error");
        await changed("Renamed");
        go(path(["nodes", answer.id], { view: "about" }));
      };
      return h("form", { onsubmit: (/** @type {Event} */ e) => (e.preventDefault(), void save().catch(showError)) }, field("New id", input, "The machine reconnects under it."), h("div", { class: "form-foot" }, h("button", { type: "submit", class: "btn primary" }, "Rename")));
    });
  return h("div", null, () => {
    const info = node();
    if (!info) return null;
    const fact = (/** @type {string} */ name, /** @type {any} */ value) => h("div", null, h("dt", null, name), h("dd", null, value));
    return [
      h("dl", { class: "facts card pad" }, fact("State", stateWord(info)), fact("Platform", info.clientPlatform ?? "unknown"), fact("Version", info.clientVersion ?? "unknown"), fact("Tags", info.tags.length ? info.tags.join(", ") : "none"), fact("First seen", exactTime(info.firstSeen) || "never"), fact("Last seen", time(info.lastSeen)), fact("Latency", latency(info) || "unknown"), fact("Running calls", number(info.inFlight)), fact("Capabilities", info.hostCapabilities.join(", "))),
      h(
        "div",
        { class: "row section" },
        own ? null : button("Edit tags", editTags),
        own ? null : button("Rename", rename),
        own ? null : button("New token", () => renew(id), { icon: "key" }),
        own ? null : button("Revoke", async () => (await confirmed(`Revoke ${id}?`, "Its token no longer works, and its connections are closed at once.", "Revoke")) && ask("nodes.revoke", { id }).then(() => changed("Revoked")), { kind: "danger" }),
        own ? null : button("Forget", async () => (await confirmed(`Forget ${id}?`, "The machine and its records are removed.", "Forget")) && ask("nodes.forget", { id }).then(() => (go("/nodes"), changed("Forgotten"))), { kind: "danger" }),
      ),
    ];
  });
}

/** @param {string} id */
async function renew(id) {
  if (!(await confirmed(`New token for ${id}?`, "The old token no longer works, and the machine has to be started with the new one.", "Make a new token"))) return;
  showInvitation(await ask("nodes.renew", { id }));
}

/** @param {{ id: string, token: string, publicUrl?: string | null }} invitation */
function showInvitation(invitation) {
  const url = invitation.publicUrl ?? location.origin;
  const command = `GANTRY_TOKEN=${shellQuote(invitation.token)} gantry node --gateway ${shellQuote(url)} --id ${shellQuote(invitation.id)}`;
  void dialog(`Connect ${invitation.id}`, () => [h("p", { class: "dialog-text" }, "Run this on the machine. The token is shown only now."), h("pre", { class: "wrap plain", tabindex: "0" }, command), h("div", { class: "dialog-actions" }, button("Copy", () => navigator.clipboard.writeText(command).then(() => say("Copied")), { icon: "copy", kind: "primary" }))]);
}

/** @param {Resource<any>} list */
function addNode(list) {
  return dialog("Add a machine", (close) => {
    const id = h("input", { type: "text", autocomplete: "off", autofocus: true, pattern: "[a-z0-9][a-z0-9-]{0,31}", required: true });
    const tags = h("input", { type: "text", autocomplete: "off" });
    const refused = signal("");
    const add = async () => {
      try {
        const invitation = await ask("nodes.add", { id: id.value.trim(), tags: tags.value.split(/[\s,]+/).filter(Boolean) });
        close();
        void list.reload();
        showInvitation(invitation);
      } catch (error) {
        refused.set(/** @type {Error} */ (error).message);
      }
    };
    return h(
      "form",
      { onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void add()) },
      field("Name", id, "Lower-case letters, digits and hyphens, such as laptop.", refused),
      field("Tags (optional)", tags, "Words, separated by spaces."),
      h("div", { class: "form-foot" }, button("Cancel", () => close()), h("button", { type: "submit", class: "btn primary" }, "Add")),
    );
  });
}

