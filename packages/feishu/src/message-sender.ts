import { parserOf } from "@larkline/protocol";
import { Type } from "typebox";
import type { ApiCaller } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import { contentsOf, type OutgoingContent, type TextFormat } from "./outgoing-text.ts";
import { partUuid, pathId } from "./platform-id.ts";

interface TextRequest {
  text: string;
  /** Idempotency key, at most 50 characters: one message per uuid within one hour. */
  uuid: string;
  format?: TextFormat;
}

/** An answer to a message. */
export interface ReplyRequest extends TextRequest {
  messageId: string;
  /** Opens or continues a thread below the message; a plain reply where the chat has no threads. */
  inThread: boolean;
}

/** A message to a chat or a person. */
export interface SendRequest extends TextRequest {
  receiveIdType: "chat_id" | "open_id" | "union_id" | "user_id" | "email";
  receiveId: string;
}

/** What the platform made of it; of a split text the first message. */
export interface SentMessage {
  messageId: string;
}

export interface MessageSender {
  reply(request: ReplyRequest, signal?: AbortSignal): Promise<SentMessage>;
  send(request: SendRequest, signal?: AbortSignal): Promise<SentMessage>;
}

const parseSent = parserOf(Type.Object({ data: Type.Object({ message_id: Type.String({ minLength: 1 }) }) }));

interface Part extends OutgoingContent {
  uuid: string;
}

interface Delivery {
  caller: ApiCaller;
  part: Part;
  signal: AbortSignal | undefined;
}

async function replyOnce({ caller, part, signal }: Delivery, messageId: string, inThread: boolean): Promise<string> {
  const api = "im.message.reply";
  const payload = {
    path: { message_id: pathId(api, messageId) },
    data: {
      msg_type: part.messageType,
      content: part.content,
      uuid: part.uuid,
      ...(inThread ? { reply_in_thread: true } : {}),
    },
  };
  const sent = await caller.call(
    { api, run: (client, options) => client.im.v1.message.reply(payload, options), parse: parseSent },
    signal,
  );
  return sent.data.message_id;
}

async function replyPart(delivery: Delivery, request: ReplyRequest): Promise<string> {
  try {
    return await replyOnce(delivery, request.messageId, request.inThread);
  } catch (error) {
    // The group has no threads (any more): a plain reply is still an answer.
    if (!request.inThread || !(error instanceof FeishuError) || error.kind !== "no_threads") throw error;
    return await replyOnce(delivery, request.messageId, false);
  }
}

async function sendPart({ caller, part, signal }: Delivery, request: SendRequest): Promise<string> {
  const payload = {
    params: { receive_id_type: request.receiveIdType },
    data: { receive_id: request.receiveId, msg_type: part.messageType, content: part.content, uuid: part.uuid },
  };
  const sent = await caller.call(
    {
      api: "im.message.create",
      run: (client, options) => client.im.v1.message.create(payload, options),
      parse: parseSent,
    },
    signal,
  );
  return sent.data.message_id;
}

/** One after the other, so that the person reads the parts in order. */
async function inOrder(request: TextRequest, sendOne: (part: Part) => Promise<string>): Promise<SentMessage> {
  let messageId = "";
  for (const [index, content] of contentsOf(request.text, request.format).entries()) {
    const sentId = await sendOne({ ...content, uuid: partUuid(request.uuid, index) });
    if (index === 0) messageId = sentId;
  }
  return { messageId };
}

export function createMessageSender(caller: ApiCaller): MessageSender {
  return {
    reply: (request, signal) => inOrder(request, (part) => replyPart({ caller, part, signal }, request)),
    send: (request, signal) => inOrder(request, (part) => sendPart({ caller, part, signal }, request)),
  };
}
