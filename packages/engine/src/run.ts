import {
  askWithoutRefused,
  type Asking,
  abandonTurn,
  absorb,
  joinedEvent,
  afterControl,
  afterStep,
  allTokens,
  attemptOf,
  commandDone,
  commandTurn,
  compactedTransition,
  compactionPlan,
  compactionRequest,
  continuedFrom,
  readStep,
  endOverBudget,
  languageOfMessage,
  modelMessagesOf,
  newTurn,
  requestTokens,
  sessionTitleOf,
  resumeTurn,
  startTurn,
  approvals,
  structured,
  stepRestart,
  stepUse,
  summaryIn,
  warnNearBudget,
  warningIn,
  type CommandFacts,
  type CompactionPlan,
  type LiveStep,
  type StepResult,
  type Transition,
  type TurnEnvironment,
  personMessageOf,
} from "@larkline/agent";
import { budgetStanding, budgetUse, spenderOf } from "@larkline/agent/budgets";
import {
  newEngineError,
  stateAfter,
  turnIdOf,
  type Approval,
  type CallState,
  type ControlEntry,
  type DecisionWord,
  type EngineEvent,
  type ErrorCode,
  type EventRecord,
  type InboundMessage,
  type Message,
  type QueuedMessage,
  type Sender,
  type ToolOutcome,
  type ToolSpec,
  type TurnState,
  iterationsOf,
  reportedOutcome,
} from "@larkline/protocol";
import type { AnyMessage } from "@larkline/protocol/views/chat-messages";
import { MessageView } from "@larkline/protocol/views/chat-view";
import type { RunRecord } from "@larkline/protocol/views/engine-events";
import { EngineView, type RunFacts } from "@larkline/protocol/views/engine-view";
import {
  conversationItems,
  type ParsedInput,
  userItemOf,
} from "@larkline/protocol/views/item-input";
import { ItemView, type RunResult } from "@larkline/protocol/views/item-view";
import type { RunItem } from "@larkline/protocol/views/run-items";
import { runTool } from "@larkline/tool-kit";
import type { EngineRunOptions, House, ReadyAgent, Session } from "./house.ts";
import { endedBefore, RunLog } from "./run-log.ts";

/** What a person says about an approval. */
export type Decision =
  | DecisionWord
  | {
      decision: DecisionWord;
      /** Why; the model reads it where the call is rejected. */
      note?: string;
      /** Default: the person of the run. */
      by?: Sender;
    };

interface Given extends ParsedInput, Omit<EngineRunOptions, "agent"> {
  agent: ReadyAgent;
  command?: "compact";
}

/** An engine has no people beside its caller, no runners and no other agents. */
const abilities = [approvals, structured];

/** The app of messages that come from no platform. */
const app = "engine";

/**
 * One run: a stream of records that ends in exactly one `done` or `error`, and then the totals of its session. It begins when it is first read, waits for
 * slow readers, and is cancelled when its last reader leaves early. All views may be read several times and together.
 */
export class EngineRun implements AsyncIterable<RunRecord> {
  readonly id: string;
  readonly sessionId: string;
  /** Resolves when the run has ended. */
  readonly over: Promise<void>;
  readonly #house: House<EngineRun>;
  readonly #session: Session<EngineRun>;
  readonly #agent: ReadyAgent;
  readonly #head: QueuedMessage;
  readonly #given: ParsedInput["history"];
  readonly #log = new RunLog();
  readonly #controller = new AbortController();
  readonly #approvals = new Map<string, Approval>();
  /** Called when the run ends. */
  readonly #atEnd = new Set<() => void>();
  #entries: ControlEntry[] = [];
  #settle: () => void = () => undefined;
  #state: "idle" | "started" | "ended" = "idle";
  #awaited = 0;
  /** What follows is the run at work. */
  #turn: TurnState | undefined;
  #history: Message[] = [];
  #live: LiveStep | undefined;
  /** Input tokens of the last step, while the context is the one it saw. */
  #usedTokens: number | undefined;
  #overflowed = false;

