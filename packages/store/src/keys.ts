import { rootSessionOf, type Clock, type Random, type SessionKey } from "@larkline/protocol";
import { LRUCache } from "lru-cache";
import type { RedisConnection } from "./connection.ts";

/**
 * Sessions are spread over this many cells. All keys of a cell share one hash tag and so one
 * Redis Cluster slot, because a script may touch a session together with the indexes of its cell.
 * A fixed number: changing it would orphan stored sessions.
 */
export const cellCount = 16;

/** Prefix of every key when nothing else is configured. */
export const defaultNamespace = "larkline";

/** Where a store keeps what it knows; all stores and processes of a deployment agree on it. */
export interface StoreOptions {
  redis: RedisConnection;
  /** Prefix of every key. Default: {@link defaultNamespace}. */
  namespace?: string;
  /** The machine's if absent, as is `random`. */
  clock?: Clock;
  random?: Random;
}

/** Number of the cell that a session belongs to; a child session is in that of its root. */
export function cellOf(session: SessionKey): number {
  const name = rootSessionOf(session);
  let hash = 0x811c9dc5; // FNV-1a
  for (let i = 0; i < name.length; i += 1) hash = Math.imul(hash ^ name.charCodeAt(i), 0x01000193);
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
  /** ZSET `session|approvalId` -> ms of expiry; pending approvals. */
  expiries: string;
  /** ZSET `session|approvalId` -> ms when its cards should be tried; approvals whose cards do not show their state. */
  approvalCards: string;
  /** HASH `session|letterId` -> letter, and with `|cards` behind it the cards of its reply. */
  letters: string;
  /** ZSET `session|letterId` -> ms when it was written. */
  lettersByTime: string;
  /** STREAM of audit records of the cell's sessions. */
  audit: string;
  /** ZSET session -> ms when its last turn ended; all that have a conversation. */
  ended: string;
  /** ZSET session -> ms when its last turn ended; those whose history has not been looked after since. */
  untended: string;
  /** ZSET, all scores 0, of `person|session`: who has written where. */
  people: string;
  /** ZSET root -> ms of the end of the child session that has ended first of those kept. */
  childRoots: string;
  /** HASH: the highest numbers that sessions had when they were removed; see `beginLife`. */
  highest: string;
  /** STRING: a message was taken back by its sender, perhaps before it was stored. */
  recalledOf(app: string, messageId: string): string;
  /** STREAM: what a runner has handed in about calls of the cell's sessions; no other one can write there. */
  handoffOf(runner: string): string;
  /** STRING: the answer to a question of a runner whether a call may start. */
  answerOf(runner: string, ask: string): string;
}

export interface SessionKeys extends CellKeys {
  /** HASH: state, generation, counters, outbox lease. */
  session: string;
  /** HASH that only workers write: epoch, checkpoint, summary, settings; what is content in it is sealed. */
  state: string;
  /** LIST of `seq:message`: waiting user messages, the running one first. */
  inbox: string;
  /** LIST of control entries; only workers write it. */
  control: string;
  /** LIST of cancels and decisions that no worker has taken into `control` yet. */
  requests: string;
  /** HASH callId -> `open <facts>` | `started <facts>` | `done`: the effect ledger of the running turn. */
  calls: string;
  /** LIST of all messages, append-only; compacted ones too. */
  history: string;
  /** HASH person -> kind of chat: who has written in this session. */
  who: string;
  /** HASH of the root: child session at work -> what is known of it, and `steps <run>` -> model steps of all below a run. */
  children: string;
  /** ZSET of the root: child session -> ms of its end. */
  endedChildren: string;
  /** STREAM of event batches; an entry's id is the seq of its last event. */
  events: string;
  /** Channel on which event batches are published. */
  channel: string;
  /** LIST of unsent replies, oldest first. */
  outbox: string;
  /** HASH replyId -> what is known of its cards. */
  cards: string;
  /** HASH path -> file of the session's working folder; only workers write it. */
  files: string;
  /** What the keys of the session's approvals begin with; nothing has this key itself. */
  approvals: string;
  /** HASH: one approval as it was asked for. */
  approvalOf(approvalId: string): string;
  /** What the keys begin with that hold what was said about approvals. */
  said: string;
  /** HASH: state, decisions and cards of one approval. */
  saidOf(approvalId: string): string;
  /** ZSET approvalId -> ms of creation; those that are pending. */
  pending: string;
  /** ZSET approvalId -> ms when it may be forgotten; all that are kept. */
  kept: string;
  /** Key under which a message id of an app is remembered. */
  seenOf(app: string, messageId: string): string;
  /** Key of a message that waits for a decision of its sender. */
  parkedOf(messageId: string): string;
}

