import { sharedNow } from "@larkline/protocol";
import type { CardLedger, DeadLetters, OutboxLease, OutboxRecord, SessionStore } from "@larkline/store";
import type { CardHandover } from "./card-handover.ts";
import { FeishuError, feishuErrorOf } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import { noLogger, type FeishuLogger } from "./logger.ts";
import { finishReply, type ImageResolver } from "./reply-finisher.ts";
import { FencedOut, LedgerFailure } from "./reply-record.ts";
import type { DeliveryWatch } from "./watch.ts";

export interface OutboxSenderOptions {
  store: Pick<SessionStore, "ackOutbox" | "retryOutbox" | "leaseOutbox">;
  /** Keeps replies that are given up; without it they are dropped. */
  letters?: Pick<DeadLetters, "bury">;
  /** The cards of replies that are not finished. */
  ledger: Pick<CardLedger, "load" | "save">;
  /** Uploads the images that answers name; without it they show none. */
  imageOf?: ImageResolver;
  /** What the live replies of this process have done and could not record any more. */
  handover?: CardHandover;
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  logger?: FeishuLogger;
  /** Told of every try. */
  watch?: DeliveryWatch | undefined;
  /** Epoch ms. */
  now?: () => number;
  /** Waits before the second, third, ... try in ms; the last one repeats. Up to a quarter of an hour by default. */
  retryDelaysMs?: readonly number[];
  /** Deadline of one delivery in ms, 8 s by default. Keep it below the time a lease is good for. */
  deadlineMs?: number;
  /** A reply that could not be sent for this long is given up; 72 h by default. */
  maxAgeMs?: number;
}

/** Sends the replies that wait in the outboxes. */
export interface OutboxSender {
  /**
   * Sends the leased reply and every one that follows it in the session's outbox. Resolves when the
   * outbox is empty or its head has to wait. Never rejects.
   */
  deliver(lease: OutboxLease): Promise<void>;
  /** Lets running sends finish for at most 5 s, then aborts them: their records are tried again later. */
  close(): Promise<void>;
}

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;
/** No wait is much longer than all before it together: when an outage ends, what is late is at most twice as late. */
const defaultDelaysMs = [
  ...[1, 2, 4, 8, 15, 30].map((seconds) => seconds * secondMs),
  ...[1, 2, 4, 8, 15].map((minutes) => minutes * minuteMs),
];

/** How often a failure nobody understands is repeated: for half an hour. */
const maxUnknownAttempts = 12;
const strangeKinds: ReadonlySet<FeishuError["kind"]> = new Set([
  "unknown",
  "applied_before",
  "sequence_behind",
  "streaming_closed",
]);
const closeMs = 5_000;

/** Facts of a record that may be logged. */
function factsOf(record: OutboxRecord): Record<string, unknown> {
  return { session: record.session, outboxId: record.id, app: record.target.app, attempts: record.attempts };
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
}

class Sender implements OutboxSender {
  readonly #options: OutboxSenderOptions;
  readonly #logger: FeishuLogger;
  readonly #now: () => number;
  readonly #delaysMs: readonly number[];
  readonly #sending = new Set<AbortController>();
  readonly #running = new Set<Promise<void>>();
  #closing = false;

  constructor(options: OutboxSenderOptions) {
    this.#options = options;
    this.#logger = options.logger ?? noLogger;
    this.#now = options.now ?? sharedNow;
    this.#delaysMs = options.retryDelaysMs ?? defaultDelaysMs;
  }

