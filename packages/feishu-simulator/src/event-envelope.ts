import type { SimApp } from "./app.ts";
import type { OutgoingEvent } from "./delivery.ts";
import type { SimChat, SimUser } from "./directory.ts";
import { newId } from "./id.ts";
import type { JsonObject } from "./json-fields.ts";
import type { SimMention, SimMessage } from "./message-store.ts";

/** An event to wrap in the 2.0 envelope. */
export interface EventBody {
  eventType: string;
  event: JsonObject;
  messageId?: string;
  createdAt: number;
}

/** Wraps an event in the 2.0 envelope (event overview). */
export function envelope(app: SimApp, body: EventBody): OutgoingEvent {
  const eventId = newId("");
  const header = {
    event_id: eventId,
    event_type: body.eventType,
    create_time: String(body.createdAt),
    token: app.verificationToken,
    app_id: app.appId,
    tenant_key: app.tenantKey,
  };
  return {
    app,
    eventId,
    eventType: body.eventType,
    ...(body.messageId === undefined ? {} : { messageId: body.messageId }),
    payload: JSON.stringify({ schema: "2.0", header, event: body.event }),
  };
}

export interface ReceivedMessage {
  app: SimApp;
  chat: SimChat;
  sender: SimUser;
  message: SimMessage;
}

/** `im.message.receive_v1` (message receive page). */
export function messageEvent({ app, chat, sender, message }: ReceivedMessage): OutgoingEvent {
  const event = {
    sender: { sender_id: userIds(sender), sender_type: "user", tenant_key: app.tenantKey },
    message: {
      message_id: message.messageId,
      ...(message.rootId === undefined ? {} : { root_id: message.rootId }),
      ...(message.parentId === undefined ? {} : { parent_id: message.parentId }),
      create_time: String(message.createdAt),
      update_time: String(message.updatedAt),
      chat_id: message.chatId,
      ...(message.threadId === undefined ? {} : { thread_id: message.threadId }),
      chat_type: chat.type,
      message_type: message.messageType,
      content: message.content,
      ...(message.mentions.length === 0
        ? {}
        : { mentions: message.mentions.map((mention) => mentionOf(mention, app)) }),
    },
  };
  const { messageId, createdAt } = message;
  return envelope(app, { eventType: "im.message.receive_v1", event, messageId, createdAt });
}

function userIds(user: SimUser): JsonObject {
  return { union_id: user.unionId, user_id: user.userId, open_id: user.openId };
}

function mentionOf(mention: SimMention, app: SimApp): JsonObject {
  return {
    key: mention.key,
    id: { union_id: "", user_id: "", open_id: mention.openId },
    mentioned_type: mention.bot ? "bot" : "user",
    name: mention.name,
    tenant_key: app.tenantKey,
  };
}
