/** From the JSON schema of a system's settings to the fields of a form: no setting is known here by name. */

import { label } from "./words.js";

/**
 * @typedef {import("./types.js").System} System
 * @typedef {import("./types.js").Settings} Settings
 * @typedef {import("./types.js").Property} Property
 * @typedef {{name: string, label: string, help: string, kind: "number" | "choice" | "switch" | "text" | "list",
 *   options: string[], whole: boolean, least: number | null, most: number | null, fallback: unknown, empty: boolean,
 *   of?: string}} Field
 * @typedef {{title: string, folded: boolean, fields: Field[]}} Block
 */

/** Words that all systems share and a visitor looks for: those that come first, and those that come last. */
const FIRST = ["data", "policy"];
const LAST = ["horizon", "seed", "level"];

/**
 * Describe one setting.
 * @param {string} name
 * @param {Property} property
 * @returns {Field}
 */
export function field(name, property) {
  const options = property.anyOf ?? [property];
  const inner = options.find((one) => one.type !== "null") ?? property;
  const empty = options.some((one) => one.type === "null");
  const choices = (inner.enum ?? (inner.const === undefined ? [] : [inner.const])).map(String);
  const numeric = inner.type === "number" || inner.type === "integer";
  /** @type {Field["kind"]} */
  let kind = "text";
  if (choices.length > 0) kind = "choice";
  else if (inner.type === "boolean") kind = "switch";
  else if (numeric) kind = "number";
  else if (inner.type === "array") kind = "list";
  return {
    name,
    label: label(name),
    help: (property.description ?? "").replaceAll("\n", " "),
    kind,
    options: choices,
    whole: inner.type === "integer",
    least: inner.minimum ?? inner.exclusiveMinimum ?? null,
    most: inner.maximum ?? inner.exclusiveMaximum ?? null,
    fallback: property.default ?? null,
    empty,
  };
}

/**
 * Turn the text of a field into a value; null where it is empty.
 * @param {Field} one
 * @param {string | boolean} text
 */
export function read(one, text) {
  if (typeof text === "boolean") return text;
  const trimmed = text.trim();
  if (one.kind === "switch") return trimmed === "true";
  if (trimmed === "") return null;
  if (one.kind === "number") {
    const value = Number(trimmed.replaceAll(",", "").replaceAll("\u202f", ""));
    return Number.isNaN(value) ? trimmed : value;
  }
  if (one.kind === "list") {
    return trimmed.split(",").map((part) => part.trim()).filter((part) => part !== "").map((part) => {
      const value = Number(part);
      return Number.isNaN(value) ? part : value;
    });
  }
  return trimmed;
}

/**
 * Write a value as the text of a field or of an address.
 * @param {unknown} value
 */
export function write(value) {
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.map(String).join(",");
  if (typeof value === "object") return JSON.stringify(value);
  return String(value);
}

/**
 * The value a setting has now: given, or its default.
 * @param {System} system
 * @param {Settings} settings
 * @param {string} name
 */
export function current(system, settings, name) {
  if (replaced(system, settings, name)) return null;
  return name in settings ? settings[name] : system.schema.properties[name]?.default ?? null;
}

/**
 * Whether other settings stand in the place of one: its schema may name them (`instead`).
 * @param {System} system
 * @param {Settings} settings
 * @param {string} name
 */
export function replaced(system, settings, name) {
  return (system.schema.properties[name]?.instead ?? []).some((other) => other in settings);
}

/**
 * The blocks of the form for these settings: first what scenarios set and all systems share, then the rest under its
 * headings, folded. Parameters of policies that are not chosen are left out.
 * @param {System} system
 * @param {Settings} settings
 * @returns {Block[]}
 */
