import { LRUCache } from "lru-cache";
import type { SimApp } from "./apps.ts";
import {
  type DeliveryReport,
  type DeliveryService,
  type OutgoingEvent,
  unsubscribed,
  envelope,
} from "./delivery.ts";
import { type EventLinks, type SimChat, type SimUser, opensThreads } from "./directory.ts";
import { messageEvent, tellBots } from "./events.ts";
import type { SimFile, NewMedia } from "./media.ts";
import {
  renderContent,
  type SimMessage,
  type NewMessage,
  type RenderedContent,
  type SimMention,
} from "./message-store.ts";
import { type Platform, mentionLookup, knownChat, openThread } from "./platform.ts";
import { type JsonObject, newId } from "./open-api.ts";

const keptEvents = 20_000;

/** A message of a person, as it was sent to a bot. */
export interface SentMessage {
  messageId: string;
  eventId: string;
  /** Settles when the event was acknowledged or given up. */
  delivery: Promise<DeliveryReport>;
}

/** An event other than a message. A callback is attempted once; its answer is in the report. */
export interface CustomEvent {
  appId: string;
  eventType: string;
  event: JsonObject;
  callback?: boolean;
  /** The same for each delivery of one event; absent: a new one. */
  eventId?: string;
  /** When it has happened, epoch ms; absent: now. */
  createdAt?: number;
}

/** Who recalled a message: its writer, or a person who may recall others' (message recalled page). */
export type RecallType = "message_owner" | "group_owner" | "group_manager" | "enterprise_manager";

/** Turns what people do into events for the bots. */
interface MessageControls {
  sendMessage(message: PersonMessage): Promise<SentMessage>;
  redeliver(messageId: string, options?: { freshEventId?: boolean }): Promise<DeliveryReport>;
  recall(messageId: string, options?: { by?: RecallType }): Promise<void>;
  editMessage(messageId: string, text: string): void;
  sendEvent(event: CustomEvent): Promise<DeliveryReport>;
}

export function createMessageControls(
  platform: Platform,
  deliveries: DeliveryService,
): MessageControls {
  const events = new LRUCache<string, OutgoingEvent>({ max: keptEvents });
  const sendNow = (message: PersonMessage): SentMessage => {
    const written = writeMessage(platform, message);
    const event = messageEvent({
      ...written,
      users: platform.directory.users,
      ...eventFacts(message),
    });
    const { messageId } = written.message;
    events.set(messageId, event);
    platform.announce(written.message);
    const delivery = isSubscribed(written)
      ? platform.publish(event)
      : Promise.resolve(unsubscribed(event));
    return { messageId, eventId: event.eventId, delivery };
  };
  return {
    sendMessage: async (message) => sendNow(message),
    async redeliver(messageId, { freshEventId = false } = {}) {
      const event = events.get(messageId);
      if (event === undefined) throw new Error(`No event of message ${messageId}`);
      return deliveries.deliverOnce(freshEventId ? withFreshId(event) : event);
    },
    editMessage: (messageId, text) => editText(platform, messageId, text),
    recall: async (messageId, { by = "message_owner" } = {}) => recall(platform, messageId, by),
    async sendEvent({ appId, eventType, event, eventId, createdAt, callback = false }) {
      const app = platform.apps.get(appId);
      if (app === undefined) throw new Error(`No app ${appId}`);
      const made = envelope(app, {
        eventType,
        event,
        createdAt: createdAt ?? platform.clock.now(),
      });
      const outgoing = eventId === undefined ? made : withId(made, eventId);
      return callback ? deliveries.deliverOnce(outgoing) : deliveries.deliver(outgoing);
    },
  };
}

function withFreshId(event: OutgoingEvent): OutgoingEvent {
  return withId(event, newId(""));
}

function withId(event: OutgoingEvent, eventId: string): OutgoingEvent {
  return { ...event, eventId, payload: event.payload.replace(event.eventId, eventId) };
}

/** Group messages reach an app that asked for all of them, or that is mentioned. */
function isSubscribed({ app, chat, message }: WrittenMessage): boolean {
  if (!chat.bots.has(app.appId) || chat.status !== "normal") return false;
  if (chat.type === "p2p" || app.groupScope === "all") return true;
  return message.mentions.some((mention) => mention.openId === app.openId);
}

/** No event reports it; reading the message shows the new text and time (message receive page). */
function editText(platform: Platform, messageId: string, text: string): void {
  const message = platform.messages.get(messageId);
  if (message?.senderType !== "user" || message.messageType !== "text") {
    throw new Error(`No text ${messageId} of a person`);
  }
  const lookup = mentionLookup(platform, knownChat(platform, message.chatId));
  const rendered = renderContent("text", JSON.stringify({ text }), lookup);
  const change = { ...rendered, edits: message.edits + 1, updatedAt: platform.clock.now() };
  const changed = platform.messages.change(messageId, change);
  if (changed !== undefined) platform.announce(changed);
}

