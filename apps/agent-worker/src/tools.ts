import { isDeepStrictEqual } from "node:util";
import {
  allAbilities,
  attemptOf,
  toolsOfAbilities,
  callInputOf,
  largeResults,
  resultShare,
  abilityOf,
  type AbilityWork,
} from "@larkline/agent";
import { didYouMean } from "@larkline/process/config";
import type { Logger, Telemetry } from "@larkline/process/telemetry";
import {
  argumentsHashOf,
  agentOfTurn,
  builtInRunner,
  inputHashOf,
  runnerKeyOf,
  signCall,
  traceparentOfMessage,
  withDeadline,
  type CallState,
  type Clock,
  type ControlEntry,
  type InboundMessage,
  type SessionKey,
  type StoredResult,
  type ToolJob,
  type ToolOutcome,
  type TurnState,
  readResultName,
} from "@larkline/protocol";
import type { DeliverResult } from "@larkline/store";
import { keepResult, type AvailableTool, type RunnerDirectory, type ToolClash } from "@larkline/store/runners";
import { abilityClientsOf } from "./abilities.ts";
import { agentFor, type Agent } from "./agents.ts";
import { actorOf, argumentsTextOf, DecidersUnknownError, objectionTo } from "./call-policy.ts";
import { stopHelpers, wakeQueued } from "./helpers.ts";
import type { Services } from "./services.ts";
import type { RunningTurn } from "./turn-run.ts";

// Tools in a worker: the tools of all runners, handing a call to its runner, waiting for it in the turn's slot, and
// storing long results. Whether a call may run is decided in call-policy.ts.

type Tools = ReadonlyMap<string, AvailableTool>;

/** Names that are taken, whatever runners offer. */
const ownNames: ReadonlySet<string> = new Set(allAbilities.flatMap(({ toolNames }) => toolNames));

/** The agent that answers in a turn, and for which message. */
interface SpeakingTurn extends Pick<RunningTurn, "agent"> {
  stored: { turn: Pick<TurnState, "message"> };
}

/** The tools of all living runners, kept up to date. */
export class ToolCatalog {
  readonly #runners: RunnerDirectory;
  readonly #clock: Clock;
  readonly #log: Logger;
  /** Without `GRANT_KEY` tools are left out that act as people. */
  readonly #mayActAsPeople: boolean;
  #leftOut: readonly string[] = [];
  #tools: Tools = new Map();
  #clashes: readonly ToolClash[] = [];
  /** What was made for agents from the present tools, by what else decides it. */
  #ofAgents = new WeakMap<Agent, { own: readonly [string, AvailableTool][]; tools: Tools }[]>();
  #ofMessages = new WeakMap<InboundMessage, { agent: Agent; tools: Tools }>();

  constructor(runners: RunnerDirectory, clock: Clock, log: Logger, { mayActAsPeople = true } = {}) {
    this.#mayActAsPeople = mayActAsPeople;
    this.#runners = runners;
    this.#clock = clock;
    this.#log = log;
  }

