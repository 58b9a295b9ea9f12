// Tasks: what is to be done, by whom, and what their runs said.

import { each, h } from "../core/dom.js";
import { money } from "../core/format.js";
import { go, path, route, setQuery } from "../core/route.js";
import { derived, untracked } from "../core/signal.js";
import { formDialog } from "../parts/form-dialog.js";
import { Resource, ask, badge, button, confirmed, empty, header, icon, say, tabs, time } from "../parts/ui.js";

/** @import { TaskInfo } from "../../tests/api.d.ts" */

const EVENTS = /** @type {any[]} */ (["run.event"]);
const STATUS = /** @type {Record<string, string>} */ ({ open: "", in_progress: "run", completed: "ok", failed: "error", cancelled: "" });
const PRIORITY = /** @type {Record<string, string>} */ ({ urgent: "error", high: "warn", medium: "", low: "" });

export default function Tasks() {
  const chosen = derived(() => route().parts[0] ?? "");
  return h("div", null, () => (chosen() ? untracked(() => oneTask(chosen.peek())) : untracked(taskList)));
}

function taskList() {
  const filter = derived(() => route().query.get("show") ?? "open");
  const list = new Resource(
    async () => {
      await ask("runs.listen");
      const show = filter.peek();
      return ask("tasks.list", { limit: 500, ...(["today", "overdue"].includes(show) ? { due: show } : show === "open" ? {} : { status: show }) });
    },
    { events: EVENTS, everyMs: 15_000 },
  );
  return h(
    "div",
    { class: "screen" },
    header("Tasks", button("New task", () => addTask(list), { icon: "plus", kind: "primary" })),
    h("div", { class: "toolbar" }, tabs("Show", [["open", "Open"], ["today", "Due today"], ["overdue", "Overdue"], ["completed", "Done"], ["failed", "Failed"], ["cancelled", "Cancelled"]], filter, (value) => (setQuery({ show: value === "open" ? null : value }), list.reload()))),
    list.view(() => [
      () => (list.value()?.tasks.length ? null : empty("No tasks here", "A task is yours, or an agent does it: at once, at certain times, or when a page changes.", button("New task", () => addTask(list), { kind: "primary" }))),
      each(() => /** @type {TaskInfo[]} */ (list.value()?.tasks ?? []), (task) => task.id, (task) =>
        h(
          "a",
          { class: "list-row", href: path(["tasks", task.peek().id]), style: () => ({ "padding-left": task().parentTaskId ? "36px" : null }) },
          h("span", { class: "list-main" }, h("span", { class: "list-title" }, h("span", null, () => task().title), () => taskBadges(task())), h("span", { class: "list-sub block" }, () => [task().schedule, task().watchUrl, task().assignee ?? "you", ...(task().tags ?? [])].filter(Boolean).join(" · "))),
          h("span", { class: "list-side" }, () => (task().dueDate ? h("span", null, `due ${task().dueDate}`) : null), icon("right")),
        ), { props: { class: "list" } }),
    ]),
  );
}

/** @param {TaskInfo} task */
const taskBadges = (task) => [
  task.running ? badge("run", "running") : task.unattended && !task.confirmed ? badge("warn", "waits for you") : task.status === "open" ? null : badge(STATUS[task.status] ?? "", task.status.replace("_", " ")),
  task.priority === "medium" ? null : badge(PRIORITY[task.priority] ?? "", task.priority),
];

/** @param {string} id */
function oneTask(id) {
  const task = new Resource(() => /** @type {Promise<TaskInfo>} */ (ask("tasks.show", { id })), { events: EVENTS, everyMs: 10_000 });
  const runs = new Resource(() => ask("tasks.history", { id }), { events: EVENTS, everyMs: 10_000 });
  const after = (/** @type {any} */ changed) => (say(changed.message ?? "Done"), runs.soon(), task.reload());
  return h("div", { class: "screen" }, h("p", null, h("a", { href: "/tasks" }, "Tasks")), task.view(() => taskDetail(/** @type {Resource<TaskInfo>} */ (task), runs, after)));
}

