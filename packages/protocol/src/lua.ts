import { readFileSync } from "node:fs";

// Lua scripts are files beside the TypeScript that calls them, in a folder `lua`. The comment at the beginning of a file
// names its keys below or behind `-- KEYS`, its arguments below or behind `-- ARGV`; the script has them as locals. A name
// that ends with `...` is the last one and stands for all values that are left, as a table. A line `-- include <name>`
// stands for the text of another file, whose keys and arguments the script then has, too.

/** A Lua script, and the names of its keys and arguments in the order in which it takes them. */
export interface Script {
  name: string;
  keys: string[];
  arguments: string[];
  lua: string;
}

/** What scripts are called with: an ioredis connection, or what BullMQ makes of one. */
export interface ScriptClient {
  defineCommand(name: string, definition: { lua: string }): unknown;
}

/** Reads scripts of the folder `lua` beside a module; files that are included may also be in the one of this package. */
export function scriptsBeside(moduleUrl: string): (name: string) => Script {
  return (name) => loadScript(name, moduleUrl);
}

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

function loadScript(name: string, moduleUrl: string): Script {
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
  const namesOf = (title: string): string[] => [...new Set(headers.flatMap((header) => namesBelow(title, header)))];
  const [keys, names] = [namesOf("KEYS"), namesOf("ARGV")];
  const clock = texts.has("now") ? serverClock : "";
  return {
    name,
    keys,
    arguments: names,
    lua: `${clock}${localsOf("KEYS", keys)}${localsOf("ARGV", names)}${body.trim()}`,
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
 * what the script has no name for is not sent. Throws where one is missing.
 */
export async function runScript(
  client: ScriptClient,
  script: Script,
  keys: object,
  values: Readonly<Record<string, Value | readonly Value[]>> = {},
): Promise<unknown> {
  const { command, keyNames, argumentNames } = known.get(client)?.get(script) ?? define(client, script);
  const given: Value[] = [];
  addValues(given, keyNames, keys, script);
  const keyCount = given.length;
  addValues(given, argumentNames, values, script);
  const testClock = testClocks.get(client);
  if (testClock !== undefined && script.lua.startsWith(serverClock)) given.push(testClock.ms);
  return await command(keyCount, ...given);
}

function addValues(into: Value[], names: readonly Name[], given: object, script: Script): void {
  for (const { name, isRest } of names) {
    const value: unknown = (given as Readonly<Record<string, unknown>>)[name];
    if (typeof value === "string" || typeof value === "number") into.push(value);
    else if (isRest && Array.isArray(value)) {
      for (const one of value as Value[]) into.push(one); // as the types of what is given have it
    } else throw new Error(`the script ${script.name} is called without ${name}`);
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

function define(client: ScriptClient, script: Script): Defined {
  count += 1;
  const name = `larkline:${script.name}:${count}`;
  const testClock = testClocks.get(client);
  const lua = testClock === undefined ? script.lua : script.lua.replace(serverClock, testClock.lua);
  client.defineCommand(name, { lua });
  const method = Reflect.get(client, name) as Command; // the static type cannot know it
  const defined: Defined = {
    command: (...values) => method.apply(client, values),
    keyNames: script.keys.map(nameOf),
    argumentNames: script.arguments.map(nameOf),
  };
  known.set(client, (known.get(client) ?? new Map<Script, Defined>()).set(script, defined));
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
