import type { FileAnswer } from "./answer-body.ts";
import type { SimApp } from "./app.ts";
import type { AppConsole } from "./app-console.ts";
import type { Registrations } from "./app-registration.ts";
import type { CardStore } from "./card-store.ts";
import type { CardTokens } from "./card-token.ts";
import type { NameScope } from "./chat-desk.ts";
import type { DeliveryReport, OutgoingEvent } from "./delivery.ts";
import type { Directory, SimChat } from "./directory.ts";
import type { FormParts } from "./media-multipart.ts";
import type { MediaStore } from "./media-store.ts";
import type { MessageStore, SimMessage } from "./message-store.ts";
import type { MentionLookup } from "./message-content.ts";
import type { JsonObject } from "./json-fields.ts";
import type { MonthlyQuota } from "./monthly-quota.ts";
import type { RateLimiter, ApiLimits } from "./rate-limiter.ts";
import type { TokenStore } from "./token-store.ts";
import type { UuidTable } from "./uuid-table.ts";

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
  readonly limiter: RateLimiter;
  readonly uuids: UuidTable;
  readonly quota: MonthlyQuota;
  /** Codes that answer sends, by chat id, open id or message id, and how many sends they still do. */
  readonly sendRefusals: Map<string, { code: number; left: number }>;
  /** By app id; `granted` where nothing stands. */
  readonly nameScopes: Map<string, NameScope>;
  readonly now: () => number;
  /** Tells listeners that a message became visible or changed. */
  readonly announce: (message: SimMessage) => void;
  /** Delivers an event with the retry schedule, when the app is subscribed to its type. */
  readonly publish: (event: OutgoingEvent) => Promise<DeliveryReport>;
}

/** An authenticated call of the open API. */
export interface ApiCallContext {
  app: SimApp;
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
  /** Default: 50 a second and 1,000 a minute. */
  limits?: ApiLimits;
  /** The answer's body; refusals are thrown as PlatformError. */
  handle(call: ApiCallContext): JsonObject | FileAnswer;
}

/** An operation that takes no token and answers with its own body. */
export interface OpenRoute {
  method: string;
  path: string;
  /** `host` is the address the caller used. */
  handle(call: { body: JsonObject; host: string }): JsonObject;
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
