// Every screen at desktop and phone size, light and dark: it opens, fits, and is accessible.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, drawn, fits, harness, send, SOAK } from "../support/harness.js";

// The channel's secret is not stored, so its account has a problem to show.
const h = harness({ config: '[agents.careful]\nautonomy = "supervised"\n[channels.webhook.default]\nsecret = "secret:HOOK"\n' });

/** @type {{ job: string, task: string, pipeline: string, run: string } | null} */
let made = null;

/** Something for each screen to show. @param {import("../support/harness.js").WatchedPage} page */
async function fill(page) {
  if (made) return made;
  await send(page, 'call Bash {"command":"ls -la; exit 2"}');
  await page.getByText("The tool answered").waitFor();
  await page.goto(h.gateway.url + "/chat/agent:careful:asks");
  await send(page, 'call Bash {"command":"make deploy"}');
  await page.locator(".question").waitFor();
  const job = await h.api(page, "cron.add", { name: "Morning report", schedule: { kind: "cron", expr: "0 9 * * 1-5" }, spec: { mode: "task", message: "Summarise what changed" } });
  await h.api(page, "cron.run", { id: job.id });
  const task = await h.api(page, "tasks.add", { task: { title: "Renew the certificate", priority: "high", due_date: "2030-01-01", tags: ["web"] } });
  const pipeline = await h.api(page, "pipelines.add", { definition: { name: "Weekly report", on_failure: "stop", steps: [{ id: "collect", task: "Collect" }, { id: "disk", tool: "Bash", input: { command: "exit 3" } }, { id: "write", task: "Write {{collect.result}}", input_from: ["collect", "disk"] }] } });
  const run = await h.api(page, "pipelines.run", { pipelineId: pipeline.id });
  await h.api(page, "pipelines.status", { runId: run.outcome.runId, waitMs: 20_000 });
  made = { job: job.id, task: task.task.id, pipeline: pipeline.id, run: run.outcome.runId };
  return made;
}

/** @type {[name: string, path: (m: NonNullable<typeof made>) => string, shows: string][]} */
const SCREENS = [
  ["chat", () => "/", "The tool answered"],
  ["chat with a question", () => "/chat/agent:careful:asks", "make deploy"],
  ["inbox", () => "/inbox", "make deploy"],
  ["sessions", () => "/sessions", "asks"],
  ["machines", () => "/nodes", "local"],
  ["machine", () => "/nodes/local", "Run"],
  ["processes", () => "/nodes/local?view=processes", "Nothing runs here"],
  ["machine log", () => "/nodes/local?view=log", "Wrap"],
  ["machine tools", () => "/nodes/local?view=tools", "Bash"],
  ["about a machine", () => "/nodes/local?view=about", "Capabilities"],
  ["several machines", () => "/nodes/all", "all machines"],
  ["tools", () => "/tools", "Bash"],
  ["tool", () => "/tools/Bash", "gantry call Bash"],
  ["files", () => "/files/local", "gantry.toml"],
  ["storage", () => "/files/gsv", "gsv"],
  ["runs", () => "/runs", "Weekly report"],
  ["timeline", () => "/runs/main", "Bash"],
  ["schedules", () => "/schedules", "Morning report"],
  ["schedule", (m) => `/schedules/${m.job}`, "Summarise what changed"],
  ["tasks", () => "/tasks", "Renew the certificate"],
  ["task", (m) => `/tasks/${m.task}`, "Renew the certificate"],
  ["pipelines", () => "/pipelines", "Weekly report"],
  ["pipeline", (m) => `/pipelines/${m.pipeline}`, "collect"],
  ["pipeline run", (m) => `/pipelines/${m.pipeline}/runs/${m.run}`, "failed"],
  ["channels", () => "/channels", "webhook:default"],
  ["outbox", () => "/channels/outbox", "Morning report"],
  ["audit", () => "/audit", "local__Bash"],
  ["usage", () => "/usage", "lab/scripted-1"],
  ["policy", () => "/settings/policy", "Try it"],
  ["MCP servers", () => "/settings/mcp", "No MCP servers"],
  ["Google", () => "/settings/google", "Google is not configured"],
  ["API profiles", () => "/settings/apis", "No profiles"],
  ["secrets", () => "/settings/secrets", "No secrets"],
  ["configuration", () => "/settings/configuration", "models.balanced"],
  ["checks", () => "/settings/checks", "ok"],
  ["agents", () => "/settings/agents", "lab/scripted-1"],
  ["grants", () => "/settings/grants", "No grants"],
  ["tokens", () => "/settings/tokens", "No tokens"],
  ["browsers", () => "/settings/browsers", "this one"],
  ["appearance", () => "/settings/appearance", "Colours"],
  ["about", () => "/settings/about", "Instance"],
  ["unknown page", () => "/settings/nothing", "Agents and models"],
];

