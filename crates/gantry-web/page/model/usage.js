// Sums of usage. Totals and rows come from one answer, so they always agree.

/** @import { ModelPrice, UsageRow, UsageSum } from "../../tests/api.d.ts" */
/** @import { RunUsage } from "./fold.js" */
/** @typedef {{ key: string, cost: number, tokens: number, requests: number, unpriced: number }} Group */

/** @param {UsageSum} row */
export const tokensOf = (row) => row.inputTokens + row.outputTokens + row.cacheReadTokens + row.cacheWriteTokens;

/** Groups the rows, the most expensive first. @param {readonly UsageRow[]} rows @param {(row: UsageRow) => string} key @returns {Group[]} */
export function groupUsage(rows, key) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const row of rows) {
    const id = key(row);
    let group = groups.get(id);
    if (!group) groups.set(id, (group = { key: id, cost: 0, tokens: 0, requests: 0, unpriced: 0 }));
    group.cost += row.costUsd;
    group.tokens += tokensOf(row);
    group.requests += row.requests;
    group.unpriced += row.unpriced;
  }
  return [...groups.values()].sort((a, b) => b.cost - a.cost || b.tokens - a.tokens);
}

/** Each day of the span, also those without usage. @param {string} from @param {string} to */
export function daysOf(from, to) {
  /** @type {string[]} */
  const days = [];
  for (let at = Date.parse(`${from}T00:00:00Z`); at <= Date.parse(`${to}T00:00:00Z`) && days.length < 400; at += 86_400_000) days.push(new Date(at).toISOString().slice(0, 10));
  return days;
}

/** The tokens of a run, and their price as of today. The price is null if one of its models has none. @param {RunUsage} run @param {(model: string) => ModelPrice | null | undefined} priceOf */
export function sumOfRun(run, priceOf) {
  let [input, output, cached] = [0, 0, 0];
  /** @type {number | null} */
  let usd = 0;
  for (const [model, tokens] of Object.entries(run.models)) {
    input += tokens.input + tokens.cacheRead + tokens.cacheWrite;
    output += tokens.output;
    cached += tokens.cacheRead;
    const price = priceOf(model);
    if (!price) usd = null;
    else if (usd !== null) usd += (tokens.input * price.input + tokens.output * price.output + tokens.cacheRead * price.cacheRead + tokens.cacheWrite * price.cacheWrite) / 1e6;
  }
  return { input, output, cached, usd };
}
