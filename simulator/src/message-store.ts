import type { SimApp } from "./apps.ts";
import { cardNodes, type CardNode } from "./card-validator.ts";
import {
  newId,
  parseJsonObject,
  PlatformError,
  type JsonObject,
  isJsonObject,
} from "./open-api.ts";

/** A mention as the API shows it; `key` is the placeholder in the content. */
export interface SimMention {
  key: string;
  openId: string;
  name: string;
  bot: boolean;
}

/** A message that is visible in a chat. Times are milliseconds since the epoch. */
export interface SimMessage {
  messageId: string;
  chatId: string;
  senderType: "user" | "app";
  /** Open id of a person, or app id of a bot. */
  senderId: string;
  messageType: string;
  /** The content as JSON text, as the platform stores it. */
  content: string;
  /** What a person reads: mentions resolved, posts and cards flattened to text. */
  text: string;
  /** The card as it is now; only for cards. */
  card?: SimCardView;
  mentions: readonly SimMention[];
  rootId?: string;
  parentId?: string;
  threadId?: string;
  /** The merged-forward message that holds this one. Such messages are in no chat. */
  upperMessageId?: string;
  uuid?: string;
  createdAt: number;
  updatedAt: number;
  edits: number;
  /** How often the app has replaced the card of the message. */
  patches: number;
  recalled: boolean;
  reactions: readonly SimReaction[];
  /** Suggested replies below a bot's message. */
  followUps?: readonly string[];
  /** Older than the bots' joining where newcomers see no history: the bots may not see it. */
  hidden?: boolean;
}

export interface SimReaction {
  reactionId: string;
  emojiType: string;
  operatorId: string;
  operatorType: "user" | "app";
  at: number;
}

export type NewMessage = Omit<
  SimMessage,
  "messageId" | "updatedAt" | "edits" | "patches" | "recalled" | "reactions"
>;
export type MessageChange = Partial<
  Pick<
    SimMessage,
    | "content"
    | "text"
    | "card"
    | "mentions"
    | "messageType"
    | "updatedAt"
    | "edits"
    | "patches"
    | "recalled"
    | "reactions"
    | "threadId"
    | "followUps"
    | "hidden"
  >
>;

/** Messages in memory, by id and by chat in order of arrival. */
export interface MessageStore {
  add(message: NewMessage): SimMessage;
  /** Takes a message of an earlier process as it was. */
  restore(message: SimMessage): void;
  get(messageId: string): SimMessage | undefined;
  change(messageId: string, change: MessageChange): SimMessage | undefined;
  inChat(chatId: string): readonly SimMessage[];
  repliesTo(messageId: string): readonly SimMessage[];
  /** The messages that a merged-forward message holds directly. */
  forwardedIn(messageId: string): readonly SimMessage[];
}

export function createMessageStore(): MessageStore {
  const byId = new Map<string, SimMessage>();
  const byChat = new Map<string, string[]>();
  const byParent = new Map<string, string[]>();
  const byUpper = new Map<string, string[]>();
  const found = (ids: readonly string[] | undefined): SimMessage[] =>
    (ids ?? []).flatMap((id) => byId.get(id) ?? []);
  const keep = (message: SimMessage): void => {
    byId.set(message.messageId, message);
    if (message.upperMessageId !== undefined) {
      return append(byUpper, message.upperMessageId, message.messageId);
    }
    append(byChat, message.chatId, message.messageId);
    if (message.parentId !== undefined) append(byParent, message.parentId, message.messageId);
  };
  return {
    restore: keep,
    add(message) {
      const added: SimMessage = {
        ...message,
        messageId: newId("om_"),
        updatedAt: message.createdAt,
        edits: 0,
        patches: 0,
        recalled: false,
        reactions: [],
      };
      keep(added);
      return added;
    },
    get: (messageId) => byId.get(messageId),
    change(messageId, change) {
      const message = byId.get(messageId);
      if (message === undefined) return undefined;
      const changed = { ...message, ...change };
      byId.set(messageId, changed);
      return changed;
    },
    inChat: (chatId) => found(byChat.get(chatId)),
    repliesTo: (messageId) => found(byParent.get(messageId)),
    forwardedIn: (messageId) => found(byUpper.get(messageId)),
  };
}

function append(index: Map<string, string[]>, key: string, value: string): void {
  const values = index.get(key);
  if (values === undefined) index.set(key, [value]);
  else values.push(value);
}

const textLimitBytes = 150 * 1024;
const richLimitBytes = 30 * 1024;
/** Message types that can be sent, each with the content field that must be a string (create_json guide). */
const keyFields: Readonly<Record<string, string>> = {
  image: "image_key",
  file: "file_key",
  audio: "file_key",
  media: "file_key",
  sticker: "file_key",
  share_chat: "chat_id",
  share_user: "user_id",
};

