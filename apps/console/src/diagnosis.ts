import { turnIdOf, type SessionKey } from "@larkline/protocol";
import { turnJobId, turnsQueue } from "@larkline/store/queues";
import { isTerminal, type EngineEvent } from "@larkline/protocol/event";
import { attemptIdOf } from "@larkline/protocol/runner";
import type { TraceEntry } from "@larkline/protocol/trace";
import type { CallState } from "@larkline/protocol/turn";
import type { ApprovalStatus, ChildSession, EventLog, SessionSummary } from "@larkline/store";
import { outcomeKind, type Pause, type SessionLedger } from "@larkline/store/operations";
import { operatorIn } from "./agents.ts";
import { textIn, timelineOf, type MessageTrace } from "./message-trace.ts";
import type { Services } from "./services.ts";

/**
 * Why there is no answer, or that there is one. `sinceMs` and `untilMs` are epoch ms, `ms` is a duration.
 * `tone`: nothing is wrong, people have to wait, or an operator should act.
 */
export type Diagnosis =
  | { is: "unknown" }
  | { is: "refused"; reason: string }
  | { is: "not_stored"; sinceMs: number }
  | { is: "behind"; ahead: number }
  | { is: "no_worker"; sinceMs: number }
  | { is: "paused"; sinceMs: number }
  | { is: "queued"; sinceMs: number; workers: number }
  | { is: "wake_lost"; sinceMs: number }
  | { is: "model"; sinceMs: number; model: string; again?: { attempt: number; code: string } }
  /** No model has answered: the turn waits without a worker until `nextMs`, epoch ms, then comes try `attempt`. */
  | {
      is: "model_waits";
      sinceMs: number;
      model: string;
      code: string;
      attempt: number;
      nextMs: number;
    }
  | { is: "working"; sinceMs: number }
  | { is: "worker_died"; sinceMs: number; during: string }
  | Asked
  /** Set aside while it waited for people, who have decided: it continues after the turn under way. */
  | { is: "set_aside"; sinceMs: number }
  /** Behind a turn of the same person that is set aside; `asked` is what that one waits for. */
  | { is: "behind_own"; asked?: Asked }
  | { is: "no_runner"; tool: string; runner: string; sinceMs: number; untilMs: number }
  | { is: "call_queued"; tool: string; runner: string; sinceMs: number }
  | { is: "call_running"; tool: string; runner: string; sinceMs: number }
  /** `does`: in the queue, at work, or people are asked, by it or by one below it: `asked` is the call, `""` a question. */
  | { is: "helper"; agent: string; does: HelperDoes; asked?: string; sinceMs: number }
  | { is: "reply_refused"; problem: string; attempts: number; retryAtMs: number }
  | { is: "reply_behind"; ahead: number; problem: string; retryAtMs: number }
  | { is: "reply_waiting"; sinceMs: number }
  | { is: "given_up"; reason: string }
  | { is: "failed"; code: string; ms: number }
  | { is: "ended"; outcome: string; ms: number }
  /** It was answered with a notice, and its agent is still paused. */
  | { is: "agent_paused"; agent: string; by: string; sinceMs: number }
  | { is: "answered"; ms: number }
  | { is: "forgotten" };

type HelperDoes = "queued" | "works" | "asks";

type Tone = "fine" | "waits" | "wrong";

type SetAside = SessionSummary["setAside"][number];

/** A helper and how far below the run of the person's message it works; on level 0 that run. */
export interface TreeRow {
  level: number;
  child: ChildSession;
  usd?: number;
  /** Undefined: what is stored of its turn cannot be read. */
  summary: SessionSummary | undefined;
  approvals: readonly ApprovalStatus[];
  /** Helpers below it that are at work. */
  below: number;
}

/** How things stand now, as the ledgers have it, around a message that is in its session. */
export interface Standing {
  session: string;
  seq: number;
  summary: SessionSummary;
  /** Numbers of the messages that wait behind the one at the head, in order. */
  waiting: readonly number[];
  ledger: SessionLedger;
  approvals: readonly ApprovalStatus[];
  /** The wake-up that the session waits for. */
  job: { state: string; addedAtMs: number } | undefined;
  isPaused: boolean;
  workers: number;
  /** Runners that live. */
  runners: ReadonlySet<string>;
  /** The last event of its run, where it has one. */
  end: EngineEvent | undefined;
  /** Of its run, and theirs; absent: none. */
  helpers?: readonly TreeRow[];
  /** Agents and tools that operators have paused. */
  pauses: readonly Pause[];
}

