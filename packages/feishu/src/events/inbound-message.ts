import { userTextOf, type Mention } from "@larkline/agent/messages";
import { parserOf, type Attachment, type ParseResult } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import { objectOf, parsedObject, textField, type JsonObject } from "../transport/api-call.ts";

/** Event type of a message to the bot. */
export const messageEventType = "im.message.receive_v1";

/** A message to the bot, normalised. */
export interface FeishuMessage {
  messageId: string;
  /** First message of the reply chain; only on replies. */
  rootId?: string;
  parentId?: string;
  /** Only inside threads. */
  threadId?: string;
  chatId: string;
  /** Groups in topic form say `group` too. */
  chatType: "p2p" | "group";
  /** Id of the sender for this app; empty for senders without one. */
  senderOpenId: string;
  senderType: "user" | "bot";
  /** The sender's tenant, where the event names it; people from outside have another one than the app. */
  senderTenant?: string;
  /** `text`, `post`, `image`, ... as the platform names it. */
  messageType: string;
  /** The person's text with names in place of mentions; for other kinds a few words such as `[image]`. */
  text: string;
  attachments: Attachment[];
  /** A bundle of other messages. */
  forwarded: boolean;
  mentions: { openId: string; name: string; isBot: boolean }[];
  /** The bot itself is mentioned. Mentioning everybody does not count. */
  mentionsBot: boolean;
  /** Everybody is mentioned (`@_all`). */
  mentionsAll: boolean;
  /** When the person sent it, epoch ms; the same in redeliveries. */
  createdAtMs: number;
}

/**
 * Normalises a message event. `botOpenId` is the bot's own open_id (`FeishuApi.botInfo`); while it is
 * unknown pass "" and nothing counts as a mention of the bot.
 */
export function inboundFromEvent(
  envelope: Envelope,
  { botOpenId }: { botOpenId: string },
): ParseResult<FeishuMessage> {
  if (envelope.type !== messageEventType) {
    return { ok: false, error: `not a message event: ${envelope.type}` };
  }
  const parsed = parseMessageEvent(withFewMentions(envelope.event));
  if (!parsed.ok) return parsed;
  const message = messageOf(parsed.value, botOpenId);
  if (message.senderType === "user" && message.senderOpenId === "") {
    return { ok: false, error: "sender.sender_id.open_id is missing" };
  }
  // Without a time of its own a message is as old as its event.
  return {
    ok: true,
    value: { ...message, createdAtMs: message.createdAtMs || envelope.createdAtMs },
  };
}

/** Further mentions of one message stay the placeholders that they are in its text. */
const maxMentions = 500;

function withFewMentions(event: JsonObject): JsonObject {
  const message = objectOf(event["message"]);
  const mentions = message?.["mentions"];
  if (!Array.isArray(mentions) || mentions.length <= maxMentions) return event;
  return { ...event, message: { ...message, mentions: mentions.slice(0, maxMentions) } };
}

const Id = Type.String({ minLength: 1, maxLength: 128 });
const OptionalId = Type.Optional(Type.Union([Type.String({ maxLength: 128 }), Type.Null()]));

const OptionalText = Type.Optional(Type.Union([Type.String(), Type.Null()]));

const EventMention = Type.Object({
  key: Type.String(),
  id: Type.Optional(Type.Object({ open_id: OptionalId })),
  mentioned_type: OptionalText,
  name: OptionalText,
});
type EventMention = Static<typeof EventMention>;

const MessageEvent = Type.Object({
  sender: Type.Object({
    sender_id: Type.Optional(Type.Union([Type.Object({ open_id: OptionalId }), Type.Null()])),
    sender_type: OptionalText,
    tenant_key: OptionalId,
  }),
  message: Type.Object({
    message_id: Id,
    root_id: OptionalId,
    parent_id: OptionalId,
    thread_id: OptionalId,
    create_time: OptionalText,
    chat_id: Id,
    chat_type: Type.String(),
    message_type: Id,
    content: Type.String(),
    mentions: Type.Optional(
      Type.Union([Type.Array(EventMention, { maxItems: maxMentions }), Type.Null()]),
    ),
  }),
});
type EventMessage = Static<typeof MessageEvent>["message"];

const parseMessageEvent = parserOf(MessageEvent);

function placesOf(message: EventMessage): Pick<FeishuMessage, "rootId" | "parentId" | "threadId"> {
  const { root_id: rootId, parent_id: parentId, thread_id: threadId } = message;
  return {
    ...(rootId ? { rootId } : {}),
    ...(parentId ? { parentId } : {}),
    ...(threadId ? { threadId } : {}),
  };
}

