import type { SimApp } from "./app.ts";
import type { EventLinks, SimChat, SimUser } from "./directory.ts";
import { newId } from "./id.ts";
import type { JsonObject } from "./json-fields.ts";
import type { SimFile } from "./media-store.ts";
import { renderContent, type RenderedContent } from "./message-content.ts";
import type { NewMessage, SimMessage } from "./message-store.ts";
import { mentionLookup, type Platform } from "./platform.ts";

/**
 * A message that a person writes. Its kind follows from the one field of content that is given: `text`, `post`,
 * `image`, `file`, `folder`, `audio`, `media`, `forward`, or `messageType` with `content`. A `messageType` alone
 * sends the documented example of that kind (message content guide).
 */
export interface PersonMessage {
  /** The bot that gets the event. */
  appId: string;
  chatId: string;
  /** Open id of a member of the chat. */
  from: string;
  /** May hold `<at user_id="ou_…"></at>` and `<at user_id="all"></at>` tags. */
  text?: string;
  post?: PersonPost;
  image?: SimFile;
  file?: SimFile & { name: string };
  folder?: { name: string };
  audio?: SimFile & { durationMs: number };
  /** A video. */
  media?: SimFile & { durationMs: number; cover?: SimFile };
  /** Ids of messages to forward as one merged message. */
  forward?: readonly string[];
  /** Content as the event carries it, for any message type. */
  content?: string | JsonObject;
  /** Default `text`; only with `content` or alone. */
  messageType?: string;
  /** Puts a mention of the bot in front of the text or post. */
  mention?: boolean;
  /** Open ids of people and bots to mention in front of the text or post, after the bot. */
  mentions?: readonly string[];
  /** Mentions everybody in front: with an entry in `mentions`, or only as text. */
  mentionAll?: "mention" | "text";
  /** The message that this one answers. */
  rootId?: string;
  /** The same, when the answer is to a later message of the chain. Wins over `rootId`. */
  parentId?: string;
  /** Puts the message into this thread; `new` answers the parent in a thread of its own. */
  threadId?: string | "new";
  /** Default: as the chat says. */
  eventLinks?: EventLinks;
  /** When it was written, in milliseconds since the epoch; default now. An event for an old time arrives late. */
  createdAtMs?: number;
  userAgent?: string;
}

/** A post as people write it. */
export interface PersonPost {
  title?: string;
  /** Paragraphs of elements as they are received; `at` names a person by open id, pictures may bring their bytes. */
  content: readonly (readonly PersonPostElement[])[];
}

/** An element of a post. `image` becomes its `image_key`, `file` its `file_key`. */
export type PersonPostElement = JsonObject & { tag: string; image?: SimFile; file?: SimFile };

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
    written.content === undefined
      ? renderText(platform, written, { app, chat })
      : rawContent(typeof written.content === "string" ? written.content : JSON.stringify(written.content));
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
