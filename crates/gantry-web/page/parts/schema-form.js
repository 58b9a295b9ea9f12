// A form for a JSON schema. A field that is not filled in is left out of the input, never sent as "" or null.
// What has no field of its own (a mixed or open type) is written as JSON.

import { h } from "../core/dom.js";
import { signal, untracked } from "../core/signal.js";
import { button, field, select } from "./ui.js";

/** @import { Signal } from "../core/signal.js" */
/** @typedef {any} Schema */
/** @typedef {{ element: HTMLElement, read: () => unknown }} Control A control answers `undefined` if it is not filled in. */
/** @typedef {{ root: Schema, problems: Signal<Map<string, string>>, depth: number }} Context */

const LONG = /^(content|text|command|message|code|script|prompt|task|description|patch|diff|body|data|query|oldString|newString|old_.*|new_.*)$/;

/** The schema without references and without the alternative null. @param {Schema} schema @param {Schema} root @returns {Schema} */
export function plainSchema(schema, root) {
  let now = schema ?? {};
  for (let step = 0; step < 20; step++) {
    if (typeof now.$ref === "string" && now.$ref.startsWith("#/")) {
      const { $ref, ...rest } = now;
      const target = $ref.slice(2).split("/").reduce((/** @type {any} */ part, /** @type {string} */ name) => part?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], root);
      now = { ...(target ?? {}), ...rest };
    } else if (Array.isArray(now.allOf) && now.allOf.length === 1) {
      const { allOf, ...rest } = now;
      now = { ...allOf[0], ...rest };
    } else if (Array.isArray(now.anyOf ?? now.oneOf)) {
      const { anyOf, oneOf, ...rest } = now;
      const options = (anyOf ?? oneOf).filter((/** @type {Schema} */ option) => option.type !== "null");
      if (options.length === 1) now = { ...options[0], ...rest };
      else return { ...rest, options };
    } else if (Array.isArray(now.type)) {
      const types = now.type.filter((/** @type {string} */ type) => type !== "null");
      if (types.length !== 1) return { ...now, type: undefined };
      now = { ...now, type: types[0] };
    } else if (Array.isArray(now.enum) && now.enum.includes(null)) {
      now = { ...now, enum: now.enum.filter((/** @type {any} */ value) => value !== null) };
    } else return now;
  }
  return now;
}

/** Paths of violations come in two spellings; both name the same field. @param {string} path */
export const fieldPath = (path) => "/" + path.replace(/^\$?[./]?/, "").replace(/\[(\d+)\]/g, "/$1").split(/[./]/).filter(Boolean).join("/");

/**
 * @param {Schema} schema @param {any} [initial]
 * @returns {{ element: HTMLElement, read: () => any, show: (violations: { path: string, message: string }[]) => string[] }}
 */
export function schemaForm(schema, initial = {}) {
  /** @type {Context} */
  const context = { root: schema, problems: signal(new Map()), depth: 0 };
  const control = objectControl(plainSchema(schema, schema), "", context, initial);
  const known = new Set([...paths(control.element)]);
  return {
    element: control.element,
    read: () => {
      context.problems.set(new Map());
      const value = control.read() ?? {};
      if (context.problems.peek().size) throw new Error("Some fields need another value");
      return value;
    },
    show: (violations) => {
      const found = new Map();
      const rest = [];
      for (const { path, message } of violations) {
        const at = fieldPath(path);
        if (known.has(at) || element(control.element, at)) found.set(at, message);
        else rest.push(path ? `${path}: ${message}` : message);
      }
      context.problems.set(found);
      return rest;
    },
  };
}

/** @param {HTMLElement} root */
function* paths(root) {
  for (const part of root.querySelectorAll("[data-path]")) yield /** @type {HTMLElement} */ (part).dataset.path ?? "";
}

/** @param {HTMLElement} root @param {string} path */
const element = (root, path) => [...root.querySelectorAll("[data-path]")].find((part) => /** @type {HTMLElement} */ (part).dataset.path === path);

