// Starts the page: signs in, connects, draws the frame around the screens, and loads each screen on its first visit.

import { h, mount } from "./core/dom.js";
import { startClock } from "./core/format.js";
import { go, path, route, startRouting } from "./core/route.js";
import { derived, onDispose, scope, signal, untracked, watch } from "./core/signal.js";
import { pageKey, wire } from "./core/wire.js";
import { button, dialog, icon, messageList, problem, showError } from "./parts/ui.js";

/** @import { Child } from "./core/dom.js" */
/** @import { IconName } from "./parts/ui.js" */

/** @import { Route } from "./core/route.js" */
/** `place` has the parts of the path, if they differ from the id. */
/** @typedef {{ id: string, place?: string[], label: string, icon: IconName, group: string, key: string, load: () => Promise<{ default: () => Child }> }} ScreenInfo */

/** All screens, in the order of the rail. @type {ScreenInfo[]} */
export const SCREENS = [
  { id: "chat", label: "Chat", icon: "chat", group: "", key: "c", load: () => import("./screens/chat.js") },
  { id: "inbox", label: "Inbox", icon: "inbox", group: "", key: "i", load: () => import("./screens/inbox.js") },
  { id: "sessions", label: "Sessions", icon: "sessions", group: "", key: "s", load: () => import("./screens/sessions.js") },
  { id: "nodes", label: "Machines", icon: "nodes", group: "", key: "m", load: () => import("./screens/nodes.js") },
  { id: "tools", label: "Tools", icon: "tools", group: "", key: "t", load: () => import("./screens/tools.js") },
  { id: "files", label: "Files", icon: "files", group: "", key: "f", load: () => import("./screens/files.js") },
  { id: "runs", label: "Runs", icon: "runs", group: "Work", key: "r", load: () => import("./screens/runs.js") },
  { id: "schedules", label: "Schedules", icon: "schedules", group: "Work", key: "d", load: () => import("./screens/schedules.js") },
  { id: "tasks", label: "Tasks", icon: "tasks", group: "Work", key: "k", load: () => import("./screens/tasks.js") },
  { id: "pipelines", label: "Pipelines", icon: "pipelines", group: "Work", key: "p", load: () => import("./screens/pipelines.js") },
  { id: "channels", label: "Channels", icon: "channels", group: "Work", key: "h", load: () => import("./screens/channels.js") },
  { id: "outbox", place: ["channels", "outbox"], label: "Outbox", icon: "outbox", group: "Work", key: "o", load: () => import("./screens/outbox.js") },
  { id: "audit", label: "Audit", icon: "audit", group: "System", key: "a", load: () => import("./screens/audit.js") },
  { id: "usage", label: "Usage", icon: "usage", group: "System", key: "u", load: () => import("./screens/usage.js") },
  { id: "settings", label: "Settings", icon: "settings", group: "System", key: ",", load: () => import("./screens/settings.js") },
];

/** The screen of a route: the one with the longest path counts. @param {Route} at */
function screenOf(at) {
  const has = (/** @type {ScreenInfo} */ { id, place = [id] }) => place.every((part, index) => part === [at.screen, ...at.parts][index]);
  return SCREENS.filter(has).sort((a, b) => (b.place?.length ?? 1) - (a.place?.length ?? 1))[0] ?? null;
}

/** How the colours follow the setting: `light`, `dark`, or the system's. */
export const theme = {
  read: () => localStorage.getItem("gantry.theme") ?? "system",
  /** @param {string} value */
  write: (value) => {
    localStorage.setItem("gantry.theme", value);
    applyTheme();
  },
};

function applyTheme() {
  const value = theme.read();
  if (value === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = value;
}

const inboxCount = signal(0);
const speaking = signal("");
const outdated = signal("");

async function start() {
  applyTheme();
  addEventListener("storage", (event) => {
    if (event.key === "gantry.theme") applyTheme();
    // Another tab signed in or out.
    if (event.key === "gantry.key") location.reload();
  });
  startRouting();
  startClock();
  const root = /** @type {HTMLElement} */ (document.getElementById("app"));
  const code = /^#login=([\w-]+)$/.exec(location.hash)?.[1];
  if (code) {
    // The code leaves the history before anything else happens.
    history.replaceState(null, "", location.pathname + location.search);
    const failure = await signIn(code);
    if (failure && !pageKey.read()) return void mount(root, () => signedOut(failure));
    if (failure) showError(failure);
  }
  if (!pageKey.read()) return void mount(root, () => signedOut(null));
  wire.start();
  mount(root, frame);
  // What the first screen does not need comes after it.
  void import("./parts/palette.js").then(({ startPalette }) => startPalette(SCREENS));
  void startInbox();
  watchVersion();
}

/** @param {string} code @returns {Promise<Error | null>} */
async function signIn(code) {
  try {
    const response = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ code }),
      credentials: "same-origin",
    });
    const answer = await response.json();
    if (!response.ok) return Object.assign(new Error(answer.error?.message ?? "the code was refused"), { hint: answer.error?.hint });
    pageKey.write(answer.key);
    return null;
  } catch {
    return new Error("the gateway is not reachable");
  }
}