/** People are asked about a call; `aside`: others of the group are answered meanwhile. */
interface Asked {
  is: "approval";
  tool: string;
  deciders: readonly string[];
  sinceMs: number;
  untilMs: number;
  aside?: boolean;
}

const tones: Readonly<Record<Diagnosis["is"], Tone>> = {
  unknown: "wrong",
  refused: "waits",
  not_stored: "wrong",
  behind: "waits",
  no_worker: "wrong",
  paused: "wrong",
  queued: "waits",
  wake_lost: "wrong",
  model: "waits",
  model_waits: "wrong",
  working: "waits",
  worker_died: "wrong",
  approval: "waits",
  set_aside: "waits",
  behind_own: "waits",
  no_runner: "wrong",
  call_queued: "waits",
  call_running: "waits",
  helper: "waits",
  reply_refused: "wrong",
  reply_behind: "waits",
  reply_waiting: "waits",
  given_up: "wrong",
  failed: "wrong",
  ended: "fine",
  agent_paused: "waits",
  answered: "fine",
  forgotten: "wrong",
};

export function toneOf({ is }: Diagnosis): Tone {
  return tones[is];
}

function lastOf(entries: readonly TraceEntry[], name: string): TraceEntry | undefined {
  return entries.findLast((entry) => entry.name === name);
}

/** Spans that began and did not end, newest last. */
function openSpans(entries: readonly TraceEntry[]): TraceEntry[] {
  const ended = new Set(
    entries.flatMap(({ kind, instance, span }) => (kind === "end" ? [`${instance} ${span}`] : [])),
  );
  return entries.filter(
    ({ kind, instance, span }) => kind === "begin" && !ended.has(`${instance} ${span}`),
  );
}

/** A message that no session knows of. */
function withoutSession({ entries, atMs }: MessageTrace): Diagnosis {
  const refusals = entries.filter(
    ({ name, data }) => name === "message.refused" && data["reason"] !== "duplicate",
  );
  const last = refusals.at(-1);
  if (last !== undefined) {
    const reason = textIn(last.data, "reason");
    return reason === "failed" || reason === "not_ready"
      ? { is: "not_stored", sinceMs: last.atMs }
      : { is: "refused", reason };
  }
  const sent = lastOf(entries, "reply.sent");
  if (sent !== undefined) return { is: "answered", ms: sent.atMs - atMs };
  return entries.length === 0 ? { is: "unknown" } : { is: "not_stored", sinceMs: atMs };
}

function whileQueued({ job, isPaused, workers }: Standing, sinceMs: number): Diagnosis {
  if (workers === 0) return { is: "no_worker", sinceMs };
  if (isPaused) return { is: "paused", sinceMs };
  if (job === undefined) return { is: "wake_lost", sinceMs };
  return { is: "queued", sinceMs, workers };
}

function whileRunning({ job, workers }: Standing, { entries, atMs }: MessageTrace): Diagnosis {
  const open = openSpans(entries).filter(({ service }) => service === "agent-worker");
  const step = open.findLast(({ name }) => name === "model.step");
  const during = open.at(-1);
  const sinceMs = (step ?? during)?.atMs ?? atMs;
  // A claim lives within its job: no worker has it where that job is not active.
  if (workers === 0 || job === undefined || job.state !== "active") {
    return { is: "worker_died", sinceMs, during: during?.name ?? "turn.run" };
  }
  if (step === undefined) return { is: "working", sinceMs };
  const again = retryWithin(entries, step);
  return {
    is: "model",
    sinceMs,
    model: textIn(step.data, "model"),
    ...(again === undefined ? {} : { again }),
  };
}

/** The try that a model step is at, when it is not the first. */
function retryWithin(
  entries: readonly TraceEntry[],
  step: TraceEntry,
): { attempt: number; code: string } | undefined {
  const retries = entries
    .slice(entries.indexOf(step))
    .filter(({ name }) => name === "model.retried");
  const last = retries.at(-1);
  return last === undefined
    ? undefined
    : { attempt: retries.length + 1, code: textIn(last.data, "code") };
}

function approvalOf({ approvals }: Standing, calls: readonly CallState[]): Asked | undefined {
  const asked = new Set(
    calls.flatMap(({ approvalId, state }) => (state.startsWith("waiting") ? [approvalId] : [])),
  );
  const found = approvals.find(
    ({ approval, state }) => state === "pending" && asked.has(approval.id),
  );
  if (found === undefined) return undefined;
  const { tool, deciders, requester, createdAtMs, expiresAtMs } = found.approval;
  const operators = deciders.operators === true ? ["operators"] : [];
  const people = [
    ...(deciders.requester ? [requester.id] : []),
    ...deciders.people,
    ...deciders.roles,
    ...operators,
  ];
  return { is: "approval", tool, deciders: people, sinceMs: createdAtMs, untilMs: expiresAtMs };
}

