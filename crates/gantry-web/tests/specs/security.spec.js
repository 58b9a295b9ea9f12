// Login, sessions of the page, and what hostile text may not do.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { harness, send } from "../support/harness.js";
import { HOSTILE } from "../support/hostile.js";

const h = harness({ config: '[agents.careful]\nautonomy = "supervised"\n' });

test("the code of a link leaves the address, and is good once", async () => {
  const link = await h.gateway.link();
  const page = await h.open({ login: false });
  await page.goto(link);
  await page.locator(".shell").waitFor();
  assert.doesNotMatch(page.url(), /login/);
  const other = await h.open({ login: false });
  await other.goto(link);
  await other.getByText("this link was used").waitFor();
  assert.equal(await other.locator(".shell").count(), 0);
});

test("a cookie alone is not enough, and neither is a key alone", async () => {
  const page = await h.open({ login: false });
  await page.goto(await h.gateway.link());
  await page.locator(".shell").waitFor();
  const key = await page.evaluate(() => localStorage.getItem("gantry.key"));
  await page.evaluate(() => localStorage.removeItem("gantry.key"));
  await page.reload();
  await page.getByText("Open a login link").waitFor();
  await page.evaluate(() => localStorage.setItem("gantry.key", "0".repeat(32)));
  await page.goto(h.gateway.url + "/");
  await page.getByText("signed out").waitFor();
  await page.evaluate((value) => localStorage.setItem("gantry.key", value ?? ""), key);
  await page.context().clearCookies();
  await page.goto(h.gateway.url + "/");
  await page.getByText("signed out").waitFor();
});

test("no script of the page can read the cookie", async () => {
  const page = await h.open({ login: false });
  await page.goto(await h.gateway.link());
  await page.locator(".shell").waitFor();
  assert.equal(await page.evaluate(() => document.cookie), "");
  const [cookie] = await page.context().cookies();
  assert.equal(cookie.httpOnly, true);
  assert.equal(cookie.sameSite, "Strict");
});

test("revoking a session closes its open tabs at once", async () => {
  const page = await h.open({ login: false });
  await page.goto(await h.gateway.link());
  await page.locator(".shell").waitFor();
  const second = await h.tab(page, "/inbox");
  await h.gateway.run(["page", "--revoke", "all"]);
  await page.locator(".signed-out").waitFor();
  await second.locator(".signed-out").waitFor();
  assert.equal(await page.evaluate(() => localStorage.getItem("gantry.key")), null);
});

test("the policy of the page blocks HTML, code from text and foreign content", async () => {
  const page = await h.open({ login: false });
  await page.goto(await h.gateway.link());
  await page.locator(".shell").waitFor();
  const results = await page.evaluate(async () => {
    const tried = /** @type {Record<string, boolean>} */ ({});
    const blocked = (/** @type {string} */ name, /** @type {() => unknown} */ run) => {
      try {
        run();
        tried[name] = false;
      } catch {
        tried[name] = true;
      }
    };
    blocked("innerHTML", () => (document.createElement("div").innerHTML = "<b>x</b>"));
    blocked("DOMParser", () => new DOMParser().parseFromString("<b>x</b>", "text/html"));
    blocked("timer", () => setTimeout("window.ran = 1", 0));
    blocked("policy", () => /** @type {any} */ (window).trustedTypes.createPolicy("x", {}));
    tried.fetch = await fetch("http://127.0.0.1:1/").then(() => false, () => true);
    return tried;
  });
  page.faults.length = 0;
  assert.deepEqual(results, { innerHTML: true, DOMParser: true, timer: true, policy: true, fetch: true });
});

test("a page of another port cannot act with the cookie", async () => {
  const page = await h.open({ login: false });
  await page.goto(await h.gateway.link());
  await page.locator(".shell").waitFor();
  const foreign = createServer((_, response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<p>other</p>"));
  await new Promise((done) => foreign.listen(0, "127.0.0.1", () => done(null)));
  const port = /** @type {any} */ (foreign.address()).port;
  try {
    const other = await page.context().newPage();
    await other.goto(`http://127.0.0.1:${port}/`);
    const got = await other.evaluate(async (url) => {
      const call = await fetch(`${url}/v1/tools/Bash`, { method: "POST", credentials: "include", mode: "no-cors", body: '{"command":"touch stolen"}' }).then((r) => r.status, () => -1);
      const socket = await new Promise((done) => {
        const ws = new WebSocket(url.replace("http", "ws") + "/ws");
        ws.onopen = () => done("open");
        ws.onerror = () => done("refused");
      });
      return { call, socket };
    }, h.gateway.url);
    assert.equal(got.socket, "refused");
    await page.goto(h.gateway.url + "/files/local");
    await page.getByText("gantry.toml").waitFor();
    assert.equal(await page.getByText("stolen").count(), 0);
  } finally {
    foreign.close();
  }
});

test("hostile answers of a model stay text", async () => {
  const page = await h.open();
  let at = 0;
  const pieces = Array.from({ length: 10 }, (_, n) => HOSTILE.slice(n * 60, n * 60 + 60).join("\n\n")).filter(Boolean);
  h.model.decide = () => ({ text: pieces[at++] ?? "END", piece: 4000 });
  await page.goto(`${h.gateway.url}/chat/hostile`);
  for (let n = 0; n < pieces.length; n++) {
    await send(page, `piece ${n}`);
    await page.waitForFunction((count) => document.querySelectorAll(".item.text:not(.live)").length >= count, n + 1);
  }
  await page.waitForTimeout(500);
  const found = await page.evaluate(() => {
    const root = /** @type {Element} */ (document.querySelector(".items"));
    const bad = [];
    for (const el of root.querySelectorAll("*")) {
      if (/^(SCRIPT|IFRAME|OBJECT|EMBED|STYLE|LINK|META|BASE|FORM|IMG|VIDEO|AUDIO|MATH|FOREIGNOBJECT)$/i.test(el.tagName)) bad.push(el.tagName);
      for (const { name, value } of el.attributes) {
        if (/^on/i.test(name) || name === "srcdoc" || name === "style" && !/^text-align: \w+;$/.test(value)) bad.push(`${name}=${value}`);
        if ((name === "href" || name === "src" || name === "xlink:href") && !/^(https?:|mailto:)/.test(value)) bad.push(`${name}=${value}`);
      }
    }
    return bad;
  });
  assert.deepEqual(found, []);
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).pwned), undefined);
  // Nothing of an answer covers the frame around it.
  assert.equal(await page.evaluate(() => document.elementFromPoint(60, 60)?.closest(".rail") !== null), true);
});

