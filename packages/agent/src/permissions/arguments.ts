import { hideSecrets } from "@larkline/protocol";
import type { PolicyCall, RiskFinding } from "./policy.ts";

// The addresses that a call would reach. A page that the model has read may tell it to send data to an address
// of the page's author, in the path, the query or the name of the host. So an address counts as a whole: a person who
// named one page of a host has not named the others.

/**
 * Addresses of the call that no person has named and the agent's `egress` does not list; empty as long as the model
 * has read nothing but people's own words.
 */
export function strangeAddresses(call: PolicyCall): string[] {
  const { addressContext, egress = [] } = call;
  if (addressContext?.foreign !== true) return [];
  const strange = reached(call).filter((address) => {
    const key = addressKey(address);
    return (
      (key === undefined || !addressContext.named.has(key)) && !isReachableUnasked(address, egress)
    );
  });
  return [...new Set(strange)];
}

/** Names of arguments that hold addresses, of tools that do not say which of theirs do. */
const addressName =
  /(?:^|[_-])(?:ur[il]s?|href|links?|hosts?|hostname|domain|endpoint|webhook|website|server|address)$/i;

const schemed = /[a-z][a-z0-9+.-]{1,20}:[\\/]{2}[^\s<>"'`]+/gi;

/** What the call would reach: by the arguments that its tool names, else by those that look like it. */
function reached({ tool, arguments: input }: PolicyCall): string[] {
  const { addresses } = tool;
  const isWanted = (name: string): boolean => addresses?.includes(name) ?? addressName.test(name);
  const found: string[] = [];
  for (const { text, wanted } of valuesOf(input, isWanted)) {
    if (wanted) found.push(text);
    else if (addresses === undefined) found.push(...(text.match(schemed) ?? []));
  }
  return found.filter((text) => text.trim() !== "");
}

/** Texts of the input, at any depth, and whether one of the arguments that hold them fits. */
function* valuesOf(
  input: unknown,
  isWanted: (name: string) => boolean,
): Generator<{ text: string; wanted: boolean }> {
  const waiting = [{ value: input, wanted: false }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { value, wanted } = next;
    if (typeof value === "string") yield { text: value, wanted };
    else if (Array.isArray(value)) {
      for (const inner of value) waiting.push({ value: inner as unknown, wanted });
    } else if (isObject(value)) {
      for (const [name, inner] of Object.entries(value)) {
        waiting.push({ value: inner, wanted: wanted || isWanted(name) });
      }
    }
  }
}

/** Whether the value is what JSON calls an object. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const scheme = /^[a-z][a-z0-9+.-]*:/i;

const web = new Set(["http:", "https:"]);

/** Whether the deployment lets an agent with this `egress` reach it unasked. A name or password in it is part of what is sent. */
export function isReachableUnasked(address: string, egress: readonly string[]): boolean {
  const url = URL.parse(scheme.test(address.trim()) ? address.trim() : `https://${address.trim()}`);
  if (url === null || !web.has(url.protocol) || url.username !== "" || url.password !== "") {
    return false;
  }
  return egress.some((pattern) => fitsHost(url, pattern));
}

function fitsHost(url: URL, pattern: string): boolean {
  if (pattern === "*") return true;
  const wanted = pattern.toLowerCase();
  if (wanted.startsWith("*.")) {
    return url.host.endsWith(wanted.slice(1)) && url.host.length > wanted.length - 1;
  }
  return url.host === (URL.parse(`https://${wanted}`)?.host ?? wanted);
}

/** Characters that close a sentence or a bracket after an address, and are no part of it. */
const closing = /[)\]}>.,;:!?'"*_~，。；：！？、）】》」』]+$/u;

const maxAddresses = 100;

/** Addresses that a person names in a text, with and without what may close a sentence behind them. */
export function addressesIn(text: string): string[] {
  const found = text.match(schemed) ?? [];
  const spellings = found.flatMap((one) => [
    one,
    one.replace(closing, ""),
    one.replace(/[\])（(，。].*$/u, ""),
  ]);
  const keys = [...spellings, ...shortenedIn(text)].flatMap((one) => addressKey(one) ?? []);
  return [...new Set(keys)].slice(0, maxAddresses);
}

