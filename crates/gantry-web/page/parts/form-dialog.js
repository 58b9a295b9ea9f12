// A dialog with a few fields. What the gateway refuses is shown at its field, else below the form.

import { h } from "../core/dom.js";
import { signal } from "../core/signal.js";
import { button, dialog, field, select } from "./ui.js";

/**
 * @typedef {{ name: string, label: string, type?: "text" | "long" | "number" | "choice" | "check" | "date" | "secret", value?: any, hint?: string, required?: boolean, options?: readonly (readonly [string, string])[],
 *   when?: (values: Record<string, any>) => boolean }} FieldInfo
 */

/**
 * @param {string} title @param {readonly FieldInfo[]} fields @param {(values: Record<string, any>) => Promise<unknown>} save
 * @param {{ submit?: string, intro?: string, wide?: boolean }} [options]
 */
export function formDialog(title, fields, save, options = {}) {
  return dialog(
    title,
    (close) => {
      const values = signal(/** @type {Record<string, any>} */ (Object.fromEntries(fields.map((one) => [one.name, one.value ?? (one.type === "choice" ? one.options?.[0]?.[0] : one.type === "check" ? false : "")]))));
      const refused = signal(/** @type {Map<string, string>} */ (new Map()));
      const general = signal("");
      const busy = signal(false);
      const change = (/** @type {string} */ name, /** @type {any} */ value) => values.update((all) => ({ ...all, [name]: value }));
      const submit = async () => {
        if (busy.peek()) return;
        busy.set(true);
        refused.set(new Map());
        general.set("");
        // A field that is not shown, or not filled in, is left out.
        const given = Object.fromEntries(fields.filter((one) => (!one.when || one.when(values.peek())) && values.peek()[one.name] !== "").map((one) => [one.name, one.type === "number" ? Number(values.peek()[one.name]) : values.peek()[one.name]]));
        try {
          await save(given);
          close("saved");
        } catch (error) {
          const { violations = [], message, hint } = /** @type {any} */ (error);
          const names = new Set(fields.map((one) => one.name));
          const found = new Map();
          const rest = [];
          for (const violation of violations) {
            const name = String(violation.path).split(/[./]/).filter(Boolean).pop() ?? "";
            if (names.has(name)) found.set(name, violation.message);
            else rest.push(`${violation.path}: ${violation.message}`);
          }
          refused.set(found);
          general.set(rest.length || !found.size ? [message, ...rest, hint].filter(Boolean).join(". ") : "");
        } finally {
          busy.set(false);
        }
      };
      return h(
        "form",
        { onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void submit()) },
        options.intro ? h("p", { class: "muted field" }, options.intro) : null,
        fields.map((one) => {
          const drawn = drawField(one, values.peek()[one.name], (value) => change(one.name, value), () => refused().get(one.name) ?? "");
          return h("div", { hidden: () => Boolean(one.when && !one.when(values())) }, drawn);
        }),
        () => (general() ? h("p", { class: "field-problem", role: "alert" }, general()) : null),
        h("div", { class: "form-foot" }, button("Cancel", () => close()), h("button", { type: "submit", class: "btn primary", disabled: busy }, options.submit ?? "Save")),
      );
    },
    { wide: options.wide },
  );
}

/** @param {FieldInfo} one @param {any} value @param {(value: any) => void} change @param {() => string} problem */
function drawField(one, value, change, problem) {
  if (one.type === "check") {
    return h("label", { class: "check field" }, h("input", { type: "checkbox", checked: Boolean(value), onchange: (/** @type {any} */ e) => change(e.target.checked) }), h("span", null, one.label), one.hint ? h("span", { class: "hint" }, one.hint) : null);
  }
  if (one.type === "choice") {
    const input = select(one.label, one.options ?? [], () => value, change);
    input.removeAttribute("aria-label");
    return field(one.label, input, one.hint, problem);
  }
  const oninput = (/** @type {any} */ e) => change(e.target.value);
  const input =
    one.type === "long"
      ? h("textarea", { rows: "3", value, oninput })
      : h("input", { type: one.type === "number" ? "number" : one.type === "date" ? "date" : one.type === "secret" ? "password" : "text", value, oninput, autocomplete: "off" });
  return field(one.required ? one.label : `${one.label} (optional)`, input, one.hint, problem);
}
