import type { ApprovalStore, RunnerDirectory, SessionStore, StaleSession } from "@larkline/store";
import { sharedNow, type CallState, type TurnState } from "@larkline/protocol";
import type { TurnQueue } from "@larkline/queue";
import { sweepExpiries } from "./approval-sweep.ts";
import { sweepDeadlines } from "./deadline-sweep.ts";

/** Which workers live. */
export interface Presence {
  alive(ids: readonly string[]): Promise<Set<string>>;
  takeDuty(duty: string, id: string, ttlMs: number): Promise<boolean>;
}

export interface SweeperOptions {
  store: SessionStore;
  turns: TurnQueue;
  approvals: Pick<ApprovalStore, "dueExpiries" | "settle">;
  directory: Pick<RunnerDirectory, "runners">;
  presence: Presence;
  /** What runners have handed in without a ring that anybody heard. */
  handoffs: { sweep(living: readonly string[]): Promise<void> };
  /** Tries the outbox of a session; must not throw. */
  deliverOutbox: (session: string) => Promise<void>;
  /** Whether the beats of all workers that live are there. */
  isSteady: () => boolean;
  owner: string;
  intervalMs: number;
  /** How long a session may show no sign of life before it is looked at. */
  staleMs: number;
  /** Each looks after cards of one kind; `signal` breaks it off. */
  cardSweeps: readonly ((signal: AbortSignal) => Promise<void>)[];
  onHealed: (what: "wake" | "crash" | "deadline" | "expiry" | "outbox", count: number) => void;
  /** Told of a call that was answered because its time was over. */
  onLate: (turn: TurnState, call: CallState) => void;
  onError: (error: unknown) => void;
}

const batch = 200;
/** Running sessions looked at in one pass for a dead owner. */
const manyRunning = 2_000;
/** A session that was touched more recently is surely being run. */
const orphanMs = 500;

/**
 * Finds what was left lying: sessions of dead workers, lost wake-ups, calls and approvals past their
 * time, unsent replies, cards that do not show how things are. Every worker may run it; one at a time
 * does. Everything it does can be done twice.
 */
export function startSweeper(options: SweeperOptions): { close(): Promise<void> } {
  let closed = false;
  let timer: NodeJS.Timeout | undefined;
  let pass: Promise<void> = Promise.resolve();
  const closing = new AbortController();
  const cards = options.cardSweeps.map((sweepCards) => besideOthers(sweepCards, options.onError, closing.signal));

  const sweep = async (): Promise<void> => {
    try {
      if (await options.presence.takeDuty("sweep", options.owner, options.intervalMs - 50)) {
        for (const card of cards) card.start();
        await sweepAll(options);
      }
    } catch (error) {
      options.onError(error);
    }
    if (!closed) timer = setTimeout(start, options.intervalMs);
  };
  const start = (): void => {
    pass = sweep();
  };
  timer = setTimeout(start, options.intervalMs);
  return {
    close: async () => {
      closed = true;
      closing.abort();
      clearTimeout(timer);
      await pass;
      await Promise.all(cards.map(async (card) => await card.ended()));
    },
  };
}

/** What fails in one part keeps no other from its work. */
async function sweepAll(options: SweeperOptions): Promise<void> {
  const parts = [sweepHandoffs, sweepSessions, sweepDeadlines, sweepExpiries, sweepOutboxes];
  const ended = await Promise.allSettled(parts.map(async (part) => await part(options)));
  for (const end of ended) if (end.status === "rejected") options.onError(end.reason);
}

async function sweepHandoffs({ handoffs, directory }: SweeperOptions): Promise<void> {
  const living = await directory.runners();
  await handoffs.sweep(living.map(({ runner }) => runner));
}

/** A sweep that talks to Feishu: nothing else waits for it, and it begins anew only when it is over. */
function besideOthers(
  sweep: (signal: AbortSignal) => Promise<void>,
  onError: (error: unknown) => void,
  signal: AbortSignal,
): { start(): void; ended(): Promise<void> } {
  let running: Promise<void> | undefined;
  return {
    start: () => {
      running ??= sweep(signal)
        .catch(onError)
        .finally(() => (running = undefined));
    },
    ended: async () => await running,
  };
}

/** Sessions of dead workers are taken up at once; others are looked at when nothing has moved for longer. */
async function sweepSessions(options: SweeperOptions): Promise<void> {
  const nowMs = sharedNow();
  await sweepOrphans(options, nowMs - orphanMs);
  for (const session of await options.store.stale(nowMs - options.staleMs, batch)) {
    if (await isBeingRun(options, session)) await options.store.touch(session.session);
    else await healSession(options, session);
  }
}

async function sweepOrphans(options: SweeperOptions, beforeMs: number): Promise<void> {
  if (!options.isSteady()) return;
  const running = (await options.store.stale(beforeMs, manyRunning)).filter(({ state }) => state === "running");
  const alive = await options.presence.alive([...new Set(running.map(({ owner }) => owner))]);
  for (const session of running) if (!alive.has(session.owner)) await healSession(options, session);
}

/** A claim lives within the job of its generation: without the job nobody runs the session, whoever lives. */
async function isBeingRun({ turns }: SweeperOptions, { state, session, gen }: StaleSession): Promise<boolean> {
  return state === "running" && (await turns.alive(session, gen));
}

async function healSession({ store, turns, onHealed }: SweeperOptions, stale: StaleSession): Promise<void> {
  const gen = await store.heal(stale.session, stale.gen);
  if (gen === undefined) return;
  const added = await turns.ensure(stale.session, gen);
  if (added) onHealed(stale.state === "running" ? "crash" : "wake", 1);
}

async function sweepOutboxes({ store, deliverOutbox, onHealed }: SweeperOptions): Promise<void> {
  const due = await store.dueOutboxes(sharedNow(), batch);
  await Promise.all(due.map(async (session) => await deliverOutbox(session)));
  if (due.length > 0) onHealed("outbox", due.length);
}