/** The address in one spelling; undefined when it is none. Schemes of the web are one: people leave them out. */
export function addressKey(text: string): string | undefined {
  const trimmed = text.trim();
  const url = URL.parse(
    scheme.test(trimmed) && !/^[^/]*:\d/.test(trimmed) ? trimmed : `https://${trimmed}`,
  );
  if (url === null || url.hostname === "") return undefined;
  const path = url.pathname === "/" ? "" : url.pathname;
  const user = url.username === "" && url.password === "" ? "" : `${url.username}:${url.password}@`;
  const kind = web.has(url.protocol) ? "//" : `${url.protocol}//`;
  return `${kind}${user}${url.host}${path}${url.search}${url.hash}`;
}

interface RiskPattern extends RiskFinding {
  fits(text: string): boolean;
}

const patterns: readonly RiskPattern[] = [
  { pattern: "rm -rf", reason: "It deletes files and folders without asking.", fits: removesTrees },
  {
    pattern: "drop table",
    reason: "It deletes a database table.",
    fits: (text) => /\bdrop(?:\s|\/\*[^*]*\*\/)+table\b/i.test(text),
  },
  {
    pattern: "overwrite",
    reason: "It replaces something that exists.",
    fits: (text) => /overwrit/i.test(text),
  },
];

/**
 * Whatever in a call's input people should look at twice, one finding per pattern. Advice, not a
 * fence: who wants to hide a command from it can. Linear in the size of the input, which is bounded.
 */
export function riskOf(input: Readonly<Record<string, unknown>>): RiskFinding[] {
  const open = new Set(patterns);
  for (const text of textsIn(input)) {
    for (const risk of open) if (risk.fits(text)) open.delete(risk);
    if (open.size === 0) break;
  }
  return patterns
    .filter((risk) => !open.has(risk))
    .map(({ pattern, reason }) => ({ pattern, reason }));
}

/** Characters of a call's input that are looked at, some of them twice; larger inputs are never run. */
const maxCharacters = 500_000;

/**
 * All texts of a call's input, at any depth: strings, lists of strings as one text, and names of
 * fields that are not switched off. Bounded, whatever the input.
 */
export function* textsIn(input: unknown): Generator<string> {
  const waiting: unknown[] = [input];
  let left = maxCharacters;
  while (waiting.length > 0 && left > 0) {
    const { texts, inner } = read(waiting.pop());
    for (const text of texts) {
      yield text.slice(0, left);
      left -= text.length + 1;
      if (left <= 0) return;
    }
    for (const value of inner) waiting.push(value);
  }
}

