import type { DeliverResult, RunnerDirectory, SessionStore, StaleSession } from "@larkline/session";
import type { ToolQueues, TurnQueue } from "@larkline/queue";

/** Which workers live. */
export interface Presence {
  alive(ids: readonly string[]): Promise<Set<string>>;
  takeDuty(duty: string, id: string, ttlMs: number): Promise<boolean>;
}

export interface SweeperOptions {
  store: SessionStore;
  turns: TurnQueue;
  tools: Pick<ToolQueues, "drain">;
  directory: Pick<RunnerDirectory, "runners">;
  presence: Presence;
  /** Tries the outbox of a session; must not throw. */
  deliverOutbox: (session: string) => Promise<void>;
  owner: string;
  intervalMs: number;
  /** How long a session may show no sign of life before it is looked at. */
  staleMs: number;
  /** Looks after cards that nobody writes any more. */
  sweepCards: (signal: AbortSignal) => Promise<void>;
  onHealed: (what: "wake" | "crash" | "deadline" | "outbox" | "runner", count: number) => void;
  onError: (error: unknown) => void;
}

const batch = 200;
/** Running sessions looked at in one pass for a dead owner. */
const manyRunning = 2_000;
/** A session that was touched more recently is surely being run. */
const orphanMs = 500;

/**
 * Finds what was left lying: sessions of dead workers, lost wake-ups, calls past their deadline,
 * unsent replies, queues of runners that are gone. Every worker may run it; one at a time does.
 * Everything it does can be done twice.
 */
export function startSweeper(options: SweeperOptions): { close(): Promise<void> } {
  const seenRunners = new Map<string, number>();
  let closed = false;
  let timer: NodeJS.Timeout | undefined;
  let pass: Promise<void> = Promise.resolve();
  // Beside the passes: it talks to Feishu, and nothing else may wait for that.
  let cards: Promise<void> | undefined;
  const closing = new AbortController();
  const sweepCards = (): void => {
    cards ??= options
      .sweepCards(closing.signal)
      .catch(options.onError)
      .finally(() => (cards = undefined));
  };

  const sweep = async (): Promise<void> => {
    try {
      if (await options.presence.takeDuty("sweep", options.owner, options.intervalMs - 50)) {
        await Promise.all([sweepSessions(options), sweepDeadlines(options), sweepOutboxes(options)]);
        await sweepRunners(options, seenRunners);
        sweepCards();
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
      await cards;
    },
  };
}

/** Sessions of dead workers are taken up at once; others are looked at when nothing has moved for longer. */
async function sweepSessions(options: SweeperOptions): Promise<void> {
  const nowMs = Date.now();
  await sweepOrphans(options, nowMs - orphanMs);
  for (const session of await options.store.stale(nowMs - options.staleMs, batch)) {
    if (await isBeingRun(options, session)) await options.store.touch(session.session);
    else await healSession(options, session);
  }
}

async function sweepOrphans(options: SweeperOptions, beforeMs: number): Promise<void> {
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

async function sweepDeadlines({ store, turns, onHealed }: SweeperOptions): Promise<void> {
  for (const { session, callId } of await store.dueDeadlines(Date.now(), batch)) {
    const error = "timeout: no answer before the deadline. It is not known whether the call took effect.";
    await wakeAfter(turns, session, await store.deliver(session, callId, { ok: false, error }));
    onHealed("deadline", 1);
  }
}

/** Adds the wake-up that a delivery asks for. */
export async function wakeAfter(
  turns: Pick<TurnQueue, "wake">,
  session: string,
  { wakeGen }: DeliverResult,
): Promise<void> {
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
}

async function sweepOutboxes({ store, deliverOutbox, onHealed }: SweeperOptions): Promise<void> {
  const due = await store.dueOutboxes(Date.now(), batch);
  await Promise.all(due.map(async (session) => await deliverOutbox(session)));
  if (due.length > 0) onHealed("outbox", due.length);
}

// A runner that restarts comes back within seconds; until then its calls wait for it.
const runnerGraceMs = 15_000;

async function sweepRunners(options: SweeperOptions, seen: Map<string, number>): Promise<void> {
  const nowMs = Date.now();
  for (const { runner } of await options.directory.runners()) seen.set(runner, nowMs);
  for (const [runner, lastSeenMs] of seen) {
    if (nowMs - lastSeenMs < runnerGraceMs) continue;
    seen.delete(runner);
    const drained = await options.tools.drain(runner, async ({ session, callId }) => {
      const error = `tool_not_found: the runner '${runner}' is gone. The call was not run.`;
      await wakeAfter(options.turns, session, await options.store.deliver(session, callId, { ok: false, error }));
    });
    if (drained > 0) options.onHealed("runner", drained);
  }
}
