// All tools by toolset; one tool with its form, its result, and the same call for a shell and for curl.

import { each, h } from "../core/dom.js";
import { duration } from "../core/format.js";
import { path, route, setQuery } from "../core/route.js";
import { derived, signal, untracked } from "../core/signal.js";
import { cliCall, curlCall } from "../model/commands.js";
import { callTool } from "../parts/call.js";
import { longText } from "../parts/message.js";
import { schemaForm } from "../parts/schema-form.js";
import { Resource, ask, badge, button, copyButton, empty, header, problem, select, tabs } from "../parts/ui.js";

/** @import { ToolInfo } from "../../tests/api.d.ts" */

export default function Tools() {
  const list = new Resource(() => ask("tools.list", { follow: true }), { events: ["tools.changed"] });
  const chosen = derived(() => route().parts[0] ?? "");
  const query = derived(() => route().query.get("q") ?? "");
  const shown = () => {
    const wanted = query().toLowerCase();
    const all = /** @type {ToolInfo[]} */ (list.value()?.tools ?? []);
    const names = new Set(all.map((tool) => tool.name));
    // A tool of a machine is also the plain tool with a field for the machine: one of the two is enough here.
    const plain = (/** @type {string} */ name) => name.includes("__") && names.has(name.replace(/^[a-z0-9-]+__/, ""));
    return all.filter((tool) => (wanted ? true : !plain(tool.name))).filter((tool) => !wanted || `${tool.name} ${tool.toolset} ${tool.description}`.toLowerCase().includes(wanted));
  };
  const sets = derived(() => [...new Set(shown().map((tool) => tool.toolset))]);
  return h("div", { class: "split", "data-open": () => (chosen() ? "yes" : "no") },
    h(
      "div",
      { class: "split-list" },
      header("Tools"),
      h("div", { class: "toolbar" }, h("input", { type: "search", class: "search", placeholder: "Search tools", "aria-label": "Search tools", value: query.peek(), oninput: (/** @type {any} */ e) => setQuery({ q: e.target.value }) })),
      list.view(() => [
        () => (shown().length ? null : empty("No tool found", "Try another word.")),
        each(sets, (set) => set, (set) => {
          const name = set.peek();
          return h(
            "section",
            { class: "tool-set" },
            h("h2", { class: "rail-title" }, name),
            each(() => shown().filter((tool) => tool.toolset === name), (tool) => tool.name, (tool) =>
              h(
                "a",
                { class: "chat-link", href: () => path(["tools", tool().name], { q: query() }), "aria-current": () => (chosen() === tool().name ? "page" : null) },
                h("span", { class: "chat-link-title mono" }, () => tool().name),
                h("span", { class: "chat-link-sub ellipsis" }, () => tool().description),
              ),
            ),
          );
        }),
      ]),
    ),
    h("div", { class: "split-main" }, () => {
      const name = chosen();
      return name ? untracked(() => oneTool(name)) : empty("Choose a tool", "Each tool has a form made from its schema. A call here is the same as one of the command line or over HTTP, with the same policy.");
    }),
  );
}

/** @param {string} name */
function oneTool(name) {
  const tool = new Resource(() => ask("tools.get", { name }));
  const agents = new Resource(() => ask("agents.list"));
  return h("div", { class: "screen tool-screen" }, h("p", { class: "back" }, h("a", { href: "/tools" }, "All tools")), tool.view((info) => toolForm(info, agents)));
}

