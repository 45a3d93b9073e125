import { closeSync, openSync, readFileSync, writeSync } from "node:fs";
import process from "node:process";
import type { ParseResult } from "@larkline/protocol";

/** A process's environment as Node gives it. */
export type Env = Readonly<Record<string, string | undefined>>;

/** Variables that only the code that reads the configuration may see; of bots with a name, the same with it behind. */
const secretVariables =
  /^(?:REDIS_URL|ARCHIVE_URL|CALL_SIGNING_KEY|GRANT_KEY|RUNNER_KEY|FEISHU_(?:APP_SECRET|ENCRYPT_KEY|VERIFICATION_TOKEN)(?:_[A-Z0-9_]+)?|(?:ANTHROPIC|OPENAI)_API_KEY|API_(?:TOKEN|KEYS|JWT_SECRET)|EVENTS_SIGNING_KEY|CONSOLE_(?:VIEWER_)?PASSWORD|OTEL_EXPORTER_OTLP_HEADERS)$/;

/**
 * Reads the environment of this process and leaves a clean one behind; to be called once, by the program that was
 * started, before anything else runs. Every process of the same user can read in `/proc/<pid>/environ` what another was
 * started with, the tools of a runner among them: that copy is overwritten without what looks like a
 * secret. Secrets leave `process.env` too, so that no
 * child and no module inherits them; other variables stay there. Where there is no `/proc`, or it does not let us, the
 * copy stays, and `problem` says why.
 */
export function takeEnvironment(): { env: Env; problem: string | undefined } {
  const env = { ...process.env };
  for (const [name, value] of Object.entries(env)) {
    // A variable that is set anew no longer lies where the kernel put it.
    delete process.env[name];
    if (!secretVariables.test(name)) process.env[name] = value;
  }
  if (process.platform !== "linux") return { env, problem: undefined };
  try {
    overwrite(startOfProcess(), env);
    return { env, problem: undefined };
  } catch (error) {
    return { env, problem: error instanceof Error ? error.message : String(error) };
  }
}

/** What a name or a value says of a secret that we do not know: keys of further vendors, of tools, of observers. */
const secretName = /KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|HEADERS|DSN/i;

const hasPassword = /:\/\/[^/@\s]*@/;

/** Leaves out variables that differ between processes (folder, port, log level). */
function overwrite({ start, length }: { start: number; length: number }, env: Env): void {
  if (!(start > 0 && length > 0)) throw new Error("the kernel does not tell where it is");
  const shown = Object.entries(env).filter(
    ([name, value = ""]) =>
      !secretVariables.test(name) && !secretName.test(name) && !hasPassword.test(value),
  );
  const bytes = Buffer.alloc(length);
  bytes.write(shown.map(([name, value]) => `${name}=${value}\0`).join(""));
  const memory = openSync("/proc/self/mem", "r+");
  try {
    writeSync(memory, bytes, 0, length, start);
  } finally {
    closeSync(memory);
  }
}

/** Where the kernel keeps the variables that this process was started with: fields 50 and 51 of `/proc/self/stat`. */
function startOfProcess(): { start: number; length: number } {
  const stat = readFileSync("/proc/self/stat", "latin1");
  // The name of the program is the second field, in parentheses, and may hold anything.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const start = Number(fields[47]);
  return { start, length: Number(fields[48]) - start };
}

/**
 * Reads typed values from the environment and collects every problem, naming the variable. An
 * empty value counts as not set. Between a problem and {@link EnvReader.finish} a reader returns a
 * stand-in (`""`, 0, false), so that all variables are looked at before anything fails.
 */
