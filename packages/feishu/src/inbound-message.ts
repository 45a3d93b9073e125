import { parserOf, type Attachment, type ParseResult } from "@larkline/protocol";
import { Type, type Static } from "typebox";
import { epochMsOf, type Envelope } from "./envelope.ts";
import { readContent } from "./message-text.ts";

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
  /** The sender's own tenant, where it is told; for people from outside it is another than the app's. */
  senderTenant?: string;
  /** `text`, `post`, `image`, ... as the platform names it. */
  messageType: string;
  /** What the person said, names in place of mentions; for other kinds a few words such as `[image]`. */
  text: string;
  attachments: Attachment[];
  /** A bundle of other messages. */
  forwarded: boolean;
  mentions: { openId: string; name: string; isBot: boolean }[];
  /** The bot itself is mentioned. Mentioning everybody does not count. */
  mentionsBot: boolean;
  /** Everybody is mentioned (`@_all`). */
  mentionsAll: boolean;
  /** When the person sent it, epoch ms; redeliveries keep it. */
  createdAtMs: number;
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
    mentions: Type.Optional(Type.Union([Type.Array(EventMention), Type.Null()])),
  }),
});
type EventMessage = Static<typeof MessageEvent>["message"];

const parseMessageEvent = parserOf(MessageEvent);

function placesOf(message: EventMessage): Pick<FeishuMessage, "rootId" | "parentId" | "threadId"> {
  const { root_id: rootId, parent_id: parentId, thread_id: threadId } = message;
  return { ...(rootId ? { rootId } : {}), ...(parentId ? { parentId } : {}), ...(threadId ? { threadId } : {}) };
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

/** The send API says `app` where events say `bot`; whatever is no person is treated as a machine. */
function senderTypeOf({ sender }: Static<typeof MessageEvent>): FeishuMessage["senderType"] {
  return (sender.sender_type ?? "user") === "user" ? "user" : "bot";
}

function messageOf(event: Static<typeof MessageEvent>, botOpenId: string): FeishuMessage {
  const { sender, message } = event;
  const mentions = message.mentions ?? [];
  const own = botOpenId === "" ? undefined : mentions.find((mention) => mention.id?.open_id === botOpenId);
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
    mentions: mentions.filter((mention) => !isAll(mention)).map((mention) => mentionOf(mention, botOpenId)),
    mentionsBot: own !== undefined,
    mentionsAll: mentionsAll(mentions, message),
    createdAtMs: epochMsOf(message.create_time),
  };
}

/**
 * Normalises a message event. `botOpenId` is the bot's own open_id (`FeishuApi.botInfo`); while it is
 * unknown pass "" and nothing counts as a mention of the bot.
 */
export function inboundFromEvent(envelope: Envelope, { botOpenId }: { botOpenId: string }): ParseResult<FeishuMessage> {
  if (envelope.type !== messageEventType) return { ok: false, error: `not a message event: ${envelope.type}` };
  const parsed = parseMessageEvent(envelope.event);
  if (!parsed.ok) return parsed;
  const message = messageOf(parsed.value, botOpenId);
  if (message.senderType === "user" && message.senderOpenId === "") {
    return { ok: false, error: "sender.sender_id.open_id is missing" };
  }
  // Without a time of its own a message is as old as its event.
  return { ok: true, value: { ...message, createdAtMs: message.createdAtMs || envelope.createdAtMs } };
}