/** What a helper does that has not answered its call. */
function helperOf(
  { helpers = [] }: Standing,
  { helper, startedAtMs }: CallState,
  fallbackMs: number,
): Diagnosis {
  const { agent = "", session = "" } = helper ?? {};
  const at = helpers.findIndex(({ child }) => child.session === session);
  const own = helpers[at];
  const is = { is: "helper", agent, sinceMs: startedAtMs ?? fallbackMs } as const;
  if (own === undefined) return { ...is, does: "works" };
  const after = helpers.slice(at + 1);
  const end = after.findIndex(({ level }) => level <= own.level);
  const [asked] = [own, ...after.slice(0, end === -1 ? undefined : end)].flatMap(
    ({ approvals }) => approvals,
  );
  if (asked !== undefined) {
    const { kind, tool } = asked.approval;
    return { ...is, does: "asks", asked: kind === "question" ? "" : tool };
  }
  return { ...is, does: own.summary?.state === "queued" ? "queued" : "works" };
}

function callOf(standing: Standing, call: CallState, fallbackMs: number): Diagnosis {
  if (call.helper !== undefined) return helperOf(standing, call, fallbackMs);
  const { ledger, runners } = standing;
  const {
    id,
    name: tool,
    runner = "",
    attempt = 1,
    startedAtMs: sinceMs = fallbackMs,
    deadlineMs,
  } = call;
  const mark = ledger.calls.get(attemptIdOf({ callId: id, attempt }));
  if (mark === "started") return { is: "call_running", tool, runner, sinceMs };
  // Tools of the worker itself have no runner; its name is in brackets.
  if (!runner.startsWith("(") && !runners.has(runner)) {
    return { is: "no_runner", tool, runner, sinceMs, untilMs: deadlineMs ?? sinceMs };
  }
  return { is: "call_queued", tool, runner, sinceMs };
}

/** The turn has saved its state and waits: for a model, for people, then for calls. Only people have to act. */
function whileSuspended(standing: Standing, { entries, atMs }: MessageTrace): Diagnosis {
  const { turn } = standing.summary;
  const putOff = turn?.requests.putOff;
  if (putOff !== undefined) {
    const { model, code, atMs: nextMs, sinceMs, used } = putOff;
    return { is: "model_waits", sinceMs, model, code, attempt: used.attempts + 1, nextMs };
  }
  const calls = turn?.calls ?? [];
  const asked = approvalOf(standing, calls);
  if (asked !== undefined) return asked;
  const open = calls.filter(({ state }) => state === "running");
  const ran = openSpans(entries).findLast(({ name }) => name === "tool.run");
  const running = open.find(({ id }) => ran !== undefined && textIn(ran.data, "call") === id);
  if (running !== undefined && ran !== undefined) {
    const { name: tool, runner = "" } = running;
    if (standing.runners.has(runner)) {
      return { is: "call_running", tool, runner, sinceMs: ran.atMs };
    }
  }
  const found = open.map((call) => callOf(standing, call, turn?.startedAtMs ?? atMs));
  const needsPeople = found.find((one) => one.is === "helper" && one.does === "asks");
  return (
    found.find(({ is }) => is === "no_runner") ??
    needsPeople ??
    found[0] ?? { is: "working", sinceMs: atMs }
  );
}

/** A turn that waits for people while others of its group are answered. */
function whileAside(
  standing: Standing,
  { turn, head }: SetAside,
): Asked | Extract<Diagnosis, { is: "set_aside" }> {
  const asked = approvalOf(standing, turn?.calls ?? []);
  return asked === undefined
    ? { is: "set_aside", sinceMs: turn?.startedAtMs ?? head.message.createdAtMs }
    : { ...asked, aside: true };
}

/** Messages wait for the turns of their own sender, and for those before them in the inbox. */
function whileBehind(standing: Standing, { person }: MessageTrace, ahead: number): Diagnosis {
  const own = standing.summary.setAside.find(
    ({ head }) => person !== "" && head.message.sender.id === person,
  );
  if (own === undefined) return { is: "behind", ahead };
  const asked = whileAside(standing, own);
  return asked.is === "approval" ? { is: "behind_own", asked } : { is: "behind_own" };
}

