import type { InboundMessage, SessionKey } from "@larkline/protocol";
import type { CardReply } from "./card-ledger.ts";
import type { OutboxLease, OutboxRecord } from "./session-store.ts";

interface LetterFacts {
  v: 1;
  /** Unique in its session. The same failure, told twice, is one letter. */
  id: string;
  session: SessionKey;
  /** Why it was given up: codes and kinds of errors, never content. */
  reason: string;
  /** Epoch ms. */
  atMs: number;
  app?: string;
  turnId?: string;
  /** The person's message that it is about. */
  messageId?: string;
  traceId?: string;
}

/** Something that was given up, with what it takes to try it again. */
export type DeadLetter =
  /** An answer or a notice that did not reach its person, as it stood in the outbox, and what was known of its cards. */
  | (LetterFacts & { kind: "reply"; record: OutboxRecord; cards?: CardReply })
  /** A message whose runs crashed again and again. */
  | (LetterFacts & { kind: "message"; message: InboundMessage })
  /** A question that could be shown to nobody. Its call has ended with that: there is nothing to try again. */
  | (LetterFacts & { kind: "approval"; approvalId: string; tool: string });

/** A letter in a list: without what people and models wrote. */
export type DeadLetterFacts = LetterFacts & { kind: DeadLetter["kind"] };

/** How many letters are kept, and for how long: the oldest go first. */
export const deadLetterLimits = { perCell: 100, keptMs: 14 * 24 * 60 * 60 * 1_000 } as const;

/**
 * What was given up, until somebody deals with it. Bounded and expiring: a deployment that gives up
 * everything must not fill its store with it.
 */
export interface DeadLetters {
  /** Keeps a letter. One with the id of another letter of the session takes its place. */
  add(letter: DeadLetter): Promise<void>;
  /**
   * The head of a leased outbox is given up: it leaves the outbox as after an `ackOutbox`, and is kept as
   * a letter with its cards in the same step. Returns what `ackOutbox` does. Does nothing under a lease that is lost.
   */
  bury(lease: OutboxLease, reason: string): Promise<OutboxLease | undefined>;
  /**
   * Puts a reply back into its outbox, last, under the same id, keys and cards, and removes its letter
   * in the same step. False when there is no such letter (any more).
   */
  resend(session: SessionKey, id: string): Promise<boolean>;
  find(session: SessionKey, id: string): Promise<DeadLetter | undefined>;
  /** False when there is no such letter (any more). */
  discard(session: SessionKey, id: string): Promise<boolean>;
  /** Newest first. */
  list(limit: number): Promise<DeadLetterFacts[]>;
  /** How many there are. */
  count(): Promise<number>;
}

/** The letter of a reply that was given up. A turn's answer has the id of its turn. */
export function letterOfReply(record: OutboxRecord, reason: string, atMs: number): DeadLetter & { kind: "reply" } {
  const { id, session, target } = record;
  return {
    v: 1,
    kind: "reply",
    id: `reply:${id}`,
    session,
    reason,
    atMs,
    app: target.app,
    ...(id.startsWith(`${session}-`) ? { turnId: id } : {}),
    ...(target.messageId === "" ? {} : { messageId: target.messageId }),
    ...traceOf(record),
    record,
  };
}

function traceOf({ view }: OutboxRecord): { traceId?: string } {
  const traceId = view?.footer.traceId;
  return traceId === undefined ? {} : { traceId };
}

/** The reply of a letter as it goes into the outbox again: its tries and its time count anew. */
export function replyAgain({ record }: DeadLetter & { kind: "reply" }, nowMs: number): OutboxRecord {
  return { ...record, attempts: 0, againAtMs: nowMs };
}

/** A letter without its content. */
export function letterFactsOf(letter: DeadLetter): DeadLetterFacts {
  const { v, id, session, kind, reason, atMs, app, turnId, messageId, traceId } = letter;
  return {
    v,
    id,
    session,
    kind,
    reason,
    atMs,
    ...(app === undefined ? {} : { app }),
    ...(turnId === undefined ? {} : { turnId }),
    ...(messageId === undefined ? {} : { messageId }),
    ...(traceId === undefined ? {} : { traceId }),
  };
}