/** @param {Error | null} failure */
function signedOut(failure) {
  return h(
    "main",
    { class: "signed-out" },
    h("div", { class: "signed-out-box" }, h("span", { class: "brand-mark" }, icon("brand")), h("h1", null, "Gantry"), failure ? problem(failure) : null,
      h("p", null, "Open a login link to use this page. It is valid once, for ten minutes. On the gateway's machine, run:"),
      h("pre", { class: "plain command" }, "gantry page"),
      h("p", { class: "muted" }, "With --qr it shows a code for the camera of a phone."),
    ),
  );
}

/** Shown in place of everything when the session has ended while the page was open. */
function sessionEnded() {
  pageKey.forget();
  return signedOut(new Error("This browser is signed out: the session ended or was revoked"));
}

function frame() {
  // The frame is built once: a lost connection changes nothing but the words about it.
  const ended = derived(() => wire.state() === "signed_out");
  return () => (ended() ? sessionEnded() : untracked(shell));
}

function shell() {
  const main = h("main", { id: "main", class: "main", tabindex: "-1" });
  watchScreens(main);
  return [
    h("a", { class: "skip", href: "#main", onclick: (/** @type {Event} */ event) => (event.preventDefault(), main.focus()) }, "Skip to the content"),
    () => (outdated() ? h("div", { class: "banner", role: "alert" }, h("span", null, "The gateway was updated. This page is of the earlier version."), button("Reload", () => location.reload(), { kind: "primary", small: true })) : null),
    h("div", { class: "shell", inert: () => Boolean(outdated()) }, rail(), h("div", { class: "main-column" }, connectionBar(), main), bottomBar()),
    messageList(),
    h("p", { class: "unseen", role: "status", "aria-live": "polite" }, speaking),
  ];
}

/** @param {HTMLElement} main */
function watchScreens(main) {
  const screen = derived(() => screenOf(route()));
  /** @type {() => void} */
  let dispose = () => {};
  let visits = 0;
  onDispose(() => {
    visits++;
    dispose();
  });
  watch(() => {
    const info = screen();
    const visit = ++visits;
    dispose();
    dispose = () => {};
    if (!info) {
      main.replaceChildren(h("div", { class: "screen" }, h("div", { class: "empty" }, h("h1", null, "No such page"), h("p", null, h("a", { href: "/" }, "To the chat")))));
      return;
    }
    untracked(() => {
      info.load().then(
        (module) => {
          if (visit !== visits) return;
          const [element, end] = scope(() => module.default());
          dispose = end;
          main.replaceChildren();
          main.append(/** @type {Node} */ (element));
          main.dataset.screen = info.id;
          main.scrollTop = 0;
          if (visit > 1) main.focus({ preventScroll: true });
        },
        // The files of another version are gone.
        (error) => visit === visits && main.replaceChildren(h("div", { class: "screen" }, problem(Object.assign(new Error("This screen cannot be loaded"), { hint: String(error.message) }), () => location.reload()))),
      );
    });
  });
  watch(() => {
    const info = screen();
    const waiting = inboxCount();
    document.title = `${waiting ? `(${waiting}) ` : ""}${info?.label ?? "Not found"} · Gantry`;
  });
}

/** @param {ScreenInfo} info @param {boolean} [sheet] */
function navLink(info, sheet = false) {
  return h(
    "a",
    { class: "nav-link", href: path(info.place ?? [info.id]), title: sheet ? undefined : info.label, "aria-current": () => (screenOf(route()) === info ? "page" : null) },
    icon(info.icon),
    h("span", { class: "nav-label" }, info.label),
    info.id === "inbox" ? () => (inboxCount() ? h("span", { class: "count", "aria-label": `${inboxCount()} open` }, String(inboxCount())) : null) : null,
  );
}

function rail() {
  const groups = [...new Set(SCREENS.map(({ group }) => group))];
  return h(
    "nav",
    { class: "rail", "aria-label": "Screens" },
    h("a", { class: "brand", href: "/", "aria-label": "Gantry" }, h("span", { class: "brand-mark" }, icon("brand")), h("span", { class: "nav-label" }, "Gantry")),
    h("button", { type: "button", class: "nav-link find-anything", onclick: () => document.dispatchEvent(new Event("gantry:palette")) }, icon("search"), h("span", { class: "nav-label" }, "Search"), h("kbd", { class: "nav-label" }, /Mac|iPhone|iPad/.test(navigator.userAgent) ? "⌘K" : "Ctrl K")),
    h(
      "div",
      { class: "rail-groups" },
      groups.map((group) => h("div", { class: "rail-group" }, group ? h("p", { class: "rail-title nav-label" }, group) : null, SCREENS.filter((screen) => screen.group === group).map((screen) => navLink(screen)))),
    ),
    h("div", { class: "rail-foot" }, connectionState()),
  );
}

