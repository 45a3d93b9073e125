import type { SimApp } from "./apps.ts";
import { type EventPush, envelope, type OutgoingEvent, legacyEnvelope } from "./delivery.ts";
import type { ChatChange, NameScope, SimChat, SimUser } from "./directory.ts";
import { tellBots, membershipEvent, pushAll, userIds } from "./events.ts";
import type { SimMessage } from "./message-store.ts";
import { type Platform, knownChat, firstMember, knownUser, knownApp, botsOf } from "./platform.ts";
import { reactionEvent } from "./reactions.ts";
import { type JsonObject, newId } from "./open-api.ts";

/** What people do besides writing, and what happens to chats. Wrong ids throw. */
export interface ChatControls {
  /** Changes facts of a chat; its bots get `im.chat.updated_v1`. */
  updateChat(chatId: string, change: ChatChange): EventPush;
  /** From now on the chat answers 232009; its bots get `im.chat.disbanded_v1`. */
  dissolveChat(chatId: string): EventPush;
  /** The bot gets `im.chat.member.bot.added_v1`. Without an operator the first member adds it. */
  addBot(chatId: string, appId: string, options?: { operator?: string }): EventPush;
  /** Sends answer 230002 from now on; the bot gets `im.chat.member.bot.deleted_v1`. Default: every bot of the chat. */
  removeBot(chatId: string, options?: { appId?: string; operator?: string }): EventPush;
  /** People join a group; its bots get `im.chat.member.user.added_v1`. */
  addMembers(chatId: string, openIds: readonly string[]): EventPush;
  /** A person is removed from a group; its bots get `im.chat.member.user.deleted_v1`. */
  removeMember(chatId: string, openId: string): EventPush;
  /**
   * A person opens the chat with a bot: `im.chat.access_event.bot_p2p_chat_entered_v1`, and the first time the 1.0
   * event `p2p_chat_create` before it.
   */
  enterChat(openId: string, appId: string): EventPush & { readonly chatId: string };
  /** A person presses an entry of the bot's menu: `application.bot.menu_v6`. */
  pressMenu(openId: string, appId: string, eventKey: string): EventPush;
  /** The bots of the chat get `im.message.reaction.created_v1`. */
  react(reaction: PersonReaction): EventPush;
  /** The bots of the chat get `im.message.reaction.deleted_v1`. */
  unreact(reaction: PersonReaction): EventPush;
  /** A person reads a bot's messages of a p2p chat: `im.message.message_read_v1`. */
  markRead(openId: string, messageIds: readonly string[]): EventPush;
  /**
   * Every send to the target answers this code until it is undefined again, or so many times. A chat id refuses what is sent to the
   * chat, an open id what is sent to the person's p2p chat, a message id the replies to the message.
   */
  refuseSends(target: string, code: number | undefined, options?: { times?: number }): void;
  /** Whether the bots may not see a message, as one older than their joining: 230050, 231018 or 234040. */
  hideMessage(messageId: string, hidden?: boolean): void;
  /** Which names the contact API shows to the app. */
  setNameScope(appId: string, scope: NameScope): void;
}

/** A reaction of a person. */
export interface PersonReaction {
  messageId: string;
  from: string;
  emojiType: string;
}

export function createChatControls(platform: Platform): ChatControls {
  return {
    ...createMemberControls(platform),
    ...createPresenceControls(platform),
    updateChat(chatId, change) {
      const chat = knownChat(platform, chatId);
      const before = changeView(chat, change);
      Object.assign(chat, change);
      const event = {
        chat_id: chatId,
        before_change: before,
        after_change: changeView(chat, change),
      };
      return tellBots(platform, chat, { eventType: "im.chat.updated_v1", event });
    },
    dissolveChat(chatId) {
      const chat = knownChat(platform, chatId);
      chat.status = "dissolved";
      const event = membershipEvent(platform, chat, firstMember(platform, chat));
      return tellBots(platform, chat, { eventType: "im.chat.disbanded_v1", event });
    },
    refuseSends(target, code, { times = Number.POSITIVE_INFINITY } = {}) {
      if (code === undefined) platform.sendRefusals.delete(target);
      else platform.sendRefusals.set(target, { code, left: times });
    },
    hideMessage(messageId, hidden = true) {
      if (platform.messages.change(messageId, { hidden }) === undefined) {
        throw new Error(`No message ${messageId}`);
      }
    },
    setNameScope(appId, scope) {
      if (!platform.apps.has(appId)) throw new Error(`No app ${appId}`);
      platform.nameScopes.set(appId, scope);
    },
  };
}

