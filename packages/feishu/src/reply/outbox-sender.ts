import {
  deadline,
  systemClock,
  systemRandom,
  type Clock,
  type Random,
} from "@larkline/protocol/clock";
import type { ReplyObject } from "@larkline/protocol";
import type { ReplyView } from "@larkline/protocol/reply-view";
import type { CardLedger, DeadLetters, OutboxLease, OutboxRecord, Outbox } from "@larkline/store";

import { imageRefsIn } from "../cards/answer.ts";
import {
  clockSkewMs,
  derivedUuid,
  receiverOf,
  uuidProtectionMs,
  type FeishuApi,
  type MessageBody,
} from "../feishu-api.ts";
import { answerObject } from "../objects/objects.ts";
import type { CallOptions } from "../transport/api-call.ts";
import { FeishuError, feishuErrorOf, isKind } from "../transport/error.ts";
import { noLogger, type FeishuLogger } from "../transport/sdk.ts";
import { ReplyCards } from "./reply-cards.ts";
import { isAddress, type ImageResolver } from "./image-resolver.ts";
import {
  FencedOut,
  LedgerFailure,
  newReply,
  ReplyRecord,
  type CardHandover,
} from "./reply-record.ts";

/** How an attempt to send a reply ended. */
export type DeliveryResult =
  | {
      state: "sent";
      /** The ids of the messages that show it, as far as this attempt knows them. */ messageIds: readonly string[];
    }
  /** Another sender has the reply, or will take it. */
  | { state: "left" }
  /** Tried again in `retryInMs`, or given up. */
  | { state: "failed" | "given_up"; error: FeishuError; retryInMs: number };

/**
 * Telemetry: called when an attempt begins; the returned function is called when it has ended. Both are called
 * synchronously, must return at once and never throw.
 */
export type DeliveryWatch = (record: OutboxRecord) => (result: DeliveryResult) => void;

export interface OutboxSenderOptions {
  /** The outboxes of the sessions. Ingress passes them with a filter in between. */
  outbox: Pick<Outbox, "ack" | "retry" | "lease">;
  /** Keeps replies that are given up; without it they are dropped. */
  letters?: Pick<DeadLetters, "moveToDeadLetters">;
  /** The cards of replies that are not finished. */
  ledger: CardLedger;
  /** Uploads the images that answers name; without it they show none. */
  imageOf?: ImageResolver;
  /** What the live replies of this process have done and could not record any more. */
  handover?: CardHandover;
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  logger?: FeishuLogger;
  watch?: DeliveryWatch | undefined;
  clock?: Clock;
  random?: Random;
  /** Waits before the second, third, ... attempt in ms; the last one repeats. Up to a quarter of an hour by default. */
  retryDelaysMs?: readonly number[];
  /** Deadline of one delivery in ms, 8 s by default. Each ends before its lease in any case. */
  deadlineMs?: number;
  /** A reply that could not be sent for this long is given up; 72 h by default. */
  maxAgeMs?: number;
}

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;
/** No wait is much longer than the sum of all earlier ones: after an outage a reply is at most twice as late as it. */
const defaultDelaysMs = [
  ...[1, 2, 4, 8, 15, 30].map((seconds) => seconds * secondMs),
  ...[1, 2, 4, 8, 15].map((minutes) => minutes * minuteMs),
];

/** How often a failure of an unknown kind is repeated: for half an hour. */
const maxUnknownAttempts = 12;
const strangeKinds: ReadonlySet<FeishuError["kind"]> = new Set([
  "unknown",
  "applied_before",
  "sequence_behind",
  "streaming_closed",
]);
const closeMs = 5_000;
/** A delivery ends so long before its lease expires, ms: what it has begun must have ended by then. */
const leaseMarginMs = 1_000;

/** Facts of a record that may be logged. */
function factsOf(record: OutboxRecord): Record<string, unknown> {
  return {
    session: record.session,
    outboxId: record.id,
    app: record.target.app,
    attempts: record.attempts,
  };
}