/** `@_all` comes as a mention, or only as text with no mention at all. */
const allKey = "@_all";

function isAll(mention: EventMention): boolean {
  return mention.key === allKey;
}

function mentionsAll(mentions: readonly EventMention[], message: EventMessage): boolean {
  return mentions.some(isAll) || /(?:^|[^\w])@_all(?!\w)/.test(message.content);
}

function mentionOf(mention: EventMention, botOpenId: string): FeishuMessage["mentions"][number] {
  const openId = mention.id?.open_id ?? "";
  const isBot = mention.mentioned_type === "bot" || (openId !== "" && openId === botOpenId);
  return { openId, name: mention.name ?? "", isBot };
}

/** The send API says `app` where events say `bot`; every sender that is no person counts as a bot. */
function senderTypeOf({ sender }: Static<typeof MessageEvent>): FeishuMessage["senderType"] {
  return (sender.sender_type ?? "user") === "user" ? "user" : "bot";
}

function messageOf(event: Static<typeof MessageEvent>, botOpenId: string): FeishuMessage {
  const { sender, message } = event;
  const mentions = message.mentions ?? [];
  const own =
    botOpenId === "" ? undefined : mentions.find((mention) => mention.id?.open_id === botOpenId);
  return {
    messageId: message.message_id,
    ...placesOf(message),
    chatId: message.chat_id,
    chatType: message.chat_type === "p2p" ? "p2p" : "group",
    senderOpenId: sender.sender_id?.open_id ?? "",
    senderType: senderTypeOf(event),
    ...(sender.tenant_key ? { senderTenant: sender.tenant_key } : {}),
    messageType: message.message_type,
    ...readContent({
      messageId: message.message_id,
      messageType: message.message_type,
      content: message.content,
      mentions: mentions.map(({ key, name }) => ({ key, name: name ?? "" })),
      botKey: own?.key,
    }),
    mentions: mentions
      .filter((mention) => !isAll(mention))
      .map((mention) => mentionOf(mention, botOpenId)),
    mentionsBot: own !== undefined,
    mentionsAll: mentionsAll(mentions, message),
    createdAtMs: epochMsOf(message.create_time),
  };
}

/** The content of a message, as the event carries it. */
interface ReceivedBody {
  messageId: string;
  messageType: string;
  /** JSON text. */
  content: string;
  mentions: readonly Mention[];
  /** Placeholder of the bot's own mention, if the message mentions it. */
  botKey: string | undefined;
}

/** What a message says to a reader, and the files that it carries. */
interface ReadContent {
  text: string;
  /** Files of this message, still on the platform. */
  attachments: Attachment[];
  /** It bundles other messages, which have to be fetched. */
  forwarded: boolean;
}

/**
 * Reads the content of a message: mentions as names, without the bot's own leading mention, posts as
 * Markdown, other kinds in a few words. An unknown kind is named as unsupported.
 */
export function readContent(body: ReceivedBody): ReadContent {
  const content = parsedObject(body.content);
  if (content === undefined) return wordsOnly(userTextOf(body));
  if (body.messageType === "text") return wordsOnly(plainText(textField(content, "text"), body));
  if (body.messageType === "post") {
    return wordsOnly(postText(content, body), postAttachments(content, body.messageId));
  }
  return (
    readKind(body.messageType, content, body.messageId) ??
    wordsOnly(`[unsupported ${userTextOf(body).slice(1)}`)
  );
}

/** One inline element of a post as Markdown ("Receive message content"). */
function inlineText(element: unknown): string {
  const fields = objectOf(element);
  if (fields === undefined) return "";
  const text = textField(fields, "text");
  switch (textField(fields, "tag")) {
    case "a":
      return textField(fields, "href") === "" ? text : `[${text}](${textField(fields, "href")})`;
    case "at":
      return textField(fields, "user_id").startsWith("@_")
        ? textField(fields, "user_id")
        : `@${textField(fields, "user_name")}`;
    case "code_block":
      return `\`\`\`${textField(fields, "language").toLowerCase()}\n${text.replace(/\n$/, "")}\n\`\`\``;
    case "img":
      return "[image]";
    case "media":
      return "[video]";
    case "emotion":
      return `:${textField(fields, "emoji_type")}:`;
    default:
      return text;
  }
}

/** The lines of a post, each with its inline elements put together. */
function linesOf(post: JsonObject): string[] {
  const lines = post["content"] ?? post["elements"];
  if (!Array.isArray(lines)) return [];
  return lines.map((line: unknown) => (Array.isArray(line) ? line.map(inlineText).join("") : ""));
}

