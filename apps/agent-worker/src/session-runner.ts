import type { AbortReason } from "@larkline/agent/drive";
import { scrubText } from "@larkline/process/telemetry";
import { apiApp, turnIdOf, type InboundMessage, type SessionKey } from "@larkline/protocol";
import { pause } from "@larkline/protocol/clock";
import { errorCodes, newEngineError } from "@larkline/protocol/error";
import type { ModelFailure } from "@larkline/protocol/model-stream";
import { traceIdOf, traceparentOfMessage } from "@larkline/protocol/trace";
import {
  type Claim,
  ClaimRefusedError,
  type UncountedRelease,
  type OutboxLease,
} from "@larkline/store";
import type { JobResult, TurnJob } from "@larkline/store/queues";
import { isRedisTrouble, type Fate } from "@larkline/store/redis";
import { pausedIn, speakerIn } from "./agents.ts";
import { noteScheduleEnd } from "./schedules.ts";
import { publishedBefore, type TurnStart } from "./turn-output.ts";
import { type TurnEnd, TurnWatch, takeBackReaction } from "./running-turn.ts";
import type { Services } from "./services.ts";
import { TurnRun } from "./turn-run.ts";

/** Messages of one session taken in a row before others get their turn. */
const maxInRow = 8;

/** Runs wake-up jobs: claims the session, runs its turns, releases it. */
export class SessionRunner {
  readonly #services: Services;
  /** Runs of one message that its own code has ended in the same way, after which it is given up. */
  readonly #maxFailures: number;
  /** Pause between looks for a cancel whose broadcast was missed, ms. */
  readonly #cancelPollMs: number;
  /** Runs that are under way in this process, by session, and those that Redis has not taken back yet. */
  readonly #held = new Map<SessionKey, number>();
  /** Apps without credentials, and reasons of refused claims, that were logged already. */
  readonly #logged = new Set<string>();

  constructor(services: Services, { maxFailures = 5, cancelPollMs = 2_000 } = {}) {
    this.#services = services;
    this.#maxFailures = maxFailures;
    this.#cancelPollMs = cancelPollMs;
  }

  /** `alone`: no other job of this process runs meanwhile. */
  async run({ session, gen }: TurnJob, shutdown: AbortSignal, alone = false): Promise<JobResult> {
    if (!this.#serves(session)) return "postpone";
    const { turnHolds } = this.#services;
    turnHolds.jobBegins();
    if (alone) turnHolds.makeRoom();
    try {
      return await this.#claimAndRun(session, gen, { shutdown, alone });
    } catch (error) {
      if (!(error instanceof ClaimRefusedError)) throw error;
      this.#logRefused(session, error);
      if (error.reason === "alone") turnHolds.makeRoom();
      return error.reason === "alone" ? "alone" : "postpone";
    } finally {
      turnHolds.jobEnds();
    }
  }

  /** Sessions of a bot that this process has no credentials for wait for a worker that has. */
  #serves(session: SessionKey): boolean {
    const { bots, log } = this.#services;
    const [app = ""] = session.split(".", 1);
    if (app === apiApp || bots.has(app)) return true;
    if (!this.#logged.has(app)) {
      log.warn({ app }, "no credentials for an app: its sessions wait for a worker that has them");
    }
    this.#logged.add(app);
    return false;
  }

  /** A session may come again and again until a newer process takes it: what it needs is logged once. */
  #logRefused(session: SessionKey, { reason, message }: ClaimRefusedError): void {
    const { log } = this.#services;
    if (reason === "alone") {
      log.warn({ session }, "its worker died twice: its message runs with no other beside it");
    } else if (reason === "held") log.debug({ session }, "left to its worker, which lives");
    else if (!this.#logged.has(message)) log.warn({ session }, `left to newer workers: ${message}`);
    this.#logged.add(message);
  }