function waitingForPeople(standing: Standing): Asked | undefined {
  const { turn } = standing.summary;
  return turn?.waiting.sinceMs === undefined ? undefined : approvalOf(standing, turn.calls);
}

function atHead(standing: Standing, trace: MessageTrace): Diagnosis {
  const sinceMs = lastOf(trace.entries, "message.appended")?.atMs ?? trace.atMs;
  switch (standing.summary.state) {
    case "queued":
      // Where it waits for people, the wake-up is for others of the group.
      return (
        waitingForPeople(standing) ?? whileQueued(standing, standing.job?.addedAtMs ?? sinceMs)
      );
    case "running":
      return whileRunning(standing, trace);
    case "suspended":
      return whileSuspended(standing, trace);
    case "idle":
      return { is: "wake_lost", sinceMs };
  }
}

function unsentReply({ ledger, session, seq }: Standing): Diagnosis | undefined {
  const turnId = turnIdOf(session, seq);
  const ahead = ledger.unsent.findIndex(({ id }) => id === turnId);
  const reply = ledger.unsent[ahead];
  const [head] = ledger.unsent;
  if (reply === undefined || head === undefined) return undefined;
  const { retryAtMs = 0 } = ledger;
  if (ahead > 0) return { is: "reply_behind", ahead, problem: head.problem ?? "", retryAtMs };
  const { problem, attempts, createdAtMs } = reply;
  if (problem === undefined) return { is: "reply_waiting", sinceMs: createdAtMs };
  return { is: "reply_refused", problem, attempts, retryAtMs };
}

function endedWith(outcome: string, ms: number): Diagnosis {
  const kind = outcomeKind(outcome);
  if (kind === "answered") return { is: "answered", ms };
  return kind === "stopped" ? { is: "ended", outcome, ms } : { is: "failed", code: outcome, ms };
}

function outcomeIn(
  entries: readonly TraceEntry[],
  end: EngineEvent | undefined,
): string | undefined {
  const ended = lastOf(entries, "turn.ended");
  if (ended !== undefined) return textIn(ended.data, "outcome");
  if (end === undefined || !isTerminal(end)) return undefined;
  return end.type === "done" ? end.reason : end.type === "error" ? end.code : undefined;
}

/** The turn is over: what became of its reply. */
function afterTurn(standing: Standing, { entries, atMs }: MessageTrace): Diagnosis {
  const unsent = unsentReply(standing);
  if (unsent !== undefined) return unsent;
  const failure = lastOf(entries, "reply.failed");
  const sent = lastOf(entries, "reply.sent");
  if (failure?.data["givenUp"] === true && (sent?.atMs ?? 0) < failure.atMs) {
    return { is: "given_up", reason: textIn(failure.data, "reason") };
  }
  const outcome = outcomeIn(entries, standing.end);
  if (outcome === undefined) {
    return sent === undefined ? { is: "forgotten" } : { is: "answered", ms: sent.atMs - atMs };
  }
  if (outcome === "agent_paused") {
    const agent = textIn(lastOf(entries, "turn.ended")?.data ?? {}, "agent");
    const pause = standing.pauses.find(({ what, name }) => what === "agent" && name === agent);
    if (pause !== undefined) {
      return { is: "agent_paused", agent, by: operatorIn(pause.by), sinceMs: pause.sinceMs };
    }
  }
  const overAtMs = (sent ?? lastOf(entries, "turn.ended") ?? entries.at(-1))?.atMs ?? atMs;
  const ms = Math.max(0, overAtMs - atMs);
  return endedWith(outcome, ms);
}

/** Says in one reason where a message stands: by the ledgers, and by its trace where they have nothing to say. */
export function diagnose(trace: MessageTrace, standing: Standing | undefined): Diagnosis {
  if (standing === undefined) return withoutSession(trace);
  const { summary, seq, waiting } = standing;
  if (summary.head?.seq === seq) return atHead(standing, trace);
  const aside = summary.setAside.find(({ head }) => head.seq === seq);
  if (aside !== undefined) return whileAside(standing, aside);
  const place = waiting.indexOf(seq);
  return place >= 0 ? whileBehind(standing, trace, place + 1) : afterTurn(standing, trace);
}

