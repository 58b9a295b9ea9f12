// Finds text in what is shown. Hits are marked by ranges, so the elements stay as they are.

/** @param {Element} root @param {string} wanted @param {number} [most] @returns {Range[]} */
export function findText(root, wanted, most = 2000) {
  /** @type {Range[]} */
  const found = [];
  const lower = wanted.toLowerCase();
  if (!lower) return found;
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node && found.length < most; node = walker.nextNode()) {
    const text = (node.textContent ?? "").toLowerCase();
    for (let at = text.indexOf(lower); at >= 0 && found.length < most; at = text.indexOf(lower, at + lower.length)) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, Math.min(at + lower.length, node.textContent?.length ?? 0));
      found.push(range);
    }
  }
  return found;
}

/** Marks the hits. @param {readonly Range[]} ranges */
export function markFound(ranges) {
  if (ranges.length) CSS.highlights?.set("found", new Highlight(...ranges));
  else CSS.highlights?.delete("found");
}
