import { approvalCard, approvalMark } from "./cards/index.ts";
import type { ApprovalCard, ApprovalStatus } from "@larkline/store";
import { cardLifetimeMs, copyUuid, sendPatienceMs } from "./approval-copies.ts";
import type { CallOptions } from "./api-caller.ts";
import { FeishuError, feishuErrorOf } from "./error.ts";
import type { FeishuErrorKind } from "./error-kind.ts";
import type { FeishuApi } from "./feishu-api.ts";
import { derivedUuid } from "./platform-id.ts";
import { receiverOf } from "./reply-delivery.ts";

/** What the cards of approvals need of the platform. */
export type ApprovalApi = Pick<FeishuApi, "send" | "reply" | "findCard"> & {
  readonly cards: Pick<FeishuApi["cards"], "patchMessage">;
};

/** What the copies of an approval are brought up to. */
export interface CopyGoal {
  api: ApprovalApi;
  status: ApprovalStatus;
  /** Copies that nobody can have sent before now. */
  fresh: ReadonlySet<string>;
  /** How often this was tried before. */
  attempts: number;
  nowMs: number;
  signal: AbortSignal;
}

/** Where a copy stands now, and what keeps it from showing what it should, for the time being. */
export interface CopyOutcome {
  card: ApprovalCard;
  error?: FeishuError;
}

/** The platform drops a repeated `uuid` for one hour ("Send message"); ten minutes are kept in reserve. */
const uuidProtectionMs = 50 * 60_000;
/** Clocks differ. */
const clockSkewMs = 120_000;
/** How often a failure nobody understands is repeated. */
const maxUnknownAttempts = 6;

/** What the platform says while it takes the same message for being sent ("Send message"). */
const beingSentCodes: ReadonlySet<number> = new Set([230049, 18121]);

function isKind(error: unknown, ...kinds: FeishuErrorKind[]): error is FeishuError {
  return error instanceof FeishuError && kinds.includes(error.kind);
}

function callOf({ signal, status }: CopyGoal): CallOptions {
  return { signal, traceparent: status.approval.traceparent };
}

async function sendToChat(goal: CopyGoal, chatId: string, form: { content: string; uuid: string }) {
  const { api } = goal;
  const sent = await api.send({ ...receiverOf(chatId), messageType: "interactive", ...form }, callOf(goal));
  return sent.messageId;
}

/** A question that arose in a thread stands there; elsewhere it is a message of its own. */
async function send(goal: CopyGoal, to: string): Promise<string> {
  const { target, id } = goal.status.approval;
  if (target.channel === "none") throw new RangeError("an approval without a target has no cards");
  const form = { content: JSON.stringify(approvalCard(goal.status)), uuid: copyUuid(id, to) };
  const { chatId, messageId, inThread } = target;
  if (to !== "") return await sendToChat(goal, to, form);
  if (!inThread || messageId === "") return await sendToChat(goal, chatId, form);
  try {
    const reply = { messageId, chatId, inThread, messageType: "interactive" as const, ...form };
    return (await goal.api.reply(reply, callOf(goal))).messageId;
  } catch (error) {
    if (!isKind(error, "target_gone")) throw error;
    return await sendToChat(goal, chatId, { ...form, uuid: derivedUuid(form.uuid, "c") });
  }
}

/** Looks in the chat for a card whose sending left a doubt. Undefined also when nobody can say. */
async function found({ api, status, signal }: CopyGoal, card: ApprovalCard): Promise<string | undefined> {
  const { target, id } = status.approval;
  if (card.to !== "" || target.channel === "none" || api.findCard === undefined) return undefined;
  const { chatId, messageId, inThread } = target;
  const thread = inThread && messageId !== "" ? { threadOf: messageId } : {};
  const sinceMs = (card.uncertainSinceMs ?? 0) - clockSkewMs;
  try {
    return await api.findCard({ chatId, ...thread, sinceMs, mark: id }, { signal });
  } catch (error) {
    if (error instanceof FeishuError && !error.retryable && error.kind !== "cancelled") return undefined;
    throw error;
  }
}

async function sendOrFind(goal: CopyGoal, card: ApprovalCard): Promise<string> {
  try {
    return await send(goal, card.to);
  } catch (error) {
    const known = error instanceof FeishuError && beingSentCodes.has(error.code) ? await found(goal, card) : undefined;
    if (known !== undefined) return known;
    throw error;
  }
}

