// What users of comparable pages suffered from: one test each.

import assert from "node:assert/strict";
import { test } from "node:test";
import { visit } from "../support/browser.js";
import { harness, send } from "../support/harness.js";

// The agent `careful` asks before every command.
const h = harness({ config: '[agents.careful]\nautonomy = "supervised"\n' });
const ASKS = (/** @type {string} */ command) => `call Bash ${JSON.stringify({ command })}`;
let names = 0;
const asking = () => `agent:careful:s${Date.now()}-${++names}`;
const session = () => `s${Date.now()}-${++names}`;

/** A promise that the test resolves. */
function gate() {
  /** @type {() => void} */
  let open = () => {};
  const promise = /** @type {Promise<void>} */ (new Promise((done) => (open = done)));
  return { promise, open };
}

/** @param {import("../support/harness.js").WatchedPage} page @param {string} key */
const chat = (page, key) => visit(page, h.gateway, `/chat/${key}`);

/** Many items, quickly: answers with many calls. @param {import("../support/harness.js").WatchedPage} page @param {number} rounds */
async function long(page, rounds) {
  h.model.decide = ({ sinceUser, messages }) => {
    const asked = messages.filter((m) => m.role === "assistant").length;
    if (sinceUser > 0 && asked >= rounds) return { text: "END OF IT" };
    return { text: `Round ${asked}`, calls: Array.from({ length: 40 }, (_, i) => ({ name: "Glob", input: { pattern: `none-${asked}-${i}` } })) };
  };
  await send(page, "many calls");
  await page.getByText("END OF IT").waitFor({ timeout: 60_000 });
}

test("1: a long session shows a window of its newest items, and pages both ways", async () => {
  const page = await h.open();
  await chat(page, session());
  await long(page, 9);
  await page.reload();
  await page.getByText("END OF IT").waitFor();
  assert.ok((await page.locator(".item").count()) <= 300);
  const newest = await page.locator(".item").last().textContent();
  await page.locator(".transcript").hover();
  for (let n = 0; n < 60 && !(await page.getByText("none-0-0", { exact: false }).count()); n++) {
    await page.mouse.wheel(0, -3000);
    await page.waitForTimeout(60);
  }
  await page.getByText("many calls").first().waitFor({ state: "attached" });
  assert.ok((await page.locator(".item").count()) <= 300);
  await page.locator(".newer button").click();
  await page.getByText("END OF IT").waitFor();
  assert.equal(await page.locator(".item").last().textContent(), newest);
});

test("2: a huge result does not stop the page", async () => {
  const page = await h.open();
  await chat(page, session());
  await send(page, 'call Bash {"command":"seq 1 60000"}');
  await page.getByText("The tool answered").waitFor();
  const began = Date.now();
  await page.locator(".call-line").first().click();
  await page.locator(".call-details pre").last().waitFor();
  assert.ok(Date.now() - began < 1500);
  assert.ok(((await page.locator(".call-details").textContent()) ?? "").length < 20_000);
});

test("3: while text streams, what is settled is not drawn again", async () => {
  const page = await h.open();
  await chat(page, session());
  const hold = gate();
  h.model.decide = () => ({ text: "First paragraph.\n\nSecond paragraph.\n\nThird, which grows and grows.", piece: 8, hold: hold.promise, holdAfter: 48 });
  await send(page, "go");
  await page.getByText("Second paragraph.").waitFor();
  await page.waitForTimeout(200);
  await page.evaluate(() => {
    const md = document.querySelector(".item.text .md");
    if (md?.firstElementChild) /** @type {any} */ (md.firstElementChild).kept = true;
  });
  hold.open();
  await page.getByText("grows and grows").waitFor();
  await page.locator(".item.text:not(.live)").waitFor();
  await page.waitForTimeout(300);
  assert.equal(await page.evaluate(() => /** @type {any} */ (document.querySelector(".item.text .md")?.firstElementChild)?.kept), true);
});

test("4: a fast answer is shown when it is generated, not minutes later", async () => {
  const page = await h.open();
  await chat(page, session());
  h.model.decide = () => ({ text: "word ".repeat(3000) + "LAST", piece: 5 });
  const began = Date.now();
  await send(page, "go");
  await page.getByText("LAST").waitFor();
  assert.ok(Date.now() - began < 8000);
});

