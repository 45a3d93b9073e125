import { tellMentionedBots } from "./bot-mention.ts";
import { attachCard, sendableCard } from "./card-message.ts";
import { opensThreads, type SimChat } from "./directory.ts";
import { newId } from "./id.ts";
import { booleanField, optionalStringField, stringField, type JsonObject } from "./json-fields.ts";
import { renderContent } from "./message-content.ts";
import { liveMessage, memberChat } from "./message-lookup.ts";
import type { NewMessage, SimMessage } from "./message-store.ts";
import { messageView } from "./message-view.ts";
import { mentionLookup, success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { checkMediaKeys, checkRefusals } from "./send-checks.ts";
import { openThread } from "./thread.ts";
import { fieldError, PlatformError } from "./platform-error.ts";

const perTargetPerSecond = 5;

/** Send and reply (message create and reply pages). */
export function sendRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/im/v1/messages",
      handle: (call) => sendOnce(platform, call, () => sendTarget(platform, call)),
    },
    {
      method: "POST",
      path: "/open-apis/im/v1/messages/:message_id/reply",
      handle: (call) => sendOnce(platform, call, () => replyTarget(platform, call)),
    },
  ];
}

interface Target {
  chat: SimChat;
  links: Pick<NewMessage, "rootId" | "parentId" | "threadId">;
}

function sendOnce(platform: Platform, call: ApiCallContext, findTarget: () => Target): JsonObject {
  const uuid = optionalStringField(call.body, "uuid");
  const earlier = uuid === undefined ? undefined : platform.uuids.find(call.app.appId, uuid);
  const original = earlier === undefined ? undefined : platform.messages.get(earlier);
  if (original !== undefined) return success(messageView(original, call.app));
  const target = findTarget();
  const message = addMessage(platform, call, { ...target, uuid });
  if (uuid !== undefined) platform.uuids.remember(call.app.appId, uuid, message.messageId);
  platform.announce(message);
  tellMentionedBots(platform, target.chat, { sender: call.app, message });
  return success(messageView(message, call.app));
}

function addMessage(
  platform: Platform,
  call: ApiCallContext,
  target: Target & { uuid: string | undefined },
): SimMessage {
  const { chat, links, uuid } = target;
  checkRefusals(platform, chat, links.parentId);
  const messageType = stringField(call.body, "msg_type");
  const content = stringField(call.body, "content");
  const card = messageType === "interactive" ? sendableCard(platform, call.app, content) : undefined;
  const rendered = card?.fields ?? renderContent(messageType, content, mentionLookup(platform, chat));
  if (card === undefined) checkMediaKeys(platform, call.app, { messageType, content });
  const [person] = chat.members;
  const limited = chat.type === "p2p" ? `user ${person ?? ""}` : `chat ${chat.chatId}`;
  platform.limiter.checkBusiness(limited, perTargetPerSecond);
  const message = platform.messages.add({
    chatId: chat.chatId,
    senderType: "app",
    senderId: call.app.appId,
    messageType,
    ...rendered,
    ...links,
    ...(uuid === undefined ? {} : { uuid }),
    createdAt: platform.now(),
  });
  openThread(platform, message);
  if (card !== undefined) attachCard(platform, card, message.messageId);
  return message;
}

function sendTarget(platform: Platform, call: ApiCallContext): Target {
  const chat = receivingChat(platform, call);
  return { chat, links: opensThreads(chat) ? { threadId: newId("omt_") } : {} };
}

const receiveIdTypes = ["open_id", "union_id", "user_id", "email", "chat_id"];

function receivingChat(platform: Platform, call: ApiCallContext): SimChat {
  const type = call.query.get("receive_id_type") ?? "open_id";
  if (!receiveIdTypes.includes(type)) {
    throw fieldError("receive_id_type", `must be one of ${receiveIdTypes.join(", ")}`);
  }
  const id = stringField(call.body, "receive_id");
  if (type === "chat_id") {
    if (!/^oc_[\w-]+$/.test(id)) throw new PlatformError(230034, `The receive_id is invalid: ${id}`);
    return memberChat(platform, call.app, id);
  }
  return platform.directory.p2pChat(personOf(platform, type, id), call.app.appId);
}

function personOf(platform: Platform, type: string, id: string): string {
  if (type === "open_id") {
    if (!/^ou_[\w-]+$/.test(id)) throw new PlatformError(99992351, "The request you send is not a valid {open_id}.");
    if (!platform.directory.users.has(id)) throw new PlatformError(99992361, "open_id cross app");
    return id;
  }
  for (const user of platform.directory.users.values()) {
    if ((type === "union_id" && user.unionId === id) || (type === "user_id" && user.userId === id)) return user.openId;
  }
  throw new PlatformError(230034, `The receive_id is invalid: ${id}`);
}

/** A reply to a thread's message stays in the thread; in a thread root and parent are its first message. */
function replyTarget(platform: Platform, call: ApiCallContext): Target {
  const { message, chat } = liveMessage(platform, call);
  const inThread = booleanField(call.body, "reply_in_thread");
  if (inThread && chat.type === "p2p") throw new PlatformError(230071, "The chat does not support reply in thread.");
  const threadId = message.threadId ?? (inThread || opensThreads(chat) ? newId("omt_") : undefined);
  const rootId = message.rootId ?? message.messageId;
  if (threadId === undefined) return { chat, links: { rootId, parentId: message.messageId } };
  return { chat, links: { rootId, parentId: message.messageId, threadId } };
}
