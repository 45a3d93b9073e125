import { firstMember, knownChat, membershipEvent, tellBots } from "./chat-events.ts";
import type { DeliveryReport } from "./delivery.ts";
import type { ChatChange, SimChat } from "./directory.ts";
import type { JsonObject } from "./json-fields.ts";
import { createMemberDesk } from "./member-desk.ts";
import { createPresenceDesk } from "./presence-desk.ts";
import type { Platform } from "./platform.ts";

/** Events on their way to the bots that they concern. */
export interface EventPush {
  /** Settles when each event was acknowledged or given up; one report per bot. */
  readonly reports: Promise<readonly DeliveryReport[]>;
}

/** What people do besides writing, and what happens to chats. Wrong ids throw. */
export interface ChatDesk {
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
  /** Which names the contact API tells the app. */
  setNameScope(appId: string, scope: NameScope): void;
}

/** `refused` answers 99991672; `hidden` leaves names out, as for people outside the app's contact range. */
export type NameScope = "granted" | "hidden" | "refused";

/** A reaction of a person. */
export interface PersonReaction {
  messageId: string;
  from: string;
  emojiType: string;
}

export function createChatDesk(platform: Platform): ChatDesk {
  return {
    ...createMemberDesk(platform),
    ...createPresenceDesk(platform),
    updateChat(chatId, change) {
      const chat = knownChat(platform, chatId);
      const before = changeView(chat, change);
      Object.assign(chat, change);
      const event = { chat_id: chatId, before_change: before, after_change: changeView(chat, change) };
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
      if (platform.messages.change(messageId, { hidden }) === undefined) throw new Error(`No message ${messageId}`);
    },
    setNameScope(appId, scope) {
      if (!platform.apps.has(appId)) throw new Error(`No app ${appId}`);
      platform.nameScopes.set(appId, scope);
    },
  };
}

/** The changed fields under their platform names; facts without one are not told. */
function changeView(chat: SimChat, change: ChatChange): JsonObject {
  return {
    ...(change.name === undefined ? {} : { name: chat.name }),
    ...(change.groupMessageType === undefined ? {} : { group_message_type: chat.groupMessageType }),
    ...(change.restricted === undefined ? {} : { restricted_mode_setting: { status: chat.restricted } }),
  };
}
