import type { EventPush } from "./chat-desk.ts";
import { knownChat, tellBots } from "./chat-events.ts";
import { userIds } from "./event-envelope.ts";
import type { SimMessage, SimReaction } from "./message-store.ts";
import type { Platform } from "./platform.ts";

/** Tells the bots of the chat of a reaction, their own included (message reaction event pages). */
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
    action_time: String(platform.now()),
  };
  const eventType = created ? "im.message.reaction.created_v1" : "im.message.reaction.deleted_v1";
  return tellBots(platform, knownChat(platform, message.chatId), { eventType, event, messageId });
}
