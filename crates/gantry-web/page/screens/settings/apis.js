// Profiles of APIs: how agents use a service without seeing its credentials.

import { each, h } from "../../core/dom.js";
import { Resource, ask, badge, button, copyButton, dialog, empty, header, icon } from "../../parts/ui.js";

/** @import { ApiInfo } from "../../../tests/api.d.ts" */

export function apis() {
  const list = new Resource(() => ask("apis.list"), { everyMs: 15_000 });
  return [
    header("API profiles", null, "How agents use a service: its address, its sign-in and its limits. A profile names a secret and never has its value."),
    list.view(() => [
      () => (list.value()?.apis.length ? null : empty("No profiles", "An agent makes one with api_setup when you ask it to use an API. You can add one from a file: gantry apis add FILE")),
      each(() => /** @type {ApiInfo[]} */ (list.value()?.apis ?? []), (api) => api.id, (api) =>
        h(
          "div",
          { class: "list-row" },
          icon("globe"),
          h(
            "div",
            { class: "list-main" },
            h("div", { class: "list-title" }, h("span", null, () => api().name || api().id), () => (api().problems?.length ? badge("error", "no effect") : null)),
            h("p", { class: "list-sub wrap" }, () => [api().name ? api().id : "", api().baseUrl, api().madeBy ? `made by agent ${api().madeBy}` : ""].filter(Boolean).join(" · ")),
            () => (api().problems ?? []).map((found) => h("p", { class: "field-problem" }, `${found.path || "the file"}: ${found.message}`)),
          ),
          // A profile with problems cannot be read; its list of problems is all that there is.
          () => (api().problems?.length ? null : button("Show", () => show(api.peek()), { small: true })),
        ), { props: { class: "list" } }),
    ]),
  ];
}

/** @param {ApiInfo} api */
async function show(api) {
  const { id, profile } = await ask("apis.get", { id: api.id });
  const text = JSON.stringify(profile, null, 2);
  const lists = /** @type {[string, any][]} */ ([["Guidelines", profile?.guidelines], ["To avoid", profile?.avoid], ["Notes", profile?.notes]]);
  const limits = Object.entries(profile?.rate_limit ?? {}).map(([name, value]) => `${value} ${name.replace(/_/g, " ")}`);
  void dialog(profile?.name || id, () => [
    h(
      "div",
      { class: "dialog-text detail" },
      profile?.description ? h("p", { class: "prose" }, profile.description) : null,
      h("dl", { class: "facts" }, fact("Address", profile?.base_url), fact("Sign-in", profile?.auth?.type), fact("Limits", limits.join(", "))),
      Array.isArray(profile?.endpoints) && profile.endpoints.length
        ? h("section", null, h("h3", null, "Endpoints"), h("ul", { class: "plain-list" }, profile.endpoints.map((/** @type {any} */ one) => h("li", null, h("code", { class: "wrap-anywhere" }, `${one.method ?? ""} ${one.path ?? ""}`), one.description ? h("p", { class: "muted" }, one.description) : null))))
        : null,
      lists.map(([title, items]) => (Array.isArray(items) && items.length ? h("section", null, h("h3", null, title), h("ul", { class: "bullets" }, items.map((one) => h("li", null, String(one))))) : null)),
      h("details", null, h("summary", null, "The whole profile"), h("pre", { class: "plain wrap", tabindex: "0" }, text)),
    ),
    h("div", { class: "dialog-actions" }, copyButton(text)),
  ], { wide: true });
}

/** @param {string} name @param {unknown} value */
const fact = (name, value) => (value ? h("div", null, h("dt", null, name), h("dd", null, String(value))) : null);
