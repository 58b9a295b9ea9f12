// The gateway: its configuration with a check before saving, its secrets, a trial of the policy, and its checks of itself.

import { each, h } from "../../core/dom.js";
import { signal, untracked } from "../../core/signal.js";
import { formDialog } from "../../parts/form-dialog.js";
import { plainSchema } from "../../parts/schema-form.js";
import { Resource, ask, badge, button, confirmed, empty, field, header, icon, problem, say, select, time } from "../../parts/ui.js";

/** All keys of a schema that hold one value, with dots between levels. @param {any} schema @param {any} root @param {string} [above] @returns {{ key: string, schema: any }[]} */
export function configKeys(schema, root, above = "") {
  if (above.split(".").length > 5) return [];
  return Object.entries(schema.properties ?? {}).flatMap(([name, given]) => {
    const key = above ? `${above}.${name}` : name;
    const one = plainSchema(given, root);
    return one.type === "object" && one.properties ? configKeys(one, root, key) : [{ key, schema: one }];
  });
}

/** @param {any} values @param {string} key */
export const valueAt = (values, key) => key.split(".").reduce((part, name) => part?.[name], values);

export function configuration() {
  const config = new Resource(async () => {
    const [shown, { schema }] = await Promise.all([ask("config.get"), ask("config.schema")]);
    return { ...shown, keys: configKeys(plainSchema(schema, schema), schema) };
  });
  const query = signal("");
  const onlySet = signal("all");
  return [
    header("Configuration", null, () => (config.value() ? h("span", { class: "mono" }, config.value()?.file) : "")),
    config.view(() => {
      const value = () => /** @type {any} */ (config.value());
      const shown = () => {
        const set = new Set(value().set);
        const known = new Set(value().keys.map((/** @type {any} */ one) => one.key));
        // Keys below an open table, such as a model's, are listed when they are set.
        const more = value().set.filter((/** @type {string} */ key) => !known.has(key)).map((/** @type {string} */ key) => ({ key, schema: {} }));
        return [...value().keys, ...more].filter((/** @type {any} */ one) => (onlySet() === "all" || set.has(one.key)) && `${one.key} ${one.schema.description ?? ""}`.toLowerCase().includes(query().toLowerCase()));
      };
      return [
        () => value().warnings.map((/** @type {string} */ warning) => h("p", { class: "not-shown" }, icon("warn"), warning)),
        h("div", { class: "toolbar" }, h("input", { type: "search", class: "search", placeholder: "Search settings", "aria-label": "Search settings", oninput: (/** @type {any} */ e) => query.set(e.target.value) }), select("Show", [["all", "all settings"], ["set", "set in the file"]], onlySet, onlySet.set)),
        () => (shown().length ? null : empty("No setting found", "Try another word.")),
        each(shown, (/** @type {any} */ one) => one.key, (one) =>
          h(
            "button",
            { type: "button", class: "list-row", onclick: () => editKey(one.peek(), value(), config) },
            h("span", { class: "list-main" }, h("span", { class: "list-title mono" }, h("span", null, () => one().key), () => (value().set.includes(one().key) ? badge("info", "set") : null)), h("span", { class: "list-sub block" }, () => one().schema.description ?? "")),
            h("span", { class: "list-side mono config-value" }, () => short(valueAt(value().values, one().key))),
          ), { props: { class: "list" } }),
      ];
    }),
  ];
}

/** @param {unknown} value */
const short = (value) => {
  const text = value === undefined || value === null ? "default" : typeof value === "string" ? value : JSON.stringify(value);
  return text.length > 32 ? `${text.slice(0, 31)}…` : text;
};

/** @param {{ key: string, schema: any }} one @param {any} shown @param {Resource<any>} config */
function editKey(one, shown, config) {
  const { schema } = one;
  const now = valueAt(shown.values, one.key);
  const parse = (/** @type {any} */ text) => {
    if (schema.type === "string" || Array.isArray(schema.enum)) return text;
    try {
      return JSON.parse(String(text));
    } catch {
      // A value of several types may be a plain word.
      return text;
    }
  };
  const options = Array.isArray(schema.enum) ? schema.enum.map((/** @type {any} */ v) => [String(v), String(v)]) : schema.type === "boolean" ? [["true", "true"], ["false", "false"]] : null;
  const save = async (/** @type {any} */ value) => {
    try {
      const answer = await ask("config.set", { key: one.key, value, hash: shown.hash });
      say(answer.needsRestart ? "Saved. It counts from the next start of the gateway." : "Saved");
    } catch (error) {
      const failure = /** @type {any} */ (error);
      if (failure.code === "conflict") {
        void config.reload();
        throw Object.assign(new Error("The file was changed meanwhile. Close this, look at the new values, and try again"), { violations: [] });
      }
      throw Object.assign(new Error(failure.message), { hint: failure.hint, violations: failure.violations.map((/** @type {any} */ v) => ({ path: "value", message: v.message })) });
    }
    await config.reload();
  };
  return formDialog(one.key, [
    options
      ? { name: "value", label: "Value", type: "choice", options, value: String(now ?? options[0][0]), required: true }
      : { name: "value", label: schema.type === "string" ? "Value" : "Value, as JSON", type: schema.type === "string" || schema.type === "integer" || schema.type === "number" ? "text" : "long", required: true, value: now === undefined || now === null ? "" : typeof now === "string" ? now : JSON.stringify(now) },
    { name: "remove", label: "Remove it from the file, so that the default applies", type: "check" },
  ], ({ value, remove }) => save(remove ? null : parse(value ?? "")), { intro: schema.description });
}