test("6: scrolling up is not pulled down again", async () => {
  const page = await h.open();
  await chat(page, session());
  const hold = gate();
  h.model.decide = () => ({ text: Array.from({ length: 80 }, (_, i) => `Line ${i}\n\n`).join(""), hold: hold.promise, holdAfter: 500, piece: 20 });
  await send(page, "go");
  await page.getByText("Line 40").first().waitFor();
  await page.locator(".transcript").hover();
  await page.mouse.wheel(0, -400);
  await page.waitForTimeout(200);
  const top = await page.locator(".transcript").evaluate((el) => el.scrollTop);
  hold.open();
  await page.getByText("Line 79").waitFor({ state: "attached" });
  await page.waitForTimeout(300);
  assert.ok(Math.abs((await page.locator(".transcript").evaluate((el) => el.scrollTop)) - top) < 5);
  await page.locator(".newer button").click();
  await page.waitForTimeout(200);
  assert.ok((await page.locator(".transcript").evaluate((el) => el.scrollHeight - el.scrollTop - el.clientHeight)) < 5);
});

test("7: a long answer can be read from its beginning", async () => {
  const page = await h.open();
  await page.evaluate(() => localStorage.setItem("gantry.reading", "head"));
  await chat(page, session());
  h.model.decide = () => ({ text: "HEAD OF IT\n\n" + Array.from({ length: 90 }, (_, i) => `Line ${i}\n\n`).join(""), piece: 40, pieceMs: 4 });
  await send(page, "go");
  await page.getByText("Line 60").first().waitFor({ state: "attached" });
  const box = await page.getByText("HEAD OF IT").boundingBox();
  assert.ok(box && box.y > 0 && box.y < 400, JSON.stringify(box));
});

test("8: reading again shows no loading state", async () => {
  const page = await h.open({ at: "/sessions" });
  await page.locator(".toolbar").waitFor();
  await page.evaluate(() => {
    /** @type {any} */ (window).seen = 0;
    new MutationObserver(() => document.querySelector(".loading") && /** @type {any} */ (window).seen++).observe(document.body, { childList: true, subtree: true });
  });
  await page.waitForTimeout(5600);
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).seen), 0);
});

test("9 and 11: after a lost connection the page has everything, without a reload", async () => {
  const page = await h.open();
  const key = session();
  await chat(page, key);
  await send(page, "before");
  await page.getByText("You said: before").or(page.getByText("before").nth(1)).first().waitFor();
  await h.gateway.halt();
  await page.getByText("Not connected").waitFor();
  await h.gateway.start();
  await h.gateway.run(["chat", "--session", key, "while away"]).catch(() => {});
  await page.getByText("Connected", { exact: true }).waitFor({ timeout: 20_000 });
  await page.locator(".item.user", { hasText: "while away" }).waitFor({ timeout: 20_000 });
  await send(page, "after");
  await page.locator(".item.text", { hasText: "after" }).waitFor();
  const shown = await page.locator(".item.user .plain").allTextContents();
  assert.deepEqual(shown, ["before", "while away", "after"]);
});

test("12 and 13: an open question survives a reload, an answered one is not asked again", async () => {
  const page = await h.open();
  await chat(page, asking());
  await send(page, ASKS("echo one"));
  await page.locator(".question").waitFor();
  await page.reload();
  await page.locator(".question", { hasText: "echo one" }).waitFor();
  await page.locator('.question [data-answer="no"]').click();
  await page.locator(".question").waitFor({ state: "detached" });
  await page.getByText("Denied by").waitFor();
  await page.reload();
  await page.getByText("Denied by").waitFor();
  await page.waitForTimeout(300);
  assert.equal(await page.locator(".question").count(), 0);
});

test("14: the buttons of a tall question stay in sight, on a phone too", async () => {
  const page = await h.open({ size: "phone" });
  await chat(page, asking());
  await send(page, ASKS(`echo ${"long ".repeat(400)}`));
  const yes = page.locator('.question [data-answer="yes"]');
  await yes.waitFor();
  await page.waitForTimeout(500);
  const box = await yes.boundingBox();
  assert.ok(box && box.y + box.height <= 844 && box.height >= 44, JSON.stringify(box));
  await page.locator(".question-body").evaluate((el) => (el.scrollTop = 300));
  assert.deepEqual(await yes.boundingBox(), box);
  await page.locator('.question [data-answer="no"]').click();
});

test("15: only buttons answer", async () => {
  const page = await h.open();
  await chat(page, asking());
  await send(page, ASKS("echo two"));
  await page.locator(".question").waitFor();
  await page.locator(".question").hover();
  await page.mouse.wheel(0, 500);
  for (const key of ["Escape", "y", "n", "Enter"]) await page.locator(".question-body").press(key);
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute("data-answer") ?? ""), "");
  await page.waitForTimeout(300);
  assert.equal(await page.locator(".question").count(), 1);
  await page.locator('.question [data-answer="yes"]').click();
  await page.getByText("The tool answered").waitFor();
});

