// The same call in other words: for a shell with `gantry`, and for curl.

/** @param {string} text */
export const shellQuote = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** @param {string} tool @param {unknown} input @param {string} [agent] */
export function cliCall(tool, input, agent) {
  const json = JSON.stringify(input);
  return `gantry call ${agent ? `--agent ${shellQuote(agent)} ` : ""}${shellQuote(tool)}${json === "{}" ? "" : ` ${shellQuote(json)}`}`;
}

/** @param {string} origin @param {string} tool @param {unknown} input @param {string} [agent] */
export function curlCall(origin, tool, input, agent) {
  const header = agent ? ` \\\n  -H ${shellQuote(`Gantry-Agent: ${agent}`)}` : "";
  return `curl -H "Authorization: Bearer $GANTRY_TOKEN"${header} \\\n  ${origin}/v1/tools/${encodeURIComponent(tool)} -d ${shellQuote(JSON.stringify(input))}`;
}
