// Files: up, down, across, and what a preview shows.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { accessible, harness } from "../support/harness.js";

const h = harness();

test("a file goes up to a machine and comes down again, byte for byte", async () => {
  const page = await h.open({ at: "/files/local" });
  const bytes = Buffer.from(Array.from({ length: 5_000_000 }, (_, n) => (n * 7919) & 255));
  await page.getByLabel("Files to upload").setInputFiles({ name: "up.bin", mimeType: "application/octet-stream", buffer: bytes });
  await page.locator(".tray").getByText("done").waitFor();
  await page.getByRole("button", { name: "up.bin", exact: true }).waitFor();
  assert.ok(readFileSync(join(h.gateway.dir, "up.bin")).equals(bytes));
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download up.bin" }).click()]);
  assert.equal(download.suggestedFilename(), "up.bin");
  assert.ok(readFileSync(await download.path()).equals(bytes));
});

test("a text is previewed as text", async () => {
  const page = await h.open({ at: "/files/local" });
  writeFileSync(join(h.gateway.dir, "note.html"), "<script>window.pwned=1</script>\nline two");
  await page.reload();
  await page.getByRole("button", { name: "note.html", exact: true }).click();
  await page.locator("dialog pre").getByText("<script>window.pwned=1</script>").waitFor();
  assert.equal(await page.evaluate(() => /** @type {any} */ (window).pwned), undefined);
});

test("a copy that fails says why, and can be tried again", async () => {
  const page = await h.open({ at: "/files/local" });
  await page.getByRole("button", { name: "Copy gantry.toml" }).click();
  await page.getByLabel("To", { exact: true }).fill("nowhere:/x");
  await page.getByRole("button", { name: "Copy", exact: true }).click();
  await page.locator(".tray").getByText("nowhere", { exact: false }).first().waitFor();
  await page.locator(".tray").getByRole("button", { name: "Retry" }).waitFor();
});

const DOT = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==", "base64");

/** Drops files on the field for a message. @param {import("../support/harness.js").WatchedPage} page @param {{ name: string, type: string, base64: string }[]} files */
async function drop(page, files) {
  const data = await page.evaluateHandle((given) => {
    const transfer = new DataTransfer();
    for (const { name, type, base64 } of given) transfer.items.add(new File([Uint8Array.from(atob(base64), (mark) => mark.charCodeAt(0))], name, { type }));
    return transfer;
  }, files);
  await page.locator("form.composer").dispatchEvent("drop", { dataTransfer: data });
}

test("dropped files go with the message: a picture to the model, the rest to the agent's storage", async () => {
  const page = await h.open({ at: "/chat/drops" });
  await page.getByLabel("Message", { exact: true }).fill("What is this?");
  await drop(page, [{ name: "dot.png", type: "image/png", base64: DOT.toString("base64") }, { name: "my report.csv", type: "text/csv", base64: Buffer.from("a,b\n1,2\n").toString("base64") }]);
  await page.locator(".attached-one.ready").nth(1).waitFor();
  await accessible(page, "files of a message");
  /** @type {any} */
  let asked = null;
  h.model.decide = (given) => ((asked = given), { text: "I see it." });
  await page.locator(".send").click();
  await page.getByText("I see it.").waitFor();
  await page.getByText("1 picture").waitFor();
  assert.equal(await page.locator(".attached-one").count(), 0);
  assert.ok(JSON.stringify(asked.messages).includes(DOT.toString("base64")), "the model gets the picture");
  const path = /gsv:(inbox\/\d{8}-\d{6}-my_report\.csv)/.exec(asked.lastUser)?.[1] ?? "";
  assert.match(asked.lastUser, /What is this\?/);
  const { url } = await h.api(page, "downloads.link", { path });
  assert.equal(await (await fetch(new URL(url, h.gateway.url))).text(), "a,b\n1,2\n");
  await page.locator(".run-usage", { hasText: /1 request · .* tokens · about \$0\.\d+/ }).waitFor();
});

test("a file can be left out, and nothing is sent while one is missing", async () => {
  const page = await h.open({ at: "/chat/left-out" });
  await page.getByLabel("Message", { exact: true }).fill("hello");
  // This is no PNG: the gateway refuses the message, and it stays in its field.
  await drop(page, [{ name: "broken.png", type: "image/png", base64: Buffer.from("no picture").toString("base64") }]);
  await page.locator(".attached-one.ready").waitFor();
  await page.locator(".send").click();
  await page.locator(".composer-failed").getByText("picture 1 is not base64").waitFor();
  assert.equal(await page.getByLabel("Message", { exact: true }).inputValue(), "hello");
  await page.getByRole("button", { name: "Leave out broken.png" }).click();
  await page.locator(".send").click();
  await page.getByText("You said: hello").waitFor();
});
