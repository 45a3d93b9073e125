import { setImmediate, setTimeout as delay } from "node:timers/promises";
import {
  isCanary,
  newEngineError,
  turnIdOf,
  type InboundMessage,
  type ModelFailure,
  type SessionKey,
  type TurnJob,
  traceIdOf,
  traceparentOfMessage,
  sharedNow,
} from "@larkline/protocol";
import type { JobResult, TurnQueue } from "@larkline/queue";
import {
  type Claim,
  ClaimRefusedError,
  type DeadLetters,
  type EventLog,
  type ExcuseResult,
  isRedisTrouble,
  type OutboxLease,
  type Presence,
  type SessionSettings,
  type SessionStore,
} from "@larkline/store";
import type { Telemetry, Logger } from "@larkline/process/telemetry";
import type { AgentSide } from "./agents.ts";
import type { TurnApprovals } from "./approvals.ts";
import type { TurnHolds } from "./turn-holds.ts";
import { type Dispatch, type StopCalls, type TurnEnd, type TurnStart, TurnRun } from "./turn-run.ts";
import { publishedBefore } from "./turn-store.ts";
import { watchTurn } from "./turn-watch.ts";

export interface SessionRunnerOptions {
  store: SessionStore;
  turns: Pick<TurnQueue, "wake">;
  /** Whether this process can speak where the session is; default: it can everywhere. */
  serves?: (session: SessionKey) => boolean;
  /** The agent of a message, under the choices of its session. */
  agent: (message: InboundMessage, choices: SessionSettings) => AgentSide;
  dispatch: Dispatch;
  stopCalls: StopCalls;
  approvals: TurnApprovals;
  running: RunningTurns;
  /** Turns that keep their slots while their calls run. */
  holds: TurnHolds;
  /** Starts sending a reply once `ready` has settled; must not throw. */
  deliver: (lease: OutboxLease, ready: Promise<void>) => void;
  /**
   * Told when the work on a message begins (again) that others may have come before, and when the work on any is over;
   * must not throw.
   */
  onMessage: (message: InboundMessage, what: "begins" | "ends") => void;
  /** For what a worker that died has published. */
  log: Pick<EventLog, "read">;
  /** Keeps word of a message that is about to be given up; absent: nobody does. Must not reject. */
  onGivenUp?: (message: InboundMessage, facts: { turnId: string; reason: string }) => Promise<void>;
  /** Told why this process does not take a session. */
  onRefused?: (session: SessionKey, refused: ClaimRefusedError) => void;
  /** Told of a run that ended because Redis is away or takes no writes; it is begun again when it does. */
  onTrouble?: (session: SessionKey, error: unknown) => void;
  /** Told what of a session's conversation cannot be read; the conversation goes on without. */
  onLost?: (session: SessionKey, lost: NonNullable<Claim["lost"]>) => void;
  /** Name of this worker, for its heartbeat. */
  owner: string;
  /** Whether a worker that has not given a session back has died; default: every one but this. */
  hasDied?: (owner: string) => Promise<boolean>;
  /** Where it is noted that a session could not be given back; absent: only this process knows. */
  presence?: Pick<Presence, "noteUnexcused" | "unexcused">;
  /** Errors of one message after which it is given up. */
  maxTries: number;
  /** Pause between looks for a cancel whose broadcast was missed, ms; 2 s if absent. */
  cancelPollMs?: number;
  /** Messages of one session taken in a row before others get their turn. */
  maxInRow: number;
  telemetry: Telemetry;
  onTurn: (end: { turnId: string; outcome: string; seconds: number; failure: ModelFailure | undefined }) => void;
}

/** Runs wake-up jobs: claims the session, runs what there is to run, gives it back. */
export function createSessionRunner(
  options: SessionRunnerOptions,
): (job: TurnJob, signal: AbortSignal, alone?: boolean) => Promise<JobResult> {
  const { store, owner, holds, serves = () => true } = options;
  /** Epochs of runs that could not be excused before their slot was given back. */
  const unexcused = new Map<SessionKey, string>();
  return async ({ session, gen }, signal, alone = false) => {
    if (!serves(session)) return "postpone";
    holds.jobBegins();
    if (alone) holds.makeRoom();
    try {
      const epoch = unexcused.get(session);
      if (epoch !== undefined) {
        if ((await excuse(options, { session, epoch })) === "later") return "postpone";
        unexcused.delete(session);
      }
      const claim = await store.claim(session, gen, owner, { alone, ...judging(options, session) });
      if (claim === undefined) return "done";
      if (claim.lost !== undefined) options.onLost?.(session, claim.lost);
      return await runClaim(options, claim, { shutdown: signal, alone }).catch(async (error: unknown) => {
        if (!isRedisTrouble(error)) throw error;
        const result = await excuseRun(options, claim, { error, shutdown: signal });
        if (result === "postpone") unexcused.set(session, claim.epoch);
        return result;
      });
    } catch (error) {
      if (!(error instanceof ClaimRefusedError)) throw error;
      options.onRefused?.(session, error);
      if (error.reason === "alone") holds.makeRoom();
      return error.reason === "alone" ? "alone" : "postpone";
    } finally {
      holds.jobEnds();
    }
  };
}