const LOOKS = /** @type {const} */ ([["desktop", false], ["phone", true], ["desktop", true], ["phone", false], ["tablet", false]]);

for (const [size, dark] of SOAK ? LOOKS : LOOKS.slice(0, 2)) {
  test(`every screen opens, fits and is accessible (${size}, ${dark ? "dark" : "light"})`, async () => {
    const page = await h.open({ size, dark });
    const m = await fill(page);
    /** @type {string[]} */
    const failures = [];
    for (const [name, path, shows] of SCREENS) {
      try {
        await h.go(page, path(m));
        // Lists of a phone have all texts, but not all are in sight.
        await page.locator("main").getByText(shows).first().waitFor({ state: "attached", timeout: 10_000 });
        await drawn(page);
        await fits(page, name);
        await accessible(page, name);
      } catch (error) {
        failures.push(`${name}: ${/** @type {any} */ (error).actual ?? /** @type {Error} */ (error).message}`);
      }
    }
    assert.deepEqual(failures, []);
  });
}

test("the palette goes to a screen, and ? lists the keys", async () => {
  const page = await h.open();
  await page.waitForFunction(() => document.querySelector(".shell"));
  await page.waitForTimeout(300);
  await page.keyboard.press("Control+k");
  await page.getByRole("combobox").fill("sched");
  await accessible(page, "palette");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Schedules" }).waitFor();
  assert.match(page.url(), /\/schedules$/);
  await page.locator("main").focus();
  await page.keyboard.press("?");
  await page.getByText("Go to Machines").waitFor();
  await page.keyboard.press("Escape");
  await page.goBack();
  assert.doesNotMatch(page.url(), /schedules/);
  // The outbox is below the path of the channels, and each has an entry and a key of its own.
  for (const [key, name, path] of [["o", "Outbox", "/channels/outbox"], ["h", "Channels", "/channels"]]) {
    await page.locator("main").focus();
    await page.keyboard.press("g");
    await page.keyboard.press(key);
    await page.getByRole("heading", { name }).waitFor();
    assert.equal(new URL(page.url()).pathname, path);
    assert.deepEqual(await page.locator(".rail [aria-current=page]").allTextContents(), [name]);
  }
});

test("a screen that was left does nothing more", async () => {
  const page = await h.open({ at: "/chat/left" });
  await page.getByLabel("Message", { exact: true }).waitFor();
  for (const path of ["/tasks/never", "/schedules/never", "/runs", "/settings/never", "/inbox"]) {
    await h.go(page, path);
    await page.waitForTimeout(200);
  }
  const { sessions } = await h.api(page, "sessions.list", { limit: 100 });
  assert.equal(sessions.some((/** @type {any} */ session) => session.sessionKey.endsWith(":never")), false);
});

test("a lost connection leaves the screen as it is", async () => {
  const page = await h.open({ at: "/tools/Bash" });
  await page.getByLabel("command").fill("echo kept");
  await h.gateway.restart();
  await page.getByText("Connected", { exact: true }).waitFor({ timeout: 20_000 });
  await page.waitForTimeout(500);
  assert.equal(await page.getByLabel("command").inputValue(), "echo kept");
});
