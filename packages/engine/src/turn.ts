import {
  abandonTurn,
  afterControl,
  allTokens,
  approvals,
  attemptOf,
  endOverBudget,
  joinedEvent,
  startTurn,
  structured,
  warningIn,
  warnNearBudget,
  type StepResult,
  type Transition,
  type TurnEnvironment,
} from "@larkline/agent";
import { budgetStanding, budgetUse, spenderOf } from "@larkline/agent/budgets";
import { commandTurn, type CommandFacts } from "@larkline/agent/commands";
import {
  ModelSteps,
  sessionInfo,
  TurnDriver,
  type AbortReason,
  type Facts,
  type ReadEntries,
  type Speaker,
  type StepHost,
  type StepPurpose,
  type TurnHost,
  type Woken,
} from "@larkline/agent/drive";
import {
  turnIdOf,
  type ControlEntry,
  type InboundMessage,
  type QueuedMessage,
  type Sender,
} from "@larkline/protocol";
import { stateAfter, type Approval, type DecisionWord } from "@larkline/protocol/approval";
import type { Clock } from "@larkline/protocol/clock";
import { newEngineError } from "@larkline/protocol/error";
import type { EngineEvent, EventRecord } from "@larkline/protocol/event";
import type { ModelRetry } from "@larkline/protocol/model-stream";
import { reportedOutcome, type ToolOutcome } from "@larkline/protocol/tool";
import type { CallState, StepUse } from "@larkline/protocol/turn";
import type { ParsedInput } from "@larkline/protocol/views/item-input";
import { runTool } from "@larkline/tool-kit";
import type { EngineRunOptions, House, ReadyAgent, Session, SessionRun } from "./house.ts";
import { endedBefore, MemoryLog, type RunLog } from "./run-log.ts";

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

/** What a run is made of. */
export interface GivenRun extends ParsedInput, Omit<EngineRunOptions, "agent"> {
  agent: ReadyAgent;
  command?: "compact";
}

/** An engine has no people beside its caller, no runners and no other agents. */
const abilities = [approvals, structured];

/** The app of messages that come from no platform. */
const app = "engine";

