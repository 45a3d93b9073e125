import { parserOf } from "@larkline/protocol";
import { Type } from "typebox";
import type { ApiCaller, CallOptions } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import { contentsOf, type TextFormat } from "./outgoing-text.ts";
import { partUuid, pathId } from "./platform-id.ts";

/** What to send: a text in one of our formats, or the content of one message as the platform takes it. */
export type MessageBody =
  | { text: string; format?: TextFormat }
  /** `content` is JSON text, of an `interactive` message a whole card. */
  | { messageType: "interactive" | "image" | "file" | "text" | "post"; content: string };

interface ReplyTarget {
  messageId: string;
  /** The chat of the message, for its limit; without it only the limits of the API are kept. */
  chatId?: string;
  /** Opens or continues a thread below the message; a plain reply where the chat has no threads. */
  inThread: boolean;
  /** Idempotency key, at most 50 characters: one message per uuid within one hour. */
  uuid: string;
}

interface SendTarget {
  receiveIdType: "chat_id" | "open_id" | "union_id" | "user_id" | "email";
  receiveId: string;
  /** As in a reply. */
  uuid: string;
}

/** An answer to a message. */
export type ReplyRequest = ReplyTarget & MessageBody;

/** A message to a chat or a person. */
export type SendRequest = SendTarget & MessageBody;

/** What the platform made of it; of a split text the first message. */
export interface SentMessage {
  messageId: string;
}

export interface MessageSender {
  reply(request: ReplyRequest, options?: CallOptions): Promise<SentMessage>;
  send(request: SendRequest, options?: CallOptions): Promise<SentMessage>;
}

const parseSent = parserOf(Type.Object({ data: Type.Object({ message_id: Type.String({ minLength: 1 }) }) }));

interface Content {
  messageType: string;
  content: string;
}

interface Part extends Content {
  uuid: string;
}

interface Delivery {
  caller: ApiCaller;
  part: Part;
  options: CallOptions | undefined;
}

async function replyOnce({ caller, part, options }: Delivery, target: ReplyTarget): Promise<string> {
  const api = "im.message.reply";
  const payload = {
    path: { message_id: pathId(api, target.messageId) },
    data: {
      msg_type: part.messageType,
      content: part.content,
      uuid: part.uuid,
      ...(target.inThread ? { reply_in_thread: true } : {}),
    },
  };
  const sent = await caller.call(
    {
      api,
      run: (client, sdkOptions) => client.im.v1.message.reply(payload, sdkOptions),
      parse: parseSent,
      limits: { chatId: target.chatId },
    },
    options,
  );
  return sent.data.message_id;
}

async function replyPart(delivery: Delivery, target: ReplyTarget): Promise<string> {
  try {
    return await replyOnce(delivery, target);
  } catch (error) {
    // The group has no threads (any more): a plain reply is still an answer.
    if (!target.inThread || !(error instanceof FeishuError) || error.kind !== "no_threads") throw error;
    return await replyOnce(delivery, { ...target, inThread: false });
  }
}

async function sendPart({ caller, part, options }: Delivery, target: SendTarget): Promise<string> {
  const { receiveIdType, receiveId } = target;
  const payload = {
    params: { receive_id_type: receiveIdType },
    data: { receive_id: receiveId, msg_type: part.messageType, content: part.content, uuid: part.uuid },
  };
  const sent = await caller.call(
    {
      api: "im.message.create",
      run: (client, sdkOptions) => client.im.v1.message.create(payload, sdkOptions),
      parse: parseSent,
      limits: receiveIdType === "chat_id" ? { chatId: receiveId } : { userId: receiveId },
    },
    options,
  );
  return sent.data.message_id;
}

function contentOf(body: MessageBody): Content[] {
  if ("text" in body) return contentsOf(body.text, body.format);
  return [{ messageType: body.messageType, content: body.content }];
}

/** One after the other, so that the person reads the parts in order. */
async function inOrder(
  request: MessageBody & { uuid: string },
  sendOne: (part: Part) => Promise<string>,
): Promise<SentMessage> {
  let messageId = "";
  for (const [index, content] of contentOf(request).entries()) {
    const sentId = await sendOne({ ...content, uuid: partUuid(request.uuid, index) });
    if (index === 0) messageId = sentId;
  }
  return { messageId };
}

export function createMessageSender(caller: ApiCaller): MessageSender {
  return {
    reply: (request, options) => inOrder(request, (part) => replyPart({ caller, part, options }, request)),
    send: (request, options) => inOrder(request, (part) => sendPart({ caller, part, options }, request)),
  };
}
