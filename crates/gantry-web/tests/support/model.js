// A model for tests: OpenAI's chat completions over HTTP on the loopback, with answers that a test decides.

import { createServer } from "node:http";

/**
 * @typedef {{ text?: string, thinking?: string, calls?: { name: string, input: unknown }[], pieceMs?: number, piece?: number, burst?: number, hold?: Promise<void>, holdAfter?: number }} Turn
 * @typedef {{ messages: any[], tools: any[], last: any, lastUser: string, sinceUser: number }} Asked
 */

export class Model {
  /** Decides each answer. @type {(asked: Asked) => Turn} */
  decide = usual;
  requests = 0;
  #server = createServer((request, response) => void this.#answer(request, response));

  async start() {
    await new Promise((done) => this.#server.listen(0, "127.0.0.1", () => done(null)));
    const address = /** @type {import("node:net").AddressInfo} */ (this.#server.address());
    this.url = `http://127.0.0.1:${address.port}/v1`;
    return this;
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  /** @param {import("node:http").IncomingMessage} request @param {import("node:http").ServerResponse} response */
  async #answer(request, response) {
    let body = "";
    for await (const part of request) body += part;
    if (!request.url?.endsWith("/chat/completions")) {
      response.end(JSON.stringify({ object: "list", data: [{ id: "scripted-1", object: "model" }] }));
      return;
    }
    this.requests++;
    const asked = JSON.parse(body);
    const users = asked.messages.map((/** @type {any} */ m) => m.role).lastIndexOf("user");
    const turn = this.decide({
      messages: asked.messages,
      tools: asked.tools ?? [],
      last: asked.messages[asked.messages.length - 1],
      lastUser: textOf(asked.messages[users]),
      sinceUser: asked.messages.length - 1 - users,
    });
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const send = (/** @type {any} */ delta, /** @type {string | null} */ finish = null, /** @type {any} */ extra = {}) =>
      response.write(`data: ${JSON.stringify({ id: "c1", object: "chat.completion.chunk", created: 1, model: "scripted-1", choices: [{ index: 0, delta, finish_reason: finish }], ...extra })}\n\n`);
    send({ role: "assistant", content: "" });
    if (turn.thinking) send({ reasoning_content: turn.thinking });
    const size = turn.piece ?? 12;
    let sent = 0;
    for (let at = 0; at < (turn.text ?? "").length && !response.destroyed; at += size) {
      send({ content: turn.text?.slice(at, at + size) });
      sent += size;
      if (turn.hold && sent >= (turn.holdAfter ?? 0)) {
        await turn.hold;
        turn.hold = undefined;
      }
      if (turn.pieceMs && (sent / size) % (turn.burst ?? 1) === 0) await new Promise((done) => setTimeout(done, turn.pieceMs));
    }
    (turn.calls ?? []).forEach((call, index) => {
      send({ tool_calls: [{ index, id: `call_${this.requests}_${index}`, type: "function", function: { name: call.name, arguments: "" } }] });
      send({ tool_calls: [{ index, function: { arguments: JSON.stringify(call.input) } }] });
    });
    send({}, turn.calls?.length ? "tool_calls" : "stop");
    response.write(`data: ${JSON.stringify({ id: "c1", object: "chat.completion.chunk", created: 1, model: "scripted-1", choices: [], usage: { prompt_tokens: 1200 + body.length >> 2, completion_tokens: 40, total_tokens: 1240 } })}\n\n`);
    response.end("data: [DONE]\n\n");
  }
}

/** @param {any} message */
function textOf(message) {
  const content = message?.content;
  return typeof content === "string" ? content : (content ?? []).map((/** @type {any} */ part) => part.text ?? "").join("");
}

/**
 * The usual decisions: `call NAME {json}` calls a tool, then says what came; anything else is repeated.
 * @param {Asked} asked @returns {Turn}
 */
export function usual(asked) {
  const call = /call (\S+) (\{.*\})/s.exec(asked.lastUser);
  if (call && asked.sinceUser === 0) return { calls: [{ name: call[1], input: JSON.parse(call[2]) }] };
  if (call) return { text: `The tool answered.` };
  return { text: `You said: **${asked.lastUser.slice(0, 200)}**` };
}
