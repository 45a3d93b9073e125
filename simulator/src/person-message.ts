import type { SimApp } from "./app.ts";
import { opensThreads, type EventLinks, type SimChat, type SimUser } from "./directory.ts";
import { copyForwarded } from "./forward-message.ts";
import { newId } from "./id.ts";
import type { JsonObject } from "./json-fields.ts";
import type { SimFile } from "./media-store.ts";
import type { NewMessage, SimMessage } from "./message-store.ts";
import { writtenContent } from "./person-content.ts";
import type { Platform } from "./platform.ts";
import { openThread } from "./thread.ts";

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
  const rendered = writtenContent({ platform, app, chat, sender }, written);
  const message = platform.messages.add({
    chatId: chat.chatId,
    senderType: "user",
    senderId: sender.openId,
    ...rendered,
    ...links(platform, chat, written),
    createdAt: written.createdAtMs ?? platform.now(),
  });
  openThread(platform, message);
  copyForwarded(platform, message.messageId, written.forward ?? []);
  return { app, chat, sender, message };
}

/** A person's place in the chat; topic groups and groups in topic form put each top-level message in a new thread. */
function links(
  platform: Platform,
  chat: SimChat,
  { parentId, rootId, threadId: wanted }: PersonMessage,
): Pick<NewMessage, "rootId" | "parentId" | "threadId"> {
  const answered = parentId ?? rootId;
  const parent = answered === undefined ? undefined : platform.messages.get(answered);
  if (answered !== undefined && parent === undefined) throw new Error(`No message ${answered}`);
  const opened = wanted === "new" || opensThreads(chat) ? newId("omt_") : undefined;
  const threadId = parent?.threadId ?? (wanted === "new" ? opened : (wanted ?? opened));
  if (parent === undefined) return threadId === undefined ? {} : { threadId };
  const answer = { rootId: parent.rootId ?? parent.messageId, parentId: parent.messageId };
  return threadId === undefined ? answer : { ...answer, threadId };
}
