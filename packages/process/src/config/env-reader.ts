import type { ParseResult } from "@larkline/protocol";

/** A process's environment as Node gives it. */
export type Env = Readonly<Record<string, string | undefined>>;

/** What holds when a variable is not set: a default, a problem, or (neither given) `undefined`. */
export interface ReadOptions<T> {
  default?: T;
  required?: true;
}

/** The type of a value read with these options. */
export type Read<T, O> = O extends { required: true } | { default: T } ? T : T | undefined;

/**
 * Reads typed values from the environment and collects every problem, naming the variable. An
 * empty value counts as not set. Between a problem and {@link EnvReader.finish} a reader returns a
 * stand-in (`""`, 0, false), so that all variables are looked at before anything fails.
 */
export interface EnvReader {
  text<const O extends ReadOptions<string>>(name: string, options?: O): Read<string, O>;
  /** Like text; its value never appears in a problem. `minLength` in characters. */
  secret<const O extends ReadOptions<string> & { minLength?: number }>(name: string, options?: O): Read<string, O>;
  /** A whole number within `min` and `max`. */
  integer<const O extends ReadOptions<number> & { min?: number; max?: number }>(
    name: string,
    options?: O,
  ): Read<number, O>;
  /** A TCP port; 0 takes a free one. */
  port<const O extends ReadOptions<number>>(name: string, options?: O): Read<number, O>;
  /** `true`/`false`, `1`/`0`, `yes`/`no`, `on`/`off` in any letter case. */
  flag<const O extends ReadOptions<boolean>>(name: string, options?: O): Read<boolean, O>;
  /** An absolute URL, as written. `protocols` (default `http:` and `https:`) are the accepted ones. */
  url<const O extends ReadOptions<string> & { protocols?: readonly string[] }>(
    name: string,
    options?: O,
  ): Read<string, O>;
  /** One of `allowed`, exactly as written there. */
  choice<const T extends string, const O extends ReadOptions<T>>(
    name: string,
    allowed: readonly T[],
    options?: O,
  ): Read<T, O>;
  /** Comma-separated values, trimmed, empty ones dropped; not set gives an empty list. */
  list(name: string): string[];
  /** Adds a problem found by the caller (two variables that contradict each other, say). */
  problem(text: string): void;
  /** The value, or all problems of this reader, one per line. */
  finish<T>(value: T): ParseResult<T>;
}

const flags = new Map(
  Object.entries({ true: true, 1: true, yes: true, on: true, false: false, 0: false, no: false, off: false }),
);

/** A converted value, or what the variable must be. */
type Converted<T> = { value: T } | { mustBe: string };

function toText(text: string): Converted<string> {
  return { value: text };
}

function toSecret(text: string, { minLength = 0 }: { minLength?: number }): Converted<string> {
  return text.length >= minLength ? { value: text } : { mustBe: `at least ${minLength} characters long` };
}

function toInteger(text: string, { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER }): Converted<number> {
  const value = /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return { value };
  if (max === Number.MAX_SAFE_INTEGER) {
    return { mustBe: min === Number.MIN_SAFE_INTEGER ? "a whole number" : `a whole number of at least ${min}` };
  }
  return { mustBe: `a whole number from ${min} to ${max}` };
}

/** A list of hosts (Redis Sentinel, Cluster) is no URL by the standard, so each host is checked alone. */
function isUrl(text: string): boolean {
  const [, start = "", hosts = "", end = ""] = /^([^/]+:\/\/(?:[^/@]*@)?)([^/]+)(.*)$/.exec(text) ?? [];
  return hosts !== "" && hosts.split(",").every((host) => URL.canParse(`${start}${host}${end}`));
}

function toUrl(text: string, protocols: readonly string[]): Converted<string> {
  const fits = protocols.some((protocol) => text.startsWith(`${protocol}//`)) && isUrl(text);
  return fits
    ? { value: text }
    : { mustBe: `a URL that starts with ${protocols.map((one) => `${one}//`).join(" or ")}` };
}

function toFlag(text: string): Converted<boolean> {
  const value = flags.get(text.toLowerCase());
  return value === undefined ? { mustBe: "true or false" } : { value };
}

function toChoice<T extends string>(text: string, allowed: readonly T[]): Converted<T> {
  const value = allowed.find((one) => one === text);
  return value === undefined ? { mustBe: `one of ${allowed.join(", ")}` } : { value };
}

interface Variable<T> {
  name: string;
  options: ReadOptions<T> | undefined;
  convert: (text: string) => Converted<T>;
  standIn: T;
  /** Whether a wrong value may be repeated in a problem. */
  shown: boolean;
}

function readVariable<T>(env: Env, problems: string[], variable: Variable<T>): T | undefined {
  const { name, options, convert, standIn, shown } = variable;
  const text = env[name]?.trim();
  if (text === undefined || text === "") {
    if (options?.required !== true) return options?.default;
    problems.push(`${name} is not set.`);
    return standIn;
  }
  const converted = convert(text);
  if ("value" in converted) return converted.value;
  problems.push(`${name} must be ${converted.mustBe}${shown ? `, but is ${JSON.stringify(text.slice(0, 80))}` : ""}.`);
  return options?.default ?? standIn;
}

/** Makes a reader of an environment. Reads nothing by itself and changes nothing. */
export function createEnvReader(env: Env): EnvReader {
  const problems: string[] = [];
  // The cast states what ReadOptions mean: undefined comes back only without default and required.
  const read = <T, O>(variable: Variable<T>) => readVariable(env, problems, variable) as Read<T, O>;

  return {
    text: (name, options) => read({ name, options, convert: toText, standIn: "", shown: true }),
    secret: (name, options) =>
      read({ name, options, convert: (text) => toSecret(text, options ?? {}), standIn: "", shown: false }),
    integer: (name, options) =>
      read({ name, options, convert: (text) => toInteger(text, options ?? {}), standIn: 0, shown: true }),
    port: (name, options) =>
      read({ name, options, convert: (text) => toInteger(text, { min: 0, max: 65_535 }), standIn: 0, shown: true }),
    flag: (name, options) => read({ name, options, convert: toFlag, standIn: false, shown: true }),
    url: (name, options) => {
      const protocols = options?.protocols ?? ["http:", "https:"];
      return read({ name, options, convert: (text) => toUrl(text, protocols), standIn: "", shown: false });
    },
    choice: <T extends string, O extends ReadOptions<T>>(name: string, allowed: readonly T[], options?: O) => {
      // An empty list of choices has no member to stand in; its type has no value either.
      const standIn = allowed[0] as T;
      return read<T, O>({ name, options, convert: (text) => toChoice(text, allowed), standIn, shown: true });
    },
    list: (name) => (env[name] ?? "").split(",").flatMap((item) => (item.trim() === "" ? [] : [item.trim()])),
    problem: (text) => void problems.push(text),
    finish: (value) => (problems.length === 0 ? { ok: true, value } : { ok: false, error: problems.join("\n") }),
  };
}