/** The changed fields under their platform names; facts without one are left out. */
function changeView(chat: SimChat, change: ChatChange): JsonObject {
  return {
    ...(change.name === undefined ? {} : { name: chat.name }),
    ...(change.groupMessageType === undefined ? {} : { group_message_type: chat.groupMessageType }),
    ...(change.restricted === undefined
      ? {}
      : { restricted_mode_setting: { status: chat.restricted } }),
  };
}

type MemberControls = Pick<ChatControls, "addBot" | "removeBot" | "addMembers" | "removeMember">;

/** Bots and people that join and leave groups. */
function createMemberControls(platform: Platform): MemberControls {
  const operatorOf = (chat: SimChat, openId: string | undefined): SimUser | undefined =>
    openId === undefined ? firstMember(platform, chat) : knownUser(platform, openId);
  return {
    addBot(chatId, appId, { operator } = {}) {
      const chat = knownChat(platform, chatId);
      const app = knownApp(platform, appId);
      chat.bots.add(appId);
      const event = membershipEvent(platform, chat, operatorOf(chat, operator));
      return pushAll(platform, [app], () =>
        envelope(app, {
          eventType: "im.chat.member.bot.added_v1",
          event,
          createdAt: platform.clock.now(),
        }),
      );
    },
    removeBot(chatId, { appId, operator } = {}) {
      const chat = knownChat(platform, chatId);
      const removed = appId === undefined ? botsOf(platform, chat) : [knownApp(platform, appId)];
      for (const app of removed) chat.bots.delete(app.appId);
      const event = membershipEvent(platform, chat, operatorOf(chat, operator));
      return pushAll(platform, removed, (app) =>
        envelope(app, {
          eventType: "im.chat.member.bot.deleted_v1",
          event,
          createdAt: platform.clock.now(),
        }),
      );
    },
    addMembers(chatId, openIds) {
      const chat = knownChat(platform, chatId);
      const users = openIds.map((openId) => knownUser(platform, openId));
      for (const { openId } of users) chat.members.add(openId);
      const event = {
        ...membershipEvent(platform, chat, firstMember(platform, chat)),
        users: views(platform, users),
      };
      return tellBots(platform, chat, { eventType: "im.chat.member.user.added_v1", event });
    },
    removeMember(chatId, openId) {
      const chat = knownChat(platform, chatId);
      const user = knownUser(platform, openId);
      chat.members.delete(openId);
      const event = {
        ...membershipEvent(platform, chat, firstMember(platform, chat)),
        users: views(platform, [user]),
      };
      return tellBots(platform, chat, { eventType: "im.chat.member.user.deleted_v1", event });
    },
  };
}

function views(platform: Platform, users: readonly SimUser[]): JsonObject[] {
  const [app] = platform.apps.values();
  return users.map((user) => ({
    name: user.name,
    tenant_key: user.tenantKey ?? app?.tenantKey ?? "",
    user_id: userIds(user),
  }));
}

type PresenceControls = Pick<
  ChatControls,
  "enterChat" | "pressMenu" | "react" | "unreact" | "markRead"
>;