/** The text without the bot's own mention in front; other mentions stay. */
function withoutOwnMention(text: string, botKey: string | undefined): string {
  const trimmed = text.trimStart();
  if (botKey === undefined || !trimmed.startsWith(botKey)) return text;
  const rest = trimmed.slice(botKey.length);
  // `@_user_1` is also the beginning of `@_user_10`.
  return /^\d/.test(rest) ? text : rest.trimStart();
}

function plainText(text: string, body: ReceivedBody): string {
  const rest = withoutOwnMention(text, body.botKey);
  if (rest === text) return userTextOf(body);
  return rest === "" ? "" : userTextOf({ ...body, content: JSON.stringify({ text: rest }) });
}

function postText(post: JsonObject, body: ReceivedBody): string {
  const title = textField(post, "title");
  const lines = linesOf(post).filter((line) => line.trim() !== "");
  const first = lines[0];
  if (title === "" && first !== undefined) lines[0] = withoutOwnMention(first, body.botKey);
  if (title === "" && lines.every((line) => line === "")) {
    return first === undefined ? userTextOf(body) : "";
  }
  const content = lines.map((line) => [{ tag: "text", text: line }]);
  return userTextOf({ ...body, content: JSON.stringify({ title, content }) });
}

function wordsOnly(text: string, attachments: ReadContent["attachments"] = []): ReadContent {
  return { text, attachments, forwarded: false };
}

type Reader = (content: JsonObject, messageId: string) => Partial<ReadContent>;

const maxNameLength = 200;
const maxElements = 200;
const maxListLength = 2_000;

function one(kind: Attachment["kind"], content: JsonObject, messageId: string): Attachment[] {
  const key = textField(content, kind === "image" ? "image_key" : "file_key");
  if (key === "" || key.length > 256) return [];
  const name = textField(content, "file_name").slice(0, maxNameLength);
  const durationMs = Number(content["duration"]);
  return [
    {
      kind,
      messageId,
      key,
      ...(name === "" ? {} : { name }),
      ...(Number.isSafeInteger(durationMs) && durationMs > 0 ? { durationMs } : {}),
    },
  ];
}

/** `[what: detail, detail]`, on one line. */
function label(what: string, ...details: string[]): string {
  const known = details
    .map((detail) => detail.replaceAll(/\s+/g, " ").trim())
    .filter((detail) => detail !== "");
  return known.length === 0 ? `[${what}]` : `[${what}: ${known.join(", ")}]`;
}

function secondsOf(content: JsonObject): string {
  const durationMs = Number(content["duration"]);
  return durationMs > 0 ? `${Math.round(durationMs / 1_000)} s` : "";
}

/** Empty for a value that is no time: it must not make the whole message unreadable. */
function dateOf(content: JsonObject, name: string): string {
  const date = new Date(Number(content[name]));
  return date.getTime() > 0 ? date.toISOString().slice(0, 16) : "";
}

function namesOf(value: unknown): string {
  const names = Array.isArray(value) ? value.filter((name) => typeof name === "string") : [];
  return names.join(", ").slice(0, maxListLength);
}

/** Texts of nested arrays of elements, in reading order. */
function elementTexts(value: unknown): string[] {
  if (Array.isArray(value)) return value.slice(0, maxElements).flatMap(elementTexts);
  const element = objectOf(value);
  if (element === undefined) return [];
  const text = textField(element, "text") || textField(element, "content");
  return text === "" ? [] : [text];
}

/** A card: as it is received, in lines of elements ("Receive message content"), or as its JSON was sent. */
function cardContent(content: JsonObject): Partial<ReadContent> {
  const title =
    textField(content, "title") ||
    textField(objectOf(objectOf(content["header"])?.["title"]), "content");
  const lines =
    "header" in content || "body" in content || "schema" in content
      ? sentLines(content)
      : receivedLines(content);
  return { text: [label("card", title), ...lines].filter((line) => line.trim() !== "").join("\n") };
}

function receivedLines(content: JsonObject): string[] {
  const lines = Array.isArray(content["elements"]) ? content["elements"] : [];
  return lines.slice(0, maxElements).map((line: unknown) => elementTexts(line).join(" "));
}

/** What a card in its own form says, whichever of both forms ("Card JSON 2.0 structure"), a line for each text. */
function sentLines(content: JsonObject): string[] {
  const body = objectOf(content["body"]) ?? content;
  const languages = objectOf(content["i18n_elements"]) ?? {};
  const lines: string[] = [];
  addLines(body["elements"] ?? Object.values(languages)[0], lines);
  return lines;
}

