import { isJsonObject, type JsonObject } from "./json-fields.ts";
import { liveMessage } from "./message-lookup.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { fieldError, PlatformError } from "./platform-error.ts";

const maximumCount = 3;
const maximumLength = 200;
const lifetimeMs = 600_000;

/** Suggested replies below a bot's newest message of a p2p chat (message push_follow_up page). */
export function followUpRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/im/v1/messages/:message_id/push_follow_up",
      handle: (call) => push(platform, call),
    },
  ];
}

/** The codes have a meaning of their own here. */
function push(platform: Platform, call: ApiCallContext): JsonObject {
  const { message, chat } = liveMessage(platform, call);
  const followUps = contents(call.body.follow_ups);
  if (chat.type !== "p2p") throw new PlatformError(230003, "Follow-ups are supported in p2p chats only.");
  const newest = platform.messages.inChat(chat.chatId).findLast(({ senderId }) => senderId === call.app.appId);
  if (newest?.messageId !== message.messageId) {
    throw new PlatformError(230006, "The message is not the newest one of the bot.");
  }
  if (platform.now() - message.createdAt > lifetimeMs) throw new PlatformError(230002, "The message has expired.");
  if (message.followUps !== undefined) throw new PlatformError(230008, "The message has follow-ups already.");
  const changed = platform.messages.change(message.messageId, { followUps });
  if (changed !== undefined) platform.announce(changed);
  return success({});
}

function contents(items: unknown): string[] {
  if (!Array.isArray(items) || items.length < 1 || items.length > maximumCount) {
    throw fieldError("follow_ups", `must hold 1 to ${maximumCount} items`);
  }
  return items.map((item: unknown) => {
    const content = isJsonObject(item) ? item.content : undefined;
    if (typeof content !== "string" || content === "" || content.length > maximumLength) {
      throw fieldError("follow_ups.content", `must be 1 to ${maximumLength} characters`);
    }
    return content;
  });
}
