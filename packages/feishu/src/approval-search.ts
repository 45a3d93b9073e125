import type { ApiCaller, CallOptions } from "./api-caller.ts";
import { messagesOf, threadOf } from "./reply-search.ts";

/** Which card to look for, and where. */
export interface FindCardRequest {
  chatId: string;
  /** A message of the thread that it stands in; absent: the chat itself. */
  threadOf?: string;
  /** Epoch ms; older messages are not looked at. */
  sinceMs: number;
  /** What its JSON holds and no other card does, such as an id that its buttons carry. */
  mark: string;
}

/** Looks for a card of the app's own, newest first, at most 500 messages back. Resolves to its message's id. */
export async function findCard(
  { caller, appId }: { caller: ApiCaller; appId: string },
  request: FindCardRequest,
  callOptions?: CallOptions,
): Promise<string | undefined> {
  const { chatId, sinceMs, mark } = request;
  const threadId = request.threadOf === undefined ? undefined : await threadOf(caller, request.threadOf, callOptions);
  const place =
    threadId === undefined ? { type: "chat" as const, id: chatId } : { type: "thread" as const, id: threadId };
  for await (const message of messagesOf(caller, { ...place, sinceMs, cardsAsSent: true }, callOptions)) {
    if (Number(message.create_time ?? sinceMs) < sinceMs) return undefined;
    const isOurs = message.sender?.id === appId && message.msg_type === "interactive" && message.deleted !== true;
    if (isOurs && message.body?.content?.includes(mark) === true) return message.message_id;
  }
  return undefined;
}
