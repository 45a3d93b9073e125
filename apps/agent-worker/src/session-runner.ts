import { setImmediate } from "node:timers/promises";
import type { TurnEnvironment } from "@larkline/agent";
import type { ModelChain } from "@larkline/model";
import { turnIdOf, type TurnJob } from "@larkline/protocol";
import type { JobResult, TurnQueue } from "@larkline/queue";
import type { Claim, OutboxLease, SessionStore } from "@larkline/session";
import type { AbortReason, RunningTurns } from "./running-turns.ts";
import { TurnRun, type Dispatch, type TurnEnd, type TurnStart } from "./turn-run.ts";

export interface SessionRunnerOptions {
  store: SessionStore;
  turns: Pick<TurnQueue, "wake">;
  chain: ModelChain;
  instructions: string;
  environment: () => TurnEnvironment;
  dispatch: Dispatch;
  running: RunningTurns;
  /** Starts sending a reply; must not throw. */
  deliver: (lease: OutboxLease) => void;
  /** Name of this worker, for its heartbeat. */
  owner: string;
  maxTries: number;
  /** Messages of one session taken in a row before others get their turn. */
  maxInRow: number;
  onTurn: (end: { turnId: string; outcome: string; seconds: number }) => void;
}

/** Runs wake-up jobs: claims the session, runs what there is to run, gives it back. */
export function createSessionRunner(
  options: SessionRunnerOptions,
): (job: TurnJob, signal: AbortSignal) => Promise<JobResult> {
  return async ({ session, gen }, signal) => {
    const claim = await options.store.claim(session, gen, options.owner);
    if (claim === undefined) return "done";
    return await runClaim(options, claim, signal);
  };
}

async function runClaim(options: SessionRunnerOptions, claim: Claim, shutdown: AbortSignal): Promise<JobResult> {
  let start = firstStart(claim);
  for (let taken = 1; start !== undefined; taken += 1) {
    const end = await runTurn(options, start, { shutdown, more: () => taken < options.maxInRow && !shutdown.aborted });
    if (end.end === "handoff") return "requeue";
    if (end.end !== "committed") return "done";
    start = await afterCommit(options, claim, end);
  }
  if (claim.head === undefined) await settleEmpty(options, claim);
  return "done";
}

function firstStart({ session, epoch, head, turn, control, history, tries }: Claim): TurnStart | undefined {
  if (head === undefined) return undefined;
  return { session, epoch, head, control, history, tries, ...(turn === undefined ? {} : { turn }) };
}

/** A wake-up without a message (its message was cancelled): gives the session back. */
async function settleEmpty({ store, turns }: SessionRunnerOptions, { session, epoch }: Claim): Promise<void> {
  const empty = { history: [], events: [], consumed: 0, more: false };
  const result = await store.commit({ session, epoch, seq: 0, ...empty });
  if (result.state === "requeue") await turns.wake(session, result.wakeGen);
}

async function afterCommit(
  options: SessionRunnerOptions,
  { session, epoch }: Claim,
  { result, history }: Extract<TurnEnd, { end: "committed" }>,
): Promise<TurnStart | undefined> {
  if (result.state === "fenced") return undefined;
  if (result.deliver !== undefined) {
    options.deliver(result.deliver);
    await setImmediate(); // the person first: the reply leaves before the job is put away
  }
  if (result.state === "requeue") await options.turns.wake(session, result.wakeGen);
  if (result.state !== "next") return undefined;
  return { session, epoch, head: result.head, control: result.control, history, tries: 0 };
}

async function runTurn(
  options: SessionRunnerOptions,
  start: TurnStart,
  { shutdown, more }: { shutdown: AbortSignal; more: () => boolean },
): Promise<TurnEnd> {
  const { store, chain, instructions, environment, dispatch, maxTries, running } = options;
  const turnId = turnIdOf(start.session, start.head.seq);
  const controller = running.add(start.session, turnId);
  const stop = (): void => controller.abort("shutdown" satisfies AbortReason);
  shutdown.addEventListener("abort", stop, { once: true });
  if (shutdown.aborted) stop();
  const startedMs = performance.now();
  try {
    const run = new TurnRun(start, { store, chain, instructions, environment, dispatch, controller, maxTries, more });
    const end = await run.run();
    const outcome = end.end === "committed" ? end.reason || "answered" : end.end;
    options.onTurn({ turnId, outcome, seconds: (performance.now() - startedMs) / 1_000 });
    return end;
  } finally {
    shutdown.removeEventListener("abort", stop);
    running.remove(start.session, controller);
  }
}
