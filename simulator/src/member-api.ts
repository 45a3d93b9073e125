import { pathChat } from "./chat-api.ts";
import type { SimUser } from "./directory.ts";
import type { JsonObject } from "./json-fields.ts";
import { pageOf } from "./page.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { fieldError, PlatformError } from "./platform-error.ts";

const path = "/open-apis/im/v1/chats/:chat_id/members";

/** Members of chats (group member pages). */
export function memberRoutes(platform: Platform): ApiRoute[] {
  return [
    { method: "GET", path, handle: (call) => members(platform, call) },
    {
      method: "GET",
      path: `${path}/is_in_chat`,
      handle: (call) => success({ is_in_chat: pathChat(platform, call).bots.has(call.app.appId) }),
    },
  ];
}

/** People only: the platform leaves bots out. */
function members(platform: Platform, call: ApiCallContext): JsonObject {
  const chat = pathChat(platform, call);
  if (chat.status !== "normal") {
    throw new PlatformError(232009, "Your request specifies a chat which has already been dissolved.");
  }
  if (!chat.bots.has(call.app.appId)) throw new PlatformError(232011, "Operator can NOT be out of the chat.");
  const idType = call.query.get("member_id_type") ?? "open_id";
  const people = [...chat.members].flatMap((openId) => platform.directory.users.get(openId) ?? []);
  const { items, ...page } = pageOf(people, call.query, 100);
  const views = items.map((user) => ({
    member_id_type: idType,
    member_id: memberId(user, idType),
    name: user.name,
    tenant_key: user.tenantKey ?? call.app.tenantKey,
  }));
  return success({ ...page, member_total: people.length, items: views });
}

function memberId(user: SimUser, idType: string): string {
  if (idType === "open_id") return user.openId;
  if (idType === "union_id") return user.unionId;
  if (idType === "user_id") return user.userId;
  throw fieldError("member_id_type", "must be open_id, union_id or user_id");
}