/** Where the parts of a card element stand, in reading order. */
const cardParts = [
  "header",
  "title",
  "text",
  "fields",
  "elements",
  "columns",
  "actions",
  "options",
  "rows",
] as const;
const textTags: ReadonlySet<string> = new Set(["markdown", "plain_text", "lark_md"]);

function addLines(value: unknown, lines: string[], depth = 0): void {
  if (lines.length >= maxElements || depth > maxCardDepth) return;
  if (Array.isArray(value)) return value.forEach((each) => addLines(each, lines, depth + 1));
  const element = objectOf(value);
  if (element === undefined) return;
  const tag = textField(element, "tag");
  if (textTags.has(tag)) lines.push(textField(element, "content"));
  else if (tag === "table") lines.push(...tableLines(element));
  else for (const part of cardParts) addLines(element[part], lines, depth + 1);
}

const maxCardDepth = 20;

function tableLines(table: JsonObject): string[] {
  const columns = objectsOf(table["columns"]);
  const heads = columns.map(
    (column) => textField(column, "display_name") || textField(column, "name"),
  );
  const names = columns.map((column) => textField(column, "name"));
  return [
    tableLine(heads),
    ...objectsOf(table["rows"]).map((row) => tableLine(names.map((name) => cellText(row[name])))),
  ];
}

function tableLine(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}

function objectsOf(values: unknown): JsonObject[] {
  const list: unknown[] = Array.isArray(values) ? values.slice(0, maxElements) : [];
  return list.flatMap((value) => {
    const object = objectOf(value);
    return object === undefined ? [] : [object];
  });
}

function cellText(value: unknown): string {
  return typeof value === "string" || typeof value === "number"
    ? String(value)
    : elementTexts(value).join(", ");
}

function systemContent(content: JsonObject): Partial<ReadContent> {
  const template = textField(content, "template").slice(0, maxListLength); // each place may take a whole list
  return {
    text: label(
      "system message",
      template.replaceAll(/\{(\w+)\}/g, (_, name: string) => namesOf(content[name])),
    ),
  };
}

/** With the platform's own transcript, where the event carries one, the message is what was said. */
function audioContent(content: JsonObject, messageId: string): Partial<ReadContent> {
  const said = textField(content, "speech_to_text").trim();
  if (said !== "") return { text: said };
  return {
    text: label("audio", secondsOf(content)),
    attachments: one("audio", content, messageId),
  };
}

function todoContent(content: JsonObject): Partial<ReadContent> {
  const summary = objectOf(content["summary"]) ?? {};
  const words = elementTexts(summary["content"]).join(" ");
  const due = dateOf(content, "due_time");
  return {
    text: label("task", textField(summary, "title"), words, due === "" ? "" : `due ${due}`),
  };
}

function calendarContent(content: JsonObject): Partial<ReadContent> {
  const [start, end] = [dateOf(content, "start_time"), dateOf(content, "end_time")];
  return {
    text: label(
      "calendar event",
      textField(content, "summary"),
      start === "" ? "" : `${start} to ${end} UTC`,
    ),
  };
}

/** By the platform's name of the kind ("Receive message content"). Text and rich text are read elsewhere. */
const readers: Readonly<Record<string, Reader>> = {
  image: (content, id) => ({ text: "[image]", attachments: one("image", content, id) }),
  file: (content, id) => ({
    text: label("file", textField(content, "file_name")),
    attachments: one("file", content, id),
  }),
  folder: (content) => ({
    text: label("folder, cannot be opened", textField(content, "file_name")),
  }),
  audio: (content, id) => audioContent(content, id),
  media: (content, id) => ({
    text: label("video", textField(content, "file_name"), secondsOf(content)),
    attachments: one("video", content, id),
  }),
  sticker: () => ({ text: "[sticker]" }),
  interactive: cardContent,
  share_chat: () => ({ text: "[shared group chat]" }),
  share_user: () => ({ text: "[shared contact]" }),
  location: (content) => ({
    text: label(
      "location",
      textField(content, "name"),
      textField(content, "latitude"),
      textField(content, "longitude"),
    ),
  }),
  merge_forward: () => ({ text: "[forwarded messages]", forwarded: true }),
  hongbao: (content) => ({ text: textField(content, "text") || "[red packet]" }),
  share_calendar_event: calendarContent,
  calendar: calendarContent,
  general_calendar: calendarContent,
  system: systemContent,
  video_chat: (content) => ({
    text: label("video meeting", textField(content, "topic"), dateOf(content, "start_time")),
  }),
  todo: todoContent,
  vote: (content) => ({
    text: label("poll", textField(content, "topic"), namesOf(content["options"])),
  }),
};

