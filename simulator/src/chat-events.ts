import type { SimApp } from "./app.ts";
import type { DeliveryReport, OutgoingEvent } from "./delivery.ts";
import type { SimChat, SimUser } from "./directory.ts";
import { envelope, userIds } from "./event-envelope.ts";
import type { EventPush } from "./chat-desk.ts";
import type { JsonObject } from "./json-fields.ts";
import type { Platform } from "./platform.ts";

/** An event of a chat, the same for each of its bots. */
export interface ChatEvent {
  eventType: string;
  event: JsonObject;
  messageId?: string;
}

/** Sends one event to each of the bots that are in the chat now. */
export function tellBots(platform: Platform, chat: SimChat, event: ChatEvent): EventPush {
  return pushAll(platform, botsOf(platform, chat), (app) => envelope(app, { ...event, createdAt: platform.now() }));
}

/** Sends an event to each of these apps. */
export function pushAll(
  platform: Platform,
  apps: readonly SimApp[],
  eventFor: (app: SimApp) => OutgoingEvent,
): EventPush {
  const reports: Promise<DeliveryReport>[] = apps.map((app) => platform.publish(eventFor(app)));
  return { reports: Promise.all(reports) };
}

export function botsOf(platform: Platform, chat: SimChat): SimApp[] {
  return [...chat.bots].flatMap((appId) => platform.apps.get(appId) ?? []);
}

/** The fields that all events of chat membership share (group member event pages). */
export function membershipEvent(platform: Platform, chat: SimChat, operator: SimUser | undefined): JsonObject {
  const [app] = platform.apps.values();
  return {
    chat_id: chat.chatId,
    operator_id: operator === undefined ? { union_id: "", user_id: "", open_id: "" } : userIds(operator),
    external: chat.external,
    operator_tenant_key: operator?.tenantKey ?? app?.tenantKey ?? "",
    name: chat.name,
    i18n_names: { zh_cn: chat.name, en_us: chat.name, ja_jp: chat.name },
  };
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
