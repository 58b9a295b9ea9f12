// What the models cost: by day, agent, model and session, from one answer of the gateway.

import { h } from "../core/dom.js";
import { money, number, short } from "../core/format.js";
import { path, route, setQuery } from "../core/route.js";
import { derived, untracked } from "../core/signal.js";
import { daysOf, groupUsage, tokensOf } from "../model/usage.js";
import { dayChart } from "../parts/chart.js";
import { Resource, ask, empty, header, tabs } from "../parts/ui.js";
import { shortKey } from "./chat.js";

/** @import { UsageRow } from "../../tests/api.d.ts" */

const BY = /** @type {Record<string, (row: UsageRow) => string>} */ ({ model: (row) => row.model, agent: (row) => row.agent, session: (row) => row.sessionKey });

export default function Usage() {
  const days = derived(() => Number(route().query.get("days") ?? 30));
  const by = derived(() => (route().query.get("by") ?? "model") in BY ? (route().query.get("by") ?? "model") : "model");
  const unit = derived(() => route().query.get("unit") ?? "cost");
  const report = new Resource(() => ask("usage.report", { from: new Date(Date.now() - (days.peek() - 1) * 86_400_000).toISOString().slice(0, 10) }), { everyMs: 30_000 });
  return h(
    "div",
    { class: "screen" },
    header("Usage", tabs("Span", [["7", "7 days"], ["30", "30 days"], ["90", "90 days"]], () => String(days()), (value) => (setQuery({ days: value === "30" ? null : value }), report.reload())), () => (report.value() ? `Days are in ${report.value()?.timezone}` : "")),
    report.view(() => () => {
      const value = report.value();
      const group = BY[by()];
      const inCost = unit() === "cost";
      return untracked(() => drawReport(value, group, inCost, by.peek()));
    }),
  );
}

/** @param {any} report @param {(row: UsageRow) => string} group @param {boolean} inCost @param {string} by */
function drawReport(report, group, inCost, by) {
  const { total } = report;
  const rows = /** @type {UsageRow[]} */ (report.rows);
  const groups = groupUsage(rows, group);
  const names = groups.slice(0, 6).map(({ key }) => key);
  const rest = groups.length > 6;
  /** @type {Map<string, number>} */
  const cells = new Map();
  for (const row of rows) {
    const name = names.includes(group(row)) ? group(row) : "others";
    const key = `${row.day}\n${name}`;
    cells.set(key, (cells.get(key) ?? 0) + (inCost ? row.costUsd : tokensOf(row)));
  }
  const stat = (/** @type {string} */ label, /** @type {string} */ value) => h("div", { class: "card stat" }, h("div", { class: "label" }, label), h("div", { class: "value" }, value));
  return [
    h("div", { class: "cards" }, stat("Cost", money(total.costUsd)), stat("Requests", number(total.requests)), stat("Tokens in", short(total.inputTokens + total.cacheReadTokens + total.cacheWriteTokens)), stat("Tokens out", short(total.outputTokens))),
    total.unpriced ? h("p", { class: "hint section" }, `${number(total.unpriced)} answers have no known price. They are not in the cost.`) : null,
    h("div", { class: "toolbar section" }, tabs("By", [["model", "By model"], ["agent", "By agent"], ["session", "By session"]], () => by, (value) => setQuery({ by: value === "model" ? null : value })), tabs("Unit", [["cost", "Cost"], ["tokens", "Tokens"]], () => (inCost ? "cost" : "tokens"), (value) => setQuery({ unit: value === "cost" ? null : value }))),
    rows.length ? h("div", { class: "card pad" }, dayChart(daysOf(report.from, report.to), [...names, ...(rest ? ["others"] : [])], (day, name) => cells.get(`${day}\n${name}`) ?? 0, inCost ? money : short, inCost ? "Cost by day" : "Tokens by day")) : empty("No usage in this span", "The answers of models are counted here, with their cost."),
    rows.length
      ? h("div", { class: "table-card section", tabindex: "0", role: "region", "aria-label": "Sums" }, h("table", { class: "table" }, h("thead", null, h("tr", null, h("th", null, by), h("th", { class: "num" }, "Requests"), h("th", { class: "num" }, "Tokens"), h("th", { class: "num" }, "Cost"))), h("tbody", null,
          groups.map((one) => h("tr", null, h("td", null, by === "session" ? h("a", { href: path(["chat", one.key]) }, shortKey(one.key)) : one.key), h("td", { class: "num" }, number(one.requests)), h("td", { class: "num" }, number(one.tokens)), h("td", { class: "num" }, one.unpriced === one.requests && one.requests ? "unknown" : money(one.cost)))),
          h("tr", { class: "total" }, h("td", null, "Total"), h("td", { class: "num" }, number(total.requests)), h("td", { class: "num" }, number(tokensOf(total))), h("td", { class: "num" }, money(total.costUsd))))))
      : null,
    report.budgets.length ? h("section", { class: "section" }, h("h2", null, "Budgets"), h("ul", { class: "plain-list" }, report.budgets.map((/** @type {string} */ budget) => h("li", null, budget)))) : null,
  ];
}