test("buttons of a question sleep for a moment after they appear", async () => {
  const page = await h.open();
  await chat(page, asking());
  await page.evaluate(() => {
    const times = /** @type {any} */ ((/** @type {any} */ (window)).times = {});
    setInterval(() => {
      const yes = /** @type {HTMLButtonElement | null} */ (document.querySelector('[data-answer="yes"]'));
      if (yes) times.seen ??= performance.now();
      if (yes && !yes.disabled) times.awake ??= performance.now();
    }, 5);
  });
  await send(page, ASKS("echo three"));
  await page.locator('[data-answer="yes"]:not([disabled])').waitFor();
  const { seen, awake } = await page.evaluate(() => /** @type {any} */ (window).times);
  assert.ok(awake - seen >= 390, `${awake - seen} ms`);
  await page.locator('[data-answer="no"]').click();
});

test("16 and 17: a question of any session is counted on every screen, and answered in the inbox", async () => {
  const page = await h.open({ size: "phone" });
  const key = asking();
  await chat(page, key);
  await send(page, ASKS("echo four"));
  await page.locator(".question").waitFor();
  await visit(page, h.gateway, "/sessions");
  await page.locator(".bottom-bar .count").getByText("1").waitFor();
  assert.match(await page.title(), /^\(1\)/);
  await page.locator(".bottom-bar").getByText("Inbox").click();
  await page.locator(".question", { hasText: "echo four" }).locator('[data-answer="yes"]').click();
  await page.getByText("Nothing waits for you").waitFor();
  await chat(page, key);
  await page.getByText("The tool answered").waitFor();
});

test("17: always is given with a scope, and listed as a grant", async () => {
  const page = await h.open();
  await chat(page, asking());
  await send(page, ASKS("echo five"));
  await page.locator('.question [data-answer="always"]').click();
  await page.locator(".always button[data-offer]").first().click();
  await page.getByText("The tool answered").waitFor();
  await visit(page, h.gateway, "/settings/grants");
  await page.locator(".list-row").first().waitFor();
  await page.getByRole("button", { name: "Revoke" }).first().click();
  await page.getByText("No grants").waitFor();
});

test("18 and 19: a message during a run is accepted at once, and sessions can be switched", async () => {
  const page = await h.open();
  const [one, two] = [session(), session()];
  await chat(page, one);
  const hold = gate();
  let turns = 0;
  h.model.decide = ({ lastUser }) => (lastUser === "slow" ? { text: "beginning and end", hold: hold.promise, holdAfter: 10 } : { text: `answer ${++turns} to ${lastUser}` });
  await send(page, "slow");
  await page.getByText("beginning").waitFor();
  await send(page, "second");
  await page.locator(".item.user", { hasText: "second" }).waitFor();
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "");
  await chat(page, two);
  await send(page, "other");
  await page.getByText("to other").waitFor();
  hold.open();
  await page.goBack();
  await page.getByText("to second").waitFor();
  assert.equal(await page.locator(".item.user", { hasText: "second" }).count(), 1);
});

test("20: a draft stays with its session, and is never sent twice", async () => {
  const page = await h.open();
  const [one, two] = [session(), session()];
  await chat(page, one);
  await page.getByLabel("Message", { exact: true }).fill("my draft");
  await chat(page, two);
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "");
  await chat(page, one);
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "my draft");
  await h.gateway.halt();
  await page.getByText("Not connected").waitFor();
  assert.equal(await page.locator(".send").isDisabled(), true);
  await page.getByLabel("Message", { exact: true }).press("Enter");
  await page.getByText("Not sent").waitFor();
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "my draft");
  await h.gateway.start();
  await page.getByText("Connected", { exact: true }).waitFor({ timeout: 20_000 });
  await page.getByLabel("Message", { exact: true }).press("Enter");
  await page.locator(".item.user").waitFor();
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "");
  await page.reload();
  await page.locator(".item.user").waitFor();
  assert.equal(await page.locator(".item.user").count(), 1);
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "");
});

test("21: nothing looks busy after the run has ended", async () => {
  const page = await h.open();
  await chat(page, session());
  const hold = gate();
  h.model.decide = () => ({ text: "some text that is stopped", hold: hold.promise, holdAfter: 10 });
  await send(page, "go");
  await page.getByText("some text").waitFor();
  await page.getByRole("button", { name: "Stop the run" }).click();
  await page.getByText("Stopped by").waitFor();
  hold.open();
  await page.waitForTimeout(300);
  assert.equal(await page.locator(".pulse, .call.running, .call.writing, .item.live").count(), 0);
});

test("22: a page of another version says so, and offers one button", async () => {
  const page = await h.open({ login: false });
  let connections = 0;
  await page.routeWebSocket(/\/ws$/, (socket) => {
    const server = socket.connectToServer();
    const mine = ++connections;
    socket.onMessage((message) => server.send(message));
    server.onMessage((message) => socket.send(mine > 1 ? String(message).replace(/("server":\{[^}]*"version":")[^"]*/, "$19.9.9") : message));
    if (mine === 1) setTimeout(() => void socket.close({ code: 1001 }), 2500);
  });
  await page.goto(await h.gateway.link());
  await page.locator(".banner", { hasText: "updated" }).waitFor({ timeout: 15_000 });
  assert.equal(await page.locator(".shell").evaluate((el) => /** @type {HTMLElement} */ (el).inert), true);
  await page.getByRole("button", { name: "Reload" }).waitFor();
});

