// The people of channels: strangers that wait, owners, members, and who is blocked.

import { each, h } from "../core/dom.js";
import { derived, signal } from "../core/signal.js";
import { ask, badge, button, confirmed, field, say, time } from "./ui.js";

/** @import { Read } from "../core/signal.js" */
/** @import { ChannelPerson } from "../../tests/api.d.ts" */

const TONES = /** @type {Record<string, string>} */ ({ owner: "info", member: "ok", pending: "warn", blocked: "error" });
const WORDS = /** @type {Record<string, string>} */ ({ pending: "waits" });
const ORDER = ["owner", "member", "blocked"];

/** @param {() => readonly ChannelPerson[]} people @param {() => boolean} hasAccounts @param {() => Promise<void>} reload */
export function peopleOf(people, hasAccounts, reload) {
  const keyOf = (/** @type {ChannelPerson} */ person) => JSON.stringify([person.account, person.id]);
  const waiting = derived(() => people().filter((person) => person.role === "pending"));
  const known = derived(() => people().filter((person) => person.role !== "pending").sort((a, b) => ORDER.indexOf(a.role) - ORDER.indexOf(b.role) || a.since - b.since));
  const visible = derived(() => hasAccounts() || people().length > 0);
  return h(
    "div",
    { hidden: () => !visible() },
    h(
      "section",
      { class: "section" },
      h("h2", null, "Who waits"),
      h("p", { class: "sub" }, "A stranger who writes to a bot gets a code. Names can be forged, so ask the person for the code and compare it."),
      each(waiting, keyOf, (person) => strangerRow(person, reload), { props: { class: "list" } }),
      () => (waiting().length ? null : h("p", { class: "muted" }, "Nobody waits.")),
      codeForm(reload),
    ),
    h(
      "section",
      { class: "section" },
      h("h2", null, "People"),
      each(known, keyOf, (person) => personRow(person, reload), { props: { class: "list" } }),
      () => (known().length ? null : h("p", { class: "muted" }, "Nobody yet. Link makes you an owner.")),
    ),
  );
}

/** @param {Read<ChannelPerson>} person */
const nameOf = (person) => person().name || person().id;

/** @param {string} code @param {boolean} approve @param {() => Promise<void>} reload */
async function decide(code, approve, reload) {
  const person = await ask("channels.pair", { code, approve });
  say(`${person.name || person.id} is ${approve ? "admitted" : "blocked"}`);
  await reload();
}

/** @param {Read<ChannelPerson>} person @param {() => Promise<void>} reload */
function strangerRow(person, reload) {
  return h(
    "div",
    { class: "list-row person" },
    h("div", { class: "list-main" }, h("div", { class: "list-title" }, h("span", null, () => nameOf(person)), badge("warn", "waits")), h("p", { class: "list-sub wrap" }, () => [`${person().account} · ${person().id} · wrote `, time(person().since)])),
    () => {
      const { code } = person();
      if (!code) return h("div", { class: "row" }, h("span", { class: "muted" }, "The code expired; a new message gets a new one."), button("Block", () => setRole(person, "blocked", reload), { small: true }));
      return h("div", { class: "row" }, h("code", { class: "pair-code" }, code), button("Admit", () => decide(code, true, reload), { small: true, kind: "primary" }), button("Block", () => decide(code, false, reload), { small: true, kind: "danger" }));
    },
  );
}

/** For a code that somebody read out. @param {() => Promise<void>} reload */
function codeForm(reload) {
  const typed = signal("");
  const input = h("input", { type: "text", class: "mono", autocomplete: "off", autocapitalize: "characters", spellcheck: "false", oninput: () => typed.set(input.value) });
  const run = async (/** @type {boolean} */ approve) => {
    await decide(typed.peek().trim(), approve, reload);
    input.value = "";
    typed.set("");
  };
  const none = () => !typed().trim();
  return h("form", { class: "code-form", onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, field("Pairing code", input), button("Admit", () => run(true), { disabled: none }), button("Block", () => run(false), { disabled: none, kind: "danger" }));
}

/** @param {Read<ChannelPerson>} person @param {"member" | "blocked" | "none"} role @param {() => Promise<void>} reload */
async function setRole(person, role, reload) {
  const { account, id } = person.peek();
  await ask("channels.role", { account, person: id, role });
  await reload();
}

/** @param {Read<ChannelPerson>} person @param {() => Promise<void>} reload */
function personRow(person, reload) {
  const remove = async () => {
    const text = person.peek().role === "owner" ? "The account can approve nothing any more. A new code from Link makes it an owner again." : "The next message of this person gets a new code.";
    if (await confirmed(`Remove ${nameOf(person)}?`, text, "Remove")) await setRole(person, "none", reload);
  };
  const demote = async () => {
    if (await confirmed(`Make ${nameOf(person)} a member?`, "Members talk in a conversation of their own, and approve nothing.", "Make a member")) await setRole(person, "member", reload);
  };
  const role = derived(() => person().role);
  return h(
    "div",
    { class: "list-row person" },
    h("div", { class: "list-main" }, h("div", { class: "list-title" }, h("span", null, () => nameOf(person)), () => badge(TONES[role()] ?? "", WORDS[role()] ?? role())), h("p", { class: "list-sub wrap" }, () => [`${person().account} · ${person().id} · since `, time(person().since)])),
    h("div", { class: "row" }, () => [
      role() === "owner" ? button("Make a member", demote, { small: true }) : null,
      role() === "blocked" ? button("Admit", () => setRole(person, "member", reload), { small: true }) : null,
      role() === "member" ? button("Block", () => setRole(person, "blocked", reload), { small: true }) : null,
      button("Remove", remove, { small: true, kind: "bare" }),
    ]),
  );
}