/**
 * Gets a card whose message is not known. While the platform remembers the `uuid`, sending it (again)
 * tells which message it is. Later it is looked for; sent anew only while the question is open, and only
 * to the chat: whoever got a copy of their own may have it.
 */
async function placed(goal: CopyGoal, card: ApprovalCard): Promise<ApprovalCard> {
  const { uncertainSinceMs = 0, ...rest } = card;
  const mark = approvalMark(goal.status);
  if (goal.nowMs - uncertainSinceMs <= uuidProtectionMs) {
    const messageId = await sendOrFind(goal, card);
    return goal.fresh.has(card.to) ? { ...rest, messageId, shows: mark } : { ...rest, messageId };
  }
  const known = await found(goal, card);
  if (known !== undefined) return { ...rest, messageId: known };
  if (goal.status.state === "pending" && card.to === "") {
    return { ...rest, messageId: await sendOrFind(goal, card), shows: mark };
  }
  return { ...card, failed: "whether it was sent is not known" };
}

const contentKinds: readonly FeishuErrorKind[] = [
  "bad_request",
  "card_full",
  "card_invalid",
  "content_blocked",
  "too_long",
];

/** Settled cards that the platform refuses for what people or models wrote are shown without it. */
async function patch(goal: CopyGoal, messageId: string): Promise<void> {
  const { api, status } = goal;
  const call = callOf(goal);
  try {
    await api.cards.patchMessage({ messageId, card: approvalCard(status) }, call);
  } catch (error) {
    if (!isKind(error, ...contentKinds) || status.state === "pending") throw error;
    await api.cards.patchMessage({ messageId, card: approvalCard(status, { bare: true }) }, call);
  }
}

/** Whether the same may succeed later. A repaired app can send again, so its approvals wait for that. */
function mayPass(error: FeishuError, { attempts }: CopyGoal): boolean {
  if (error.retryable || error.kind === "cancelled" || error.kind === "app_setup") return true;
  return error.kind === "unknown" && attempts < maxUnknownAttempts;
}

function failedCopy(goal: CopyGoal, card: ApprovalCard, thrown: unknown): CopyOutcome {
  const error = feishuErrorOf("approval card", thrown);
  const { uncertainSinceMs: _doubt, ...certain } = card;
  // It was refused for certain, and nobody had tried before: it is in front of nobody.
  const isUnsent = card.messageId === undefined && goal.fresh.has(card.to) && !error.uncertain;
  const kept = isUnsent ? certain : card;
  const { createdAtMs } = goal.status.approval;
  const isLate = card.messageId === undefined && goal.nowMs >= createdAtMs + sendPatienceMs;
  if (mayPass(error, goal) && !(isUnsent && isLate)) return { card: kept, error };
  const isUsable = card.messageId !== undefined && isKind(error, "unknown", ...contentKinds);
  // Only its count of people is old. Given up, it would keep its buttons when they mean nothing any more.
  if (isUsable && goal.status.state === "pending") return { card: { ...card, shows: approvalMark(goal.status) } };
  return { card: { ...kept, failed: `${error.kind} ${error.code}` } };
}

/** Brings one copy to what the approval is now. Never rejects: what stands in the way is in the outcome. */
export async function bringCopy(goal: CopyGoal, given: ApprovalCard): Promise<CopyOutcome> {
  const { status, nowMs } = goal;
  const mark = approvalMark(status);
  let card = given;
  if (card.failed !== undefined || card.shows === mark) return { card };
  const wasBegun = card.messageId !== undefined || (card.uncertainSinceMs ?? 0) > 0;
  // Nobody has seen it: there is nothing to take back.
  if (status.state !== "pending" && !wasBegun) return { card };
  if (nowMs - status.approval.createdAtMs > cardLifetimeMs) return { card: { ...card, failed: "too old" } };
  try {
    if (card.messageId === undefined) card = await placed(goal, card);
    if (card.messageId === undefined || card.shows === mark) return { card };
    await patch(goal, card.messageId);
    return { card: { ...card, shows: mark } };
  } catch (error) {
    return failedCopy(goal, card, error);
  }
}
