// Pipelines: their steps as a graph, their runs with the state of each step.

import { each, h } from "../core/dom.js";
import { duration, money, number } from "../core/format.js";
import { go, path, route } from "../core/route.js";
import { derived, signal, untracked } from "../core/signal.js";
import { longText } from "../parts/message.js";
import { Resource, ask, badge, button, confirmed, dialog, empty, header, icon, say, time } from "../parts/ui.js";

/** @import { PipelineDefinition, PipelineInfo, PipelineRunInfo, PipelineRunState, StepOutcome } from "../../tests/api.d.ts" */

const EVENTS = /** @type {any[]} */ (["run.event"]);
const TONES = /** @type {Record<string, string>} */ ({ running: "run", completed: "ok", failed: "error", rejected: "error", interrupted: "warn", waiting: "warn" });

export default function Pipelines() {
  const parts = derived(() => route().parts.join("\n"));
  return h("div", null, () => {
    const [id, , run] = parts().split("\n");
    return untracked(() => (run ? oneRun(id, run) : id ? onePipeline(id) : pipelineList()));
  });
}

function pipelineList() {
  const list = new Resource(() => ask("pipelines.list"), { everyMs: 20_000 });
  const captured = new Resource(() => ask("processes.list"), { everyMs: 20_000 });
  return h(
    "div",
    { class: "screen" },
    header("Pipelines", button("New pipeline", () => addPipeline(list), { icon: "plus", kind: "primary" }), "Steps for agents and tools that run side by side where they can."),
    list.view(() => [
      () => (list.value()?.pipelines.length ? null : empty("No pipelines yet", "A pipeline comes from a definition, from a plan that you approved, or from a recorded process.")),
      each(() => /** @type {PipelineInfo[]} */ (list.value()?.pipelines ?? []), (one) => one.id, (one) =>
        h("a", { class: "list-row", href: path(["pipelines", one.peek().id]) }, h("span", { class: "list-main" }, h("span", { class: "list-title" }, h("span", null, () => one().definition.name)), h("span", { class: "list-sub block" }, () => `${one().definition.steps.length} steps · ${one().agent} · from a ${one().source}`)), h("span", { class: "list-side" }, () => `about ${money(one().estimatedCostUsd)}`, h("span", { class: "hide-small" }, () => time(one().created)), icon("right"))), { props: { class: "list" } }),
    ]),
    h("section", { class: "section" }, h("h2", null, "Recorded processes"), captured.view(() => [
      () => (captured.value()?.processes.length ? null : h("p", { class: "muted" }, "An agent can record how it did something. You make a pipeline of it here.")),
      each(() => captured.value()?.processes ?? [], (/** @type {any} */ one) => one.id, (one) =>
        h("div", { class: "list-row" }, h("div", { class: "list-main" }, h("div", { class: "list-title" }, h("span", null, () => one().name)), h("div", { class: "list-sub" }, () => one().description)), h("div", { class: "list-side" }, () => (one().pipelineId ? h("a", { href: path(["pipelines", one().pipelineId]) }, "its pipeline") : button("Make a pipeline", () => ask("processes.promote", { id: one.peek().id }).then((made) => (say(made.next), list.reload(), captured.reload())), { small: true })), button(null, async () => (await confirmed("Remove this process?", one.peek().name, "Remove")) && ask("processes.remove", { id: one.peek().id }).then(() => captured.reload()), { icon: "trash", kind: "bare", small: true, title: "Remove" }))), { props: { class: "list" } }),
    ])),
  );
}

/** @param {string} id */
function onePipeline(id) {
  const pipeline = new Resource(() => /** @type {Promise<PipelineInfo>} */ (ask("pipelines.get", { id })));
  const runs = new Resource(
    async () => {
      await ask("runs.listen");
      return ask("pipelines.runs", { pipelineId: id, limit: 100 });
    },
    { events: EVENTS, everyMs: 10_000 },
  );
  return h(
    "div",
    { class: "screen" },
    h("p", null, h("a", { href: "/pipelines" }, "Pipelines")),
    pipeline.view((info) => {
      const { definition } = info;
      const remove = async () => {
        if (!(await confirmed("Remove this pipeline?", `"${definition.name}" cannot be run again. Its runs stay.`, "Remove"))) return;
        await ask("pipelines.remove", { id });
        go("/pipelines");
      };
      return h(
        "div",
        { class: "detail" },
        header(definition.name, [button("Run", () => runPipeline(info), { icon: "play", kind: "primary" }), button("Remove", remove, { kind: "danger" })], `${info.agent} · about ${money(info.estimatedCostUsd)} · when a step fails: ${definition.on_failure}`),
        graph(definition, () => new Map(), (step) => showStep(definition, step)),
        definition.parameters?.length ? h("section", null, h("h2", null, "Parameters"), h("dl", { class: "facts" }, definition.parameters.map((p) => h("div", null, h("dt", { class: "mono" }, p.name), h("dd", null, `${p.type}${p.default === undefined || p.default === null ? ", needed" : `, else ${JSON.stringify(p.default)}`}`))))) : null,
        h("section", null, h("h2", null, "Runs"), runs.view(() => [
          () => (runs.value()?.runs.length ? null : h("p", { class: "muted" }, "It has not run yet.")),
          each(() => /** @type {PipelineRunInfo[]} */ (runs.value()?.runs ?? []), (run) => run.runId, (run) => pipelineRunRow(run), { props: { class: "list" } }),
        ])),
        h("details", null, h("summary", null, "Definition"), h("pre", { tabindex: "0" }, JSON.stringify(definition, null, 2))),
      );
    }),
  );
}