/** The turn of one run, with the tools and models of its engine. */
export class EngineTurn implements SessionRun, TurnHost, StepHost {
  readonly id: string;
  readonly head: QueuedMessage;
  /** Name of the agent that answers. */
  readonly agent: string;
  readonly over: Promise<void>;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly speaker: Speaker;
  readonly facts: Facts = { now: () => this.#factsNow() };
  readonly #house: House;
  readonly #session: Session;
  readonly #agent: ReadyAgent;
  readonly #log: MemoryLog;
  readonly #controller = new AbortController();
  #stopListening: () => void = () => undefined;
  #settle: () => void = () => undefined;
  #state: "idle" | "started" | "ended" = "idle";

  constructor(
    house: House,
    session: Session,
    { agent, signal, user = { id: "user" }, ...given }: GivenRun,
  ) {
    const { previousResponseId } = given;
    const seq = session.nextMessage();
    const message: InboundMessage = {
      v: 1,
      session: session.id,
      id: String(seq),
      app,
      sender: user,
      chatType: "api",
      parts: given.parts,
      createdAtMs: house.clock.now(),
      reply: { channel: "none" },
      agent: agent.name,
      ...(given.command === undefined ? {} : { command: { name: given.command, argument: "" } }),
      ...(given.history.length === 0 ? {} : { history: given.history }),
      ...(previousResponseId === undefined ? {} : { previousResponseId }),
    };
    const { config, chosen, speech, request } = agent;
    this.id = turnIdOf(session.id, seq);
    this.head = { seq, message };
    this.agent = agent.name;
    this.over = new Promise((resolve) => (this.#settle = resolve));
    this.clock = house.clock;
    this.signal = this.#controller.signal;
    const { instructions = "" } = config;
    this.speaker = { ...chosen, name: agent.name, instructions, speech, request };
    this.#house = house;
    this.#session = session;
    this.#agent = agent;
    this.#log = new MemoryLog(house, this.head, this.signal, (event) => this.#recordOf(event));
    const stop = (): void => this.cancel();
    signal?.addEventListener("abort", stop, { once: true });
    // A signal that is shared by many runs must not keep those that have ended.
    this.#stopListening = () => signal?.removeEventListener("abort", stop);
    if (signal?.aborted === true) this.cancel();
  }

  get events(): RunLog {
    return this.#log.events;
  }

  #recordOf(event: EngineEvent): EventRecord {
    const about = { runId: this.id, agent: this.agent };
    return { seq: this.#session.nextEvent(), ...about, atMs: this.clock.now(), event };
  }

  /** Begins, when the runs before it have ended. May be repeated. */
  start(): void {
    if (this.#state !== "idle") return;
    this.#state = "started";
    if (!this.#house.isClosed) return this.#session.enter(this);
    this.events.push(endedBefore(newEngineError("session_closed", "The engine is closed.")));
    this.#end();
  }

  async drive(): Promise<void> {
    const driver = new TurnDriver(this.#log, this, new ModelSteps(this.#log, this));
    try {
      await this.#log.readHistory();
      await driver.run(this.#first());
    } catch (error) {
      this.#house.observe((observer) => observer.error(error, { run: this.id }));
      const reason = error instanceof Error ? error.message : String(error);
      const subject = this.#log.hasBegun ? this.#log.turn : this.head;
      const given = abandonTurn(subject, this.#factsNow(), reason);
      await this.#log.take(given).catch(() => undefined); // its events were emitted before the store failed again
    } finally {
      this.#count();
      this.#end();
    }
  }

  #first(): Transition {
    const { model } = this.speaker;
    const { head, clock } = this;
    return (
      commandTurn(head, this.commandFacts()) ??
      startTurn({ head, nowMs: clock.now(), model, history: this.#log.history, abilities })
    );
  }

  commandFacts(): CommandFacts {
    const { chosen, speech } = this.#agent;
    const nowMs = this.clock.now();
    return { nowMs, model: chosen.name, defaultModel: chosen.name, models: [], ...speech };
  }

  #factsNow(): TurnEnvironment {
    const { limits, tools, chosen, answers, speech } = this.#agent;
    const { history, live } = this.#log;
    const nowMs = this.clock.now();
    return {
      limits,
      tools,
      model: chosen.model,
      ...speech,
      nowMs,
      callPolicy: this.#house.callPolicyOf(this.#agent, this.head.message, nowMs),
      schemas: this.#house.schemas,
      abilities,
      known: { structured: answers.output },
      place: { settings: {}, people: { roles: [], answerMs: 0 } },
      history,
      ...(live === undefined ? {} : { live }),
    };
  }

  overBudget(): Transition | undefined {
    const { budgets } = this.#house;
    const { turn } = this.#log;
    const uses = this.#accounts().map((account) =>
      budgetUse(account, this.#house.spentOf(account)),
    );
    const { exceeded, near } = budgetStanding(uses);
    const facts = { timeZone: budgets.timeZone, contact: budgets.contact, ...this.speaker.speech };
    if (exceeded !== undefined) return endOverBudget(turn, exceeded, facts);
    const [nearest] = near;
    if (nearest === undefined || warningIn(turn) !== undefined) return undefined;
    return warnNearBudget(turn, { nearest, noted: undefined }, facts);
  }

  charge(use: StepUse): void {
    this.#house.charge(this.#accounts(), { tokens: allTokens(use), usd: use.costUsd });
  }

  #accounts(): ReturnType<House["budgets"]["accountsOf"]> {
    const spender = spenderOf(this.head.message, this.agent);
    return this.#house.budgets.accountsOf(spender, this.clock.now());
  }

  async watch(_purpose: StepPurpose, run: () => Promise<StepResult>): Promise<StepResult> {
    const startedMs = this.clock.monotonic();
    const result = await run();
    const seconds = (this.clock.monotonic() - startedMs) / 1_000;
    const tags = { model: this.speaker.chain.primary.id };
    this.#house.observe((observer) => observer.metric?.("model.step_seconds", seconds, tags));
    return result;
  }

  retried({ type: _type, ...facts }: ModelRetry): void {
    this.#house.observe((observer) => observer.event("model.retried", { ...facts }));
  }

  messagesToJoin(): readonly QueuedMessage[] {
    const waiting = this.#agent.config.busy === "steer" ? this.#session.waiting : [];
    return waiting.map(({ head }) => head);
  }

  /** Messages that join end their runs in the moment of the decision: none of these can be cancelled in between. */
  taking(transition: Transition): Transition {
    for (const { runId } of transition.absorbed ?? []) {
      this.#session.waiting.find(({ id }) => id === runId)?.join(this.id);
    }
    return transition;
  }

  join(takenBy: string): void {
    this.#session.leave(this);
    this.events.push(joinedEvent(takenBy, this.agent));
    this.#end();
  }

  async handOut(calls: readonly CallState[]): Promise<Woken> {
    for (const call of calls) void this.#runCall(call);
    return await this.wait();
  }

  async #runCall(call: CallState): Promise<void> {
    const outcome = await this.#outcomeOf(call);
    this.#log.addEntry({ type: "outcome", callId: attemptOf(call), outcome });
  }

  async #outcomeOf(call: CallState): Promise<ToolOutcome> {
    const tool = this.#house.handlers.get(call.name);
    if (tool === undefined) {
      return { ok: false, error: `tool_not_found: there is no tool ${call.name}` };
    }
    const { id, name: toolName, timeoutMs } = call;
    const { sender, session } = this.head.message;
    const { id: userId, name: userName } = sender;
    const actor = { app, userId, chatId: session, ...(userName === undefined ? {} : { userName }) };
    const outcome = await runTool(tool, {
      argumentsText: JSON.stringify(call.arguments),
      ...(timeoutMs === undefined ? {} : { timeoutMs }),
      context: {
        callId: id,
        turnId: this.id,
        signal: this.signal,
        actor,
        authority: call.authority ?? { by: "policy" },
        progress: (progress, detail = "") =>
          this.events.push({ type: "tool_progress", id, toolName, progress, detail }),
        log: (data, fields) => {
          const meta = fields === undefined ? "" : JSON.stringify(fields);
          this.events.push({
            type: "inbox_message",
            messageType: "log",
            toolUseId: id,
            data,
            meta,
          });
        },
      },
    });
    return reportedOutcome(outcome);
  }

  async wait(): Promise<Woken> {
    return { entries: await this.#log.entries() };
  }

  /** They come from tools and callers of this process: there is nothing to check. */
  readEntries(entries: readonly ControlEntry[]): ReadEntries {
    return { entries, events: [] };
  }

  get approvals(): readonly Approval[] {
    return [...this.#log.approvals.values()];
  }

  /** Throws a RangeError when the turn waits for no approval of this id. */
  approve(id: string, decided: Decision): void {
    const approval = this.#log.approvals.get(id);
    if (approval === undefined) {
      throw new RangeError(`the run waits for no approval ${JSON.stringify(id)}`);
    }
    const {
      decision,
      note,
      by = approval.requester,
    } = typeof decided === "string" ? { decision: decided } : decided;
    const given = { decision, by, atMs: this.clock.now(), ...(note === undefined ? {} : { note }) };
    this.#log.settle(approval, stateAfter[decision], [given]);
  }

  get isWaiting(): boolean {
    const open = this.#log.turn.calls.filter(({ state }) => state !== "done");
    return (
      open.length > 0 &&
      open.every(({ state }) => state === "waiting_approval" || state === "waiting_outcome")
    );
  }

  abortReason(): AbortReason | undefined {
    return this.signal.aborted ? "cancel" : undefined;
  }

  cancel(): void {
    if (this.#state === "ended" || this.signal.aborted) return;
    this.#controller.abort(new Error("the run was cancelled"));
    const entry: ControlEntry = { type: "cancel", turnId: this.id, reason: "cancelled" };
    this.#log.addEntry(entry);
    if (!this.#session.waiting.includes(this)) return;
    // It has not begun, and must not wait for the run before it.
    this.#session.leave(this);
    const { events } = afterControl(this.#log.turn, [entry], this.#factsNow());
    for (const event of events) this.events.push(event);
    this.#end();
  }

  #end(): void {
    this.#state = "ended";
    this.#stopListening();
    this.#settle();
    this.#log.end(sessionInfo(this.#session.id, this.#session.stats()));
  }

  /** Adds what the turn has used to its session. */
  #count(): void {
    const { turn, events } = this.#log;
    this.#session.count(turn);
    const { last } = events;
    const reason = last?.type === "done" ? last.reason : last?.type === "error" ? last.code : "";
    this.#house.observe((observer) =>
      observer.event("turn.ended", { run: this.id, reason, steps: turn.steps }),
    );
  }
}
