// Files: up, down, across, and what a preview shows.

import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { harness } from "../support/harness.js";

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
