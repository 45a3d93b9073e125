import { didYouMean, type AgentConfig } from "@larkline/process/config";
import {
  type AvailableTool,
  type CallFacts,
  type DeliverDetails,
  type DeliverResult,
  keepResult,
  type OpenCall,
  readResultName,
  type ResultDesk,
  resultPage,
  type RunnerDirectory,
  type SessionStore,
} from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import {
  traceparentOfMessage,
  type CallState,
  type ToolJob,
  type ToolOutcome,
  type TurnState,
  sharedNow,
  argumentsHashOf,
  runnerKeyOf,
  signCall,
  type CallAuthority,
  parserOf,
  type SessionKey,
  type ToolAnnouncement,
  type ControlEntry,
  type StoredResult,
  attemptIdOf,
  type Actor,
  type InboundMessage,
} from "@larkline/protocol";
import type { ToolQueues } from "@larkline/queue";
import { resultShare, type TurnLimits, largeResults } from "@larkline/agent";
import { Type } from "typebox";
import type { Authorities } from "./approvals.ts";
import { within } from "./within.ts";
import type { WorkerCounters } from "./services.ts";

export interface OfferedToolsDeps {
  catalog: Pick<ToolCatalog, "tools">;
  builtIns: Pick<BuiltInTools, "offered">;
  logger: Logger;
}

type Tools = ReadonlyMap<string, AvailableTool>;

/**
 * The tools that an agent may use, worked out once per change of the catalog: all of the runners' or
 * those in `allowed`. Built-in ones come along wherever there is a tool whose results they are for.
 */
export function createOfferedTools(deps: OfferedToolsDeps, allowed: readonly string[] | null): () => Tools {
  const { catalog, builtIns, logger } = deps;
  let source: Tools | undefined;
  let offered: Tools = new Map();
  return () => {
    const all = catalog.tools();
    if (all === source) return offered;
    source = all;
    for (const [name, { runner }] of all) {
      if (builtIns.offered.has(name)) {
        logger.warn({ tool: name, runner }, "a runner offers a built-in tool's name; it is not used");
      }
    }
    const used = allowed === null ? [...all] : [...all].filter(([name]) => allowed.includes(name));
    offered = used.length === 0 ? new Map() : new Map([...used, ...builtIns.offered]);
    return offered;
  };
}

/** How long runners of the same start are waited for: a sandbox is tried out before its tools are announced. */
const graceMs = 15_000;

/** Says once, a while after the start, which tools agents name and nothing offers: runners may come later. */
export function warnOfUnknownTools(
  { catalog, builtIns, logger }: OfferedToolsDeps,
  agents: Readonly<Record<string, Pick<AgentConfig, "tools">>>,
  signal: AbortSignal,
): void {
  const warn = (): void => {
    const known = [...catalog.tools().keys(), ...builtIns.offered.keys()];
    for (const [agent, { tools }] of Object.entries(agents)) {
      for (const tool of tools ?? []) {
        if (known.includes(tool)) continue;
        const near = didYouMean(tool, known) || "; the agent gets it when a runner does";
        logger.warn({ agent, tool }, `agents.${agent}.tools: no runner offers '${tool}'${near}`);
      }
    }
  };
  const timer = setTimeout(warn, graceMs);
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
}

/** The tools of all living runners, kept up to date. */
export interface ToolCatalog {
  tools(): ReadonlyMap<string, AvailableTool>;
  refresh(): Promise<void>;
}

/**
 * Reads the directory at once, on every change it reports and every `refreshMs` (a runner that died
 * reports nothing, it just expires). Keeps the last answer while Redis is away.
 */
export async function createToolCatalog(options: {
  directory: RunnerDirectory;
  signal: AbortSignal;
  refreshMs?: number;
  onError: (error: unknown) => void;
}): Promise<ToolCatalog> {
  const { directory, signal, refreshMs = 2_000, onError } = options;
  let tools: ReadonlyMap<string, AvailableTool> = new Map();
  const refresh = async (): Promise<void> => {
    tools = await directory.tools();
  };
  const refreshQuietly = (): void => void refresh().catch(onError);
  await refresh();
  await directory.watch(refreshQuietly, signal);
  const timer = setInterval(refreshQuietly, refreshMs);
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  return { tools: () => tools, refresh };
}