/** @param {Schema} given @param {string} path @param {string} name @param {boolean} required @param {Context} context @param {any} initial @returns {Control} */
function control(given, path, name, required, context, initial) {
  const schema = plainSchema(given, context.root);
  const label = required ? name : `${name} (optional)`;
  const hint = hintOf(schema);
  const wrap = (/** @type {HTMLElement} */ input) => {
    const wrapped = field(label, input, hint, () => context.problems().get(path) ?? "");
    wrapped.dataset.path = path;
    return wrapped;
  };
  if (context.depth > 6) return jsonControl(wrap, path, context, initial);
  if ("const" in schema) return { element: wrap(h("input", { value: String(schema.const), readOnly: true })), read: () => schema.const };
  if (Array.isArray(schema.enum)) return enumControl(schema, wrap, required, name, initial);
  if (schema.options) return optionsControl(schema, path, label, context, initial);
  switch (schema.type) {
    case "boolean":
      return booleanControl(schema, wrap, required, name, initial);
    case "integer":
    case "number":
      return numberControl(schema, wrap, path, required, context, initial);
    case "string":
      return stringControl(schema, wrap, required, name, initial);
    case "array":
      return schema.items && !Array.isArray(schema.items) ? arrayControl(schema, path, label, hint, required, context, initial) : jsonControl(wrap, path, context, initial);
    case "object":
      return schema.properties && Object.keys(schema.properties).length ? nestedControl(schema, path, label, hint, required, context, initial) : jsonControl(wrap, path, context, initial);
    default:
      return jsonControl(wrap, path, context, initial);
  }
}

/** @param {Schema} schema */
function hintOf(schema) {
  const parts = [schema.description ?? ""];
  if (schema.default !== undefined && schema.default !== null && schema.default !== "") parts.push(`Default: ${JSON.stringify(schema.default)}.`);
  return parts.filter(Boolean).join(" ");
}

/** @param {Schema} schema @param {(input: HTMLElement) => HTMLElement} wrap @param {boolean} required @param {string} name @param {any} initial @returns {Control} */
function enumControl(schema, wrap, required, name, initial) {
  const values = schema.enum;
  const at = values.findIndex((/** @type {any} */ value) => value === initial);
  const chosen = signal(at >= 0 ? String(at) : required ? "0" : "");
  const options = values.map((/** @type {any} */ value, /** @type {number} */ index) => /** @type {const} */ ([String(index), String(value)]));
  const input = select(name, required ? options : [["", "not set"], ...options], chosen, chosen.set);
  input.removeAttribute("aria-label");
  return { element: wrap(input), read: () => (chosen.peek() === "" ? undefined : values[Number(chosen.peek())]) };
}

/** @param {Schema} schema @param {(input: HTMLElement) => HTMLElement} wrap @param {boolean} required @param {string} name @param {any} initial @returns {Control} */
function booleanControl(schema, wrap, required, name, initial) {
  const chosen = signal(typeof initial === "boolean" ? String(initial) : required ? "false" : "");
  const options = /** @type {[string, string][]} */ ([["true", "yes"], ["false", "no"]]);
  const input = select(name, required ? options : [["", "not set"], ...options], chosen, chosen.set);
  input.removeAttribute("aria-label");
  return { element: wrap(input), read: () => (chosen.peek() === "" ? undefined : chosen.peek() === "true") };
}

/** @param {Schema} schema @param {(input: HTMLElement) => HTMLElement} wrap @param {string} path @param {boolean} required @param {Context} context @param {any} initial @returns {Control} */
function numberControl(schema, wrap, path, required, context, initial) {
  const input = h("input", { type: "text", inputmode: schema.type === "integer" ? "numeric" : "decimal", value: initial ?? "", autocomplete: "off" });
  return {
    element: wrap(input),
    read: () => {
      const text = input.value.trim();
      if (!text) return required ? complain(context, path, "A number is needed") : undefined;
      const value = Number(text);
      if (!Number.isFinite(value) || (schema.type === "integer" && !Number.isInteger(value))) return complain(context, path, schema.type === "integer" ? "This must be a whole number" : "This must be a number");
      return value;
    },
  };
}

/** @param {Context} context @param {string} path @param {string} message */
function complain(context, path, message) {
  context.problems.update((map) => new Map(map).set(path, message));
  return undefined;
}

/** @param {Schema} schema @param {(input: HTMLElement) => HTMLElement} wrap @param {boolean} required @param {string} name @param {any} initial @returns {Control} */
function stringControl(schema, wrap, required, name, initial) {
  const long = LONG.test(name) && !schema.format;
  const input = long ? h("textarea", { class: "mono", value: initial ?? "", rows: "2", spellcheck: "false" }) : h("input", { type: "text", value: initial ?? "", autocomplete: "off", spellcheck: "false" });
  return { element: wrap(input), read: () => (input.value === "" && !required ? undefined : input.value) };
}

/** @param {(input: HTMLElement) => HTMLElement} wrap @param {string} path @param {Context} context @param {any} initial @returns {Control} */
function jsonControl(wrap, path, context, initial) {
  const input = h("textarea", { class: "mono", rows: "2", placeholder: "JSON", spellcheck: "false", value: initial === undefined ? "" : JSON.stringify(initial, null, 2) });
  return {
    element: wrap(input),
    read: () => {
      if (!input.value.trim()) return undefined;
      try {
        return JSON.parse(input.value);
      } catch (error) {
        return complain(context, path, `This is not JSON: ${/** @type {Error} */ (error).message}`);
      }
    },
  };
}

