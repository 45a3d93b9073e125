import { attemptOf } from "@larkline/agent";
import { endOrphan } from "@larkline/feishu";
import type { Telemetry } from "@larkline/process/telemetry";
import { turnIdOf, type SessionKey } from "@larkline/protocol";
import { builtInRunner, type ToolOutcome } from "@larkline/protocol/tool";
import { traceparentOfMessage } from "@larkline/protocol/trace";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import type { CardReply, StaleSession } from "@larkline/store";
import { sweepGrants } from "./grants.ts";
import { endsLate } from "./helpers.ts";
import { sweepSchedules } from "./schedules.ts";
import { sweepSubscriptions } from "./subscriptions.ts";
import type { Services } from "./services.ts";
import { wakeAfter } from "./tools.ts";

// What every worker does beside turns: the sweeper continues work that dead processes or lost messages have left
// unfinished. Stored data is handled in data-keeping.ts, orders of operators in operator-orders.ts.

/** Pause between two sweeps. */
const sweepEveryMs = 1_000;
/** Running sessions looked at in one sweep for a dead worker. */
const manyRunning = 2_000;
/** A running session that has not changed for so long: the sweeper asks whether its worker lives. */
const orphanMs = 500;
/** Living workers notice a death up to so far apart; one of them takes the duty. */
const orphanDutyMs = 150;
/** Pause between two looks of a worker for sessions that only Redis takes for its own. */
const ownEveryMs = 5_000;
/** A session that has not changed for so long: the sweeper looks for its job. */
const staleMs = 3_000;
/** Sessions, calls or approvals of one kind that one sweep looks at. */
const portion = 200;

/** Knows which sessions have a run in this process. */
interface SessionHolder {
  holds(session: SessionKey): boolean;
}

/**
 * Finds unfinished work: sessions of dead workers, lost wake-ups, calls and approvals past their deadline, unsent
 * replies, cards that do not show the present state, schedules that are due, grants that end. Every worker may run it,
 * one at a time does. Each of its actions may be repeated.
 */
export function startSweeper(
  services: Services,
  runner: SessionHolder,
): { close(): Promise<void> } {
  const { presence, owner, clock, log } = services;
  let closed = false;
  let hasReturned = false;
  let lookedAtMs = clock.monotonic();
  let pass: Promise<void> = Promise.resolve();
  const closing = new AbortController();
  const atPlatform = [sweepCards, sweepApprovalCards, sweepGrants, sweepSubscriptions].map(
    (sweepOnce) => besideOthers(services, sweepOnce, closing.signal),
  );

  const sweep = async (): Promise<void> => {
    try {
      if (hasReturned) await wakeCallers(services);
      hasReturned = false;
      if (await presence.takeDuty("sweep", owner, sweepEveryMs - 50)) {
        for (const each of atPlatform) each.start();
        await sweepAll(services);
      }
      if (clock.monotonic() - lookedAtMs >= ownEveryMs) {
        lookedAtMs = clock.monotonic();
        await sweepOwn(services, runner);
      }
    } catch (error) {
      log.warn({ error }, "sweep");
    }
    if (!closed) cancelNext = clock.after(sweepEveryMs, start);
  };
  const start = (): void => {
    pass = sweep();
  };
  let cancelNext = clock.after(sweepEveryMs, start);
  presence.onReturned(() => {
    hasReturned = true;
  });
  presence.onEnded(() => {
    if (!closed) void sweepEnded(services);
  });
  return {
    close: async () => {
      closed = true;
      closing.abort();
      cancelNext();
      await pass;
      await Promise.all(atPlatform.map(async (each) => await each.ended()));
    },
  };
}