/** How a claim judges the worker that had the session before and has not given it back. */
function judging(
  { store, presence, hasDied }: SessionRunnerOptions,
  session: SessionKey,
): { hasDied?: (owner: string) => Promise<boolean> } {
  if (hasDied === undefined) return {};
  return {
    hasDied: async (last) => {
      // Its run was over, and it waited for Redis to take the session back: its end was no work of the message.
      const epoch = await presence?.unexcused(last, session);
      if (epoch !== undefined && (await store.excuse(session, epoch)).excused) return false;
      return await hasDied(last);
    },
  };
}

/** Pauses between looks whether Redis takes writes again, ms; the last one repeats. */
const excusePausesMs = [50, 100, 200, 400, 800];
/** How long a run that Redis has failed keeps its slot, ms: short outages are over by then. */
const excuseHoldMs = 3_000;
/** How long one look may wait for an answer, ms. */
const longestLookMs = 1_000;

/**
 * Redis has failed a run, which says nothing about its message: once writes are taken again the session is given back,
 * and nothing is counted. Where that takes longer than the hold, the slot is given to others and the job comes again;
 * the first claim after that excuses the run. The try counts where too many were excused already.
 */
async function excuseRun(
  options: SessionRunnerOptions,
  { session, gen, epoch }: Claim,
  { error, shutdown }: { error: unknown; shutdown: AbortSignal },
): Promise<JobResult> {
  options.onTrouble?.(session, error);
  const sinceMs = performance.now();
  for (let look = 0; ; look += 1) {
    const result = await excuse(options, { session, epoch });
    if (result !== "later") {
      if (!result.excused) throw error;
      // The job of the claim is put back; a sweeper, or a commit whose answer was lost, has asked for another one.
      if (result.wakeGen !== undefined && result.wakeGen !== gen) await options.turns.wake(session, result.wakeGen);
      return "requeue";
    }
    if (shutdown.aborted) throw error;
    const pauseMs = excusePausesMs[Math.min(look, excusePausesMs.length - 1)] ?? 0;
    if (performance.now() - sinceMs + pauseMs > excuseHoldMs) return "postpone";
    await delay(pauseMs, undefined, { signal: shutdown }).catch(() => undefined); // then once more
  }
}

/**
 * Excuses a run; "later": Redis takes no writes for its session. That is noted elsewhere in Redis, as well as it can
 * be, for the worker that takes the session up should this one be gone by then.
 */
async function excuse(
  { store, owner, presence }: SessionRunnerOptions,
  { session, epoch }: Pick<Claim, "session" | "epoch">,
): Promise<ExcuseResult | "later"> {
  const looking = store.excuse(session, epoch).catch((error: unknown) => {
    if (isRedisTrouble(error)) return "later" as const;
    throw error;
  });
  const result = await Promise.race([looking, delay(longestLookMs, "later" as const, { ref: false })]);
  if (result === "later") void presence?.noteUnexcused(owner, session, epoch).catch(() => undefined);
  return result;
}

/** Deaths of its worker, with nothing else at work in it, after which a message is given up. */
const maxDeathsAlone = 3;

/** Why a message is not run again; undefined while it is. Deaths beside other turns may be the fault of those. */
function whyGivenUp({ tries, deaths, damaged }: TurnStart, maxTries: number): string | undefined {
  if (deaths.alone >= maxDeathsAlone) return `its worker died ${deaths.alone} times, with nothing else at work in it`;
  if (tries - deaths.alone - deaths.together < maxTries) return undefined;
  return damaged === undefined ? `its runs crashed ${tries} times` : `what is stored of it cannot be read: ${damaged}`;
}

