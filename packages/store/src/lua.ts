import { readFileSync } from "node:fs";
import type { ScriptReplies } from "./script-replies.ts";

// Lua scripts are files beside the TypeScript that calls them, in a folder `lua`. The comment at the beginning of a file
// names its keys below or behind `-- KEYS`, its arguments below or behind `-- ARGV`; the script has them as locals. A name
// that ends with `...` is the last one and stands for all values that are left, as a table. A line `-- include <name>`
// stands for the text of another file, whose keys and arguments the script then has, too.
//
// A script with a reply of several values names them below `-- REPLY`: name, type, and what it means. It returns
// `respond {name = value...}`, and its caller gets an object. Types are `text`, `integer`, `flag`, `texts`, `rows`, or the
// texts that are possible, as 'one'|'other'; those that end with `?` may be absent. The values of each of the `rows` stand
// below `-- ROW`, and the script makes one by `row {name = value...}`. Where there are several kinds of replies, each has
// a section `-- REPLY <kind>`: the script returns `respond('<kind>', {...})`, and `reply` is the kind in the object. A section
// `-- REPLY nil` says that the script may return nil, and its caller gets undefined.

/** A Lua script, and the names of its keys and arguments in the order in which it takes them. */
export interface Script<Reply = unknown> {
  name: string;
  keys: string[];
  arguments: string[];
  lua: string;
  /** Its kinds of replies; none where the reply is handed on as it is. */
  replies: readonly ReplyForm[];
  /** What Redis has answered, by the names of its values. */
  read: (answer: unknown) => Reply;
}

/** One kind of reply, or the values of a row. */
export interface ReplyForm {
  /** Empty where there is one kind only; `nil` stands for no reply. */
  kind: string;
  values: readonly ReplyValue[];
}

export interface ReplyValue {
  name: string;
  /** `text`, `integer`, `flag`, `texts`, or possible texts. */
  type: string;
  isOptional: boolean;
  /** Of `rows` the values of each. */
  row: readonly ReplyValue[];
}

/** What scripts are called with: an ioredis connection, or what BullMQ makes of one. */
export interface ScriptClient {
  defineCommand(name: string, definition: { lua: string }): unknown;
}

/**
 * Reads scripts of the folder `lua` beside a module; files that are included may also be in the one of this package.
 * `Replies` has the types of their replies by the scripts' names.
 */
export function scriptsBeside<Replies extends object>(
  moduleUrl: string,
): <Name extends string>(
  name: Name,
) => Script<Name extends keyof Replies ? Replies[Name] : unknown> {
  return (name) => loadScript(name, moduleUrl);
}

/** Reads lua/<name>.lua. */
export const script = scriptsBeside<ScriptReplies>(import.meta.url);

/** The offset of the clock, which `now` reads: in production there is one clock, that of Redis. */
const serverClock = "local clockOffsetMs = 0\n";
const movedClock = "local clockOffsetMs = tonumber(table.remove(ARGV))\n";
/** The same time however long it takes until a script runs. Keys that expired by the clock of Redis meanwhile would be missing. */
const stoppedClock = `local server, stoppedAtMs, clockOffsetMs = redis, tonumber(table.remove(ARGV)), 0
local function call(command, ...)
  if command == 'TIME' then return { math.floor(stoppedAtMs / 1000), stoppedAtMs % 1000 * 1000 } end
  if command == 'PEXPIRE' then return 1 end
  return server.call(command, ...)
end
local redis = setmetatable({ call = call }, { __index = server })
`;

