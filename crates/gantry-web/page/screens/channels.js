// The accounts of chat services: their state, what is wrong and how to fix it, linking an owner, and the people.

import { each, h } from "../core/dom.js";
import { clockTime } from "../core/format.js";
import { derived, signal, watch } from "../core/signal.js";
import { peopleOf } from "../parts/people.js";
import { Resource, ask, badge, button, copyButton, dialog, header, icon, say, time } from "../parts/ui.js";

/** @import { Read } from "../core/signal.js" */
/** @import { ChannelInfo, ChannelPerson, ChannelTest } from "../../tests/api.d.ts" */
/** @typedef {{ accounts: ChannelInfo[], people: ChannelPerson[] }} Shown */

const REFRESH_MS = 4000;
const TONES = /** @type {Record<string, string>} */ ({ connected: "ok", connecting: "run", needs_login: "error", conflict: "error", refused: "error" });
const WORDS = /** @type {Record<string, string>} */ ({ needs_login: "needs a new login", conflict: "used elsewhere" });
/** What to do about a state that does not end by itself. */
const FIXES = /** @type {Record<string, string>} */ ({
  needs_login: "Store a new token with `gantry channels add`, then press Test.",
  conflict: "Another program uses this account. Stop it, then press Restart.",
  refused: "Press Test: it names what the service refuses, and the fix.",
});

export default function Channels() {
  /** @type {Resource<Shown>} */
  const shown = new Resource(async () => {
    const [{ accounts }, { people }] = await Promise.all([ask("channels.list"), ask("channels.people")]);
    return { accounts, people };
  }, { everyMs: REFRESH_MS });
  const accounts = () => shown.value()?.accounts ?? [];
  const hasAny = derived(() => accounts().length > 0);
  return h(
    "div",
    { class: "screen" },
    header("Channels", h("a", { class: "btn", href: "/channels/outbox" }, icon("outbox"), h("span", null, "Outbox")), "Where people talk to your agents, and who may."),
    shown.view(() => [
      () => (hasAny() ? null : howToBegin()),
      each(accounts, (account) => account.id, (account) => accountRow(account, shown), { props: { class: "list" } }),
      peopleOf(() => shown.value()?.people ?? [], hasAny, () => shown.reload()),
    ]),
  );
}

const howToBegin = () =>
  h(
    "section",
    { class: "card pad begin" },
    h("h2", null, "No channels yet"),
    h("p", null, "Give an agent an account of a chat service; then you can talk to it from your phone, and answer its questions there. On the gateway's machine, run:"),
    h("pre", { class: "plain command", tabindex: "0" }, "gantry channels add telegram"),
    h("p", null, "It asks for the token, stores it, and checks it. The same works for ", ["slack", "discord", "whatsapp", "matrix", "email"].map((name, index) => [index ? ", " : "", h("code", null, name)]), ", and for ", h("code", null, "webhook"), " and ", h("code", null, "bridge"), ", which connect programs of your own."),
    h("p", { class: "muted" }, "The account appears here at once, without a restart. Then press Link, and send the code to the bot: you are its owner."),
  );

/** @param {Read<ChannelInfo>} account @param {Resource<Shown>} shown */
function accountRow(account, shown) {
  const { id } = account.peek();
  const tested = signal(/** @type {ChannelTest | null} */ (null));
  const test = async () => {
    tested.set(null);
    tested.set(await ask("channels.test", { id }));
    await shown.reload();
  };
  const restart = async () => {
    tested.set(null);
    await ask("channels.restart", { id });
    say(`${id} connects again`);
    await shown.reload();
  };
  return h(
    "section",
    { class: "channel", "aria-label": id },
    h(
      "div",
      { class: "channel-line" },
      h(
        "div",
        { class: "list-main" },
        h("div", { class: "list-title" }, h("span", null, id), () => badge(TONES[account().state] ?? "", WORDS[account().state] ?? account().state), () => (account().linked ? null : badge("warn", "no owner"))),
        h("p", { class: "list-sub wrap" }, () => [account().bot ? `bot ${account().bot}` : "the bot is not known yet", ` · agent ${account().agent} · last event `, time(account().lastEvent)]),
        () => (account().backlog ? h("p", { class: "list-sub wrap" }, h("a", { href: "/channels/outbox?state=queued" }, `${account().backlog} message${account().backlog > 1 ? "s wait" : " waits"} to be sent`)) : null),
      ),
      h("div", { class: "row" }, button("Test", test, { small: true }), button("Restart", restart, { small: true }), button("Link", () => link(account, shown), { small: true, extra: { class: () => `btn small ${account().state === "connected" && !account().linked ? "primary" : ""}` } })),
    ),
    () => (account().error && !tested() ? h("div", { class: "channel-note" }, h("p", { class: "field-problem" }, account().error), FIXES[account().state] ? h("p", { class: "muted" }, FIXES[account().state]) : null) : null),
    h("div", { role: "status" }, () => testNote(tested())),
  );
}

/** @param {ChannelTest | null} tested */
function testNote(tested) {
  if (!tested) return null;
  return h(
    "div",
    { class: "channel-note" },
    tested.ok ? h("p", null, badge("ok", "works"), tested.bot ? ` The service knows it as ${tested.bot}.` : " The service answered.") : h("p", { class: "field-problem" }, tested.problem ?? "The test failed"),
    tested.fix ? h("p", null, `Fix: ${tested.fix}`) : null,
    (tested.warnings ?? []).map((warning) => h("p", { class: "not-shown" }, icon("warn"), warning)),
  );
}

/** Shows a code that makes whoever sends it the owner, and says when somebody did. @param {Read<ChannelInfo>} account @param {Resource<Shown>} shown */
async function link(account, shown) {
  const { id, channel } = account.peek();
  const owners = () => (shown.value()?.people ?? []).filter((person) => person.account === id && person.role === "owner");
  const before = new Set(owners().map((person) => person.id));
  const made = await ask("channels.link", { id });
  void dialog(`Link yourself to ${id}`, (close) => {
    const fresh = derived(() => owners().find((person) => !before.has(person.id)) ?? null);
    watch(() => {
      if (fresh()) say(`Linked: ${fresh()?.name || fresh()?.id}`);
    });
    return [
      h(
        "div",
        { class: "dialog-text detail" },
        h("p", null, "From your own account, send this code to ", h("strong", null, made.bot || `the bot of ${id}`), ` in a one-to-one chat on ${channel}:`),
        h("div", { class: "link-code" }, h("code", { tabindex: "0" }, made.code), copyButton(made.code)),
        h("p", null, "Whoever sends it becomes an owner there: approves what agents ask, and uses every command. Do not forward it."),
        h("p", { class: "muted", role: "status" }, () => (fresh() ? [badge("ok", "linked"), ` ${fresh()?.name || fresh()?.id} is an owner now.`] : `It is valid once, until ${clockTime(made.expires)}. This page says when it was used.`)),
      ),
      h("div", { class: "dialog-actions" }, button("Close", () => close())),
    ];
  });
}