export interface EnvReader {
  text<const O extends ReadOptions<string>>(name: string, options?: O): Read<string, O>;
  /** Like text; its value never appears in a problem. `minLength` in characters. */
  secret<const O extends ReadOptions<string> & { minLength?: number }>(
    name: string,
    options?: O,
  ): Read<string, O>;
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

/** What holds when a variable is not set: a default, a problem, or (neither given) `undefined`. */
export interface ReadOptions<T> {
  default?: T;
  required?: true;
}

/** The type of a value read with these options. */
export type Read<T, O> = O extends { required: true } | { default: T } ? T : T | undefined;

interface Variable<T> {
  name: string;
  options: ReadOptions<T> | undefined;
  convert: (text: string) => Converted<T>;
  standIn: T;
  /** Whether a wrong value may be repeated in a problem. */
  shown: boolean;
}

/** A converted value, or what the variable must be. */
type Converted<T> = { value: T } | { mustBe: string };

/** Makes a reader of an environment. Reads nothing by itself and changes nothing. */
export function createEnvReader(env: Env): EnvReader {
  const problems: string[] = [];
  // The cast states what ReadOptions mean: undefined comes back only without default and required.
  const read = <T, O>(variable: Variable<T>) => readVariable(env, problems, variable) as Read<T, O>;

  return {
    text: (name, options) => read({ name, options, convert: toText, standIn: "", shown: true }),
    secret: (name, options) =>
      read({
        name,
        options,
        convert: (text) => toSecret(text, options ?? {}),
        standIn: "",
        shown: false,
      }),
    integer: (name, options) =>
      read({
        name,
        options,
        convert: (text) => toInteger(text, options ?? {}),
        standIn: 0,
        shown: true,
      }),
    port: (name, options) =>
      read({
        name,
        options,
        convert: (text) => toInteger(text, { min: 0, max: 65_535 }),
        standIn: 0,
        shown: true,
      }),
    flag: (name, options) => read({ name, options, convert: toFlag, standIn: false, shown: true }),
    url: (name, options) => {
      const protocols = options?.protocols ?? ["http:", "https:"];
      return read({
        name,
        options,
        convert: (text) => toUrl(text, protocols),
        standIn: "",
        shown: false,
      });
    },
    choice: <T extends string, O extends ReadOptions<T>>(
      name: string,
      allowed: readonly T[],
      options?: O,
    ) => {
      // An empty list of choices has no member to return; its type has no value either.
      const standIn = allowed[0] as T;
      return read<T, O>({
        name,
        options,
        convert: (text) => toChoice(text, allowed),
        standIn,
        shown: true,
      });
    },
    list: (name) =>
      (env[name] ?? "").split(",").flatMap((item) => (item.trim() === "" ? [] : [item.trim()])),
    problem: (text) => void problems.push(text),
    finish: (value) =>
      problems.length === 0 ? { ok: true, value } : { ok: false, error: problems.join("\n") },
  };
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
  problems.push(
    `${name} must be ${converted.mustBe}${shown ? `, but is ${JSON.stringify(text.slice(0, 80))}` : ""}.`,
  );
  return options?.default ?? standIn;
}

function toText(text: string): Converted<string> {
  return { value: text };
}

function toSecret(text: string, { minLength = 0 }: { minLength?: number }): Converted<string> {
  return text.length >= minLength
    ? { value: text }
    : { mustBe: `at least ${minLength} characters long` };
}

function toInteger(
  text: string,
  { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER },
): Converted<number> {
  const value = /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return { value };
  if (max === Number.MAX_SAFE_INTEGER) {
    return {
      mustBe:
        min === Number.MIN_SAFE_INTEGER ? "a whole number" : `a whole number of at least ${min}`,
    };
  }
  return { mustBe: `a whole number from ${min} to ${max}` };
}

const flags = new Map(
  Object.entries({
    true: true,
    1: true,
    yes: true,
    on: true,
    false: false,
    0: false,
    no: false,
    off: false,
  }),
);

function toFlag(text: string): Converted<boolean> {
  const value = flags.get(text.toLowerCase());
  return value === undefined ? { mustBe: "true or false" } : { value };
}

function toUrl(text: string, protocols: readonly string[]): Converted<string> {
  const fits = protocols.some((protocol) => text.startsWith(`${protocol}//`)) && isUrl(text);
  return fits
    ? { value: text }
    : { mustBe: `a URL that starts with ${protocols.map((one) => `${one}//`).join(" or ")}` };
}

/** A list of hosts (Redis Sentinel, Cluster) is no URL by the standard, so each host is checked alone. */
function isUrl(text: string): boolean {
  const [, start = "", hosts = "", end = ""] =
    /^([^/]+:\/\/(?:[^/@]*@)?)([^/]+)(.*)$/.exec(text) ?? [];
  return hosts !== "" && hosts.split(",").every((host) => URL.canParse(`${start}${host}${end}`));
}

function toChoice<T extends string>(text: string, allowed: readonly T[]): Converted<T> {
  const value = allowed.find((one) => one === text);
  return value === undefined ? { mustBe: `one of ${allowed.join(", ")}` } : { value };
}

/** Protocols of `REDIS_URL`: a single node, Sentinel or Cluster, each with or without TLS. */
export const redisProtocols = [
  "redis:",
  "rediss:",
  "redis+sentinel:",
  "rediss+sentinel:",
  "redis+cluster:",
  "rediss+cluster:",
] as const;

/** Protocols of `ARCHIVE_URL`. */
export const archiveProtocols = ["postgres:", "postgresql:"] as const;

/** Reports a `REDIS_NAMESPACE` that cannot be part of keys and queue prefixes. */
export function checkNamespace(reader: EnvReader, namespace: string): string {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(namespace)) {
    reader.problem("REDIS_NAMESPACE must be 1 to 64 letters, digits, '_' or '-'.");
  }
  return namespace;
}