  /**
   * Reads the directory at once, on every change that it reports, and every `refreshMs`: a runner that died reports
   * nothing, its announcement expires. While Redis is away the last answer stays. Ends when `signal` aborts.
   */
  async start(signal: AbortSignal, refreshMs = 2_000): Promise<void> {
    const refresh = (): void =>
      void this.refresh().catch((error: unknown) => this.#log.warn({ error }, "the tools of runners were not read"));
    await this.refresh();
    await this.#runners.watch(refresh, signal);
    signal.addEventListener("abort", this.#clock.every(refreshMs, refresh), { once: true });
  }

  async refresh(): Promise<void> {
    const { tools, clashes } = await this.#runners.view();
    this.#leaveOut(tools);
    if (!isDeepStrictEqual(clashes, this.#clashes)) {
      this.#clashes = clashes;
      if (clashes.length > 0) this.#log.warn({ clashes }, "tools are not used whose names belong to other runners");
    }
    if (isDeepStrictEqual(tools, this.#tools)) return;
    this.#tools = tools;
    this.#ofAgents = new WeakMap();
    this.#ofMessages = new WeakMap();
    for (const [name, { runner }] of this.#tools) {
      if (ownNames.has(name)) {
        this.#log.warn({ tool: name, runner }, "a runner offers a built-in tool's name; it is not used");
      }
    }
  }

  /** Says once which tools are left out. */
  #leaveOut(tools: Map<string, AvailableTool>): void {
    if (this.#mayActAsPeople) return;
    const asPeople = [...tools].filter(([, { announcement }]) => announcement.identity?.as === "person");
    for (const [name] of asPeople) tools.delete(name);
    const names = asPeople.map(([name]) => name).toSorted();
    if (names.length > 0 && !isDeepStrictEqual(names, this.#leftOut)) {
      this.#log.warn({ tools: names }, "GRANT_KEY is not set: tools that act as people are not offered");
    }
    this.#leftOut = names;
  }

  /** The tools of the agent that answers in a turn; the same map for as long as nothing changes. */
  ofTurn({ agent, stored: { turn } }: SpeakingTurn): Tools {
    const { message } = turn;
    const last = this.#ofMessages.get(message);
    if (last?.agent === agent) return last.tools;
    const tools = this.#offered(agent, toolsOfAbilities(allAbilities, { ...agent.place, message }));
    this.#ofMessages.set(message, { agent, tools });
    return tools;
  }

  /**
   * All of the runners', or those that the agent names, and those of its abilities; what reads long results is of use only
   * beside a tool that may have some.
   */
  #offered(agent: Agent, own: readonly [string, AvailableTool][]): Tools {
    const known = this.#ofAgents.get(agent) ?? [];
    const same = known.find((other) => isDeepStrictEqual(other.own, own));
    if (same !== undefined) return same.tools;
    const { tools: allowed } = agent.config;
    const used = allowed === null ? [...this.#tools] : [...this.#tools].filter(([name]) => allowed.includes(name));
    const tools = new Map([...used, ...(used.length === 0 ? own.filter(([name]) => name !== readResultName) : own)]);
    this.#ofAgents.set(agent, [...known, { own, tools }]);
    return tools;
  }

  names(): string[] {
    return [...this.#tools.keys(), ...ownNames];
  }
}

/** How long runners of the same start are waited for: a sandbox is tried out before its tools are announced. */
const graceMs = 15_000;

/** Says once, a while after the start, which tools agents name and nothing offers: runners may come later. */
export function warnOfUnknownTools({ toolCatalog, settings, clock, log }: Services, signal: AbortSignal): void {
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
export async function dispatchCalls(services: Services, turn: TurnState, calls: readonly CallState[]): Promise<void> {
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
    const refused = objection === undefined ? undefined : { outcome: objection, unlessStarted: true };
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
  /** Only if no runner has started the call. */
  unlessStarted: boolean;
}

function refusal(error: string): Answer {
  return { outcome: { ok: false, error }, unlessStarted: false };
}

/** Answers a call here, and wakes its turn. */
async function answerCall(services: Services, turn: TurnState, call: CallState, answer: Answer): Promise<void> {
  const { session } = turn.message;
  const details = answer.unlessStarted ? { unlessStarted: true } : {};
  await wakeAfter(services, session, await services.store.deliver(session, attemptOf(call), answer.outcome, details));
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
  const limitedTools = new Set(calls.flatMap(({ limited, name }) => (limited === true ? [name] : [])));
  const jobs = calls.map((call) => signedJob(services, turn, call));
  await services.handoffs.expect(runner);
  await services.tools.dispatch(runner, jobs, { background: turn.message.background === true, limitedTools });
}

/** The keys that calls for runners are signed with, made from the deployment's: no runner can make calls for another. */
export class RunnerKeys {
  readonly #signingKey: string;
  readonly #keys = new Map<string, string>();

  constructor(signingKey: string) {
    this.#signingKey = signingKey;
  }

  of(runner: string): string {
    const key = this.#keys.get(runner) ?? runnerKeyOf(this.#signingKey, runner);
    if (this.#keys.size < maxRunnerKeys) this.#keys.set(runner, key);
    return key;
  }
}

const maxRunnerKeys = 1_000;

/** The job of a call that has a runner, as {@link obstacleTo} has made sure, signed with that runner's key. */
function signedJob({ owner, clock, runnerKeys }: Services, turn: TurnState, call: CallState): ToolJob {
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
  for (const runner of new Set(running.flatMap(runnerAtWork))) void stopCalls(services, runner, cancel);
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

/**
 * How a hold ended. `answered`: the turn continues. Otherwise it asks the store and is suspended, unless entries are
 * unread there: `late`, the time is over; `crowded`, no slot is free; `missed`, others have added entries, too;
 * `stopped`, the turn was cancelled, fenced, or its process stops; `dropped`, the calls could not be handed out, or
 * people are asked.
 */
export type HoldEnd = "answered" | "late" | "crowded" | "missed" | "stopped" | "dropped";

type HeldTurn = Pick<TurnState, "calls" | "message">;

/** Whether a slot may be kept for the calls of a turn: people take longer than any hold, and so do runners that are away. */
export function mayHold({ calls }: HeldTurn): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  return open.length > 0 && open.every(isQuick);
}

function isQuick({ state, runnerIsAway, helper }: CallState): boolean {
  return state === "running" && runnerIsAway !== true && helper === undefined;
}

interface TurnHoldsOptions {
  clock: Clock;
  /** How long a turn keeps its slot while its calls run, ms; 0: not at all. */
  holdMs: number;
  /** Jobs that this process runs at once. */
  slots: number;
  onEnd: (end: HoldEnd) => void;
}

/**
 * Turns that keep claim and slot for a moment while their calls run, because most calls are quick and a suspended turn
 * needs another job and another claim. A hold loses nothing: the store has every entry, and a turn asks it when its
 * hold is over. So an outcome counts here only in time, and only without a gap before it.
 */
export class TurnHolds {
  readonly #options: TurnHoldsOptions;
  /** The oldest first. */
  readonly #open = new Map<SessionKey, Hold>();
  #jobs = 0;
  /** A job has to run alone in this process: no turn keeps its slot until the others have ended. */
  #mustEmpty = false;

  constructor(options: TurnHoldsOptions) {
    this.#options = options;
  }

  /** A job takes a slot. If it was the last free one, the oldest hold ends, so that waiting jobs get a slot. */
  jobBegins(): void {
    this.#jobs += 1;
    if (this.#isCrowded()) this.#open.values().next().value?.end("crowded");
  }

  jobEnds(): void {
    this.#jobs -= 1;
    if (this.#jobs === 0) this.#mustEmpty = false;
  }

  /** A job has to be alone, now or when the others have ended: none of them waits here until then. */
  makeRoom(): void {
    this.#mustEmpty = true;
    for (const hold of this.#open.values()) hold.end("crowded");
  }

  /** Undefined when the turn cannot keep its slot. Open it before its calls are handed out; `signal` ends it. */
  open(turn: HeldTurn, signal: AbortSignal): Hold | undefined {
    const { clock, holdMs, onEnd } = this.#options;
    const { session } = turn.message;
    if (holdMs === 0 || this.#mustEmpty || this.#isCrowded() || signal.aborted || !mayHold(turn)) return undefined;
    const hold = new Hold(clock, holdMs, signal, (end) => {
      if (this.#open.get(session) === hold) this.#open.delete(session);
      onEnd(end);
    });
    this.#open.set(session, hold);
    return hold;
  }

  /** Something was added to a session: its turn may wait for it here. */
  delivered(session: SessionKey, { unread }: DeliverResult): void {
    if (unread !== undefined) this.#open.get(session)?.add(unread);
  }

  #isCrowded(): boolean {
    return this.#jobs >= this.#options.slots;
  }
}

/** One turn that waits in its slot for the calls of one step. */
export class Hold {
  readonly #clock: Clock;
  readonly #untilMs: number;
  readonly #cancelTimer: () => void;
  readonly #signal: AbortSignal;
  readonly #onEnd: (end: HoldEnd) => void;
  #entries: ControlEntry[] = [];
  /** Entries of the session that are not acknowledged, as far as they came here. */
  #known = 0;
  #waiting: (() => void) | undefined;
  #isOver = false;

  constructor(clock: Clock, holdMs: number, signal: AbortSignal, onEnd: (end: HoldEnd) => void) {
    this.#clock = clock;
    this.#untilMs = clock.monotonic() + holdMs;
    this.#cancelTimer = clock.after(holdMs, () => this.end("late"));
    this.#signal = signal;
    this.#onEnd = onEnd;
    signal.addEventListener("abort", this.#stop, { once: true });
  }

  /** The entries that have come, in order, once there are any; undefined when the hold is over. */
  async next(): Promise<ControlEntry[] | undefined> {
    if (!this.#isOver && this.#entries.length === 0) {
      await new Promise<void>((resolve) => (this.#waiting = resolve));
    }
    // A process that was frozen may have been replaced, so late entries are read from the store.
    if (this.#clock.monotonic() >= this.#untilMs) this.end("late");
    if (this.#isOver) return undefined;
    return this.#entries.splice(0);
  }

  add({ entry, count }: NonNullable<DeliverResult["unread"]>): void {
    this.#known += 1;
    if (count !== this.#known) return this.end("missed");
    this.#entries.push(entry);
    this.#wake();
  }

  /** Idempotent: the first reason counts. */
  end(end: HoldEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#cancelTimer();
    this.#signal.removeEventListener("abort", this.#stop);
    this.#onEnd(end);
    this.#wake();
  }

  readonly #stop = (): void => this.end("stopped");

  #wake(): void {
    this.#waiting?.();
    this.#waiting = undefined;
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
async function runBuiltIn(services: Services, turn: TurnState, call: CallState): Promise<ToolOutcome> {
  const { clock, log, telemetry } = services;
  const startedMs = clock.monotonic();
  const run = async (): Promise<ToolOutcome> => {
    const ability = abilityOf(call, allAbilities);
    const work = ability?.run?.(call, abilityWork(services, turn));
    if (work === undefined) return { ok: false, error: `tool_not_found: there is no tool '${call.name}'.` };
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
    place: { ...place, message },
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
  const tags = { traceparent: traceparentOfMessage(message), session: message.session, turn: turnId };
  const facts = { call: call.id, tool: call.name, outcome: outcome.ok ? "ok" : "error", ranMs: Math.round(ranMs) };
  events.emit({ eventName: "call.outcome", attributes: { ...tags, ...facts } });
}

/** A turn waits for this; a store that hangs must not hold it up for long. */
const keepMs = 10_000;

/**
 * Keeps the results among these entries that are longer than what the model gets of them, and notes
 * their handles. Never rejects: a result that could not be kept stays whole in its entry, and is cut when the entry
 * is decided upon.
 */
export async function keepLargeResults(
  services: Services,
  { limits }: Agent,
  turn: TurnState,
  control: readonly ControlEntry[],
): Promise<ControlEntry[]> {
  const large = largeResults(turn, control, limits);
  const places = await Promise.all(
    large.map(async ({ callId, text }) => [callId, await keepLargeResult(services, turn, text)] as const),
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
    log.warn({ error, session, turnId }, "a large result was not kept; only its beginning is shown");
    return undefined;
  }
}

/** Whose call it is while it runs; built-in tools are run here. */
export function runnerAtWork({ state, runner }: CallState): string[] {
  return state === "running" && runner !== undefined && runner !== builtInRunner ? [runner] : [];
}
