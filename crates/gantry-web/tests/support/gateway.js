// Runs the real binary on a free port, with a directory of its own.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const BINARY = resolve(process.env.GANTRY_BINARY ?? join(HERE, "../../../../target/debug/gantry"));
export const PAGE = resolve(join(HERE, "../../page"));

export class Gateway {
  dir = mkdtempSync(join(tmpdir(), "gantry-page-"));
  url = "";
  listen = "127.0.0.1:0";
  /** @type {import("node:child_process").ChildProcess | null} */
  #process = null;
  /** @type {import("node:child_process").ChildProcess[]} */
  #nodes = [];
  log = "";

  /** @param {{ model?: string, config?: string, embedded?: boolean }} [options] */
  constructor(options = {}) {
    this.options = options;
    const models = options.model
      ? `[models]\nfast = "lab/scripted-1"\nbalanced = "lab/scripted-1"\ndeep = "lab/scripted-1"\n[models.providers.lab]\nbaseUrl = "${options.model}"\nkey = "sk-test"\n[models.providers.lab.models.scripted-1]\ncontextWindow = 100000\nmaxOutput = 8192\nprice = { input = 1.0, output = 4.0 }\n`
      : "";
    writeFileSync(join(this.dir, "gantry.toml"), `${models}${options.config ?? ""}`);
  }

  #env() {
    return { PATH: process.env.PATH, HOME: this.dir, LANG: "C.UTF-8", GANTRY_DATA_DIR: join(this.dir, "data") };
  }

  async start() {
    const args = ["up", "--json", "--listen", this.listen, "--config", join(this.dir, "gantry.toml"), "--workspace", this.workspace];
    if (!this.options.embedded) args.push("--page-dir", PAGE);
    const child = spawn(BINARY, args, { env: this.#env(), stdio: ["ignore", "pipe", "pipe"] });
    this.#process = child;
    child.stderr?.on("data", (part) => (this.log = (this.log + part).slice(-20_000)));
    const lines = createInterface({ input: /** @type {any} */ (child.stdout) });
    this.url = await new Promise((found, failed) => {
      child.on("exit", (code) => failed(new Error(`gantry up ended with ${code}: ${this.log}`)));
      lines.on("line", (line) => {
        const url = /http:\/\/127\.0\.0\.1:\d+/.exec(line);
        if (url) found(url[0]);
      });
    });
    this.listen = this.url.slice("http://".length);
    return this;
  }

  get workspace() {
    return this.dir;
  }

  /** Ends the gateway and starts it again on the same port. */
  async restart() {
    await this.halt();
    await this.start();
  }

  async halt() {
    const child = this.#process;
    this.#process = null;
    if (!child || child.exitCode !== null) return;
    const ended = new Promise((done) => child.once("exit", done));
    child.kill("SIGTERM");
    const late = setTimeout(() => child.kill("SIGKILL"), 8000);
    await ended;
    clearTimeout(late);
  }

  /** Runs a command of the program. @param {string[]} args @returns {Promise<string>} */
  run(args) {
    return new Promise((done, failed) => {
      const child = spawn(BINARY, args, { env: this.#env(), stdio: ["ignore", "pipe", "pipe"] });
      let out = "";
      let err = "";
      child.stdout.on("data", (part) => (out += part));
      child.stderr.on("data", (part) => (err += part));
      child.on("exit", (code) => (code === 0 ? done(out) : failed(new Error(`gantry ${args.join(" ")} ended with ${code}: ${err}${out}`))));
    });
  }

  /** A login link, good once. */
  async link() {
    return JSON.parse(await this.run(["page", "--json"])).url;
  }

  async stop() {
    for (const node of this.#nodes) node.kill("SIGKILL");
    await this.halt();
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }

  /** Joins a second machine. @param {string} id */
  async node(id) {
    const added = JSON.parse(await this.run(["nodes", "add", id, "--json"]));
    const dir = join(this.dir, `node-${id}`);
    const child = spawn(BINARY, ["node", "--gateway", this.url.replace("http", "ws") + "/ws", "--id", id, "--workspace", this.dir], {
      env: { ...this.#env(), GANTRY_DATA_DIR: dir, GANTRY_TOKEN: added.token },
      stdio: ["ignore", "ignore", "pipe"],
    });
    child.stderr?.on("data", (part) => (this.log = (this.log + part).slice(-20_000)));
    this.#nodes.push(child);
    return child;
  }
}