test("hostile names and texts stay text on every screen", async () => {
  const page = await h.open();
  await page.goto(h.gateway.url + "/chat/names");
  const made = [];
  for (const text of HOSTILE.filter((_, n) => n % 12 === 0)) {
    const short = text.slice(0, 150).replaceAll("\0", "") || "x";
    made.push(
      h.api(page, "tasks.add", { task: { title: short, description: text } }).catch(() => {}),
      h.api(page, "cron.add", { name: short.slice(0, 80), enabled: false, schedule: { kind: "every", everyMinutes: 600 }, spec: { mode: "task", message: text || "x" } }).catch(() => {}),
      h.api(page, "tool.call", { tool: "Bash", input: { command: `printf '%s' ${JSON.stringify(text).replaceAll("$", "").replaceAll("`", "")}` } }).catch(() => {}),
    );
  }
  await Promise.all(made);
  for (const path of ["/tasks", "/schedules", "/audit", "/runs", "/sessions", "/usage", "/files/local", "/inbox"]) {
    await h.go(page, path);
    await page.waitForTimeout(400);
    const bad = await page.evaluate(() => [...document.querySelectorAll("main *")].filter((el) => /^(SCRIPT|IFRAME|STYLE|OBJECT)$/.test(el.tagName) || [...el.attributes].some(({ name }) => /^on/i.test(name))).map((el) => el.tagName));
    assert.deepEqual(bad, [], path);
  }
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).pwned), undefined);
});

test("invisible and turning characters of a question are made visible", async () => {
  const page = await h.open();
  await page.goto(`${h.gateway.url}/chat/agent:careful:unseen`);
  await send(page, `call Bash ${JSON.stringify({ command: "echo safe\u202e mr\u200b -rf" })}`);
  await page.locator(".question").waitFor();
  const text = (await page.locator(".question").textContent()) ?? "";
  assert.match(text, /⟨U\+202E⟩/);
  assert.match(text, /⟨U\+200B⟩/);
  await page.locator('.question [data-answer="no"]').click();
});

test("a link whose text names another host says where it leads", async () => {
  const page = await h.open();
  h.model.decide = () => ({ text: "See [https://bank.example](https://evil.example/x) and [js](javascript:alert(1))." });
  await page.goto(`${h.gateway.url}/chat/links`);
  await send(page, "go");
  await page.locator(".real-host", { hasText: "evil.example" }).waitFor();
  assert.equal(await page.locator(".item.text a").count(), 1);
  assert.equal(await page.locator(".item.text a").getAttribute("rel"), "noopener noreferrer");
});

test("a token is shown once, and a secret never", async () => {
  const page = await h.open({ at: "/settings/secrets" });
  await page.getByRole("button", { name: "New secret" }).first().click();
  await page.getByLabel("Name").fill("API");
  await page.getByLabel("Hosts").fill("api.example.com");
  await page.getByLabel("Value").fill("very-secret-value-1");
  await page.getByRole("button", { name: "Save" }).click();
  await page.locator(".list-row", { hasText: "api.example.com" }).waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.outerHTML.includes("very-secret-value-1") || [...document.querySelectorAll("input")].some((i) => i.value.includes("very-secret"))), false);
  await h.go(page, "/settings/tokens");
  await page.getByRole("button", { name: "New token" }).first().click();
  await page.getByLabel("Name").fill("ci");
  await page.getByRole("button", { name: "Make it" }).click();
  const token = (await page.locator("dialog pre").textContent()) ?? "";
  assert.ok(token.length > 20);
  await page.keyboard.press("Escape");
  await page.locator(".list-row", { hasText: "ci" }).waitFor();
  assert.equal(await page.evaluate((text) => document.documentElement.outerHTML.includes(text), token), false);
});