  async #claimAndRun(session: SessionKey, gen: number, how: HowToRun): Promise<JobResult> {
    const { store, owner, log } = this.#services;
    const isHeld = this.holds(session);
    this.#hold(session, 1);
    let keeps = false;
    let lastOwner: string | undefined;
    try {
      const claim = await store.claim(session, gen, owner, {
        alone: how.alone,
        isHeld,
        fateOf: async (last) => await fateWith(this.#services, (lastOwner = last), session),
      });
      if (claim === undefined) return "done";
      for (const facts of claim.unreadable ?? []) {
        log.error({ session, ...facts }, "stored state cannot be read and is replaced");
      }
      try {
        return await this.#runClaim(
          { ...claim, ...(await this.#causeOfDeath(claim, lastOwner)) },
          how,
        );
      } catch (error) {
        const result = await this.#giveBack(claim, error, how.shutdown);
        keeps = result === "later";
        return result === "later" ? "postpone" : result;
      }
    } finally {
      if (!keeps) this.#hold(session, -1);
    }
  }

  /** Whether a run of the session is under way in this process, or Redis has not taken it back yet. */
  holds(session: SessionKey): boolean {
    return this.#held.has(session);
  }

  #hold(session: SessionKey, change: 1 | -1): void {
    const runs = (this.#held.get(session) ?? 0) + change;
    if (runs > 0) this.#held.set(session, runs);
    else this.#held.delete(session);
  }

  /** Why the last worker of a message that is given up has died, where it could say so. */
  async #causeOfDeath(
    { deaths }: Claim,
    lastOwner: string | undefined,
  ): Promise<Pick<TurnStart, "causeOfDeath">> {
    if (lastOwner === undefined || deaths.alone < maxDeathsAlone) return {};
    const causeOfDeath = await this.#services.stallNotes.read(lastOwner);
    return causeOfDeath === undefined ? {} : { causeOfDeath };
  }