export function secrets() {
  const list = new Resource(() => ask("secrets.list"));
  const set = (/** @type {any} */ known) =>
    formDialog(known ? `New value of ${known.name}` : "New secret", [
      { name: "name", label: "Name", required: true, value: known?.name },
      { name: "hosts", label: "Hosts that may receive it", required: true, value: known?.hosts.join(" "), hint: "Separated by spaces, such as api.example.com." },
      { name: "value", label: "Value", type: "secret", required: true, hint: "It goes in only. No one can read it here again." },
    ], async ({ name, hosts = "", value }) => {
      const stored = await ask("secrets.set", { name, hosts: String(hosts).split(/[\s,]+/).filter(Boolean), value });
      say(stored.replaced ? "Replaced" : "Stored");
      await list.reload();
    });
  const remove = async (/** @type {string} */ name) => {
    if (!(await confirmed(`Remove ${name}?`, "Tools that name it fail from now on.", "Remove"))) return;
    await ask("secrets.remove", { name });
    await list.reload();
  };
  return [
    header("Secrets", button("New secret", () => set(null), { icon: "plus", kind: "primary" }), "Tools name a secret; its value is sent only to its hosts, and masked everywhere."),
    list.view(() => [
      () => (list.value()?.secrets.length ? null : empty("No secrets", "Store a key here, and name it as secret:NAME in the configuration or in a request.")),
      each(() => list.value()?.secrets ?? [], (/** @type {any} */ one) => one.name, (one) =>
        h("div", { class: "list-row" }, icon("key"), h("div", { class: "list-main" }, h("div", { class: "list-title mono" }, h("span", null, () => one().name)), h("div", { class: "list-sub" }, () => [one().hosts.join(", "), " · changed ", time(one().changed)])), button("New value", () => set(one.peek()), { small: true }), button(null, () => remove(one.peek().name), { icon: "trash", kind: "bare", small: true, title: `Remove ${one.peek().name}` })),
      { props: { class: "list" } }),
    ]),
  ];
}

export function policy() {
  const agents = new Resource(() => ask("agents.list"));
  const agent = signal("main");
  const answer = signal(/** @type {any} */ (null));
  const refused = signal(/** @type {Error | null} */ (null));
  const tool = h("input", { type: "text", class: "mono", value: "Bash", autocomplete: "off", spellcheck: "false" });
  const input = h("textarea", { class: "mono", rows: "3", spellcheck: "false", value: '{"command": "rm -rf build"}' });
  const tryIt = async () => {
    refused.set(null);
    try {
      answer.set(await ask("policy.explain", { tool: tool.value.trim(), input: JSON.parse(input.value || "{}"), ...(agent.peek() ? { agent: agent.peek() } : {}) }));
    } catch (error) {
      answer.set(null);
      refused.set(error instanceof SyntaxError ? new Error(`The input is not JSON: ${error.message}`) : /** @type {Error} */ (error));
    }
  };
  return [
    header("Policy", null, "What would happen to a call? Nothing runs."),
    h(
      "form",
      { class: "card pad", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void tryIt()) },
      field("Tool", tool),
      field("Input, as JSON", input),
      agents.view((value) => field("Caller", (() => {
        const choice = select("Caller", [["", "the operator"], ...value.agents.map((/** @type {any} */ one) => [one.id, `agent ${one.id}`])], agent, agent.set);
        choice.removeAttribute("aria-label");
        return choice;
      })())),
      h("div", { class: "form-foot" }, h("button", { type: "submit", class: "btn primary" }, "Try it")),
    ),
    () => (refused() ? problem(/** @type {Error} */ (refused())) : null),
    () => (answer()?.decisions ?? []).map((/** @type {any} */ decision) => untracked(() => decisionCard(decision))),
  ];
}

const DECISIONS = /** @type {Record<string, [string, string]>} */ ({ allow: ["ok", "is allowed"], ask: ["warn", "a person is asked"], deny: ["error", "is denied"] });

/** @param {any} decision */
function decisionCard(decision) {
  const [tone, words] = DECISIONS[decision.decision] ?? ["", decision.decision];
  return h(
    "section",
    { class: "card pad section detail", "aria-label": "Decision" },
    h("div", { class: "row" }, h("code", null, decision.tool), badge(tone, words), h("span", { class: "muted" }, `rule ${decision.rule}`)),
    h("p", null, decision.reason),
    decision.touches.length ? h("ul", null, decision.touches.map((/** @type {any} */ touch) => h("li", { class: "mono" }, `${touch.access} ${touch.path}`, touch.sensitive ? badge("warn", "sensitive") : null, touch.closed ? badge("error", "closed") : null))) : null,
    decision.rules.length ? h("details", null, h("summary", null, `${decision.rules.length} rules were checked`), h("ul", { class: "plain-list" }, decision.rules.map((/** @type {any} */ rule) => h("li", null, h("code", null, rule.rule), rule.mismatch ? h("span", { class: "muted" }, ` does not match: ${rule.mismatch}`) : " matches")))) : null,
  );
}

export function doctor() {
  const report = new Resource(() => ask("gateway.doctor"));
  const tones = /** @type {Record<string, string>} */ ({ ok: "ok", warning: "warn", error: "error" });
  return [
    header("Checks", button("Check again", () => report.reload(), { icon: "refresh" }), "What the gateway finds about itself."),
    report.view(() => () =>
      Object.entries(report.value()?.findings ?? {}).map(([area, findings]) =>
        h("section", { class: "section" }, h("h2", null, area), h("div", { class: "list" }, /** @type {any[]} */ (findings).map((finding) => h("div", { class: "list-row" }, badge(tones[finding.level] ?? "", finding.level), h("div", { class: "list-main" }, h("div", null, finding.message), finding.fix ? h("div", { class: "muted" }, finding.fix) : null))))),
      ),
    ),
  ];
}