/** Who a mention tag names: a person or a bot of the tenant. */
export type MentionLookup = (openId: string) => { name: string; bot: boolean } | undefined;

/** Content as stored, and as people read it. */
export interface RenderedContent {
  content: string;
  text: string;
  mentions: SimMention[];
}

/** Checks the size and shape of content to send; refuses with 230001, 230025 or 230099. */
export function renderContent(
  messageType: string,
  content: string,
  lookup: MentionLookup,
): RenderedContent {
  checkSize(messageType, content);
  const parsed = parseJsonObject(content);
  if (parsed === undefined) throw badContent("content is not a string in json format");
  if (messageType === "text") return renderText(parsed, lookup);
  if (messageType === "post") {
    return { content, text: postText(checkedPost(parsed)), mentions: postMentions(parsed, lookup) };
  }
  const field = keyFields[messageType];
  if (field === undefined) {
    throw new PlatformError(
      230001,
      `Your request contains an invalid request parameter: msg_type ${messageType}`,
    );
  }
  if (typeof parsed[field] !== "string") throw badContent(`${field} is required`);
  return { content, text: `[${messageType}]`, mentions: [] };
}

function checkSize(messageType: string, content: string): void {
  const limit = messageType === "text" ? textLimitBytes : richLimitBytes;
  if (Buffer.byteLength(content, "utf8") > limit) {
    throw new PlatformError(230025, "The length of the message content reaches its limit.");
  }
}

function badContent(reason: string): PlatformError {
  return new PlatformError(
    230001,
    `Your request contains an invalid request parameter, ext=${reason}.`,
  );
}

function renderText(parsed: JsonObject, lookup: MentionLookup): RenderedContent {
  if (typeof parsed.text !== "string" || parsed.text === "") {
    throw badContent("text content is required");
  }
  const mentions: SimMention[] = [];
  const numbered = parsed.text.replace(
    /<at user_id="([^"]*)">[^<]*<\/at>/g,
    (_tag, openId: string) => {
      if (openId === "all") return "@_all";
      const found = lookup(openId);
      if (found === undefined) throw badContent(`invalid user id in at tag: ${openId}`);
      const key = `@_user_${mentions.length + 1}`;
      mentions.push({ key, openId, name: found.name, bot: found.bot });
      return key;
    },
  );
  return {
    content: JSON.stringify({ text: numbered }),
    text: withNames(numbered, mentions),
    mentions,
  };
}

function withNames(text: string, mentions: readonly SimMention[]): string {
  return text.replace(/@_user_\d+|@_all/g, (key) => {
    if (key === "@_all") return "@所有人";
    const mention = mentions.find((candidate) => candidate.key === key);
    return mention === undefined ? key : `@${mention.name}`;
  });
}

type PostParagraphs = { title: string; paragraphs: JsonObject[][] };

/** A post is sent with a locale around it; each `md` element stands alone in its paragraph. */
function checkedPost(parsed: JsonObject): PostParagraphs {
  const post = localised(parsed);
  if (post === undefined) throw badContent("post content needs a locale such as zh_cn");
  if (!Array.isArray(post.content)) throw badContent("post content is required");
  const paragraphs = post.content.map((paragraph: unknown) => checkedParagraph(paragraph));
  return { title: typeof post.title === "string" ? post.title : "", paragraphs };
}

function localised(parsed: JsonObject): JsonObject | undefined {
  const body = Object.entries(parsed).find(([locale]) => /^[a-z]{2}_[a-z]{2}$/.test(locale))?.[1];
  return isJsonObject(body) ? body : undefined;
}

const postTags = new Set(["text", "a", "at", "img", "media", "emotion", "hr", "code_block", "md"]);

function checkedParagraph(paragraph: unknown): JsonObject[] {
  if (!Array.isArray(paragraph)) throw badContent("a post paragraph must be an array");
  const elements = paragraph.map((element: unknown) => {
    if (!isJsonObject(element)) throw badContent("a post element must be an object");
    if (!postTags.has(String(element.tag))) {
      throw badContent(`post tag ${String(element.tag)} is unknown`);
    }
    return element;
  });
  if (elements.length > 1 && elements.some((element) => element.tag === "md")) {
    throw badContent("an md element must be alone in its paragraph");
  }
  return elements;
}

function postText({ title, paragraphs }: PostParagraphs): string {
  const lines = paragraphs.map((paragraph) => paragraph.map(elementText).join(""));
  return (title === "" ? lines : [title, ...lines]).join("\n");
}

function elementText(element: JsonObject): string {
  if (element.tag === "at") return `@${String(element.user_name ?? element.user_id)}`;
  if (element.tag === "hr") return "---";
  if (element.tag === "img" || element.tag === "media") return `[${String(element.tag)}]`;
  return typeof element.text === "string" ? element.text : "";
}

