import type { SimApp } from "./app.ts";
import type { SimChat, SimUser } from "./directory.ts";
import { newId } from "./id.ts";
import { renderContent, type RenderedContent } from "./message-content.ts";
import type { NewMessage, SimMessage } from "./message-store.ts";
import { mentionLookup, type Platform } from "./platform.ts";

/** A message that a person writes. Give `text`, or `content` with its `messageType`. */
export interface PersonMessage {
  /** The bot that gets the event. */
  appId: string;
  chatId: string;
  /** Open id of a member of the chat. */
  from: string;
  /** May hold `<at user_id="ou_…"></at>` tags. */
  text?: string;
  /** Content as the event carries it, for any message type. */
  content?: string;
  messageType?: string;
  /** Puts a mention of the bot in front of the text. */
  mention?: boolean;
  /** The message that this one answers. */
  rootId?: string;
  threadId?: string;
  /** When it was written, in milliseconds since the epoch; default now. */
  createdAtMs?: number;
}

export interface WrittenMessage {
  app: SimApp;
  chat: SimChat;
  sender: SimUser;
  message: SimMessage;
}

/** Stores what a person wrote. A wrong id is the caller's mistake and throws. */
export function writeMessage(platform: Platform, written: PersonMessage): WrittenMessage {
  const app = platform.apps.get(written.appId);
  const chat = platform.directory.chats.get(written.chatId);
  const sender = platform.directory.users.get(written.from);
  if (app === undefined) throw new Error(`No app ${written.appId}`);
  if (chat === undefined) throw new Error(`No chat ${written.chatId}`);
  if (sender === undefined || !chat.members.has(sender.openId)) {
    throw new Error(`${written.from} is not a member of ${written.chatId}`);
  }
  const messageType = written.content === undefined ? "text" : (written.messageType ?? "text");
  const rendered =
    written.content === undefined ? renderText(platform, written, { app, chat }) : rawContent(written.content);
  const message = platform.messages.add({
    chatId: chat.chatId,
    senderType: "user",
    senderId: sender.openId,
    messageType,
    ...rendered,
    ...links(platform, chat, written),
    createdAt: written.createdAtMs ?? platform.now(),
  });
  return { app, chat, sender, message };
}

function renderText(
  platform: Platform,
  { text = "", mention = false }: PersonMessage,
  { app, chat }: { app: SimApp; chat: SimChat },
): RenderedContent {
  const tag = `<at user_id="${app.openId}"></at>`;
  const full = mention && !text.includes(tag) ? `${tag} ${text}` : text;
  return renderContent("text", JSON.stringify({ text: full }), mentionLookup(platform, chat));
}

function rawContent(content: string): RenderedContent {
  const parsed: unknown = JSON.parse(content);
  const text = typeof parsed === "object" && parsed !== null && "text" in parsed ? parsed.text : undefined;
  return { content, text: typeof text === "string" ? text : content, mentions: [] };
}

function links(
  platform: Platform,
  chat: SimChat,
  written: PersonMessage,
): Pick<NewMessage, "rootId" | "parentId" | "threadId"> {
  const parent = written.rootId === undefined ? undefined : platform.messages.get(written.rootId);
  if (written.rootId !== undefined && parent === undefined) throw new Error(`No message ${written.rootId}`);
  const threadId = written.threadId ?? parent?.threadId ?? (chat.topic ? newId("omt_") : undefined);
  return {
    ...(parent === undefined ? {} : { rootId: parent.rootId ?? parent.messageId, parentId: parent.messageId }),
    ...(threadId === undefined ? {} : { threadId }),
  };
}
