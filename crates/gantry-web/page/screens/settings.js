// Settings: each part has its own URL, and is loaded alone.

import { h } from "../core/dom.js";
import { path, route } from "../core/route.js";
import { derived, untracked } from "../core/signal.js";
import { icon } from "../parts/ui.js";
import { about, appearance, browsers } from "./settings/browser.js";
import { grants, tokens } from "./settings/access.js";
import { agents } from "./settings/agents.js";
import { apis } from "./settings/apis.js";
import { google } from "./settings/google.js";
import { mcpServers } from "./settings/mcp.js";
import { configuration, doctor, policy, secrets } from "./settings/gateway.js";

/** @type {readonly (readonly [string, string, import("../parts/ui.js").IconName, () => import("../core/dom.js").Child])[]} */
const PARTS = [
  ["agents", "Agents and models", "user", agents],
  ["policy", "Policy", "warn", policy],
  ["grants", "Grants", "check", grants],
  ["tokens", "Tokens", "key", tokens],
  ["mcp", "MCP servers", "tools", mcpServers],
  ["google", "Google", "globe", google],
  ["apis", "API profiles", "pipelines", apis],
  ["secrets", "Secrets", "key", secrets],
  ["configuration", "Configuration", "settings", configuration],
  ["checks", "Checks", "check", doctor],
  ["browsers", "Browsers", "globe", browsers],
  ["appearance", "Appearance", "edit", appearance],
  ["about", "About", "info", about],
];

export default function Settings() {
  const part = derived(() => route().parts[0] ?? "");
  return h(
    "div",
    { class: "split settings-split", "data-open": () => (part() ? "yes" : "no") },
    h(
      "nav",
      { class: "split-list", "aria-label": "Settings" },
      h("header", { class: "head" }, h("h1", null, "Settings")),
      PARTS.map(([id, label, name]) => h("a", { class: "nav-link", href: path(["settings", id]), "aria-current": () => ((part() || "agents") === id ? "page" : null) }, icon(name), label)),
    ),
    h("div", { class: "split-main" }, () => {
      const found = PARTS.find(([id]) => id === (part() || "agents")) ?? PARTS[0];
      return untracked(() => h("div", { class: "screen settings-part" }, h("p", { class: "back" }, h("a", { href: "/settings" }, "All settings")), found[3]()));
    }),
  );
}
