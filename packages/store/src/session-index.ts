import type { SessionKey } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { type CellKeys, createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";
import type { ScriptReplies } from "./script-replies.ts";
import type { OutboxRecord } from "./session-types.ts";
import { outboxFrom } from "./stored.ts";

/** A session in a list. */
export interface IndexedSession {
  session: SessionKey;
  /** Epoch ms at which something last happened to it, as far as the index knows. */
  atMs: number;
}

/** Members of some indexes begin with the session and a bar, which session keys do not have. */
function sessionIn(member: string): string {
  const bar = member.indexOf("|");
  return bar < 0 ? member : member.slice(0, bar);
}

function indexesOf({ dirty, deadlines, expiries, due }: CellKeys): string[] {
  return [dirty, deadlines, expiries, due];
}

/** How many of the newest sessions of a cell are looked through. */
const recentPerCell = 500;

/** Finds sessions without going through all of them: for people who look. Every read is bounded. */
export class SessionIndex {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: StoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  /** Those that are queued, running, wait for tools or people, or hold unsent replies; each once, in no certain order. */
  async busy(limit: number): Promise<SessionKey[]> {
    const keys = this.#keys.cells().flatMap(indexesOf);
    const members = await Promise.all(
      keys.map(async (key) => await this.#redis.zrange(key, "0", String(limit - 1))),
    );
    return [...new Set(members.flat().map(sessionIn))].slice(0, limit);
  }

  /**
   * Those that finished a turn last, newest first; with `prefixes` only those whose key begins with one of them, as
   * far as they are among the newest few thousand.
   */
  async recent(limit: number, prefixes: readonly string[] = [""]): Promise<IndexedSession[]> {
    const lists = await Promise.all(
      this.#keys.cells().map(async ({ ended }) => await this.#recentIn(ended)),
    );
    return lists
      .flat()
      .filter(({ session }) => prefixes.some((prefix) => session.startsWith(prefix)))
      .sort((one, other) => other.atMs - one.atMs)
      .slice(0, limit);
  }

  async #recentIn(ended: string): Promise<IndexedSession[]> {
    const list = await this.#redis.zrevrange(ended, 0, recentPerCell - 1, "WITHSCORES");
    return list.flatMap((session, at) =>
      at % 2 === 0 ? [{ session, atMs: Number(list[at + 1]) }] : [],
    );
  }

  /** Those that a person has written in, in no certain order. */
  async ofPerson(person: string, limit: number): Promise<SessionKey[]> {
    const [from, to] = [`[${person}|`, `(${person}}`]; // the bar, and what comes after it
    const keys = this.#keys.cells().map(({ people }) => people);
    const members = await Promise.all(
      keys.map(async (key) => await this.#redis.zrangebylex(key, from, to, "LIMIT", 0, limit)),
    );
    return members
      .flat()
      .map((member) => member.slice(person.length + 1))
      .slice(0, limit);
  }

  /** Replies of a session that are not delivered, oldest first. */
  async unsent(session: SessionKey, limit: number): Promise<OutboxRecord[]> {
    const records = await this.#redis.lrange(this.#keys.session(session).outbox, 0, limit - 1);
    return records.map(outboxFrom);
  }

  /** The ledgers of a session as they stand; nothing waits, and nothing is changed. */
  async ledger(session: SessionKey): Promise<SessionLedger> {
    const keys = this.#keys.session(session);
    const [calls, outbox, dueAtMs] = await Promise.all([
      this.#redis.hgetall(keys.calls),
      this.#redis.lrange(keys.outbox, 0, maxUnsent - 1),
      this.#redis.zscore(keys.due, session),
    ]);
    const unsent = outbox.map(outboxFrom).map(({ id, attempts, createdAtMs, problem }) => ({
      id,
      attempts,
      createdAtMs,
      ...(problem === undefined ? {} : { problem }),
    }));
    return {
      calls: new Map(
        Object.entries(calls).flatMap(([id, stored]) =>
          id.includes(" ") ? [] : [[id, markOf(stored)] as const],
        ),
      ),
      unsent,
      ...(dueAtMs === null || unsent.length === 0 ? {} : { retryAtMs: Number(dueAtMs) }),
    };
  }

  /**
   * How all sessions are, by one script per cell. With more than 5,000 sessions awake in a cell, or calls and questions
   * open, those beyond are counted without their state; times are those of the 500 that were touched least recently.
   */
  async gateState(): Promise<GateState> {
    const cells = this.#keys.cells().map(async (cell) => {
      const base = cell.dirty.slice(0, -"dirty".length);
      const prefixes = { sessions: `${base}s:`, inboxes: `${base}in:`, outboxes: `${base}ob:` };
      const values = { ...prefixes, maxMembers, maxHeads };
      return await runScript(this.#redis, gateState, cell, values);
    });
    return stateOf(await Promise.all(cells));
  }
}

/** The state of an attempt of a call in the effect ledger. */
export type CallMark = "open" | "started" | "done";

/** A reply that is not delivered, without its content. */
export interface UnsentReply {
  id: string;
  attempts: number;
  createdAtMs: number;
  /** What the last try ended with. */
  problem?: string;
}

/** What one session has written down of work that is not done. */
export interface SessionLedger {
  /** By id of the attempt; calls of the running turn only. */
  calls: ReadonlyMap<string, CallMark>;
  /** Oldest first. */
  unsent: readonly UnsentReply[];
  /** When the oldest of them is tried next, epoch ms. */
  retryAtMs?: number;
}

/** Replies that are read; a session has more only while its platform is away. */
const maxUnsent = 50;

function markOf(stored: string): CallMark {
  const [word = ""] = stored.split(" ", 1);
  return word === "open" || word === "started" ? word : "done";
}

/** How all sessions are, as monitoring sees them. */
export interface GateState {
  sessions: Record<"queued" | "running" | "suspended", number>;
  /** Epoch ms of the oldest message that heads the inbox of such a session. */
  oldestMessageAtMs: Partial<Record<"queued" | "running", number>>;
  /** Sessions with replies that the platform has not confirmed. */
  outboxes: number;
  /** Epoch ms at which the oldest of those was written. */
  oldestReplyAtMs?: number;
  /** Tool calls without an outcome. */
  openCalls: number;
  /** Questions to people that are not settled. */
  openApprovals: number;
}

/** Members of an index looked at per cell: one reading takes the server a few milliseconds at most. */
const maxMembers = 5_000;
/** Messages and replies looked at per cell; the least recently touched ones. */
const maxHeads = 500;

const gateState = script("gate-state");

type CellState = ScriptReplies["gate-state"];

function stateOf(cells: readonly CellState[]): GateState {
  const sumOf = (count: keyof CellState): number =>
    cells.reduce((sum, cell) => sum + cell[count], 0);
  const oldestOf = (time: keyof CellState): number | undefined => {
    const times = cells.map((cell) => cell[time]).filter((atMs) => atMs > 0);
    return times.length === 0 ? undefined : Math.min(...times);
  };
  const [queued, running, reply] = [
    oldestOf("oldestQueued"),
    oldestOf("oldestRunning"),
    oldestOf("oldestReply"),
  ];
  return {
    sessions: { queued: sumOf("queued"), running: sumOf("running"), suspended: sumOf("suspended") },
    oldestMessageAtMs: {
      ...(queued === undefined ? {} : { queued }),
      ...(running === undefined ? {} : { running }),
    },
    outboxes: sumOf("outboxes"),
    ...(reply === undefined ? {} : { oldestReplyAtMs: reply }),
    openCalls: sumOf("calls"),
    openApprovals: sumOf("approvals"),
  };
}
