import { parserOf } from "@larkline/protocol";
import { Type, type Static } from "typebox";
import type { ApiCaller, CallOptions } from "./api-caller.ts";
import { pathId } from "./platform-id.ts";

/** A message as the platform keeps it. Absent ids are empty. */
export interface FetchedMessage {
  messageId: string;
  messageType: string;
  /** JSON text; empty of a recalled message. */
  content: string;
  senderId: string;
  senderType: "user" | "app" | "unknown";
  mentions: { key: string; openId: string; name: string }[];
  /** Epoch ms; 0 when the platform does not say. */
  createdAtMs: number;
  deleted: boolean;
  /** The forwarding message that holds this one. */
  upperMessageId: string;
  threadId: string;
  rootId: string;
  parentId: string;
  chatId: string;
}

const text = Type.Optional(Type.String());

const Item = Type.Object({
  message_id: Type.String(),
  msg_type: text,
  root_id: text,
  parent_id: text,
  thread_id: text,
  upper_message_id: text,
  chat_id: text,
  create_time: text,
  deleted: Type.Optional(Type.Boolean()),
  sender: Type.Optional(Type.Object({ id: text, sender_type: text })),
  body: Type.Optional(Type.Object({ content: text })),
  mentions: Type.Optional(Type.Array(Type.Object({ key: text, id: text, name: text }))),
});

const parseItems = parserOf(Type.Object({ data: Type.Object({ items: Type.Optional(Type.Array(Item)) }) }));

/** Most APIs give ms, some seconds. */
function epochMs(digits: string | undefined): number {
  const value = Number(digits ?? 0);
  if (!Number.isFinite(value)) return 0;
  return value < 100_000_000_000 ? value * 1_000 : value;
}

function senderOf(item: Static<typeof Item>): Pick<FetchedMessage, "senderId" | "senderType"> {
  const type = item.sender?.sender_type;
  return { senderId: item.sender?.id ?? "", senderType: type === "user" || type === "app" ? type : "unknown" };
}

function linksOf(item: Static<typeof Item>) {
  return {
    upperMessageId: item.upper_message_id ?? "",
    threadId: item.thread_id ?? "",
    rootId: item.root_id ?? "",
    parentId: item.parent_id ?? "",
    chatId: item.chat_id ?? "",
  };
}

function fetchedMessage(item: Static<typeof Item>): FetchedMessage {
  const mentions = item.mentions ?? [];
  return {
    messageId: item.message_id,
    messageType: item.msg_type ?? "",
    content: item.body?.content ?? "",
    ...senderOf(item),
    mentions: mentions.map(({ key = "", id = "", name = "" }) => ({ key, openId: id, name })),
    createdAtMs: epochMs(item.create_time),
    deleted: item.deleted ?? false,
    ...linksOf(item),
  };
}

/** The message and, of a forwarded bundle, the messages in it. Empty when the platform shows nothing. */
export async function fetchMessage(
  caller: ApiCaller,
  messageId: string,
  options?: CallOptions,
): Promise<FetchedMessage[]> {
  const api = "im.message.get";
  const payload = { path: { message_id: pathId(api, messageId) }, params: { user_id_type: "open_id" as const } };
  const { data } = await caller.call(
    { api, run: (client, sdkOptions) => client.im.v1.message.get(payload, sdkOptions), parse: parseItems },
    options,
  );
  return (data.items ?? []).map(fetchedMessage);
}