/** What people do in chats besides writing. */
function createPresenceControls(platform: Platform): PresenceControls {
  const opened = new Set<string>();
  return {
    enterChat(openId, appId) {
      const [user, app] = [knownUser(platform, openId), knownApp(platform, appId)];
      const chat = platform.directory.p2pChat(openId, appId);
      const first = !opened.has(chat.chatId) && platform.messages.inChat(chat.chatId).length === 0;
      opened.add(chat.chatId);
      const events = first ? [createdEvent(platform, app, { user, chat })] : [];
      events.push(enteredEvent(platform, app, { user, chat }));
      return {
        chatId: chat.chatId,
        reports: Promise.all(events.map((event) => platform.publish(event))),
      };
    },
    pressMenu(openId, appId, eventKey) {
      const user = knownUser(platform, openId);
      const event = {
        operator: { operator_name: user.name, operator_id: userIds(user) },
        event_key: eventKey,
        timestamp: Math.floor(platform.clock.now() / 1000),
      };
      return pushAll(platform, [knownApp(platform, appId)], (app) =>
        envelope(app, {
          eventType: "application.bot.menu_v6",
          event,
          createdAt: platform.clock.now(),
        }),
      );
    },
    react: (reaction) => react(platform, reaction),
    unreact: (reaction) => unreact(platform, reaction),
    markRead(openId, messageIds) {
      const user = knownUser(platform, openId);
      const messages = messageIds.map((messageId) => knownMessage(platform, messageId));
      const chatIds = new Set(messages.map((message) => message.chatId));
      const [chatId] = chatIds;
      if (chatId === undefined || chatIds.size > 1) {
        throw new Error("Messages of one chat are read together");
      }
      const reader = {
        reader_id: userIds(user),
        read_time: String(platform.clock.now()),
        tenant_key: tenantOf(platform),
      };
      const chat = knownChat(platform, chatId);
      if (chat.type !== "p2p") throw new Error("Only p2p chats tell that messages were read");
      const event = { reader, message_id_list: [...messageIds] };
      return tellBots(platform, chat, { eventType: "im.message.message_read_v1", event });
    },
  };
}

interface Entry {
  user: SimUser;
  chat: SimChat;
}

/** The only 1.0 event here: fired once, when a person and a bot open their chat. */
function createdEvent(platform: Platform, app: SimApp, { user, chat }: Entry): OutgoingEvent {
  const event = {
    chat_id: chat.chatId,
    operator: { open_id: user.openId, user_id: user.userId },
    user: { name: user.name, open_id: user.openId, user_id: user.userId },
  };
  return legacyEnvelope(app, {
    eventType: "p2p_chat_create",
    event,
    createdAt: platform.clock.now(),
  });
}

function enteredEvent(platform: Platform, app: SimApp, { user, chat }: Entry): OutgoingEvent {
  const last = platform.messages.inChat(chat.chatId).at(-1);
  const event = {
    chat_id: chat.chatId,
    operator_id: userIds(user),
    last_message_id: last?.messageId ?? "",
    last_message_create_time: last === undefined ? "" : String(last.createdAt),
  };
  const eventType = "im.chat.access_event.bot_p2p_chat_entered_v1";
  return envelope(app, { eventType, event, createdAt: platform.clock.now() });
}

function react(platform: Platform, { messageId, from, emojiType }: PersonReaction): EventPush {
  const message = knownMessage(platform, messageId);
  const operatorId = knownUser(platform, from).openId;
  const reactionId = newId("ZCaCIjUBVVWSrm5L-");
  const reaction = {
    reactionId,
    emojiType,
    operatorId,
    operatorType: "user" as const,
    at: platform.clock.now(),
  };
  setReactions(platform, message, [...message.reactions, reaction]);
  return reactionEvent(platform, message, { reaction, created: true });
}

function unreact(platform: Platform, { messageId, from, emojiType }: PersonReaction): EventPush {
  const message = knownMessage(platform, messageId);
  const reaction = message.reactions.find(
    (entry) => entry.operatorId === from && entry.emojiType === emojiType,
  );
  if (reaction === undefined) throw new Error(`${from} has not reacted with ${emojiType}`);
  const left = message.reactions.filter((entry) => entry !== reaction);
  setReactions(platform, message, left);
  return reactionEvent(platform, message, { reaction, created: false });
}

function setReactions(
  platform: Platform,
  message: SimMessage,
  reactions: SimMessage["reactions"],
): void {
  const changed = platform.messages.change(message.messageId, { reactions });
  if (changed !== undefined) platform.announce(changed);
}

function knownMessage(platform: Platform, messageId: string): SimMessage {
  const message = platform.messages.get(messageId);
  if (message === undefined) throw new Error(`No message ${messageId}`);
  return message;
}

function tenantOf(platform: Platform): string {
  const [app] = platform.apps.values();
  return app?.tenantKey ?? "";
}
