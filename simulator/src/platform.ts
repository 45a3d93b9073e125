import type { Clock } from "@larkline/protocol/clock";
import type { SimApp, AppConsole, Registrations, TokenStore } from "./apps.ts";
import type { CardStore, CardTokens } from "./card-store.ts";
import type { OutgoingEvent, DeliveryReport } from "./delivery.ts";
import type { Directory, NameScope, SimChat, SimUser } from "./directory.ts";
import type { Grants } from "./grants.ts";
import type { MediaStore } from "./media.ts";
import type { MessageStore, SimMessage, MentionLookup } from "./message-store.ts";
import type { RateLimiter, MonthlyQuota } from "./rate-limiter.ts";
import type { WorkWorld } from "./work/world.ts";
import type { ApiCallContext } from "./api-route.ts";
import { PlatformError } from "./open-api.ts";

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
  /** The rights, keys and changes of documents, tables, calendars and tasks. */
  readonly world: WorkWorld;
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

/** The chat of this id, when the bot is a member; else 230034, 232009 (dissolved) or 230002. */
export function memberChat(platform: Platform, app: SimApp, chatId: string): SimChat {
  const chat = platform.directory.chats.get(chatId);
  if (chat === undefined) throw new PlatformError(230034, `The receive_id is invalid: ${chatId}`);
  if (chat.status !== "normal") {
    throw new PlatformError(
      232009,
      "Your request specifies a chat which has already been dissolved.",
    );
  }
  if (!chat.bots.has(app.appId)) {
    throw new PlatformError(230002, "Bot/User can NOT be out of the chat.");
  }
  return chat;
}

/** What each API family calls a hidden message, by its code for a missing one. */
const invisibleCodes: Readonly<Record<number, number>> = { 230110: 230050, 231003: 231018 };

/**
 * The message that `:message_id` names, in a chat of the bot; else 99992354, the given code, 230002, or the family's
 * code for a hidden message.
 */
export function pathMessage(
  platform: Platform,
  call: ApiCallContext,
  missing = 230110,
): { message: SimMessage; chat: SimChat } {
  const messageId = call.params.message_id ?? "";
  if (!/^om_[\w-]+$/.test(messageId)) {
    throw new PlatformError(99992354, "The request you send is not a valid {message_id}.");
  }
  const message = platform.messages.get(messageId);
  if (message === undefined) {
    throw new PlatformError(missing, "The message does not exist or is deleted.");
  }
  const chat = memberChat(platform, call.app, message.chatId);
  if (message.hidden === true) {
    throw new PlatformError(
      invisibleCodes[missing] ?? 230050,
      "The message is invisible to the operator.",
    );
  }
  return { message, chat };
}

/** {@link pathMessage}, refusing recalled messages with 230011. */
export function liveMessage(
  platform: Platform,
  call: ApiCallContext,
): { message: SimMessage; chat: SimChat } {
  const found = pathMessage(platform, call);
  if (found.message.recalled) throw new PlatformError(230011, "The message was recalled.");
  return found;
}

/** The message that a first answer in a thread is given to belongs to the thread from then on. */
export function openThread(platform: Platform, { parentId, threadId }: SimMessage): void {
  const parent = parentId === undefined ? undefined : platform.messages.get(parentId);
  if (parent === undefined || threadId === undefined || parent.threadId !== undefined) return;
  const changed = platform.messages.change(parent.messageId, { threadId });
  if (changed !== undefined) platform.announce(changed);
}

/** Everything that a merged-forward message holds, each after the message that holds it. */
export function forwardedMessages(platform: Platform, messageId: string): SimMessage[] {
  return platform.messages
    .forwardedIn(messageId)
    .flatMap((message) => [message, ...forwardedMessages(platform, message.messageId)]);
}

export function botsOf(platform: Platform, chat: SimChat): SimApp[] {
  return [...chat.bots].flatMap((appId) => platform.apps.get(appId) ?? []);
}

export function knownChat(platform: Platform, chatId: string): SimChat {
  const chat = platform.directory.chats.get(chatId);
  if (chat === undefined) throw new Error(`No chat ${chatId}`);
  return chat;
}

export function knownUser(platform: Platform, openId: string): SimUser {
  const user = platform.directory.users.get(openId);
  if (user === undefined) throw new Error(`No user ${openId}`);
  return user;
}

export function knownApp(platform: Platform, appId: string): SimApp {
  const app = platform.apps.get(appId);
  if (app === undefined) throw new Error(`No app ${appId}`);
  return app;
}

/** Who acts when the test does not care. */
export function firstMember(platform: Platform, chat: SimChat): SimUser | undefined {
  const [openId] = chat.members;
  return openId === undefined ? undefined : platform.directory.users.get(openId);
}
