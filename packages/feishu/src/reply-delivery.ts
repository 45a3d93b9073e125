import type { OutboxRecord } from "@larkline/store";
import type { CallOptions } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import type { FeishuLogger } from "./logger.ts";
import type { MessageBody } from "./message-sender.ts";
import { derivedUuid } from "./platform-id.ts";

/** What a delivery works with. */
export interface Delivery {
  api: FeishuApi;
  logger: FeishuLogger;
  nowMs: number;
}

/** The platform drops a repeated `uuid` for one hour ("Reply message"); ten minutes are kept in reserve. */
const uuidProtectionMs = 50 * 60_000;

/** Clocks differ, and the answer cannot be older than the record by more than that. */
const clockSkewMs = 120_000;

/** Shown when content review refuses an answer, so that the person is not left without any. */
export const blockedText =
  "这条回复未能发送：内容被平台的安全策略拦截。\nThe reply could not be sent: the platform's content policy blocked it.";

function isKind(error: unknown, ...kinds: FeishuError["kind"][]): error is FeishuError {
  return error instanceof FeishuError && kinds.includes(error.kind);
}

/**
 * Whether an earlier attempt got through. A sender may have died in an attempt without noting it, so
 * the age of the record decides, not only what was noted.
 */
async function wasSent({ api, logger, nowMs }: Delivery, record: OutboxRecord, signal: AbortSignal): Promise<boolean> {
  const { chatId, messageId } = record.target;
  if (nowMs - record.createdAtMs < uuidProtectionMs || api.findReply === undefined || messageId === "") return false;
  try {
    const { card, text } = record;
    const sinceMs = record.createdAtMs - clockSkewMs;
    const said = card === undefined ? { text } : { card };
    return (await api.findReply({ chatId, messageId, sinceMs, ...said }, { signal })) !== undefined;
  } catch (error) {
    // Without the right to read the chat nobody can know; a repeated answer is better than none.
    if (!isKind(error, "forbidden", "target_gone", "bad_request", "app_setup")) throw error;
    logger.warn({ session: record.session, code: error.code }, "cannot check for an earlier answer, sending again");
    return false;
  }
}

/** A target without a message is a chat, or a person whose chat is not known. */
export function receiverOf(id: string): { receiveIdType: "chat_id" | "open_id"; receiveId: string } {
  return { receiveIdType: id.startsWith("ou_") ? "open_id" : "chat_id", receiveId: id };
}

function bodyOf({ card, text }: OutboxRecord): MessageBody {
  return card === undefined ? { text } : { messageType: "interactive", content: JSON.stringify(card) };
}

/** One form of the reply, with an idempotency key of its own. */
interface Form {
  body: MessageBody;
  uuid: string;
}

async function sendToChat(
  { api }: Delivery,
  { target, traceparent }: OutboxRecord,
  form: Form & CallOptions,
): Promise<void> {
  const { body, uuid, signal } = form;
  const call = { signal, traceparent };
  await api.send({ ...receiverOf(target.chatId), ...body, uuid: derivedUuid(uuid, "c") }, call);
}

async function answer(delivery: Delivery, record: OutboxRecord, form: Form & CallOptions): Promise<void> {
  const { chatId, messageId, inThread } = record.target;
  const { body, uuid, signal } = form;
  if (messageId === "") return await sendToChat(delivery, record, form);
  try {
    const call = { signal, traceparent: record.traceparent };
    await delivery.api.reply({ messageId, chatId, ...body, uuid, inThread }, call);
  } catch (error) {
    if (!isKind(error, "target_gone")) throw error;
    await sendToChat(delivery, record, form);
  }
}

/** Where a file goes, and since when it was to be sent. */
export interface FileTarget {
  api: FeishuApi;
  target: OutboxRecord["target"];
  nowMs: number;
  createdAtMs: number;
  signal: AbortSignal;
  traceparent: string | undefined;
}

/** Sends one file message as an answer, or to the chat when the message is gone. Resolves to its id. */
export async function sendFile(to: FileTarget, file: Form & { key: string; name: string }): Promise<string> {
  const { api, target, nowMs, createdAtMs, signal, traceparent } = to;
  const { chatId, messageId, inThread } = target;
  const { body, uuid, key, name } = file;
  const call = { signal, traceparent };
  // The platform has forgotten the `uuid`: an earlier attempt may have got through without being recorded.
  if (nowMs - createdAtMs >= uuidProtectionMs && messageId !== "" && api.findReply !== undefined) {
    const request = { chatId, messageId, sinceMs: createdAtMs - clockSkewMs, file: { key, name } };
    const found = await api.findReply(request, call).catch((error: unknown) => {
      if (!isKind(error, "forbidden", "target_gone", "bad_request", "app_setup")) throw error;
      return undefined;
    });
    if (found !== undefined) return found;
  }
  const toChat = async (): Promise<string> =>
    (await api.send({ ...receiverOf(chatId), ...body, uuid: derivedUuid(uuid, "c") }, call)).messageId;
  if (messageId === "") return await toChat();
  try {
    return (await api.reply({ messageId, chatId, ...body, uuid, inThread }, call)).messageId;
  } catch (error) {
    if (!isKind(error, "target_gone")) throw error;
    return await toChat();
  }
}

/**
 * Gets one reply to the person, stepping down where the platform refuses: to the chat when the
 * message is gone, as plain text when the format is refused, as a note when the content is.
 * Rejects with the error that none of these helped against.
 */
export async function deliverRecord(delivery: Delivery, record: OutboxRecord, signal: AbortSignal): Promise<void> {
  if (await wasSent(delivery, record, signal)) return;
  const { text, uuid } = record;
  try {
    await answer(delivery, record, { body: bodyOf(record), uuid, signal });
  } catch (error) {
    if (!isKind(error, "content_blocked", "bad_request", "card_invalid", "card_full", "too_long")) throw error;
    const plain: Form =
      error.kind === "content_blocked"
        ? { body: { text: blockedText, format: "text" }, uuid: derivedUuid(uuid, "b") }
        : { body: { text, format: "text" }, uuid: derivedUuid(uuid, "t") };
    await answer(delivery, record, { ...plain, signal });
  }
}
