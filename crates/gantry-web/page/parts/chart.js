// Stacked bars by day, as SVG, with the same numbers as a table for those who do not see it.

import { h } from "../core/dom.js";

/**
 * @param {readonly string[]} days @param {readonly string[]} names @param {(day: string, name: string) => number} value @param {(value: number) => string} show @param {string} label
 */
export function dayChart(days, names, value, show, label) {
  const [width, height, left, bottom] = [Math.max(560, days.length * 12), 200, 56, 22];
  const sums = days.map((day) => names.reduce((sum, name) => sum + value(day, name), 0));
  const most = Math.max(...sums, 0) || 1;
  const step = (width - left) / Math.max(1, days.length);
  const y = (/** @type {number} */ v) => (height - bottom) * (1 - v / most) + 6;
  const every = Math.ceil(days.length / 8);
  return h(
    "figure",
    { class: "chart" },
    h(
      "div",
      { class: "chart-scroll", tabindex: "0", role: "region", "aria-label": label },
      h(
        "svg",
        { width: String(width), height: String(height + 8), viewBox: `0 0 ${width} ${height + 8}`, role: "img", "aria-label": label },
        [0, 0.5, 1].map((part) => [h("line", { class: "grid", x1: String(left), x2: String(width), y1: String(y(most * part)), y2: String(y(most * part)) }), h("text", { class: "axis", x: String(left - 8), y: String(y(most * part) + 4), "text-anchor": "end" }, show(most * part))]),
        days.map((day, at) => {
          let base = 0;
          return h(
            "g",
            null,
            names.map((name, index) => {
              const part = value(day, name);
              if (!part) return null;
              const [top, end] = [y(base + part), y(base)];
              base += part;
              return h("rect", { class: `series s${(index % 6) + 1}`, x: String(left + at * step + 1), y: String(top), width: String(Math.max(1, step - 3)), height: String(Math.max(1, end - top)), rx: "2" }, h("title", null, `${day} · ${name} · ${show(part)}`));
            }),
            at % every === 0 ? h("text", { class: "axis", x: String(left + at * step), y: String(height) }, day.slice(5)) : null,
          );
        }),
      ),
    ),
    h("figcaption", { class: "legend" }, names.map((name, index) => h("span", null, h("span", { class: `swatch s${(index % 6) + 1}`, "aria-hidden": "true" }), name))),
    h("details", { class: "muted" }, h("summary", null, "As a table"), h("div", { class: "table-card", tabindex: "0", role: "region", "aria-label": `${label}, as a table` }, h("table", { class: "table" }, h("thead", null, h("tr", null, h("th", null, "Day"), names.map((name) => h("th", { class: "num" }, name)))), h("tbody", null, days.filter((_, at) => sums[at] > 0).map((day) => h("tr", null, h("td", null, day), names.map((name) => h("td", { class: "num" }, show(value(day, name)))))))))),
  );
}
