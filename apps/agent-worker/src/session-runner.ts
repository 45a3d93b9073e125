import { setImmediate } from "node:timers/promises";
import { isCanary, turnIdOf, type InboundMessage, type SessionKey, type TurnJob } from "@larkline/protocol";
import type { JobResult, TurnQueue } from "@larkline/queue";
import type { Claim, OutboxLease, SessionSettings, SessionStore } from "@larkline/session";
import type { Observation } from "@larkline/telemetry";
import type { AgentSide } from "./agent-side.ts";
import type { AbortReason, RunningTurns } from "./running-turns.ts";
import type { TurnApprovals } from "./turn-approvals.ts";
import type { Dispatch, TurnEnd, TurnStart } from "./turn-options.ts";
import { TurnRun } from "./turn-run.ts";
import { watchTurn } from "./turn-watch.ts";

export interface SessionRunnerOptions {
  store: SessionStore;
  turns: Pick<TurnQueue, "wake">;
  /** Whether this process can speak where the session is; default: it can everywhere. */
  serves?: (session: SessionKey) => boolean;
  /** The agent of a message, under the choices of its session. */
  agent: (message: InboundMessage, choices: SessionSettings) => AgentSide;
  dispatch: Dispatch;
  approvals: TurnApprovals;
  running: RunningTurns;
  /** Starts sending a reply once `ready` has settled; must not throw. */
  deliver: (lease: OutboxLease, ready: Promise<void>) => void;
  /** Told when the work on a message begins (again) and when it is over; must not throw. */
  onMessage: (message: InboundMessage, what: "begins" | "ends") => void;
  /** Keeps word of a message that is about to be given up; absent: nobody does. Must not reject. */
  onGivenUp?: (message: InboundMessage, facts: { turnId: string; tries: number }) => Promise<void>;
  /** Name of this worker, for its heartbeat. */
  owner: string;
  maxTries: number;
  /** Pause between looks for a cancel whose broadcast was missed, ms; 2 s if absent. */
  cancelPollMs?: number;
  /** Messages of one session taken in a row before others get their turn. */
  maxInRow: number;
  observation: Observation;
  onTurn: (end: { turnId: string; outcome: string; seconds: number }) => void;
}

/** Runs wake-up jobs: claims the session, runs what there is to run, gives it back. */
export function createSessionRunner(
  options: SessionRunnerOptions,
): (job: TurnJob, signal: AbortSignal) => Promise<JobResult> {
  const { serves = () => true } = options;
  return async ({ session, gen }, signal) => {
    if (!serves(session)) return "postpone";
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

function firstStart({ session, epoch, head, turn, control, history, settings, tries }: Claim): TurnStart | undefined {
  if (head === undefined) return undefined;
  return { session, epoch, head, control, history, settings, tries, ...(turn === undefined ? {} : { turn }) };
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
  { result, history, settings, released }: Extract<TurnEnd, { end: "committed" }>,
): Promise<TurnStart | undefined> {
  if (result.state === "fenced") return undefined;
  if (result.deliver !== undefined) {
    options.deliver(result.deliver, released);
    await setImmediate(); // the person first: the reply leaves before the job is put away
  }
  if (result.state === "requeue") await options.turns.wake(session, result.wakeGen);
  if (result.state !== "next") return undefined;
  return { session, epoch, head: result.head, control: result.control, history, settings, tries: 0 };
}

async function runTurn(
  options: SessionRunnerOptions,
  start: TurnStart,
  { shutdown, more }: { shutdown: AbortSignal; more: () => boolean },
): Promise<TurnEnd> {
  const { store, dispatch, approvals, maxTries, running, onMessage } = options;
  const turnId = turnIdOf(start.session, start.head.seq);
  const controller = running.add(start.session, turnId);
  for (const joined of start.turn?.absorbed ?? []) running.join(start.session, controller, joined);
  const stop = (): void => controller.abort("shutdown" satisfies AbortReason);
  shutdown.addEventListener("abort", stop, { once: true });
  if (shutdown.aborted) stop();
  const startedMs = performance.now();
  const { message } = start.head;
  if (start.tries >= maxTries) await options.onGivenUp?.(message, { turnId, tries: start.tries });
  onMessage(message, "begins");
  const cancelWatch = watchForCancel(options, start.session, controller);
  const watch = watchTurn(options.observation, start);
  let outcome = "failed";
  let committed = false;
  try {
    const agent = options.agent(message, start.settings);
    const end = await new TurnRun(start, {
      ...agent,
      store,
      dispatch,
      approvals,
      controller,
      watch,
      maxTries,
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
      options.onTurn({ turnId, outcome, seconds: (performance.now() - startedMs) / 1_000 });
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
  { store, cancelPollMs = 2_000 }: SessionRunnerOptions,
  session: string,
  controller: AbortController,
): NodeJS.Timeout {
  const look = async (): Promise<void> => {
    if (!controller.signal.aborted && (await store.cancelled(session)))
      controller.abort("cancel" satisfies AbortReason);
  };
  return setInterval(() => void look().catch(() => undefined), cancelPollMs); // asked again the next time
}
