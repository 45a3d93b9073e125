import type { SessionKey } from "@larkline/protocol";

/**
 * Sessions are spread over this many cells. All keys of a cell share one hash tag and so one
 * Redis Cluster slot, because a script may touch a session together with the indexes of its cell.
 * A fixed number: changing it would orphan stored sessions.
 */
export const cellCount = 16;

/** Prefix of every key when nothing else is configured. */
export const defaultNamespace = "larkline";

function cellOf(session: SessionKey): number {
  let hash = 0x811c9dc5; // FNV-1a
  for (let i = 0; i < session.length; i += 1) hash = Math.imul(hash ^ session.charCodeAt(i), 0x01000193);
  return (hash >>> 0) % cellCount;
}

/** The indexes of one cell: what the sweepers look at. */
export interface CellKeys {
  /** ZSET session -> ms of last touch; sessions that are queued or running. */
  dirty: string;
  /** ZSET `session|callId` -> deadline ms; calls without an outcome. */
  deadlines: string;
  /** ZSET session -> ms when its outbox should be tried; sessions with unsent replies. */
  due: string;
  /** ZSET `session|replyId` -> ms of the last write; replies whose cards are in the ledger. */
  openCards: string;
}

export interface SessionKeys extends CellKeys {
  /** HASH: state, generations, epoch, counters, checkpoint, outbox lease. */
  session: string;
  /** LIST of `seq:message`: waiting user messages, the running one first. */
  inbox: string;
  /** LIST of control entries. */
  control: string;
  /** HASH callId -> open | started | done: the effect ledger of the running turn. */
  calls: string;
  /** LIST of all messages, append-only; compacted ones too. */
  history: string;
  /** STREAM of event batches; an entry's id is the seq of its last event. */
  events: string;
  /** Channel on which event batches are published. */
  channel: string;
  /** LIST of unsent replies, oldest first. */
  outbox: string;
  /** HASH replyId -> what is known of its cards. */
  cards: string;
  /** Key under which a message id of an app is remembered. */
  seenOf(app: string, messageId: string): string;
  /** Key of a message that waits for a decision of its sender. */
  parkedOf(messageId: string): string;
}

/** Names all keys of one namespace. */
export interface Keyspace {
  cells(): CellKeys[];
  session(session: SessionKey): SessionKeys;
  /** HASH facts, bytes of one blob, in a slot of its own: large values spread over the nodes. */
  blob(blobId: string): string;
  /** STRING of one looked-up fact; without a tag, so that they spread over the nodes. */
  lookup(name: string): string;
  /** A key of an app's limits, all of them in one slot: a script takes from several at once. */
  rates(app: string, name: string): string;
  /** A key outside the cells, in a slot of its own tag. */
  global(name: string): string;
}

export function createKeyspace(namespace: string): Keyspace {
  const cells = Array.from({ length: cellCount }, (_, cell) => {
    const base = `{${namespace}:${cell}}`;
    return {
      base,
      dirty: `${base}:dirty`,
      deadlines: `${base}:deadlines`,
      due: `${base}:due`,
      openCards: `${base}:open-cards`,
    };
  });
  return {
    cells: () => cells,
    session: (session) => {
      const cell = cells[cellOf(session)];
      if (cell === undefined) throw new RangeError("cell out of range");
      const { base, dirty, deadlines, due, openCards } = cell;
      return {
        dirty,
        deadlines,
        due,
        openCards,
        session: `${base}:s:${session}`,
        inbox: `${base}:in:${session}`,
        control: `${base}:ctl:${session}`,
        calls: `${base}:calls:${session}`,
        history: `${base}:h:${session}`,
        events: `${base}:ev:${session}`,
        channel: `${base}:ch:${session}`,
        outbox: `${base}:ob:${session}`,
        cards: `${base}:cards:${session}`,
        seenOf: (app, messageId) => `${base}:seen:${session}:${app}:${messageId}`,
        parkedOf: (messageId) => `${base}:parked:${session}:${messageId}`,
      };
    },
    blob: (blobId) => `{${namespace}:blob:${blobId}}`,
    lookup: (name) => `${namespace}:look:${name}`,
    rates: (app, name) => `{${namespace}:rate:${app}}:${name}`,
    global: (name) => `{${namespace}}:${name}`,
  };
}