  /** A run has ended in an error. "later": Redis takes no writes for long; the session is given back when it does. */
  async #giveBack(
    claim: Claim,
    error: unknown,
    shutdown: AbortSignal,
  ): Promise<JobResult | "later"> {
    const trouble = isRedisTrouble(error)
      ? error
      : await countFailure(this.#services, claim, error);
    if (trouble === undefined) throw error; // BullMQ tries it again, after a pause
    const { session } = claim;
    this.#services.log.warn(
      { session, error: trouble },
      "Redis failed a turn; it continues when Redis takes writes again",
    );
    const result = await releaseUncounted(this.#services, claim, { error: trouble, shutdown });
    if (result === "later") void this.#keepReleasing(claim, trouble, shutdown);
    return result;
  }

  /** Another worker leaves the session to this one while it lives, so this one has to give it back. Never rejects. */
  async #keepReleasing(claim: Claim, error: unknown, shutdown: AbortSignal): Promise<void> {
    const { log } = this.#services;
    for (let result: JobResult | "later" = "later"; result === "later" && !shutdown.aborted;) {
      result = await releaseUncounted(this.#services, claim, { error, shutdown }).catch(
        (cause: unknown) => {
          log.error({ session: claim.session, error: cause }, "a session is not given back");
          return "done" as const;
        },
      );
    }
    this.#hold(claim.session, -1);
  }

  async #runClaim(claim: Claim, { shutdown, alone }: HowToRun): Promise<JobResult> {
    const { turns, changedAgents } = this.#services;
    const most = alone ? 1 : maxInRow; // others wait until it is over
    let start = await withPublished(this.#services, firstStart(claim));
    let failed: string | undefined; // the first of these turns that has
    for (let taken = 1; start !== undefined; taken += 1) {
      const { task } = start.head.message;
      const isAsInFile = changedAgents.isEmpty && start.turn?.revision === undefined;
      const services = isAsInFile
        ? this.#services
        : await changedAgents.servicesOf(this.#services, start.turn);
      const givenUp = whyGivenUp(start, this.#maxFailures);
      const how = { shutdown, isLast: taken >= most, givenUp };
      const end = await this.#runTurn(services, start, how);
      failed ??= whyFailed(end, givenUp);
      if (end.end === "handoff") return "requeue";
      if (end.end === "postponed") return "postpone";
      if (end.end === "suspended" && end.wakeGen !== undefined) {
        await turns.wake(claim.session, end.wakeGen);
      }
      if (end.end !== "committed") return failed === undefined ? "done" : { failed };
      const { result } = end;
      if (task !== undefined && result.state === "idle" && result.askerGen !== undefined) {
        await turns.wake(task.session, result.askerGen);
      }
      start = await afterCommit(this.#services, claim, end);
    }
    if (claim.head === undefined) await settleEmpty(this.#services, claim);
    return failed === undefined ? "done" : { failed };
  }

  async #runTurn(
    services: Services,
    start: TurnStart,
    {
      shutdown,
      isLast,
      givenUp,
    }: { shutdown: AbortSignal; isLast: boolean; givenUp: string | undefined },
  ): Promise<TurnEnd> {
    const { runningTurns, clock } = services;
    const { session, head } = start;
    const { message } = head;
    const turnId = turnIdOf(session, head.seq);
    if (start.damaged !== undefined && givenUp === undefined) {
      throw newEngineError(
        "internal_error",
        `what is stored of ${turnId} cannot be read: ${start.damaged}`,
      );
    }
    const controller = runningTurns.add(session, turnId);
    for (const joined of start.turn?.absorbed ?? []) runningTurns.join(session, controller, joined);
    const stop = (): void => controller.abort("shutdown" satisfies AbortReason);
    shutdown.addEventListener("abort", stop, { once: true });
    if (shutdown.aborted) stop();
    const startedMs = clock.monotonic();
    // Wakes the asker of a helper that has ended.
    if (givenUp !== undefined && message.task === undefined) {
      await moveToDeadLetters(services, message, { turnId, reason: givenUp });
    }
    // On a message that was the first of its session no reaction says that it waits.
    if (start.mayHaveWaited) takeBackReaction(services, message, "queued");
    services.runs.began({ message });
    const stopWatching = this.#watchForCancel(session, controller);
    const watch = new TurnWatch(services, start);
    let outcome = "failed";
    let committed = false;
    let paused: string | undefined;
    try {
      const speaker = await speakerIn(services, start);
      const end = await new TurnRun(services, speaker, start, {
        controller,
        shutdown,
        isLast,
        watch,
      }).run(givenUp);
      committed = end.end === "committed" && end.result.state !== "fenced";
      if (end.end === "committed") takeBackReaction(services, message, "typing");
      outcome = end.end === "committed" ? end.reason || "answered" : end.end;
      paused = pausedAtEnd(services, end);
      const failure = end.end === "committed" ? end.failure : undefined;
      const seconds = (clock.monotonic() - startedMs) / 1_000;
      reportTurn(services, { turnId, outcome, seconds, failure });
      if (end.end === "committed" && committed) {
        services.runs.ended({ ...end.run, ...problemOf(failure) }, outcome);
      }
      noteScheduleEnd(services, message, { committed, failed: failure !== undefined });
      return end;
    } finally {
      stopWatching();
      watch.ended(outcome, committed, paused);
      shutdown.removeEventListener("abort", stop);
      runningTurns.remove(session, controller);
    }
  }

  /** A broadcast reaches only processes that listen at that moment; so cancels are looked up now and then, too. */
  #watchForCancel(session: SessionKey, controller: AbortController): () => void {
    const { clock, store, runningTurns } = this.#services;
    const look = async (): Promise<void> => {
      if (
        !controller.signal.aborted &&
        (await store.cancelled(session, runningTurns.idsOf(session)))
      ) {
        controller.abort("cancel" satisfies AbortReason);
      }
    };
    return clock.every(this.#cancelPollMs, () => void look().catch(() => undefined)); // asked again the next time
  }
}

/** The agent, or its team, whose pause has ended the turn. */
function pausedAtEnd(services: Services, end: TurnEnd): string | undefined {
  return end.end === "committed" && end.reason === "agent_paused"
    ? pausedIn(services, end.run.turn)
    : undefined;
}

interface HowToRun {
  /** Aborts when the process stops. */
  shutdown: AbortSignal;
  alone: boolean;
}

/** Finds out what has become of the worker that had the session before, and has not released it. */
async function fateWith(
  { store, presence }: Services,
  last: string,
  session: SessionKey,
): Promise<Fate> {
  const fate = await presence.fateOf(last);
  if (fate !== "died") return fate;
  // Its run was over, and it waited for Redis to take the session back: it has not died with the message.
  const epoch = await presence.unreleased(last, session);
  return epoch !== undefined && (await store.releaseUncounted(session, epoch)).uncounted
    ? "left"
    : fate;
}

/** Counts a run that its own code has ended. Resolves to what has gone wrong where Redis does not take that. */
async function countFailure(
  { store }: Services,
  { session, epoch }: Claim,
  error: unknown,
): Promise<unknown> {
  try {
    await store.fail(session, epoch, wayOf(error));
    return undefined;
  } catch (trouble) {
    if (isRedisTrouble(trouble)) return trouble;
    throw trouble;
  }
}

/** How a run has failed, without anything of the conversation: which error, and where. */
function wayOf(error: unknown): string {
  if (!(error instanceof Error)) return typeof error;
  const code = "code" in error && typeof error.code === "string" ? ` ${error.code}` : "";
  const frame = /^\s+at (?:async )?(?:([\w.#<> ]+) \()?.*?([\w.-]+:\d+):\d+\)?$/m.exec(
    error.stack ?? "",
  );
  const [, name = "", place = ""] = frame ?? [];
  return `${error.name}${code}${place === "" ? "" : ` in ${[name.trim(), place].filter(Boolean).join(" ")}`}`.slice(
    0,
    200,
  );
}

/** Pauses between looks whether Redis takes writes again, ms; the last one repeats. */
const releasePausesMs = [50, 100, 200, 400, 800];
/** How long a run that Redis has failed keeps its slot, ms: short outages are over by then. */
const releaseHoldMs = 3_000;
/** How long one look may wait for an answer, ms. */
const longestLookMs = 1_000;

/**
 * Redis has failed a run, which says nothing about its message: once writes are taken again the session is given back,
 * and nothing is counted. "later": that takes longer than the hold, and the slot is for others. Where too many ends were
 * left uncounted already, this one counts as a failure of the run.
 */
async function releaseUncounted(
  services: Services,
  { session, gen, epoch }: Claim,
  { error, shutdown }: { error: unknown; shutdown: AbortSignal },
): Promise<JobResult | "later"> {
  const { clock, turns, store } = services;
  const sinceMs = clock.monotonic();
  for (let look = 0; ; look += 1) {
    const result = await tryRelease(services, { session, epoch });
    if (result !== "later") {
      if (!result.uncounted) {
        await store.fail(session, epoch, `Redis failed it too often: ${wayOf(error)}`);
        throw error;
      }
      // The job of the claim is put back; a sweeper, or a commit whose answer was lost, has asked for another one.
      if (result.wakeGen !== undefined && result.wakeGen !== gen) {
        await turns.wake(session, result.wakeGen);
      }
      return "requeue";
    }
    if (shutdown.aborted) throw error;
    const pauseMs = releasePausesMs[Math.min(look, releasePausesMs.length - 1)] ?? 0;
    if (clock.monotonic() - sinceMs + pauseMs > releaseHoldMs) return "later";
    await pause(clock, pauseMs, shutdown); // then once more
  }
}

/**
 * Gives the session of a run back without counting a try; "later": Redis takes no writes for the session. Then a note
 * goes to another part of Redis, best effort, for the worker that takes the session up if this one is gone by then.
 */
async function tryRelease(
  { store, owner, presence, clock }: Services,
  { session, epoch }: Pick<Claim, "session" | "epoch">,
): Promise<UncountedRelease | "later"> {
  const looking = store.releaseUncounted(session, epoch).catch((error: unknown) => {
    if (isRedisTrouble(error)) return "later" as const;
    throw error;
  });
  const answered = new AbortController();
  const late = pause(clock, longestLookMs, answered.signal).then(() => "later" as const);
  const result = await Promise.race([looking, late]).finally(() => answered.abort());
  if (result === "later") {
    void presence.noteUnreleased(owner, session, epoch).catch(() => undefined);
  }
  return result;
}

function firstStart({ gen: _gen, head, ...claim }: Claim): TurnStart | undefined {
  return head === undefined ? undefined : { ...claim, head };
}

/** A run that ended with its worker, or because Redis was away, may have published more than it saved. */
async function withPublished(
  services: Services,
  start: TurnStart | undefined,
): Promise<TurnStart | undefined> {
  if (start === undefined || !start.ranBefore) return start;
  const { session, head } = start;
  return {
    ...start,
    published: await publishedBefore(services, session, turnIdOf(session, head.seq)),
  };
}

/** Deaths of its worker, with nothing else at work in it, after which a message is given up. */
const maxDeathsAlone = 3;
/** Failures of all kinds after which it is, as a multiple of those in the same way. */
const maxFailuresInAnyWay = 3;

/** Says why a message is given up; undefined: it runs again. A death beside other turns may be their fault. */
function whyGivenUp(
  { failures, deaths, causeOfDeath, damaged }: TurnStart,
  maxFailures: number,
): string | undefined {
  if (deaths.alone >= maxDeathsAlone) {
    const cause = causeOfDeath === undefined ? "" : `: ${causeOfDeath}`;
    return `its worker died ${deaths.alone} times, with nothing else at work in it${cause}`;
  }
  const ways = Object.entries(failures).toSorted(([, one], [, other]) => other - one);
  const [[way, times] = ["", 0]] = ways;
  const all = ways.reduce((sum, [, count]) => sum + count, 0);
  if (times < maxFailures && all < maxFailuresInAnyWay * maxFailures) return undefined;
  if (damaged !== undefined) return `what is stored of it cannot be read: ${damaged}`;
  if (times >= maxFailures) return `its runs failed ${times} times in the same way: ${way}`;
  return `its runs failed ${all} times: ${ways.map(([one]) => one).join("; ")}`;
}

/**
 * Keeps a message that is given up as a dead letter. Comes before the turn's end, and names the turn: a worker that
 * dies in between leaves the same letter once more. Never rejects.
 */
async function moveToDeadLetters(
  { deadLetters, clock, log }: Services,
  message: InboundMessage,
  { turnId, reason }: { turnId: string; reason: string },
): Promise<void> {
  const { session, app, id: messageId } = message;
  const traceId = traceIdOf(traceparentOfMessage(message));
  const about = {
    id: `turn:${turnId}`,
    session,
    app,
    turnId,
    messageId,
    traceId,
    reason,
    atMs: clock.now(),
  };
  await deadLetters.add({ v: 1, kind: "message", ...about, message }).catch((error: unknown) => {
    log.error({ error, session, turnId }, "a message that is given up is not kept");
  });
}

/** What the wake-up job of a turn that is over shows, unless the turn went well; its person has got a note. */
function whyFailed(end: TurnEnd, givenUp: string | undefined): string | undefined {
  if (end.end !== "committed" || end.result.state === "fenced") return undefined;
  if (givenUp !== undefined) return `a message is given up: ${givenUp}`;
  const fault = faultOf(end.reason, end.failure);
  return fault && `${end.reason}: ${fault.vendor ?? fault.suggestion}`;
}

/** What operators need to know of a turn that failed; undefined for an outcome that is no failure. */
function faultOf(
  outcome: string,
  failure: ModelFailure | undefined,
): { suggestion: string; vendor?: string; requestId?: string } | undefined {
  const [, known] = Object.entries(errorCodes).find(([code]) => code === outcome) ?? [];
  if (known === undefined) return undefined;
  const { message, requestId } = failure?.vendor ?? {};
  return {
    suggestion: failure?.suggestion ?? known.suggestion,
    ...(message !== undefined && { vendor: scrubText(message) }),
    ...(message !== undefined && requestId !== undefined && { requestId }),
  };
}

/** What the list of runs says of a failure of the model. */
function problemOf(failure: ModelFailure | undefined): { problem?: string } {
  return failure === undefined ? {} : { problem: failure.vendor?.message ?? failure.message };
}

interface EndedTurn {
  turnId: string;
  outcome: string;
  seconds: number;
  failure: ModelFailure | undefined;
}

/** A turn that failed is logged for operators, who can mend the cause: its person cannot. */
function reportTurn(
  { log, counters }: Services,
  { turnId, outcome, seconds, failure }: EndedTurn,
): void {
  counters.turnRuns.add(1, { outcome });
  counters.turnRunSeconds.record(seconds, { outcome });
  const fault = faultOf(outcome, failure);
  if (fault === undefined) return log.debug({ turnId, outcome, seconds }, "turn");
  log.warn({ turnId, code: outcome, seconds, ...fault }, "a turn failed");
}

/** The turn is committed: its answer is sent, and the next message of the session begins, if it may. */
async function afterCommit(
  services: Services,
  { session, epoch, othersWait }: Claim,
  { result, history, settings, totals, released }: Extract<TurnEnd, { end: "committed" }>,
): Promise<TurnStart | undefined> {
  if (result.state === "fenced") return undefined;
  if (result.deliver !== undefined) {
    void sendReply(services, result.deliver, released);
    await new Promise((resolve) => void setImmediate(resolve)); // yield, so that the reply is sent before BullMQ completes the job
  }
  if (result.state === "requeue") await services.turns.wake(session, result.wakeGen);
  if (result.state !== "next") return undefined;
  const { head } = result;
  const deaths = { together: 0, alone: 0 };
  const damaged = head.unreadable === undefined ? {} : { damaged: "the message" };
  return {
    session,
    epoch,
    head,
    control: [],
    history,
    settings,
    ...(totals === undefined ? {} : { totals }),
    mayHaveWaited: true,
    failures: {},
    ranBefore: false,
    deaths,
    othersWait,
    ...damaged,
  };
}

/** Sends a reply once nothing is written to its card any more. */
async function sendReply(
  { outboxSender }: Services,
  lease: OutboxLease,
  released: Promise<void>,
): Promise<void> {
  await released;
  await outboxSender.deliver(lease);
}

/** A wake-up without a message (its message was cancelled): gives the session back. */
async function settleEmpty({ store, turns }: Services, { session, epoch }: Claim): Promise<void> {
  const empty = { history: [], events: [], more: false };
  const result = await store.commit({ session, epoch, seq: 0, ...empty });
  if (result.state === "requeue") await turns.wake(session, result.wakeGen);
}
