import {
  abandonTurn,
  afterControl,
  afterStep,
  answerRestarted,
  resumeTurn,
  startTurn,
  type StepResult,
  type Transition,
  type TurnEnvironment,
} from "@larkline/agent";
import type { ModelChain } from "@larkline/model";
import type { CallState, ControlEntry, EngineEvent, Message, QueuedMessage, TurnState } from "@larkline/protocol";
import type { CommitResult, OpenCall, SaveResult, SessionStore } from "@larkline/session";
import { EventWriter } from "./event-writer.ts";
import { runModelStep } from "./model-step.ts";
import { replyOf } from "./reply.ts";
import type { AbortReason } from "./running-turns.ts";

/** How running a turn ended, seen from the session. */
export type TurnEnd =
  | { end: "fenced" }
  | { end: "suspended" }
  | { end: "handoff" }
  /** `history` is the conversation with this turn, for the turn that follows at once. */
  | { end: "committed"; result: CommitResult; reason: string; history: Message[] };

/** Where a turn starts from: a message, with the checkpoint of an earlier run if there was one. */
export interface TurnStart {
  session: string;
  epoch: string;
  head: QueuedMessage;
  turn?: TurnState;
  control: ControlEntry[];
  history: Message[];
  tries: number;
}

/** Hands calls to their runners. `again`: they may have been handed out before. */
export type Dispatch = (turn: TurnState, calls: readonly CallState[], again: boolean) => Promise<void>;

export interface TurnRunOptions {
  store: Pick<SessionStore, "save" | "commit" | "emit">;
  chain: ModelChain;
  instructions: string;
  /** The facts a decision depends on, fresh for each. */
  environment: () => TurnEnvironment;
  dispatch: Dispatch;
  /** Aborts with an {@link AbortReason}. */
  controller: AbortController;
  /** Crashes of one message after which it is given up. */
  maxTries: number;
  /** Whether the next waiting message may follow at once. */
  more: () => boolean;
}

/**
 * Runs one turn under one claim: decide (pure), save, then act. Model deltas are published in
 * between; everything that matters after a crash goes through `save` and `commit`.
 */
export class TurnRun {
  readonly #options: TurnRunOptions;
  readonly #start: TurnStart;
  readonly #events: EventWriter;
  readonly #history: Message[];
  #turn: TurnState;
  /** Control entries decided on but not yet acknowledged. */
  #consumed = 0;
  /** History decided on but not yet stored. */
  #unsaved: Message[] = [];