  async deliver(lease: OutboxLease): Promise<void> {
    const run = this.#deliverAll(lease).catch((error: unknown) => {
      // The store failed: the lease runs out and somebody else takes the outbox.
      this.#logger.error({ ...factsOf(lease.record), err: error }, "outbox could not be updated");
    });
    this.#running.add(run);
    await run;
    this.#running.delete(run);
  }

  async close(): Promise<void> {
    this.#closing = true;
    const timer = setTimeout(() => {
      for (const sending of this.#sending) sending.abort();
    }, closeMs);
    await Promise.all(this.#running);
    clearTimeout(timer);
  }

  async #deliverAll(first: OutboxLease): Promise<void> {
    let lease: OutboxLease | undefined = first;
    while (lease !== undefined) {
      if (this.#closing) return await this.#giveBack(lease);
      lease = await this.#deliverHead(lease);
    }
  }

  async #giveBack(lease: OutboxLease): Promise<void> {
    await this.#options.store.retryOutbox(lease, this.#now());
  }

  /** Resolves to what is to be sent next, if anything is. */
  async #deliverHead(lease: OutboxLease): Promise<OutboxLease | undefined> {
    const { token, record } = lease;
    const { store, watch } = this.#options;
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
    if (error === undefined) ended?.({ state: "sent" });
    else if (isOver) ended?.({ state: "given_up", error, retryInMs: 0 });
    if (error === undefined) return await store.ackOutbox(record.session, token);
    if (isOver) return await this.#giveUp(lease, error);
    return await this.#tryLater(lease, { ...attempt, error }, (retryInMs) =>
      ended?.({ state: "failed", error, retryInMs }),
    );
  }

  /** The reply is kept for operators; what is told of its failure holds no content. */
  async #giveUp(lease: OutboxLease, { api, kind, code }: FeishuError): Promise<OutboxLease | undefined> {
    const { store, letters } = this.#options;
    const { record, token } = lease;
    const reason = [api, kind, ...(code === 0 ? [] : [code])].join(" ");
    // Never repeated here: a bury whose answer is lost may have leased the next reply under the same token.
    return letters === undefined ? await store.ackOutbox(record.session, token) : await letters.bury(lease, reason);
  }

  /** Resolves to what is to be sent at once all the same. */
  async #tryLater(
    { token, record }: OutboxLease,
    { error, progress }: { error: FeishuError; progress: number },
    onWait: (waitMs: number) => void,
  ): Promise<OutboxLease | undefined> {
    const { store } = this.#options;
    const problem = [error.kind, ...(error.code === 0 ? [] : [error.code])].join(" ");
    const nowMs = this.#now();
    const uncertainSinceMs = record.uncertainSinceMs === 0 && error.uncertain ? nowMs : record.uncertainSinceMs;
    if (progress > 0) {
      // A long answer takes several deliveries. As each gets somewhere, there is nothing to back off from.
      const updated = { ...record, attempts: 0, uncertainSinceMs, problem };
      onWait(error.retryAfterMs);
      await store.retryOutbox({ token, record: updated }, nowMs + error.retryAfterMs);
      return error.retryAfterMs > 0 || this.#closing ? undefined : await store.leaseOutbox(record.session);
    }
    // Held back by our own limits it never left: whoever waits in a crowd is not to wait longer each time.
    const waitMs = this.#waitMs(error, error.heldBack ? 0 : record.attempts);
    this.#logger.warn(
      { ...factsOf(record), ...errorFacts(error), retryInMs: waitMs },
      "reply not sent, will be tried again",
    );
    const updated = { ...record, attempts: record.attempts + (error.heldBack ? 0 : 1), uncertainSinceMs, problem };
    onWait(waitMs);
    await store.retryOutbox({ token, record: updated }, nowMs + waitMs);
    return undefined;
  }

  /** Rejects when the ledger cannot be used: no failure of the reply. */
  async #send(lease: OutboxLease): Promise<Attempt | "taken over"> {
    const { record } = lease;
    const { ledger, imageOf, handover } = this.#options;
    const api = this.#options.apis.get(record.target.app);
    if (api === undefined) return { error: noCredentials(), progress: 0 };
    const sending = new AbortController();
    const timer = setTimeout(() => sending.abort(), this.#options.deadlineMs ?? 8_000);
    this.#sending.add(sending);
    let progress = 0;
    const onProgress = (cards: number): void => void (progress = cards);
    try {
      const known = { ledger, handover, logger: this.#logger, now: this.#now };
      const finisher = { ...known, ...(imageOf === undefined ? {} : { imageOf }) };
      await finishReply(finisher, { api, lease, signal: sending.signal, onProgress });
      return { error: undefined, progress };
    } catch (error) {
      if (error instanceof FencedOut) return "taken over";
      if (error instanceof LedgerFailure) throw error;
      return { error: feishuErrorOf("outbox", error), progress };
    } finally {
      clearTimeout(timer);
      this.#sending.delete(sending);
    }
  }

  /** Whether the reply is given up; logged without its content. */
  #isHopeless(record: OutboxRecord, error: FeishuError): boolean {
    const tooOld = this.#now() - (record.againAtMs ?? record.createdAtMs) > (this.#options.maxAgeMs ?? 72 * hourMs);
    // An operator can repair the app; until then its replies wait.
    const mayPass = error.retryable || error.kind === "cancelled" || error.kind === "app_setup";
    const isStrange = strangeKinds.has(error.kind) && record.attempts + 1 < maxUnknownAttempts;
    const given = mayPass ? tooOld : !isStrange;
    if (given) this.#logger.error({ ...factsOf(record), ...errorFacts(error), deadLetter: true }, "reply given up");
    return given;
  }

  #waitMs(error: FeishuError, attempts: number): number {
    // Shut down in the middle: not the platform's fault, so nobody has to wait.
    if (error.kind === "cancelled" && this.#closing) return 0;
    const delayMs = this.#delaysMs[Math.min(attempts, this.#delaysMs.length - 1)] ?? 0;
    return Math.max(error.retryAfterMs, Math.round(delayMs * (0.8 + Math.random() * 0.4)));
  }
}

/** While a bot is added, workers that do not know it yet run beside those that do: they pass its replies on. */
const otherWorkerMs = 10_000;

/** Held back: no try has failed, so nobody is to wait longer each time. */
function noCredentials(): FeishuError {
  const reason = "no credentials for this app";
  const waiting = { retryAfterMs: otherWorkerMs, heldBack: true };
  return new FeishuError({ api: "outbox", kind: "app_setup", code: 0, httpStatus: 0, reason, ...waiting });
}

/** A sender over the outbox of `store`; who leased a record hands it over and may forget it. */
export function createOutboxSender(options: OutboxSenderOptions): OutboxSender {
  return new Sender(options);
}
