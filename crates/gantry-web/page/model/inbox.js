// All open questions of all sessions. They are state: read on connection and after each change, never collected.

import { derived, signal, watch } from "../core/signal.js";
import { wire } from "../core/wire.js";

/** @import { OutboxMessage, PlanInfo, Question, UserAsked } from "../../tests/api.d.ts" */
/** @typedef {{ id: string, sessionKey: string, agent: string, label: string, expires: number, question?: Question, asked?: UserAsked, plan?: PlanInfo, held?: OutboxMessage }} InboxItem */

export const inbox = signal(/** @type {InboxItem[]} */ ([]));
export const inboxLoaded = signal(false);
export const inboxCount = derived(() => inbox().length);

let number = 0;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let gatewayHasInbox = true;

export function startInbox() {
  watch(() => {
    wire.epoch();
    if (wire.state.peek() === "online") void listen();
  });
  for (const event of /** @type {any[]} */ (["inbox.changed", "session.event", "run.event"])) {
    wire.on(event, (/** @type {any} */ data) => {
      if (event === "inbox.changed" || /approval|asked|waiting|continued|final|stopped|error/.test(data.event?.event ?? "")) soon();
    });
  }
  setInterval(() => document.visibilityState === "visible" && soon(), 20_000);
}

async function listen() {
  await wire.request(/** @type {any} */ ("inbox.listen"), /** @type {any} */ ({})).catch(() => {});
  await readInbox();
}

export function soon() {
  if (timer) return;
  timer = setTimeout(() => {
    timer = undefined;
    void readInbox();
  }, 120);
}

export async function readInbox() {
  if (wire.state.peek() !== "online") return;
  const mine = ++number;
  try {
    const items = gatewayHasInbox ? await readList() : await collect();
    if (mine !== number) return;
    inbox.set(items.sort((a, b) => a.expires - b.expires));
    inboxLoaded.set(true);
  } catch (error) {
    if (/** @type {any} */ (error).code !== "unknown_method") return;
    gatewayHasInbox = false;
    await readInbox();
  }
}

/** @returns {Promise<InboxItem[]>} */
async function readList() {
  const list = /** @type {any} */ (await wire.request(/** @type {any} */ ("inbox.list"), /** @type {any} */ ({})));
  return list.items.map((/** @type {any} */ item) => {
    const subject = item.question ?? item.asked ?? item.plan ?? item.held ?? {};
    return { ...item, id: String(subject.id ?? subject.approvalId), expires: subject.expires ?? Infinity };
  });
}

/** For a gateway without the list: the sessions that wait, each with its questions. @returns {Promise<InboxItem[]>} */
async function collect() {
  const { sessions } = await wire.request("sessions.list", { limit: 500 });
  const waiting = sessions.filter((session) => session.waiting && !session.parent);
  const states = await Promise.all(waiting.map((session) => wire.request("sessions.status", { sessionKey: session.sessionKey }).catch(() => null)));
  return states.flatMap((status, index) => {
    const { sessionKey, agent, label } = waiting[index];
    const base = { sessionKey, agent, label: label ?? sessionKey };
    return [
      ...(status?.questions ?? []).map((question) => ({ ...base, id: question.id, expires: question.expires, question })),
      ...(status?.asks ?? []).map((asked) => ({ ...base, id: asked.id, expires: asked.expires, asked })),
    ];
  });
}
