// Scheduled jobs: when they run next, how they ended, and what a person has to allow.

import { each, h } from "../core/dom.js";
import { duration, exactTime, money } from "../core/format.js";
import { go, path, route } from "../core/route.js";
import { derived, untracked } from "../core/signal.js";
import { formDialog } from "../parts/form-dialog.js";
import { Resource, ask, badge, button, confirmed, empty, header, icon, say, time } from "../parts/ui.js";

/** @import { CronJob, CronRun } from "../../tests/api.d.ts" */

const EVENTS = /** @type {any[]} */ (["run.event"]);

export default function Schedules() {
  const chosen = derived(() => route().parts[0] ?? "");
  return h("div", null, () => (chosen() ? untracked(() => oneJob(chosen.peek())) : untracked(jobList)));
}

function jobList() {
  const list = new Resource(
    async () => {
      await ask("runs.listen");
      return ask("cron.list", { includeDisabled: true, limit: 500 });
    },
    { events: EVENTS, everyMs: 15_000 },
  );
  return h(
    "div",
    { class: "screen" },
    header("Schedules", button("New schedule", () => addJob(list), { icon: "plus", kind: "primary" }), () => (list.value() ? `Times are in ${list.value()?.timezone}` : "")),
    list.view(() => [
      () => (list.value()?.jobs.length ? null : empty("No schedules yet", "A schedule runs a task for an agent at certain times, or wakes its main session.", button("New schedule", () => addJob(list), { kind: "primary" }))),
      each(() => /** @type {CronJob[]} */ (list.value()?.jobs ?? []), (job) => job.id, (job) =>
        h(
          "a",
          { class: "list-row", href: path(["schedules", job.peek().id]) },
          h("span", { class: "list-main" }, h("span", { class: "list-title" }, h("span", null, () => job().name), () => jobBadge(job())), h("span", { class: "list-sub block" }, () => `${job().scheduleHuman} · ${job().agentId}`)),
          h("span", { class: "list-side" }, () => (job().state.nextRunAtMs ? h("span", null, "next ", time(job().state.nextRunAtMs)) : h("span", null, "no next run")), icon("right")),
        ), { props: { class: "list" } }),
    ]),
  );
}

/** @param {CronJob} job */
function jobBadge(job) {
  if (job.state.runningAtMs) return badge("run", "running");
  if (job.state.paused) return badge("error", "paused after errors");
  if (!job.enabled) return badge("", "paused");
  if (!job.confirmedBy) return badge("warn", "waits for you");
  if (job.state.lastStatus === "error") return badge("error", "last run failed");
  return job.state.lastStatus === "ok" ? badge("ok", "ok") : null;
}

/** @param {string} id */
function oneJob(id) {
  const job = new Resource(() => /** @type {Promise<CronJob>} */ (ask("cron.show", { id })), { events: EVENTS, everyMs: 10_000 });
  const runs = new Resource(() => ask("cron.history", { jobId: id, limit: 100 }), { events: EVENTS, everyMs: 10_000 });
  const after = (/** @type {string} */ what) => (say(what), runs.soon(), job.reload());
  return h("div", { class: "screen" }, h("p", null, h("a", { href: "/schedules" }, "Schedules")), job.view(() => jobDetail(id, /** @type {Resource<CronJob>} */ (job), runs, after)));
}

/** @param {string} id @param {Resource<CronJob>} resource @param {Resource<any>} runs @param {(what: string) => unknown} after */
function jobDetail(id, resource, runs, after) {
  const job = () => /** @type {CronJob} */ (resource.value());
  const remove = async () => {
    if (!(await confirmed("Remove this schedule?", `"${job().name}" does not run again. Its history stays.`, "Remove"))) return;
    await ask("cron.remove", { id });
    say("Removed");
    go("/schedules");
  };
  const spec = () => /** @type {any} */ (job().spec);
  return h(
    "div",
    { class: "detail" },
    header(() => job().name, () => [
      job().confirmedBy ? null : button("Allow it", () => ask("cron.confirm", { id, seen: job().contentHash }).then(() => after("Allowed")), { kind: "primary" }),
      button("Run now", () => ask("cron.run", { id }).then(() => after("Queued")), { icon: "play" }),
      job().enabled && !job().state.paused ? button("Pause", () => ask("cron.pause", { id }).then(() => after("Paused")), { icon: "pause" }) : button("Resume", () => ask("cron.resume", { id }).then(() => after("Resumed")), { icon: "play" }),
      button("Edit", () => editJob(job(), after), { icon: "edit" }),
      button("Remove", remove, { kind: "danger" }),
    ], () => [jobBadge(job()), " ", job().scheduleHuman]),
    () => (job().confirmedBy ? null : h("div", { class: "banner quiet" }, `${job().createdBy} added this. It does not run before you allow it.`)),
    () => (job().state.paused ? h("div", { class: "banner quiet" }, `Paused: ${job().state.paused?.reason}`) : null),
    () => (job().notes ?? []).map((note) => h("p", { class: "muted" }, note)),
    h("section", { class: "card pad" }, h("h2", null, () => (spec().mode === "systemEvent" ? "Wakes the main session with" : "Task")), h("p", { class: "prose" }, () => spec().message ?? spec().text ?? "")),
    h(
      "dl",
      { class: "facts" },
      () =>
        /** @type {[string, any][]} */ ([
          ["Next runs", job().nextRuns.length ? job().nextRuns.map((run) => run.local).join(" · ") : "none"],
          ["Last run", job().state.lastRunAtMs ? [time(job().state.lastRunAtMs), job().state.lastError ? ` · ${job().state.lastError}` : ""] : "never"],
          ["Agent", job().agentId],
          ["Missed times", job().catchUp === "last" ? "the last one is run once" : "are not run"],
          ["When it overlaps", job().overlap],
        ]).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
    ),
    h("section", null, h("h2", null, "Runs"), runs.view(() => [() => (runs.value()?.runs.length ? null : h("p", { class: "muted" }, "It has not run yet.")), each(() => /** @type {CronRun[]} */ (runs.value()?.runs ?? []), (run) => run.runId ?? `${run.scheduledAtMs}${run.status}`, (run) => runRow(run, after), { props: { class: "list" } })])),
  );
}