test("23: an answer that a later one overtook is discarded", async () => {
  const page = await h.open();
  const value = await page.evaluate(async () => {
    const base = /** @type {HTMLScriptElement} */ (document.querySelector("script[type=module]")).src.replace(/app\.js$/, "");
    const { Resource } = await import(`${base}parts/ui.js`);
    /** @type {((value: string) => void)[]} */
    const waiting = [];
    const resource = new Resource(() => new Promise((done) => waiting.push(done)));
    const first = resource.reload();
    const second = resource.reload();
    waiting[waiting.length - 1]("new");
    await second;
    waiting[waiting.length - 2]("old");
    await first;
    return resource.value.peek();
  });
  assert.equal(value, "new");
});

test("24: Enter does not send while an input method composes", async () => {
  const page = await h.open();
  await chat(page, session());
  const area = page.getByLabel("Message", { exact: true });
  await area.fill("にほん");
  await area.evaluate((el) => el.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, isComposing: true, bubbles: true, cancelable: true })));
  await page.waitForTimeout(300);
  assert.equal(await area.inputValue(), "にほん");
  assert.equal(await page.locator(".item.user").count(), 0);
});

test("25: on a phone Enter starts a new line, and nothing scrolls sideways", async () => {
  const page = await h.open({ size: "phone" });
  await chat(page, session());
  const area = page.getByLabel("Message", { exact: true });
  await area.fill("one");
  await area.press("Enter");
  await area.pressSequentially("two");
  assert.equal(await area.inputValue(), "one\ntwo");
  await send(page, `${"wide".repeat(200)}`);
  await page.locator(".item.text").waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth && (document.querySelector(".transcript")?.scrollWidth ?? 0) <= innerWidth), true);
});

test("26: a screen reader hears beginnings and ends, not tokens", async () => {
  const page = await h.open();
  await chat(page, session());
  assert.equal(await page.locator(".items").getAttribute("aria-live"), "off");
  await page.evaluate(() => {
    const said = /** @type {string[]} */ ((/** @type {any} */ (window)).said = []);
    new MutationObserver(() => {
      const text = document.querySelector('.conversation [role="status"].unseen')?.textContent ?? "";
      if (said[said.length - 1] !== text) said.push(text);
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  h.model.decide = () => ({ text: "many words in this answer ".repeat(20), piece: 6, pieceMs: 2 });
  await send(page, "go");
  await page.locator(".item.text:not(.live)").waitFor();
  await page.waitForTimeout(200);
  const said = (await page.evaluate(() => /** @type {any} */ (window).said)).filter(Boolean);
  assert.ok(said.length <= 3 && said.includes("The agent answered"), JSON.stringify(said));
});

test("28: optional fields that are not filled in are left out", async () => {
  const page = await h.open({ at: "/tools/Bash" });
  await page.getByLabel("command").fill("echo done");
  await page.locator(".snippet").first().getByText(`gantry call Bash '{"command":"echo done"}'`).waitFor();
  await page.getByRole("button", { name: "Run" }).click();
  await page.locator("section[aria-label=Result]").getByText("done", { exact: true }).last().waitFor();
  await page.getByRole("button", { name: "JSON" }).first().click();
  assert.deepEqual(JSON.parse(await page.getByLabel("Input as JSON").inputValue()), { command: "echo done" });
});

test("28: each violation stands at its field", async () => {
  const page = await h.open({ at: "/tools/Bash" });
  await page.getByLabel("command").fill("echo");
  await page.getByLabel("timeout (optional)").fill("1.5");
  await page.getByRole("button", { name: "Run" }).click();
  await page.locator('[data-path="/timeout"]').getByText("whole number").waitFor();
  await page.getByLabel("timeout (optional)").fill("-7");
  await page.getByRole("button", { name: "Run" }).click();
  await page.locator('[data-path="/timeout"] .field-problem').waitFor();
});

test("29: a log is searched and wrapped, and the choice is remembered", async () => {
  const page = await h.open({ at: "/nodes/local" });
  await page.getByLabel("Command", { exact: true }).fill("seq 1 500");
  await page.keyboard.press("Enter");
  await page.locator(".log-line", { hasText: /^500$/ }).waitFor();
  await page.getByLabel(/Search in/).fill("49");
  await page.locator(".log-bar").getByText(/^1 of 15$/).waitFor();
  await page.getByRole("button", { name: "Wrap" }).click();
  await page.reload();
  await page.getByRole("button", { name: "Wrap" }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Wrap" }).getAttribute("aria-pressed"), "false");
});
