// A question to a person: may this call run, or what the agent asks. Only buttons answer.

import { each, h } from "../core/dom.js";
import { duration, number, visible } from "../core/format.js";
import { onDispose, signal, untracked, watch } from "../core/signal.js";
import { wire } from "../core/wire.js";
import { diffView, json, longText } from "./message.js";
import { ask, badge, button, field, icon, say, select } from "./ui.js";

/** @import { Child } from "../core/dom.js" */
/** @import { AskedAction, GrantReach, Question, UserAsked } from "../../tests/api.d.ts" */

/** Buttons do nothing for this long after they appear or move, so that a click meant for something else does not answer. */
export const WAKE_MS = 400;

/** What the call would do, as the thing itself and not as JSON. @param {Question} question @returns {{ title: string, machine: string, body: Child }} */
export function asked(question) {
  /** @type {AskedAction | null | undefined} */
  const action = question.action;
  const more = (/** @type {number | undefined} */ n) => (n ? h("p", { class: "not-shown" }, icon("warn"), `${number(n)} more characters are not shown. A yes allows them too.`) : null);
  const text = (/** @type {string} */ value) => h("pre", { class: "plain wrap", tabindex: "0" }, visible(value));
  switch (action?.kind) {
    case "command":
      return {
        title: action.escalation ? "Run outside the sandbox?" : "Run this command?",
        machine: action.machine,
        body: [
          h("pre", { class: "plain wrap command", tabindex: "0" }, visible(action.command)),
          action.directory ? h("p", { class: "muted mono" }, `in ${visible(action.directory)}`) : null,
          action.escalation ? h("p", null, `Reason the agent gives: ${visible(action.escalation)}`) : null,
          more(action.notShown),
        ],
      };
    case "file_change":
      return {
        title: { delete: "Delete this?", create: "Create this file?", change: "Change this file?", replace: "Replace this file?", copy: "Copy this file?" }[action.change] ?? "Change this file?",
        machine: action.machine,
        body: [action.paths.map((path) => h("p", { class: "mono path" }, visible(path))), action.text ? changeText(question, action.text) : null, more(action.notShown)],
      };
    case "file_read":
      return { title: "Read this file?", machine: action.machine, body: h("p", { class: "mono path" }, visible(action.path)) };
    case "web_request":
      return { title: `Send a request to ${visible(action.host)}?`, machine: "", body: [h("p", { class: "mono path" }, `${action.method} ${visible(action.url)}`), action.sent ? text(action.sent) : null, more(action.notShown)] };
    case "connection":
      return { title: `Connect to ${visible(action.host)}?`, machine: "", body: [h("p", { class: "mono path" }, `${visible(action.host)}:${action.port}`), action.command ? text(action.command) : null] };
    case "message":
      return { title: `Send this message to ${visible(action.to)}?`, machine: "", body: [text(action.text), more(action.notShown)] };
    case "service_change":
      return { title: `${visible(action.service)}: ${visible(action.what)}?`, machine: "", body: [action.text ? text(action.text) : null, more(action.notShown)] };
    case "schedule":
      return { title: `${visible(action.what)}?`, machine: "", body: [h("p", null, visible(action.when)), text(action.text), more(action.notShown)] };
    default:
      return { title: `Allow ${visible(question.tool)}?`, machine: "", body: [json(question.input), more(action && "notShown" in action ? action.notShown : 0)] };
  }
}

/** @param {Question} question @param {string} text */
function changeText(question, text) {
  const input = /** @type {any} */ (question.input ?? {});
  const before = input.oldString ?? input.old_string;
  const after = input.newString ?? input.new_string;
  if (typeof before === "string" && typeof after === "string") return diffView({ before: visible(before), after: visible(after) });
  return longText(visible(text));
}

/** Time that is left until the answer becomes no. @param {number} expires */
function countdown(expires) {
  const left = signal(0);
  const tick = () => left.set(expires - Date.now() - wire.clockAhead);
  tick();
  const timer = setInterval(tick, 1000);
  onDispose(() => clearInterval(timer));
  return h("span", { class: () => `countdown ${left() < 60_000 ? "soon" : ""}`, title: "Without an answer, the call is denied" }, () =>
    left() > 0 ? `${duration(Math.floor(left() / 1000) * 1000)} left` : "expired",
  );
}

/** Buttons that wake up some time after they appeared or moved. @param {(awake: () => boolean) => Child} build */
function sleepy(build) {
  const awake = signal(false);
  const bar = h("div", { class: "answers" }, build(awake));
  let place = "";
  let since = performance.now();
  const timer = setInterval(() => {
    const box = bar.getBoundingClientRect();
    const now = `${Math.round(box.left)},${Math.round(box.top)},${Math.round(box.height)}`;
    if (now !== place) {
      place = now;
      since = performance.now();
      awake.set(false);
    } else if (performance.now() - since >= WAKE_MS) awake.set(true);
  }, 50);
  onDispose(() => clearInterval(timer));
  return bar;
}

