import {
  turnIdOf,
  type InboundMessage,
  type QueuedMessage,
  type SessionKey,
  type ControlEntry,
} from "@larkline/protocol";
import { turnJobId } from "./queues/queues.ts";
import { textOf, type Message } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ToolEffect } from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import { expect } from "vitest";
import type { ApprovalStore } from "./approval-store.ts";
import { ModelApprovals, questionsOf, approvalIdFor } from "./model-approvals.ts";
import type { SessionRetention } from "./retention.ts";
import type { SessionStore } from "./session-store.ts";
import type { CommitResult, DeliverResult, FencedWrite, Claim } from "./session-types.ts";
import {
  assistantText,
  commitOf,
  contextAfter,
  farFutureMs,
  messageOf,
  openCall,
  outboxRecord,
  saveAs,
  userText,
  turnOf,
} from "./suite-samples.ts";

interface ToolRun {
  session: SessionKey;
  callId: string;
}

interface SessionFacts {
  waiting: QueuedMessage[];
  /** Ids of messages whose turn was committed, in order. */
  answered: string[];
  /** Ids of messages that left the inbox without a turn of their own: cancelled, or joined another one. */
  turnless: string[];
  /** Those that joined a turn, and whose. */
  joined: { messageId: string; id: string }[];
  /** Messages whose senders were asked, and ids of those that were dropped then. */
  parked: Map<string, InboundMessage>;
  dropped: string[];
  /** Ids of messages that were answered before the session was removed. */
  forgotten: string[];
  /** Numbers of the messages since then, and all there ever were. */
  numbers: number[];
  everNumbers: Set<number>;
  history: Message[];
  /** What a claim must show of it. */
  context: Message[];
  told: Set<number>;
  epoch: string;
  stalls: number;
  /** Calls opened by accepted writes, and the result that was accepted first. */
  calls: Map<string, { messageId: string; result: string | undefined; runs: number }>;
}

export type Work =
  | "continue"
  | "call one"
  | "call two"
  | "call and die"
  | "ask"
  | "call and ask two"
  | "give up"
  | "take in"
  | "compact"
  | "finish"
  | "finish and go on"
  | "handoff";

const endOfRun: EngineEvent = {
  type: "done",
  totalInputTokens: 0,
  totalOutputTokens: 0,
  totalCostUsd: 0,
  turnCount: 0,
  reason: "",
  final: "",
};

interface Save {
  mode: "continue" | "suspend" | "handoff";
  /** New calls, none if absent. */
  calls?: NewCalls;
  /** The worker dies before it hands out the calls. */
  dies?: boolean;
  /** How many waiting messages join the turn, if there are so many. */
  takesIn?: number;
  context?: NonNullable<FencedWrite["context"]>;
}

/** Contexts of all kinds: few or many messages kept, with a summary or without. */
function contextOf(pick: number): NonNullable<FencedWrite["context"]> {
  return { keep: pick, ...(pick % 3 === 0 ? {} : { summary: userText(`summary ${pick}`) }) };
}

const newCalls: Partial<Record<Work, NewCalls>> = {
  "call two": { run: 2, ask: 0 },
  ask: { run: 0, ask: 1 },
  "call and ask two": { run: 1, ask: 2 },
};

function newCallsOf(how: Work): NewCalls {
  return newCalls[how] ?? { run: 1, ask: 0 };
}

function effectOf(callId: string): ToolEffect {
  return callId.endsWith("0") ? "once" : "idempotent";
}

/**
 * Ingress, queue, workers, runners and sweeper around one store, each step taken when a test says
 * so; checks after every step what a store must have done.
 */
export class SessionWorld {
  readonly store: SessionStore;
  readonly approvals: ModelApprovals;
  readonly #retention: SessionRetention;
  readonly sessions: readonly SessionKey[];
  readonly #facts = new Map<SessionKey, SessionFacts>();
  readonly #jobs = new Map<string, WakeJob>();
  readonly #toolJobs = new Map<string, ToolRun>();
  #workers: Worker[] = [];