interface ToolDispatch {
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

/** A job that nobody vouches for yet. */
type UnsignedJob = Omit<ToolJob, "envelope">;

/** Vouches for a job towards one runner. */
type CallSigner = (job: UnsignedJob, runner: string, authority: CallAuthority) => ToolJob;

/** Signs calls with a key of each runner's own, made from `signingKey`: no runner can make calls for another. */
export function createCallSigner(signingKey: string): CallSigner {
  const keys = new Map<string, string>();
  return (job, runner, authority) => {
    const key = keys.get(runner) ?? runnerKeyOf(signingKey, runner);
    keys.set(runner, key);
    const { session, turnId, callId, attempt, actor } = job;
    const envelope = signCall(key, {
      v: 1,
      runner,
      tool: job.name,
      session,
      turnId,
      callId,
      attempt,
      argumentsHash: argumentsHashOf(job.arguments),
      actor,
      authority,
      expiresAtMs: job.deadlineMs,
    });
    return { ...job, envelope };
  };
}

/** Stands for the workers where a call names its runner; no runner can be called so. */
export const builtInRunner = "(worker)";

/** Tools that workers run themselves. */
export interface BuiltInTools {
  /** By name; these names are taken, whatever runners offer. */
  readonly offered: ReadonlyMap<string, AvailableTool>;
  /** Runs a call of one of them; they are all pure. Never rejects: what goes wrong is an outcome. */
  run(turn: TurnState, call: CallState): Promise<ToolOutcome>;
}

/** Whoever hands out calls waits for this. */
const readMs = 10_000;

export function createBuiltInTools(deps: { desk: ResultDesk; limits: TurnLimits; logger: Logger }): BuiltInTools {
  const { desk, limits, logger } = deps;
  const offered = new Map([[readResultName, { runner: builtInRunner, announcement: readResultAnnouncement }]]);
  return {
    offered,
    run: async ({ message: { session }, turnId, calls }, call) => {
      if (call.name !== readResultName) return { ok: false, error: `tool_not_found: there is no tool '${call.name}'.` };
      try {
        const room = resultShare(limits, calls.length);
        return await within(readMs, readResult(desk, { session, input: call.arguments, room }));
      } catch (error) {
        logger.warn({ error, session, turnId, callId: call.id }, "a stored result was not read");
        return { ok: false, error: "The stored result cannot be read at the moment. Try again later." };
      }
    },
  };
}

const pageCharacters = 20_000;
/** Room for the line that says where a page stands. */
const placeCharacters = 120;

const Input = Type.Object(
  {
    handle: Type.String({ maxLength: 100, description: "The handle as it stands in the shortened result." }),
    offset: Type.Optional(
      Type.Integer({ minimum: 0, description: "Where to begin, in characters; 0 if absent, the beginning." }),
    ),
  },
  { additionalProperties: false },
);

const parseInput = parserOf(Input);

export const readResultAnnouncement: ToolAnnouncement = {
  spec: {
    name: readResultName,
    description:
      "Reads a tool result that was too long for the conversation, page by page. Use it with the handle that " +
      "stands in the shortened result; each page says where the next one begins.",
    inputSchema: { ...Input },
  },
  effect: "pure",
  requiresApproval: false,
  risk: "low",
  secrets: ["handle"],
  timeoutMs: 30_000,
};

/**
 * A page of a stored result, and where it stands in the whole. `room`: most characters that the model
 * gets of one result. Rejects when the store does.
 */
async function readResult(
  desk: ResultDesk,
  { session, input, room }: { session: SessionKey; input: unknown; room: number },
): Promise<ToolOutcome> {
  const parsed = parseInput(input);
  if (!parsed.ok) return { ok: false, error: `The arguments do not fit: ${parsed.error}` };
  const { handle, offset = 0 } = parsed.value;
  const characters = Math.max(1, Math.min(pageCharacters, room - placeCharacters));
  const page = await resultPage(desk, session, { handle, offset, characters });
  if (page === undefined) {
    return { ok: false, error: "This conversation has no stored result of that handle, or not any more (7 days)." };
  }
  const from = Math.min(offset, page.characters);
  const next = page.nextOffset === undefined ? "this is the end" : `go on with offset ${page.nextOffset}`;
  const place = `[Characters ${from} to ${from + page.text.length} of ${page.characters}; ${next}.]`;
  return { ok: true, result: `${page.text}\n${place}` };
}

/**
 * Keeps the results among these entries that are longer than what the model gets of them, and notes
 * their handles. Never rejects: what cannot be kept stays as it is, and is cut when it is decided upon.
 */
export type KeepLargeResults = (turn: TurnState, control: readonly ControlEntry[]) => Promise<ControlEntry[]>;

interface LargeResultsDeps {
  desk: ResultDesk;
  limits: TurnLimits;
  counters: WorkerCounters;
  logger: Logger;
}

/** A turn waits for this; a store that hangs must not hold it up for long. */
const keepMs = 10_000;

/** The entry with word of where the whole of its result is. */
function withStored(entry: ControlEntry, stored: ReadonlyMap<string, StoredResult | undefined>): ControlEntry {
  if (entry.type !== "outcome" || !entry.outcome.ok) return entry;
  const place = stored.get(entry.callId);
  return place === undefined ? entry : { ...entry, outcome: { ...entry.outcome, stored: place } };
}

export function createLargeResults({ desk, limits, counters, logger }: LargeResultsDeps): KeepLargeResults {
  const keep = async ({ turnId, message }: TurnState, text: string): Promise<StoredResult | undefined> => {
    const { session } = message;
    try {
      const stored = await within(keepMs, keepResult(desk, session, text));
      counters.largeResults.add(1, { what: "kept" });
      return stored;
    } catch (error) {
      counters.largeResults.add(1, { what: "cut" });
      logger.warn({ error, session, turnId }, "a large result was not kept; only its beginning is shown");
      return undefined;
    }
  };
  return async (turn, control) => {
    const large = largeResults(turn, control, limits);
    const places = await Promise.all(large.map(async ({ callId, text }) => [callId, await keep(turn, text)] as const));
    const stored = new Map(places);
    return control.map((entry) => withStored(entry, stored));
  };
}

/** The id of a call's present attempt: what ledger, jobs and outcomes know it by. */
export function attemptOf({ id, attempt = 1 }: CallState): string {
  return attemptIdOf({ callId: id, attempt });
}

/** What a runner gets as arguments; what was approved hashes to the same. */
export function argumentsTextOf({ arguments: given }: CallState): string {
  return JSON.stringify(given);
}

/** The chat that a message is from; over HTTP, where there are none, its session. */
export function placeOf({ reply, session }: InboundMessage): string {
  return reply.channel === "feishu" ? reply.chatId : session;
}

/** Person and place that the calls of a turn act for. */
function actorOf({ message }: TurnState): Actor {
  const { app, tenant, sender } = message;
  return {
    app,
    ...(tenant === undefined ? {} : { tenant }),
    userId: sender.id,
    ...(sender.name === undefined ? {} : { userName: sender.name }),
    chatId: placeOf(message),
  };
}

/** What the audit log says of a call. */
function factsOf(turn: TurnState, call: CallState): CallFacts {
  const { userName: _userName, ...actor } = actorOf(turn);
  const { authority, runner } = call;
  return {
    ...actor,
    turnId: turn.turnId,
    tool: call.name,
    argumentsHash: argumentsHashOf(argumentsTextOf(call)),
    ...(runner === undefined ? {} : { runner }),
    ...(authority?.by === "approval" ? { approvalId: authority.id } : {}),
    ...(authority?.by === "rule" ? { ruleId: authority.id } : {}),
  };
}

/** The attempts of a turn that runners work on. */
export function openCallsOf(turn: TurnState): OpenCall[] {
  return turn.calls
    .filter(({ state }) => state === "running")
    .map((call) => ({
      callId: attemptOf(call),
      deadlineMs: call.deadlineMs ?? Number.MAX_SAFE_INTEGER,
      facts: factsOf(turn, call),
    }));
}

/** Whose call it is while it runs; built-in tools are run here. */
export function runnerAtWork({ state, runner }: CallState): string[] {
  return state === "running" && runner !== undefined && runner !== builtInRunner ? [runner] : [];
}

/** Whether people are to say what becomes of the call. */
export function waitsForPeople({ state }: CallState): boolean {
  return state === "waiting_approval" || state === "waiting_outcome";
}

/**
 * Whether a turn in a group waits for people and for nothing else, so that turns of others may come before its end.
 * Not where the step is in the history already, as earlier versions wrote it: its results have to follow at once.
 */
export function waitsForPeopleOnly({ calls, held, message }: TurnState): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  return message.chatType === "group" && held !== undefined && open.length > 0 && open.every(waitsForPeople);
}
