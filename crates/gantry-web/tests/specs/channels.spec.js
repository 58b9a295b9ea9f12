// Channels and their people, accounts at Google, and profiles of APIs, against a gateway that has them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { accessible, fits, harness } from "../support/harness.js";
import { CONFIG, SECRET, write } from "../support/webhook.js";

const h = harness({ config: `${CONFIG}[channels.telegram.default]\ntoken = "secret:BOT"\n[google]\nclientId = "1234-abc.apps.googleusercontent.com"\nclientSecret = "secret:GOOGLE"\n` });

let prepared = false;

/** The secrets that the configuration names. The gateway reads some of them when it starts. */
async function prepare() {
  if (prepared) return;
  prepared = true;
  const page = await h.open();
  await page.getByText("Connected", { exact: true }).waitFor();
  await h.api(page, "secrets.set", { name: "HOOK", hosts: ["127.0.0.1"], value: SECRET });
  await h.api(page, "secrets.set", { name: "BOT", hosts: ["api.telegram.org"], value: "no-token-of-a-bot" });
  await h.api(page, "secrets.set", { name: "GOOGLE", hosts: ["oauth2.googleapis.com"], value: "GOCSPX-abcdefghijkl" });
  await h.gateway.restart();
}

const row = (/** @type {import("../support/harness.js").WatchedPage} */ page, /** @type {string} */ text) => page.locator(".person", { hasText: text });

test("strangers are admitted and blocked, and roles change", async () => {
  await prepare();
  const page = await h.open({ at: "/channels" });
  const account = page.getByRole("region", { name: "webhook:default" });
  await account.getByText("connected").waitFor();
  // A mark on the element shows later that refreshing did not build it anew.
  await account.evaluate((element) => element.setAttribute("data-same", "yes"));
  await write(h.gateway, "ann", "Ann", "Hello");
  await write(h.gateway, "ben", "Ben", "Hello");
  await row(page, "Ann").getByRole("button", { name: "Admit" }).click();
  await row(page, "Ann").getByText("member").waitFor();
  // Ben's code was read out: small letters count too.
  const { people } = await h.api(page, "channels.people");
  const code = people.find((/** @type {any} */ person) => person.id === "ben").code;
  await page.getByLabel("Pairing code").fill(code.toLowerCase());
  await page.locator(".code-form").getByRole("button", { name: "Block" }).click();
  await row(page, "Ben").getByText("blocked").waitFor();
  await row(page, "Ben").getByRole("button", { name: "Admit" }).click();
  await row(page, "Ben").getByText("member").waitFor();
  await row(page, "Ben").getByRole("button", { name: "Remove" }).click();
  await page.locator("dialog").getByRole("button", { name: "Remove" }).click();
  await row(page, "Ben").waitFor({ state: "detached" });
  const after = await h.api(page, "channels.people");
  assert.deepEqual(after.people.map((/** @type {any} */ person) => [person.id, person.role]), [["ann", "member"]]);
  assert.equal(await account.getAttribute("data-same"), "yes");
});

test("a wrong code admits nobody, and the page says why", async () => {
  await prepare();
  const page = await h.open({ at: "/channels" });
  await page.getByLabel("Pairing code").fill("WRONG123");
  await page.locator(".code-form").getByRole("button", { name: "Admit" }).click();
  await page.locator(".toast.error", { hasText: "no stranger waits with the code" }).waitFor();
  assert.equal(await page.getByLabel("Pairing code").inputValue(), "WRONG123");
});

test("a link code makes its sender an owner, and the page says so", async () => {
  await prepare();
  const page = await h.open({ at: "/channels" });
  const account = page.getByRole("region", { name: "webhook:default" });
  await account.getByText("no owner").waitFor();
  await account.getByRole("button", { name: "Link" }).click();
  const dialog = page.locator("dialog");
  const code = (await dialog.locator(".link-code code").textContent()) ?? "";
  await accessible(page, "link");
  await write(h.gateway, "olga", "Olga", code);
  await dialog.getByText("Olga is an owner now").waitFor();
  await dialog.getByRole("button", { name: "Close", exact: true }).last().click();
  await row(page, "Olga").getByText("owner", { exact: true }).waitFor();
  await account.getByText("no owner").waitFor({ state: "detached" });
});

test("a test names what is wrong, and how to fix it", async () => {
  await prepare();
  const page = await h.open({ at: "/channels" });
  const bot = page.getByRole("region", { name: "telegram:default" });
  await bot.getByText("needs a new login").waitFor();
  await bot.getByRole("button", { name: "Test" }).click();
  await bot.getByText("Fix: ").waitFor();
  const hook = page.getByRole("region", { name: "webhook:default" });
  await hook.getByRole("button", { name: "Test" }).click();
  await hook.getByText("works").waitFor();
});

test("a sign-in at Google begins with a link, and refuses a foreign address", async () => {
  await prepare();
  const page = await h.open({ at: "/settings/google" });
  await page.getByText("Nobody is signed in").waitFor();
  await page.getByLabel("More scopes").fill("gmail.sent");
  await page.getByRole("button", { name: "Begin a sign-in" }).click();
  await page.getByRole("alert").getByText("did you mean gmail.send").waitFor();
  await page.getByLabel("More scopes").fill("gmail.send");
  await page.getByRole("button", { name: "Begin a sign-in" }).click();
  const link = page.getByRole("link", { name: "Open Google's page" });
  const url = new URL((await link.getAttribute("href")) ?? "");
  assert.equal(url.origin, "https://accounts.google.com");
  assert.match(url.searchParams.get("scope") ?? "", /gmail\.send/);
  assert.deepEqual([await link.getAttribute("target"), await link.getAttribute("rel")], ["_blank", "noopener noreferrer"]);
  await page.getByLabel("Address of the error page").fill("http://127.0.0.1:1/?state=foreign&code=x");
  await page.getByRole("button", { name: "Finish" }).click();
  await page.getByRole("alert").getByText("no sign-in waits for this address").waitFor();
  await accessible(page, "google");
});

test("a profile of an API is shown", async () => {
  await prepare();
  const page = await h.open({ at: "/settings/apis" });
  await page.getByText("No profiles").waitFor();
  await h.api(page, "apis.save", { profile: { id: "github", name: "GitHub", base_url: "https://api.github.com", description: "Repositories.", auth: { type: "none" }, endpoints: [{ method: "GET", path: "/repos", description: "All." }], guidelines: ["Ask for pages."], avoid: ["Polling."] } });
  await h.go(page, "/settings/google");
  await h.go(page, "/settings/apis");
  await page.getByRole("button", { name: "Show" }).click();
  await page.locator("dialog").getByText("GET /repos").waitFor();
  await accessible(page, "API profile");
});

for (const [size, dark] of /** @type {const} */ ([["desktop", false], ["phone", true]])) {
  test(`channels with people fit and are accessible (${size})`, async () => {
    await prepare();
    const page = await h.open({ at: "/channels", size, dark });
    await write(h.gateway, `cat-${size}`, "Cat with a rather long name of many words that goes on and on", "Hello");
    await row(page, "Cat").first().waitFor();
    await fits(page, "channels");
    await accessible(page, "channels");
  });
}