/** @param {ToolInfo} tool @param {Resource<any>} agents */
function toolForm(tool, agents) {
  const mode = signal("form");
  const input = signal(/** @type {any} */ ({}));
  const raw = signal("{}");
  const agent = signal("");
  const refused = signal(/** @type {string[]} */ ([]));
  const result = signal(/** @type {{ answer?: any, error?: any, ms: number, tool: string } | null} */ (null));
  const running = signal(/** @type {AbortController | null} */ (null));
  const progress = signal("");
  let form = schemaForm(tool.inputSchema);

  const read = () => {
    const value = mode.peek() === "form" ? form.read() : JSON.parse(raw.peek() || "{}");
    input.set(value);
    return value;
  };
  const change = (/** @type {string} */ to) => {
    refused.set([]);
    try {
      const value = read();
      if (to === "json") raw.set(JSON.stringify(value, null, 2));
      else form = schemaForm(tool.inputSchema, value);
      mode.set(to);
    } catch (error) {
      refused.set([/** @type {Error} */ (error).message]);
    }
  };
  const run = async () => {
    refused.set([]);
    /** @type {any} */
    let value;
    try {
      value = read();
    } catch (error) {
      refused.set([/** @type {Error} */ (error).message]);
      return;
    }
    const abort = new AbortController();
    running.set(abort);
    progress.set("");
    const began = performance.now();
    try {
      const answer = await callTool(tool.name, value, { agent: agent.peek() || undefined, signal: abort.signal, progress: (data) => progress.set(`${data.message} ${data.done}${data.total ? ` of ${data.total}` : ""}`) });
      result.set({ answer, ms: performance.now() - began, tool: tool.name });
    } catch (error) {
      const failure = /** @type {any} */ (error);
      if (failure.violations?.length) {
        refused.set(mode.peek() === "form" ? form.show(failure.violations) : failure.violations.map((/** @type {any} */ v) => `${v.path}: ${v.message}`));
        result.set(null);
      } else result.set({ error: failure, ms: performance.now() - began, tool: tool.name });
    } finally {
      running.set(null);
    }
  };

  return [
    h(
      "header",
      { class: "tool-head" },
      h("h1", { class: "mono" }, tool.name),
      h("p", { class: "row" }, badge("", tool.toolset), tool.readOnly ? badge("ok", "read-only") : null, tool.destructive ? badge("warn", "can change or delete") : null, tool.openWorld ? badge("", "reaches outside") : null, (tool.nodes ?? []).map((node) => h("span", { class: "machine" }, node))),
      h("p", null, tool.description),
      tool.notes ? h("p", { class: "muted plain" }, tool.notes) : null,
    ),
    h(
      "form",
      {
        class: "card pad",
        onsubmit: (/** @type {Event} */ event) => {
          event.preventDefault();
          void run();
        },
        oninput: () => {
          try {
            if (mode.peek() === "form") input.set(form.read());
            else input.set(JSON.parse(raw.peek()));
          } catch {
            // While a value is being written it need not be valid.
          }
        },
      },
      h("div", { class: "toolbar" }, tabs("Input as", [["form", "Form"], ["json", "JSON"]], mode, change), () =>
        (agents.value()?.agents.length ?? 0) > 0 ? select("Run as", [["", "as myself"], ...agents.value().agents.map((/** @type {any} */ a) => [a.id, `as agent ${a.id}`])], agent, agent.set) : null,
      ),
      () => (mode() === "form" ? form.element : h("textarea", { class: "mono", rows: "8", "aria-label": "Input as JSON", spellcheck: "false", value: raw.peek(), oninput: (/** @type {any} */ e) => raw.set(e.target.value) })),
      () => refused().map((text) => h("p", { class: "field-problem", role: "alert" }, text)),
      h("div", { class: "form-foot" }, () => (running() ? [h("span", { class: "muted", role: "status" }, () => progress() || "Running…"), button("Cancel", () => running.peek()?.abort())] : h("button", { type: "submit", class: "btn primary" }, "Run"))),
    ),
    () => {
      const shown = result();
      return shown ? resultCard(shown) : null;
    },
    h("section", { class: "section" }, h("h2", null, "The same call"), () => snippet("gantry", cliCall(tool.name, input(), agent())), () => snippet("curl", curlCall(location.origin, tool.name, input(), agent()))),
    h("section", { class: "section" }, h("details", null, h("summary", null, "Schema"), h("pre", { tabindex: "0" }, JSON.stringify(tool.inputSchema, null, 2)))),
  ];
}

/** @param {string} label @param {string} text */
const snippet = (label, text) => h("div", { class: "code snippet" }, h("div", { class: "code-head" }, h("span", null, label), copyButton(text)), h("pre", { class: "wrap plain", tabindex: "0" }, text));

/** @param {{ answer?: any, error?: any, ms: number, tool: string }} result */
export function resultCard({ answer, error, ms, tool }) {
  if (error) return h("section", { class: "section", "aria-label": "Result" }, problem(error));
  const view = signal("result");
  const value = answer.json?.ok === true && answer.json?.result ? answer.json.result : answer.json;
  const text = answer.text ?? (typeof value?.output === "string" ? value.output : typeof value?.content === "string" ? value.content : null);
  return h(
    "section",
    { class: "section", "aria-label": "Result" },
    h("div", { class: "toolbar" }, h("h2", null, answer.isError ? "The tool's error" : "Result"), answer.isError ? badge("error", "failed") : badge("ok", "done"), h("span", { class: "muted" }, duration(ms)), answer.tool !== tool ? badge("", answer.tool) : null,
      h("span", { class: "right" }), text !== null && answer.json ? tabs("Result as", [["result", "Text"], ["json", "JSON"]], view, view.set) : null),
    (answer.warnings ?? []).map((/** @type {string} */ warning) => h("p", { class: "not-shown" }, warning)),
    () => (view() === "result" && typeof value?.diff === "string" ? longText(value.diff) : view() === "result" && text !== null ? longText(text || "(no output)") : longText(JSON.stringify(answer.json ?? answer.text, null, 2))),
  );
}