async function runClaim(
  options: SessionRunnerOptions,
  claim: Claim,
  { shutdown, alone }: { shutdown: AbortSignal; alone: boolean },
): Promise<JobResult> {
  const most = alone ? 1 : options.maxInRow; // others wait until it is over
  let start = await withPublished(options, firstStart(claim));
  for (let taken = 1; start !== undefined; taken += 1) {
    const end = await runTurn(options, start, { shutdown, more: () => taken < most && !shutdown.aborted });
    if (end.end === "handoff") return "requeue";
    if (end.end === "suspended" && end.wakeGen !== undefined) await options.turns.wake(claim.session, end.wakeGen);
    if (end.end !== "committed") return "done";
    start = await afterCommit(options, claim, end);
  }
  if (claim.head === undefined) await settleEmpty(options, claim);
  return "done";
}

function firstStart({ gen: _gen, head, ...claim }: Claim): TurnStart | undefined {
  return head === undefined ? undefined : { ...claim, head };
}

/** A worker that died may have published more than it saved. */
async function withPublished(
  { store, log }: SessionRunnerOptions,
  start: TurnStart | undefined,
): Promise<TurnStart | undefined> {
  if (start === undefined || start.tries === 0) return start;
  const { session, head } = start;
  return { ...start, published: await publishedBefore({ store, log }, session, turnIdOf(session, head.seq)) };
}

/** A wake-up without a message (its message was cancelled): gives the session back. */
async function settleEmpty({ store, turns }: SessionRunnerOptions, { session, epoch }: Claim): Promise<void> {
  const empty = { history: [], events: [], consumed: 0, more: false };
  const result = await store.commit({ session, epoch, seq: 0, ...empty });
  if (result.state === "requeue") await turns.wake(session, result.wakeGen);
}

async function afterCommit(
  options: SessionRunnerOptions,
  { session, epoch, othersWait }: Claim,
  { result, history, settings, released }: Extract<TurnEnd, { end: "committed" }>,
): Promise<TurnStart | undefined> {
  if (result.state === "fenced") return undefined;
  if (result.deliver !== undefined) {
    options.deliver(result.deliver, released);
    await setImmediate(); // the person first: the reply leaves before the job is put away
  }
  if (result.state === "requeue") await options.turns.wake(session, result.wakeGen);
  if (result.state !== "next") return undefined;
  const { head, control } = result;
  const deaths = { together: 0, alone: 0 };
  const damaged = head.unreadable === undefined ? {} : { damaged: "the message" };
  return {
    session,
    epoch,
    head,
    control,
    history,
    settings,
    mayHaveWaited: true,
    tries: 0,
    deaths,
    othersWait,
    ...damaged,
  };
}

/** On a message that was the first of its session no sign says that it waits. */
function tellBegin({ onMessage }: SessionRunnerOptions, { head, mayHaveWaited }: TurnStart): void {
  if (mayHaveWaited) onMessage(head.message, "begins");
}

async function runTurn(
  options: SessionRunnerOptions,
  start: TurnStart,
  { shutdown, more }: { shutdown: AbortSignal; more: () => boolean },
): Promise<TurnEnd> {
  const { store, dispatch, holds, stopCalls, approvals, maxTries, running, onMessage } = options;
  const turnId = turnIdOf(start.session, start.head.seq);
  const givenUp = whyGivenUp(start, maxTries);
  if (start.damaged !== undefined && givenUp === undefined) {
    throw newEngineError("internal_error", `what is stored of ${turnId} cannot be read: ${start.damaged}`);
  }
  const controller = running.add(start.session, turnId);
  for (const joined of start.turn?.absorbed ?? []) running.join(start.session, controller, joined);
  const stop = (): void => controller.abort("shutdown" satisfies AbortReason);
  shutdown.addEventListener("abort", stop, { once: true });
  if (shutdown.aborted) stop();
  const startedMs = performance.now();
  const { message } = start.head;
  if (givenUp !== undefined) await options.onGivenUp?.(message, { turnId, reason: givenUp });
  tellBegin(options, start);
  const cancelWatch = watchForCancel(options, start.session, controller);
  const watch = watchTurn(options.telemetry, start);
  let outcome = "failed";
  let committed = false;
  try {
    const agent = options.agent(message, start.settings);
    const end = await new TurnRun(start, {
      ...agent,
      store,
      dispatch,
      holds,
      stopCalls,
      approvals,
      controller,
      watch,
      givenUp,
      more,
      // It gets no answer of its own: what was shown on it has to go now.
      onJoined: ({ seq, message: joined }) => {
        running.join(start.session, controller, turnIdOf(start.session, seq));
        watch.joined(joined);
        onMessage(joined, "begins");
        onMessage(joined, "ends");
      },
    }).run();
    committed = end.end === "committed" && end.result.state !== "fenced";
    if (end.end === "committed") onMessage(message, "ends");
    outcome = end.end === "committed" ? end.reason || "answered" : end.end;
    if (!isCanary(start.session)) {
      const failure = end.end === "committed" ? end.failure : undefined;
      options.onTurn({ turnId, outcome, seconds: (performance.now() - startedMs) / 1_000, failure });
    }
    return end;
  } finally {
    clearInterval(cancelWatch);
    watch.ended(outcome, committed);
    shutdown.removeEventListener("abort", stop);
    running.remove(start.session, controller);
  }
}

