// Files: the agents' storage and the machines. List, look, upload, download, copy; copies go on in the tray below.

import { each, h } from "../core/dom.js";
import { bytes } from "../core/format.js";
import { path, route } from "../core/route.js";
import { derived, onDispose, signal, untracked } from "../core/signal.js";
import { joinPath, parentPath, parseListing } from "../model/listing.js";
import { callJson, callTool } from "../parts/call.js";
import { formDialog } from "../parts/form-dialog.js";
import { longText } from "../parts/message.js";
import { startTransfer, transferTray, upload } from "../parts/transfers.js";
import { Resource, ask, button, confirmed, dialog, empty, header, icon, say, select } from "../parts/ui.js";

/** @import { NodeInfo } from "../../tests/api.d.ts" */
/** @import { Entry } from "../model/listing.js" */

const STORAGE = "gsv";

/** Lists a directory. The storage has its own tool; a machine is asked with a command that every system has. @param {string} place @param {string} dir */
async function list(place, dir) {
  if (place === STORAGE) {
    const { files, directories, truncated } = await callJson("gsv__ReadFile", { path: dir || "/" });
    return { dir, truncated: Boolean(truncated), entries: [...directories.map((/** @type {string} */ name) => ({ name, directory: true, size: null })), ...files.map((/** @type {string} */ name) => ({ name, directory: false, size: null }))] };
  }
  const answer = await callJson("Bash", { command: "pwd; ls -lLAp 2>/dev/null || ls -lAp", workdir: dir || ".", node: place });
  if (answer.exitCode !== 0 && !answer.output) throw new Error(`The directory cannot be listed: exit ${answer.exitCode}`);
  return { ...parseListing(answer.output), truncated: Boolean(answer.truncated) };
}

export default function Files() {
  const place = derived(() => route().parts[0] ?? "local");
  const dir = derived(() => route().query.get("dir") ?? "");
  const nodes = new Resource(() => ask("nodes.list"));
  const where = derived(() => `${place()}\n${dir()}`);
  return h(
    "div",
    { class: "screen" },
    header("Files", () => [
      select("Place", [[STORAGE, "Storage of the agent"], .../** @type {NodeInfo[]} */ (nodes.value()?.nodes ?? []).filter((node) => node.online).map((node) => /** @type {const} */ ([node.id, node.id]))], place, (value) => goTo(value, "")),
    ]),
    () => {
      where();
      return untracked(() => directory(place.peek(), dir.peek()));
    },
    transferTray(),
  );
}

/** @param {string} place @param {string} dir */
function goTo(place, dir) {
  void import("../core/route.js").then(({ go }) => go(path(["files", place], { dir })));
}

/** @param {string} place @param {string} dir */
function directory(place, dir) {
  const listing = new Resource(() => list(place, dir));
  const filter = signal("");
  const real = () => listing.value()?.dir || dir;
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length) void uploadAll(files);
  };
  const uploadAll = async (/** @type {File[]} */ files) => {
    for (const file of files) {
      await upload(file, place, place === STORAGE ? joinPath(dir, file.name) : joinPath(real(), file.name));
    }
    await listing.reload();
  };
  const picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to upload", onchange: () => void uploadAll([...(picker.files ?? [])]).finally(() => (picker.value = "")) });
  const zone = h(
    "div",
    { class: "drop-zone", ondragover: (/** @type {Event} */ e) => e.preventDefault(), ondrop: drop },
    h(
      "div",
      { class: "toolbar" },
      () => crumbs(place, real()),
      h("span", { class: "right" }),
      h("input", { type: "search", class: "narrow-field", placeholder: "Filter", "aria-label": "Filter", oninput: (/** @type {any} */ e) => filter.set(e.target.value) }),
      button("Upload", () => picker.click(), { icon: "upload" }),
      picker,
    ),
    listing.redraw((value) => {
      const entries = /** @type {Entry[]} */ (value.entries);
      const shown = () => entries.filter((entry) => entry.name.toLowerCase().includes(filter().toLowerCase())).sort((a, b) => Number(b.directory) - Number(a.directory) || a.name.localeCompare(b.name));
      return [
        value.truncated ? h("p", { class: "hint" }, "The list is incomplete: the directory has too many entries.") : null,
        () => (shown().length ? null : empty("Nothing here", "Upload files with the button, or drop them here.")),
        each(() => shown().slice(0, 2000), (entry) => entry.name, (entry) => entryRow(place, real(), entry.peek(), listing), { props: { class: "list" } }),
      ];
    }),
  );
  return zone;
}

