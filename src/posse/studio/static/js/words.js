/** Numbers, times and sizes as people read them, and sentences with party names in them. */

import { Gone } from "./api.js";

const UNKNOWN = "–";

/**
 * A number with thousands separated and at most `digits` significant digits.
 * @param {number | null | undefined} value
 * @param {number} [digits]
 */
export function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return value.toLocaleString("en-GB").replace("-", "−");
  if (size >= 10 ** digits) return Math.round(value).toLocaleString("en-GB").replace("-", "−");
  if (size < 1e-4) return value.toExponential(Math.max(0, digits - 2)).replace("-", "−");
  return Number(value.toPrecision(digits)).toLocaleString("en-GB", { maximumFractionDigits: 12 }).replace("-", "−");
}

/**
 * A time in the unit that fits it.
 * @param {number | null | undefined} value seconds
 */
export function seconds(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (value === 0) return "0 s";
  if (value < 1e-6) return `${number(value * 1e9, 2)} ns`;
  if (value < 0.9995e-3) return `${number(value * 1e6, 2)} µs`;
  if (value < 0.9995) return `${number(value * 1e3, 3)} ms`;
  if (value < 59.95) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/**
 * A number of bytes, in powers of 1000.
 * @param {number} count
 */
export function size(count) {
  let value = count;
  for (const unit of ["bytes", "kB", "MB", "GB"]) {
    if (value < 999.5) return unit === "bytes" && count === 1 ? "1 byte" : `${number(value, 3)} ${unit}`;
    value /= 1000;
  }
  return `${number(value, 3)} TB`;
}

/**
 * How long ago a moment was.
 * @param {string} when ISO time
 * @param {number} now milliseconds
 */
export function ago(when, now) {
  const gone = (now - Date.parse(when)) / 1000;
  if (!Number.isFinite(gone)) return when;
  if (gone < 60) return "just now";
  if (gone < 3600) return `${Math.floor(gone / 60)} min ago`;
  if (gone < 86400) return `${Math.floor(gone / 3600)} h ago`;
  return when.slice(0, 10);
}

/**
 * Split a sentence at the party names that stand in it in braces.
 * @param {string} sentence
 * @returns {{text: string, party: boolean}[]}
 */
export function pieces(sentence) {
  const found = [];
  let end = 0;
  for (const match of sentence.matchAll(/\{([^{}]+)\}/g)) {
    if (match.index > end) found.push({ text: sentence.slice(end, match.index), party: false });
    found.push({ text: match[1] ?? "", party: true });
    end = match.index + match[0].length;
  }
  if (end < sentence.length) found.push({ text: sentence.slice(end), party: false });
  return found;
}

/**
 * A setting's name as a label: underscores become spaces.
 * @param {string} name
 */
export function label(name) {
  return name.replaceAll("_", " ");
}

/**
 * The first letter in upper case.
 * @param {string} text
 */
export function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * What went wrong, in one line.
 * @param {unknown} error
 */
export function reason(error) {
  if (error instanceof Gone) return "The server does not answer.";
  return error instanceof Error ? error.message : String(error);
}