/** @param {import("../core/signal.js").Read<PipelineRunInfo>} run */
export function pipelineRunRow(run) {
  return h("a", { class: "list-row", href: path(["pipelines", run.peek().pipelineId, "runs", run.peek().runId]) }, h("span", { class: "list-main" }, h("span", { class: "list-title" }, () => badge(TONES[run().status] ?? "", run().status), h("span", { class: "ellipsis" }, () => run().reason ?? run().name)), h("span", { class: "list-sub block" }, () => `${run().name} · ${run().agent}`)), h("span", { class: "list-side" }, () => (run().ended ? duration((run().ended ?? 0) - run().started) : ""), () => time(run().started), icon("right")));
}

/** @param {string} pipelineId @param {string} runId */
function oneRun(pipelineId, runId) {
  const run = new Resource(
    async () => {
      await ask("runs.listen");
      return /** @type {PipelineRunState} */ (await ask("pipelines.status", { runId }));
    },
    { events: EVENTS, everyMs: 5000 },
  );
  const chosen = signal("");
  return h(
    "div",
    { class: "screen" },
    h("p", null, h("a", { href: "/pipelines" }, "Pipelines"), " / ", h("a", { href: path(["pipelines", pipelineId]) }, () => run.value()?.outcome.name ?? pipelineId)),
    run.view((first) => {
      const state = () => /** @type {PipelineRunState} */ (run.value());
      const outcome = () => state().outcome;
      const steps = derived(() => new Map(outcome().steps.map((step) => [step.stepId, step])));
      return h(
        "div",
        { class: "detail" },
        header(() => outcome().name, () => [
          outcome().status === "running" ? button("Stop", () => ask("pipelines.cancel", { runId }).then(() => run.reload()), { icon: "stop" }) : null,
          ["failed", "interrupted"].includes(outcome().status) ? button("Retry", () => ask("pipelines.retry", { runId }).then(() => run.reload()), { icon: "refresh", kind: "primary" }) : null,
        ], () => [badge(TONES[outcome().status] ?? "", outcome().status), ` ${duration(outcome().totalDurationMs)} · ${money(outcome().totalCostUsd)}`, outcome().reason ? ` · ${outcome().reason}` : ""]),
        graph(first.definition, steps, chosen.set),
        h("div", { class: "list" }, () => [...outcome().steps].sort((a, b) => Number(b.status === "failed") - Number(a.status === "failed")).map((step) => stepRow(step, chosen))),
      );
    }),
  );
}

/** @param {StepOutcome} step @param {import("../core/signal.js").Signal<string>} chosen */
function stepRow(step, chosen) {
  return h(
    "div",
    { class: "process" },
    h("button", { type: "button", class: "list-row", "aria-expanded": () => String(chosen() === step.stepId), onclick: () => chosen.set(chosen.peek() === step.stepId ? "" : step.stepId) }, h("span", { class: "list-main" }, h("span", { class: "list-title" }, badge(TONES[step.status] ?? "", step.status), h("span", { class: "mono" }, step.stepId)), h("span", { class: "list-sub block" }, step.error ?? step.skipReason ?? (step.result ?? "").split("\n")[0])), h("span", { class: "list-side" }, step.durationMs ? h("span", null, duration(step.durationMs)) : null, step.tokensOut ? h("span", { class: "hide-small" }, `${number(step.tokensIn + step.tokensOut)} tokens`) : null)),
    () => (chosen() === step.stepId ? h("div", { class: "process-open" }, step.error ? h("p", { class: "field-problem" }, step.error) : null, step.result ? longText(step.result) : null, step.sessionKey ? h("p", { class: "row section" }, h("a", { class: "btn small", href: path(["runs", step.sessionKey]) }, "Timeline"), h("a", { class: "btn small", href: path(["chat", step.sessionKey]) }, "Session")) : null) : null),
  );
}

const WIDTH = 168;
const HEIGHT = 52;

