// The agents, and the models that they can use.

import { h } from "../../core/dom.js";
import { short } from "../../core/format.js";
import { path } from "../../core/route.js";
import { Resource, ask, badge, button, dialog, empty, header, icon } from "../../parts/ui.js";

/** @import { AgentInfo, ModelReport } from "../../../tests/api.d.ts" */

const AUTONOMY = /** @type {Record<string, string>} */ ({ supervised: "asks before each change", guided: "asks before risky calls", autonomous: "does not ask; what needs a yes is denied" });

export function agents() {
  const list = new Resource(() => ask("agents.list"));
  const status = new Resource(() => ask("gateway.status"));
  return [
    header("Agents and models"),
    list.redraw((value) =>
      h("div", { class: "list" }, value.agents.map((/** @type {AgentInfo} */ agent) => h("div", { class: "list-row" }, icon("user"), h("div", { class: "list-main" }, h("div", { class: "list-title" }, h("span", null, agent.id), badge(agent.autonomy === "autonomous" ? "warn" : "", agent.autonomy)), h("div", { class: "list-sub" }, `${agent.model ?? "the balanced model"} · ${AUTONOMY[agent.autonomy] ?? ""} · ${agent.workspace}`)), h("a", { class: "btn small", href: path(["chat", agent.sessionKey]) }, "Chat")))),
    ),
    h("section", { class: "section" }, h("h2", null, "Models"), status.redraw((value) => {
      const models = /** @type {ModelReport[]} */ (value.models?.models ?? []);
      return [
        (value.models?.warnings ?? []).map((/** @type {string} */ warning) => h("p", { class: "not-shown" }, icon("warn"), warning)),
        models.length
          ? h("div", { class: "table-card", tabindex: "0", role: "region", "aria-label": "Models" }, h("table", { class: "table" }, h("thead", null, h("tr", null, h("th", null, "Model"), h("th", null, "Used as"), h("th", { class: "num" }, "Window"), h("th", { class: "num" }, "In"), h("th", { class: "num" }, "Out"), h("th", null, "State"))), h("tbody", null, models.map((model) => h("tr", null, h("td", null, model.name), h("td", null, model.is.map((tier) => badge("info", tier))), h("td", { class: "num" }, short(model.contextWindow)), h("td", { class: "num" }, model.price ? `$${model.price.input}` : "?"), h("td", { class: "num" }, model.price ? `$${model.price.output}` : "?"), h("td", null, model.hasKey || model.found ? badge("ok", "ready") : badge("warn", "no key")))))))
          : empty("No models", "Set a key in the environment, or add a server: gantry config set models.providers.lab.baseUrl URL"),
        models.length ? h("p", { class: "hint" }, "Prices are US dollars for a million tokens.") : null,
        (value.models?.budgets ?? []).length ? h("section", { class: "section" }, h("h2", null, "Budgets"), h("ul", null, value.models.budgets.map((/** @type {string} */ budget) => h("li", null, budget)))) : null,
        h("p", { class: "section" }, button("How to change this", () => dialog("Agents and models", () => h("div", { class: "dialog-text detail" }, h("p", null, "Agents and models are set in gantry.toml. The commands check what they write:"), h("pre", { class: "plain wrap" }, "gantry models set balanced lab/qwen3\ngantry config set agents.main.autonomy guided"))))),
      ];
    })),
  ];
}
