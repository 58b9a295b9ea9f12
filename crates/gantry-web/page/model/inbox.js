// All open questions of all sessions. They are state: read on connection and after each change, never collected.

import { derived, signal, watch } from "../core/signal.js";
import { wire } from "../core/wire.js";

/** @import { PlanInfo, Question, UserAsked } from "../../tests/api.d.ts" */
/** @typedef {{ id: string, sessionKey: string, agent: string, label: string, expires: number, question?: Question, asked?: UserAsked, labels?: string[], plan?: PlanInfo }} InboxItem */

export const inbox = signal(/** @type {InboxItem[]} */ ([]));
export const inboxLoaded = signal(false);
export const inboxCount = derived(() => inbox().length);

export function startInbox() {
  wire.on("inbox.changed", (list) => inbox.set(list.items.map(itemOf)));
  watch(() => {
    wire.epoch();
    if (wire.state.peek() === "online") void readInbox();
  });
}

/** Reads all items, and from now on each change brings the whole list. */
export async function readInbox() {
  try {
    const list = await wire.request("inbox.listen", {});
    inbox.set(list.items.map(itemOf));
    inboxLoaded.set(true);
  } catch {
    // The next connection reads it again.
  }
}

/** @param {any} item @returns {InboxItem} */
function itemOf(item) {
  const subject = item.question ?? item.asked ?? item.plan;
  return { ...item, sessionKey: item.sessionKey ?? "", label: item.label ?? item.sessionKey ?? "", id: String(subject.id ?? subject.approvalId), expires: subject.expires ?? Infinity };
}