/** @param {Resource<TaskInfo>} resource @param {Resource<any>} runs @param {(changed: any) => unknown} after */
function taskDetail(resource, runs, after) {
  const task = () => /** @type {TaskInfo} */ (resource.value());
  const id = task().id;
  const open = () => !["completed", "cancelled"].includes(task().status);
  const cancel = async () => (await confirmed("Cancel this task?", "Its subtasks are cancelled too, and a run is stopped.", "Cancel the task")) && ask("tasks.cancel", { id }).then(after);
  return h(
    "div",
    { class: "detail" },
    header(() => task().title, () => [
      task().unattended && !task().confirmed ? button("Allow it", () => ask("tasks.confirm", { id, seen: task().contentHash }).then(after), { kind: "primary" }) : null,
      task().kind !== "manual" || task().unattended ? button("Run now", () => ask("tasks.run", { id }).then(after), { icon: "play" }) : null,
      open() ? button("Done", () => ask("tasks.edit", { task_id: id, status: "completed" }).then(after), { icon: "check" }) : button("Open again", () => ask("tasks.edit", { task_id: id, status: "open" }).then(after)),
      button("Edit", () => editTask(task(), after), { icon: "edit" }),
      open() ? button("Cancel", cancel, { kind: "danger" }) : null,
    ], () => taskBadges(task())),
    () => (task().unattended && !task().confirmed ? h("div", { class: "banner quiet" }, `${task().createdBy} added this. It does not run before you allow it.`) : null),
    () => (task().description ? h("section", { class: "card pad prose" }, task().description) : null),
    h("dl", { class: "facts" }, () =>
      /** @type {[string, any][]} */ ([
        ["State", task().status.replace("_", " ")],
        ["Due", task().dueDate],
        ["Schedule", task().schedule],
        ["Watches", task().watchUrl],
        ["Pipeline", task().pipelineId ? h("a", { href: path(["pipelines", task().pipelineId ?? ""]) }, task().pipelineId) : null],
        ["Next run", task().nextRunAtMs ? time(task().nextRunAtMs) : null],
        ["Assigned to", task().assignee ?? "you"],
        ["Tags", (task().tags ?? []).join(", ")],
        ["Part of", task().parentTaskId ? h("a", { href: path(["tasks", task().parentTaskId ?? ""]) }, task().parentTaskId) : null],
        ["Last result", task().lastResult ? h("span", { class: "prose" }, task().lastResult) : null],
        ["Changed", time(task().updatedAtMs)],
      ]).filter(([, value]) => value).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
    ),
    h("section", null, h("h2", null, "Runs"), runs.view(() => [
      () => (runs.value()?.runs.length ? null : h("p", { class: "muted" }, "It has not run yet.")),
      each(() => runs.value()?.runs ?? [], (/** @type {any} */ run) => run.id, (run) =>
        h("div", { class: "list-row" }, h("div", { class: "list-main" }, h("div", { class: "list-title" }, () => badge({ ok: "ok", error: "error", running: "run", queued: "run", parked: "warn" }[/** @type {"ok"} */ (run().state)] ?? "", run().state === "parked" ? "waits for you" : run().state), h("span", { class: "ellipsis" }, () => (run().error ?? run().result ?? "").split("\n")[0])), h("div", { class: "list-sub" }, () => [time(run().queuedAtMs), run().costUsd ? ` · ${money(run().costUsd)}` : ""])), h("div", { class: "list-side" }, h("a", { class: "btn small", href: path(["runs", run.peek().sessionKey]) }, "Timeline"))), { props: { class: "list" } }),
    ])),
  );
}

/** @type {readonly (readonly [string, string])[]} */
const PRIORITIES = [["medium", "medium"], ["urgent", "urgent"], ["high", "high"], ["low", "low"]];

/** @param {Resource<any>} list */
const addTask = (list) => formDialog("New task", [
  { name: "title", label: "What is to be done", required: true },
  { name: "description", label: "Everything one has to know", type: "long" },
  { name: "priority", label: "Priority", type: "choice", options: PRIORITIES },
  { name: "due_date", label: "Due", type: "date" },
  { name: "assignee", label: "Who does it", hint: "user, or the name of an agent, which starts at once." },
  { name: "schedule", label: "Schedule", hint: "Such as: every 5 minutes, 1d, or 0 9 * * 1-5." },
  { name: "watch_url", label: "Page to watch", hint: "The task runs when the page's text changes." },
  { name: "tags", label: "Tags", hint: "Words, separated by spaces." },
], async ({ tags, ...task }) => {
  const added = await ask("tasks.add", { task: { ...task, ...(tags ? { tags: String(tags).split(/[\s,]+/) } : {}) } });
  say(added.message);
  void list.reload();
  go(path(["tasks", added.task.id]));
}, { submit: "Add" });

/** @param {TaskInfo} task @param {(changed: any) => unknown} after */
const editTask = (task, after) => formDialog("Edit task", [
  { name: "title", label: "What is to be done", required: true, value: task.title },
  { name: "description", label: "Everything one has to know", type: "long", value: task.description ?? "" },
  { name: "priority", label: "Priority", type: "choice", options: PRIORITIES, value: task.priority },
  { name: "due_date", label: "Due", type: "date", value: task.dueDate ?? "" },
  { name: "schedule", label: "Schedule", value: task.schedule ?? "" },
], async (values) => {
  const before = /** @type {any} */ ({ title: task.title, description: task.description ?? undefined, priority: task.priority, due_date: task.dueDate ?? undefined, schedule: task.schedule ?? undefined });
  const changed = Object.fromEntries(Object.entries({ ...(task.dueDate && !values.due_date ? { due_date: "" } : {}), ...values }).filter(([name, value]) => value !== before[name]));
  if (Object.keys(changed).length) after(await ask("tasks.edit", { task_id: task.id, ...changed }));
});