function loadScript<Reply>(name: string, moduleUrl: string): Script<Reply> {
  const texts = new Map([[name, textOf(name, moduleUrl)]]);
  const expanded = (text: string): string =>
    text.replaceAll(/^-- include (\S+)$/gm, (_line, included: string) => {
      if (texts.has(included)) return "";
      const its = textOf(included, moduleUrl);
      texts.set(included, its);
      return bodyOf(expanded(its)).trim();
    });
  const body = bodyOf(expanded(texts.get(name) ?? ""));
  const headers = [...texts.values()].map(headerOf);
  const namesOf = (title: string): string[] => [
    ...new Set(headers.flatMap((header) => namesBelow(title, header))),
  ];
  const [keys, names] = [namesOf("KEYS"), namesOf("ARGV")];
  const clock = texts.has("now") ? serverClock : "";
  const row = headers.flatMap((header) => valuesBelow("ROW", header, []));
  const replies = headers.flatMap((header) => replyForms(header, row));
  const named = `${replyFunctions(replies)}${row.length === 0 ? "" : `local function row(v) return ${listed(row)} end\n`}`;
  return {
    name,
    keys,
    arguments: names,
    lua: `${clock}${localsOf("KEYS", keys)}${localsOf("ARGV", names)}${named}${body.trim()}`,
    replies,
    read: (answer) => replyFrom(name, replies, answer) as Reply, // by the header, from which the type is made
  };
}

