import { missingScopes, personTalkScopes } from "./apps.ts";
import {
  type ApiCallContext,
  type ApiRoute,
  fieldError,
  type JsonObject,
  newId,
  pageOf,
  type Platform,
  PlatformError,
  success,
} from "./platform.ts";

export interface SimUser {
  openId: string;
  unionId: string;
  userId: string;
  name: string;
  /** The person's own tenant; absent for people of the app's tenant. */
  tenantKey?: string;
}

export type ChatType = "p2p" | "group";

/** A chat; `members` are open ids of people, `bots` are app ids. */
export interface SimChat {
  chatId: string;
  type: ChatType;
  /** A topic group: every message outside a thread opens one. */
  topic: boolean;
  /** `thread`: an ordinary group in topic form, where top-level messages open threads too. */
  groupMessageType: "chat" | "thread";
  name: string;
  members: Set<string>;
  bots: Set<string>;
  external: boolean;
  status: ChatStatus;
  /** Restricted mode: files cannot be downloaded. */
  restricted: boolean;
  eventLinks: EventLinks;
}

export type ChatStatus = "normal" | "dissolved" | "dissolved_save";

/** What the events of replies tell of their place; `root_only` leaves `parent_id` and `thread_id` out. */
export type EventLinks = "full" | "root_only";

/** Facts of a chat that can change. */
export type ChatChange = Partial<
  Pick<SimChat, "name" | "groupMessageType" | "external" | "restricted" | "eventLinks">
>;

export interface NewUser {
  openId?: string;
  name: string;
  /** For people of another tenant. */
  tenantKey?: string;
}

export interface NewChat extends ChatChange {
  chatId?: string;
  type: ChatType;
  topic?: boolean;
  /** Open ids of people and app ids of bots. Without an app id every configured app joins (p2p: the first). */
  members: readonly string[];
}

/** A user group; `members` are open ids. */
export interface SimUserGroup {
  groupId: string;
  /** Its members follow a rule of the administrator's. */
  dynamic: boolean;
  members: ReadonlySet<string>;
}

export interface NewUserGroup {
  groupId?: string;
  dynamic?: boolean;
  members: readonly string[];
}

/** People, their groups and chats of the simulated tenant. */
export interface Directory {
  readonly users: ReadonlyMap<string, SimUser>;
  readonly chats: ReadonlyMap<string, SimChat>;
  readonly userGroups: ReadonlyMap<string, SimUserGroup>;
  /** Takes people and chats of an earlier process as they were. */
  restore(users: readonly SimUser[], chats: readonly SimChat[]): void;
  addUser(user: NewUser): SimUser;
  addChat(chat: NewChat): SimChat;
  addUserGroup(group: NewUserGroup): SimUserGroup;
  /** The p2p chat of a person and a bot, opened on first use. */
  p2pChat(openId: string, appId: string): SimChat;
}

/** Called for each addition. */
interface DirectoryListener {
  onUser(user: SimUser): void;
  onChat(chat: SimChat): void;
}

export function createDirectory(appIds: readonly string[], listener: DirectoryListener): Directory {
  const users = new Map<string, SimUser>();
  const chats = new Map<string, SimChat>();
  const userGroups = new Map<string, SimUserGroup>();
  const directory: Directory = {
    users,
    chats,
    userGroups,
    restore(keptUsers, keptChats) {
      for (const user of keptUsers) users.set(user.openId, user);
      for (const chat of keptChats) chats.set(chat.chatId, chat);
    },
    addUser({ openId = newId("ou_"), ...user }) {
      const added = { openId, unionId: newId("on_"), userId: newId("").slice(0, 8), ...user };
      users.set(openId, added);
      listener.onUser(added);
      return added;
    },
    addChat(chat) {
      const added = newChat(chat, appIds);
      for (const member of added.members) {
        if (!users.has(member)) throw new Error(`No user ${member}: add the user before the chat`);
      }
      chats.set(added.chatId, added);
      listener.onChat(added);
      return added;
    },
    addUserGroup({ groupId = newId("og-"), dynamic = false, members }) {
      const stranger = members.find((member) => !users.has(member));
      if (stranger !== undefined) {
        throw new Error(`No user ${stranger}: add the user before the group`);
      }
      const group = { groupId, dynamic, members: new Set(members) };
      userGroups.set(groupId, group);
      return group;
    },
    p2pChat(openId, appId) {
      for (const chat of chats.values()) {
        if (chat.type === "p2p" && chat.members.has(openId) && chat.bots.has(appId)) return chat;
      }
      return directory.addChat({ type: "p2p", members: [openId, appId] });
    },
  };
  return directory;
}

function newChat(chat: NewChat, appIds: readonly string[]): SimChat {
  const named = chat.members.filter((member) => member.startsWith("cli_"));
  const all = chat.type === "p2p" ? appIds.slice(0, 1) : appIds;
  return {
    chatId: chat.chatId ?? newId("oc_"),
    type: chat.type,
    topic: chat.topic ?? false,
    groupMessageType: chat.groupMessageType ?? "chat",
    name: chat.name ?? "",
    members: new Set(chat.members.filter((member) => !member.startsWith("cli_"))),
    bots: new Set(named.length > 0 ? named : all),
    external: chat.external ?? false,
    status: "normal",
    restricted: chat.restricted ?? false,
    eventLinks: chat.eventLinks ?? "full",
  };
}

/** Whether each top-level message opens a thread: topic groups, and groups in topic form. */
export function opensThreads(chat: SimChat): boolean {
  return chat.topic || chat.groupMessageType === "thread";
}

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
