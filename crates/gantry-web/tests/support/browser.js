// A browser for tests. What a page must never do fails the test: a broken content policy, an error, a foreign request.

import { chromium } from "playwright-core";

const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

export const SIZES = /** @type {const} */ ({ phone: { width: 390, height: 844 }, tablet: { width: 820, height: 1180 }, desktop: { width: 1440, height: 900 } });

/** @returns {Promise<import("playwright-core").Browser>} */
export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ARGS });

/** @typedef {import("playwright-core").Page & { faults: string[] }} WatchedPage */

/**
 * Opens a page in a context of its own, and logs in.
 * @param {import("playwright-core").Browser} browser
 * @param {import("./gateway.js").Gateway} gateway
 * @param {{ size?: keyof typeof SIZES, dark?: boolean, at?: string, login?: boolean, signedIn?: any }} [options]
 * @returns {Promise<WatchedPage>}
 */
export async function open(browser, gateway, options = {}) {
  const size = options.size ?? "desktop";
  const context = await browser.newContext({
    viewport: SIZES[size],
    hasTouch: size === "phone",
    isMobile: size === "phone",
    colorScheme: options.dark ? "dark" : "light",
    reducedMotion: "reduce",
    locale: "en-GB",
    timezoneId: "UTC",
    storageState: options.signedIn,
  });
  const page = await tab(context, gateway);
  if (options.login ?? true) {
    if (!options.signedIn) {
      await page.goto(await gateway.link());
      await page.locator(".shell").waitFor();
    }
    await visit(page, gateway, options.at ?? "/");
  }
  return page;
}

/** Another tab of the same browser. @param {import("playwright-core").BrowserContext} context @param {import("./gateway.js").Gateway} gateway @returns {Promise<WatchedPage>} */
export async function tab(context, gateway) {
  const page = /** @type {WatchedPage} */ (await context.newPage());
  page.faults = [];
  page.on("pageerror", (error) => page.faults.push(`error: ${error.stack ?? error.message}`));
  page.on("console", (message) => {
    // A lost connection is written by the browser itself.
    if (message.type() === "error" && !/WebSocket connection to|ERR_CONNECTION|401 \(Unauthorized\)|the connection to the gateway was lost/.test(message.text())) page.faults.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(gateway.url) && !/^(blob|data):/.test(url)) page.faults.push(`foreign request: ${url}`);
  });
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
  });
  return page;
}

/** Opens a path, as from the address bar. @param {import("playwright-core").Page} page @param {import("./gateway.js").Gateway} gateway @param {string} at */
export async function visit(page, gateway, at) {
  await page.goto(gateway.url + at);
  await page.locator(".shell").waitFor();
}
