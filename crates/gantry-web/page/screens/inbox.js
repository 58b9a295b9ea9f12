// All open questions, the one that expires first on top. Each is answered in place.

import { each, h } from "../core/dom.js";
import { path } from "../core/route.js";
import { inbox, inboxCount, inboxLoaded } from "../model/inbox.js";
import { approvalCard, askedCard } from "../parts/approval.js";
import { ask, badge, button, empty, header, say } from "../parts/ui.js";

/** @import { InboxItem } from "../model/inbox.js" */

export default function Inbox() {
  return h(
    "div",
    { class: "screen narrow-screen" },
    header("Inbox", notifications(), "Everything that waits for you, from all sessions."),
    () => (inboxLoaded() ? (inboxCount() ? null : empty("Nothing waits for you", "Questions of agents appear here, whichever session asks.")) : h("p", { class: "loading", role: "status" }, "Loading…")),
    each(inbox, (item) => item.id, (item) => card(item.peek()), { props: { class: "inbox-list" } }),
  );
}

/** @param {InboxItem} item */
function card(item) {
  const origin = h("p", { class: "origin" }, h("a", { href: path(["chat", item.sessionKey]) }, item.label || item.sessionKey), h("span", { class: "muted" }, ` · ${item.agent} `), (item.labels ?? []).map((label) => badge("", label)));
  if (item.question) return approvalCard({ sessionKey: item.sessionKey, question: item.question, origin });
  if (item.asked) return askedCard({ sessionKey: item.sessionKey, asked: item.asked, origin });
  return planCard(item, origin);
}

/** @param {InboxItem} item @param {Node} origin */
function planCard(item, origin) {
  const { plan } = item;
  const answer = (/** @type {string} */ text) => ask("plans.answer", { approvalId: plan?.approvalId, answer: text });
  const change = h("input", { type: "text", "aria-label": "What to change", placeholder: "What to change" });
  return h(
    "section",
    { class: "question", "aria-label": "Plan" },
    h("div", { class: "question-head" }, h("h2", null, "Start this plan?")),
    origin,
    h("pre", { class: "plain wrap question-body", tabindex: "0" }, plan?.text ?? ""),
    h("div", { class: "row" }, change, button("Ask for the change", () => (change.value.trim() ? answer(change.value) : undefined))),
    h("div", { class: "answers" }, button("Cancel the plan", () => answer("cancel")), button("Start", () => answer("proceed"), { kind: "primary" })),
  );
}

function notifications() {
  if (!("Notification" in window) || Notification.permission !== "default") return null;
  return button("Notify me in this browser", async () => {
    const answer = await Notification.requestPermission();
    say(answer === "granted" ? "You will see a notification while a tab is open." : "The browser does not allow notifications.");
  });
}
