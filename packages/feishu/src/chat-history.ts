import type { ApiCaller, CallOptions } from "./api-caller.ts";
import { messagesOf } from "./reply-search.ts";

/** A message as the platform lists it, without its content. */
export interface ListedFacts {
  messageId: string;
  createdAtMs: number;
  /** Written by a person, not by a bot or by the platform, and not taken back. */
  isByPerson: boolean;
  /** May be an order to the bot: something in it begins as orders do. */
  isOrder: boolean;
}

/** A slash, also a full-width one, at the beginning of a text or of a part of a post. */
const order = /"(?:text|title)":\s*"(?:\s|\\[nrt])*[/\uFF0F]/;

/** The messages of a chat since `sinceMs`, newest first, at most 500. Needs the right to read the chat's history. */
export async function listMessages(
  caller: ApiCaller,
  { chatId, sinceMs }: { chatId: string; sinceMs: number },
  callOptions?: CallOptions,
): Promise<ListedFacts[]> {
  const listed: ListedFacts[] = [];
  for await (const message of messagesOf(caller, { type: "chat", id: chatId, sinceMs }, callOptions)) {
    const { message_id: messageId, create_time: createTime = "0", deleted, sender, msg_type: type, body } = message;
    const createdAtMs = Number(createTime);
    if (createdAtMs < sinceMs) break;
    const isByPerson = sender?.sender_type === "user" && deleted !== true && type !== "system";
    const isOrder = order.test(body?.content ?? "");
    listed.push({ messageId, createdAtMs, isByPerson, isOrder });
  }
  return listed;
}
