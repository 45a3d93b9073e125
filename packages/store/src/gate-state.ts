import type { RedisConnection } from "./connection.ts";
import { createKeyspace, defaultNamespace, type CellKeys } from "./keys.ts";
import { defineScript } from "./script.ts";

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

/**
 * -> {queued, running, suspended, oldest queued, oldest running, outboxes, oldest reply, calls, approvals};
 * times in ms, 0 when there is none. A session that is not awake and waits for calls or people is suspended.
 */
const stateLua = `
-- KEYS dirty deadlines expiries due | ARGV sessions inboxes outboxes maxMembers maxHeads
local function older(known, json)
  local at = json and tonumber(string.match(json, '"createdAtMs":(%d+)'))
  return at and (known == 0 or at < known) and at or known
end
local count, oldest, awake = {queued = 0, running = 0}, {queued = 0, running = 0}, {}
for i, sid in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[4] - 1)) do
  awake[sid] = true
  local st = redis.call('HGET', ARGV[1] .. sid, 'st')
  if count[st] then
    count[st] = count[st] + 1
    if i <= tonumber(ARGV[5]) then oldest[st] = older(oldest[st], redis.call('LINDEX', ARGV[2] .. sid, 0)) end
  end
end
local suspended = 0
for _, index in ipairs({KEYS[2], KEYS[3]}) do
  for _, member in ipairs(redis.call('ZRANGE', index, 0, ARGV[4] - 1)) do
    local sid = string.match(member, '^([^|]*)|')
    if sid and not awake[sid] then
      awake[sid] = true
      suspended = suspended + 1
    end
  end
end
local reply = 0
for _, sid in ipairs(redis.call('ZRANGE', KEYS[4], 0, ARGV[5] - 1)) do
  reply = older(reply, redis.call('LINDEX', ARGV[3] .. sid, 0))
end
return {count.queued, count.running, suspended, oldest.queued, oldest.running,
  redis.call('ZCARD', KEYS[4]), reply, redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3])}`;

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
  const read = defineScript(redis, "gate_state", stateLua);
  const readCell = async ({ dirty, deadlines, expiries, due }: CellKeys): Promise<CellState> => {
    const base = dirty.slice(0, -"dirty".length);
    const prefixes = [`${base}s:`, `${base}in:`, `${base}ob:`];
    return (await read([dirty, deadlines, expiries, due], [...prefixes, maxMembers, maxHeads])) as CellState; // as the script returns it
  };
  return async () => stateOf(await Promise.all(keys.cells().map(readCell)));
}
