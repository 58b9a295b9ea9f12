// Keyboard shortcuts of the page. Single letters count only outside of text fields.

/** @typedef {{ keys: string, label: string, run: () => void }} Shortcut */

/** @type {Shortcut[]} */
export const shortcuts = [];

/** @param {Shortcut} shortcut @returns {() => void} */
export function addShortcut(shortcut) {
  shortcuts.push(shortcut);
  return () => {
    const at = shortcuts.indexOf(shortcut);
    if (at >= 0) shortcuts.splice(at, 1);
  };
}

/** @param {Event} event */
function inText(event) {
  const target = event.target;
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function startKeys() {
  let prefix = "";
  let prefixAt = 0;
  addEventListener("keydown", (event) => {
    if (event.isComposing || event.keyCode === 229 || event.defaultPrevented) return;
    const mod = event.ctrlKey || event.metaKey;
    let keys = mod ? `mod+${event.key.toLowerCase()}` : event.key;
    if (!mod && (inText(event) || event.altKey || document.querySelector("dialog[open]"))) return;
    if (!mod && prefix && event.timeStamp - prefixAt < 1200) keys = `${prefix} ${event.key}`;
    prefix = "";
    const found = shortcuts.find((shortcut) => shortcut.keys === keys);
    if (found) {
      event.preventDefault();
      found.run();
    } else if (keys === "g") {
      prefix = "g";
      prefixAt = event.timeStamp;
    }
  });
}