function textOf(name: string, moduleUrl: string): string {
  for (const folder of [new URL("./lua/", moduleUrl), new URL("./lua/", import.meta.url)]) {
    try {
      return readFileSync(new URL(`${name}.lua`, folder), "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error; // of node:fs
    }
  }
  throw new Error(`there is no script ${name}.lua`);
}

function headerOf(text: string): string[] {
  return text.slice(0, Math.max(0, text.indexOf("\n\n"))).split("\n");
}

/** What follows the header. */
function bodyOf(text: string): string {
  return text.slice(text.indexOf("\n\n") + 1);
}

/** The names behind a title of a header, or below it: one in each line, its meaning behind it. */
function namesBelow(title: string, header: readonly string[]): string[] {
  return header.flatMap((line, at) => {
    if (line !== `-- ${title}` && !line.startsWith(`-- ${title} `)) return [];
    const behind = line.slice(`-- ${title}`.length).match(/[\w.]+/g) ?? [];
    const others = header.slice(at + 1);
    const end = others.findIndex((other) => !other.startsWith("--   "));
    const below = others.slice(0, end < 0 ? others.length : end);
    return [...behind, ...below.flatMap((other) => /^-- {3}([\w.]+)/.exec(other)?.[1] ?? [])];
  });
}

function replyForms(header: readonly string[], row: readonly ReplyValue[]): ReplyForm[] {
  const kinds = header.flatMap((line) => /^-- REPLY(?: (\w+))?$/.exec(line)?.slice(0, 2) ?? []);
  const forms: ReplyForm[] = [];
  for (let at = 0; at < kinds.length; at += 2) {
    const kind = kinds[at + 1] ?? "";
    forms.push({ kind, values: valuesBelow(kind === "" ? "REPLY" : `REPLY ${kind}`, header, row) });
  }
  return forms;
}

/** Values below a title of a header: name and type of one in each line, its meaning behind them. */
function valuesBelow(
  title: string,
  header: readonly string[],
  row: readonly ReplyValue[],
): ReplyValue[] {
  const begin = header.indexOf(`-- ${title}`);
  if (begin < 0) return [];
  const others = header.slice(begin + 1);
  const end = others.findIndex((other) => !other.startsWith("--   "));
  return others.slice(0, end < 0 ? others.length : end).flatMap((line) => {
    const [, name, type, mark] =
      /^-- {3}(\w+) +(text|integer|flag|texts|rows|'[\w'|]+')(\??)(?: |$)/.exec(line) ?? [];
    if (name === undefined || type === undefined) return []; // the meaning of the value above continues
    return { name, type, isOptional: mark === "?", row: type === "rows" ? row : [] };
  });
}

/** The Lua functions with which a script makes its replies. An error of a function that it has called stays one. */
function replyFunctions(replies: readonly ReplyForm[]): string {
  const forms = replies.filter(({ kind }) => kind !== "nil");
  const [first] = forms;
  if (first === undefined) return "";
  if (first.kind === "") {
    return `local function respond(v) return v.err and v or ${listed(first.values)} end\n`;
  }
  // One function, because each costs something at every call of the script.
  const kinds = forms.map(
    ({ kind, values }) => `if kind == '${kind}' then return ${listed(values, `'${kind}'`)} end\n`,
  );
  return `local function respond(kind, v)\n${kinds.join("")}end\n`;
}

/** A Lua table of values in the order of the header. Redis would end a reply at the first nil. */
function listed(values: readonly ReplyValue[], ...first: string[]): string {
  const texts = values.map(({ name, type }) =>
    type === "flag" ? `v.${name} and 1 or 0` : `v.${name} or false`,
  );
  return `{${[...first, ...texts].join(", ")}}`;
}

function replyFrom(scriptName: string, replies: readonly ReplyForm[], answer: unknown): unknown {
  if (replies.length === 0) return answer;
  if (answer === null && replies.some(({ kind }) => kind === "nil")) return undefined;
  const values = answer as unknown[]; // a table that `respond` has made
  const only = replies.find(({ kind }) => kind === "");
  if (only !== undefined) return valuesFrom(scriptName, only.values, values, 0);
  const form = replies.find(({ kind }) => kind === values[0]);
  if (form === undefined) {
    throw new Error(`the script ${scriptName} has another reply than its header names`);
  }
  return Object.assign(valuesFrom(scriptName, form.values, values, 1), { reply: form.kind });
}

function valuesFrom(
  scriptName: string,
  names: readonly ReplyValue[],
  given: readonly unknown[],
  from: number,
): object {
  const named: Record<string, unknown> = {};
  for (const [at, value] of names.entries()) {
    const stored = given[from + at] ?? null;
    if (stored !== null) named[value.name] = valueFrom(scriptName, value, stored);
    else if (!value.isOptional) {
      throw new Error(`the script ${scriptName} has answered without ${value.name}`);
    }
  }
  return named;
}

function valueFrom(scriptName: string, { type, row }: ReplyValue, value: unknown): unknown {
  if (type === "integer") return Number(value);
  if (type === "flag") return value === 1;
  if (type === "texts") return value;
  if (type === "rows") {
    const rows = value as unknown[][]; // made by `row`
    return rows.map((one) => valuesFrom(scriptName, row, one, 0));
  }
  return String(value);
}

/** The type of a script's reply, as TypeScript has it. */
export function replyTypeOf({ replies }: Script): string {
  const types = replies.map(({ kind, values }) => {
    if (kind === "nil") return "undefined";
    return objectType(kind === "" ? [] : [`reply: "${kind}"`], values);
  });
  return types.join(" | ");
}

function objectType(first: string[], values: readonly ReplyValue[]): string {
  const typed = values.map(
    ({ name, isOptional, ...value }) => `${name}${isOptional ? "?" : ""}: ${typeOfValue(value)}`,
  );
  return `{ ${[...first, ...typed].join("; ")} }`;
}

function typeOfValue({ type, row }: Pick<ReplyValue, "type" | "row">): string {
  const known: Readonly<Record<string, string>> = {
    text: "string",
    integer: "number",
    flag: "boolean",
    texts: "string[]",
  };
  if (type === "rows") return `${objectType([], row)}[]`;
  return known[type] ?? type.replaceAll("'", '"').replaceAll("|", " | ");
}

const rest = "...";

function localsOf(table: "KEYS" | "ARGV", names: readonly string[]): string {
  if (names.length === 0) return "";
  const values = names.map((name, at) =>
    name.endsWith(rest) ? `{unpack(${table}, ${at + 1})}` : `${table}[${at + 1}]`,
  );
  return `local ${names.map(plain).join(", ")} = ${values.join(", ")}\n`;
}

function plain(name: string): string {
  return name.endsWith(rest) ? name.slice(0, -rest.length) : name;
}

type Value = string | number;

/**
 * Calls a script; the connection sends it once, and its hash afterwards. Keys and arguments are found by their names;
 * what the script has no name for is not sent. Throws where one is missing, and where the reply lacks a value.
 */
export async function runScript<Reply>(
  client: ScriptClient,
  called: Script<Reply>,
  keys: object,
  values: Readonly<Record<string, Value | readonly Value[]>> = {},
): Promise<Reply> {
  const { command, keyNames, argumentNames } =
    known.get(client)?.get(called) ?? define(client, called);
  const given: Value[] = [];
  addValues(given, keyNames, keys, called);
  const keyCount = given.length;
  addValues(given, argumentNames, values, called);
  const testClock = testClocks.get(client);
  if (testClock !== undefined && called.lua.startsWith(serverClock)) given.push(testClock.ms);
  return called.read(await command(keyCount, ...given));
}

function addValues(into: Value[], names: readonly Name[], given: object, called: Script): void {
  for (const { name, isRest } of names) {
    const value: unknown = (given as Readonly<Record<string, unknown>>)[name];
    if (typeof value === "string" || typeof value === "number") into.push(value);
    else if (isRest && Array.isArray(value)) {
      for (const one of value as Value[]) into.push(one); // as the types of what is given have it
    } else throw new Error(`the script ${called.name} is called without ${name}`);
  }
}

type Command = (...values: Value[]) => Promise<unknown>;

interface Name {
  name: string;
  isRest: boolean;
}

/** A script as a connection has it. */
interface Defined {
  command: Command;
  keyNames: readonly Name[];
  argumentNames: readonly Name[];
}

const known = new WeakMap<ScriptClient, Map<Script, Defined>>();
/** The clock of a connection that is not that of Redis: `ms` off it, or stopped at `ms`. */
interface TestClock {
  lua: string;
  ms: number;
}

const testClocks = new WeakMap<ScriptClient, TestClock>();
let count = 0;

function define(client: ScriptClient, called: Script): Defined {
  count += 1;
  const name = `larkline:${called.name}:${count}`;
  const testClock = testClocks.get(client);
  const lua = testClock === undefined ? called.lua : called.lua.replace(serverClock, testClock.lua);
  client.defineCommand(name, { lua });
  const method = Reflect.get(client, name) as Command; // the static type cannot know it
  const defined: Defined = {
    command: (...values) => method.apply(client, values),
    keyNames: called.keys.map(nameOf),
    argumentNames: called.arguments.map(nameOf),
  };
  known.set(client, (known.get(client) ?? new Map<Script, Defined>()).set(called, defined));
  return defined;
}

function nameOf(name: string): Name {
  return { name: plain(name), isRest: name.endsWith(rest) };
}

/** Moves the clock of all scripts that are called over this connection. For tests, which own the time then. */
export function moveScriptClock(client: ScriptClient, offsetMs: number): void {
  setTestClock(client, { lua: movedClock, ms: offsetMs });
}

/** Stops the clock of all scripts that are called over this connection, at an epoch time; the keys that they write stay. For tests. */
export function stopScriptClock(client: ScriptClient, atMs: number): void {
  setTestClock(client, { lua: stoppedClock, ms: atMs });
}

function setTestClock(client: ScriptClient, testClock: TestClock): void {
  if (testClocks.get(client)?.lua !== testClock.lua) known.delete(client);
  testClocks.set(client, testClock);
}

/** The time of scripts that are called over this connection, while Redis has this one; epoch ms. */
export function scriptTimeAt(client: ScriptClient, redisMs: number): number {
  const { lua, ms } = testClocks.get(client) ?? { lua: movedClock, ms: 0 };
  return lua === stoppedClock ? ms : redisMs + ms;
}
