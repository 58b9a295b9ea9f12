// Numbers, times and sizes as people read them, in the browser's locale.

import { signal } from "./signal.js";

const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto", style: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const plain = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const dollars = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", minimumFractionDigits: 2, maximumFractionDigits: 2 });
const cents = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", minimumFractionDigits: 4, maximumFractionDigits: 4 });

/** The time now, for what is shown relative to it. It moves every ten seconds. */
export const now = signal(Date.now());

export function startClock() {
  setInterval(() => document.visibilityState === "visible" && now.set(Date.now()), 10_000);
}

/** @param {number | null | undefined} at @param {number} [from] */
export function ago(at, from = now()) {
  if (!at) return "never";
  const seconds = Math.round((at - from) / 1000);
  const size = Math.abs(seconds);
  if (size < 45) return seconds > 5 ? "in a moment" : "now";
  if (size < 2700) return relative.format(Math.round(seconds / 60), "minute");
  if (size < 79_200) return relative.format(Math.round(seconds / 3600), "hour");
  if (size < 30 * 86_400) return relative.format(Math.round(seconds / 86_400), "day");
  return exact.format(at);
}

/** @param {number | null | undefined} at */
export const exactTime = (at) => (at ? exact.format(at) : "");

/** @param {number} at */
export const clockTime = (at) => clock.format(at);

/** @param {number} n */
export const number = (n) => plain.format(n);

/** @param {number} n */
export const short = (n) => compact.format(n);

/** @param {number} usd */
export const money = (usd) => (usd > 0 && usd < 0.1 ? cents : dollars).format(usd);

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

/** @param {number} bytes */
export function bytes(bytes) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit++;
  }
  return unit === 0 ? `${plain.format(bytes)} ${units[0]}` : `${bytes < 10 ? bytes.toFixed(1) : plain.format(Math.round(bytes))} ${units[unit]}`;
}

// Control characters, spaces that cannot be seen, and marks that change the direction of text.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]|[\u{e0000}-\u{e0fff}]/gu;

/** Makes characters visible that could hide or reorder text, in what a person decides about. @param {string} text */
export function visible(text) {
  return text.replace(UNSEEN, (mark) => `\u27e8U+${(mark.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
}
