// Builds elements. Text is always text: nothing here parses HTML.

import { onDispose, scope, signal, untracked, watch } from "./signal.js";

/** @import { Read, Signal } from "./signal.js" */
/** @typedef {Node | string | number | boolean | null | undefined | (() => any) | any[]} Child */
/** @typedef {Record<string, unknown>} Props */

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "g", "rect", "circle", "line", "text", "polyline", "title", "defs", "marker"]);
const AS_PROPERTY = new Set(["value", "checked", "disabled", "indeterminate", "selected", "open", "hidden", "inert", "readOnly"]);

/**
 * Makes an element. A property `onclick` is a listener, a function is watched, `ref` gets the element.
 * @template {string} K
 * @param {K} tag
 * @param {Props | null} [props]
 * @param {...Child} children
 * @returns {K extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[K] : HTMLElement}
 */
export function h(tag, props, ...children) {
  const element = /** @type {HTMLElement} */ (
    SVG_TAGS.has(tag) && tag !== "title" ? document.createElementNS(SVG, tag) : document.createElement(tag)
  );
  // Options come before the value of their select.
  append(element, children);
  for (const name in props) setProp(element, name, props[name]);
  return /** @type {any} */ (element);
}

/** @param {HTMLElement} element @param {string} name @param {unknown} value */
function setProp(element, name, value) {
  if (name === "ref") return /** @type {(e: HTMLElement) => void} */ (value)(element);
  if (name.startsWith("on") && typeof value === "function") {
    return element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
  }
  if (typeof value === "function") {
    watch(() => applyProp(element, name, /** @type {() => unknown} */ (value)()));
    return;
  }
  applyProp(element, name, value);
}

/** @param {HTMLElement} element @param {string} name @param {unknown} value */
function applyProp(element, name, value) {
  if (name === "style") {
    // A `style` attribute is blocked by the CSP; properties of the style object are not.
    for (const [key, part] of Object.entries(/** @type {Record<string, string | null>} */ (value ?? {}))) {
      if (part === null) element.style.removeProperty(key);
      else element.style.setProperty(key, part);
    }
  } else if (AS_PROPERTY.has(name) && name in element) {
    const target = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (element));
    if (target[name] !== value) target[name] = value ?? "";
  } else if (value === false || value === null || value === undefined) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** @param {Node} parent @param {Child | Child[]} child */
export function append(parent, child) {
  if (child === null || child === undefined || typeof child === "boolean") return;
  if (Array.isArray(child)) for (const each of child) append(parent, each);
  else if (child instanceof Node) parent.appendChild(child);
  else if (typeof child === "function") appendWatched(parent, child);
  else parent.appendChild(document.createTextNode(String(child)));
}

/** A part of the page that is built again when what it read has changed. @param {Node} parent @param {() => Child} build */
function appendWatched(parent, build) {
  const start = document.createComment("");
  const end = document.createComment("");
  parent.appendChild(start);
  parent.appendChild(end);
  watch(() => {
    const made = build();
    const first = start.nextSibling;
    if (first instanceof Text && first.nextSibling === end && (typeof made === "string" || typeof made === "number")) {
      first.data = String(made);
      return;
    }
    while (start.nextSibling && start.nextSibling !== end) start.nextSibling.remove();
    const fragment = document.createDocumentFragment();
    append(fragment, made);
    end.parentNode?.insertBefore(fragment, end);
  });
}

/**
 * A list with one element for each key. An element stays when its item changes place or content.
 * @template T
 * @param {() => readonly T[]} items
 * @param {(item: T) => string | number} key
 * @param {(item: Read<T>, key: string | number) => HTMLElement | SVGElement} render
 * @param {{ tag?: string, props?: Props, onchange?: (added: number, removed: number) => void }} [options]
 * @returns {HTMLElement}
 */
export function each(items, key, render, options = {}) {
  const parent = h(options.tag ?? "div", options.props ?? null);
  /** @type {Map<string | number, { item: Signal<T>, element: Element, dispose: () => void }>} */
  let rows = new Map();
  watch(() => {
    const list = items();
    untracked(() => {
      /** @type {typeof rows} */
      const next = new Map();
      let added = 0;
      for (const item of list) {
        const id = key(item);
        if (next.has(id)) continue;
        const row = rows.get(id);
        if (row) {
          row.item.set(item);
          next.set(id, row);
          continue;
        }
        added++;
        const value = signal(item);
        const [element, dispose] = scope(() => render(value, id));
        next.set(id, { item: value, element, dispose });
      }
      let removed = 0;
      for (const [id, row] of rows) {
        if (next.has(id)) continue;
        removed++;
        row.dispose();
        row.element.remove();
      }
      /** @type {ChildNode | null} */
      let place = parent.firstChild;
      for (const { element } of next.values()) {
        if (element === place) place = place.nextSibling;
        else parent.insertBefore(element, place);
      }
      rows = next;
      if (added || removed) options.onchange?.(added, removed);
    });
  });
  onDispose(() => {
    for (const row of rows.values()) row.dispose();
  });
  return parent;
}

/** Replaces the children of an element by what `build` makes. Returns a function that disposes it. @param {Element} parent @param {() => Child} build */
export function mount(parent, build) {
  parent.replaceChildren();
  const [, dispose] = scope(() => append(parent, build()));
  return () => {
    dispose();
    parent.replaceChildren();
  };
}
