import { readFileSync } from "node:fs";
import type { RedisClient } from "bullmq";

/** A Lua script, and the names of its keys and arguments in the order in which it takes them. */
export interface Script {
  name: string;
  keys: string[];
  arguments: string[];
  lua: string;
}

function textOf(name: string): string {
  return readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), "utf8");
}

/** The names below a title of a header: one in each line, its meaning behind it. */
function namesBelow(title: string, header: readonly string[]): string[] {
  const rest = header.slice(header.indexOf(`-- ${title}`) + 1);
  const end = rest.findIndex((line) => !line.startsWith("--   "));
  return rest.slice(0, end).flatMap((line) => /^-- {3}(\w+)/.exec(line)?.[1] ?? []);
}

function localsOf(table: "KEYS" | "ARGV", names: readonly string[]): string {
  return `local ${names.join(", ")} = ${names.map((_name, index) => `${table}[${index + 1}]`).join(", ")}\n`;
}

/**
 * Reads lua/<name>.lua. The comment at its beginning names its keys under `KEYS` and its arguments under `ARGV`; the
 * script has them as locals. A line `-- include <name>` stands for the text of another file.
 */
export function loadScript(name: string): Script {
  const text = textOf(name);
  const header = text.slice(0, text.indexOf("\n\n")).split("\n");
  const [keys, names] = [namesBelow("KEYS", header), namesBelow("ARGV", header)];
  const body = text.replaceAll(/^-- include (\S+)$/gm, (_line, included: string) => textOf(included).trim());
  return { name, keys, arguments: names, lua: `${localsOf("KEYS", keys)}${localsOf("ARGV", names)}${body}` };
}

/** Which scripts a connection knows. */
const known = new WeakMap<RedisClient, Set<Script>>();

function valuesOf<T>(names: readonly string[], given: Readonly<Record<string, T>>, script: Script): T[] {
  return names.map((name) => {
    const value = given[name];
    if (value === undefined) throw new Error(`the script ${script.name} is called without ${name}`);
    return value;
  });
}

/** Calls a script; the connection sends it once, and its hash afterwards. */
export async function runScript(
  client: RedisClient,
  script: Script,
  given: { keys: Readonly<Record<string, string>>; arguments: Readonly<Record<string, string | number>> },
): Promise<unknown> {
  const command = `larkline:${script.name}`;
  const defined = known.get(client) ?? new Set();
  if (!defined.has(script)) {
    client.defineCommand(command, { numberOfKeys: script.keys.length, lua: script.lua });
    known.set(client, defined.add(script));
  }
  const keys = valuesOf(script.keys, given.keys, script);
  return await client.runCommand(command, [...keys, ...valuesOf(script.arguments, given.arguments, script)]);
}
