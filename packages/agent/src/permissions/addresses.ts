import { isObject } from "./argument-texts.ts";
import type { JudgedCall } from "./policy.ts";

// What a call would reach. A model that has read a page may have been told by it to carry what it knows to an address
// of the page's author, in the path, the query or the name of the host. So an address counts as a whole: a person who
// named one page of a host has not named the others.

/** What a conversation says about addresses. */
export interface Heard {
  /** Text that no person wrote to the bot was read: results of tools, files, quotes, summaries of them. */
  readonly foreign: boolean;
  /** Addresses that people named, as {@link addressKey} has them. */
  readonly named: ReadonlySet<string>;
}

const web = new Set(["http:", "https:"]);
const scheme = /^[a-z][a-z0-9+.-]*:/i;
/** Names of arguments that hold addresses, of tools that do not say which of theirs do. */
const addressName =
  /(?:^|[_-])(?:ur[il]s?|href|links?|hosts?|hostname|domain|endpoint|webhook|website|server|address)$/i;
const schemed = /[a-z][a-z0-9+.-]{1,20}:[\\/]{2}[^\s<>"'`]+/gi;
/** A host that people write without a scheme, at the beginning of a word, with its path. */
const shortened = /^(?:[\p{L}\p{N}-]{1,63}\.){1,10}\p{L}{2,63}(?::\d{1,5})?(?:[/?#].*)?$/u;
const betweenWords = /[\s<>"'`()[\]{}|，。；：！？、（）【】《》「」]+/u;
/** The same between letters of a language that has no spaces. */
const otherScripts = /[^\u0021-\u007E]+/u;
const maxWordCharacters = 2_048;
/** What closes a sentence or a bracket behind an address. */
const closing = /[)\]}>.,;:!?'"*_~，。；：！？、）】》」』]+$/u;
const maxAddresses = 100;

/** The address in one spelling; undefined when it is none. Schemes of the web are one: people leave them out. */
export function addressKey(text: string): string | undefined {
  const trimmed = text.trim();
  const url = URL.parse(scheme.test(trimmed) && !/^[^/]*:\d/.test(trimmed) ? trimmed : `https://${trimmed}`);
  if (url === null || url.hostname === "") return undefined;
  const path = url.pathname === "/" ? "" : url.pathname;
  const user = url.username === "" && url.password === "" ? "" : `${url.username}:${url.password}@`;
  const kind = web.has(url.protocol) ? "//" : `${url.protocol}//`;
  return `${kind}${user}${url.host}${path}${url.search}${url.hash}`;
}

/** Words of a text that look like an address without its scheme. */
function shortenedIn(text: string): string[] {
  const words = text.split(betweenWords).filter((word) => word.includes(".") && word.length <= maxWordCharacters);
  const whole = words.flatMap((word) => [word, ...word.split(otherScripts)]);
  return whole.map((word) => word.replace(closing, "")).filter((word) => shortened.test(word));
}

/** Addresses that a person names in a text, with and without what may close a sentence behind them. */
export function addressesIn(text: string): string[] {
  const found = text.match(schemed) ?? [];
  const spellings = found.flatMap((one) => [one, one.replace(closing, ""), one.replace(/[\])（(，。].*$/u, "")]);
  const keys = [...spellings, ...shortenedIn(text)].flatMap((one) => addressKey(one) ?? []);
  return [...new Set(keys)].slice(0, maxAddresses);
}

/** Texts of the input, at any depth, and whether one of the arguments that hold them fits. */
function* valuesOf(input: unknown, isWanted: (name: string) => boolean): Generator<{ text: string; wanted: boolean }> {
  const waiting = [{ value: input, wanted: false }];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    const { value, wanted } = next;
    if (typeof value === "string") yield { text: value, wanted };
    else if (Array.isArray(value)) for (const inner of value) waiting.push({ value: inner as unknown, wanted });
    else if (isObject(value)) {
      for (const [name, inner] of Object.entries(value)) {
        waiting.push({ value: inner, wanted: wanted || isWanted(name) });
      }
    }
  }
}

/** What the call would reach: by the arguments that its tool names, else by those that look like it. */
function reached({ tool, arguments: input }: JudgedCall): string[] {
  const { addresses } = tool;
  const isWanted = (name: string): boolean => addresses?.includes(name) ?? addressName.test(name);
  const found: string[] = [];
  for (const { text, wanted } of valuesOf(input, isWanted)) {
    if (wanted) found.push(text);
    else if (addresses === undefined) found.push(...(text.match(schemed) ?? []));
  }
  return found.filter((text) => text.trim() !== "");
}

function fitsHost(url: URL, pattern: string): boolean {
  if (pattern === "*") return true;
  const wanted = pattern.toLowerCase();
  if (wanted.startsWith("*.")) return url.host.endsWith(wanted.slice(1)) && url.host.length > wanted.length - 1;
  return url.host === (URL.parse(`https://${wanted}`)?.host ?? wanted);
}

/** Whether the deployment lets calls reach it unasked. A name or password in it is part of what is sent. */
function isAllowed(address: string, egress: readonly string[]): boolean {
  const url = URL.parse(scheme.test(address.trim()) ? address.trim() : `https://${address.trim()}`);
  if (url === null || !web.has(url.protocol) || url.username !== "" || url.password !== "") return false;
  return egress.some((pattern) => fitsHost(url, pattern));
}

/**
 * Addresses of the call that no person has named and the agent's `egress` does not list; empty as long as nothing but
 * people's own words was read, since a model that read nothing was told nothing.
 */
export function strangeAddresses(call: JudgedCall): string[] {
  const { heard, egress = [] } = call;
  if (heard?.foreign !== true) return [];
  const strange = reached(call).filter((address) => {
    const key = addressKey(address);
    return (key === undefined || !heard.named.has(key)) && !isAllowed(address, egress);
  });
  return [...new Set(strange)];
}
