import {
  traceparentOfMessage,
  type CallState,
  type ToolJob,
  type ToolOutcome,
  type TurnState,
  sharedNow,
} from "@larkline/protocol";
import type { ToolQueues } from "@larkline/queue";
import type { DeliverDetails, DeliverResult, SessionStore } from "@larkline/store";
import { builtInRunner, type BuiltInTools } from "./built-in-tools.ts";
import { actorOf, argumentsTextOf, attemptOf } from "./call-facts.ts";
import type { Authorities } from "./authority.ts";
import type { CallSigner } from "./call-signer.ts";

export interface ToolDispatch {
  queues: Pick<ToolQueues, "dispatch">;
  /** Who hands the calls out: this worker is rung first about what becomes of them. */
  worker: string;
  /** What its runner hands in is looked for from now on, by every worker. */
  expect: (runner: string) => Promise<void>;
  store: Pick<SessionStore, "deliver">;
  wake: (session: string, deliver: DeliverResult) => Promise<void>;
  sign: CallSigner;
  authorities: Pick<Authorities, "objectionTo">;
  builtIns: Pick<BuiltInTools, "run">;
}

// Jobs are limited (packages/queue); whatever else a job holds is small.
const maxArgumentBytes = 200_000;

/** Why nobody can be given the call; undefined where somebody can. */
function obstacleTo({ runner, effect }: CallState, argumentsText: string): string | undefined {
  const bytes = Buffer.byteLength(argumentsText);
  if (bytes > maxArgumentBytes) {
    return `The arguments are too large (${bytes} bytes, at most ${maxArgumentBytes}). The call was not run.`;
  }
  return runner === undefined || effect === undefined ? "internal_error: nobody runs this call." : undefined;
}

/** The job of a call that has a runner, as {@link obstacleTo} has made sure. */
function jobOf(turn: TurnState, call: CallState, { sign, worker }: Pick<ToolDispatch, "sign" | "worker">): ToolJob {
  const { runner = "", effect = "once", authority = { by: "policy" } } = call;
  const job = {
    v: 1,
    session: turn.message.session,
    turnId: turn.turnId,
    callId: call.id,
    name: call.name,
    arguments: argumentsTextOf(call),
    effect,
    ...(call.toolDigest === undefined ? {} : { toolDigest: call.toolDigest }),
    attempt: call.attempt ?? 1,
    actor: actorOf(turn),
    queuedAtMs: sharedNow(),
    deadlineMs: call.deadlineMs ?? 0,
    worker,
    traceparent: traceparentOfMessage(turn.message),
  } as const;
  return sign(job, runner, authority);
}

async function toRunner(
  dispatch: ToolDispatch,
  turn: TurnState,
  { runner, calls }: { runner: string; calls: readonly CallState[] },
): Promise<void> {
  const limitedTools = new Set(calls.flatMap(({ limited, name }) => (limited === true ? [name] : [])));
  const jobs = calls.map((call) => jobOf(turn, call, dispatch));
  await dispatch.expect(runner);
  await dispatch.queues.dispatch(runner, jobs, { background: turn.message.background === true, limitedTools });
}

/**
 * Hands calls to their runners. They are open in the ledger already, so a crash in between only
 * delays: the successor hands out all unanswered ones again under the same job ids. Whether the
 * runner is there does not matter: a call waits for it until its deadline. Calls of built-in tools
 * are run and answered here, and by the successor after a crash. What allows a call is looked up again before.
 */
export async function dispatchCalls(
  dispatch: ToolDispatch,
  turn: TurnState,
  calls: readonly CallState[],
): Promise<void> {
  const { store, wake, builtIns, authorities } = dispatch;
  const { session } = turn.message;
  const answer = async (call: CallState, outcome: ToolOutcome, details: DeliverDetails = {}): Promise<void> =>
    await wake(session, await store.deliver(session, attemptOf(call), outcome, details));
  const objections = await Promise.all(calls.map(async (call) => await authorities.objectionTo(turn, call)));
  const byRunner = new Map<string, CallState[]>();
  const work: Promise<void>[] = [];
  for (const [at, call] of calls.entries()) {
    const obstacle = obstacleTo(call, argumentsTextOf(call));
    const { runner = "" } = call;
    const objection = objections[at];
    // Handed out before and started since, it may have taken effect: what its runner says counts then.
    if (objection !== undefined) work.push(answer(call, { ok: false, error: objection }, { unlessStarted: true }));
    else if (obstacle !== undefined) work.push(answer(call, { ok: false, error: obstacle }));
    else if (runner === builtInRunner) {
      work.push(builtIns.run(turn, call).then(async (done) => await answer(call, done)));
    } else byRunner.set(runner, [...(byRunner.get(runner) ?? []), call]);
  }
  for (const [runner, its] of byRunner) work.push(toRunner(dispatch, turn, { runner, calls: its }));
  await Promise.all(work);
}
