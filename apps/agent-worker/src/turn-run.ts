import {
  abandonTurn,
  absorb,
  afterControl,
  afterStep,
  answerRestarted,
  commandDone,
  commandTurn,
  compactedTransition,
  compactionPlan,
  finalView,
  languageOfMessage,
  requestTokens,
  resumeTurn,
  runningView,
  startTurn,
  type CompactionPlan,
  type LiveStep,
  type StepResult,
  type Transition,
  type TurnEnvironment,
} from "@larkline/agent";
import type { LiveReply } from "@larkline/feishu";
import type {
  CallState,
  CancelReason,
  ControlEntry,
  EngineEvent,
  InboundMessage,
  QueuedMessage,
  ReplyView,
} from "@larkline/protocol";
import { runModelStep, summarise } from "./model-step.ts";
import { replyOf } from "./reply.ts";
import type { AbortReason } from "./running-turns.ts";
import type { TurnEnd, TurnRunOptions, TurnStart } from "./turn-options.ts";
import { TurnProgress, type Decision } from "./turn-progress.ts";

/** Waiting messages that are looked at. */
const waitingAtOnce = 20;

/**
 * Runs one turn under one claim: decide (pure), save, then act. Model deltas are published and
 * typed on a card in between; everything that matters after a crash goes through `save` and `commit`.
 */
export class TurnRun {
  readonly #options: TurnRunOptions;
  readonly #start: TurnStart;
  readonly #progress: TurnProgress;
  #head: QueuedMessage;
  #live: LiveStep | undefined;
  #reply: LiveReply | undefined;
  /** What a card of the reply shows now. */
  #view: (() => ReplyView) | undefined;
  /** Input tokens of the last step, while the context is the one it saw. */
  #usedTokens: number | undefined;
  /** Id of the model that gave the last step: a fallback may have. */
  #answeredBy: string | undefined;
  /** The window overflowed once; what can be shortened has been. */
  #overflowed = false;

  constructor(start: TurnStart, options: TurnRunOptions) {
    this.#options = options;
    this.#start = start;
    this.#head = start.head;
    const { store } = options;
    const { session, epoch, history } = start;
    const turn = start.turn ?? this.#first().turn;
    this.#progress = new TurnProgress({ store, session, epoch, turn, history, onLost: () => this.#lost() });
  }

  async run(): Promise<TurnEnd> {
    this.#openReply();
    try {
      const end = await this.#run();
      if (end.end !== "suspended") return end;
      this.#reply?.pause();
      this.#reply = undefined;
      return end;
    } finally {
      void this.#reply?.release();
    }
  }

