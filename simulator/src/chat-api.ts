import type { SimChat } from "./directory.ts";
import type { JsonObject } from "./json-fields.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

const path = "/open-apis/im/v1/chats/:chat_id";

/** Chat facts (group page). */
export function chatRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path,
      handle: (call) => success(chatView(pathChat(platform, call), call)),
    },
  ];
}

/** The chat that `:chat_id` names; else 232006. */
export function pathChat(platform: Platform, call: ApiCallContext): SimChat {
  const chat = platform.directory.chats.get(call.params.chat_id ?? "");
  if (chat === undefined) throw new PlatformError(232006, "Your request specifies a chat_id which is invalid.");
  return chat;
}

/** A bot that is not a member sees only the name, the avatar, the counts and the status. */
function chatView(chat: SimChat, call: ApiCallContext): JsonObject {
  const outside = {
    name: chat.name,
    avatar: "",
    user_count: String(chat.members.size),
    bot_count: String(chat.bots.size),
    chat_status: chat.status,
  };
  if (!chat.bots.has(call.app.appId)) return outside;
  const group = chat.type === "group" && !chat.topic ? { group_message_type: chat.groupMessageType } : {};
  const [owner] = chat.members;
  return {
    ...outside,
    ...group,
    owner_id: owner ?? "",
    owner_id_type: "open_id",
    chat_mode: chat.topic ? "topic" : chat.type,
    chat_type: "private",
    external: chat.external,
    tenant_key: call.app.tenantKey,
    moderation_permission: "all_members",
    restricted_mode_setting: { status: chat.restricted },
  };
}
