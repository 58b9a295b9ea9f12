// One gateway, one model and one browser for the tests of a file. Each page that a test opens is checked when the test
// ends: a broken content policy, an error in the console or a foreign request fails it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, afterEach, before } from "node:test";
import { launch, open, tab } from "./browser.js";
import { Gateway } from "./gateway.js";
import { Model, usual } from "./model.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** @typedef {import("./browser.js").WatchedPage} WatchedPage */

/** @param {{ config?: string, embedded?: boolean }} [options] */
export function harness(options = {}) {
  /** @type {WatchedPage[]} */
  let pages = [];
  /** @type {any} */
  let signedIn = null;
  const h = {
    gateway: /** @type {Gateway} */ (/** @type {unknown} */ (null)),
    model: /** @type {Model} */ (/** @type {unknown} */ (null)),
    browser: /** @type {import("playwright-core").Browser} */ (/** @type {unknown} */ (null)),
    /** @param {Parameters<typeof open>[2]} [given] */
    open: async (given) => {
      if (!signedIn && given?.login !== false) {
        // One login for all tests of the file; the tests of the login itself make their own.
        const first = await open(h.browser, h.gateway, {});
        signedIn = await first.context().storageState();
        await first.context().close();
      }
      const page = await open(h.browser, h.gateway, { ...given, signedIn: given?.login === false ? undefined : signedIn });
      pages.push(page);
      return page;
    },
    /** Goes to a path inside the page, as a link does. @param {WatchedPage} page @param {string} path */
    go: (page, path) =>
      page.evaluate(async (to) => {
        const script = /** @type {HTMLScriptElement} */ (document.querySelector("script[type=module]"));
        const { go } = await import(script.src.replace(/app\.js$/, "core/route.js"));
        go(to);
      }, path),
    /** Another tab of the same browser. @param {WatchedPage} page @param {string} at */
    tab: async (page, at) => {
      const other = await tab(page.context(), h.gateway);
      pages.push(other);
      await other.goto(h.gateway.url + at);
      await other.locator(".shell").waitFor();
      return other;
    },
    /** Calls a method over the page's own connection. @param {WatchedPage} page @param {string} method @param {any} [params] */
    api: (page, method, params = {}) =>
      page.evaluate(
        async ([name, given]) => {
          const script = /** @type {HTMLScriptElement} */ (document.querySelector("script[type=module]"));
          const { wire } = await import(script.src.replace(/app\.js$/, "core/wire.js"));
          return wire.request(name, given);
        },
        /** @type {const} */ ([method, params]),
      ),
  };
  before(async () => {
    h.model = await new Model().start();
    h.gateway = await new Gateway({ model: h.model.url, ...options }).start();
    h.browser = await launch();
  });
  afterEach(async () => {
    const faults = pages.flatMap((page) => page.faults);
    const contexts = new Set(pages.map((page) => page.context()));
    pages = [];
    h.model.decide = usual;
    for (const context of contexts) await context.close();
    assert.deepEqual(faults, []);
  });
  after(async () => {
    await h.browser?.close();
    await h.gateway?.stop();
    h.model?.stop();
  });
  return h;
}

/** @param {import("playwright-core").Page} page @param {string} text */
export async function send(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.locator(".send").click();
}

/** Fails for each violation that axe finds. @param {import("playwright-core").Page} page @param {string} name */
export async function accessible(page, name) {
  // It stays in a page that changes its screen without loading again.
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => /** @type {any} */ (window).axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.flatMap((/** @type {any} */ v) => v.nodes.map((/** @type {any} */ node) => `${name}: ${v.id}: ${node.target.join(" ")}: ${node.failureSummary?.split("\n")[1] ?? ""}`));
  assert.deepEqual(found, []);
}

/** What was built is drawn now. @param {import("playwright-core").Page} page */
export const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

/** Nothing is wider than the page. @param {import("playwright-core").Page} page @param {string} name */
export async function fits(page, name) {
  const wide = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const within = (/** @type {Element} */ el) => Boolean(el.closest(".table-card, .table-scroll, .graph, pre, .tabs, .log-box, .diff, .chart-scroll, dialog, .unseen, .skip"));
    return [...document.querySelectorAll("body *")].filter((el) => !within(el) && el.getClientRects().length && el.getBoundingClientRect().right > width + 1).map((el) => `${el.tagName}.${el.getAttribute("class") ?? ""}`);
  });
  assert.deepEqual(wide, [], `${name} is wider than the page`);
}

export const SOAK = process.env.GANTRY_SOAK === "1";
