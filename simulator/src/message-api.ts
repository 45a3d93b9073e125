import { patchedCard } from "./card-message.ts";
import type { SimChat } from "./directory.ts";
import { forwardedMessages } from "./forward-message.ts";
import { stringField, type JsonObject } from "./json-fields.ts";
import { renderContent } from "./message-content.ts";
import { liveMessage, memberChat, pathMessage } from "./message-lookup.ts";
import type { MessageChange, SimMessage } from "./message-store.ts";
import { messageView } from "./message-view.ts";
import { pageOf } from "./page.ts";
import { mentionLookup, success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { fieldError, PlatformError } from "./platform-error.ts";

const maximumEdits = 20;
const patchLifetimeMs = 14 * 86_400_000;
const patchesPerSecond = 5;
const path = "/open-apis/im/v1/messages/:message_id";

/** Reading, editing, updating and recalling messages. */
export function messageRoutes(platform: Platform): ApiRoute[] {
  return [
    { method: "GET", path, handle: (call) => read(platform, call) },
    { method: "PUT", path, handle: (call) => edit(platform, call) },
    { method: "PATCH", path, handle: (call) => patchCard(platform, call) },
    { method: "DELETE", path, handle: (call) => recall(platform, call) },
    { method: "GET", path: "/open-apis/im/v1/messages", handle: (call) => list(platform, call) },
  ];
}

function read(platform: Platform, call: ApiCallContext): JsonObject {
  const { message } = pathMessage(platform, call);
  const held = message.recalled ? [] : forwardedMessages(platform, message.messageId);
  return success({ items: [message, ...held].map((item) => messageView(item, call.app, { cards: cardForm(call) })) });
}

/** Text and posts of the caller, at most 20 times each (message update page). */
function edit(platform: Platform, call: ApiCallContext): JsonObject {
  const { message, chat } = liveMessage(platform, call);
  const messageType = stringField(call.body, "msg_type");
  if (!["text", "post"].includes(messageType) || !["text", "post"].includes(message.messageType)) {
    throw new PlatformError(230054, "This operation is not supported for this message type.");
  }
  if (message.senderId !== call.app.appId) throw new PlatformError(230071, "The operator is not the message sender.");
  if (message.edits >= maximumEdits) {
    throw new PlatformError(230072, "The message has reached the number of edits limit.");
  }
  const rendered = renderContent(messageType, stringField(call.body, "content"), mentionLookup(platform, chat));
  return changed(platform, call, { message, change: { ...rendered, messageType, edits: message.edits + 1 } });
}

/** Cards of the caller: shared before and after, up to 14 days old, 5 a second each (card patch page). */
function patchCard(platform: Platform, call: ApiCallContext): JsonObject {
  const { message } = liveMessage(platform, call);
  if (message.messageType !== "interactive") throw new PlatformError(230001, "This message is NOT a card.");
  if (message.senderId !== call.app.appId) throw new PlatformError(230027, "Lack of necessary permissions.");
  if (platform.now() - message.createdAt > patchLifetimeMs) {
    throw new PlatformError(230031, "The message is too old to update.");
  }
  platform.limiter.checkBusiness(`patch ${message.messageId}`, patchesPerSecond);
  const { entity, json, content } = patchedCard(platform, message, stringField(call.body, "content"));
  platform.messages.change(message.messageId, { content, patches: message.patches + 1 });
  platform.cards.change(entity, json, { enable: true });
  return success({});
}

function recall(platform: Platform, call: ApiCallContext): JsonObject {
  const { message } = liveMessage(platform, call);
  if (message.senderId !== call.app.appId) throw new PlatformError(230026, "No permission to recall this message.");
  changed(platform, call, { message, change: { recalled: true } });
  return success({});
}

function changed(
  platform: Platform,
  call: ApiCallContext,
  { message, change }: { message: SimMessage; change: MessageChange },
): JsonObject {
  const updated = platform.messages.change(message.messageId, { ...change, updatedAt: platform.now() }) ?? message;
  platform.announce(updated);
  return success(messageView(updated, call.app));
}

/** History of a chat or a thread; start and end are seconds (message list page). */
function list(platform: Platform, call: ApiCallContext): JsonObject {
  const found = containerMessages(platform, call);
  const [start, end] = [secondsOf(call, "start_time", 0), secondsOf(call, "end_time", Number.POSITIVE_INFINITY)];
  const ordered = found
    .filter(({ createdAt }) => createdAt >= start * 1000 && createdAt <= end * 1000)
    .toSorted((left, right) => left.createdAt - right.createdAt);
  if (call.query.get("sort_type") === "ByCreateTimeDesc") ordered.reverse();
  const { items, ...page } = pageOf(ordered, call.query, 50);
  const options = { cards: cardForm(call), recalledText: "This message was recalled" };
  return success({ ...page, items: items.map((message) => messageView(message, call.app, options)) });
}

function containerMessages(platform: Platform, call: ApiCallContext): readonly SimMessage[] {
  const id = call.query.get("container_id") ?? "";
  const type = call.query.get("container_id_type");
  if (type === "chat") {
    const chat = memberChat(platform, call.app, id);
    return platform.messages
      .inChat(chat.chatId)
      .filter((message) => !insideThread(chat, message) && message.hidden !== true);
  }
  if (type !== "thread") throw fieldError("container_id_type", "must be chat or thread");
  if (call.query.has("start_time") || call.query.has("end_time")) {
    throw new PlatformError(
      230001,
      "Your request contains an invalid request parameter, ext=thread has no time filter.",
    );
  }
  return [...platform.directory.chats.values()]
    .filter((chat) => chat.bots.has(call.app.appId))
    .flatMap((chat) => platform.messages.inChat(chat.chatId))
    .filter((message) => message.threadId === id && message.hidden !== true);
}

function cardForm(call: ApiCallContext): "received" | "sent" {
  return call.query.get("card_msg_content_type") === "user_card_content" ? "sent" : "received";
}

/** The history of an ordinary group holds of each thread only its first message (message list page). */
function insideThread(chat: SimChat, { rootId, threadId }: SimMessage): boolean {
  return !chat.topic && rootId !== undefined && threadId !== undefined;
}

function secondsOf(call: ApiCallContext, name: string, missing: number): number {
  const value = call.query.get(name);
  if (value === null || value === "") return missing;
  if (!/^\d{1,10}$/.test(value)) throw fieldError(name, "must be a time in seconds");
  return Number(value);
}