/** @param {{ sessionKey: string, agent?: string, question: Question, origin?: Child }} given */
export function approvalCard({ sessionKey, question, origin }) {
  const { title, machine, body } = asked(question);
  const more = signal(false);
  const hours = signal("");
  const answer = (/** @type {any} */ params) => ask("sessions.answer", { sessionKey, question: question.id, ...params }).then((result) => say(result.told || "Answered"));
  const id = `q${question.id.replace(/\W/g, "")}`;
  return h(
    "section",
    { class: "question approval", "aria-labelledby": id, "data-question": question.id },
    h(
      "div",
      { class: "question-head" },
      h("h2", { id }, title),
      machine ? h("span", { class: "machine" }, visible(machine)) : null,
      question.child ? badge("info", `asked by ${question.child.name}`) : null,
      countdown(question.expires),
    ),
    origin ?? null,
    h("div", { class: "question-body", tabindex: "0", role: "region", "aria-label": "What is asked" }, body, h("p", { class: "muted" }, `${visible(question.reason)} · rule ${question.rule}`)),
    sleepy((awake) => {
      const asleep = () => !awake();
      return [
        button("No", () => answer({ answer: "no" }), { disabled: asleep, extra: { "data-answer": "no" } }),
        button("Always…", () => more.update((was) => !was), { disabled: asleep, extra: { "data-answer": "always", "aria-expanded": () => String(more()) } }),
        button("Yes, once", () => answer({ answer: "yes" }), { kind: "primary", disabled: asleep, extra: { "data-answer": "yes" } }),
      ];
    }),
    () =>
      more()
        ? h(
            "div",
            { class: "always" },
            h("p", null, "Allow also later, without a question:"),
            (question.offers ?? []).map((offer) =>
              sleepy((awake) =>
                button([h("span", null, visible(offer.label)), h("span", { class: "muted" }, ` · ${hours() || offer.hours} h`)], () => answer({ answer: "always", offer: offer.key, ...hoursParam(hours.peek()) }), {
                  disabled: () => !awake(),
                  extra: { "data-offer": offer.key },
                }),
              ),
            ),
            question.offers?.length ? null : ownScope(question, answer),
            h("div", { class: "row" }, h("label", null, "For hours ", h("input", { type: "number", min: "1", max: "720", class: "narrow", placeholder: "usual", oninput: (/** @type {any} */ e) => hours.set(e.target.value) }))),
          )
        : null,
  );
}

/** @param {string} hours */
const hoursParam = (hours) => (Number(hours) > 0 ? { hours: Number(hours) } : {});

/** A grant for a question that suggests none. @param {Question} question @param {(params: any) => Promise<void>} answer */
function ownScope(question, answer) {
  const scope = signal("call");
  const reach = signal(/** @type {GrantReach} */ ("session"));
  return h(
    "div",
    { class: "row" },
    select("What", [["call", "exactly this call"], ["tool", `every call of ${question.tool}`]], scope, scope.set),
    select("Where", [["session", "in this session"], ["agent", "in all sessions of the agent"]], reach, (value) => reach.set(/** @type {GrantReach} */ (value))),
    sleepy((awake) => button("Allow", () => answer({ answer: "always", scope: scope.peek(), reach: reach.peek() }), { disabled: () => !awake() })),
  );
}

/** @param {{ sessionKey: string, asked: UserAsked, origin?: Child }} given */
export function askedCard({ sessionKey, asked, origin }) {
  const answers = asked.questions.map(() => signal(""));
  const complete = () => answers.every((answer) => answer().trim());
  const send = () => ask("sessions.answer", { sessionKey, question: asked.id, answers: answers.map((answer) => answer.peek()) }).then((result) => say(result.told || "Answered"));
  const id = `q${asked.id.replace(/\W/g, "")}`;
  return h(
    "section",
    { class: "question asked", "aria-labelledby": id, "data-question": asked.id },
    h("div", { class: "question-head" }, h("h2", { id }, asked.questions[0]?.heading ?? "The agent asks"), asked.child ? badge("info", `asked by ${asked.child.name}`) : null, countdown(asked.expires)),
    origin ?? null,
    h(
      "div",
      { class: "question-body" },
      asked.questions.map((question, index) => {
        const answer = answers[index];
        const input = h("input", { type: "text", autocomplete: "off", value: answer, oninput: (/** @type {any} */ e) => answer.set(e.target.value) });
        return h(
          "div",
          { class: "asked-one" },
          field(question.question, input),
          question.options?.length
            ? h("div", { class: "options" }, question.options.map((option) => h("button", { type: "button", class: "btn small", "aria-pressed": () => String(answer() === option), onclick: () => answer.set(option) }, option)))
            : null,
        );
      }),
    ),
    sleepy((awake) => button("Answer", send, { kind: "primary", disabled: () => !awake() || !complete(), extra: { "data-answer": "text" } })),
  );
}

/**
 * All open questions of a session, above its composer. The buttons stay visible, the content scrolls inside.
 * @param {string | (() => string)} sessionKey
 * @param {() => { id: string, question?: Question, asked?: UserAsked }[]} questions
 */
export function dock(sessionKey, questions) {
  const key = () => (typeof sessionKey === "function" ? untracked(sessionKey) : sessionKey);
  return each(
    questions,
    (item) => item.id,
    (item) => {
      const { question, asked } = item.peek();
      return question ? approvalCard({ sessionKey: key(), question }) : asked ? askedCard({ sessionKey: key(), asked }) : h("div");
    },
    { props: { class: "dock" } },
  );
}

/** Counts questions for a screen reader. @param {() => number} count @param {(text: string) => void} speak */
export function speakQuestions(count, speak) {
  let before = 0;
  watch(() => {
    const now = count();
    if (now > before) speak(now === 1 ? "One question waits for you" : `${now} questions wait for you`);
    before = now;
  });
}
