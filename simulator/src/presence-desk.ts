import type { SimApp } from "./app.ts";
import type { ChatDesk, EventPush, PersonReaction } from "./chat-desk.ts";
import { knownApp, knownChat, knownUser, pushAll, tellBots } from "./chat-events.ts";
import type { OutgoingEvent } from "./delivery.ts";
import type { SimChat, SimUser } from "./directory.ts";
import { envelope, legacyEnvelope, userIds } from "./event-envelope.ts";
import { newId } from "./id.ts";
import type { SimMessage } from "./message-store.ts";
import type { Platform } from "./platform.ts";
import { reactionEvent } from "./reaction-event.ts";

type PresenceDesk = Pick<ChatDesk, "enterChat" | "pressMenu" | "react" | "unreact" | "markRead">;

/** What people do in chats besides writing. */
export function createPresenceDesk(platform: Platform): PresenceDesk {
  const opened = new Set<string>();
  return {
    enterChat(openId, appId) {
      const [user, app] = [knownUser(platform, openId), knownApp(platform, appId)];
      const chat = platform.directory.p2pChat(openId, appId);
      const first = !opened.has(chat.chatId) && platform.messages.inChat(chat.chatId).length === 0;
      opened.add(chat.chatId);
      const events = first ? [createdEvent(platform, app, { user, chat })] : [];
      events.push(enteredEvent(platform, app, { user, chat }));
      return { chatId: chat.chatId, reports: Promise.all(events.map((event) => platform.publish(event))) };
    },
    pressMenu(openId, appId, eventKey) {
      const user = knownUser(platform, openId);
      const event = {
        operator: { operator_name: user.name, operator_id: userIds(user) },
        event_key: eventKey,
        timestamp: Math.floor(platform.now() / 1000),
      };
      return pushAll(platform, [knownApp(platform, appId)], (app) =>
        envelope(app, { eventType: "application.bot.menu_v6", event, createdAt: platform.now() }),
      );
    },
    react: (reaction) => react(platform, reaction),
    unreact: (reaction) => unreact(platform, reaction),
    markRead(openId, messageIds) {
      const user = knownUser(platform, openId);
      const messages = messageIds.map((messageId) => knownMessage(platform, messageId));
      const chatIds = new Set(messages.map((message) => message.chatId));
      const [chatId] = chatIds;
      if (chatId === undefined || chatIds.size > 1) throw new Error("Messages of one chat are read together");
      const reader = { reader_id: userIds(user), read_time: String(platform.now()), tenant_key: tenantOf(platform) };
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
  return legacyEnvelope(app, { eventType: "p2p_chat_create", event, createdAt: platform.now() });
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
  return envelope(app, { eventType, event, createdAt: platform.now() });
}

function react(platform: Platform, { messageId, from, emojiType }: PersonReaction): EventPush {
  const message = knownMessage(platform, messageId);
  const operatorId = knownUser(platform, from).openId;
  const reactionId = newId("ZCaCIjUBVVWSrm5L-");
  const reaction = { reactionId, emojiType, operatorId, operatorType: "user" as const, at: platform.now() };
  setReactions(platform, message, [...message.reactions, reaction]);
  return reactionEvent(platform, message, { reaction, created: true });
}

function unreact(platform: Platform, { messageId, from, emojiType }: PersonReaction): EventPush {
  const message = knownMessage(platform, messageId);
  const reaction = message.reactions.find((entry) => entry.operatorId === from && entry.emojiType === emojiType);
  if (reaction === undefined) throw new Error(`${from} has not reacted with ${emojiType}`);
  const left = message.reactions.filter((entry) => entry !== reaction);
  setReactions(platform, message, left);
  return reactionEvent(platform, message, { reaction, created: false });
}

function setReactions(platform: Platform, message: SimMessage, reactions: SimMessage["reactions"]): void {
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
