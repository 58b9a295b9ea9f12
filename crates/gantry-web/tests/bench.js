// Measures the page in a browser against a real gateway: `node bench.js [short]`. Prints one JSON object.

import { readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { launch, open } from "./support/browser.js";
import { Gateway, PAGE } from "./support/gateway.js";
import { Model } from "./support/model.js";

const short = process.argv[2] === "short";
const ROUNDS = short ? 10 : 250;
const LOG_LINES = short ? 20_000 : 1_000_000;

const html = readFileSync(join(PAGE, "index.html"), "utf8");
const named = [...new Set([...html.matchAll(/\{hash\}\/([\w./-]+\.(?:js|css))/g)].map((match) => match[1]))];
const zipped = (/** @type {string} */ file) => gzipSync(readFileSync(join(PAGE, file)), { level: 6 }).length;
const startBytes = zipped("index.html") + named.reduce((sum, file) => sum + zipped(file), 0);
const sizeOf = (/** @type {string} */ dir) => readdirSync(dir, { recursive: true }).reduce((/** @type {number} */ sum, name) => sum + (statSync(join(dir, String(name))).isFile() ? statSync(join(dir, String(name))).size : 0), 0);

const median = (/** @type {number[]} */ list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

const model = await new Model().start();
const gateway = await new Gateway({ model: model.url }).start();
const browser = await launch();
/** @type {Record<string, number>} */
const result = { startBytes, startFiles: named.length + 1, allBytes: sizeOf(PAGE) };
try {
  const page = await open(browser, gateway);
  const cdp = await page.context().newCDPSession(page);
  const send = async (/** @type {string} */ text) => {
    await page.getByLabel("Message", { exact: true }).fill(text);
    await page.locator(".send").click();
  };
  const go = (/** @type {string} */ to) =>
    page.evaluate(async (path) => {
      const base = /** @type {HTMLScriptElement} */ (document.querySelector("script[type=module]")).src.replace(/app\.js$/, "");
      (await import(`${base}core/route.js`)).go(path);
    }, to);

  // From navigation until a message can be written and sent.
  const usable = [];
  for (let n = 0; n < 7; n++) {
    await page.goto(`${gateway.url}/chat/start`);
    await page.locator(".connection.online").waitFor();
    await page.getByLabel("Message", { exact: true }).waitFor();
    usable.push(await page.evaluate(() => performance.getEntriesByName("gantry.usable")[0]?.startTime ?? NaN));
  }
  result.usableMs = median(usable);

  // Tokens at 1,000 a second: what arrived when, and the longest task of the page.
  for (const [name, slow] of /** @type {const} */ ([["stream", 1], ["streamSlow", 4]])) {
    await page.goto(`${gateway.url}/chat/${name.toLowerCase()}`);
    await page.locator(".connection.online").waitFor();
    await cdp.send("Emulation.setCPUThrottlingRate", { rate: slow });
    await page.evaluate(() => {
      const all = /** @type {number[]} */ ((/** @type {any} */ (window)).tasks = []);
      new PerformanceObserver((list) => all.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });
    });
    const text = Array.from({ length: 50 }, (_, n) => `Paragraph ${n} with **bold** words, \`code\` and so on, to be read.\n\n`).join("") + "LAST WORD";
    model.decide = () => ({ text, piece: 4, burst: 10, pieceMs: 10 });
    const began = Date.now();
    await send("go");
    await page.getByText("LAST WORD").waitFor({ timeout: 60_000 });
    result[`${name}TokensPerSecond`] = Math.round(text.length / 4 / ((Date.now() - began) / 1000));
    await page.waitForTimeout(500);
    result[`${name}LongestTaskMs`] = Math.max(0, ...(await page.evaluate(() => /** @type {any} */ (window).tasks)));
    await cdp.send("Emulation.setCPUThrottlingRate", { rate: 1 });
  }

  // A long session: many answers with many calls.
  await page.goto(`${gateway.url}/chat/long`);
  await page.locator(".connection.online").waitFor();
  model.decide = ({ messages, sinceUser }) => {
    const asked = messages.filter((m) => m.role === "assistant").length;
    if (sinceUser > 0 && asked >= ROUNDS / 10) return { text: "ROUND DONE" };
    return { text: `Round ${asked}`, calls: Array.from({ length: 40 }, (_, i) => ({ name: "Glob", input: { pattern: `none-${asked}-${i}` } })) };
  };
  for (let n = 0; n < 10; n++) {
    await send(`part ${n}`);
    await page.waitForFunction((count) => [...document.querySelectorAll(".item.text")].filter((el) => el.textContent?.includes("ROUND DONE")).length >= Math.min(count, 1) && !document.querySelector(".pulse"), n + 1, { timeout: 600_000 });
    await send("/new");
    await page.waitForTimeout(300);
  }
  result.longEntries = await page.evaluate(async () => {
    const base = /** @type {HTMLScriptElement} */ (document.querySelector("script[type=module]")).src.replace(/app\.js$/, "");
    return (await (await import(`${base}core/wire.js`)).wire.request("sessions.status", { sessionKey: "long" })).events;
  });
  const opened = [];
  for (let n = 0; n < 5; n++) {
    await go("/sessions");
    await page.locator(".toolbar").waitFor();
    opened.push(
      await page.evaluate(async () => {
        const base = /** @type {HTMLScriptElement} */ (document.querySelector("script[type=module]")).src.replace(/app\.js$/, "");
        const began = performance.now();
        (await import(`${base}core/route.js`)).go("/chat/long");
        while (document.querySelectorAll(".item").length < 100) await new Promise((done) => requestAnimationFrame(done));
        return performance.now() - began;
      }),
    );
  }
  result.openLongMs = median(opened);
  const keys = [];
  await page.getByLabel("Message", { exact: true }).focus();
  for (let n = 0; n < 15; n++) {
    keys.push(
      await page.evaluate(async () => {
        const began = performance.now();
        document.execCommand("insertText", false, "x");
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        return performance.now() - began;
      }),
    );
  }
  result.keyMs = median(keys);

  // A long log, followed to its end.
  await page.goto(`${gateway.url}/nodes/local?view=processes`);
  await page.getByLabel("Start a command in the background").waitFor();
  const heap = async () => {
    await cdp.send("HeapProfiler.collectGarbage");
    return (await cdp.send("Runtime.getHeapUsage")).usedSize;
  };
  const before = await heap();
  await page.getByLabel("Start a command in the background").fill(`seq -f 'line %.0f with some words that make it a hundred characters long, as the lines of logs are, more or less' 1 ${LOG_LINES}; echo THE END`);
  await page.keyboard.press("Enter");
  await page.locator(".log-line", { hasText: "THE END" }).waitFor({ timeout: 900_000 });
  result.logMegabytes = Math.round((LOG_LINES * 105) / 1e6);
  result.logHeapGrowthMegabytes = Math.round(((await heap()) - before) / 1e5) / 10;
} catch (error) {
  console.error(`measured so far: ${JSON.stringify(result)}`);
  throw error;
} finally {
  await browser.close();
  await gateway.stop();
  model.stop();
}
console.log(JSON.stringify(result));
