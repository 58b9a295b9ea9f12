// Mozilla's readability library over a folder of pages, each in a folder of its own with a `source.html`. Writes what it found to a file,
// HTML by page, and prints how long each page took: parsing and reading, warm.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Readability } from "@mozilla/readability";
import { JSDOM, VirtualConsole } from "jsdom";

const [folder, found] = process.argv.slice(2);
const names = readdirSync(folder).sort();

function read(name) {
  const html = readFileSync(join(folder, name, "source.html"), "utf8");
  const started = performance.now();
  const dom = new JSDOM(html, { url: "http://fakehost/test/page.html", virtualConsole: new VirtualConsole() });
  const article = new Readability(dom.window.document).parse();
  const ms = performance.now() - started;
  dom.window.close();
  return { content: article?.content ?? "", ms };
}

const contents = {};
const times = {};
for (const round of [0, 1]) {
  for (const name of names) {
    const { content, ms } = read(name);
    contents[name] = content;
    if (round === 1) times[name] = ms;
  }
}
writeFileSync(found, JSON.stringify(contents));
console.log(JSON.stringify({ ms: times }));