function recall(platform: Platform, messageId: string, recallType: RecallType): void {
  const recallTime = platform.clock.now();
  const message = platform.messages.change(messageId, { recalled: true, updatedAt: recallTime });
  const chat = message === undefined ? undefined : platform.directory.chats.get(message.chatId);
  if (message === undefined || chat === undefined) throw new Error(`No message ${messageId}`);
  platform.announce(message);
  const event = {
    message_id: messageId,
    chat_id: chat.chatId,
    recall_time: String(recallTime),
    recall_type: recallType,
  };
  tellBots(platform, chat, { eventType: "im.message.recalled_v1", event, messageId });
}

function eventFacts({
  eventLinks,
  userAgent,
}: PersonMessage): Pick<PersonMessage, "eventLinks" | "userAgent"> {
  return {
    ...(eventLinks === undefined ? {} : { eventLinks }),
    ...(userAgent === undefined ? {} : { userAgent }),
  };
}

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

interface WrittenMessage {
  app: SimApp;
  chat: SimChat;
  sender: SimUser;
  message: SimMessage;
}

/** Stores what a person wrote. A wrong id is the caller's mistake and throws. */
function writeMessage(platform: Platform, written: PersonMessage): WrittenMessage {
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
    createdAt: written.createdAtMs ?? platform.clock.now(),
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

/** Where and by whom a message is written. */
interface Writing {
  platform: Platform;
  app: SimApp;
  chat: SimChat;
  sender: SimUser;
}

/** Content as it is received, with its message type. */
interface WrittenContent extends RenderedContent {
  messageType: string;
}

/** The content of a message in the received form of its kind (message content guide). */
function writtenContent(writing: Writing, written: PersonMessage): WrittenContent {
  const { platform } = writing;
  const add = (kind: NewMedia["kind"], file: NewMedia["file"]): string =>
    platform.media.add({ kind, file }).key;
  if (written.post !== undefined) {
    return {
      messageType: "post",
      ...postContent(writing, written.post, mentionedIds(writing, written)),
    };
  }
  if (written.image !== undefined) {
    return plain("image", { image_key: add("image", written.image) });
  }
  if (written.file !== undefined) {
    return plain("file", { file_key: add("file", written.file), file_name: written.file.name });
  }
  if (written.folder !== undefined) {
    const file = { bytes: new Uint8Array(0) };
    return plain("folder", { file_key: add("file", file), file_name: written.folder.name });
  }
  if (written.audio !== undefined) {
    const file = { mediaType: "audio/ogg", ...written.audio };
    return plain("audio", { file_key: add("file", file), duration: written.audio.durationMs });
  }
  if (written.media !== undefined) return video(written.media, add);
  if (written.forward !== undefined) {
    return plain("merge_forward", { content: "Merged and Forwarded Message" });
  }
  if (written.content !== undefined) {
    return rawContent(written.messageType ?? "text", written.content);
  }
  if (written.messageType !== undefined && written.messageType !== "text") {
    return plain(written.messageType, sampleContent(writing, written.messageType));
  }
  return { messageType: "text", ...textContent(writing, written) };
}

function video(
  media: NonNullable<PersonMessage["media"]>,
  add: (kind: NewMedia["kind"], file: NewMedia["file"]) => string,
): WrittenContent {
  return plain("media", {
    file_key: add("file", { mediaType: "video/mp4", ...media }),
    image_key: add("image", media.cover ?? { bytes: new Uint8Array(0), mediaType: "image/jpeg" }),
    file_name: media.name ?? "video.mp4",
    duration: media.durationMs,
  });
}

function plain(messageType: string, content: JsonObject): WrittenContent {
  return { messageType, content: JSON.stringify(content), text: `[${messageType}]`, mentions: [] };
}

function rawContent(messageType: string, given: string | JsonObject): WrittenContent {
  const content = typeof given === "string" ? given : JSON.stringify(given);
  const parsed: unknown = JSON.parse(content);
  const text =
    typeof parsed === "object" && parsed !== null && "text" in parsed ? parsed.text : undefined;
  return { messageType, content, text: typeof text === "string" ? text : content, mentions: [] };
}

/** Everybody, people and bots to mention in front, in this order. */
function mentionedIds(
  { app }: Writing,
  { text = "", mention, mentions = [], mentionAll }: PersonMessage,
): string[] {
  const bot =
    mention === true && !text.includes(`<at user_id="${app.openId}"></at>`) ? [app.openId] : [];
  return [...(mentionAll === undefined ? [] : ["all"]), ...bot, ...mentions];
}

function textContent(writing: Writing, written: PersonMessage): RenderedContent {
  const { platform, chat } = writing;
  const tags = mentionedIds(writing, written).map((id) => `<at user_id="${id}"></at>`);
  const text = [...tags, written.text ?? ""].join(" ");
  const rendered = renderContent("text", JSON.stringify({ text }), mentionLookup(platform, chat));
  return { ...rendered, mentions: withAll(rendered.mentions, written) };
}

/** Mentioning everybody leaves an entry in `mentions`, or only the placeholder in the text. */
function withAll(mentions: SimMention[], { mentionAll }: PersonMessage): SimMention[] {
  return mentionAll === "mention" ? [allMention, ...mentions] : mentions;
}

const allMention: SimMention = { key: "@_all", openId: "", name: "所有人", bot: false };

/** A post in its received form: without a locale around it, mentions as placeholders, pictures as keys. */
function postContent(writing: Writing, post: PersonPost, ids: readonly string[]): RenderedContent {
  const mentions: SimMention[] = [];
  const lookup = mentionLookup(writing.platform, writing.chat);
  const mentioned = (id: string): JsonObject => {
    if (id === "all") return { tag: "at", user_id: "@_all", user_name: "所有人", style: [] };
    const found = lookup(id);
    if (found === undefined) throw new Error(`No person or bot ${id} to mention`);
    const key = `@_user_${mentions.length + 1}`;
    mentions.push({ key, openId: id, name: found.name, bot: found.bot });
    return { tag: "at", user_id: key, user_name: found.name, style: [] };
  };
  const received = (element: PersonPostElement): JsonObject =>
    element.tag === "at" ? mentioned(String(element.user_id)) : withKeys(writing, element);
  const front = ids.map(mentioned);
  const paragraphs = post.content.map((paragraph) => paragraph.map(received));
  const [first = [], ...rest] = paragraphs;
  const content = front.length === 0 ? paragraphs : [[...front, ...first], ...rest];
  const title = post.title ?? "";
  return { content: JSON.stringify({ title, content }), text: textOf(title, content), mentions };
}

function withKeys(
  { platform }: Writing,
  { image, file, ...element }: PersonPostElement,
): JsonObject {
  return {
    ...element,
    ...(image === undefined
      ? {}
      : { image_key: platform.media.add({ kind: "image", file: image }).key }),
    ...(file === undefined ? {} : { file_key: platform.media.add({ kind: "file", file }).key }),
  };
}

function textOf(title: string, paragraphs: readonly (readonly JsonObject[])[]): string {
  const lines = paragraphs.map((paragraph) => paragraph.map(elementText).join(""));
  return (title === "" ? lines : [title, ...lines]).join("\n");
}

function elementText(element: JsonObject): string {
  if (element.tag === "at") return `@${String(element.user_name)}`;
  if (element.tag === "hr") return "---";
  return typeof element.text === "string" ? element.text : `[${String(element.tag)}]`;
}

/** Content of a kind as the message content guide shows it; unknown kinds are empty objects. */
function sampleContent({ platform, chat, sender }: Writing, messageType: string): JsonObject {
  const startMs = platform.clock.now();
  const event = {
    summary: "Weekly review",
    start_time: String(startMs),
    end_time: String(startMs + 3_600_000),
  };
  switch (messageType) {
    case "sticker":
      return {
        file_key: platform.media.add({ kind: "file", file: { bytes: new Uint8Array(0) } }).key,
      };
    case "interactive":
      return receivedCard;
    case "share_chat":
      return { chat_id: chat.chatId };
    case "share_user":
      return { user_id: sender.openId };
    case "location":
      return { name: "Shenzhen Bay Park", longitude: "113.944", latitude: "22.516" };
    case "hongbao":
      return { text: "[红包]" };
    case "share_calendar_event":
    case "calendar":
    case "general_calendar":
      return event;
    case "system":
      return {
        template: "{from_user} invited {to_chatters} to this chat.",
        from_user: [sender.name],
        to_chatters: [sender.name],
      };
    case "video_chat":
      return { topic: "Stand-up", start_time: String(startMs) };
    case "todo":
      return {
        task_id: "bdbcdd25-6fe6-4f65-9bb3-3a7a9b2f2a6a",
        summary: todoSummary,
        due_time: String(startMs),
      };
    case "vote":
      return { topic: "Lunch?", options: ["Noodles", "Rice"] };
    default:
      return withoutBytes(messageType);
  }
}

/** Cards are received simplified, not as they were sent. */
const receivedCard = {
  title: "Deployment",
  elements: [
    [
      { tag: "text", text: "Version 1.2 is ready." },
      { tag: "button", text: "Deploy", type: "primary" },
    ],
  ],
};

const todoSummary = {
  title: "",
  content: [[{ tag: "text", text: "Write the report", style: [] }]],
};

function withoutBytes(messageType: string): JsonObject {
  if (
    ["image", "file", "folder", "audio", "media", "post", "merge_forward"].includes(messageType)
  ) {
    throw new Error(`A message of type ${messageType} needs its own field or content`);
  }
  return {};
}

/** Copies messages into a merged-forward message, with what those hold themselves. */
export function copyForwarded(
  platform: Platform,
  upperMessageId: string,
  messageIds: readonly string[],
): void {
  for (const messageId of messageIds) {
    const original = platform.messages.get(messageId);
    if (original === undefined) throw new Error(`No message ${messageId} to forward`);
    const { rootId: _root, parentId: _parent, threadId: _thread, uuid: _uuid, ...facts } = original;
    const copy = platform.messages.add({ ...facts, upperMessageId });
    const held = platform.messages.forwardedIn(messageId).map((message) => message.messageId);
    copyForwarded(platform, copy.messageId, held);
  }
}