/** What a message that is neither text nor rich text says; undefined for unknown kinds. */
function readKind(
  messageType: string,
  content: JsonObject,
  messageId: string,
): ReadContent | undefined {
  const read = Object.hasOwn(readers, messageType) ? readers[messageType] : undefined;
  return read === undefined
    ? undefined
    : { text: "", attachments: [], forwarded: false, ...read(content, messageId) };
}

/** Pictures and videos inside a rich text. */
function postAttachments(post: JsonObject, messageId: string): Attachment[] {
  const lines = post["content"] ?? post["elements"];
  const elements: unknown[] = Array.isArray(lines) ? lines.flat() : [];
  return elements.slice(0, maxElements).flatMap((value) => {
    const element = objectOf(value);
    const tag = element === undefined ? "" : textField(element, "tag");
    if (element === undefined || (tag !== "img" && tag !== "media")) return [];
    return one(tag === "img" ? "image" : "video", element, messageId);
  });
}

/** An event or callback of the platform, whichever version of the envelope it came in. */
export interface Envelope {
  /** Unique per event; a redelivery keeps it. Messages are deduplicated by their message id instead. */
  eventId: string;
  /** For example `im.message.receive_v1`. */
  type: string;
  appId: string;
  /** Tenant the app is installed in. */
  tenantKey: string;
  /** The verification token; already checked when the envelope comes from a verifier. */
  token: string;
  /** Epoch ms; 0 when the platform says nothing. */
  createdAtMs: number;
  event: Record<string, unknown>;
}

/** Reads a decrypted event, envelope 2.0 (it has `schema`) or 1.0. Nothing is flattened or renamed inside `event`. */
export function parseEnvelope(data: unknown): ParseResult<Envelope> {
  if (typeof data !== "object" || data === null) {
    return { ok: false, error: "event must be an object" };
  }
  if ("schema" in data) {
    const parsed = parseV2(data);
    return parsed.ok ? { ok: true, value: fromV2(parsed.value) } : parsed;
  }
  const parsed = parseV1(data);
  return parsed.ok ? fromV1(parsed.value) : parsed;
}

const EventBody = Type.Record(Type.String(), Type.Unknown());
const EventId = Type.String({ minLength: 1, maxLength: 256 });
const Field = Type.Optional(Type.Union([Type.String({ maxLength: 1024 }), Type.Null()]));

const EnvelopeV2 = Type.Object({
  schema: Type.String(),
  header: Type.Object({
    event_id: EventId,
    event_type: EventId,
    token: Field,
    create_time: Field,
    tenant_key: Field,
    app_id: Field,
  }),
  event: Type.Optional(EventBody),
});

const EnvelopeV1 = Type.Object({
  uuid: EventId,
  type: Type.Literal("event_callback"),
  token: Field,
  ts: Field,
  event: EventBody,
});

const parseV2 = parserOf(EnvelopeV2);
const parseV1 = parserOf(EnvelopeV1);

/**
 * Milliseconds of a time string: the platform's documents show seconds with a fraction (1.0), 13
 * digits (ms) and 16 digits (µs) for the same field.
 */
function epochMsOf(time: string | null | undefined): number {
  if (time === undefined || time === null || !/^\d{1,17}(?:\.\d{1,9})?$/.test(time)) return 0;
  const digits = time.split(".", 1)[0]?.length ?? 0;
  if (digits >= 16) return Math.floor(Number(time) / 1000);
  return digits >= 12 ? Math.floor(Number(time)) : Math.floor(Number(time) * 1000);
}

function fromV2({ header, event }: Static<typeof EnvelopeV2>): Envelope {
  return {
    eventId: header.event_id,
    type: header.event_type,
    appId: header.app_id ?? "",
    tenantKey: header.tenant_key ?? "",
    token: header.token ?? "",
    createdAtMs: epochMsOf(header.create_time),
    event: event ?? {},
  };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function fromV1(envelope: Static<typeof EnvelopeV1>): ParseResult<Envelope> {
  const { event } = envelope;
  const type = textOf(event["type"]);
  if (type === "") return { ok: false, error: "event.type must be a string" };
  return {
    ok: true,
    value: {
      eventId: envelope.uuid,
      type,
      appId: textOf(event["app_id"]),
      tenantKey: textOf(event["tenant_key"]),
      token: envelope.token ?? "",
      createdAtMs: epochMsOf(envelope.ts),
      event,
    },
  };
}