  #lost(): void {
    this.#options.controller.abort("fenced" satisfies AbortReason);
  }

  async #run(): Promise<TurnEnd> {
    const begun = await this.#begin();
    if ("end" in begun) return begun;
    let transition = begun;
    let again = true;
    for (;;) {
      this.#take(transition);
      const { next } = transition;
      switch (next.do) {
        case "finish":
          return await this.#finish(next.reply, next.reason);
        case "model":
        case "compact": {
          const decided = next.do === "model" ? await this.#model() : await this.#compactOnDemand();
          again = false;
          if ("end" in decided) return decided;
          transition = decided;
          break;
        }
        default: {
          const saved = await this.#progress.save("suspend");
          if (saved.state === "fenced") return { end: "fenced" };
          if (next.do === "tools")
            await this.#dispatch(next.calls, saved.state === "running" ? saved.control : [], again);
          if (saved.state === "suspended") return { end: "suspended" };
          transition = this.#hear(saved.control);
          again = true;
        }
      }
    }
  }

  #first(): Transition {
    const environment = this.#options.environment();
    const head = this.#head;
    return (
      commandTurn(head, this.#options.commandFacts()) ??
      startTurn({ head, nowMs: environment.nowMs, model: environment.model })
    );
  }

  async #begin(): Promise<Transition | TurnEnd> {
    const { turn, control, tries } = this.#start;
    if (tries >= this.#options.maxTries) {
      const reason = `given up after ${tries} crashes while it was running`;
      return abandonTurn(turn ?? this.#head, this.#environment(), reason);
    }
    if (turn !== undefined) {
      return control.length > 0 ? this.#hearAgain(control) : resumeTurn(turn, this.#environment());
    }
    await this.#prepare();
    const reason = this.#aborted();
    // What could not be fetched only because this process stops must not be stored as lost: nothing is saved.
    if (reason === "shutdown" || reason === "fenced") return { end: reason === "fenced" ? "fenced" : "handoff" };
    const first = this.#first();
    if (tries > 0) first.events.push(restarted(this.#environment()));
    if (control.length === 0) return first;
    if (first.next.do === "finish") {
      this.#progress.heard(control); // a command that is done at once cannot be cancelled any more
      return first;
    }
    this.#take(first);
    return this.#hear(control);
  }

  async #prepare(): Promise<void> {
    const { message } = this.#head;
    if (message.command !== undefined) return; // no model sees it
    const { controller, prepare } = this.#options;
    const isFirst = this.#start.history.length === 0;
    const wanted = isFirst ? message : withoutThreadRoot(message);
    this.#head = { ...this.#head, message: await prepare(wanted, controller.signal) };
  }

  #environment(): TurnEnvironment {
    const live = this.#live === undefined ? {} : { live: this.#live };
    return { ...this.#options.environment(), history: this.#progress.history, ...live };
  }

  #decide(decision: Decision): Transition {
    return decision(this.#environment());
  }

  #hear(control: readonly ControlEntry[]): Transition {
    this.#progress.heard(control);
    return this.#decide((environment) => afterControl(this.#progress.turn, control, environment));
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

  #take(transition: Transition): void {
    const seen = transition.next.do === "finish" ? this.#view?.() : undefined;
    // How the turn ended is for the delivery to show: until then the card stays as it is.
    if (seen !== undefined) this.#view = () => seen;
    this.#live = undefined;
    this.#progress.take(transition);
    if (transition.context !== undefined) this.#usedTokens = undefined;
    this.#reply?.changed();
  }

  /** A model step, with what has to come before it: waiting messages that join in, a shorter context. */
  async #model(): Promise<Transition | TurnEnd> {
    const heard = await this.#makeReady();
    if (heard !== undefined) return heard;
    this.#live = { text: "", thinking: "" };
    const step = await this.#step();
    if (step === undefined) return await this.#brokenOff();
    if (step.failure?.code === "context_overflow") {
      if (await this.#shortenAfterOverflow()) return this.#unchanged();
      if (this.#aborted() !== undefined) return await this.#brokenOff();
    }
    this.#usedTokens = requestTokens(step.usage);
    this.#answeredBy = step.model;
    return this.#decide((environment) => afterStep(this.#progress.turn, step, environment));
  }

  #unchanged(): Transition {
    return { turn: this.#progress.turn, history: [], events: [], next: { do: "model" } };
  }

  async #brokenOff(): Promise<Transition | TurnEnd> {
    return this.#aborted() === "cancel" ? await this.#afterCancel() : await this.#leave();
  }

  /** Undefined when the model can start; otherwise what came up instead. */
  async #makeReady(): Promise<Transition | TurnEnd | undefined> {
    if (await this.#isSuperseded()) return await this.#cancelled("superseded");
    const joined = await this.#absorbWaiting();
    const compacted = await this.#compactWhenFull();
    if (!joined && !compacted) return undefined;
    const saved = await this.#progress.save("continue");
    if (saved.state === "fenced") return { end: "fenced" };
    return saved.state === "running" && saved.control.length > 0 ? this.#hear(saved.control) : undefined;
  }

  async #compactWhenFull(): Promise<boolean> {
    const { turn } = this.#progress;
    const plan = turn.summaryFailed === true ? undefined : this.#planCompaction(false);
    const summary = plan === undefined ? undefined : await this.#summarise(plan);
    if (plan === undefined || summary === undefined) return false;
    const text = summaryIn(summary);
    if (text === undefined) this.#take({ ...this.#unchanged(), turn: { ...turn, summaryFailed: true } });
    else this.#take(compactedTransition(turn, plan, text));
    return text !== undefined;
  }

  /** A turn that waited for its own start was not there to be stopped by the message after it. */
  async #isSuperseded(): Promise<boolean> {
    const { store, followUps } = this.#options;
    if (followUps !== "supersede") return false;
    const { message } = this.#progress.turn;
    // Over HTTP each request follows the run of its own message.
    if (message.reply.channel === "none") return false;
    const waiting = await store.waiting(this.#start.session, waitingAtOnce);
    return waiting.some((later) => supersedes(later.message, message));
  }

  async #absorbWaiting(): Promise<boolean> {
    const { store, followUps, onJoined } = this.#options;
    const { turn } = this.#progress;
    if (followUps !== "join" || turn.steps === 0) return false;
    const queued = await store.waiting(this.#start.session, waitingAtOnce);
    const waiting = queued.map(({ seq, message }) => ({ seq, message: readyToJoin(message, turn.message.sender) }));
    const transition = this.#decide((environment) => absorb(turn, waiting, environment));
    const joined = transition.absorbed?.length ?? 0;
    if (joined === 0) return false;
    this.#take(transition);
    for (const message of waiting.slice(0, joined)) onJoined(message);
    return true;
  }

  #planCompaction(force: boolean): CompactionPlan | undefined {
    const { contextWindow, maxOutputTokens } = this.#options.chain.primary;
    return compactionPlan(this.#progress.history, {
      contextWindow,
      maxOutputTokens,
      usedTokens: this.#usedTokens,
      force,
    });
  }

  async #summarise(plan: CompactionPlan): Promise<StepResult | undefined> {
    const { chain, controller, readBriefly: read } = this.#options;
    const language = languageOfMessage(this.#progress.turn.message, this.#options.environment().texts);
    return await summarise({ chain, plan, language, read, signal: controller.signal });
  }

  /** The vendor counts more than we did: shortens what can be shortened, once. */
  async #shortenAfterOverflow(): Promise<boolean> {
    const plan = this.#overflowed ? undefined : this.#planCompaction(true);
    this.#overflowed = true;
    if (plan === undefined) return false;
    const summary = await this.#summarise(plan);
    if (summary === undefined) return false;
    this.#take(compactedTransition(this.#progress.turn, plan, summaryIn(summary)));
    return true;
  }

  async #compactOnDemand(): Promise<Transition | TurnEnd> {
    const facts = this.#options.commandFacts();
    const plan = this.#planCompaction(true);
    if (plan === undefined) return commandDone(this.#progress.turn, undefined, facts);
    const summary = await this.#summarise(plan);
    if (summary === undefined) return await this.#brokenOff();
    if (summary.failure !== undefined)
      return this.#decide((environment) => afterStep(this.#progress.turn, summary, environment));
    const compacted = compactedTransition(this.#progress.turn, plan, summaryIn(summary));
    const done = commandDone(this.#progress.turn, compacted.report, facts);
    return { ...done, events: [...compacted.events, ...done.events], context: compacted.context };
  }

  async #step(): Promise<StepResult | undefined> {
    const { chain, instructions, controller, read } = this.#options;
    const { tools } = this.#options.environment();
    return await runModelStep({
      chain,
      system: instructions,
      history: this.#progress.history,
      read,
      tools: [...tools.values()].map(({ announcement }) => announcement.spec),
      signal: controller.signal,
      onEvent: (event) => this.#streamed(event),
    });
  }

  #streamed(event: EngineEvent): void {
    this.#progress.publish(event);
    const live = this.#live;
    if (live === undefined) return;
    if (event.type === "text_delta") live.text += event.text;
    else if (event.type === "thinking_delta") live.thinking += event.text;
    else if (isRestart(event)) this.#live = { text: "", thinking: "" };
    else return;
    this.#reply?.changed();
  }

  /** What was answered while the state was saved is not handed out again: it would run twice. */
  async #dispatch(calls: readonly CallState[], heard: readonly ControlEntry[], again: boolean): Promise<void> {
    const answered = new Set(heard.map((entry) => (entry.type === "outcome" ? entry.callId : undefined)));
    await this.#options.dispatch(
      this.#progress.turn,
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
    return await this.#cancelled("cancelled");
  }

  /** Ends the turn; an entry of the session that says why it is cancelled counts before `reason`. */
  async #cancelled(reason: CancelReason): Promise<Transition> {
    const saved = await this.#progress.save("continue");
    const control = saved.state === "running" ? saved.control : [];
    const cancel: ControlEntry = { type: "cancel", turnId: this.#progress.turn.turnId, reason };
    this.#progress.heard(control);
    return this.#decide((environment) => afterControl(this.#progress.turn, [...control, cancel], environment));
  }

  async #leave(): Promise<TurnEnd> {
    if (this.#aborted() === "fenced") return { end: "fenced" };
    const saved = await this.#progress.save("handoff");
    return { end: saved.state === "fenced" ? "fenced" : "handoff" };
  }

  async #finish(reply: string | undefined, reason: string): Promise<TurnEnd> {
    const { turn } = this.#progress;
    const { nowMs } = this.#options.environment();
    const outbox = replyOf(turn, { text: reply, view: this.#finalView(reply, reason), nowMs });
    const ending = { seq: this.#start.head.seq, more: this.#options.more() };
    const result = await this.#progress.commit(outbox === undefined ? ending : { ...ending, outbox });
    if (result.state === "fenced") return { end: "fenced" };
    const settings = this.#progress.settings ?? this.#start.settings;
    // What is on its way to the card must not arrive after what the delivery of the answer sends.
    const released = this.#reply?.release() ?? Promise.resolve();
    return { end: "committed", result, reason, history: this.#progress.history, settings, released };
  }

  #openReply(): void {
    const options = this.#options.viewOf(this.#progress.turn.message);
    if (options === undefined) return;
    const running = (): ReplyView =>
      runningView(this.#progress.turn, this.#live, { ...options, nowMs: this.#options.environment().nowMs });
    this.#view = running;
    this.#reply = this.#options.openReply({
      turn: this.#progress.turn,
      epoch: this.#start.epoch,
      view: () => (this.#view ?? running)(),
    });
    this.#reply?.changed();
  }

  #finalView(reply: string | undefined, reason: string): ReplyView | undefined {
    const options = this.#options.viewOf(this.#progress.turn.message);
    if (options === undefined || reply === undefined || reply.trim() === "") return undefined;
    const { nowMs } = this.#options.environment();
    const answered = this.#options.chain.models.find(({ id }) => id === this.#answeredBy);
    const model = answered?.displayName ?? options.model;
    return finalView(this.#progress.turn, { reply, reason }, { ...options, nowMs, model });
  }
}

/** The model has seen the beginning of the thread already. */
function withoutThreadRoot(message: InboundMessage): InboundMessage {
  if (message.references?.threadRootId === undefined) return message;
  const { references, ...rest } = message;
  const { threadRootId: _threadRootId, ...others } = references;
  return Object.keys(others).length === 0 ? rest : { ...rest, references: others };
}

/** A message as it joins a turn of that person, whose name is known and whose thread the model has seen. */
function readyToJoin(message: InboundMessage, { id, name }: InboundMessage["sender"]): InboundMessage {
  const known = message.sender.id === id && name !== undefined ? { ...message, sender: { id, name } } : message;
  return withoutThreadRoot(known);
}

/** A message that came late and waits now was written before: it takes nothing back. */
function supersedes(later: InboundMessage, { chatType, sender, createdAtMs }: InboundMessage): boolean {
  return later.createdAtMs >= createdAtMs && (chatType === "p2p" || later.sender.id === sender.id);
}

/** What stands for the older messages; undefined when the model gave no summary. */
function summaryIn({ failure, stopReason, text }: StepResult): string | undefined {
  return failure !== undefined || stopReason === "refusal" || text.trim() === "" ? undefined : text;
}

function isRestart(event: EngineEvent): boolean {
  return event.type === "warning" && event.code === answerRestarted;
}

/** Followers may hold deltas of a run that died before it saved anything. */
function restarted({ model }: TurnEnvironment): EngineEvent {
  return { type: "warning", code: answerRestarted, message: "The answer begins anew.", detail: model.info.id };
}
