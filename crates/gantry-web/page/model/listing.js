// Reads what `pwd; ls -lAp` prints, and joins paths.

/** @typedef {{ name: string, directory: boolean, size: number | null }} Entry */

/** @param {string} output @returns {{ dir: string, entries: Entry[] }} */
export function parseListing(output) {
  const [dir = "", ...lines] = output.split("\n");
  /** @type {Entry[]} */
  const entries = [];
  for (const line of lines) {
    // Rights, links, owner, group, size (two numbers for a device), month, day, time or year, name.
    const match = /^([bcdlps-])\S+\s+\d+\s+\S+\s+\S+\s+(\d+)(?:,\s*\d+)?\s+\S+\s+\S+\s+\S+ (.+)$/.exec(line);
    if (!match) continue;
    const [, kind, size, shown] = match;
    const linked = kind === "l" ? shown.replace(/ -> .*$/, "") : shown;
    const directory = kind === "d" || linked.endsWith("/");
    entries.push({ name: linked.replace(/\/$/, ""), directory, size: directory ? null : Number(size) });
  }
  return { dir: dir.trim(), entries };
}

/** @param {string} dir @param {string} name */
export const joinPath = (dir, name) => (!dir || dir === "." ? name : `${dir.replace(/\/$/, "")}/${name}`);

/** @param {string} path */
export function parentPath(path) {
  const cut = path.replace(/\/$/, "").lastIndexOf("/");
  return cut < 0 ? "" : cut === 0 ? "/" : path.slice(0, cut);
}
