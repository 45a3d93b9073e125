import { systemRandom } from "@larkline/protocol/clock";
import type { FileAnswer } from "./faults.ts";

// Bodies, fields, refusals, ids and pages of the open API.

export type JsonObject = Record<string, unknown>;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The parsed object, or undefined when the text is not a JSON object. */
export function parseJsonObject(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isJsonObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** An operation that takes no token and answers with its own body, or a file. */
export interface OpenRoute {
  method: string;
  path: string;
  /** `host` is the address the caller used, `authorization` its header. */
  handle(call: {
    body: JsonObject;
    params: Readonly<Record<string, string>>;
    host: string;
    authorization: string | undefined;
  }): JsonObject | FileAnswer;
}

/** The usual success body. */
export function success(data: JsonObject): JsonObject {
  return { code: 0, msg: "success", data };
}

/** What the platform answers when it refuses a call: `{code, msg, error}` under an HTTP status. */
export class PlatformError extends Error {
  readonly code: number;
  readonly status: number | undefined;
  readonly headers: Record<string, string>;
  /** Further fields of the body; an object `error` is added to what it says anyway. */
  readonly fields: JsonObject;
  /** In place of a JSON body. */
  readonly text: string | undefined;

  constructor(code: number, message: string, answer: RefusalForm = {}) {
    super(message);
    this.name = "PlatformError";
    this.code = code;
    this.status = answer.status;
    this.headers = answer.headers ?? {};
    this.fields = answer.fields ?? {};
    this.text = answer.text;
  }
}

interface RefusalForm {
  status?: number;
  headers?: Record<string, string>;
  fields?: JsonObject;
  text?: string;
}

/** A request field is missing or has the wrong form. */
export function fieldError(field: string, reason: string): PlatformError {
  return new PlatformError(99992402, `field validation failed: ${field} ${reason}`);
}

export function stringField(body: JsonObject, field: string): string {
  const value = body[field];
  if (typeof value !== "string" || value === "") throw fieldError(field, "is required");
  return value;
}

export function optionalStringField(body: JsonObject, field: string): string | undefined {
  const value = body[field];
  if (value === undefined || value === null || value === "") return undefined;
  if (typeof value !== "string") throw fieldError(field, "must be a string");
  return value;
}

export function booleanField(body: JsonObject, field: string): boolean {
  const value = body[field];
  if (value === undefined || value === null) return false;
  if (typeof value !== "boolean") throw fieldError(field, "must be a boolean");
  return value;
}

/** That many hexadecimal digits, at most 32. */
export function randomHex(digits: number): string {
  return systemRandom.uuid().replaceAll("-", "").slice(-digits);
}

/** A number from 0 to below 1. */
export function randomFraction(): number {
  return Number.parseInt(randomHex(8), 16) / 2 ** 32;
}

/** A platform-like id: the prefix and 32 hex digits (`om_…`, `oc_…`, `ou_…`). */
export function newId(prefix: string): string {
  return `${prefix}${randomHex(32)}`;
}

/** App ids have a fixed form; the official SDK's long connection refuses any other. */
export function isAppId(value: string): boolean {
  return /^cli_[0-9a-fA-F]{16}$/.test(value);
}

interface Page<Item> {
  items: Item[];
  has_more: boolean;
  page_token: string;
}

/** Cuts one page of a list by `page_size` (at most `maximum`) and `page_token`. */
export function pageOf<Item>(
  all: readonly Item[],
  query: URLSearchParams,
  maximum: number,
): Page<Item> {
  const size = Number(query.get("page_size") ?? 20);
  if (!Number.isInteger(size) || size < 1 || size > maximum) {
    throw fieldError("page_size", `must be 1 to ${maximum}`);
  }
  const start = Number(query.get("page_token") || 0);
  if (!Number.isInteger(start) || start < 0) throw fieldError("page_token", "is invalid");
  const next = start + size;
  const more = next < all.length;
  return { items: all.slice(start, next), has_more: more, page_token: more ? String(next) : "" };
}