/** The gateway places the steps; here they are drawn, with the state that they have now. @param {PipelineDefinition} definition @param {() => Map<string, StepOutcome>} states @param {(step: string) => void} choose */
function graph(definition, states, choose) {
  const known = new Set(definition.steps.map((step) => step.id));
  const layout = new Resource(() =>
    ask("graph.layout", {
      nodes: definition.steps.map((step) => ({ id: step.id, width: WIDTH, height: HEIGHT })),
      edges: definition.steps.flatMap((step) => (step.input_from ?? []).filter((from) => known.has(from)).map((from) => ({ from, to: step.id }))),
    }),
  );
  return h("div", { class: "graph", tabindex: "0", role: "region", "aria-label": "Steps" }, layout.view((drawn) => {
    const [width, height] = [drawn.width + 40, drawn.height + 40];
    return h(
      "svg",
      { width: String(width), height: String(height), viewBox: `-20 -20 ${width} ${height}`, role: "img", "aria-label": `${definition.steps.length} steps` },
      drawn.edges.map((/** @type {any} */ edge) => h("path", { class: "edge", d: curve(edge.points) })),
      drawn.nodes.map((/** @type {any} */ place) => stepBox(definition, place, states, choose)),
    );
  }));
}

/** A smooth line through points, from left to right. @param {[number, number][]} points */
function curve(points) {
  let path = `M${points[0].join(" ")}`;
  for (let n = 1; n < points.length; n++) {
    const [[x1, y1], [x2, y2]] = [points[n - 1], points[n]];
    const half = (x2 - x1) / 2;
    path += `C${x1 + half} ${y1} ${x2 - half} ${y2} ${x2} ${y2}`;
  }
  return path;
}

/** @param {PipelineDefinition} definition @param {{ id: string, x: number, y: number }} place @param {() => Map<string, StepOutcome>} states @param {(step: string) => void} choose */
function stepBox(definition, place, states, choose) {
  const step = definition.steps.find((one) => one.id === place.id);
  const cut = (/** @type {string} */ text, /** @type {number} */ length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
  return h(
    "g",
    { class: () => `step ${states().get(place.id)?.status ?? ""}`, transform: `translate(${place.x} ${place.y})`, onclick: () => choose(place.id) },
    h("rect", { class: "box", width: String(WIDTH), height: String(HEIGHT), rx: "9" }),
    h("text", { x: "12", y: "22" }, cut(place.id, 20)),
    h("text", { class: "step-sub", x: "12", y: "40" }, () => cut(states().get(place.id)?.status ?? step?.tool ?? step?.role ?? step?.model ?? "agent", 24)),
  );
}

/** @param {PipelineDefinition} definition @param {string} id */
function showStep(definition, id) {
  const step = definition.steps.find((one) => one.id === id);
  if (step) void dialog(id, () => h("div", { class: "dialog-text detail" }, step.task ? h("p", { class: "prose" }, step.task) : null, step.tool ? [h("p", null, "Calls ", h("code", null, step.tool)), h("pre", { class: "wrap plain", tabindex: "0" }, JSON.stringify(step.input ?? {}, null, 2))] : null, step.input_from?.length ? h("p", { class: "muted" }, `After ${step.input_from.join(", ")}`) : null));
}

/** @param {PipelineInfo} info */
async function runPipeline(info) {
  const { formDialog } = await import("../parts/form-dialog.js");
  const parameters = info.definition.parameters ?? [];
  const start = async (/** @type {Record<string, any>} */ values) => {
    const params = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, typed(value, parameters.find((p) => p.name === name)?.type ?? "string")]));
    const state = await ask("pipelines.run", { pipelineId: info.id, params });
    go(path(["pipelines", info.id, "runs", state.outcome.runId]));
  };
  if (!parameters.length) return start({});
  await formDialog(`Run ${info.definition.name}`, parameters.map((p) => ({ name: p.name, label: `${p.name} (${p.type})`, required: p.default === undefined || p.default === null, value: p.default === undefined || p.default === null ? "" : typeof p.default === "string" ? p.default : JSON.stringify(p.default) })), start, { submit: "Run" });
}

/** @param {any} value @param {string} type */
const typed = (value, type) => (type === "string" || type === "date" ? value : JSON.parse(String(value)));

/** @param {Resource<any>} list */
async function addPipeline(list) {
  const { formDialog } = await import("../parts/form-dialog.js");
  const example = { name: "report", steps: [{ id: "collect", task: "Collect the facts" }, { id: "write", task: "Write a report about {{collect.result}}", input_from: ["collect"] }], on_failure: "stop" };
  await formDialog("New pipeline", [
    { name: "definition", label: "Definition, as JSON", type: "long", required: true, value: JSON.stringify(example, null, 2) },
    { name: "agent", label: "Agent", value: "main" },
  ], async ({ definition, agent }) => {
    let parsed;
    try {
      parsed = JSON.parse(definition);
    } catch (error) {
      throw Object.assign(new Error("not JSON"), { violations: [{ path: "definition", message: `This is not JSON: ${/** @type {Error} */ (error).message}` }] });
    }
    const added = await ask("pipelines.add", { definition: parsed, ...(agent ? { agent } : {}) });
    void list.reload();
    go(path(["pipelines", added.id]));
  }, { submit: "Add", wide: true });
}