const TONES = /** @type {Record<string, string>} */ ({ ok: "ok", error: "error", running: "run", queued: "run", parked: "warn", interrupted: "warn" });

/** @param {import("../core/signal.js").Read<CronRun>} run @param {(what: string) => unknown} after */
function runRow(run, after) {
  return h(
    "div",
    { class: "list-row" },
    h("div", { class: "list-main" }, h("div", { class: "list-title" }, () => badge(TONES[run().status] ?? "", run().status === "parked" ? "waits for you" : run().status), h("span", { class: "ellipsis" }, () => (run().error ?? run().summary ?? "").split("\n")[0])), h("div", { class: "list-sub" }, () => [exactTime(run().scheduledAtMs), run().durationMs ? duration(run().durationMs ?? 0) : "", run().costUsd ? money(run().costUsd ?? 0) : "", run().kind === "manual" ? "started by hand" : ""].filter(Boolean).join(" · "))),
    h("div", { class: "list-side" }, () => (run().sessionKey ? [h("a", { class: "btn small", href: path(["runs", run().sessionKey ?? ""]) }, "Timeline"), h("a", { class: "btn small hide-small", href: path(["chat", run().sessionKey ?? ""]) }, "Session")] : null), () => (["queued", "running", "parked"].includes(run().status) ? button("Stop", () => ask("cron.cancel", { id: run().runId }).then(() => after("Stopped")), { small: true }) : null)),
  );
}

/** @param {CronJob | null} job @returns {import("../parts/form-dialog.js").FieldInfo[]} */
function jobFields(job) {
  const schedule = /** @type {any} */ (job?.schedule ?? {});
  const spec = /** @type {any} */ (job?.spec ?? {});
  return [
    { name: "name", label: "Name", required: true, value: job?.name },
    { name: "kind", label: "When", type: "choice", value: schedule.kind ?? "cron", options: [["cron", "At times (cron)"], ["every", "Again and again"], ["at", "Once"]] },
    { name: "expr", label: "Cron expression", required: true, value: schedule.expr ?? "0 9 * * 1-5", hint: "Minute, hour, day of month, month, weekday.", when: (v) => v.kind === "cron" },
    { name: "tz", label: "Time zone", value: schedule.tz ?? Intl.DateTimeFormat().resolvedOptions().timeZone, when: (v) => v.kind === "cron" },
    { name: "everyMinutes", label: "Every how many minutes", required: true, type: "number", value: schedule.everyMs ? schedule.everyMs / 60_000 : 60, when: (v) => v.kind === "every" },
    { name: "at", label: "At", required: true, hint: "Such as: tomorrow at 9am, in 2 hours, 2027-03-05 09:00.", value: schedule.atMs ? new Date(schedule.atMs).toISOString() : "", when: (v) => v.kind === "at" },
    { name: "mode", label: "What", type: "choice", value: spec.mode ?? "task", options: [["task", "A task in a session of its own"], ["systemEvent", "A message to the main session"]] },
    { name: "text", label: "Text", type: "long", required: true, value: spec.message ?? spec.text, hint: "A task's session knows nothing but this text." },
    { name: "agentId", label: "Agent", value: job?.agentId ?? "main" },
  ];
}

/** @param {Record<string, any>} v */
function jobOf(v) {
  const schedule = v.kind === "cron" ? { kind: "cron", expr: v.expr, ...(v.tz ? { tz: v.tz } : {}) } : v.kind === "every" ? { kind: "every", everyMinutes: v.everyMinutes } : { kind: "at", at: v.at };
  const spec = v.mode === "task" ? { mode: "task", message: v.text } : { mode: "systemEvent", text: v.text };
  return { name: v.name, schedule, spec, ...(v.agentId ? { agentId: v.agentId } : {}) };
}

/** @param {Resource<any>} list */
const addJob = (list) => formDialog("New schedule", jobFields(null), async (values) => {
  const job = await ask("cron.add", jobOf(values));
  say("Added");
  void list.reload();
  go(path(["schedules", job.id]));
}, { submit: "Add" });

/** @param {CronJob} job @param {(what: string) => unknown} after */
const editJob = (job, after) => formDialog("Edit schedule", jobFields(job), async (values) => {
  const { agentId, ...patch } = jobOf(values);
  await ask("cron.update", { id: job.id, patch: agentId === job.agentId ? patch : { ...patch, agentId } });
  after("Saved");
});
