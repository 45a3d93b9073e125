import { scrubText, type Span, type Tags, type Telemetry } from "@larkline/process/telemetry";
import {
  turnIdOf,
  type CallState,
  type InboundMessage,
  type ModelFailure,
  type ModelRetry,
  type TurnState,
  traceparentOfMessage,
  type Clock,
  type Message,
} from "@larkline/protocol";
import type { CommitResult, SessionSettings, SessionTotals } from "@larkline/store";
import type { ChosenModel, Left } from "@larkline/agent/drive";
import type { Agent, TurnOptions } from "./agent.ts";
import type { TurnMemories } from "./memories.ts";
import type { EndedRun } from "./run-records.ts";
import type { PersonZone } from "./schedules.ts";
import type { Services } from "./services.ts";
import type { TurnBudget } from "./turn-budget.ts";
import type { TurnStart, TurnStore } from "./turn-output.ts";

/** What the parts of a run share: agent, store, reply and budgets. */
export interface RunningTurn extends TurnSlot {
  /** The agent that answers; `model`, `options` and `memories` are those of this agent. */
  agent: Agent;
  model: ChosenModel;
  options: TurnOptions;
  /** The agent when the turn began, whose limits and form of reply hold for the whole turn. */
  first: Agent;
  stored: TurnStore;
  budget: TurnBudget;
  /** Undefined for an agent without memory. */
  memories: TurnMemories | undefined;
  /** The time zone of the person, once it is read. */
  zone?: PersonZone;
}

/** The slot of a worker in which a turn runs. */
export interface TurnSlot {
  /** Aborts with an {@link AbortReason}. */
  controller: AbortController;
  /** Aborts when the process stops. */
  shutdown: AbortSignal;
  /** Whether the slot goes to other sessions after this turn, even if messages of this session wait. */
  isLast: boolean;
  /** Called with each event of the run. */
  watch: TurnWatch;
}

/** How running a turn ended, seen from the session. */
export type TurnEnd =
  | Left
  /** The session is queued, and its job has to come again after a pause. */
  | { end: "postponed" }
  /** `history` is the conversation with this turn, for the turn that follows at once. */
  | {
      end: "committed";
      result: CommitResult;
      reason: string;
      history: Message[];
      settings: SessionSettings;
      totals: SessionTotals | undefined;
      /** Settles when nothing is written to the turn's card any more. */
      released: Promise<void>;
      /** Of the model, when the turn ended in it. */
      failure?: ModelFailure;
      run: EndedRun;
    };

/** Observations of one claim of a turn: ids, numbers and names of tools and models only. */
export class TurnWatch {
  readonly telemetry: Telemetry;
  /** Ids of trace, session and turn, which every event and span carries. */
  readonly tags: Tags;
  readonly #clock: Clock;
  readonly #message: InboundMessage;
  readonly #run: Span;
  #isFirstText: boolean;

  constructor(
    { telemetry, clock }: Services,
    { session, head, failures, deaths, ranBefore, turn }: TurnStart,
  ) {
    const { message } = head;
    this.telemetry = telemetry;
    this.tags = {
      traceparent: traceparentOfMessage(message),
      session,
      turn: turnIdOf(session, head.seq),
    };
    this.#clock = clock;
    this.#message = message;
    const tries = Object.values(failures).reduce(
      (sum, count) => sum + count,
      deaths.together + deaths.alone,
    );
    this.#isFirstText = !ranBefore && (turn === undefined || !hasSpoken(turn));
    const { tracer, events } = this.telemetry;
    const waited = turn === undefined ? { queuedMs: this.#sinceReceiptMs() } : {};
    const claimed = { ...this.tags, ...waited, tries, resumed: turn !== undefined };
    events.emit({ eventName: "turn.claimed", attributes: claimed });
    if (ranBefore) {
      events.emit({ eventName: "turn.healed", attributes: { ...this.tags, what: "crash", tries } });
    }
    this.#run = tracer.startSpan("turn.run", { attributes: this.tags });
  }

  /** A call of a vendor went wrong and is followed by another one. */
  retried({ model, code, waitMs, attempt, problem, requestId = "" }: ModelRetry): void {
    const { events, samples } = this.telemetry;
    const facts = { model, code, waitMs, attempt, problem: scrubText(problem), requestId };
    events.emit({ eventName: "model.retried", attributes: { ...this.tags, ...facts } });
    samples["model.retries"].add(1, { model, code });
  }

  /** Called with text of the answer. For the first text it returns the time since the receipt of the message, ms. */
  text(): number | undefined {
    if (!this.#isFirstText) return undefined;
    this.#isFirstText = false;
    const { events, samples } = this.telemetry;
    const ms = this.#sinceReceiptMs();
    events.emit({ eventName: "stream.first_text", attributes: { ...this.tags, ms } });
    const channel = this.#message.reply.channel === "feishu" ? "feishu" : "api";
    samples.first_text_seconds.record(ms / 1_000, { channel });
    return Math.round(ms);
  }

  /** The policy has decided about these calls, which are new. */
  decided(calls: readonly CallState[]): void {
    for (const { id, name, state } of calls) {
      const attributes = { ...this.tags, call: id, tool: name, decision: decisions[state] };
      this.telemetry.events.emit({ eventName: "call.judged", attributes });
    }
  }

  handedOut(calls: readonly CallState[]): void {
    for (const { id, name, runner = "", attempt = 1 } of calls) {
      const attributes = { ...this.tags, call: id, tool: name, runner, attempt };
      this.telemetry.events.emit({ eventName: "call.handed_out", attributes });
    }
  }

  /** Another message has become part of this turn. */
  joined(message: InboundMessage): void {
    const attributes = {
      ...this.tags,
      traceparent: traceparentOfMessage(message),
      outcome: "joined",
    };
    this.telemetry.events.emit({ eventName: "turn.ended", attributes });
  }

  /** The claim is over; `committed`: the turn as well. `agent`: the one whose pause has ended it. */
  ended(outcome: string, committed: boolean, agent?: string): void {
    this.#run.setAttributes({ outcome }).end();
    if (!committed) return;
    const { events, samples } = this.telemetry;
    const facts = { outcome, ...(agent === undefined ? {} : { agent }) };
    events.emit({ eventName: "turn.ended", attributes: { ...this.tags, ...facts } });
    samples.turn_seconds.record(this.#sinceReceiptMs() / 1_000, { outcome });
  }

  #sinceReceiptMs(): number {
    return Math.max(0, this.#clock.now() - this.#message.createdAtMs);
  }
}

const decisions = {
  running: "run",
  waiting_approval: "ask",
  waiting_outcome: "ask",
  done: "refuse",
} as const satisfies Record<CallState["state"], string>;

/** Whether the person has seen text of an earlier step. */
function hasSpoken({ shown }: TurnState): boolean {
  return shown !== undefined && shown.text.trim() !== "";
}
