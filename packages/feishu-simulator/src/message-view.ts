import type { SimApp } from "./app.ts";
import type { JsonObject } from "./json-fields.ts";
import type { SimMessage } from "./message-store.ts";

/** A message as the open API returns it from send, reply, edit, get and list. */
export function messageView(message: SimMessage, app: SimApp): JsonObject {
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
    ...(message.recalled ? {} : { body: { content: message.content } }),
    ...(message.mentions.length === 0 ? {} : { mentions: mentionViews(message, app) }),
    ...(message.upperMessageId === undefined ? {} : { upper_message_id: message.upperMessageId }),
  };
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
