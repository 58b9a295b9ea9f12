// Accounts at Google: what they may do, and signing in from this browser.

import { each, h } from "../../core/dom.js";
import { clockTime } from "../../core/format.js";
import { derived, signal, untracked } from "../../core/signal.js";
import { Resource, ask, badge, button, copyButton, field, header, icon, problem, say } from "../../parts/ui.js";

/** @import { GoogleAccount, GoogleStatus } from "../../../tests/api.d.ts" */
/** @typedef {{ url: string, expires: number }} Begun */

const CONSOLE = "https://console.cloud.google.com/";
const KINDS = /** @type {Record<string, string>} */ ({ service: "service account", device: "signed in by a code", browser: "signed in by a browser" });

export function google() {
  /** @type {Resource<GoogleStatus>} */
  const status = new Resource(() => ask("google.status"), { everyMs: 4000 });
  const accounts = () => status.value()?.accounts ?? [];
  const configured = derived(() => Boolean(status.value()?.configured));
  return [
    header("Google", null, "Mail, calendar, files, sheets and documents of the accounts that are signed in."),
    status.view(() => [
      () => (configured() ? null : untracked(howToConfigure)),
      h("div", { hidden: () => !configured() },
        () => (accounts().length ? null : h("p", { class: "muted" }, "Nobody is signed in. Agents get the tools of Google with the first sign-in.")),
        each(accounts, (account) => account.email, (account) =>
          h(
            "div",
            { class: "list-row" },
            icon("user"),
            h(
              "div",
              { class: "list-main" },
              h("div", { class: "list-title" }, h("span", null, () => account().email), () => [account().isDefault ? badge("info", "default") : null, account().ended ? badge("error", "ended") : badge("ok", "signed in")]),
              h("p", { class: "list-sub wrap" }, () => KINDS[account().kind] ?? account().kind),
              h("p", { class: "scopes" }, () => account().scopes.map((scope) => h("code", null, scope))),
              () => (account().ended ? h("p", { class: "field-problem" }, `Google ended it: ${account().ended}. Sign in again.`) : null),
            ),
          ), { props: { class: "list" } }),
        signIn(() => status.reload(), accounts),
      ),
    ]),
  ];
}

const howToConfigure = () =>
  h(
    "section",
    { class: "card pad begin" },
    h("h2", null, "Google is not configured"),
    h("p", null, "Gantry uses a client of your own, so no other company sees your data. Once:"),
    h(
      "ol",
      { class: "steps" },
      h("li", null, "At ", h("a", { href: CONSOLE, target: "_blank", rel: "noopener noreferrer" }, "Google's console"), ", make a project. Under APIs & Services, Library, enable the APIs that you need: Calendar, Sheets, Drive, Gmail, Docs."),
      h("li", null, "Under Google Auth Platform, click Get started. Choose Internal, or External and add your address as a test user."),
      h("li", null, "Under Data Access, add the scopes."),
      h("li", null, "Under Clients, create a client of the type Desktop app. Copy its id and its secret."),
      h("li", null, "Store the secret, name the client in gantry.toml, and restart the gateway:", h("pre", { class: "plain wrap", tabindex: "0" }, 'gantry secrets set GOOGLE --host oauth2.googleapis.com\n\n[google]\nclientId = "….apps.googleusercontent.com"\nclientSecret = "secret:GOOGLE"')),
    ),
  );

/** @param {() => Promise<void>} reload @param {() => readonly GoogleAccount[]} accounts */
function signIn(reload, accounts) {
  const begun = signal(/** @type {Begun | null} */ (null));
  const refused = signal(/** @type {Error | null} */ (null));
  const scopes = h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false", placeholder: "gmail.send calendar.events" });
  const address = h("input", { type: "text", class: "mono", autocomplete: "off", spellcheck: "false", placeholder: "http://127.0.0.1:…/?state=…&code=…" });
  /** Shows why Google or the gateway refused, where the person looks. @param {() => Promise<void>} work */
  const tried = async (work) => {
    refused.set(null);
    try {
      await work();
    } catch (error) {
      refused.set(/** @type {Error} */ (error));
    }
  };
  const begin = () =>
    tried(async () => {
      const { url, expiresInSeconds } = await ask("google.auth.begin", { scopes: scopes.value.split(/[\s,]+/).filter(Boolean) });
      // A link that is opened in a new tab leads to a web page only.
      if (!/^https?:\/\//.test(url)) throw new Error("the gateway answered no address of a web page");
      begun.set({ url, expires: Date.now() + expiresInSeconds * 1000 });
    });
  const finish = () =>
    tried(async () => {
      const account = await ask("google.auth.finish", { address: address.value.trim() });
      say(`Signed in ${account.email}`);
      address.value = "";
      begun.set(null);
      await reload();
    });
  return h(
    "section",
    { class: "section" },
    h("h2", null, () => (accounts().length ? "Sign in again, or with another account" : "Sign in")),
    h(
      "div",
      { class: "card pad" },
      field("More scopes (optional)", scopes, "Without any, a sign-in keeps what the default account may do; a first one only reads. Separate scopes by spaces."),
      button(() => (begun() ? "Begin again" : "Begin a sign-in"), begin, { kind: "primary" }),
      () => {
        const now = begun();
        return now ? untracked(() => nextSteps(now, address, finish)) : null;
      },
      () => (refused() ? problem(/** @type {Error} */ (refused())) : null),
    ),
  );
}

/** @param {Begun} begun @param {HTMLInputElement} address @param {() => Promise<void>} finish */
const nextSteps = (begun, address, finish) =>
  h(
    "ol",
    { class: "steps" },
    h("li", null, h("div", { class: "row" }, h("a", { class: "btn", href: begun.url, target: "_blank", rel: "noopener noreferrer" }, icon("globe"), h("span", null, "Open Google's page")), copyButton(begun.url)), h("p", { class: "hint" }, `Choose the account and agree, until ${clockTime(begun.expires)}.`)),
    h("li", null, "If this browser runs on the gateway's machine, you are done: the account appears above."),
    h(
      "li",
      null,
      "If it ends at an error page, copy the whole address of that page to here:",
      h("form", { class: "code-form wide", onsubmit: (/** @type {Event} */ event) => (event.preventDefault(), void finish()) }, field("Address of the error page", address), button("Finish", finish)),
    ),
  );