/** @param {string} place @param {string} dir */
function crumbs(place, dir) {
  const absolute = dir.startsWith("/");
  const names = dir.split("/").filter(Boolean);
  const at = (/** @type {number} */ n) => (absolute ? "/" : "") + names.slice(0, n).join("/");
  return h("nav", { class: "crumbs mono", "aria-label": "Directory" }, h("a", { href: path(["files", place], { dir: absolute ? "/" : null }) }, place), names.map((name, index) => [h("span", { class: "muted" }, " / "), h("a", { href: path(["files", place], { dir: at(index + 1) }), "aria-current": index === names.length - 1 ? "page" : null }, name)]), dir && dir !== "/" ? h("a", { class: "btn small bare only-icon", href: path(["files", place], { dir: parentPath(dir) || null }), "aria-label": "Parent directory" }, icon("up")) : null);
}

/** @param {string} place @param {string} dir @param {Entry} entry @param {Resource<any>} listing */
function entryRow(place, dir, entry, listing) {
  const full = joinPath(dir, entry.name);
  if (entry.directory) return h("a", { class: "list-row", href: path(["files", place], { dir: full }) }, icon("files"), h("span", { class: "list-main list-title" }, h("span", null, entry.name)), icon("right"));
  return h(
    "div",
    { class: "list-row" },
    icon("audit"),
    h("button", { type: "button", class: "list-main list-title file-name", onclick: () => preview(place, full) }, h("span", null, entry.name)),
    h("span", { class: "list-side" }, entry.size === null ? null : h("span", { class: "num" }, bytes(entry.size)), button(null, () => download(place, full), { icon: "download", kind: "bare", small: true, title: `Download ${entry.name}` }), button(null, () => copyTo(place, full), { icon: "copy", kind: "bare", small: true, title: `Copy ${entry.name}` }), place === STORAGE ? button(null, async () => (await confirmed(`Delete ${entry.name}?`, "It is deleted for good.", "Delete")) && callJson("gsv__DeleteFile", { path: full }).then(() => listing.reload()), { icon: "trash", kind: "bare", small: true, title: `Delete ${entry.name}` }) : null),
  );
}

const PICTURES = { "image/png": [0x89, 0x50, 0x4e, 0x47], "image/jpeg": [0xff, 0xd8, 0xff], "image/gif": [0x47, 0x49, 0x46], "image/webp": [0x52, 0x49, 0x46, 0x46] };

/** A picture is shown only if its first bytes are those of its type. @param {string} type @param {Uint8Array} data */
export const isPicture = (type, data) => (PICTURES[/** @type {"image/png"} */ (type)] ?? [-1]).every((byte, at) => data[at] === byte);

/** @param {string} place @param {string} full */
function preview(place, full) {
  return dialog(full.split("/").pop() ?? full, () => {
    const text = new Resource(async () => {
      if (place === STORAGE) return { text: (await callJson("gsv__ReadFile", { path: full })).content };
      const answer = /** @type {any} */ (await callTool("Read", { path: full, limit: 2000, node: place })).json;
      if (answer?.error) throw new Error(answer.error.message ?? answer.error);
      const image = Array.isArray(answer.content) ? answer.content.find((/** @type {any} */ block) => block.type === "image") : null;
      if (image) return { image };
      return { text: String(answer.content ?? "").replace(/^ *\d+\t/gm, ""), lines: answer.lines, total: answer.totalLines };
    });
    return h("div", { class: "dialog-body" }, h("p", { class: "mono muted" }, `${place}: ${full}`), text.view((value) => (value.image ? picture(value.image) : [longText(value.text), value.total > value.lines ? h("p", { class: "hint" }, `The first ${value.lines} of ${value.total} lines.`) : null])));
  }, { wide: true });
}

/** @param {any} image */
function picture(image) {
  const type = image.mimeType ?? image.media_type ?? image.source?.media_type ?? "";
  const data = Uint8Array.from(atob(image.data ?? image.source?.data ?? ""), (char) => char.charCodeAt(0));
  if (!isPicture(type, data)) return h("p", { class: "muted" }, "This is not a picture that can be shown.");
  const url = URL.createObjectURL(new Blob([data], { type }));
  onDispose(() => URL.revokeObjectURL(url));
  return h("img", { class: "picture", src: url, alt: "Preview" });
}

/** A file of a machine is copied to the storage first, and sent from there. @param {string} place @param {string} full */
async function download(place, full) {
  let stored = full;
  if (place !== STORAGE) {
    stored = `downloads/${full.split("/").pop()}`;
    await startTransfer(`${place}:${full}`, `gsv:${stored}`);
  }
  const link = await ask("downloads.link", { path: stored });
  h("a", { href: link.url, download: link.name }).click();
  say(`Downloading ${link.name}`);
}

/** @param {string} place @param {string} full */
function copyTo(place, full) {
  const name = full.split("/").pop() ?? "";
  return formDialog(`Copy ${name}`, [{ name: "to", label: "To", required: true, value: place === STORAGE ? `local:${name}` : `gsv:${name}`, hint: "machine:path, or gsv:path for the storage of the agent." }], async ({ to = "" }) => {
    void startTransfer(`${place}:${full}`, to).then(() => say(`Copied to ${to}`), () => {});
  }, { submit: "Copy" });
}

