import { userIds, tellBots } from "./events.ts";
import type { SimReaction, SimMessage } from "./message-store.ts";
import { type Platform, pathMessage, knownChat } from "./platform.ts";
import type { ApiRoute, ApiCallContext } from "./api-route.ts";
import type { EventPush } from "./delivery.ts";
import {
  type JsonObject,
  isJsonObject,
  PlatformError,
  success,
  newId,
  pageOf,
} from "./open-api.ts";

const path = "/open-apis/im/v1/messages/:message_id/reactions";
/** The emoji types that this simulator knows, of the platform's longer list. */
const emojiTypes = new Set(
  (
    "Typing OnIt OneSecond THINKING Get DONE OK CheckMark CrossMark ERROR THUMBSUP ThumbsDown SMILE HEART LAUGH " +
    "APPLAUSE MUSCLE JIAYI FINGERHEART SOB CRY THANKS WOW PARTY Hundred Alarm"
  ).split(" "),
);

/** Reactions to messages (message reaction pages). */
export function reactionRoutes(platform: Platform): ApiRoute[] {
  return [
    { method: "POST", path, handle: (call) => add(platform, call) },
    { method: "GET", path, handle: (call) => list(platform, call) },
    { method: "DELETE", path: `${path}/:reaction_id`, handle: (call) => remove(platform, call) },
  ];
}

function add(platform: Platform, call: ApiCallContext): JsonObject {
  const message = reactable(platform, call);
  const type = isJsonObject(call.body.reaction_type)
    ? call.body.reaction_type.emoji_type
    : undefined;
  if (typeof type !== "string" || !emojiTypes.has(type)) {
    throw new PlatformError(231001, "reaction type is invalid.");
  }
  const mine = message.reactions.find(
    (entry) => entry.emojiType === type && entry.operatorId === call.app.appId,
  );
  if (mine !== undefined) return success(reactionView(mine));
  const reaction: SimReaction = {
    reactionId: newId("ZCaCIjUBVVWSrm5L-"),
    emojiType: type,
    operatorId: call.app.appId,
    operatorType: "app",
    at: platform.clock.now(),
  };
  setReactions(platform, message, [...message.reactions, reaction]);
  reactionEvent(platform, message, { reaction, created: true });
  return success(reactionView(reaction));
}

function remove(platform: Platform, call: ApiCallContext): JsonObject {
  const { message } = pathMessage(platform, call, 231003);
  const reaction = message.reactions.find((entry) => entry.reactionId === call.params.reaction_id);
  if (reaction === undefined) throw new PlatformError(231010, "the reaction does not exist.");
  if (reaction.operatorId !== call.app.appId) {
    throw new PlatformError(231007, "the reaction belongs to another user.");
  }
  setReactions(
    platform,
    message,
    message.reactions.filter((entry) => entry !== reaction),
  );
  reactionEvent(platform, message, { reaction, created: false });
  return success(reactionView(reaction));
}

function list(platform: Platform, call: ApiCallContext): JsonObject {
  const { message } = pathMessage(platform, call, 231003);
  const type = call.query.get("reaction_type");
  const matching = message.reactions.filter((entry) => type === null || entry.emojiType === type);
  const { items, ...page } = pageOf(matching, call.query, 50);
  return success({ ...page, items: items.map(reactionView) });
}

function reactable(platform: Platform, call: ApiCallContext): SimMessage {
  const { message } = pathMessage(platform, call, 231003);
  if (message.messageType === "system") {
    throw new PlatformError(231017, "This operation is not supported for this message type.");
  }
  if (message.recalled) throw new PlatformError(231003, "The message was recalled.");
  return message;
}

function setReactions(
  platform: Platform,
  message: SimMessage,
  reactions: readonly SimReaction[],
): void {
  const changed = platform.messages.change(message.messageId, { reactions });
  if (changed !== undefined) platform.announce(changed);
}

function reactionView(reaction: SimReaction): JsonObject {
  return {
    reaction_id: reaction.reactionId,
    operator: { operator_id: reaction.operatorId, operator_type: reaction.operatorType },
    action_time: String(reaction.at),
    reaction_type: { emoji_type: reaction.emojiType },
  };
}

/** Sends a reaction to the bots of the chat, their own included (message reaction event pages). */
export function reactionEvent(
  platform: Platform,
  message: SimMessage,
  { reaction, created }: { reaction: SimReaction; created: boolean },
): EventPush {
  const person = platform.directory.users.get(reaction.operatorId);
  const { messageId } = message;
  const event = {
    message_id: messageId,
    reaction_type: { emoji_type: reaction.emojiType },
    operator_type: reaction.operatorType,
    ...(person === undefined ? { app_id: reaction.operatorId } : { user_id: userIds(person) }),
    action_time: String(platform.clock.now()),
  };
  const eventType = created ? "im.message.reaction.created_v1" : "im.message.reaction.deleted_v1";
  return tellBots(platform, knownChat(platform, message.chatId), { eventType, event, messageId });
}
