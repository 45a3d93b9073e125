import { newId } from "./open-api.ts";

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

/** `refused` answers 99991672; `hidden` leaves names out, as for people outside the app's contact range. */
export type NameScope = "granted" | "hidden" | "refused";