/** Permission rules of one app; all in the slot of the audit log outside the cells. */
interface RuleKeys {
  /** HASH ruleId -> rule, revoked ones included; only workers write it. */
  rules: string;
  /** HASH ruleId -> who has revoked it, and when. */
  revoked: string;
  /** ZSET ruleId -> ms of expiry, of all rules. */
  byExpiry: string;
  /** ZSET ruleId -> ms of expiry, of the rules of one chat that are not revoked. */
  ofChat(chatId: string): string;
  /** SET of approvals of one kind. */
  approved(kind: string): string;
  /** STREAM of audit records that belong to no session. */
  audit: string;
}

/** What is remembered of one person or chat, in all tenants; in a slot of its own. */
export interface MemoryKeys {
  /** ZSET `<tenant>.<id>` -> ms of the last use; those that have expired by themselves are removed when it is read. */
  memories: string;
  /** What the keys of the memories begin with; nothing has this key itself. */
  memory: string;
  /** HASH: one memory. */
  memoryOf(member: string): string;
  /** ZSET `<tenant>.<id>` -> ms: calls whose memory was taken away, which must not come back with a repeated call. */
  forgotten: string;
  /** STRING: the person wants nothing remembered. */
  off: string;
  /** STRING: many memories as a look-up reads them, for minutes; removed with each of them. */
  lookUp: string;
}

interface RatingKeys {
  /** What the keys of ratings begin with: `<key>:<run> <person>`, a HASH. */
  ratings: string;
  /** ZSET `<run> <person>` -> ms of the last word. */
  byTime: string;
}

/** Traces of messages, of ten minutes. */
export interface TraceWindowKeys {
  /** LIST of lines of ingress: which record has entries of which traces, and what these are about. */
  names: string;
  /** LIST of lines of all other processes: which record has entries of which traces. */
  records: string;
  /** STRING: what a process has written at once, entries by trace. */
  record(id: string): string;
}

/** Names all keys of one namespace. */
export interface Keyspace {
  cells(): CellKeys[];
  session(session: SessionKey): SessionKeys;
  /** HASH facts, bytes of one blob, in a slot of its own: large values spread over the nodes. */
  blob(blobId: string): string;
  /** STRING of one looked-up fact; without a tag, so that they spread over the nodes. */
  lookup(name: string): string;
  /** STRING: session of an approval; without a tag, as lookups. */
  approval(approvalId: string): string;
  rules(app: string): RuleKeys;
  /** `owner`: a hash, so that no name of a person is in a key. */
  memories(owner: string): MemoryKeys;
  /** What was observed within a span of time; all of it in one slot. */
  traceWindow(window: number): TraceWindowKeys;
  /** LIST of the records of runs that were written within ten minutes. */
  runs(window: number): string;
  /** A key of what runs have used, all of them in one slot: a process hands in several buckets at once. */
  usage(name: string): string;
  /** How people have rated answers, in one slot. */
  ratings(): RatingKeys;
  /** HASH message -> the run whose answer it shows, of those sent within a day. */
  ratedReplies(day: number): string;
  /** LIST of the entries of one trace, as the version before has written them. */
  trace(traceId: string): string;
  /** ZSET trace id -> ms: the traces of a message, chat or person, as the version before has written them. */
  tracesOf(kind: string, id: string): string;
  /** A key of an app's limits, all of them in one slot: a script takes from several at once. */
  rates(app: string, name: string): string;
  /** A key of what was spent, all of them in one slot: a charge counts for several spenders at once. */
  budget(name: string): string;
  /** A key outside the cells, in a slot of its own tag. */
  global(name: string): string;
}

/** The indexes of all cells, with what their keys begin with. */
function cellsOf(namespace: string): (CellKeys & { base: string })[] {
  return Array.from({ length: cellCount }, (_, cell) => {
    const base = `{${namespace}:${cell}}`;
    return {
      base,
      dirty: `${base}:dirty`,
      deadlines: `${base}:deadlines`,
      due: `${base}:due`,
      openCards: `${base}:open-cards`,
      expiries: `${base}:expiries`,
      approvalCards: `${base}:approval-cards`,
      letters: `${base}:letters`,
      lettersByTime: `${base}:letters-by-time`,
      audit: `${base}:audit`,
      ended: `${base}:ended`,
      untended: `${base}:untended`,
      people: `${base}:people`,
      childRoots: `${base}:child-roots`,
      highest: `${base}:floor`,
      recalledOf: (app: string, messageId: string) => `${base}:recalled:${app}:${messageId}`,
      handoffOf: (runner: string) => `${base}:handoff:${runner}`,
      answerOf: (runner: string, ask: string) => `${base}:begun:${runner}:${ask}`,
    };
  });
}

