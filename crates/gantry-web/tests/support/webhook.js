// People who write to an agent through the channel of signed requests.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";

export const SECRET = "a-key-for-the-signatures";

/** The account's configuration. Answers go to an address where nobody listens. */
export const CONFIG = '[channels.webhook.default]\nsecret = "secret:HOOK"\nurl = "http://127.0.0.1:9/"\n';

let messages = 0;

/** @param {import("./gateway.js").Gateway} gateway @param {string} person @param {string} name @param {string} text */
export async function write(gateway, person, name, text) {
  const body = JSON.stringify({ id: `m${++messages}`, from: { id: person, name }, text, peer: { kind: "dm", id: person } });
  const at = Math.floor(Date.now() / 1000);
  const mark = createHmac("sha256", SECRET).update(`${at}.${body}`).digest("hex");
  const response = await fetch(`${gateway.url}/v1/channels/webhook/default/webhook`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Gantry-Signature": `t=${at},v1=${mark}` },
    body,
  });
  assert.equal(response.status, 202, await response.text());
}