/** A broadcast reaches only who listens at that moment; what was asked for is looked up now and then, too. */
function watchForCancel(
  { store, running, cancelPollMs = 2_000 }: SessionRunnerOptions,
  session: string,
  controller: AbortController,
): NodeJS.Timeout {
  const look = async (): Promise<void> => {
    if (!controller.signal.aborted && (await store.cancelled(session, running.idsOf(session)))) {
      controller.abort("cancel" satisfies AbortReason);
    }
  };
  return setInterval(() => void look().catch(() => undefined), cancelPollMs); // asked again the next time
}

/** Why a running turn's model call was broken off. */
export type AbortReason = "cancel" | "shutdown" | "fenced";

interface Running {
  /** Of the turn, and of messages that have joined it. */
  turnIds: string[];
  controller: AbortController;
}

/** How long a cancel may overtake the start of its turn. */
const earlyMs = 10_000;
const maxEarly = 10_000;

/** The turns this process runs right now, so that a cancel reaches the model call at once. */
export class RunningTurns {
  readonly #bySession = new Map<SessionKey, Running>();
  /** Cancels of turns that do not run here, or not yet, by turn, with the time when they came. */
  readonly #early = new Map<string, number>();

  add(session: SessionKey, turnId: string): AbortController {
    const controller = new AbortController();
    const running = { turnIds: [], controller };
    this.#bySession.set(session, running);
    this.#name(running, turnId);
    return controller;
  }

  /** A message has become part of a turn: its cancel is one of the turn. */
  join(session: SessionKey, controller: AbortController, turnId: string): void {
    const running = this.#bySession.get(session);
    if (running?.controller === controller) this.#name(running, turnId);
  }

  #name({ turnIds, controller }: Running, turnId: string): void {
    turnIds.push(turnId);
    const cancelledAtMs = this.#early.get(turnId);
    this.#early.delete(turnId);
    if (cancelledAtMs !== undefined && Date.now() - cancelledAtMs < earlyMs) {
      controller.abort("cancel" satisfies AbortReason);
    }
  }

  /** Of the turn that runs in a session, and of messages that have joined it. */
  idsOf(session: SessionKey): readonly string[] {
    return this.#bySession.get(session)?.turnIds ?? [];
  }

  remove(session: SessionKey, controller: AbortController): void {
    if (this.#bySession.get(session)?.controller === controller) this.#bySession.delete(session);
  }

  cancel(session: SessionKey, turnId: string | undefined): void {
    const running = this.#bySession.get(session);
    if (running !== undefined && (turnId === undefined || running.turnIds.includes(turnId))) {
      running.controller.abort("cancel" satisfies AbortReason);
    } else if (turnId !== undefined) this.#remember(turnId);
  }

  #remember(turnId: string): void {
    const nowMs = Date.now();
    for (const [oldest, atMs] of this.#early) {
      if (nowMs - atMs < earlyMs && this.#early.size < maxEarly) break;
      this.#early.delete(oldest);
    }
    this.#early.set(turnId, nowMs);
  }

  get size(): number {
    return this.#bySession.size;
  }
}

/**
 * Keeps messages that are given up. Comes before the turn's end, and names the turn: whoever dies
 * in between leaves the same letter once more.
 */
export function createGivenUp(deps: {
  letters: Pick<DeadLetters, "add">;
  logger: Logger;
  now?: () => number;
}): NonNullable<SessionRunnerOptions["onGivenUp"]> {
  const { letters, logger, now = sharedNow } = deps;
  return async (message, { turnId, reason }) => {
    const { session, app, id: messageId } = message;
    const traceId = traceIdOf(traceparentOfMessage(message));
    const about = { id: `turn:${turnId}`, session, app, turnId, messageId, traceId, reason, atMs: now() };
    await letters.add({ v: 1, kind: "message", ...about, message }).catch((error: unknown) => {
      logger.error({ error, session, turnId }, "a message that is given up is not kept");
    });
  };
}