function errorFacts(error: FeishuError): Record<string, unknown> {
  const { api, kind, code, httpStatus, logId, uncertain } = error;
  return { api, kind, code, httpStatus, logId, uncertain };
}

/** How one delivery ended. */
interface Attempt {
  /** Undefined: the reply is with the person. */
  error: FeishuError | undefined;
  /** Cards that are done since. */
  progress: number;
  /** Messages that show the reply. */
  messageIds?: readonly string[];
}

/** Sends the replies that wait in the outboxes. The caller leases a record, passes it on and may forget it. */
export class OutboxSender {
  readonly #options: OutboxSenderOptions;
  readonly #logger: FeishuLogger;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #delaysMs: readonly number[];
  readonly #sending = new Set<AbortController>();
  readonly #running = new Set<Promise<void>>();
  #closing = false;

  constructor(options: OutboxSenderOptions) {
    this.#options = options;
    this.#logger = options.logger ?? noLogger;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.#delaysMs = options.retryDelaysMs ?? defaultDelaysMs;
  }

  /**
   * Sends the leased reply and then every further one in the session's outbox. Resolves when the outbox is empty or
   * its head has to wait. Never rejects.
   */
  async deliver(lease: OutboxLease): Promise<void> {
    const run = this.#deliverAll(lease).catch((error: unknown) => {
      // The store failed: the lease runs out and another sender takes the outbox.
      this.#logger.error({ ...factsOf(lease.record), err: error }, "outbox could not be updated");
    });
    this.#running.add(run);
    await run;
    this.#running.delete(run);
  }

  /** Lets running sends finish for at most 5 s, then aborts them: their records are tried again later. */
  async close(): Promise<void> {
    this.#closing = true;
    const cancel = this.#clock.after(closeMs, () => {
      for (const sending of this.#sending) sending.abort();
    });
    await Promise.all(this.#running);
    cancel();
  }

  async #deliverAll(first: OutboxLease): Promise<void> {
    let lease: OutboxLease | undefined = first;
    while (lease !== undefined) {
      if (this.#closing) {
        await this.#options.outbox.retry(lease, this.#clock.now());
        return;
      }
      lease = await this.#deliverHead(lease);
    }
  }

  /** Resolves to the lease of the next reply, if there is one. */
  async #deliverHead(lease: OutboxLease): Promise<OutboxLease | undefined> {
    const { token, record } = lease;
    const { outbox, watch } = this.#options;
    const ended = watch?.(record);
    const attempt = await this.#send(lease).catch((failure: unknown) => {
      ended?.({ state: "left" });
      throw failure;
    });
    if (attempt === "taken over") {
      ended?.({ state: "left" });
      return undefined;
    }
    const { error } = attempt;
    const isOver = error === undefined || this.#isHopeless(record, error);
    if (error === undefined) ended?.({ state: "sent", messageIds: attempt.messageIds ?? [] });
    else if (isOver) ended?.({ state: "given_up", error, retryInMs: 0 });
    if (error === undefined) return await outbox.ack(record.session, token);
    if (isOver) return await this.#giveUp(lease, error);
    return await this.#tryLater(lease, { ...attempt, error }, (retryInMs) =>
      ended?.({ state: "failed", error, retryInMs }),
    );
  }

  /** Keeps the reply for operators, with a reason that holds no content. */
  async #giveUp(
    lease: OutboxLease,
    { api, kind, code }: FeishuError,
  ): Promise<OutboxLease | undefined> {
    const { outbox, letters } = this.#options;
    const { record, token } = lease;
    const reason = [api, kind, ...(code === 0 ? [] : [code])].join(" ");
    // Not repeated here: where only the answer was lost, the next reply may be leased under the same token by now.
    return letters === undefined
      ? await outbox.ack(record.session, token)
      : await letters.moveToDeadLetters(lease, reason);
  }

  /** Resolves to the lease of a reply that is to be sent at once. */
  async #tryLater(
    { token, record }: OutboxLease,
    { error, progress }: { error: FeishuError; progress: number },
    onWait: (waitMs: number) => void,
  ): Promise<OutboxLease | undefined> {
    const { outbox } = this.#options;
    const problem = [error.kind, ...(error.code === 0 ? [] : [error.code])].join(" ");
    const nowMs = this.#clock.now();
    const uncertainSinceMs =
      record.uncertainSinceMs === 0 && error.uncertain ? nowMs : record.uncertainSinceMs;
    if (progress > 0) {
      // A long answer takes several deliveries. This one has finished cards, so there is no reason to back off.
      const updated = { ...record, attempts: 0, uncertainSinceMs, problem };
      onWait(error.retryAfterMs);
      await outbox.retry({ token, record: updated }, nowMs + error.retryAfterMs);
      return error.retryAfterMs > 0 || this.#closing
        ? undefined
        : await outbox.lease(record.session);
    }
    // A call that our own rate limiter held back never left, so it does not count as an attempt.
    const waitMs = this.#waitMs(error, error.heldBack ? 0 : record.attempts);
    this.#logger.warn(
      { ...factsOf(record), ...errorFacts(error), retryInMs: waitMs },
      "reply not sent, will be tried again",
    );
    const updated = {
      ...record,
      attempts: record.attempts + (error.heldBack ? 0 : 1),
      uncertainSinceMs,
      problem,
    };
    onWait(waitMs);
    await outbox.retry({ token, record: updated }, nowMs + waitMs);
    return undefined;
  }

  /** One delivery. Rejects when the ledger cannot be used: that is no failure of the reply. */
  async #send(lease: OutboxLease): Promise<Attempt | "taken over"> {
    const { record } = lease;
    const { ledger, imageOf, handover } = this.#options;
    const api = this.#options.apis.get(record.target.app);
    if (api === undefined) return { error: noCredentials(), progress: 0 };
    // The commit grants a lease before the live reply has released its cards, which may take seconds.
    const leftMs = lease.untilMs - this.#clock.monotonic() - leaseMarginMs;
    if (leftMs <= 0) return "taken over";
    const sending = new AbortController();
    const cancel = this.#clock.after(Math.min(this.#options.deadlineMs ?? 8_000, leftMs), () =>
      sending.abort(),
    );
    this.#sending.add(sending);
    let progress = 0;
    const onProgress = (cards: number): void => void (progress = cards);
    try {
      const { signal } = sending;
      const messageIds = await finishReply({
        api,
        lease,
        signal,
        ledger,
        imageOf,
        handover,
        logger: this.#logger,
        clock: this.#clock,
        random: this.#random,
        onProgress,
      });
      return { error: undefined, progress, messageIds };
    } catch (error) {
      if (error instanceof FencedOut) return "taken over";
      if (error instanceof LedgerFailure) throw error;
      return { error: feishuErrorOf("outbox", error), progress };
    } finally {
      cancel();
      this.#sending.delete(sending);
    }
  }

  /** Whether the reply is given up; logged without its content. */
  #isHopeless(record: OutboxRecord, error: FeishuError): boolean {
    const tooOld =
      this.#clock.now() - (record.againAtMs ?? record.createdAtMs) >
      (this.#options.maxAgeMs ?? 72 * hourMs);
    // An operator can repair the app; until then its replies wait.
    const mayPass = error.retryable || error.kind === "cancelled" || error.kind === "app_setup";
    const isStrange = strangeKinds.has(error.kind) && record.attempts + 1 < maxUnknownAttempts;
    const given = mayPass ? tooOld : !isStrange;
    if (given) {
      this.#logger.error(
        { ...factsOf(record), ...errorFacts(error), deadLetter: true },
        "reply given up",
      );
    }
    return given;
  }

  #waitMs(error: FeishuError, attempts: number): number {
    // Our own shutdown aborted the call, so the next attempt need not wait.
    if (error.kind === "cancelled" && this.#closing) return 0;
    const delayMs = this.#delaysMs[Math.min(attempts, this.#delaysMs.length - 1)] ?? 0;
    return Math.max(
      error.retryAfterMs,
      Math.round(delayMs * (0.8 + this.#random.fraction() * 0.4)),
    );
  }
}

/** While a bot is added, workers that do not know it yet run beside those that do. */
const otherWorkerMs = 10_000;

/** Held back, so that it does not count as an attempt: a worker that knows the bot will send the reply. */
function noCredentials(): FeishuError {
  const reason = "no credentials for this app";
  const waiting = { retryAfterMs: otherWorkerMs, heldBack: true };
  return new FeishuError({
    api: "outbox",
    kind: "app_setup",
    code: 0,
    httpStatus: 0,
    reason,
    ...waiting,
  });
}

/** One delivery of one reply. */
interface Delivery {
  api: FeishuApi;
  lease: OutboxLease;
  signal: AbortSignal;
  ledger: CardLedger;
  imageOf: ImageResolver | undefined;
  handover: CardHandover | undefined;
  logger: FeishuLogger;
  clock: Clock;
  random: Random;
  /** Called with the number of cards that this delivery has finished, also when it fails. */
  onProgress: (cards: number) => void;
}

/** A delivery that has opened the reply's record. */
interface Finish extends Delivery {
  view: ReplyView;
  record: ReplyRecord;
  cards: ReplyCards;
}

/**
 * Gives the last state of a reply to the person: on the cards that already show its beginning, on new
 * ones, or as plain text where cards are refused for good. Any process may repeat it after any
 * crash; only the holder of the outbox lease succeeds. Rejects with the FeishuError that stopped it, a
 * FencedOut or a LedgerFailure. Resolves to the ids of the messages that show the reply, as far as they are known.
 */
async function finishReply(delivery: Delivery): Promise<string[]> {
  const { view, target } = delivery.lease.record;
  if (target.object !== undefined) return await sendToObject(delivery, target.object);
  if (view === undefined) return await sendPlain(delivery);
  const finish = await opened(delivery, view);
  const before = finish.record.closed;
  try {
    await finishCards(finish);
    if (finish.cards.imagesRefused) await finishWithNewImages(finish);
  } finally {
    delivery.onProgress(finish.record.closed - before);
  }
  return finish.record.cards.flatMap(({ messageId }) => messageId ?? []);
}

async function opened(delivery: Delivery, view: ReplyView): Promise<Finish> {
  const { api, lease, signal, ledger, handover, clock, random } = delivery;
  const { id: replyId, session, target, uuid, traceparent } = lease.record;
  const known = await ledger.load(session, replyId).catch((cause: unknown) => {
    throw new LedgerFailure("the card ledger could not be read", { cause });
  });
  const reply = known ?? (await newReply(api, { session, replyId, target }, clock.now()));
  const record = new ReplyRecord({ ledger, fence: { outboxToken: lease.token }, reply, clock });
  const images = record.mode === "text" ? new Map<string, null>() : await imagesOf(delivery, view);
  const cards = new ReplyCards({
    api,
    record,
    target,
    uuid,
    images,
    clock,
    random,
    signal,
    traceparent,
    handover,
  });
  return { ...delivery, view, record, cards };
}

/** The first deliveries wait for images whose upload may succeed later; after that the answer goes without them. */
const patientAttempts = 2;
/** How long a later delivery waits for all images together, ms. */
const impatientMs = 2_000;

async function imagesOf(delivery: Delivery, view: ReplyView): Promise<Map<string, string | null>> {
  const { api, lease, signal, imageOf, logger, clock } = delivery;
  const images = new Map<string, string | null>();
  const references = imageRefsIn(view.answer);
  if (imageOf === undefined || references.length === 0) return images;
  const isPatient = lease.record.attempts < patientAttempts;
  const waiting = isPatient ? signal : deadline(clock, impatientMs, signal);
  const fetched = await remoteImagesOf(delivery, view, references.filter(isAddress));
  for (const reference of references) {
    if (isAddress(reference)) {
      images.set(reference, fetched.get(reference) ?? null);
      continue;
    }
    const key = await imageOf(api, reference, waiting).catch((error: unknown) => {
      const mayPass =
        error instanceof FeishuError && (error.retryable || error.kind === "cancelled");
      if (isPatient && mayPass) throw error;
      logger.warn({ err: error }, "image not shown");
      return null;
    });
    images.set(reference, key);
  }
  return images;
}

/** Images of one answer that are fetched, and how long it waits for all of them, ms; those that fail stay links. */
const maxRemoteImages = 5;
const remoteMs = 3_000;

async function remoteImagesOf(
  { api, signal, imageOf, logger, clock }: Delivery,
  { imageHosts: hosts = [] }: ReplyView,
  addresses: readonly string[],
): Promise<ReadonlyMap<string, string | null>> {
  if (imageOf === undefined || hosts.length === 0 || addresses.length === 0) return new Map();
  const waiting = deadline(clock, remoteMs, signal);
  const found = addresses.slice(0, maxRemoteImages).map(async (address) => {
    const key = await imageOf(api, address, waiting, hosts).catch((error: unknown) => {
      logger.warn({ err: error }, "image not fetched");
      return null;
    });
    return [address, key] as const;
  });
  return new Map(await Promise.all(found));
}

/**
 * The platform refuses keys that were good once when another platform answers under the same app id. The answer
 * is there without its images; this uploads them again, once.
 */
async function finishWithNewImages(finish: Finish): Promise<void> {
  for (const reference of imageRefsIn(finish.view.answer)) {
    await finish.imageOf?.forget?.(finish.api, reference);
  }
  await finishCards(await opened(finish, finish.view));
}

async function finishCards(finish: Finish): Promise<void> {
  const { lease, logger, view, record, cards } = finish;
  if (record.mode === "text") return await sendAsText(finish);
  try {
    await cards.finish(view);
  } catch (error) {
    if (error instanceof FencedOut || error instanceof LedgerFailure || !mayTextHelp(error)) {
      throw error;
    }
    const facts =
      error instanceof FeishuError ? { kind: error.kind, code: error.code } : { err: error };
    logger.warn({ session: lease.record.session, ...facts }, "no card, sending text");
    if (isKind(error, "content_blocked") && record.isVisible) {
      // People see the card already, so the card says what happened.
      return await cards.finish({
        ...view,
        answer: blockedText,
        thinking: "",
        tools: [],
        state: "failed",
      });
    }
    // The mode is stored first: after a crash the text is repeated under the same `uuid`, not the card.
    record.mode = "text";
    await record.save();
    await sendAsText(finish);
  }
}

/** Failures for which a plain message may still be accepted where a card is not. */
const textMayHelp: ReadonlySet<FeishuError["kind"]> = new Set([
  "bad_request",
  "card_full",
  "card_gone",
  "card_invalid",
  "card_too_old",
  "content_blocked",
  "sequence_behind",
  "too_long",
  "unknown",
]);

/** The app lacks a right; the right to send messages may be another one than that for cards ("Common error codes"). */
const missingScopeCodes: ReadonlySet<number> = new Set([99991672, 99991679]);

function mayTextHelp(error: unknown): boolean {
  // An error of our own while drawing a card must not leave the person without the answer.
  if (!(error instanceof FeishuError)) return true;
  return (
    textMayHelp.has(error.kind) || (error.kind === "app_setup" && missingScopeCodes.has(error.code))
  );
}

/** Removes from the cards what they show of the answer, where the platform permits it, and sends the text. */
async function sendAsText(finish: Finish): Promise<void> {
  try {
    await finish.cards.retire(finish.view.language);
  } catch (error) {
    if (!(error instanceof FeishuError) || error.retryable || error.kind === "cancelled") {
      throw error;
    }
  }
  await sendPlain(finish);
}

/** Shown when content review refuses an answer, so that the person is not left without any. */
const blockedText =
  "这条回复未能发送：内容被平台的安全策略拦截。\nThe reply could not be sent: the platform's content policy blocked it.";

/**
 * Sends a reply as one message, stepping down where the platform refuses: to the chat when the
 * message is gone, as plain text when the format is refused, as a note when the content is.
 * Rejects with the error for which no further step exists.
 */
async function sendPlain(delivery: Delivery): Promise<string[]> {
  const { record } = delivery.lease;
  const { text, uuid, card } = record;
  if (await wasSent(delivery)) return [];
  const body: MessageBody =
    card === undefined ? { text } : { messageType: "interactive", content: JSON.stringify(card) };
  try {
    return [await sendForm(delivery, body, uuid)];
  } catch (error) {
    if (!isKind(error, "content_blocked", "bad_request", "card_invalid", "card_full", "too_long")) {
      throw error;
    }
    if (error.kind === "content_blocked") {
      return [
        await sendForm(delivery, { text: blockedText, format: "text" }, derivedUuid(uuid, "b")),
      ];
    }
    return [await sendForm(delivery, { text, format: "text" }, derivedUuid(uuid, "t"))];
  }
}

/**
 * Whether an earlier attempt has succeeded. A sender may have died in an attempt without noting it, so
 * the age of the record decides, not only what was noted.
 */
async function wasSent({ api, lease, signal, logger, clock }: Delivery): Promise<boolean> {
  const { session, target, createdAtMs, card, text } = lease.record;
  const { chatId, messageId } = target;
  if (clock.now() - createdAtMs < uuidProtectionMs || messageId === "") return false;
  try {
    const said = card === undefined ? { text } : { card };
    const request = { chatId, messageId, sinceMs: createdAtMs - clockSkewMs, ...said };
    return (await api.history.findReply(request, { signal })) !== undefined;
  } catch (error) {
    // Without the right to read the chat it cannot be known; a repeated answer is better than none.
    if (!isKind(error, "forbidden", "target_gone", "bad_request", "app_setup")) throw error;
    logger.warn({ session, code: error.code }, "cannot check for an earlier answer, sending again");
    return false;
  }
}

/** Sends the text of a reply to where it belongs besides chats. No message shows it. */
async function sendToObject(
  { api, lease, signal, logger, clock }: Delivery,
  object: ReplyObject,
): Promise<string[]> {
  const { text, createdAtMs, traceparent, isDone = false } = lease.record;
  const answer = { text, sinceMs: createdAtMs - clockSkewMs, isDone };
  await answerObject(api, object, answer, { signal, traceparent, logger, nowMs: clock.now() });
  return [];
}

/** Sends one form of the reply: as an answer, or to the chat when the message is gone or there is none. Returns its id. */
async function sendForm(
  { api, lease, signal }: Delivery,
  body: MessageBody,
  uuid: string,
): Promise<string> {
  const { target, traceparent } = lease.record;
  const { chatId, messageId, inThread } = target;
  const call: CallOptions = { signal, traceparent };
  if (messageId !== "") {
    try {
      return (await api.messages.reply({ messageId, chatId, ...body, uuid, inThread }, call))
        .messageId;
    } catch (error) {
      if (!isKind(error, "target_gone")) throw error;
    }
  }
  return (
    await api.messages.send({ ...receiverOf(chatId), ...body, uuid: derivedUuid(uuid, "c") }, call)
  ).messageId;
}
