// Who may do what: grants that were given, and tokens of programs.

import { each, h } from "../../core/dom.js";
import { exactTime } from "../../core/format.js";
import { path } from "../../core/route.js";
import { formDialog } from "../../parts/form-dialog.js";
import { Resource, ask, badge, button, confirmed, copyButton, dialog, empty, header, say, time } from "../../parts/ui.js";

/** @import { GrantInfo, TokenInfo } from "../../../tests/api.d.ts" */

export function grants() {
  const list = new Resource(() => ask("grants.list"), { everyMs: 10_000 });
  const revoke = (/** @type {string} */ id) => ask("grants.revoke", { id }).then(() => (say("Revoked"), list.reload()));
  return [
    header("Grants", null, "What you allowed from now on, by answering a question with Always."),
    list.view(() => [
      () => (list.value()?.grants.length ? null : empty("No grants", "A question can be answered with Always; then the grant is listed here, and can be revoked.")),
      each(() => /** @type {GrantInfo[]} */ (list.value()?.grants ?? []), (grant) => grant.id, (grant) =>
        h("div", { class: "list-row" }, h("div", { class: "list-main" }, h("div", { class: "list-title" }, h("span", null, () => grant().label)), h("div", { class: "list-sub" }, () => [`${grant().agent} · `, grant().reach === "agent" ? "all its sessions" : h("a", { href: path(["chat", grant().sessionKey]) }, "one session"), ` · by ${grant().by} · until ${exactTime(grant().expires)}`])), button("Revoke", () => revoke(grant.peek().id), { small: true })),
      { props: { class: "list" } }),
    ]),
  ];
}

export function tokens() {
  const list = new Resource(() => ask("tokens.list"), { everyMs: 20_000 });
  const revoke = async (/** @type {string} */ name) => {
    if (!(await confirmed(`Revoke the token ${name}?`, "Its connections are closed and its calls are cancelled at once.", "Revoke"))) return;
    await ask("tokens.revoke", { name });
    await list.reload();
  };
  const add = () =>
    formDialog("New token", [
      { name: "name", label: "Name", required: true, hint: "The program that will use it." },
      { name: "tools", label: "Tools", hint: "Names, patterns such as gsv__*, toolsets, or effects such as effect:writes_files. Empty means all." },
      { name: "agents", label: "Agents it may act as", hint: "Separated by spaces." },
      { name: "readOnly", label: "Read only", type: "check" },
      { name: "days", label: "Expires after days", type: "number" },
    ], async (values) => {
      const words = (/** @type {any} */ text) => String(text).split(/[\s,]+/).filter(Boolean);
      const made = await ask("tokens.add", { name: values.name, readOnly: values.readOnly, ...(values.tools ? { tools: words(values.tools) } : {}), ...(values.agents ? { agents: words(values.agents) } : {}), ...(values.days ? { expires: Date.now() + values.days * 86_400_000 } : {}) });
      void list.reload();
      void dialog(`Token ${made.name}`, () => [h("p", { class: "dialog-text" }, "It is shown only now."), h("pre", { class: "plain wrap", tabindex: "0" }, made.token), (made.warnings ?? []).map((/** @type {string} */ warning) => h("p", { class: "dialog-text muted" }, warning)), h("div", { class: "dialog-actions" }, copyButton(made.token))]);
    }, { submit: "Make it" });
  return [
    header("Tokens", button("New token", add, { icon: "plus", kind: "primary" }), "Programs use tokens, each with its own rights."),
    list.view(() => [
      () => (list.value()?.tokens.length ? null : empty("No tokens", "The operator's own token is not listed. Make one for each program.")),
      each(() => /** @type {TokenInfo[]} */ (list.value()?.tokens ?? []), (token) => `${token.name}${token.created}`, (token) =>
        h("div", { class: "list-row" }, h("div", { class: "list-main" }, h("div", { class: "list-title" }, h("span", null, () => token().name), () => (token().revoked ? badge("error", "revoked") : token().expires && (token().expires ?? 0) < Date.now() ? badge("", "expired") : null), () => (token().readOnly ? badge("", "read only") : null)), h("div", { class: "list-sub" }, () => [token().tools === null ? "all tools" : (token().tools ?? []).join(", "), token().agents.length ? ` · as ${token().agents.join(", ")}` : "", " · used ", time(token().lastUsed)])), () => (token().revoked ? null : button("Revoke", () => revoke(token.peek().name), { small: true }))),
      { props: { class: "list" } }),
    ]),
  ];
}