  constructor(start: TurnStart, options: TurnRunOptions) {
    this.#options = options;
    this.#start = start;
    this.#history = [...start.history];
    const first = startTurn({
      head: start.head,
      nowMs: options.environment().nowMs,
      model: options.environment().model,
    });
    this.#turn = start.turn ?? first.turn;
    this.#events = new EventWriter({
      store: options.store,
      session: start.session,
      epoch: start.epoch,
      runId: this.#turn.turnId,
      onLost: () => options.controller.abort("fenced" satisfies AbortReason),
    });
  }

  async run(): Promise<TurnEnd> {
    let transition = this.#begin();
    let again = true;
    for (;;) {
      this.#take(transition);
      const { next } = transition;
      if (next.do === "finish") return await this.#finish(next.reply, next.reason);
      if (next.do === "model") {
        const step = await this.#step();
        again = false;
        if (step !== undefined) transition = this.#decide((environment) => afterStep(this.#turn, step, environment));
        else if (this.#aborted() === "cancel") transition = await this.#afterCancel();
        else return await this.#leave();
      } else {
        const saved = await this.#save("suspend", this.#open());
        if (saved.state === "fenced") return { end: "fenced" };
        if (next.do === "tools")
          await this.#dispatch(next.calls, saved.state === "running" ? saved.control : [], again);
        if (saved.state === "suspended") return { end: "suspended" };
        transition = this.#hear(saved.control);
        again = true;
      }
    }
  }

  #begin(): Transition {
    const { head, turn, control, tries } = this.#start;
    const environment = this.#environment();
    if (tries >= this.#options.maxTries) {
      const reason = `given up after ${tries} crashes while it was running`;
      return abandonTurn(turn ?? head, environment, reason);
    }
    if (turn !== undefined) return control.length > 0 ? this.#hearAgain(control) : resumeTurn(turn, environment);
    const first = startTurn({ head, nowMs: environment.nowMs, model: environment.model });
    if (tries > 0) first.events.push(restarted(environment));
    if (control.length === 0) return first;
    this.#take(first);
    return this.#hear(control);
  }

  #environment(): TurnEnvironment {
    return { ...this.#options.environment(), history: this.#history };
  }

  #decide(decision: (environment: TurnEnvironment) => Transition): Transition {
    return decision(this.#environment());
  }

  #hear(control: readonly ControlEntry[]): Transition {
    this.#consumed += control.length;
    return this.#decide((environment) => afterControl(this.#turn, control, environment));
  }

  /**
   * Entries woke a suspended turn. Whoever suspended it may have died before handing out all its
   * calls, so those still open are handed out again; a runner runs none twice.
   */
  #hearAgain(control: readonly ControlEntry[]): Transition {
    const heard = this.#hear(control);
    if (heard.next.do !== "wait") return heard;
    return { ...heard, next: resumeTurn(heard.turn, this.#environment()).next };
  }

  /** Makes a decision ours: it is stored with the next write. */
  #take({ turn, history, events }: Transition): void {
    this.#turn = turn;
    this.#history.push(...history);
    this.#unsaved.push(...history);
    for (const event of events) this.#events.push(event);
  }

  async #step(): Promise<StepResult | undefined> {
    const { chain, instructions, controller } = this.#options;
    const { tools } = this.#options.environment();
    return await runModelStep({
      chain,
      system: instructions,
      history: this.#history,
      tools: [...tools.values()].map(({ announcement }) => announcement.spec),
      signal: controller.signal,
      onEvent: (event) => this.#events.push(event),
    });
  }

  /** What was answered while the state was saved is not handed out again: it would run twice. */
  async #dispatch(calls: readonly CallState[], heard: readonly ControlEntry[], again: boolean): Promise<void> {
    const answered = new Set(heard.map((entry) => (entry.type === "outcome" ? entry.callId : undefined)));
    await this.#options.dispatch(
      this.#turn,
      calls.filter(({ id }) => !answered.has(id)),
      again,
    );
  }

  #aborted(): AbortReason | undefined {
    const { signal } = this.#options.controller;
    return signal.aborted ? (signal.reason as AbortReason) : undefined; // only our own code aborts it
  }

  /** The cancel itself is a control entry: the broadcast only made us look early. */
  async #afterCancel(): Promise<Transition> {
    const saved = await this.#save("continue", []);
    const control = saved.state === "running" ? saved.control : [];
    const cancel: ControlEntry = { type: "cancel", turnId: this.#turn.turnId, reason: "cancelled" };
    this.#consumed += control.length;
    return this.#decide((environment) => afterControl(this.#turn, [...control, cancel], environment));
  }

  async #leave(): Promise<TurnEnd> {
    if (this.#aborted() === "fenced") return { end: "fenced" };
    const saved = await this.#save("handoff", []);
    return { end: saved.state === "fenced" ? "fenced" : "handoff" };
  }

  #open(): OpenCall[] {
    return this.#turn.calls.flatMap(({ id, state, deadlineMs }) =>
      state === "done" ? [] : [{ callId: id, deadlineMs: deadlineMs ?? Number.MAX_SAFE_INTEGER }],
    );
  }

  async #save(mode: "continue" | "suspend" | "handoff", open: OpenCall[]): Promise<SaveResult> {
    const { session, epoch } = this.#start;
    const events = await this.#events.take();
    const history = this.#unsaved;
    const consumed = this.#consumed;
    const result = await this.#options.store.save({
      session,
      epoch,
      history,
      events,
      consumed,
      turn: this.#turn,
      open,
      mode,
    });
    this.#unsaved = [];
    this.#consumed = 0;
    return result;
  }

  async #finish(reply: string | undefined, reason: string): Promise<TurnEnd> {
    const { session, epoch, head } = this.#start;
    const outbox = replyOf(this.#turn, reply, this.#options.environment().nowMs);
    const result = await this.#options.store.commit({
      session,
      epoch,
      seq: head.seq,
      history: this.#unsaved,
      events: await this.#events.take(),
      consumed: this.#consumed,
      more: this.#options.more(),
      ...(outbox === undefined ? {} : { outbox }),
    });
    return result.state === "fenced" ? { end: "fenced" } : { end: "committed", result, reason, history: this.#history };
  }
}

/** Followers may hold deltas of a run that died before it saved anything. */
function restarted({ model }: TurnEnvironment): EngineEvent {
  return { type: "warning", code: answerRestarted, message: "The answer begins anew.", detail: model.info.id };
}
