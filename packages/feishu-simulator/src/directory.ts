import { newId } from "./id.ts";

export interface SimUser {
  openId: string;
  unionId: string;
  userId: string;
  name: string;
}

export type ChatType = "p2p" | "group";

/** A chat; `members` are open ids of people, `bots` are app ids. */
export interface SimChat {
  chatId: string;
  type: ChatType;
  /** A topic group: every message outside a thread opens one. */
  topic: boolean;
  name: string;
  members: Set<string>;
  bots: Set<string>;
}

export interface NewUser {
  openId?: string;
  name: string;
}

export interface NewChat {
  chatId?: string;
  type: ChatType;
  name?: string;
  topic?: boolean;
  /** Open ids of people and app ids of bots. Without an app id every configured app joins (p2p: the first). */
  members: readonly string[];
}

/** People and chats of the simulated tenant. */
export interface Directory {
  readonly users: ReadonlyMap<string, SimUser>;
  readonly chats: ReadonlyMap<string, SimChat>;
  addUser(user: NewUser): SimUser;
  addChat(chat: NewChat): SimChat;
  /** The p2p chat of a person and a bot, opened on first use. */
  p2pChat(openId: string, appId: string): SimChat;
}

/** Called for each addition. */
export interface DirectoryListener {
  onUser(user: SimUser): void;
  onChat(chat: SimChat): void;
}

export function createDirectory(appIds: readonly string[], listener: DirectoryListener): Directory {
  const users = new Map<string, SimUser>();
  const chats = new Map<string, SimChat>();
  const directory: Directory = {
    users,
    chats,
    addUser({ openId = newId("ou_"), name }) {
      const user = { openId, unionId: newId("on_"), userId: newId("").slice(0, 8), name };
      users.set(openId, user);
      listener.onUser(user);
      return user;
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
    name: chat.name ?? "",
    members: new Set(chat.members.filter((member) => !member.startsWith("cli_"))),
    bots: new Set(named.length > 0 ? named : all),
  };
}