function keysOf(session: SessionKey, cells: ReturnType<typeof cellsOf>): SessionKeys {
  const cell = cells[cellOf(session)];
  if (cell === undefined) throw new RangeError("cell out of range");
  const { base, ...indexes } = cell;
  const approvals = `${base}:approval:${session}`;
  const said = `${base}:said:${session}`;
  return {
    ...indexes,
    session: `${base}:s:${session}`,
    state: `${base}:state:${session}`,
    inbox: `${base}:in:${session}`,
    control: `${base}:ctl:${session}`,
    requests: `${base}:req:${session}`,
    calls: `${base}:calls:${session}`,
    history: `${base}:h:${session}`,
    who: `${base}:who:${session}`,
    children: `${base}:children:${rootSessionOf(session)}`,
    endedChildren: `${base}:ended-children:${rootSessionOf(session)}`,
    events: `${base}:ev:${session}`,
    channel: `${base}:ch:${session}`,
    outbox: `${base}:ob:${session}`,
    cards: `${base}:cards:${session}`,
    files: `${base}:files:${session}`,
    approvals,
    approvalOf: (approvalId) => `${approvals}:${approvalId}`,
    said,
    saidOf: (approvalId) => `${said}:${approvalId}`,
    pending: `${base}:pending:${session}`,
    kept: `${base}:approvals:${session}`,
    seenOf: (app, messageId) => `${base}:seen:${session}:${app}:${messageId}`,
    parkedOf: (messageId) => `${base}:parked:${session}:${messageId}`,
  };
}

/** The last one that was made. */
let shared: { namespace: string; keyspace: Keyspace } | undefined;

/** All stores of a process have one namespace, and share the keys that one of them has put together. */
export function createKeyspace(namespace: string = defaultNamespace): Keyspace {
  if (shared?.namespace !== namespace) shared = { namespace, keyspace: newKeyspace(namespace) };
  return shared.keyspace;
}

function newKeyspace(namespace: string): Keyspace {
  const cells = cellsOf(namespace);
  // Cached, because a turn asks for them some ten times, and they are some forty texts.
  const sessions = new LRUCache<SessionKey, SessionKeys>({ max: 500 });
  const global = (name: string): string => `{${namespace}}:${name}`;
  return {
    cells: () => cells,
    session: (session) => {
      const known = sessions.get(session);
      if (known !== undefined) return known;
      const keys = keysOf(session, cells);
      sessions.set(session, keys);
      return keys;
    },
    blob: (blobId) => `{${namespace}:blob:${blobId}}`,
    lookup: (name) => `${namespace}:look:${name}`,
    approval: (approvalId) => `${namespace}:approval:${approvalId}`,
    rules: (app) => ({
      rules: global(`rules:${app}`),
      revoked: global(`rules-revoked:${app}`),
      byExpiry: global(`rules-by-expiry:${app}`),
      ofChat: (chatId) => global(`rules-of-chat:${app}:${chatId}`),
      approved: (kind) => global(`approved:${app}:${kind}`),
      audit: global("audit"),
    }),
    memories: (owner) => {
      const tag = `{${namespace}:memory:${owner}}`;
      const memory = `${tag}:of`;
      return {
        memories: `${tag}:all`,
        memory,
        memoryOf: (member) => `${memory}:${member}`,
        forgotten: `${tag}:forgotten`,
        off: `${tag}:off`,
        lookUp: `${tag}:look-up`,
      };
    },
    traceWindow: (window) => {
      const tag = `{${namespace}:trace:${window}}`;
      return { names: `${tag}:names`, records: `${tag}:records`, record: (id) => `${tag}:record:${id}` };
    },
    runs: (window) => `{${namespace}:runs:${window}}:list`,
    usage: (name) => `{${namespace}:usage}:${name}`,
    ratings: () => ({ ratings: `{${namespace}:ratings}:of`, byTime: `{${namespace}:ratings}:by-time` }),
    ratedReplies: (day) => `{${namespace}:rated:${day}}:replies`,
    trace: (traceId) => `{${namespace}:trace:${cellOf(traceId)}}:of:${traceId}`,
    tracesOf: (kind, id) => `{${namespace}:trace:${cellOf(id)}}:by-${kind}:${id}`,
    rates: (app, name) => `{${namespace}:rate:${app}}:${name}`,
    budget: (name) => `{${namespace}:budget}:${name}`,
    global,
  };
}
