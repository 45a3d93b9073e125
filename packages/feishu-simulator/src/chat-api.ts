import type { SimChat } from "./directory.ts";
import type { JsonObject } from "./json-fields.ts";
import { pageOf } from "./page.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

const path = "/open-apis/im/v1/chats/:chat_id";

/** Chat facts and members (group pages). */
export function chatRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path,
      handle: (call) => success(chatView(knownChat(platform, call), call)),
    },
    {
      method: "GET",
      path: `${path}/members`,
      handle: (call) => members(platform, call),
    },
    {
      method: "GET",
      path: `${path}/members/is_in_chat`,
      handle: (call) => success({ is_in_chat: knownChat(platform, call).bots.has(call.app.appId) }),
    },
  ];
}

function knownChat(platform: Platform, call: ApiCallContext): SimChat {
  const chat = platform.directory.chats.get(call.params.chat_id ?? "");
  if (chat === undefined) throw new PlatformError(232006, "Your request specifies a chat_id which is invalid.");
  return chat;
}

/** A bot that is not a member sees only the name, the counts and the status. */
function chatView(chat: SimChat, call: ApiCallContext): JsonObject {
  const outside = {
    name: chat.name,
    avatar: "",
    user_count: String(chat.members.size),
    bot_count: String(chat.bots.size),
    chat_status: "normal",
  };
  if (!chat.bots.has(call.app.appId)) return outside;
  const group = chat.type === "group" && !chat.topic ? { group_message_type: "chat" } : {};
  return {
    ...outside,
    ...group,
    chat_mode: chat.topic ? "topic" : chat.type,
    chat_type: "private",
    external: false,
    tenant_key: call.app.tenantKey,
  };
}

/** People only: the platform leaves bots out. */
function members(platform: Platform, call: ApiCallContext): JsonObject {
  const chat = knownChat(platform, call);
  if (!chat.bots.has(call.app.appId)) throw new PlatformError(232011, "Operator can NOT be out of the chat.");
  const people = [...chat.members].flatMap((openId) => platform.directory.users.get(openId) ?? []);
  const { items, ...page } = pageOf(people, call.query, 100);
  const views = items.map(({ openId, name }) => ({
    member_id_type: "open_id",
    member_id: openId,
    name,
    tenant_key: call.app.tenantKey,
  }));
  return success({ ...page, member_total: people.length, items: views });
}