/** @param {Schema} schema @param {string} path @param {Context} context @param {any} initial @returns {Control} */
function objectControl(schema, path, context, initial) {
  const required = new Set(schema.required ?? []);
  const names = Object.keys(schema.properties ?? {}).sort((a, b) => Number(required.has(b)) - Number(required.has(a)));
  const inner = { ...context, depth: context.depth + 1 };
  const controls = names.map((name) => /** @type {const} */ ([name, control(schema.properties[name], `${path}/${name}`, name, required.has(name), inner, initial?.[name])]));
  return {
    element: h("div", { class: "schema-form" }, controls.map(([, each]) => each.element), controls.length ? null : h("p", { class: "muted" }, "No input.")),
    read: () => {
      /** @type {Record<string, unknown>} */
      const value = {};
      for (const [name, each] of controls) {
        const part = each.read();
        if (part !== undefined) value[name] = part;
      }
      return value;
    },
  };
}

/** @param {Schema} schema @param {string} path @param {string} label @param {string} hint @param {boolean} required @param {Context} context @param {any} initial @returns {Control} */
function nestedControl(schema, path, label, hint, required, context, initial) {
  const open = signal(required || initial !== undefined);
  /** @type {Control | null} */
  let inner = null;
  return {
    element: h(
      "fieldset",
      { class: "nested", "data-path": path },
      h("legend", null, label),
      hint ? h("p", { class: "hint" }, hint) : null,
      () => {
        if (!open()) return button("Add", () => open.set(true), { small: true, icon: "plus" });
        const made = (inner = untracked(() => objectControl(schema, path, context, initial)));
        return [made.element, required ? null : button("Remove", () => open.set(false), { small: true })];
      },
      () => (context.problems().get(path) ? h("p", { class: "field-problem" }, context.problems().get(path)) : null),
    ),
    read: () => (open.peek() ? inner?.read() : undefined),
  };
}

/** @param {Schema} schema @param {string} path @param {string} label @param {string} hint @param {boolean} required @param {Context} context @param {any} initial @returns {Control} */
function arrayControl(schema, path, label, hint, required, context, initial) {
  /** @type {Control[]} */
  const rows = [];
  const list = h("div", { class: "array-rows" });
  const add = (/** @type {any} */ value) => {
    const row = control(schema.items, `${path}/${rows.length}`, String(rows.length + 1), true, { ...context, depth: context.depth + 1 }, value);
    rows.push(row);
    /** @type {HTMLElement} */
    const holder = h("div", { class: "array-row" }, row.element, button(null, () => (rows.splice(rows.indexOf(row), 1), holder.remove()), { icon: "close", kind: "bare", small: true, title: "Remove" }));
    list.append(holder);
  };
  for (const value of Array.isArray(initial) ? initial : []) add(value);
  return {
    element: h(
      "fieldset",
      { class: "nested", "data-path": path },
      h("legend", null, label),
      hint ? h("p", { class: "hint" }, hint) : null,
      list,
      button("Add one", () => untracked(() => add(undefined)), { small: true, icon: "plus" }),
      () => (context.problems().get(path) ? h("p", { class: "field-problem" }, context.problems().get(path)) : null),
    ),
    read: () => (rows.length || required ? rows.map((row) => row.read()) : undefined),
  };
}

/** A choice between alternatives, each with its own fields. @param {Schema} schema @param {string} path @param {string} label @param {Context} context @param {any} initial @returns {Control} */
function optionsControl(schema, path, label, context, initial) {
  const options = schema.options.map((/** @type {Schema} */ option) => plainSchema(option, context.root));
  const names = options.map((/** @type {Schema} */ option, /** @type {number} */ index) => /** @type {const} */ ([String(index), option.title ?? (option.const !== undefined ? String(option.const) : (option.required?.join(", ") ?? option.type ?? `choice ${index + 1}`))]));
  const chosen = signal(initial === undefined ? "" : "0");
  /** @type {Control | null} */
  let inner = null;
  return {
    element: h(
      "fieldset",
      { class: "nested", "data-path": path },
      h("legend", null, label),
      schema.description ? h("p", { class: "hint" }, schema.description) : null,
      select(label, [["", "not set"], ...names], chosen, chosen.set),
      () => {
        const at = chosen();
        inner = at === "" ? null : untracked(() => control(options[Number(at)], path, "value", true, { ...context, depth: context.depth + 1 }, initial));
        return inner?.element ?? null;
      },
    ),
    read: () => inner?.read(),
  };
}
