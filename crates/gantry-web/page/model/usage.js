// Sums of usage. Totals and rows come from one answer, so they always agree.

/** @import { UsageRow, UsageSum } from "../../tests/api.d.ts" */
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
