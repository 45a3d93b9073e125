import type { SimApp } from "./apps.ts";
import { type OutgoingEvent, envelope, type EventPush, type DeliveryReport } from "./delivery.ts";
import type { SimChat, SimUser, EventLinks } from "./directory.ts";
import { type SimMessage, shownParent, type SimMention } from "./message-store.ts";
import { type Platform, botsOf } from "./platform.ts";
import type { JsonObject } from "./open-api.ts";

interface ReceivedMessage {
  app: SimApp;
  chat: SimChat;
  /** A person, or the bot that mentions this one. */
  sender: SimUser | SimApp;
  message: SimMessage;
  users: ReadonlyMap<string, SimUser>;
  /** Default: as the chat says. */
  eventLinks?: EventLinks;
  userAgent?: string;
}

/** `im.message.receive_v1` (message receive page). */
export function messageEvent(received: ReceivedMessage): OutgoingEvent {
  const { app, chat, message, users, userAgent } = received;
  const event = {
    sender: senderOf(received),
    message: {
      message_id: message.messageId,
      ...linksOf(received),
      create_time: String(message.createdAt),
      update_time: String(message.updatedAt),
      chat_id: message.chatId,
      chat_type: chat.type,
      message_type: message.messageType,
      content: message.content,
      ...(message.mentions.length === 0
        ? {}
        : { mentions: message.mentions.map((mention) => mentionOf(mention, app, users)) }),
      ...(userAgent === undefined ? {} : { user_agent: userAgent }),
    },
  };
  const { messageId, createdAt } = message;
  return envelope(app, { eventType: "im.message.receive_v1", event, messageId, createdAt });
}

/** Events say `bot` where the API says `app`. */
function senderOf({ sender, app }: ReceivedMessage): JsonObject {
  if ("unionId" in sender) {
    const tenantKey = sender.tenantKey ?? app.tenantKey;
    return { sender_id: userIds(sender), sender_type: "user", tenant_key: tenantKey };
  }
  return {
    sender_id: { open_id: sender.openId },
    sender_type: "bot",
    tenant_key: sender.tenantKey,
  };
}

/** Topic groups may leave everything but `root_id` out of the events of replies. */
function linksOf({ chat, message, eventLinks }: ReceivedMessage): JsonObject {
  const { rootId, threadId } = message;
  const parentId = shownParent(message);
  if (rootId !== undefined && (eventLinks ?? chat.eventLinks) === "root_only") {
    return { root_id: rootId };
  }
  return {
    ...(rootId === undefined ? {} : { root_id: rootId }),
    ...(parentId === undefined ? {} : { parent_id: parentId }),
    ...(threadId === undefined ? {} : { thread_id: threadId }),
  };
}

/** The three ids of a person, as events carry them. */
export function userIds(user: SimUser): JsonObject {
  return { union_id: user.unionId, user_id: user.userId, open_id: user.openId };
}

function mentionOf(
  mention: SimMention,
  app: SimApp,
  users: ReadonlyMap<string, SimUser>,
): JsonObject {
  const { key, openId, name, bot } = mention;
  const user = users.get(openId);
  const id = user === undefined ? { union_id: "", user_id: "", open_id: openId } : userIds(user);
  const type = key === "@_all" ? {} : { mentioned_type: bot ? "bot" : "user" };
  return { key, id, ...type, name, tenant_key: user?.tenantKey ?? app.tenantKey };
}

/** An event of a chat, the same for each of its bots. */
interface ChatEvent {
  eventType: string;
  event: JsonObject;
  messageId?: string;
}

/** Sends one event to each of the bots that are in the chat now. */
export function tellBots(platform: Platform, chat: SimChat, event: ChatEvent): EventPush {
  return pushAll(platform, botsOf(platform, chat), (app) =>
    envelope(app, { ...event, createdAt: platform.clock.now() }),
  );
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

/** The fields that all events of chat membership share (group member event pages). */
export function membershipEvent(
  platform: Platform,
  chat: SimChat,
  operator: SimUser | undefined,
): JsonObject {
  const [app] = platform.apps.values();
  return {
    chat_id: chat.chatId,
    operator_id:
      operator === undefined ? { union_id: "", user_id: "", open_id: "" } : userIds(operator),
    external: chat.external,
    operator_tenant_key: operator?.tenantKey ?? app?.tenantKey ?? "",
    name: chat.name,
    i18n_names: { zh_cn: chat.name, en_us: chat.name, ja_jp: chat.name },
  };
}
