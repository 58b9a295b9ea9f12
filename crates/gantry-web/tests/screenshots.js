// Makes the pictures of the documentation: `node screenshots.js DIRECTORY`. It starts a gateway of its own with a
// scripted model, so the pictures show the real page with invented work.

import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { open, launch } from "./support/browser.js";
import { Gateway } from "./support/gateway.js";
import { Model } from "./support/model.js";

const out = resolve(process.argv[2] ?? "screenshots");
mkdirSync(out, { recursive: true });

const ANSWER = `The build fails in **one** place. \`parse_date\` rejects dates without a zone:

| case | result |
| --- | --- |
| \`2026-03-05T09:00Z\` | ok |
| \`2026-03-05 09:00\` | rejected |

I would read the zone from the configuration, and fall back to UTC:

\`\`\`rust
let zone = config.zone.unwrap_or(Zone::UTC);
\`\`\`

Shall I make the change and run the tests?`;

const model = await new Model().start();
/** @param {import("./support/model.js").Asked} asked */
model.decide = ({ lastUser, sinceUser }) => {
  if (lastUser.includes("build")) {
    if (sinceUser === 0) return { thinking: "First I look at the failing test.", text: "I look at the test first.", calls: [{ name: "Grep", input: { pattern: "parse_date", path: "." } }, { name: "Bash", input: { command: "ls -la && exit 1" } }] };
    return { text: ANSWER };
  }
  if (lastUser.includes("deploy") && sinceUser === 0) return { text: "The tests pass. I deploy now.", calls: [{ name: "Bash", input: { command: "make deploy TARGET=staging\nmake smoke-test" } }] };
  return { text: "Three issues were opened and two were closed since yesterday. Nothing needs you today." };
};
const gateway = await new Gateway({ model: model.url, config: '[agents.careful]\nautonomy = "supervised"\n' }).start();
writeFileSync(join(gateway.dir, "dates.rs"), "fn parse_date() {}\n");
const browser = await launch();
try {
  const page = await open(browser, gateway);
  const inPage = (/** @type {"wire" | "go"} */ what, /** @type {any} */ first, /** @type {any} */ second = {}) =>
    page.evaluate(
      async ([kind, a, b]) => {
        const base = /** @type {HTMLScriptElement} */ (document.querySelector("script[type=module]")).src.replace(/app\.js$/, "");
        if (kind === "go") return (await import(`${base}core/route.js`)).go(a);
        return (await import(`${base}core/wire.js`)).wire.request(a, b);
      },
      /** @type {const} */ ([what, first, second]),
    );
  const send = async (/** @type {string} */ text) => {
    await page.getByLabel("Message", { exact: true }).fill(text);
    await page.locator(".send").click();
  };
  await gateway.node("laptop");
  await inPage("wire", "nodes.tag", { id: "laptop", tags: ["build"] });
  await send("Why does the build fail?");
  await page.getByText("Shall I make the change").waitFor();
  await inPage("go", "/chat/agent:careful:release");
  await send("Please deploy to staging");
  await page.locator(".question").waitFor();
  const job = await inPage("wire", "cron.add", { name: "Morning report", schedule: { kind: "cron", expr: "0 9 * * 1-5" }, spec: { mode: "task", message: "Summarise the issues that changed since yesterday." } });
  await inPage("wire", "cron.run", { id: job.id });
  for (const task of [{ title: "Renew the certificate", priority: "high", due_date: "2030-03-05", tags: ["web"] }, { title: "Read the draft of the contract", description: "Page 4 has the new terms." }, { title: "Book the train", priority: "low" }]) await inPage("wire", "tasks.add", { task });
  const pipeline = await inPage("wire", "pipelines.add", { definition: { name: "Weekly report", on_failure: "continue", steps: [{ id: "issues", task: "Collect the issues of the week" }, { id: "disk", tool: "Bash", input: { command: "df -h /" } }, { id: "costs", tool: "Bash", input: { command: "cat costs.csv" } }, { id: "write", task: "Write the report {{issues.result}}", input_from: ["issues", "disk"] }, { id: "check", task: "Check the numbers", input_from: ["write", "costs"] }] } });
  const run = await inPage("wire", "pipelines.run", { pipelineId: pipeline.id });
  await inPage("wire", "pipelines.status", { runId: run.outcome.runId, waitMs: 20_000 });

  const shots = /** @type {[string, string, string, (() => Promise<unknown>)?][]} */ ([
    ["chat", "/chat/main", "Shall I make the change", () => page.locator(".call-line").nth(1).click()],
    ["approval", "/chat/agent:careful:release", "make smoke-test"],
    ["inbox", "/inbox", "make smoke-test"],
    ["sessions", "/sessions", "careful"],
    ["machine", "/nodes/local", "Run", async () => {
      await page.getByLabel("Command", { exact: true }).fill("printf '\\033[32mok\\033[0m   dates\\n\\033[31mfail\\033[0m zones\\n'; ls");
      await page.keyboard.press("Enter");
      await page.locator(".log-line", { hasText: "dates.rs" }).waitFor();
    }],
    ["tool", "/tools/Read", "gantry call", () => page.getByLabel("path").fill("dates.rs")],
    ["files", "/files/local", "dates.rs"],
    ["timeline", "/runs/main", "Grep", () => page.locator(".bar-row").nth(2).click()],
    ["schedule", `/schedules/${job.id}`, "Summarise"],
    ["tasks", "/tasks", "Renew"],
    ["pipeline-run", `/pipelines/${pipeline.id}/runs/${run.outcome.runId}`, "issues"],
    ["audit", "/audit", "local__Bash"],
    ["usage", "/usage", "Total"],
  ]);
  const take = async (/** @type {string} */ suffix, /** @type {readonly string[] | null} */ only) => {
    for (const [name, path, shows, act] of shots) {
      if (only && !only.includes(name)) continue;
      await inPage("go", path);
      await page.locator("main").getByText(shows).first().waitFor({ state: "attached" });
      if (act && !suffix.startsWith("-phone")) await act();
      await page.waitForTimeout(700);
      await page.screenshot({ path: join(out, `${name}${suffix}.png`) });
    }
  };
  await page.setViewportSize({ width: 1280, height: 720 });
  await take("", null);
  await page.emulateMedia({ colorScheme: "dark" });
  await take("-dark", ["chat", "usage"]);
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 390, height: 844 });
  await take("-phone", process.env.ALL ? null : ["chat", "inbox", "sessions"]);
} finally {
  await browser.close();
  await gateway.stop();
  model.stop();
}