/** What a value says by itself, and the values inside it. */
function read(value: unknown): { texts: string[]; inner: unknown[] } {
  if (isText(value)) return { texts: [value], inner: [] };
  // A command may come as a list of its words.
  if (Array.isArray(value)) {
    return { texts: value.length > 1 ? [value.filter(isText).join(" ")] : [], inner: value };
  }
  if (!isObject(value)) return { texts: [], inner: [] };
  const wanted = Object.entries(value).filter(([, inner]) => inner !== null && inner !== false);
  return { texts: wanted.map(([key]) => key), inner: wanted.map(([, inner]) => inner) };
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

/** `rm` with both options, in any order and spelling, before or after the names. */
function removesTrees(text: string): boolean {
  return commandsOf(text.toLowerCase()).some((words) => {
    const at = words.findIndex((word) => word === "rm" || word.endsWith("/rm"));
    if (at === -1) return false;
    const options = words.slice(at + 1).filter((word) => word.startsWith("-"));
    return options.some(meansRecursive) && options.some(meansForce);
  });
}

/** The commands of a text, each as its words without quotes. */
function commandsOf(text: string): string[][] {
  return text
    .replaceAll(/\\\r?\n|\$\{?ifs\}?/gi, " ")
    .split(/[;|&<>()`\r\n]/)
    .map((command) => command.replaceAll(/["'\\]/g, "").split(/\s+/));
}

function meansRecursive(option: string): boolean {
  return (
    /^-[a-z]*r/i.test(option) || (option.startsWith("--r") && "--recursive".startsWith(option))
  );
}

function meansForce(option: string): boolean {
  return /^-[a-z]*f/i.test(option) || (option.startsWith("--f") && "--force".startsWith(option));
}

const maxShownCharacters = 20_000;

const mask = "***";

const maxDepth = 12;

const cutMark = "…";

const maxTextCharacters = 4_000;

/** Copies a value with everything hidden that people must not see, within one budget of characters. */
class Masker {
  readonly #secrets: ReadonlySet<string>;
  #left = maxShownCharacters;

  constructor(secrets: readonly string[]) {
    this.#secrets = new Set(secrets.map((name) => name.toLowerCase()));
  }

  object(value: Readonly<Record<string, unknown>>, depth: number): Record<string, unknown> {
    return Object.fromEntries(
      this.#within(Object.entries(value), ([name, inner]) => {
        const shown = this.#text(name);
        const secret = this.#secrets.has(name.toLowerCase());
        return [shown, secret ? mask : this.#value(inner, depth, namesCredential(name))];
      }),
    );
  }

  /** Copies as many items as the budget allows; then none. */
  #within<T, R>(items: readonly T[], copy: (item: T) => R): R[] {
    const copies: R[] = [];
    for (const item of items) {
      if (this.#left <= 0) break;
      this.#left -= 4;
      copies.push(copy(item));
    }
    return copies;
  }

  #value(value: unknown, depth: number, isCredential: boolean): unknown {
    if (typeof value === "string") return isCredential && value !== "" ? mask : this.#text(value);
    if (typeof value === "number") return isCredential && value > 99_999 ? mask : value;
    if (typeof value !== "object" || value === null) return value;
    if (depth >= maxDepth) return cutMark;
    if (Array.isArray(value)) {
      return this.#within(value, (inner) => this.#value(inner, depth + 1, isCredential));
    }
    return isObject(value) ? this.#fields(value, depth + 1, isCredential) : undefined;
  }

  /** Everything below a credential is one. */
  #fields(
    value: Record<string, unknown>,
    depth: number,
    isCredential: boolean,
  ): Record<string, unknown> {
    if (!isCredential) return this.object(value, depth);
    return Object.fromEntries(
      this.#within(Object.entries(value), ([name, inner]) => [
        this.#text(name),
        this.#value(inner, depth, true),
      ]),
    );
  }

  #text(text: string): string {
    const room = Math.max(0, Math.min(maxTextCharacters, this.#left));
    const cut = text.length > room ? `${text.slice(0, room)}${cutMark}` : text;
    this.#left -= cut.length;
    return hideSecrets(cut, mask);
  }
}

/**
 * A call's input as people may see it: values of `secrets` (names of fields, at any depth) and of
 * fields that are called like credentials are hidden, credentials inside texts as well. Bounded in
 * size and depth; what is left out leaves `…`. Linear.
 */
export function maskedArguments(
  input: Readonly<Record<string, unknown>>,
  secrets: readonly string[],
): Record<string, unknown> {
  return new Masker(secrets).object(input, 0);
}

/** Words in names of fields that hold credentials. */
const credentialWords: ReadonlySet<string> = new Set(
  "password passwd passphrase pwd secret secrets token tokens credential credentials authorization cookie apikey".split(
    " ",
  ),
);

const credentialPairs: ReadonlySet<string> = new Set([
  "api key",
  "access key",
  "private key",
  "secret key",
]);

function namesCredential(name: string): boolean {
  const words = wordsOf(name);
  return words.some(
    (word, index) =>
      credentialWords.has(word) || credentialPairs.has(`${word} ${words[index + 1] ?? ""}`),
  );
}

/** `apiKey`, `API_KEY` and `api-key` as words. */
function wordsOf(name: string): string[] {
  return name
    .slice(0, 200)
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(/[^a-z0-9]+/);
}

/** A host that people write without a scheme, at the beginning of a word, with its path. */
const shortened = /^(?:[\p{L}\p{N}-]{1,63}\.){1,10}\p{L}{2,63}(?::\d{1,5})?(?:[/?#].*)?$/u;

const betweenWords = /[\s<>"'`()[\]{}|，。；：！？、（）【】《》「」]+/u;

/** The same between letters of a language that has no spaces. */
const otherScripts = /[^\u0021-\u007E]+/u;

const maxWordCharacters = 2_048;

/** Words of a text that look like an address without its scheme. */
function shortenedIn(text: string): string[] {
  const words = text
    .split(betweenWords)
    .filter((word) => word.includes(".") && word.length <= maxWordCharacters);
  const whole = words.flatMap((word) => [word, ...word.split(otherScripts)]);
  return whole.map((word) => word.replace(closing, "")).filter((word) => shortened.test(word));
}
