import type { RedisConnection } from "./connection.ts";
import { type CellKeys, createKeyspace, defaultNamespace } from "./keys.ts";
import { runScript, script } from "./script.ts";

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

export interface GateStateOptions {
  redis: RedisConnection;
  namespace?: string;
}

/** Members of an index looked at per cell: one reading takes the server a few milliseconds at most. */
const maxMembers = 5_000;
/** Messages and replies looked at per cell; the least recently touched ones. */
const maxHeads = 500;

const gateState = script("gate-state");

type CellState = [
  queued: number,
  running: number,
  suspended: number,
  oldestQueued: number,
  oldestRunning: number,
  outboxes: number,
  oldestReply: number,
  calls: number,
  approvals: number,
];

function sumOf(cells: readonly CellState[], at: number): number {
  return cells.reduce((sum, cell) => sum + (cell[at] ?? 0), 0);
}

function oldestOf(cells: readonly CellState[], at: number): number | undefined {
  const times = cells.map((cell) => cell[at] ?? 0).filter((time) => time > 0);
  return times.length === 0 ? undefined : Math.min(...times);
}

function stateOf(cells: readonly CellState[]): GateState {
  const [queued, running, reply] = [oldestOf(cells, 3), oldestOf(cells, 4), oldestOf(cells, 6)];
  return {
    sessions: { queued: sumOf(cells, 0), running: sumOf(cells, 1), suspended: sumOf(cells, 2) },
    oldestMessageAtMs: {
      ...(queued === undefined ? {} : { queued }),
      ...(running === undefined ? {} : { running }),
    },
    outboxes: sumOf(cells, 5),
    ...(reply === undefined ? {} : { oldestReplyAtMs: reply }),
    openCalls: sumOf(cells, 7),
    openApprovals: sumOf(cells, 8),
  };
}

/**
 * Reads how all sessions are, by one script per cell. With more than 5,000 sessions awake in a cell, or calls
 * and questions open, those beyond are not told apart by state; times are those of the 500 that were touched
 * least recently.
 */
export function createGateStateReader({
  redis,
  namespace = defaultNamespace,
}: GateStateOptions): () => Promise<GateState> {
  const keys = createKeyspace(namespace);
  const readCell = async (cell: CellKeys): Promise<CellState> => {
    const base = cell.dirty.slice(0, -"dirty".length);
    const prefixes = { sessions: `${base}s:`, inboxes: `${base}in:`, outboxes: `${base}ob:` };
    return (await runScript(redis, gateState, cell, { ...prefixes, maxMembers, maxHeads })) as CellState; // as the script returns it
  };
  return async () => stateOf(await Promise.all(keys.cells().map(readCell)));
}
