import {
  allAbilities,
  attemptOf,
  callInputOf,
  largeResults,
  resultShare,
  abilityOf,
  type AbilityWork,
} from "@larkline/agent";
import { didYouMean } from "@larkline/process/config";
import type { Telemetry } from "@larkline/process/telemetry";
import type { ControlEntry, SessionKey } from "@larkline/protocol";
import { withDeadline } from "@larkline/protocol/clock";
import { argumentsHashOf, inputHashOf, signCall, type ToolJob } from "@larkline/protocol/runner";
import { builtInRunner, type StoredResult, type ToolOutcome } from "@larkline/protocol/tool";
import { traceparentOfMessage } from "@larkline/protocol/trace";
import { agentOfTurn, type CallState, type TurnState } from "@larkline/protocol/turn";
import type { DeliverResult } from "@larkline/store";
import { keepResult } from "@larkline/store/runners";
import type { ReadEntries } from "@larkline/agent/drive";
import { abilityClientsOf } from "./abilities.ts";
import type { Agent } from "./agent.ts";
import { agentFor } from "./agents.ts";
import { argumentsTextOf, checkEntries, DecidersUnknownError } from "./approvals.ts";
import { actorOf, objectionTo } from "./call-policy.ts";
import { stopHelpers, wakeQueued } from "./helpers.ts";
import type { Services } from "./services.ts";

// Calls in a worker: how they are handed to their runner, or run here, and how long results are stored. Which tools there
// are is in tool-catalog.ts, whether a call may run in call-policy.ts, waiting for it in the slot in turn-holds.ts.

/** How long runners of the same start are waited for: a sandbox is tried out before its tools are announced. */
const graceMs = 15_000;

/** Says once, a while after the start, which tools agents name and nothing offers: runners may come later. */
export function warnOfUnknownTools(
  { toolCatalog, settings, clock, log }: Services,
  signal: AbortSignal,
): void {
  const cancel = clock.after(graceMs, () => {
    const known = toolCatalog.names();
    for (const [agent, { tools }] of Object.entries(settings.agents)) {
      for (const tool of tools ?? []) {
        if (known.includes(tool)) continue;
        const near = didYouMean(tool, known) || "; the agent gets it when a runner does";
        log.warn({ agent, tool }, `agents.${agent}.tools: no runner offers '${tool}'${near}`);
      }
    }
  });
  signal.addEventListener("abort", cancel, { once: true });
}

/**
 * Hands calls to their runners. They are open in the ledger already, so a crash in between only delays: the successor
 * hands out all unanswered ones again under the same job ids. Whether the runner is there does not matter: a call waits
 * for it until its deadline.
 *
 * Calls of built-in tools are run and answered here, and again by a worker that takes the turn over: their effects are
 * keyed by turn and attempt, so they happen once. What allows a call is looked up again before: rejects with a
 * {@link DecidersUnknownError} where that cannot be known now, once all other calls are handed out.
 */
export async function dispatchCalls(
  services: Services,
  turn: TurnState,
  calls: readonly CallState[],
): Promise<void> {
  let unknown: DecidersUnknownError | undefined;
  const objections = await Promise.all(
    calls.map(
      async (call) =>
        await objectionTo(services, turn, call).catch((error: unknown) => {
          if (!(error instanceof DecidersUnknownError)) throw error;
          unknown = error;
          return error;
        }),
    ),
  );
  const byRunner = new Map<string, CallState[]>();
  const work: Promise<void>[] = [];
  for (const [at, call] of calls.entries()) {
    const obstacle = obstacleTo(call);
    const { runner = "" } = call;
    const objection = objections[at];
    if (objection instanceof DecidersUnknownError) continue;
    // Handed out before and started since, the call may have taken effect: what its runner says counts then.
    const refused =
      objection === undefined ? undefined : { outcome: objection, unlessStarted: true };
    if (refused !== undefined) work.push(answerCall(services, turn, call, refused));
    else if (call.helper !== undefined) work.push(wakeQueued(services, call.helper.session));
    else if (obstacle !== undefined) work.push(answerCall(services, turn, call, refusal(obstacle)));
    else if (runner === builtInRunner) work.push(runAndAnswer(services, turn, call));
    else byRunner.set(runner, [...(byRunner.get(runner) ?? []), call]);
  }
  for (const [runner, its] of byRunner) work.push(sendToRunner(services, turn, runner, its));
  await Promise.all(work);
  if (unknown !== undefined) throw unknown;
}

// Jobs are limited (`ToolQueues`); whatever else a job holds is small.
const maxArgumentBytes = 200_000;

