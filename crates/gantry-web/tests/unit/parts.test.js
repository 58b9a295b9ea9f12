import "../support/globals.js";
import assert from "node:assert/strict";
import { test } from "node:test";

const { parseRoute, path } = await import("../../page/core/route.js");
const { bytes, duration, visible } = await import("../../page/core/format.js");
const { cliCall, curlCall, shellQuote } = await import("../../page/model/commands.js");
const { timeline } = await import("../../page/model/timeline.js");
const { fieldPath, plainSchema } = await import("../../page/parts/schema-form.js");
const { colorOf } = await import("../../page/parts/log.js");
const { enterSends, readDraft } = await import("../../page/parts/composer.js");
const { storedName, withFiles } = await import("../../page/parts/attachments.js");
const { rank } = await import("../../page/parts/palette.js");
const { callSummary } = await import("../../page/parts/message.js");

test("a route survives the way into a path and back", () => {
  const parts = ["chat", "agent:main:a/b c?ü"];
  const route = parseRoute(path(parts).split("?")[0], "?q=1");
  assert.equal(route.screen, "chat");
  assert.deepEqual(route.parts, parts.slice(1));
  assert.equal(route.query.get("q"), "1");
  assert.equal(parseRoute("/", "").screen, "chat");
  assert.deepEqual(parseRoute("/tools/%E0%A4%A", "").parts, ["%E0%A4%A"]);
});

test("characters that hide or turn text become visible", () => {
  assert.equal(visible("a\u202eb\u200bc"), "a⟨U+202E⟩b⟨U+200B⟩c");
  assert.equal(visible("tab\tand\nline stay, ü and 漢字 too"), "tab\tand\nline stay, ü and 漢字 too");
  assert.equal(visible("\u{e0041}"), "⟨U+E0041⟩");
});

test("sizes and times are short", () => {
  assert.equal(bytes(1536), "1.5 KB");
  assert.equal(duration(900), "900 ms");
  assert.equal(duration(61_000), "1 min 1 s");
});

test("a call for a shell is quoted", () => {
  assert.equal(shellQuote("it's"), "'it'\\''s'");
  assert.equal(cliCall("Bash", { command: "echo 'a'" }), `gantry call Bash '{"command":"echo '\\''a'\\''"}'`);
  assert.equal(cliCall("Bash", {}), "gantry call Bash");
  assert.match(curlCall("http://127.0.0.1:7770", "tool::file_read", { path: "a" }, "main"), /Gantry-Agent: main.*\n.*tool%3A%3Afile_read/);
});

test("optional values of a schema lose their null", () => {
  const root = { $defs: { Name: { type: "string", description: "n" } } };
  assert.equal(plainSchema({ anyOf: [{ type: "string" }, { type: "null" }], description: "d" }, root).type, "string");
  assert.equal(plainSchema({ type: ["integer", "null"] }, root).type, "integer");
  assert.equal(plainSchema({ $ref: "#/$defs/Name" }, root).description, "n");
  assert.deepEqual(plainSchema({ enum: ["a", null] }, root).enum, ["a"]);
  assert.equal(plainSchema({ oneOf: [{ type: "string" }, { type: "integer" }, { type: "null" }] }, root).options.length, 2);
  assert.doesNotThrow(() => plainSchema({ $ref: "#/$defs/Loop" }, { $defs: { Loop: { $ref: "#/$defs/Loop" } } }));
});

test("a violation finds its field in both spellings", () => {
  assert.equal(fieldPath("/a/0/b"), "/a/0/b");
  assert.equal(fieldPath("a[0].b"), "/a/0/b");
  assert.equal(fieldPath("$.a"), "/a");
});

test("a colour is a known one, or none", () => {
  assert.equal(colorOf("1"), "var(--ansi-1)");
  assert.equal(colorOf("196"), "rgb(255 0 0)");
  assert.equal(colorOf("244"), "rgb(128 128 128)");
  assert.equal(colorOf("#a0B1c2"), "#a0B1c2");
  assert.equal(colorOf("url(http://evil)"), "");
  assert.equal(colorOf("999"), "");
});

