/*
 * Reads what vendors and servers compatible with them send, field by field. Their types are a promise that some of them
 * break: any field may be missing or hold any JSON value. What is of no use counts as absent.
 */

export type JsonObject = Record<string, unknown>;

/** The value as an object; undefined for everything else, lists included. */
export function asObject(value: unknown): JsonObject | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as JsonObject)
    : undefined;
}

export function fieldIn(value: unknown, name: string): unknown {
  const object = asObject(value);
  return object !== undefined && Object.hasOwn(object, name) ? object[name] : undefined;
}

export function objectIn(value: unknown, name: string): JsonObject | undefined {
  return asObject(fieldIn(value, name));
}

/** Empty where there is no text. */
export function textIn(value: unknown, name: string): string {
  const field = fieldIn(value, name);
  return typeof field === "string" ? field : "";
}

export function listIn(value: unknown, name: string): unknown[] {
  const field = fieldIn(value, name);
  return Array.isArray(field) ? field : [];
}

/** A number of things, such as tokens. */
export function countIn(value: unknown, name: string): number | undefined {
  const field = fieldIn(value, name);
  return typeof field === "number" && field >= 0 && field <= Number.MAX_SAFE_INTEGER
    ? Math.trunc(field)
    : undefined;
}

/** The number of a block, call or item in its answer. */
export function indexIn(value: unknown, name: string): number | undefined {
  const field = fieldIn(value, name);
  return Number.isSafeInteger(field) && Number(field) >= 0 ? Number(field) : undefined;
}

/** Text that some servers send as a list of parts; parts without text count as nothing. */
export function partsTextIn(value: unknown, name: string): string {
  const field = fieldIn(value, name);
  if (typeof field === "string") return field;
  const parts = Array.isArray(field) ? field : [field];
  return parts.map((part) => (typeof part === "string" ? part : textIn(part, "text"))).join("");
}

/** What a text cites of the web, as its part keeps it: a list of `{url, title}` as JSON text. */
export function keptCitations(citations: readonly unknown[]): Record<string, string> {
  const kept = citations
    .slice(0, maxCitations)
    .map((one) => ({ url: textIn(one, "url"), title: textIn(one, "title") }));
  const found = kept.filter(({ url }) => url !== "");
  return found.length === 0 ? {} : { citations: JSON.stringify(found) };
}

/** Most places that one text cites. */
export const maxCitations = 100;

/** What a piece costs besides its text: many empty ones must not be free. */
const pieceCharacters = 64;
const maxHeldCharacters = 4_000_000;

/** Counts what a reader keeps of a stream without giving it on: blocks of vendors' tools, signatures, citations. */
export class HeldBack {
  #characters = 0;

  /** Throws when it is too much. */
  add(characters: number): void {
    this.#characters += pieceCharacters + characters;
    if (this.#characters > maxHeldCharacters) {
      throw new RangeError(
        `the answer has more than ${maxHeldCharacters} characters that say nothing`,
      );
    }
  }
}

/** JSON text that some servers send as the value itself. */
export function jsonTextIn(value: unknown, name: string): string {
  const field = fieldIn(value, name) ?? "";
  return typeof field === "string" ? field : JSON.stringify(field);
}
