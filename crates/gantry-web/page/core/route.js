// Every state of the page has a URL. A route is the parts of the path and the parameters of the query.

import { signal } from "./signal.js";

/** @typedef {{ screen: string, parts: string[], query: URLSearchParams }} Route */

/** @param {string} pathname @param {string} search @returns {Route} */
export function parseRoute(pathname, search) {
  const parts = pathname.split("/").filter(Boolean).map(decode);
  const [screen = "chat", ...rest] = parts;
  return { screen, parts: rest, query: new URLSearchParams(search) };
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * A path of this page. Parts are encoded; parameters without a value are left out.
 * @param {string[]} parts
 * @param {Record<string, string | null | undefined>} [query]
 */
export function path(parts, query = {}) {
  const given = Object.entries(query).filter((pair) => pair[1]);
  const search = new URLSearchParams(/** @type {[string, string][]} */ (given)).toString();
  return "/" + parts.map(encodeURIComponent).join("/") + (search ? "?" + search : "");
}

export const route = signal(parseRoute("/", ""));

export function startRouting() {
  const read = () => route.set(parseRoute(location.pathname, location.search));
  addEventListener("popstate", read);
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || event.defaultPrevented || event.button !== 0 || link.target || link.hasAttribute("download")) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.origin !== location.origin) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
  read();
}

/** @param {string} to */
export function go(to) {
  if (to !== location.pathname + location.search) history.pushState(null, "", to);
  route.set(parseRoute(location.pathname, location.search));
}

/** Changes parameters of the query in place, without a new entry in the history. @param {Record<string, string | null>} changes */
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const search = query.toString();
  history.replaceState(null, "", location.pathname + (search ? "?" + search : ""));
  route.set(parseRoute(location.pathname, location.search));
}