function connectionState() {
  const words = { connecting: "Connecting", online: "Connected", offline: "Not connected", signed_out: "Signed out" };
  return h("p", { class: () => `connection ${wire.state()}`, title: () => (wire.server() ? `Gantry ${wire.server()?.version}` : ""), "aria-label": () => words[wire.state()] }, h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "nav-label" }, () => words[wire.state()]));
}

/** Says what is wrong, and nothing while all is well. */
function connectionBar() {
  const seconds = signal(0);
  setInterval(() => wire.state.peek() === "offline" && seconds.set(Math.max(0, Math.ceil((wire.retryAt.peek() - Date.now()) / 1000))), 500);
  const long = signal(false);
  watch(() => {
    if (wire.state() !== "offline") return long.set(false);
    // A short loss, as at a restart, needs no words.
    setTimeout(() => long.set(wire.state.peek() === "offline" || wire.state.peek() === "connecting"), 1500);
  });
  return () =>
    wire.state() === "offline" && long()
      ? h("div", { class: "banner quiet", role: "status" }, h("span", null, () => `The gateway is not reachable. Next attempt ${seconds() > 1 ? `in ${seconds()} s` : "now"}.`), button("Try now", () => wire.retryNow(), { small: true }))
      : null;
}

function bottomBar() {
  const first = ["chat", "inbox", "sessions", "nodes"];
  const inBar = SCREENS.filter(({ id }) => first.includes(id));
  const rest = SCREENS.filter(({ id }) => !first.includes(id));
  const more = () =>
    dialog("All screens", (close) => h("nav", { class: "sheet", "aria-label": "All screens", onclick: (/** @type {Event} */ event) => event.target instanceof Element && event.target.closest("a") && close() }, rest.map((screen) => navLink(screen, true))), { side: true });
  return h(
    "nav",
    { class: "bottom-bar", "aria-label": "Screens" },
    inBar.map((screen) => navLink(screen)),
    rest.length ? h("button", { type: "button", class: "nav-link", "aria-current": () => (rest.includes(/** @type {ScreenInfo} */ (screenOf(route()))) ? "page" : null), onclick: more }, icon("more"), h("span", { class: "nav-label" }, "More")) : null,
  );
}

async function startInbox() {
  const [inbox, { speakQuestions }] = await Promise.all([import("./model/inbox.js"), import("./parts/approval.js")]);
  inbox.startInbox();
  let before = 0;
  watch(() => {
    const count = inbox.inboxCount();
    inboxCount.set(count);
    drawFavicon(count);
    if (count > before && document.visibilityState === "hidden") untracked(() => notify(inbox.inbox.peek().length, inbox.inbox.peek()[0]?.label ?? ""));
    before = count;
  });
  speakQuestions(inbox.inboxCount, speaking.set);
}

/** @param {number} count @param {string} from */
function notify(count, from) {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const notification = new Notification(count === 1 ? "A question waits for you" : `${count} questions wait for you`, { body: from, tag: "gantry-inbox" });
  notification.onclick = () => {
    focus();
    go("/inbox");
    notification.close();
  };
}

/** The icon of the tab has a dot while something waits. @param {number} count */
function drawFavicon(count) {
  const link = /** @type {HTMLLinkElement | null} */ (document.querySelector('link[rel="icon"]'));
  if (!link) return;
  link.dataset.plain ??= link.href;
  if (!count) {
    link.href = link.dataset.plain;
    return;
  }
  const canvas = h("canvas", { width: "64", height: "64" });
  const context = canvas.getContext("2d");
  const image = new Image();
  image.onload = () => {
    if (!context) return;
    context.drawImage(image, 0, 0, 64, 64);
    context.fillStyle = "#d92d20";
    context.beginPath();
    context.arc(48, 16, 16, 0, 7);
    context.fill();
    canvas.toBlob((blob) => {
      if (!blob) return;
      if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
      link.href = URL.createObjectURL(blob);
    });
  };
  image.src = link.dataset.plain;
}

/** A page of another version than the gateway says so, and everything but one button is inert. */
function watchVersion() {
  let first = "";
  watch(() => {
    const version = wire.server()?.version ?? "";
    if (!version) return;
    first ||= version;
    if (version !== first) outdated.set(version);
  });
}

void start();
