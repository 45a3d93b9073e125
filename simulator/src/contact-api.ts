import {
  type ApiRoute,
  personTalkScopes,
  type ApiCallContext,
  missingScopes,
} from "./api-route.ts";
import type { SimUser, SimUserGroup, SimChat } from "./directory.ts";
import { type JsonObject, success, PlatformError, fieldError, pageOf } from "./open-api.ts";
import type { Platform } from "./platform.ts";

const maximumBatch = 10;

/** People of the tenant (contact pages). */
export function contactRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/contact/v3/users/:user_id",
      handle: (call) => readUser(platform, call),
    },
    {
      method: "POST",
      path: "/open-apis/contact/v3/users/basic_batch",
      ...personTalkScopes.names,
      limits: { perSecond: 5 },
      handle: (call) => basicBatch(platform, call),
    },
  ];
}

/** The name needs a scope, and the person within the app's contact range; without the range it is left out. */
function readUser(platform: Platform, call: ApiCallContext): JsonObject {
  checkNames(platform, call, "contact:user.base:readonly");
  const user = findUser(platform, call, call.params.user_id ?? "");
  const { name, ...ids } = userView(user);
  return success({
    user: platform.nameScopes.get(call.app.appId) === "hidden" ? ids : { ...ids, name },
  });
}

function checkNames(platform: Platform, { app }: ApiCallContext, scope: string): void {
  if (platform.nameScopes.get(app.appId) === "refused") throw missingScopes([scope]);
}

function findUser(platform: Platform, call: ApiCallContext, id: string): SimUser {
  const user = userById(platform, call, id);
  if (user === undefined) throw new PlatformError(99992361, "open_id cross app");
  return user;
}

function userById(platform: Platform, call: ApiCallContext, id: string): SimUser | undefined {
  const type = call.query.get("user_id_type") ?? "open_id";
  if (type === "open_id") return platform.directory.users.get(id);
  return [...platform.directory.users.values()].find(
    (user) => (type === "union_id" ? user.unionId : user.userId) === id,
  );
}

function userView(user: SimUser): JsonObject {
  return { open_id: user.openId, union_id: user.unionId, user_id: user.userId, name: user.name };
}

/** Names of up to 10 people, whatever the contact range; unknown ids are left out. */
function basicBatch(platform: Platform, call: ApiCallContext): JsonObject {
  checkNames(platform, call, "contact:user.basic_profile:readonly");
  const ids = call.body.user_ids;
  if (!Array.isArray(ids) || ids.length < 1 || ids.length > maximumBatch) {
    throw fieldError("user_ids", `must hold 1 to ${maximumBatch} ids`);
  }
  const users = ids.flatMap((id: unknown) => {
    const user = typeof id === "string" ? userById(platform, call, id) : undefined;
    return user === undefined ? [] : [{ user_id: id, name: user.name }];
  });
  return success({ users });
}

const defaultPageSize = 500;
const maximumPageSize = 1_000;

/** User groups of the tenant ("Query the user groups of a user"). */
export function userGroupRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/contact/v3/group/member_belong",
      handle: (call) => groupsOfMember(platform, call),
    },
  ];
}

function groupsOfMember(platform: Platform, call: ApiCallContext): JsonObject {
  const openId = memberOf(platform, call);
  const matches = typeFilter(call.query.get("group_type"));
  const ids = [...platform.directory.userGroups.values()]
    .filter((group) => group.members.has(openId) && matches(group))
    .map(({ groupId }) => groupId);
  const { size, start } = groupPageOf(call);
  const next = start + size;
  const more = next < ids.length;
  return success({
    group_list: ids.slice(start, next),
    has_more: more,
    ...(more ? { page_token: `p${next}` } : {}),
  });
}

/** A person outside the app's contact range is refused. */
function memberOf(platform: Platform, call: ApiCallContext): string {
  const type = call.query.get("member_id_type") ?? "open_id";
  const id = call.query.get("member_id") ?? "";
  const users = [...platform.directory.users.values()];
  const finders: Readonly<Record<string, () => (typeof users)[number] | undefined>> = {
    open_id: () => platform.directory.users.get(id),
    union_id: () => users.find(({ unionId }) => unionId === id),
    user_id: () => users.find(({ userId }) => userId === id),
  };
  const find = Object.hasOwn(finders, type) ? finders[type] : undefined;
  if (find === undefined) throw new PlatformError(41071, "invalid member_id_type");
  const user = find();
  if (user === undefined) throw new PlatformError(41073, "invalid member_id");
  if (platform.nameScopes.get(call.app.appId) === "hidden") {
    throw new PlatformError(41050, "no user authority error", { status: 403 });
  }
  return user.openId;
}

function typeFilter(type: string | null): (group: SimUserGroup) => boolean {
  if (type === null || type === "") return () => true;
  if (type !== "1" && type !== "2") throw new PlatformError(41074, "invalid member_type");
  return ({ dynamic }) => dynamic === (type === "2");
}

function groupPageOf({ query }: ApiCallContext): { size: number; start: number } {
  const size = Number(query.get("page_size") || defaultPageSize);
  if (!Number.isInteger(size) || size < 1 || size > maximumPageSize) {
    throw new PlatformError(40011, "page size is invalid");
  }
  const token = query.get("page_token") ?? "";
  if (token !== "" && !/^p\d{1,9}$/.test(token)) {
    throw new PlatformError(40012, "page token is invalid");
  }
  return { size, start: Number(token.slice(1) || 0) };
}

const chatPath = "/open-apis/im/v1/chats/:chat_id";

/** Chat facts (group page). */
export function chatRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path: chatPath,
      ...personTalkScopes.chat,
      handle: (call) => success(chatView(pathChat(platform, call), call)),
    },
  ];
}

/** The chat that `:chat_id` names; else 232006. */
function pathChat(platform: Platform, call: ApiCallContext): SimChat {
  const chat = platform.directory.chats.get(call.params.chat_id ?? "");
  if (chat === undefined) {
    throw new PlatformError(232006, "Your request specifies a chat_id which is invalid.");
  }
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
  const isInside =
    call.person === undefined
      ? chat.bots.has(call.app.appId)
      : chat.members.has(call.person.openId);
  if (!isInside) return outside;
  const group =
    chat.type === "group" && !chat.topic ? { group_message_type: chat.groupMessageType } : {};
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

const membersPath = `${chatPath}/members`;

/** Members of chats (group member pages). */
export function memberRoutes(platform: Platform): ApiRoute[] {
  return [
    { method: "GET", path: membersPath, handle: (call) => listMembers(platform, call) },
    {
      method: "GET",
      path: `${membersPath}/is_in_chat`,
      handle: (call) => success({ is_in_chat: pathChat(platform, call).bots.has(call.app.appId) }),
    },
  ];
}

/** People only: the platform leaves bots out. */
function listMembers(platform: Platform, call: ApiCallContext): JsonObject {
  const chat = pathChat(platform, call);
  if (chat.status !== "normal") {
    throw new PlatformError(
      232009,
      "Your request specifies a chat which has already been dissolved.",
    );
  }
  if (!chat.bots.has(call.app.appId)) {
    throw new PlatformError(232011, "Operator can NOT be out of the chat.");
  }
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
