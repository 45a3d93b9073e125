import { type Clock, systemRandom } from "@larkline/protocol";
import type { AppConsole, Registrations, SimApp, TokenStore } from "./apps.ts";
import type { CardStore } from "./card-store.ts";
import type { CardTokens } from "./card-clicks.ts";
import type { NameScope } from "./chats.ts";
import type { DeliveryReport, OutgoingEvent } from "./delivery.ts";
import type { Directory, SimChat, SimUser } from "./directory.ts";
import type { FileAnswer } from "./faults.ts";
import type { Grants } from "./grants.ts";
import type { FormParts, MediaStore } from "./media.ts";
import type { MentionLookup, MessageStore, SimMessage } from "./message-store.ts";
import type { ApiLimits, MonthlyQuota, RateLimiter } from "./rate-limiter.ts";
import type { Work } from "./work/index.ts";

/** The state that the API families work on. */
export interface Platform {
  readonly apps: ReadonlyMap<string, SimApp>;
  readonly console: AppConsole;
  readonly registrations: Registrations;
  readonly directory: Directory;
  readonly messages: MessageStore;
  readonly cards: CardStore;
  readonly cardTokens: CardTokens;
  readonly media: MediaStore;
  readonly tokens: TokenStore;
  readonly grants: Grants;
  readonly work: Work;
  readonly limiter: RateLimiter;
  readonly uuids: UuidTable;
  readonly quota: MonthlyQuota;
  /** Codes that answer sends, by chat id, open id or message id, and how many sends they still do. */
  readonly sendRefusals: Map<string, { code: number; left: number }>;
  /** By app id; `granted` where nothing stands. */
  readonly nameScopes: Map<string, NameScope>;
  readonly clock: Clock;
  /** Calls listeners when a message became visible or changed. */
  readonly announce: (message: SimMessage) => void;
  /** Delivers an event with the retry schedule, when the app is subscribed to its type. */
  readonly publish: (event: OutgoingEvent) => Promise<DeliveryReport>;
}

/** An authenticated call of the open API. */
export interface ApiCallContext {
  app: SimApp;
  /** Whose token the call carries; absent: the app's. */
  person?: SimUser;
  params: Readonly<Record<string, string>>;
  query: URLSearchParams;
  body: JsonObject;
  /** The fields of a form with files. */
  form?: FormParts;
}

/** One operation of the open API. A family of operations is one module that lists its routes. */
export interface ApiRoute {
  method: string;
  /** Path with `:name` segments. */
  path: string;
  /** Scopes of which a person must have granted one, for a call with their token; absent: it takes the app's token alone. */
  personScopes?: readonly string[];
  /** Of these, too, the person must have granted one. */
  alsoPersonScopes?: readonly string[];
  /** Default: 50 a second and 1,000 a minute. */
  limits?: ApiLimits;
  /** The answer's body; refusals are thrown as PlatformError. */
  handle(call: ApiCallContext): JsonObject | FileAnswer;
}

/** An operation that takes no token and answers with its own body. */
export interface OpenRoute {
  method: string;
  path: string;
  /** `host` is the address the caller used, `authorization` its header. */
  handle(call: { body: JsonObject; host: string; authorization: string | undefined }): JsonObject;
}

/** The usual success body. */
export function success(data: JsonObject): JsonObject {
  return { code: 0, msg: "success", data };
}

/** Resolves mention tags to people of the tenant and bots of the chat. */
export function mentionLookup(platform: Platform, chat: SimChat): MentionLookup {
  return (openId) => {
    const user = platform.directory.users.get(openId);
    if (user !== undefined) return { name: user.name, bot: false };
    for (const app of platform.apps.values()) {
      if (app.openId === openId && chat.bots.has(app.appId)) return { name: app.name, bot: true };
    }
    return undefined;
  };
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

const windowMs = 3_600_000;
const maximumLength = 50;

/** How a repeated `uuid` is answered: with the first message, or as still being sent (230049). */
export type DuplicateUuid = "original" | "in_progress";

/** Send idempotency: one success per `uuid` and app within an hour (message create page). */
interface UuidTable {
  /** The message that this uuid has sent within the last hour. */
  find(appId: string, uuid: string): string | undefined;
  remember(appId: string, uuid: string, messageId: string): void;
}

export function createUuidTable(clock: Clock, duplicate: DuplicateUuid): UuidTable {
  const sent = new Map<string, { messageId: string; at: number }>();
  return {
    find(appId, uuid) {
      if (uuid.length > maximumLength) {
        throw new PlatformError(
          99992402,
          `field validation failed: uuid the max len is ${maximumLength}`,
        );
      }
      const entry = sent.get(`${appId} ${uuid}`);
      if (entry === undefined || clock.now() - entry.at >= windowMs) return undefined;
      if (duplicate === "in_progress") {
        throw new PlatformError(230049, "The message is being sent, please try again later.");
      }
      return entry.messageId;
    },
    remember(appId, uuid, messageId) {
      const time = clock.now();
      for (const [key, entry] of sent) {
        if (time - entry.at < windowMs) break;
        sent.delete(key);
      }
      sent.delete(`${appId} ${uuid}`);
      sent.set(`${appId} ${uuid}`, { messageId, at: time });
    },
  };
}
