// Messages of background work to chats, webhooks and sessions: what was sent, what waits, what failed.

import { each, h } from "../core/dom.js";
import { route, setQuery } from "../core/route.js";
import { derived, untracked } from "../core/signal.js";
import { Resource, ask, badge, button, confirmed, empty, header, say, tabs, time } from "../parts/ui.js";

/** @import { OutboxMessage } from "../../tests/api.d.ts" */

const TONES = /** @type {Record<string, string>} */ ({ sent: "ok", held: "warn", queued: "run", sending: "run", failed: "error", unknown: "warn", expired: "error", dropped: "" });
const WORDS = /** @type {Record<string, string>} */ ({ held: "waits for you", unknown: "may have arrived" });

export default function Outbox() {
  const state = derived(() => route().query.get("state") ?? "");
  const open = derived(() => route().parts[1] ?? "");
  const list = new Resource(() => ask("outbox.list", { limit: 200, ...(state.peek() ? { state: state.peek() } : {}) }), { events: ["run.event"], everyMs: 8000 });
  return h(
    "div",
    { class: "screen" },
    header("Outbox", null, "Messages of schedules, tasks and agents to chats, webhooks and sessions."),
    h("div", { class: "toolbar" }, tabs("State", [["", "All"], ["held", "Held"], ["queued", "Waiting"], ["failed", "Failed"], ["unknown", "Uncertain"], ["sent", "Sent"]], state, (value) => (setQuery({ state: value || null }), list.reload()))),
    list.view(() => [
      () => (list.value()?.messages.length ? null : empty("No messages here", "What a schedule or an agent sends to a chat or a webhook is kept here until it has arrived.")),
      each(() => /** @type {OutboxMessage[]} */ (list.value()?.messages ?? []), (message) => message.id, (message) => row(message, open, list), { props: { class: "list" } }),
    ]),
  );
}

/** @param {import("../core/signal.js").Read<OutboxMessage>} message @param {() => string} open @param {Resource<any>} list */
function row(message, open, list) {
  const { id } = message.peek();
  const isOpen = () => open() === id;
  const act = (/** @type {any} */ method, /** @type {string} */ told) => ask(method, { id }).then(() => (say(told), list.reload()));
  return h(
    "div",
    { class: "process" },
    h("a", { class: "list-row", href: () => (isOpen() ? "/channels/outbox" : `/channels/outbox/${encodeURIComponent(id)}`) }, h("span", { class: "list-main" }, h("span", { class: "list-title" }, h("span", null, () => message().title || message().text.split("\n")[0]), () => badge(TONES[message().state] ?? "", WORDS[message().state] ?? message().state)), h("span", { class: "list-sub block" }, () => `${message().channel} · ${message().from} · ${message().agent}`)), h("span", { class: "list-side" }, () => time(message().created))),
    () =>
      isOpen()
        ? untracked(() =>
            h(
              "div",
              { class: "process-open detail" },
              h("pre", { class: "plain wrap", tabindex: "0" }, message.peek().text),
              () => (message().error ? h("p", { class: "field-problem" }, `${message().error} (${message().attempts} attempts)`) : null),
              h("div", { class: "row" }, () => [
                ["failed", "unknown", "held", "expired"].includes(message().state) ? button(message().state === "held" ? "Send it" : "Send again", () => act("outbox.resend", "Sending"), { kind: "primary" }) : null,
                message().state === "unknown" ? button("It arrived", () => act("outbox.arrived", "Noted")) : null,
                ["failed", "unknown", "held", "queued"].includes(message().state) ? button("Give it up", async () => (await confirmed("Give up this message?", "It is not sent any more.", "Give it up")) && act("outbox.drop", "Given up"), { kind: "danger" }) : null,
              ]),
            ),
          )
        : null,
  );
}
