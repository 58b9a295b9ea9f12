// This page itself: the browsers that are signed in, how it looks, and what it is.

import { each, h } from "../../core/dom.js";
import { exactTime } from "../../core/format.js";
import { signal } from "../../core/signal.js";
import { pageKey, wire } from "../../core/wire.js";
import { Resource, ask, badge, button, confirmed, copyButton, dialog, header, icon, say, tabs, time } from "../../parts/ui.js";

export function browsers() {
  const list = new Resource(() => ask("page.sessions"), { everyMs: 20_000 });
  const revoke = async (/** @type {any} */ session) => {
    if (!(await confirmed("Sign this browser out?", session.current ? "This is the browser that you use now." : session.browser, "Sign out"))) return;
    await ask("page.revoke", { id: session.id });
    say("Signed out");
    await list.reload();
  };
  const revokeAll = async () => {
    if (await confirmed("Sign all browsers out?", "This one too. A new login link comes from `gantry page`.", "Sign all out")) await ask("page.revoke", { id: "all" });
  };
  const link = async () => {
    const made = await ask("page.link");
    const url = `${made.publicUrl ?? location.origin}/#login=${made.code}`;
    void dialog("Another browser", () => [h("p", { class: "dialog-text" }, `Open this in the other browser. It is valid once, until ${exactTime(made.expires)}.`), h("pre", { class: "plain wrap", tabindex: "0" }, url), h("div", { class: "dialog-actions" }, copyButton(url))]);
  };
  return [
    header("Browsers", [button("Add a browser", link, { icon: "plus" }), button("Sign all out", revokeAll, { kind: "danger" })], "The browsers that are signed in to this gateway."),
    list.view(() =>
      each(() => list.value()?.sessions ?? [], (/** @type {any} */ session) => session.id, (session) =>
        h("div", { class: "list-row" }, icon("globe"), h("div", { class: "list-main" }, h("div", { class: "list-title" }, h("span", null, () => session().browser || "Unknown browser"), () => (session().current ? badge("ok", "this one") : null)), h("div", { class: "list-sub" }, () => [session().address, " · signed in ", time(session().created), " · used ", time(session().lastUsed)])), button("Sign out", () => revoke(session.peek()), { small: true })),
      { props: { class: "list" } }),
    ),
  ];
}

export function appearance() {
  const theme = signal(localStorage.getItem("gantry.theme") ?? "system");
  const reading = signal(localStorage.getItem("gantry.reading") ?? "follow");
  return [
    header("Appearance"),
    h("section", { class: "card pad detail" },
      h("div", { class: "setting" }, h("div", null, h("h2", null, "Colours"), h("p", { class: "muted" }, "Light, dark, or as the system says.")), tabs("Colours", [["system", "System"], ["light", "Light"], ["dark", "Dark"]], theme, (value) => {
        localStorage.setItem("gantry.theme", value);
        if (value === "system") document.documentElement.removeAttribute("data-theme");
        else document.documentElement.dataset.theme = value;
        theme.set(value);
      })),
      h("div", { class: "setting" }, h("div", null, h("h2", null, "Long answers"), h("p", { class: "muted" }, "Follow an answer to its end, or stop at its first line.")), tabs("Long answers", [["follow", "Follow"], ["head", "First line"]], reading, (value) => (localStorage.setItem("gantry.reading", value), reading.set(value)))),
    ),
  ];
}

export function about() {
  const status = new Resource(() => ask("gateway.status"));
  const signOut = async () => {
    const { sessions } = await ask("page.sessions");
    const mine = sessions.find((/** @type {any} */ session) => session.current);
    if (mine) await ask("page.revoke", { id: mine.id });
    pageKey.forget();
    location.href = "/";
  };
  return [
    header("About", button("Sign out", signOut)),
    h("dl", { class: "facts card pad" },
      h("div", null, h("dt", null, "Gantry"), h("dd", null, () => wire.server()?.version ?? "")),
      h("div", null, h("dt", null, "Gateway"), h("dd", null, location.host)),
      h("div", null, h("dt", null, "Directory"), h("dd", { class: "mono" }, () => wire.workspace() || "none")),
      h("div", null, h("dt", null, "Instance"), h("dd", { class: "mono" }, () => wire.server()?.instance ?? "")),
    ),
    status.redraw((value) => [
      value.needsRestart.length ? h("div", { class: "banner quiet section" }, `These settings count from the next start of the gateway: ${value.needsRestart.join(", ")}`) : null,
      (value.models?.warnings ?? []).map((/** @type {string} */ warning) => h("p", { class: "not-shown section" }, icon("warn"), warning)),
    ]),
  ];
}