  constructor(
    {
      store,
      approvals,
      retention,
    }: { store: SessionStore; approvals: ApprovalStore; retention: SessionRetention },
    sessions: readonly SessionKey[],
  ) {
    this.store = store;
    this.#retention = retention;
    this.approvals = new ModelApprovals(approvals);
    this.sessions = sessions;
    for (const session of sessions) {
      this.#facts.set(session, {
        waiting: [],
        answered: [],
        turnless: [],
        joined: [],
        parked: new Map(),
        dropped: [],
        forgotten: [],
        numbers: [],
        everNumbers: new Set(),
        history: [],
        context: [],
        told: new Set(),
        epoch: "",
        stalls: 0,
        calls: new Map(),
      });
    }
  }

  factsOf(session: SessionKey): SessionFacts {
    const facts = this.#facts.get(session);
    if (!facts) throw new Error(`unknown session ${session}`);
    return facts;
  }

  async append(session: SessionKey, number: number): Promise<void> {
    const message = messageOf(session, `${session}-om_${number}`);
    const known = this.#isKnown(session, message.id);
    const { result, seq, wakeGen } = await this.store.append(message);
    expect(result).toBe(known ? "duplicate" : "accepted");
    if (!known) this.#noteAppended(session, { seq, message }, wakeGen);
    this.#tell(session, wakeGen);
  }

  /** No number and no generation is ever given twice, whatever becomes of the session. */
  #noteAppended(session: SessionKey, queued: QueuedMessage, wakeGen: number | undefined): void {
    const { waiting, numbers, everNumbers, told } = this.factsOf(session);
    expect(everNumbers.has(queued.seq)).toBe(false);
    if (wakeGen !== undefined) expect(told.has(wakeGen)).toBe(false);
    everNumbers.add(queued.seq);
    numbers.push(queued.seq);
    waiting.push(queued);
  }

  /** Removes the session, unless messages wait in it; a worker or a runner may still hold a claim or a call of it. */
  async remove(session: SessionKey): Promise<void> {
    const facts = this.factsOf(session);
    const isBusy = facts.waiting.length > 0;
    expect(await this.#retention.erase(session, Number.MAX_SAFE_INTEGER)).toBe(
      isBusy ? "in_use" : "removed",
    );
    if (isBusy) return;
    facts.forgotten.push(...facts.answered, ...facts.turnless);
    Object.assign(facts, {
      answered: [],
      turnless: [],
      joined: [],
      numbers: [],
      history: [],
      context: [],
    });
    facts.calls.clear();
    this.approvals.noteRemoved(session);
  }

  #isKnown(session: SessionKey, id: string): boolean {
    const { waiting, answered, turnless, parked, dropped, forgotten } = this.factsOf(session);
    return (
      waiting.some(({ message }) => message.id === id) ||
      parked.has(id) ||
      [...answered, ...turnless, ...dropped, ...forgotten].includes(id)
    );
  }

  /** A late message is answered with a question. */
  async park(session: SessionKey, number: number): Promise<void> {
    const message = messageOf(session, `${session}-om_${number}`);
    const { parked } = this.factsOf(session);
    if (!this.#isKnown(session, message.id)) parked.set(message.id, message);
    await this.store.outbox.push(outboxRecord(session, `question ${number}`), message.id, {
      parked: message,
    });
    expect(await this.store.outbox.parked(session, message.id)).toEqual(parked.get(message.id));
  }

  /** The sender of a late message decides, perhaps for the second time. */
  async release(session: SessionKey, number: number, action: "append" | "drop"): Promise<void> {
    const { parked, dropped } = this.factsOf(session);
    const id = `${session}-om_${number}`;
    const message = parked.get(id);
    const released = await this.store.outbox.release(session, id, action);
    expect(released !== undefined).toBe(message !== undefined);
    if (!released || !message) return;
    parked.delete(id);
    if (action === "drop") dropped.push(id);
    else this.#noteAppended(session, { seq: released.seq, message }, released.wakeGen);
    this.#tell(session, released.wakeGen);
  }

  /** A process learns a generation and adds its job, unless the queue or a worker holds it already. */
  #tell(session: SessionKey, gen: number | undefined): void {
    if (gen === undefined) return;
    this.factsOf(session).told.add(gen);
    if (!this.#isAlive({ session, gen })) this.#jobs.set(turnJobId(session, gen), { session, gen });
  }

  #isAlive({ session, gen }: WakeJob): boolean {
    const isActive = this.#workers.some(({ job }) => job?.session === session && job.gen === gen);
    return isActive || this.#jobs.has(turnJobId(session, gen));
  }

  /** The queue drops a wake-up. */
  loseJob(pick: number): void {
    const id = picked([...this.#jobs.keys()], pick);
    if (id !== undefined) this.#jobs.delete(id);
  }

  /** A worker takes a wake-up from the queue. */
  async takeJob(pick: number): Promise<void> {
    const job = picked([...this.#jobs.values()], pick);
    if (!job) return;
    this.#jobs.delete(turnJobId(job.session, job.gen));
    const claim = await this.store.claim(job.session, job.gen, "worker");
    if (!claim) return;
    const facts = this.factsOf(job.session);
    expect(BigInt(claim.epoch)).toBeGreaterThan(BigInt(facts.epoch || "0"));
    facts.epoch = claim.epoch;
    expect(claim.head).toEqual(facts.waiting[0]);
    expect(claim.failures).toEqual({});
    expect(claim.history).toEqual(facts.context);
    if (!claim.head) return;
    this.#workers.push({ claim, job, head: claim.head, turn: claim.turn, control: claim.control });
  }

  /**
   * A worker stalls: the queue gives its job to the next one (`retried`) or fails it. The worker
   * may come back and write later, unless it is dead.
   */
  stall(pick: number, how: { job: "retried" | "lost"; dead: boolean }): void {
    const worker = picked(this.#workers, pick);
    if (!worker) return;
    this.factsOf(worker.claim.session).stalls += 1;
    const { job } = worker;
    worker.job = undefined;
    if (job && how.job === "retried") this.#jobs.set(turnJobId(job.session, job.gen), job);
    if (how.dead) this.#leave(worker);
  }

  async work(pick: number, how: Work): Promise<void> {
    const worker = picked(this.#workers, pick);
    if (!worker) return;
    const open = callsAfter(worker).filter(({ state }) => state !== "done");
    const mayGiveUp = open.every(({ state }) => state === "waiting_approval");
    if (how === "handoff" || how === "continue") await this.#save(worker, { mode: how });
    else if (how === "take in") {
      await this.#save(worker, { mode: "continue", takesIn: 1 + (pick % 2) });
    } else if (how === "compact") {
      await this.#save(worker, { mode: "continue", context: contextOf(pick) });
    } else if (how === "give up" && mayGiveUp) await this.#finish(worker, pick % 2 === 0);
    else if (open.length > 0) await this.#save(worker, { mode: "suspend" });
    else if (how === "finish" || how === "finish and go on") {
      await this.#finish(worker, how === "finish and go on");
    } else {
      await this.#save(worker, {
        mode: "suspend",
        calls: newCallsOf(how),
        dies: how === "call and die",
      });
    }
  }

  async #save(
    worker: Worker,
    { mode, calls: added, dies = false, takesIn = 0, context }: Save,
  ): Promise<void> {
    const { session } = worker.claim;
    const turn = turnAfter(worker, added ?? { run: 0, ask: 0 });
    const open = turn.calls
      .filter(({ state }) => state === "running")
      .map(({ id }) => openCall(id, 1));
    const approvals = questionsOf(turn);
    const joining = this.factsOf(session).waiting.slice(1, 1 + takesIn);
    const history = historyOf(worker);
    const write = {
      history: [...history, ...joining.map(({ message }) => userText(`joined ${message.id}`))],
      ...(context && { context }),
    };
    const events = joining.map(({ seq }) => ({ runId: turnIdOf(session, seq), event: endOfRun }));
    const absorbed = joining.map(({ seq }) => seq);
    const asked = { open, approvals };
    const saved = await saveAs(this.store, worker.claim, {
      mode,
      turn,
      consumed: worker.control.length,
      events,
      absorbed,
      ...asked,
      ...write,
    });
    this.#expectFence(worker, saved.state === "fenced");
    if (saved.state === "fenced") return this.#leave(worker);
    this.#noteWrite(session, write);
    this.#noteJoined(worker, joining);
    this.approvals.noteAsked(approvals, worker.head.message.id);
    const { calls } = this.factsOf(session);
    for (const { callId } of open) {
      if (!calls.has(callId)) {
        calls.set(callId, { messageId: worker.head.message.id, result: undefined, runs: 0 });
      }
    }
    worker.turn = turn;
    worker.control = saved.state === "running" ? saved.control : [];
    if (saved.state === "running") return;
    const { job } = worker;
    this.#leave(worker);
    if (mode === "handoff" && job) this.#jobs.set(turnJobId(job.session, job.gen), job);
    if (mode === "suspend" && !dies) {
      for (const { callId } of open) this.#toolJobs.set(callId, { session, callId });
    }
  }

  #noteWrite(session: SessionKey, write: Pick<FencedWrite, "history" | "context">): void {
    const facts = this.factsOf(session);
    facts.history.push(...write.history);
    facts.context = contextAfter(facts.history, facts.context, write);
  }

  #noteJoined({ claim, head }: Worker, joined: readonly QueuedMessage[]): void {
    const facts = this.factsOf(claim.session);
    facts.waiting = facts.waiting.filter((each) => !joined.includes(each));
    for (const { message } of joined) {
      facts.turnless.push(message.id);
      facts.joined.push({ messageId: head.message.id, id: message.id });
    }
  }

  async #finish(worker: Worker, more: boolean): Promise<void> {
    const { claim, head } = worker;
    const history = historyOf(worker);
    const write = { history: [...history, assistantText(`answer ${head.message.id}`)] };
    const open = callsAfter(worker).filter(({ state }) => state !== "done");
    const committed = await commitOf(this.store, claim, {
      ...write,
      seq: head.seq,
      more,
      events: [{ runId: turnIdOf(claim.session, head.seq), event: endOfRun }],
    });
    this.#expectFence(worker, committed.state === "fenced");
    if (committed.state === "fenced") return this.#leave(worker);
    this.#noteWrite(claim.session, write);
    this.approvals.noteEnd(claim.session, open);
    this.#advance(worker, committed);
  }

  #advance(worker: Worker, committed: CommitResult): void {
    const { session } = worker.claim;
    const { waiting, answered } = this.factsOf(session);
    answered.push(worker.head.message.id);
    waiting.shift();
    if (committed.state === "next") {
      expect(committed.head).toEqual(waiting[0]);
      Object.assign(worker, { head: committed.head, turn: undefined, control: [] });
      return;
    }
    expect(committed.state === "idle").toBe(waiting.length === 0);
    this.#leave(worker);
    if (committed.state === "requeue") this.#tell(session, committed.wakeGen);
  }

  #leave(worker: Worker): void {
    this.#workers = this.#workers.filter((each) => each !== worker);
  }

  /** Only the newest epoch writes, and it always may. */
  #expectFence({ claim }: Worker, fenced: boolean): void {
    expect(fenced).toBe(this.factsOf(claim.session).epoch !== claim.epoch);
  }

  async emit(pick: number): Promise<void> {
    const worker = picked(this.#workers, pick);
    if (!worker) return;
    const { session, epoch } = worker.claim;
    const runId = turnIdOf(session, worker.head.seq);
    const events = [{ runId, event: { type: "text_delta", text: "…" } as const }];
    this.#expectFence(worker, !(await this.store.emit({ session, epoch, events })));
  }

  /** A runner takes a call; if it crashes, it does so after the tool ran and before the answer. */
  async runTool(pick: number, crashes: boolean): Promise<void> {
    const run = picked([...this.#toolJobs.values()], pick);
    if (!run) return;
    const { session, callId } = run;
    const call = this.factsOf(session).calls.get(callId);
    const begun = await this.store.begin(session, callId, effectOf(callId));
    expect(begun === "closed").toBe(!call || call.result !== undefined);
    if (begun === "run" && call) call.runs += 1;
    if (begun === "run" && crashes) return;
    this.#toolJobs.delete(callId);
    await this.#answer(run, begun === "run" ? `result ${callId}` : `unknown ${callId}`);
  }

  async #answer({ session, callId }: ToolRun, result: string): Promise<void> {
    const call = this.factsOf(session).calls.get(callId);
    const { accepted, wakeGen } = await this.store.deliver(session, callId, { ok: true, result });
    expect(accepted).toBe(call !== undefined && call.result === undefined);
    if (accepted && call) call.result = result;
    this.#tell(session, wakeGen);
  }

  /** A person decides about a call, perhaps one that is long over. */
  async decide(pick: number, word: "approve" | "reject"): Promise<void> {
    const news = await this.approvals.decide(pick, word);
    if (news) this.#tell(news.session, news.wakeGen);
  }

  /** A question reaches no person, so it is given up. */
  async failToAsk(pick: number): Promise<void> {
    const news = await this.approvals.giveUp(pick);
    if (news) this.#tell(news.session, news.wakeGen);
  }

  /** A person presses stop for the turn at `place` of the inbox; workers here only take note of it. */
  async cancel(session: SessionKey, place: number): Promise<void> {
    const facts = this.factsOf(session);
    const target = picked(facts.waiting, place);
    const turnId = target ? turnIdOf(session, target.seq) : undefined;
    const cancelled: DeliverResult = await this.store.cancel(session, {
      reason: "user",
      ...(turnId !== undefined && { turnId }),
    });
    expect(cancelled.accepted).toBe(target !== undefined);
    if (target && target !== facts.waiting[0]) {
      facts.waiting = facts.waiting.filter((each) => each !== target);
      facts.turnless.push(target.message.id);
    }
    this.#tell(session, cancelled.wakeGen);
  }

  /** What a sweeper does for sessions whose job is gone, and for calls past their deadline. */
  async sweep(nowMs: number): Promise<void> {
    for (const { session, gen } of await this.store.stale(nowMs + 60_000, 10_000)) {
      if (!this.#facts.has(session) || this.#isAlive({ session, gen })) continue;
      this.#tell(session, await this.store.heal(session, gen));
    }
  }

  async expireCalls(): Promise<void> {
    for (const { session, callId } of await this.store.dueDeadlines(farFutureMs, 10_000)) {
      if (this.#facts.has(session)) await this.#answer({ session, callId }, `timeout ${callId}`);
    }
  }

  /** Every session with work was returned to a process as to be woken, is run by a worker, or waits for a call or a person's decision. */
  async expectNobodyForgotten(): Promise<void> {
    for (const session of this.sessions) {
      const { state, gen, waiting } = await this.store.summary(session);
      const facts = this.factsOf(session);
      expect(waiting).toBe(facts.waiting.length);
      const isAnswered = [...facts.calls.values()].every(({ result }) => result !== undefined);
      const isKnown = {
        idle: waiting === 0,
        queued: facts.told.has(gen),
        running: facts.epoch !== "",
        suspended: !isAnswered || this.approvals.isWaitedFor(session),
      }[state];
      expect(isKnown, `${session} is ${state}, generation ${gen}`).toBe(true);
      await this.approvals.expectPending(session);
    }
  }

  /** Runs everything to its end, without further accidents. */
  async settle(nowMs: number): Promise<void> {
    for (const worker of this.#workers) if (!worker.job) this.#leave(worker);
    for (let round = 0; round < 1_000; round += 1) {
      await this.work(0, "finish and go on");
      await this.runTool(0, false);
      if (this.#workers.length > 0 || this.#toolJobs.size > 0) continue;
      await this.expireCalls();
      await this.approvals.settleAll((session, gen) => this.#tell(session, gen));
      await this.sweep(nowMs);
      if (this.#jobs.size === 0) return;
      await this.takeJob(0);
    }
    throw new Error("the sessions do not come to rest");
  }

  /** Each accepted message was answered exactly once, in order, each call's result is there exactly once. */
  async expectAllDone(): Promise<void> {
    for (const session of this.sessions) {
      expect(await this.store.summary(session)).toMatchObject({ state: "idle", waiting: 0 });
      const { answered, calls, joined, history } = this.factsOf(session);
      expect(await this.store.history(session)).toEqual(history);
      const texts = history.map(textOf);
      const expected = answered.map((id) => [
        `user ${id}`,
        ...[...calls.values()]
          .filter(({ messageId }) => messageId === id)
          .map(({ result }) => result),
        ...this.approvals.textsOf(session, id),
        ...joined.filter(({ messageId }) => messageId === id).map((each) => `joined ${each.id}`),
        `answer ${id}`,
      ]);
      expect(texts.filter((text) => !isResult(text))).toEqual(
        expected.flat().filter((text) => !isResult(text)),
      );
      expect(turnsIn(texts)).toEqual(expected.map((turn) => turn.toSorted()));
      for (const [callId, { runs }] of calls) {
        if (effectOf(callId) === "once") expect(runs).toBeLessThanOrEqual(1);
      }
    }
  }
}

function picked<T>(from: readonly T[], pick: number): T | undefined {
  return from[pick % from.length];
}

function isResult(text: string | undefined): boolean {
  return text === undefined || /^(result|unknown|timeout|joined|decided) /.test(text);
}

/** Texts cut after each answer, sorted within a turn: results and joining messages come in any order. */
function turnsIn(texts: readonly string[]): string[][] {
  const turns: string[][] = [];
  let turn: string[] = [];
  for (const text of texts) {
    turn.push(text);
    if (!text.startsWith("answer ")) continue;
    turns.push(turn.toSorted());
    turn = [];
  }
  return turn.length > 0 ? [...turns, turn] : turns;
}

export interface WakeJob {
  session: SessionKey;
  gen: number;
}

/** A worker of the model: what it holds of the turn that it runs. */
export interface Worker {
  claim: Claim;
  /** The wake-up it runs; none once the queue has given the job to another worker or lost it. */
  job: WakeJob | undefined;
  head: QueuedMessage;
  turn: TurnState | undefined;
  control: ControlEntry[];
}

/** What a control entry answers. */
function answeredBy(entry: ControlEntry): string {
  if (entry.type === "outcome") return entry.callId;
  return entry.type === "decision" ? entry.approvalId : "";
}

/** The calls of the turn with the unread outcomes filled in; those that people were asked about are done with the answer. */
export function callsAfter({ turn, control }: Worker): CallState[] {
  const answered = new Set(control.map(answeredBy));
  return (turn?.calls ?? []).map((call) =>
    answered.has(call.approvalId ?? call.id) ? { ...call, state: "done" } : call,
  );
}

/** New calls of a model step: how many run, and how many people are asked about. */
export interface NewCalls {
  run: number;
  ask: number;
}

export function turnAfter(worker: Worker, { run, ask }: NewCalls): TurnState {
  const base =
    worker.turn ?? turnOf({ session: worker.claim.session, head: worker.head }, { steps: 0 });
  const steps = base.steps + (run + ask > 0 ? 1 : 0);
  const calls = callsAfter(worker);
  for (let i = 0; i < run + ask; i += 1) {
    const call = { id: `${base.turnId}-${steps}-${i}`, name: "tool", arguments: {} };
    if (i < run) calls.push({ ...call, state: "running" });
    else calls.push({ ...call, state: "waiting_approval", approvalId: approvalIdFor(call.id) });
  }
  return { ...base, steps, calls };
}

/** History for what the worker dealt with: the user's message first, then each unread outcome. */
export function historyOf({ turn, head, control }: Worker): Message[] {
  const history: Message[] = turn ? [] : [userText(`user ${head.message.id}`)];
  for (const entry of control) {
    if (entry.type === "outcome" && entry.outcome.ok) {
      history.push(userText(String(entry.outcome.result)));
    }
    if (entry.type === "decision") {
      history.push(userText(ModelApprovals.textOf(entry.approvalId, entry.state)));
    }
  }
  return history;
}
