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
  /** LIST of messages, append-only. */
  history: string;
  /** STREAM of event batches; an entry's id is the seq of its last event. */
  events: string;
  /** Channel on which event batches are published. */
  channel: string;
  /** LIST of unsent replies, oldest first. */
  outbox: string;
  /** Prefix of the dedup keys. */
  seen: string;
}

/** Names all keys of one namespace. */
export interface Keyspace {
  cells(): CellKeys[];
  session(session: SessionKey): SessionKeys;
  /** HASH facts, bytes of one blob, in a slot of its own: large values spread over the nodes. */
  blob(blobId: string): string;
  /** A key outside the cells, in a slot of its own tag. */
  global(name: string): string;
}

export function createKeyspace(namespace: string): Keyspace {
  const cells = Array.from({ length: cellCount }, (_, cell) => {
    const base = `{${namespace}:${cell}}`;
    return { base, dirty: `${base}:dirty`, deadlines: `${base}:deadlines`, due: `${base}:due` };
  });
  return {
    cells: () => cells,
    session: (session) => {
      const cell = cells[cellOf(session)];
      if (cell === undefined) throw new RangeError("cell out of range");
      const { base, dirty, deadlines, due } = cell;
      return {
        dirty,
        deadlines,
        due,
        session: `${base}:s:${session}`,
        inbox: `${base}:in:${session}`,
        control: `${base}:ctl:${session}`,
        calls: `${base}:calls:${session}`,
        history: `${base}:h:${session}`,
        events: `${base}:ev:${session}`,
        channel: `${base}:ch:${session}`,
        outbox: `${base}:ob:${session}`,
        seen: `${base}:seen:`,
      };
    },
    blob: (blobId) => `{${namespace}:blob:${blobId}}`,
    global: (name) => `{${namespace}}:${name}`,
  };
}