/** The same from the trace alone, for a list: undefined while it is not over as far as the trace knows. */
export function traceOutcome(trace: MessageTrace): Diagnosis | undefined {
  if (trace.place === undefined) return withoutSession(trace);
  const sent = lastOf(trace.entries, "reply.sent");
  const outcome = outcomeIn(trace.entries, undefined);
  if (outcome === undefined) return undefined;
  const ms = Math.max(
    0,
    ((sent ?? lastOf(trace.entries, "turn.ended"))?.atMs ?? trace.atMs) - trace.atMs,
  );
  return endedWith(outcome, ms);
}

/** What the vendor of a model said when it refused a call; without a vendor's words, what was found wrong with the call. */
export interface Refusal {
  model: string;
  problem: string;
  /** The id under which the vendor finds the request; empty when it gave none. */
  requestId: string;
}

/** The refusal that a diagnosis is about, as far as the trace has it. Secrets were taken out before it was written. */
export function refusalOf({ entries }: MessageTrace, diagnosis: Diagnosis): Refusal | undefined {
  const rows = timelineOf(entries, { everyFrame: true });
  const of = (names: readonly string[], code?: string) =>
    rows.findLast(
      ({ name, failed, data }) =>
        names.includes(name) && (code === undefined || failed === code || data["code"] === code),
    );
  const found = () => {
    switch (diagnosis.is) {
      case "failed":
        return of(["model.step"], diagnosis.code);
      case "model_waits":
        return of(["model.step", "model.retried"], diagnosis.code);
      case "model":
        return diagnosis.again === undefined ? undefined : of(["model.retried"]);
      default:
        return undefined;
    }
  };
  const data = found()?.data ?? {};
  const problem = textIn(data, "problem");
  return problem === ""
    ? undefined
    : { model: textIn(data, "model"), problem, requestId: textIn(data, "requestId") };
}

/** Messages behind the head that are looked at: as many as a session takes. */
const maxWaiting = 200;

const pageSize = 500;

/** Events that are read to find the end of a run, which its trace knows as a rule. */
const maxEvents = 5_000;

/** Where a message is: as its trace says, or else where it would have to be. */
async function placeOf(
  { store }: Services,
  { place, app, chat, messageId }: MessageTrace,
): Promise<MessageTrace["place"]> {
  if (place !== undefined) return place;
  if (app === "" || chat === "" || messageId === "") return undefined;
  const session = `${app}.${chat}`;
  const seq = await store.seqOf(session, app, messageId);
  // Answered outside a session, such as a message that came late, it has a number of 0.
  return seq === undefined || seq === 0 ? undefined : { session, seq };
}

/** The last event of a run, as far as its events are kept. */
export async function endOf(
  log: EventLog,
  session: SessionKey,
  runId: string,
): Promise<EngineEvent | undefined> {
  let after = 0;
  for (let read = 0; read < maxEvents; read += pageSize) {
    const page = await log.read(session, after, pageSize);
    const end = page.find((record) => record.runId === runId && isTerminal(record.event));
    if (end !== undefined) return end.event;
    const last = page.at(-1);
    if (last === undefined || page.length < pageSize) return undefined;
    after = last.seq;
  }
  return undefined;
}

async function jobOf(
  { catalog }: Services,
  session: SessionKey,
  gen: number,
): Promise<Standing["job"]> {
  const job = await catalog.job(turnsQueue, turnJobId(session, gen));
  return job === undefined ? undefined : { state: job.state, addedAtMs: job.addedAtMs };
}

/** Reads from the ledgers how things stand around a message; undefined when no session knows it. */
export async function standingOf(
  services: Services,
  trace: MessageTrace,
): Promise<Standing | undefined> {
  const place = await placeOf(services, trace);
  if (place === undefined) return undefined;
  const { store, approvals, index, presence, directory, catalog, eventLog } = services;
  const { session, seq } = place;
  const [summary, waiting, ledger, pending, depth, members, runners, pauses] = await Promise.all([
    store.summary(session),
    store.waiting(session, maxWaiting),
    index.ledger(session),
    approvals.pending(session),
    catalog.depth(turnsQueue),
    presence.members(),
    directory.runners(),
    services.pauses.list(),
  ]);
  const isOver = trace.entries.some(({ name }) => name === "turn.ended");
  return {
    session,
    seq,
    summary,
    waiting: waiting.map((one) => one.seq),
    ledger,
    approvals: pending,
    job: await jobOf(services, session, summary.gen),
    isPaused: depth.isPaused,
    workers: members.length,
    runners: new Set(runners.map(({ runner }) => runner)),
    end: isOver ? undefined : await endOf(eventLog, session, turnIdOf(session, seq)),
    pauses,
  };
}
