// Places the steps of a pipeline: each in the column after its last source, in the order that crosses few lines.

/** @typedef {{ id: string, from: string[] }} Step */
/** @typedef {{ id: string, column: number, row: number }} Place */

/** @param {readonly Step[]} steps @returns {Place[]} */
export function layers(steps) {
  const byId = new Map(steps.map((step) => [step.id, step]));
  /** @type {Map<string, number>} */
  const column = new Map();
  /** @param {string} id @param {Set<string>} above @returns {number} */
  const depth = (id, above) => {
    const known = column.get(id);
    if (known !== undefined) return known;
    // A circle is refused by the gateway; here it must only not hang.
    if (above.has(id)) return 0;
    above.add(id);
    const sources = (byId.get(id)?.from ?? []).filter((source) => byId.has(source));
    const value = sources.length ? Math.max(...sources.map((source) => depth(source, above))) + 1 : 0;
    above.delete(id);
    column.set(id, value);
    return value;
  };
  for (const step of steps) depth(step.id, new Set());
  /** @type {string[][]} */
  const columns = [];
  for (const step of steps) (columns[column.get(step.id) ?? 0] ??= []).push(step.id);
  /** @type {Map<string, number>} */
  const row = new Map();
  columns.forEach((ids) => {
    const middle = (/** @type {string} */ id) => {
      const rows = (byId.get(id)?.from ?? []).map((source) => row.get(source)).filter((value) => value !== undefined);
      return rows.length ? rows.reduce((sum, value) => sum + value, 0) / rows.length : ids.indexOf(id);
    };
    const ordered = [...ids].sort((a, b) => middle(a) - middle(b));
    ordered.forEach((id, index) => row.set(id, index));
  });
  return steps.map((step) => ({ id: step.id, column: column.get(step.id) ?? 0, row: row.get(step.id) ?? 0 }));
}
