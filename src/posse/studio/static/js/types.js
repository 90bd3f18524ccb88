/**
 * Shapes of what the server sends, for the type checker alone: no module loads this file in the browser.
 *
 * @typedef {{kind: string, label: string, colour: [string, string], holds: string, place: [number, number],
 *   sole: boolean, party?: boolean}} Role
 * @typedef {{name: string, summary: string}} Level
 * @typedef {{title?: string, name?: string, fields: string[]}} Group
 * @typedef {{name: string, about?: string, settings: Settings}} Scenario
 * @typedef {{name: string, parameters: Record<string, unknown> | string, summary?: string}} Policy
 * @typedef {{name: string, ready?: boolean, what: string, reason?: string}} DataSet
 * @typedef {Record<string, unknown>} Settings
 * @typedef {{type?: string, enum?: unknown[], anyOf?: Property[], items?: Property, default?: unknown, description?: string,
 *   title?: string, minimum?: number, maximum?: number, exclusiveMinimum?: number, exclusiveMaximum?: number,
 *   const?: unknown, $ref?: string, format?: string, only?: Record<string, unknown[]>, instead?: string[]}} Property
 * @typedef {{properties: Record<string, Property>, required?: string[], $defs?: Record<string, Property>}} Schema
 * @typedef {{name: string, title: string, summary: string, reference: string, protects: string, roles: Role[],
 *   levels: Level[], schema: Schema, groups?: Group[], scenarios: Scenario[], policies: Policy[], data: DataSet[] | null,
 *   words: Record<string, string>}} System
 *
 * @typedef {{estimate: number, low: number, high: number, truth?: number | null}} Bar
 * @typedef {{name: string, kind: string, label: string, short?: string, text?: string, bar?: Bar | null,
 *   weight?: number | null}} Party
 * @typedef {{name: string, value: number, of?: number, text: string}} Figure
 * @typedef {{parties: Party[], links: [string, string][], now: {chosen?: string[]}, figures: Figure[]}} Scene
 * @typedef {[number, number]} Point
 * @typedef {{number: number, sender: string, receiver: string, name: string, says: string, size: number,
 *   lines?: Record<string, number[]>, moved?: [string, string][], count?: number, step?: string}} Last
 * @typedef {{id: string, system: string, settings: Settings, time: number, horizon: number, unit: string, message: number,
 *   messages: number, done: boolean, phase: "starting" | "paused" | "playing" | "moving" | "done" | "failed", speed: number, refused?: string, doing?: string, scene: Scene | null,
 *   costs: {kind: string, seconds: number, per_step: number | null}[],
 *   traffic: {from: string, to: string, messages: number, bytes: number}[], last: Last | null, level: string,
 *   observers?: string[], watchers?: Record<string, string>, says?: string, change?: number, heard?: Stage["phase"],
 *   knowledge?: Record<string, Knowledge>, not_protected?: string[]}} Stage
 *
 * @typedef {{name: string, protection: string, length: number, opens: string[], why?: string}} Part
 * @typedef {{number: number, time: number, sender: string, receiver: string, name: string, says: string,
 *   clear: [string, string][], size: number, parts: Part[], bytes: string | null, sees: "all" | "sealed" | "nothing",
 *   lines?: Record<string, number[]>, step?: string}} Message
 * @typedef {{knows: string[], never: string[], could: string[]}} Knowledge
 * @typedef {{name: string, kind: string, label?: string, state: Record<string, unknown>} & Knowledge} PartyView
 * @typedef {{attack: string, name?: string, at?: string, finds: string | number | null, without: string | number | null, verdict: string, power?: string, says?: string,
 *   beside?: {level: string, finds: string | number | null, verdict: string}[]}} Attack
 * @typedef {{columns: string[], rows: {data: string, cells: string[]}[], note: string}} Sees
 * @typedef {{rows: Attack[], note?: string, notes?: string[], stated?: string[], sees?: Sees | null, time?: number}} Audit
 * @typedef {{name: string, seconds: number, per_step: number | null, points?: Point[]}} CostRow
 * @typedef {{rows: CostRow[], note?: string, notes?: string[]}} Cost
 * @typedef {{field: string, message: string}} FieldError
 * @typedef {{arms?: {name: string, mean: number, ratings?: number}[], histogram?: {value: number, count: number, pays?: boolean}[], note?: string,
 *   central?: {rows: number, columns: string[], sample: unknown[][]}}} Preview
 * @typedef {{ok: boolean, settings?: Settings, errors: FieldError[], level?: string, protection?: string, learns?: string[],
 *   not_protected?: string[], knowledge?: Record<string, Knowledge>,
 *   preview?: Preview | null, summary?: string}} Check
 *
 * @typedef {{title: string, columns: string[], rows: string[][], notes: string[], numeric: number[]}} Section
 * @typedef {{id: string, label: string, system: string, policy: string, level: string, reward: number | null,
 *   interval: [number, number] | null, seconds: number | null, when: string, status: string, time?: number,
 *   whole?: number}} RunRow
 * @typedef {{policy: string, level: string, reward?: {mean: number, low: number, high: number} | null, best?: number | null,
 *   seconds?: number, per_step?: number, finds?: string | null, together?: string, verdict?: string, run?: string, done: boolean, error?: string}} Cell
 * @typedef {{id: string, kind: string, system: string, done: number, of: number, text: string, share: number, finished: boolean,
 *   cancelled?: boolean, error?: string, cells?: Cell[], says?: string, settings?: Settings}} Job
 * @typedef {{name: string, title?: string, summary: string, schema: Schema}} Budget
 */

export {};