function postMentions(parsed: JsonObject, lookup: MentionLookup): SimMention[] {
  const ids = checkedPost(parsed)
    .paragraphs.flat()
    .filter(
      (element) =>
        element.tag === "at" && typeof element.user_id === "string" && element.user_id !== "all",
    )
    .map((element) => String(element.user_id));
  return ids.map((openId, index) => {
    const found = lookup(openId);
    if (found === undefined) throw badContent(`invalid user id in at tag: ${openId}`);
    return { key: `@_user_${index + 1}`, openId, name: found.name, bot: found.bot };
  });
}

/** The JSON of card content of at most 30 KB; what it says is the card modules' matter. */
export function cardContent(content: string): JsonObject {
  checkSize("interactive", content);
  const parsed = parseJsonObject(content);
  if (parsed === undefined) throw badContent("content is not a string in json format");
  return parsed;
}

/** How reading differs from the answer to a send (message get and list pages). */
interface ReadOptions {
  /** Cards in the received form, or as they were sent (`user_card_content`). */
  cards: "received" | "sent";
  /** The list shows a fixed text in the place of recalled content; get leaves it out. */
  recalledText?: string;
}

/** A message as the open API returns it: from send, reply and edit, or with options from get and list. */
export function messageView(message: SimMessage, app: SimApp, options?: ReadOptions): JsonObject {
  const fromApp = message.senderType === "app";
  const parentId = shownParent(message);
  return {
    message_id: message.messageId,
    ...(message.rootId === undefined ? {} : { root_id: message.rootId }),
    ...(parentId === undefined ? {} : { parent_id: parentId }),
    ...(message.threadId === undefined ? {} : { thread_id: message.threadId }),
    msg_type: message.messageType,
    create_time: String(message.createdAt),
    update_time: String(message.updatedAt),
    deleted: message.recalled,
    updated: message.edits > 0,
    chat_id: message.chatId,
    sender: {
      id: message.senderId,
      id_type: fromApp ? "app_id" : "open_id",
      sender_type: message.senderType,
      tenant_key: app.tenantKey,
    },
    ...bodyView(message, options),
    ...(message.mentions.length === 0 ? {} : { mentions: mentionViews(message, app) }),
    ...(message.upperMessageId === undefined ? {} : { upper_message_id: message.upperMessageId }),
  };
}

function bodyView(message: SimMessage, options: ReadOptions | undefined): JsonObject {
  if (message.recalled) {
    const text = options?.recalledText;
    return text === undefined ? {} : { body: { content: JSON.stringify({ text }) } };
  }
  const card = message.card?.json;
  if (options === undefined || card === undefined) return { body: { content: message.content } };
  return {
    body: { content: JSON.stringify(options.cards === "sent" ? card : receivedCard(card)) },
  };
}

/** Inside a thread the parent is shown as the thread's first message (message reply and list pages). */
export function shownParent({ rootId, parentId, threadId }: SimMessage): string | undefined {
  return threadId === undefined ? parentId : (rootId ?? parentId);
}

function mentionViews(message: SimMessage, app: SimApp): JsonObject[] {
  return message.mentions.map(({ key, openId, name }) => ({
    key,
    id: openId,
    id_type: "open_id",
    name,
    tenant_key: app.tenantKey,
  }));
}

/** What the platform shows of a card of the second form to those who do not ask for what was sent. */
const tooNewForReaders = "请升级至最新版本客户端，以查看内容";

/** A card as bots receive it: title and rows of texts, pictures and buttons, not its JSON (message content guide). */
function receivedCard(card: JsonObject): JsonObject {
  if (card.schema === "2.0") {
    return { title: "", elements: [[{ tag: "text", text: tooNewForReaders }]] };
  }
  const header = isJsonObject(card.header) ? card.header : {};
  const rows = cardNodes({ elements: card.elements, body: card.body }).flatMap(
    (found) => row(found) ?? [],
  );
  return { title: textOf(header.title), elements: rows.map((element) => [element]) };
}

function row({ node, tag, parents }: CardNode): JsonObject | undefined {
  if (tag === "button") {
    return { tag, text: textOf(node.text), type: String(node.type ?? "default") };
  }
  if (tag === "img") return { tag, image_key: String(node.img_key ?? "") };
  if (tag === "hr") return { tag };
  const isText = tag === "markdown" || tag === "plain_text" || tag === "lark_md";
  return isText && !parents.includes("button") ? { tag: "text", text: textOf(node) } : undefined;
}

function textOf(text: unknown): string {
  return isJsonObject(text) && typeof text.content === "string" ? text.content : "";
}

/** A card as people see it now. */
export interface SimCardView {
  /** Id of the card entity; absent for a card that was sent as plain JSON. */
  cardId?: string;
  /** The current card, streamed text included. */
  json: JsonObject;
  /** Whether the card still types. */
  streaming: boolean;
  /** Grows by one with every visible change. */
  version: number;
}