export function blocks(system, settings) {
  const names = Object.keys(system.schema.properties);
  const own = Object.keys(parameters(policy(system, settings)));
  const all = new Set(system.policies.flatMap((one) => Object.keys(parameters(one))));
  const open = names.filter((name) => (!all.has(name) || own.includes(name)) && (name in settings || applies(system, settings, name)));
  const used = new Set(system.scenarios.flatMap((one) => Object.keys(one.settings)));
  const between = open.filter((name) => used.has(name) && short(system, name));
  const main = [...new Set([...FIRST, ...own, ...between, ...LAST])]
    .filter((name) => open.includes(name))
    .sort((a, b) => late(system, a) - late(system, b));
  const groups = system.groups?.length ? system.groups : [{ title: "More settings", fields: names }];
  const rest = groups.map((group) => ({
    title: group.title ?? group.name ?? "More settings",
    folded: true,
    fields: group.fields.filter((name) => open.includes(name) && !main.includes(name)),
  }));
  return [{ title: "", folded: false, fields: main }, ...rest]
    .filter((group) => group.fields.length > 0)
    .map((group) => ({ ...group, fields: group.fields.map((name) => shown(system, settings, name)) }));
}

/**
 * Whether a setting has a meaning beside the others: its schema may say which values another one must have (`only`).
 * @param {System} system
 * @param {Settings} settings
 * @param {string} name
 */
export function applies(system, settings, name) {
  const only = Object.entries(system.schema.properties[name]?.only ?? {});
  return only.every(([other, values]) => values.includes(current(system, settings, other)));
}

/**
 * Whether a setting takes little room: a number or a switch.
 * @param {System} system
 * @param {string} name
 */
function short(system, name) {
  return ["number", "switch"].includes(field(name, system.schema.properties[name] ?? {}).kind);
}

/**
 * The level stands behind the other fields, and switches behind the level.
 * @param {System} system
 * @param {string} name
 */
function late(system, name) {
  return name === "level" ? 1 : system.schema.properties[name]?.type === "boolean" ? 2 : 0;
}

/**
 * @param {import("./types.js").Policy | undefined} one
 * @returns {Record<string, unknown>}
 */
function parameters(one) {
  return one !== undefined && typeof one.parameters === "object" ? one.parameters : {};
}

/**
 * A field with the options that the system declares beside its schema.
 * @param {System} system
 * @param {Settings} settings
 * @param {string} name
 * @returns {Field}
 */
function shown(system, settings, name) {
  const made = field(name, system.schema.properties[name] ?? {});
  if (name === "policy" && system.policies.length > 0) {
    return { ...made, kind: "choice", options: system.policies.map((one) => one.name) };
  }
  if (name === "data" && (system.data === null || system.data.length > 0)) {
    const names = (system.data ?? []).map((one) => one.name);
    const now = write(current(system, settings, name));
    const options = names.includes(now) || now === "" ? names : [...names, now];
    return { ...made, kind: "choice", options: replaced(system, settings, name) ? ["", ...options] : options };
  }
  const own = parameters(policy(system, settings));
  return name in own && made.fallback === null ? { ...made, fallback: own[name] } : made;
}

/**
 * @param {System} system
 * @param {Settings} settings
 */
function policy(system, settings) {
  const now = write(current(system, settings, "policy"));
  return system.policies.find((one) => one.name === now);
}

/**
 * Settings from the values of an address, typed by the schema; names that are no settings are left out.
 * @param {System} system
 * @param {Record<string, string>} values
 * @returns {Settings}
 */
export function fromAddress(system, values) {
  /** @type {Settings} */
  const settings = {};
  for (const [name, text] of Object.entries(values)) {
    const property = system.schema.properties[name];
    if (property === undefined) continue;
    const value = read(field(name, property), text);
    settings[name] = typeof value === "string" && value.startsWith("{") ? JSON.parse(value) : value;
  }
  return settings;
}

/**
 * Settings in a line, in the order of their names.
 * @param {Settings} settings
 * @param {string[]} [but] names that are left out
 */
export function listed(settings, but = []) {
  const kept = Object.entries(settings).filter(([name]) => !but.includes(name)).sort(([a], [b]) => (a < b ? -1 : 1));
  return kept.map(([name, value]) => `${name.replaceAll("_", " ")} ${write(value).replace(/^(file:.{8}).*/, "$1…")}`).join(", ") || "as they come";
}

/**
 * Settings that differ from their defaults.
 * @param {System} system
 * @param {Settings} settings
 */
export function differing(system, settings) {
  return Object.fromEntries(Object.entries(settings).filter(([name, value]) => {
    const property = system.schema.properties[name];
    return property !== undefined && value !== null && JSON.stringify(property.default ?? null) !== JSON.stringify(value);
  }));
}
