import type { SimApp } from "./app.ts";
import type { JsonObject } from "./json-fields.ts";
import type { SimMessage } from "./message-store.ts";
import { receivedCard } from "./received-card.ts";

/** How reading differs from the answer to a send (message get and list pages). */
export interface ReadOptions {
  /** Cards in the received form, or as they were sent (`user_card_content`). */
  cards: "received" | "sent";
  /** The list shows a fixed text in the place of recalled content; get leaves it out. */
  recalledText?: string;
}

/** A message as the open API returns it: from send, reply and edit, or with options from get and list. */
export function messageView(message: SimMessage, app: SimApp, options?: ReadOptions): JsonObject {
  const fromApp = message.senderType === "app";
  const parentId = shownParent(message);
  return {
    message_id: message.messageId,
    ...(message.rootId === undefined ? {} : { root_id: message.rootId }),
    ...(parentId === undefined ? {} : { parent_id: parentId }),
    ...(message.threadId === undefined ? {} : { thread_id: message.threadId }),
    msg_type: message.messageType,
    create_time: String(message.createdAt),
    update_time: String(message.updatedAt),
    deleted: message.recalled,
    updated: message.edits > 0,
    chat_id: message.chatId,
    sender: {
      id: message.senderId,
      id_type: fromApp ? "app_id" : "open_id",
      sender_type: message.senderType,
      tenant_key: app.tenantKey,
    },
    ...bodyView(message, options),
    ...(message.mentions.length === 0 ? {} : { mentions: mentionViews(message, app) }),
    ...(message.upperMessageId === undefined ? {} : { upper_message_id: message.upperMessageId }),
  };
}

function bodyView(message: SimMessage, options: ReadOptions | undefined): JsonObject {
  if (message.recalled) {
    const text = options?.recalledText;
    return text === undefined ? {} : { body: { content: JSON.stringify({ text }) } };
  }
  const card = message.card?.json;
  if (options === undefined || card === undefined) return { body: { content: message.content } };
  return { body: { content: JSON.stringify(options.cards === "sent" ? card : receivedCard(card)) } };
}

/** Inside a thread the parent is told as the thread's first message (message reply and list pages). */
export function shownParent({ rootId, parentId, threadId }: SimMessage): string | undefined {
  return threadId === undefined ? parentId : (rootId ?? parentId);
}

function mentionViews(message: SimMessage, app: SimApp): JsonObject[] {
  return message.mentions.map(({ key, openId, name }) => ({
    key,
    id: openId,
    id_type: "open_id",
    name,
    tenant_key: app.tenantKey,
  }));
}