test("Enter does not send while an input method composes, nor on touch", () => {
  const key = (/** @type {any} */ given) => /** @type {any} */ ({ key: "Enter", shiftKey: false, altKey: false, ctrlKey: false, metaKey: false, isComposing: false, keyCode: 13, ...given });
  assert.equal(enterSends(key({}), false), true);
  assert.equal(enterSends(key({ isComposing: true }), false), false);
  assert.equal(enterSends(key({ keyCode: 229 }), false), false);
  assert.equal(enterSends(key({ shiftKey: true }), false), false);
  assert.equal(enterSends(key({}), true), false);
  assert.equal(enterSends(key({ ctrlKey: true }), true), true);
});

test("a draft that cannot be read is an empty one", () => {
  localStorage.setItem("gantry.draft.k", "{broken");
  assert.equal(readDraft("k").text, "");
  assert.match(readDraft("k").id, /^[0-9a-f]{32}$/);
});

test("the palette needs every word", () => {
  assert.equal(rank("laptop__Bash", "bash lap") > 0, true);
  assert.equal(rank("laptop__Bash", "bash desk"), -1);
});

test("a call is told in one line", () => {
  assert.deepEqual(callSummary("laptop__Bash", { command: "\nls -la\nrm x" }), { name: "Bash", machine: "laptop", line: "ls -la" });
  assert.deepEqual(callSummary("gsv__ReadFile", { path: "a" }), { name: "ReadFile", machine: "", line: "a" });
  assert.equal(callSummary("Bash", null).line, "");
});

test("bars of a run end with it", () => {
  const entry = (/** @type {number} */ seq, /** @type {string} */ kind, /** @type {any} */ data = {}) => ({ seq, at: seq * 100, kind, data });
  const [run] = timeline([entry(1, "run_begun", { run: "r" }), entry(2, "request_begun", { model: "m" }), entry(3, "replied", { reply: { message: { content: [{ type: "tool_use", id: "c", name: "Bash", input: {} }] } } }), entry(4, "call_begun", { call: "c" }), entry(5, "approval_asked", { id: "q", call: "c", tool: "Bash" }), entry(8, "approval_answered", { question: "q", by: "operator" }), entry(9, "run_ended", { end: { end: "stopped" } })], 5000);
  assert.deepEqual(run.bars.map(({ kind, start, end }) => [kind, start, end]), [["model", 200, 300], ["call", 400, 900], ["human", 500, 800]]);
  assert.equal(run.outcome, "stopped");
});

test("a listing is read, with links, spaces and devices", async () => {
  const { joinPath, parentPath, parseListing } = await import("../../page/model/listing.js");
  const { dir, entries } = parseListing("/srv/data\ntotal 8\ndrwxr-xr-x 2 root root 4096 Nov 18 20:19 sub dir/\n-rw-r--r-- 1 root root   281 Nov 18  2025 a b.txt\nlrwxrwxrwx 1 root root 3 Nov 18 20:19 link -> gone\ncrw-rw-rw- 1 root root 1, 3 Nov 18 20:19 null\n");
  assert.equal(dir, "/srv/data");
  assert.deepEqual(entries.map(({ name, directory }) => [name, directory]), [["sub dir", true], ["a b.txt", false], ["link", false], ["null", false]]);
  assert.equal(entries[1].size, 281);
  assert.equal(joinPath("/", "a"), "/a");
  assert.equal(joinPath("", "a"), "a");
  assert.equal(parentPath("/srv/data"), "/srv");
  assert.equal(parentPath("/srv"), "/");
});

test("a stored file gets a name of its own that is safe in a path", () => {
  const at = new Date("2026-01-02T03:04:05.678Z");
  assert.equal(storedName("my report.csv", at), "inbox/20260102-030405-my_report.csv");
  assert.equal(storedName("../../etc/passwd", at), "inbox/20260102-030405-_.._etc_passwd");
  assert.equal(storedName("..", at), "inbox/20260102-030405-file");
  assert.equal(withFiles("Read it", ["gsv:inbox/a.csv"], 0), "Read it\n\nFiles: gsv:inbox/a.csv");
  assert.equal(withFiles("", [], 1), "Look at this.");
  assert.equal(withFiles("", [], 0), "");
});