/** A sweep that calls Feishu. No other work waits for it, and two rounds of it never overlap. */
function besideOthers(
  services: Services,
  sweep: (services: Services, signal: AbortSignal) => Promise<void>,
  signal: AbortSignal,
): { start(): void; ended(): Promise<void> } {
  let running: Promise<void> | undefined;
  return {
    start: () => {
      running ??= sweep(services, signal)
        .catch((error: unknown) => services.log.warn({ error }, "sweep"))
        .finally(() => (running = undefined));
    },
    ended: async () => await running,
  };
}

/** All workers notice the return of Redis within so long; one of them takes the duty. */
const callersDutyMs = 10_000;

/**
 * Redis may have come back without its last writes: then the job of a call is missing, or its outcome, which nothing
 * but the deadline of the call would show. Wakes the turns that wait for calls: a turn hands out again what has no
 * answer, under the same ids, and the ledger decides what may run.
 */
async function wakeCallers(services: Services): Promise<void> {
  const { store, presence, owner } = services;
  if (!(await presence.takeDuty("callers", owner, callersDutyMs))) return;
  const waiting = await store.dueDeadlines(Number.MAX_SAFE_INTEGER, manyRunning);
  const sessions = new Set(
    waiting.flatMap(({ session, callId }) => (callId === "" ? [] : [session])),
  );
  await eachOf(
    [...sessions],
    async (session) => await wakeAfter(services, session, await store.wakeDue(session)),
  );
}

/**
 * Takes the sessions of dead workers. Of the workers that notice a death one does so; if it fails, the next sweep does.
 */
async function sweepEnded(services: Services): Promise<void> {
  const { presence, owner, clock, log } = services;
  try {
    const isOurs = await presence.takeDuty("orphans", owner, orphanDutyMs);
    if (isOurs) await sweepOrphans(services, clock.now());
  } catch (error) {
    log.warn({ error }, "sweep");
  }
}

/** A failure in one part does not stop the others. */
async function sweepAll(services: Services): Promise<void> {
  const parts = [
    sweepHandoffs,
    sweepSessions,
    sweepDeadlines,
    sweepExpiries,
    sweepOutboxes,
    sweepSchedules,
  ];
  const ended = await Promise.allSettled(parts.map(async (part) => await part(services)));
  for (const end of ended) {
    if (end.status === "rejected") services.log.warn({ error: end.reason }, "sweep");
  }
}

/** `of`: the session that it was, and the worker that had it last. */
function healed(
  { counters, log }: Services,
  what: string,
  count: number,
  of: { session?: SessionKey; worker?: string } = {},
): void {
  counters.healed.add(count, { what });
  log.info({ what, count, ...of }, "healed");
}

/** Entries of runners whose notification reached no worker. */
async function sweepHandoffs({ handoffs, runners }: Services): Promise<void> {
  await handoffs.sweep(await runners.names());
}

/** Sessions of dead workers are taken up at once; others are looked at when nothing has moved for longer. */
async function sweepSessions(services: Services): Promise<void> {
  const { store, clock } = services;
  const nowMs = clock.now();
  await sweepOrphans(services, nowMs - orphanMs);
  for (const session of await store.stale(nowMs - staleMs, portion)) {
    // Its worker lives: the others were healed just now.
    if (session.state === "running") await store.touch(session.session);
    else await healSession(services, session);
  }
}

async function sweepOrphans(services: Services, beforeMs: number): Promise<void> {
  const { store, presence } = services;
  const running = (await store.stale(beforeMs, manyRunning)).filter(
    ({ state }) => state === "running",
  );
  const fates = await presence.fatesOf([...new Set(running.map(({ owner }) => owner))]);
  for (const session of running) {
    if (fates.get(session.owner) !== "alive") await healSession(services, session);
  }
}

/**
 * Sessions that Redis takes for run by this worker, and that it does not run: a server that lost its last writes says
 * what was true before them. Every worker does this for itself, since to others it is alive.
 */
export async function sweepOwn(services: Services, runner: SessionHolder): Promise<void> {
  const { store, clock, owner } = services;
  const running = await store.stale(clock.now() - orphanMs, manyRunning);
  const own = running.filter((stale) => stale.state === "running" && stale.owner === owner);
  await eachOf(own, async (stale) => {
    if (!runner.holds(stale.session)) await healSession(services, stale);
  });
}