/** Why no runner can get the call; undefined when one can. */
function obstacleTo(call: CallState): string | undefined {
  const bytes = Buffer.byteLength(argumentsTextOf(call));
  if (bytes > maxArgumentBytes) {
    return `The arguments are too large (${bytes} bytes, at most ${maxArgumentBytes}). The call was not run.`;
  }
  return call.runner === undefined || call.effect === undefined
    ? "internal_error: no runner is known for this call."
    : undefined;
}

interface Answer {
  outcome: ToolOutcome;
  /** The answer counts only if no runner has started the call. */
  unlessStarted: boolean;
}

function refusal(error: string): Answer {
  return { outcome: { ok: false, error }, unlessStarted: false };
}

/** Answers a call here, and wakes its turn. */
async function answerCall(
  services: Services,
  turn: TurnState,
  call: CallState,
  answer: Answer,
): Promise<void> {
  const { session } = turn.message;
  const details = answer.unlessStarted ? { unlessStarted: true } : {};
  await wakeAfter(
    services,
    session,
    await services.store.deliver(session, attemptOf(call), answer.outcome, details),
  );
}

/**
 * Where an attempt is handed out again while it runs here, because something else has woken its turn, both runs of the
 * turn wait for the one answer: the one that has the turn by then must learn that it could not be stored.
 */
async function runAndAnswer(services: Services, turn: TurnState, call: CallState): Promise<void> {
  const { builtInsAtWork } = services;
  const attempt = `${turn.turnId} ${attemptOf(call)}`;
  const running = builtInsAtWork.get(attempt);
  if (running !== undefined) return await running;
  const work = runBuiltIn(services, turn, call).then(
    async (outcome) => await answerCall(services, turn, call, { outcome, unlessStarted: false }),
  );
  builtInsAtWork.set(attempt, work);
  try {
    await work;
  } finally {
    builtInsAtWork.delete(attempt);
  }
}

async function sendToRunner(
  services: Services,
  turn: TurnState,
  runner: string,
  calls: readonly CallState[],
): Promise<void> {
  const limitedTools = new Set(
    calls.flatMap(({ limited, name }) => (limited === true ? [name] : [])),
  );
  const jobs = calls.map((call) => signedJob(services, turn, call));
  await services.handoffs.expect(runner);
  await services.tools.dispatch(runner, jobs, {
    background: turn.message.background === true,
    limitedTools,
  });
}

/** The job of a call that has a runner, as {@link obstacleTo} has made sure, signed with that runner's key. */
function signedJob(
  { owner, clock, runnerKeys }: Services,
  turn: TurnState,
  call: CallState,
): ToolJob {
  const { runner = "", effect = "once", authority = { by: "policy" } } = call;
  const input = callInputOf(call);
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
    ...(input === undefined ? {} : { input }),
    actor: actorOf(turn),
    queuedAtMs: clock.now(),
    deadlineMs: call.deadlineMs ?? 0,
    worker: owner,
    traceparent: traceparentOfMessage(turn.message),
  } as const;
  const { session, turnId, callId, attempt, actor } = job;
  const envelope = signCall(runnerKeys.of(runner), {
    v: 1,
    runner,
    tool: job.name,
    session,
    turnId,
    callId,
    attempt,
    argumentsHash: argumentsHashOf(job.arguments),
    ...(input === undefined ? {} : { inputHash: inputHashOf(input) }),
    actor,
    authority,
    expiresAtMs: job.deadlineMs,
  });
  return { ...job, envelope };
}

/** Stops the helpers and runners of a turn. May be repeated. */
export async function stopCallsOf(services: Services, turn: TurnState): Promise<void> {
  const { session } = turn.message;
  const cancel = { session, turnId: turn.turnId };
  const running = turn.calls.filter(({ state }) => state === "running");
  for (const runner of new Set(running.flatMap(runnerAtWork))) {
    void stopCalls(services, runner, cancel);
  }
  await stopHelpers(services, running);
}

/** Asks a runner to stop its calls of a turn. Never rejects: a call that does not stop ends at its deadline. */
export async function stopCalls(
  { runnerCancels, log }: Services,
  runner: string,
  cancel: { session: string; turnId: string },
): Promise<void> {
  try {
    await runnerCancels.publish(runner, cancel);
  } catch (error) {
    log.warn({ error, runner, ...cancel }, "a runner could not be asked to stop its calls");
  }
}

/** Wakes the turn of a session to which something was added: at once where it waits in its slot, else by a job. */
export async function wakeAfter(
  { turns, turnHolds }: Services,
  session: SessionKey,
  delivered: DeliverResult,
): Promise<void> {
  turnHolds.delivered(session, delivered);
  const { wakeGen } = delivered;
  if (wakeGen !== undefined) await turns.wake(session, wakeGen);
}

