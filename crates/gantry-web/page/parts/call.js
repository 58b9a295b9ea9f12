// Calls tools for the person at the page. If policy asks, the question opens as a dialog.

import { h } from "../core/dom.js";
import { visible } from "../core/format.js";
import { onDispose, signal } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { asked, WAKE_MS } from "./approval.js";
import { button, dialog } from "./ui.js";

/** @import { ApprovalAsk, CallResult } from "../../tests/api.d.ts" */

/** A question about a call of this page. Closing it, or not answering, means no. @param {ApprovalAsk} params */
async function askHere(params) {
  const { title, machine, body } = asked(/** @type {any} */ (params));
  const answer = await dialog(title, (close) => {
    const awake = signal(false);
    const timer = setTimeout(() => awake.set(true), WAKE_MS);
    onDispose(() => clearTimeout(timer));
    return [
      h("div", { class: "dialog-text question-body" }, machine ? h("p", null, "on ", h("span", { class: "machine" }, visible(machine))) : null, body, h("p", { class: "muted" }, `${visible(params.reason)} · rule ${params.rule}`)),
      h("div", { class: "dialog-actions" }, button("No", () => close("no"), { extra: { autofocus: true } }), button("Yes, once", () => close("yes"), { kind: "primary", disabled: () => !awake() })),
    ];
  });
  return answer === "yes" ? { allow: true } : { allow: false, reason: "the person said no" };
}
wire.onApproval = askHere;

/**
 * @param {string} tool @param {unknown} input
 * @param {{ agent?: string, deadlineMs?: number, signal?: AbortSignal, progress?: (data: any) => void }} [options]
 * @returns {Promise<CallResult>}
 */
export function callTool(tool, input, options = {}) {
  const { agent, ...rest } = options;
  return wire.request("tool.call", { tool, input, asks: true, ...(agent ? { agent } : {}) }, { deadlineMs: 30 * 60_000, ...rest });
}

/** The JSON of a call that must succeed. @param {string} tool @param {unknown} input @param {{ signal?: AbortSignal, deadlineMs?: number, progress?: (data: any) => void }} [options] @returns {Promise<any>} */
export async function callJson(tool, input, options) {
  const answer = await callTool(tool, input, options);
  const json = /** @type {any} */ (answer.json);
  if (answer.isError) throw new Error(json?.error?.message ?? json?.error ?? answer.text ?? "the tool failed");
  return json && typeof json === "object" && json.ok === true && "result" in json ? json.result : json;
}