async function healSession(services: Services, stale: StaleSession): Promise<void> {
  const gen = await services.store.heal(stale.session, stale.gen, stale.owner);
  if (gen === undefined) return;
  const added = await services.turns.ensure(stale.session, gen);
  const { session, owner: worker } = stale;
  if (added) healed(services, stale.state === "running" ? "crash" : "wake", 1, { session, worker });
}

/**
 * Answers calls past their deadline: their runner is gone, or something took too long. A turn hands a call out again
 * that was not started because its runner was away. Wakes turns whose model step was put off until now.
 */
export async function sweepDeadlines(services: Services): Promise<void> {
  const { store, clock, runners } = services;
  const due = await store.dueDeadlines(clock.now(), portion);
  if (due.length === 0) return;
  const living = new Set((await runners.runners()).map(({ runner }) => runner));
  await eachOf(due, async ({ session, callId }) => {
    // A model step whose retry time has come; this is no failure.
    if (callId === "") return await wakeAfter(services, session, await store.wakeDue(session));
    await answerLate(services, session, callId, living);
  });
}

async function answerLate(
  services: Services,
  session: string,
  callId: string,
  living: ReadonlySet<string>,
): Promise<void> {
  const { store, telemetry } = services;
  const { turn } = await store.summary(session);
  const call = turn?.calls.find((one) => attemptOf(one) === callId);
  if (call?.helper !== undefined && (await endsLate(services, session, call))) return;
  // Whether it was started is for the ledger to say, at the moment in which it is answered. From then on nothing can
  // start the attempt; where its runner is away, the turn makes another one of it.
  const untouched = { unlessStarted: true, unstarted: true };
  const notRun = await store.deliver(session, callId, lateAnswer(call, false, living), untouched);
  const delivered = notRun.accepted
    ? notRun
    : await store.deliver(session, callId, lateAnswer(call, true, living));
  if (delivered.accepted && turn !== undefined && call !== undefined) {
    tellLate(telemetry, turn, call);
  }
  await wakeAfter(services, session, delivered);
  if (delivered.accepted) healed(services, "deadline", 1);
}

/** Emits the event for a call without an answer before its deadline. */
function tellLate({ events }: Telemetry, { message, turnId }: TurnState, call: CallState): void {
  const { session } = message;
  const { id, name: tool, runner = "" } = call;
  const tags = { traceparent: traceparentOfMessage(message), session, turn: turnId };
  events.emit({
    eventName: "turn.healed",
    attributes: { ...tags, what: "deadline", call: id, tool, runner },
  });
}

/** The outcome for a call without an answer before its deadline. */
function lateAnswer(
  call: CallState | undefined,
  started: boolean,
  living: ReadonlySet<string>,
): ToolOutcome {
  const { effect, runner = builtInRunner } = call ?? {};
  const isGone = runner !== builtInRunner && !living.has(runner);
  const reason = isGone
    ? `tool_not_found: the runner '${runner}' of this tool is not running, and the call was not answered in time.`
    : "timeout: no answer before the deadline.";
  // The ledger has no starts of pure calls, which have no effect anyway, and none of built-in tools.
  if (runner === builtInRunner && effect !== "pure") {
    return { ok: false, error: `${reason} It may have taken effect.` };
  }
  if (!started) {
    return { ok: false, error: effect === "pure" ? reason : `${reason} The call was not run.` };
  }
  const error = `${reason} It had been started and may have taken effect.`;
  return effect === "once" ? { ok: false, error, unknown: true } : { ok: false, error };
}