  /** Made by {@link Engine.run}. */
  constructor(
    house: House<EngineRun>,
    session: Session<EngineRun>,
    { agent, signal, user = { id: "user" }, ...given }: Given,
  ) {
    const { previousResponseId } = given;
    const seq = session.nextMessage();
    const createdAtMs = house.clock.now();
    const message: InboundMessage = {
      v: 1,
      session: session.id,
      id: String(seq),
      app,
      sender: user,
      chatType: "api",
      parts: given.parts,
      createdAtMs,
      reply: { channel: "none" },
      agent: agent.name,
      ...(given.command === undefined ? {} : { command: { name: given.command, argument: "" } }),
      ...(given.history.length === 0 ? {} : { history: given.history }),
      ...(previousResponseId === undefined ? {} : { previousResponseId }),
    };
    this.#house = house;
    this.#session = session;
    this.#agent = agent;
    this.#head = { seq, message };
    this.#given = given.history;
    this.id = turnIdOf(session.id, seq);
    this.sessionId = session.id;
    this.over = new Promise((resolve) => (this.#settle = resolve));
    const stop = (): void => this.cancel();
    signal?.addEventListener("abort", stop, { once: true });
    // A signal that is shared by many runs must not keep those that have ended.
    this.#atEnd.add(() => signal?.removeEventListener("abort", stop));
    if (signal?.aborted === true) this.cancel();
  }

  /** Everything that happens, as it happens. Never throws for what happens in the run. */
  async *[Symbol.asyncIterator](): AsyncGenerator<RunRecord> {
    const view = new EngineView(this.#facts());
    for await (const record of this.#read()) {
      const shown = view.push(record);
      if (shown !== undefined) yield shown;
    }
  }

  /** Messages, calls and their outputs, each when it is complete. */
  async *items(): AsyncGenerator<RunItem> {
    const view = new ItemView(this.#facts());
    for await (const record of this.#read()) yield* view.push(record);
  }

  /** The run as chat messages, the person's first. */
  async *messages(): AsyncGenerator<AnyMessage> {
    const [view, person] = [new MessageView(this.#facts()), personMessageOf(this.#head.message)];
    for await (const record of this.#read()) yield* view.push({ ...record, person });
  }

  /** What has become of the run, when it has ended. Rejects with an EngineError where it ended with an error. */
  async result(): Promise<RunResult> {
    this.#awaited += 1;
    try {
      const { parts } = this.#head.message;
      const view = new ItemView(this.#facts(), [
        ...conversationItems(this.#given, this.id),
        userItemOf(parts),
      ]);
      for await (const record of this.#read()) view.push(record);
      const result = view.result();
      if (result.error === null) return result;
      const { code, message, suggestion, retryable } = result.error;
      throw newEngineError(code as ErrorCode, message, { suggestion, retryable }); // as our own table has it
    } finally {
      this.#awaited -= 1;
    }
  }

  /** Ends the run with `done` and reason `cancelled`. One that has ended stays as it is. */
  cancel(): void {
    if (this.#state === "ended" || this.#controller.signal.aborted) return;
    this.#controller.abort(new Error("the run was cancelled"));
    const entry: ControlEntry = { type: "cancel", turnId: this.id, reason: "cancelled" };
    this.#addEntry(entry);
    if (!this.#session.waiting.includes(this)) return;
    // It has not begun, and must not wait for the run before it.
    this.#session.leave(this);
    for (const event of afterControl(this.#running(), [entry], this.#environment()).events) {
      this.#emit(event);
    }
    this.#end();
  }

  /** Approvals that the run waits for. */
  get approvals(): readonly Approval[] {
    return [...this.#approvals.values()];
  }

  /** Decides an approval: the `id` of its `permission_request`. Throws a RangeError when the run waits for none of this id. */
  approve(id: string, decision: Decision): void {
    const approval = this.#approvals.get(id);
    if (approval === undefined) {
      throw new RangeError(`the run waits for no approval ${JSON.stringify(id)}`);
    }
    const {
      decision: word,
      note,
      by = approval.requester,
    } = typeof decision === "string" ? { decision } : decision;
    const atMs = this.#house.clock.now();
    const given = { decision: word, by, atMs, ...(note === undefined ? {} : { note }) };
    this.#settled(approval, stateAfter[word], [given]);
  }

  /** Whether only a person can bring the run further. */
  get isWaiting(): boolean {
    const open = this.#turn?.calls.filter(({ state }) => state !== "done") ?? [];
    return (
      open.length > 0 &&
      open.every(({ state }) => state === "waiting_approval" || state === "waiting_outcome")
    );
  }

  #settled(
    approval: Approval,
    state: "expired" | (typeof stateAfter)[DecisionWord],
    decisions: Decided[],
  ): void {
    const { id: approvalId, argumentsHash, turnId } = approval;
    this.#approvals.delete(approvalId);
    this.#addEntry({ type: "decision", turnId, approvalId, argumentsHash, state, decisions });
  }

  #facts(): RunFacts {
    const { createdAtMs } = this.#head.message;
    return {
      runId: this.id,
      sessionId: this.sessionId,
      agent: this.#agent.name,
      startedAtMs: createdAtMs,
    };
  }

  async *#read(): AsyncGenerator<EventRecord> {
    if (this.#state === "idle") this.#start();
    try {
      yield* this.#log.read();
    } finally {
      if (!this.#log.hasReaders && this.#awaited === 0) this.cancel();
    }
  }

  #start(): void {
    this.#state = "started";
    if (!this.#house.isClosed) return this.#session.enter(this);
    this.#emit(endedBefore(newEngineError("session_closed", "The engine is closed.")));
    this.#end();
  }

  #end(): void {
    this.#state = "ended";
    for (const undo of this.#atEnd) undo();
    this.#settle();
    const { sessionId, title, turnCount, inputTokens, outputTokens, costUsd } =
      this.#session.stats();
    const totals = { sessionId, title, turnCount, inputTokens, outputTokens, costUsd };
    this.#log.end(this.#recordOf({ type: "session_info", ...totals }));
  }

  #emit(event: EngineEvent): void {
    this.#log.push(() => this.#recordOf(event));
  }

  #recordOf(event: EngineEvent): EventRecord {
    const about = { runId: this.id, agent: this.#agent.name };
    return { seq: this.#session.nextEvent(), ...about, atMs: this.#house.clock.now(), event };
  }

  #addEntry(entry: ControlEntry): void {
    this.#entries.push(entry);
    this.#log.wake();
  }

  /** Does the work of the run. Called once, by its session. Never rejects. */
  async drive(): Promise<void> {
    try {
      this.#history = [...(await this.#house.store.get(this.sessionId))];
      let next = await this.#take(this.#first());
      while (next.do !== "finish") next = await this.#take(await this.#act(next));
    } catch (error) {
      this.#house.observe((observer) => observer.error(error, { run: this.id }));
      const reason = error instanceof Error ? error.message : String(error);
      const given = abandonTurn(this.#turn ?? this.#head, this.#environment(), reason);
      await this.#take(given).catch(() => undefined); // its events were emitted before the store failed again
    } finally {
      this.#count();
      this.#end();
    }
  }

  #first(): Transition {
    const nowMs = this.#house.clock.now();
    const { model } = this.#agent.chosen;
    return (
      commandTurn(this.#head, this.#commandFacts()) ??
      startTurn({ head: this.#head, nowMs, model, history: this.#history, abilities })
    );
  }

  #commandFacts(): CommandFacts {
    const { chosen, speech } = this.#agent;
    const nowMs = this.#house.clock.now();
    return { nowMs, model: chosen.name, defaultModel: chosen.name, models: [], ...speech };
  }

  /** Applies a transition: emits its events, and stores its messages. */
  async #take({ turn, history, events, next, asked = [], absorbed = [], context }: Transition) {
    this.#turn = turn;
    this.#live = undefined;
    for (const approval of asked) this.#ask(approval);
    for (const event of events) this.#emit(event);
    for (const { runId } of absorbed) this.#join(runId);
    this.#history.push(...history);
    if (history.length > 0) await this.#house.store.append(this.sessionId, ...history);
    if (context !== undefined) {
      const kept = context.keep === 0 ? [] : this.#history.slice(-context.keep);
      this.#history = context.summary === undefined ? kept : [context.summary, ...kept];
      this.#usedTokens = undefined;
      await this.#house.store.set(this.sessionId, this.#history);
    }
    return next;
  }

  #ask(approval: Approval): void {
    const { clock } = this.#house;
    this.#approvals.set(approval.id, approval);
    this.#atEnd.add(
      clock.after(Math.max(0, approval.expiresAtMs - clock.now()), () => {
        if (this.#approvals.has(approval.id)) this.#settled(approval, "expired", []);
      }),
    );
  }

  /** A waiting run of this session has become part of this one. */
  #join(runId: string): void {
    const joined = this.#session.waiting.find(({ id }) => id === runId);
    if (joined === undefined) return;
    this.#session.leave(joined);
    joined.#emit(joinedEvent(this.id, this.#agent.name));
    joined.#end();
  }

  async #act(next: Exclude<Transition["next"], { do: "finish" }>): Promise<Transition> {
    switch (next.do) {
      case "model":
        return await this.#modelStep();
      case "tools":
        for (const call of next.calls) void this.#runCall(call);
        return await this.#wait();
      case "compact":
        return await this.#compactOnDemand();
      default: // no agent of an engine is in a team, or has helpers
        return await this.#wait();
    }
  }

  /** The decision about what comes next from tools, people and the caller. */
  async #wait(): Promise<Transition> {
    const turn = this.#running();
    const { clock } = this.#house;
    const { putOff } = turn;
    if (putOff !== undefined) this.#wakeAt(putOff.atMs);
    for (;;) {
      if (this.#entries.length > 0) return this.#applied();
      if (putOff !== undefined && putOff.atMs <= clock.now()) {
        return resumeTurn(turn, this.#environment());
      }
      await this.#log.change();
    }
  }

  #wakeAt(atMs: number): void {
    const { clock } = this.#house;
    this.#atEnd.add(clock.after(Math.max(0, atMs - clock.now()), () => this.#log.wake()));
  }

  #applied(): Transition {
    const entries = this.#entries;
    this.#entries = [];
    return afterControl(this.#running(), entries, this.#environment());
  }

  #running(): TurnState {
    return this.#turn ?? newTurn(this.#head, this.#house.clock.now());
  }

  async #runCall(call: CallState): Promise<void> {
    const outcome = await this.#outcomeOf(call);
    this.#addEntry({ type: "outcome", callId: attemptOf(call), outcome });
  }

  async #outcomeOf(call: CallState): Promise<ToolOutcome> {
    const tool = this.#house.handlers.get(call.name);
    if (tool === undefined) {
      return { ok: false, error: `tool_not_found: there is no tool ${call.name}` };
    }
    const { id, name: toolName, timeoutMs } = call;
    const { sender, session } = this.#head.message;
    const { id: userId, name: userName } = sender;
    const actor = { app, userId, chatId: session, ...(userName === undefined ? {} : { userName }) };
    const outcome = await runTool(tool, {
      argumentsText: JSON.stringify(call.arguments),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      context: {
        callId: id,
        turnId: this.id,
        signal: this.#controller.signal,
        actor,
        authority: call.authority ?? { by: "policy" },
        progress: (progress, detail = "") =>
          this.#emit({ type: "tool_progress", id, toolName, progress, detail }),
        log: (data, fields) => {
          const meta = fields === undefined ? "" : JSON.stringify(fields);
          this.#emit({ type: "inbox_message", messageType: "log", toolUseId: id, data, meta });
        },
      },
    });
    return reportedOutcome(outcome);
  }

  async #modelStep(): Promise<Transition> {
    if (this.#entries.length > 0) return this.#applied();
    const turn = this.#running();
    const instead =
      this.#joinedBySteering(turn) ?? (await this.#madeRoom(turn)) ?? this.#overBudget(turn);
    if (instead !== undefined) return instead;
    this.#live = { text: "", thinking: "" };
    const tools = [...this.#agent.tools.values()].map(({ announcement }) => announcement.spec);
    const { instructions: system = "" } = this.#agent.config;
    const step = await this.#askModel({
      system,
      history: this.#history,
      tools,
      turnNumber: turn.steps + 1,
    });
    if (this.#controller.signal.aborted) {
      this.#live = { ...this.#live, broken: step };
      return this.#applied();
    }
    if (step.failure?.code === "context_overflow" && !this.#overflowed) {
      this.#overflowed = true;
      const shortened = await this.#compacted(turn, this.#plan(true));
      const restart = stepRestart(turn.steps, this.#agent.chosen.model, step.failure.code);
      if (shortened !== undefined) return { ...shortened, events: [restart, ...shortened.events] };
    }
    this.#usedTokens = requestTokens(step.usage);
    return afterStep(turn, step, this.#environment());
  }

  #joinedBySteering(turn: TurnState): Transition | undefined {
    if (this.#agent.config.busy !== "steer" || turn.steps === 0) return undefined;
    const waiting = this.#session.waiting.map((run) => run.#head);
    const joined = absorb(turn, waiting, this.#environment());
    return joined.absorbed === undefined ? undefined : joined;
  }

  #overBudget(turn: TurnState): Transition | undefined {
    const { budgets, clock } = this.#house;
    const spender = spenderOf(turn.message, this.#agent.name);
    const accounts = budgets.accountsOf(spender, clock.now());
    const { exceeded, near } = budgetStanding(
      accounts.map((account) => budgetUse(account, this.#house.spentOf(account))),
    );
    const facts = { timeZone: budgets.timeZone, contact: budgets.contact, ...this.#agent.speech };
    if (exceeded !== undefined) return endOverBudget(turn, exceeded, facts);
    const [nearest] = near;
    if (nearest === undefined || warningIn(turn) !== undefined) return undefined;
    return warnNearBudget(turn, { nearest, noted: undefined }, facts);
  }

  /** Asks the model to its end, or until the run is cancelled, and counts what that used. */
  async #askModel(asked: Asked): Promise<StepResult> {
    return await askWithoutRefused(
      asked.history,
      async (asking) => await this.#askOnce(asked, asking),
    );
  }

  async #askOnce(asked: Asked, { messages, plain }: Asking): Promise<StepResult> {
    const { chain, model } = this.#agent.chosen;
    const { clock } = this.#house;
    const from = asked.turnNumber === 0 ? undefined : this.#continuedFrom();
    const { previousResponseId } = this.#head.message;
    const request = {
      ...(asked.turnNumber === 0 ? {} : this.#agent.request),
      ...(plain ? { plain } : {}),
      ...(from === undefined || previousResponseId === undefined ? {} : { previousResponseId }),
      messages: modelMessagesOf(messages.slice(from)), // the history grows while others may still hold the request
      tools: asked.tools,
      system: asked.system,
      conversation: this.#head.message.session,
      maxPauses: this.#agent.limits.maxIterations - iterationsOf(this.#running()) - 1,
    };
    const startedMs = clock.monotonic();
    const { signal } = this.#controller;
    const tell = async (event: EngineEvent): Promise<void> => {
      this.#follow(event);
      this.#emit(event);
      await this.#log.room(signal);
    };
    const result = await readStep(chain.stream(request, signal, this.#past()), {
      turnNumber: asked.turnNumber,
      onEvent: asked.turnNumber === 0 ? undefined : tell,
      onRetry: ({ type: _type, ...facts }) =>
        this.#house.observe((one) => one.event("model.retried", { ...facts })),
    });
    const use = stepUse(result, asked, model);
    const accounts = this.#house.budgets.accountsOf(
      spenderOf(this.#head.message, this.#agent.name),
      clock.now(),
    );
    this.#house.charge(accounts, { tokens: allTokens(use), usd: use.costUsd });
    const seconds = (clock.monotonic() - startedMs) / 1_000;
    this.#house.observe((observer) =>
      observer.metric?.("model.step_seconds", seconds, { model: chain.primary.id }),
    );
    return { ...result, use };
  }

  #follow(event: EngineEvent): void {
    const live = this.#live ?? { text: "", thinking: "" };
    if (event.type === "text_delta") live.text += event.text;
    else if (event.type === "thinking_delta") live.thinking += event.text;
    else if (event.type === "step_restarted") Object.assign(live, { text: "", thinking: "" });
    this.#live = live;
  }

  /** What the chain needs to know of a step that was put off. */
  #past() {
    const { putOff } = this.#running();
    if (putOff === undefined) return undefined;
    const { rounds, sinceMs, askedWaitMs } = putOff;
    return { rounds, askedWaitMs, elapsedMs: Math.max(0, this.#house.clock.now() - sinceMs) };
  }

  #continuedFrom(): number | undefined {
    return continuedFrom(this.#history, this.#head.message, this.#agent.request.storeResponses);
  }

  /** What the vendor has kept cannot be shortened. */
  #plan(force: boolean): CompactionPlan | undefined {
    if (this.#continuedFrom() !== undefined) return undefined;
    const { contextWindow, maxOutputTokens } = this.#agent.chosen.chain.primary;
    return compactionPlan(this.#history, {
      contextWindow,
      maxOutputTokens,
      usedTokens: this.#usedTokens,
      force,
    });
  }

  /** A shorter context, where the next step would not fit. */
  async #madeRoom(turn: TurnState): Promise<Transition | undefined> {
    const plan = turn.summaryFailed === true ? undefined : this.#plan(false);
    const shorter = await this.#compacted(turn, plan);
    if (plan === undefined || shorter !== undefined) return shorter;
    return {
      turn: { ...turn, summaryFailed: true },
      history: [],
      events: [],
      next: { do: "model" },
    };
  }

  async #compacted(
    turn: TurnState,
    plan: CompactionPlan | undefined,
  ): Promise<Transition | undefined> {
    const summary = plan === undefined ? undefined : await this.#summary(plan);
    const text = summary === undefined ? undefined : summaryIn(summary);
    if (plan === undefined || text === undefined) return undefined;
    return compactedTransition(turn, plan, text);
  }

  async #summary(plan: CompactionPlan): Promise<StepResult> {
    const language = languageOfMessage(this.#head.message, this.#agent.speech.texts);
    const { system, messages: history } = compactionRequest(plan.older, language);
    return await this.#askModel({ system, history, tools: [], turnNumber: 0 });
  }

  async #compactOnDemand(): Promise<Transition> {
    if (this.#entries.length > 0) return this.#applied();
    const turn = this.#running();
    const facts = this.#commandFacts();
    const plan = this.#plan(true);
    if (plan === undefined) return commandDone(turn, undefined, facts);
    const instead = this.#overBudget(turn);
    if (instead !== undefined) return instead;
    const summary = await this.#summary(plan);
    if (this.#controller.signal.aborted) return this.#applied();
    if (summary.failure !== undefined) return afterStep(turn, summary, this.#environment());
    const compacted = compactedTransition(turn, plan, summaryIn(summary));
    const done = commandDone(turn, compacted.report, facts);
    const { context } = compacted;
    return {
      ...done,
      events: [...compacted.events, ...done.events],
      ...(context === undefined ? {} : { context }),
    };
  }

  /** The facts of this moment. */
  #environment(): TurnEnvironment {
    const { limits, tools, chosen, answers, speech } = this.#agent;
    const nowMs = this.#house.clock.now();
    return {
      limits,
      tools,
      model: chosen.model,
      ...speech,
      nowMs,
      callPolicy: this.#house.callPolicyOf(this.#agent, this.#head.message, nowMs),
      schemas: this.#house.schemas,
      abilities,
      known: { structured: answers.output },
      place: { settings: {}, people: { roles: [], answerMs: 0 } },
      history: this.#history,
      ...(this.#live === undefined ? {} : { live: this.#live }),
    };
  }

  /** Adds what the run has used to its session. */
  #count(): void {
    const { totals, steps: turnCount, refused = 0 } = this.#running();
    const {
      inputTokens,
      outputTokens,
      cacheReadTokens = 0,
      cacheCreationTokens = 0,
      costUsd,
    } = totals;
    const used = {
      turnCount,
      inputTokens,
      outputTokens,
      cacheReadTokens,
      cacheCreationTokens,
      costUsd,
    };
    this.#session.counted(sessionTitleOf(this.#head.message), used, refused);
    const { last } = this.#log;
    const reason = last?.type === "done" ? last.reason : last?.type === "error" ? last.code : "";
    this.#house.observe((observer) =>
      observer.event("turn.ended", { run: this.id, reason, steps: turnCount }),
    );
  }
}

type Decided = Extract<ControlEntry, { type: "decision" }>["decisions"][number];

/** One request to a model. `turnNumber`: of the step in its turn; 0: a summary. */
interface Asked {
  system: string;
  history: readonly Message[];
  tools: readonly ToolSpec[];
  turnNumber: number;
}