/** How long a call of an ability may take that says nothing else. */
const abilityMs = 10_000;

const notDone = "This cannot be done at the moment. Try again later.";
/** What the model reads of a call that may go on after its time, or whose confirmation was lost: not to repeat it blindly. */
const notConfirmed = "This was not confirmed. It may have taken effect.";

/** Never rejects: what goes wrong is an outcome. */
async function runBuiltIn(
  services: Services,
  turn: TurnState,
  call: CallState,
): Promise<ToolOutcome> {
  const { clock, log, telemetry } = services;
  const startedMs = clock.monotonic();
  const run = async (): Promise<ToolOutcome> => {
    const ability = abilityOf(call, allAbilities);
    const work = ability?.run?.(call, abilityWork(services, turn));
    if (work === undefined) {
      return { ok: false, error: `tool_not_found: there is no tool '${call.name}'.` };
    }
    try {
      return await withDeadline(clock, work, ability?.runMs?.(call) ?? abilityMs);
    } catch (error) {
      const { name: tool, id: callId } = call;
      const { session } = turn.message;
      log.warn({ error, session, turnId: turn.turnId, callId, tool }, "a built-in tool has failed");
      return { ok: false, error: call.effect === "pure" ? notDone : notConfirmed };
    }
  };
  const outcome = await run();
  tellBuiltInRan(telemetry, turn, call, { outcome, ranMs: clock.monotonic() - startedMs });
  return outcome;
}

function abilityWork(services: Services, turn: TurnState): AbilityWork {
  const { message } = turn;
  const { place, limits } = services.agents.get(agentOfTurn(turn)) ?? agentFor(services, message);
  return {
    turn,
    place,
    maxResultChars: resultShare(limits, turn.calls.length),
    clients: abilityClientsOf(services),
  };
}

/** Emits the event for a call that the worker has run itself. */
function tellBuiltInRan(
  { events }: Telemetry,
  { message, turnId }: TurnState,
  call: CallState,
  { outcome, ranMs }: { outcome: ToolOutcome; ranMs: number },
): void {
  const tags = {
    traceparent: traceparentOfMessage(message),
    session: message.session,
    turn: turnId,
  };
  const facts = {
    call: call.id,
    tool: call.name,
    outcome: outcome.ok ? "ok" : "error",
    ranMs: Math.round(ranMs),
  };
  events.emit({ eventName: "call.outcome", attributes: { ...tags, ...facts } });
}

/** A turn waits for this; a store that hangs must not hold it up for long. */
const keepMs = 10_000;

/** Reads entries for a decision: as far as they can be believed, with long results kept elsewhere. May reject. */
export async function readEntries(
  services: Services,
  agent: Agent,
  turn: TurnState,
  control: readonly ControlEntry[],
): Promise<ReadEntries> {
  const { entries, events } = await checkEntries(services, turn, control);
  return { entries: await keepLargeResults(services, agent, turn, entries), events };
}

/**
 * Keeps the results among these entries that are longer than what the model gets of them, and notes
 * their handles. Never rejects: a result that could not be kept stays whole in its entry, and is cut when the entry
 * is decided upon.
 */
async function keepLargeResults(
  services: Services,
  { limits }: Agent,
  turn: TurnState,
  control: readonly ControlEntry[],
): Promise<ControlEntry[]> {
  const large = largeResults(turn, control, limits);
  const places = await Promise.all(
    large.map(
      async ({ callId, text }) => [callId, await keepLargeResult(services, turn, text)] as const,
    ),
  );
  const stored = new Map(places);
  return control.map((entry) => {
    if (entry.type !== "outcome" || !entry.outcome.ok) return entry;
    const place = stored.get(entry.callId);
    return place === undefined ? entry : { ...entry, outcome: { ...entry.outcome, stored: place } };
  });
}

async function keepLargeResult(
  services: Services,
  { turnId, message: { session } }: TurnState,
  text: string,
): Promise<StoredResult | undefined> {
  const { clock, counters, log } = services;
  try {
    const stored = await withDeadline(clock, keepResult(services, session, text), keepMs);
    counters.largeResults.add(1, { what: "kept" });
    return stored;
  } catch (error) {
    counters.largeResults.add(1, { what: "cut" });
    log.warn(
      { error, session, turnId },
      "a large result was not kept; only its beginning is shown",
    );
    return undefined;
  }
}

/** The runner that works on a call; none where the call is not running, or its tool is built in. */
export function runnerAtWork({ state, runner }: CallState): string[] {
  return state === "running" && runner !== undefined && runner !== builtInRunner ? [runner] : [];
}