/** Expires approvals that were not decided in time, and wakes the turns that wait for them. */
export async function sweepExpiries(services: Services): Promise<void> {
  const { approvals, clock, turns } = services;
  await eachOf(
    await approvals.dueExpiries(clock.now(), portion),
    async ({ session, approvalId }) => {
      const settled = await approvals.settle(session, approvalId, "expired");
      if (settled.result !== "settled" && settled.result !== "closed") return;
      if (settled.wakeGen !== undefined) await turns.wake(session, settled.wakeGen);
      if (settled.result === "settled") healed(services, "expiry", 1);
    },
  );
}

/** Sends replies that are due: those whose sender died, and those that have to be tried again. */
async function sweepOutboxes(services: Services): Promise<void> {
  const { store, clock, outboxSender } = services;
  const due = await store.dueOutboxes(clock.now(), portion);
  await Promise.all(
    due.map(async (session) => {
      const lease = await store.outbox.lease(session);
      if (lease !== undefined) void outboxSender.deliver(lease);
    }),
  );
  if (due.length > 0) healed(services, "outbox", due.length);
}

/** Approvals whose cards are worked on at a time. */
const cardsAtOnce = 10;

/** Works on cards that do not show the state of their approval: unsent ones, stale copies, those of workers that died. */
export async function sweepApprovalCards(
  { approvals, approvalCards, clock }: Services,
  signal: AbortSignal,
): Promise<void> {
  const due = await approvals.dueCards(clock.now(), portion);
  const work = async (): Promise<void> => {
    for (let next = due.shift(); next !== undefined && !signal.aborted; next = due.shift()) {
      await approvalCards.work(next.session, next.approvalId);
    }
  };
  await Promise.all(Array.from({ length: cardsAtOnce }, work));
}

/** Longer than any pause between two writes of a running turn. Cards of suspended turns are left alone. */
const untouchedCardMs = 15 * 60_000;
const repliesAtOnce = 50;

/**
 * Ends cards whose turn is gone without a trace (a failover lost its last writes): they would claim
 * to be generating until people stop looking. Everything else that is found is left for another while.
 */
export async function sweepCards(services: Services, signal: AbortSignal): Promise<void> {
  const { cards, clock, bots } = services;
  await eachOf(
    await cards.untouched(clock.now() - untouchedCardMs, repliesAtOnce),
    async ({ session, replyId }) => {
      if (signal.aborted) return;
      await cards.touch(session, replyId);
      const reply = await cards.load(session, replyId);
      const bot = reply === undefined ? undefined : bots.get(reply.app);
      if (reply === undefined || bot === undefined || !(await isOrphan(services, reply))) return;
      await endOrphan(bot.api, reply, signal);
      await cards.forget(session, replyId);
      healed(services, "card", 1);
    },
  );
}

/** A card has an owner as long as its turn is the one being answered, or messages of its session are unsent. */
async function isOrphan({ store }: Services, { session, replyId }: CardReply): Promise<boolean> {
  const { state, head, setAside, unsent } = await store.summary(session);
  const open = [
    ...(state === "idle" || head === undefined ? [] : [head]),
    ...setAside.map((turn) => turn.head),
  ];
  const isRunning = open.some(({ seq }) => turnIdOf(session, seq) === replyId);
  return !isRunning && unsent === 0;
}

/** Handles the items one after the other, also after a failure; at the end it rejects with the first failure. */
async function eachOf<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const failures: unknown[] = [];
  for (const item of items) await work(item).catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

/** Refresh interval of the pauses, for a worker that missed the notification, ms. */
const pausesRefreshMs = 2_000;

/** Keeps the pauses up to date. While Redis is away, the last known ones stay. */
export async function followPauses(
  { pauses, clock, log }: Services,
  signal: AbortSignal,
): Promise<void> {
  const refresh = (): void =>
    void pauses
      .refresh()
      .catch((error: unknown) => log.warn({ error }, "what is paused was not read"));
  await pauses.watch(refresh, signal);
  await pauses.refresh();
  signal.addEventListener("abort", clock.every(pausesRefreshMs, refresh), { once: true });
}
