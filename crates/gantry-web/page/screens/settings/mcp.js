// Servers of the Model Context Protocol: what they offer, and what changed since a person accepted it.

import { each, h } from "../../core/dom.js";
import { Resource, ask, badge, button, dialog, empty, header, icon, say } from "../../parts/ui.js";

/** @import { McpServer, McpTool } from "../../../tests/api.d.ts" */

const TONES = /** @type {Record<string, string>} */ ({ ready: "ok", new: "warn", changed: "warn", unusable: "error", gone: "error", notChosen: "" });
const WORDS = /** @type {Record<string, string>} */ ({ new: "new, waits for you", changed: "changed, waits for you", notChosen: "not chosen" });

/** @param {McpTool} tool */
const waits = (tool) => tool.state === "new" || tool.state === "changed";

export function mcpServers() {
  const list = new Resource(() => ask("mcp.servers"), { events: ["tools.changed"], everyMs: 15_000 });
  return [
    header("MCP servers", null, "Agents and clients are offered only what you accepted."),
    list.view(() => [
      () => list.value()?.problems.map((/** @type {string} */ problem) => h("p", { class: "not-shown" }, icon("warn"), problem)),
      () => (list.value()?.servers.length ? null : empty("No MCP servers", "Add one under mcpServers in the configuration.")),
      each(() => /** @type {McpServer[]} */ (list.value()?.servers ?? []), (server) => server.name, (server) =>
        h(
          "section",
          { class: "section" },
          h("div", { class: "toolbar" }, h("h2", null, server.peek().name), () => (server().problem ? badge("error", "not reachable") : null), () => (server().tools.some(waits) ? button("Review the changes", () => review(server.peek().name, list), { kind: "primary", small: true }) : null)),
          () => (server().problem ? h("p", { class: "field-problem" }, server().problem) : null),
          () => (server().confinement ? h("p", { class: "hint" }, server().confinement) : null),
          h("div", { class: "list" }, () => server().tools.map((tool) => h("div", { class: "list-row" }, icon("tools"), h("div", { class: "list-main list-title mono" }, h("span", null, tool.name)), badge(TONES[tool.state] ?? "", WORDS[tool.state] ?? tool.state), tool.reason ? h("span", { class: "muted" }, tool.reason) : null))),
        ),
      ),
    ]),
  ];
}

/** Shows what would be accepted, as the server offers it now. @param {string} name @param {Resource<any>} list */
async function review(name, list) {
  const reviewed = await ask("mcp.review", { name });
  const accept = async (/** @type {() => void} */ close, /** @type {string} */ tool = "") => {
    const answer = await ask("mcp.accept", { name, seen: reviewed.seen, ...(tool ? { tool } : {}) });
    say(`Accepted: ${answer.accepted.join(", ") || "nothing"}`);
    close();
    await list.reload();
  };
  void dialog(`Changes of ${name}`, (close) => [
    h("div", { class: "dialog-text detail" }, reviewed.tools.filter(waits).map((/** @type {McpTool} */ tool) => h("section", null, h("div", { class: "toolbar" }, h("h3", { class: "mono" }, tool.name), badge("warn", tool.state), button("Accept this one", () => accept(close, tool.name), { small: true })), h("pre", { class: "plain wrap", tabindex: "0" }, tool.difference ?? "")))),
    h("div", { class: "dialog-actions" }, button("Cancel", () => close(), { extra: { autofocus: true } }), button("Accept all", () => accept(close), { kind: "primary" })),
  ], { wide: true });
}
