import {
  abandonTurn,
  absorb,
  afterControl,
  afterStep,
  commandDone,
  commandTurn,
  newTurn,
  resumeTurn,
  startTurn,
  stepRestart,
  withNotes,
  type LiveStep,
  type StepResult,
  type Transition,
  type TurnEnvironment,
  type CommandFacts,
  type ViewOptions,
} from "@larkline/agent";
import type {
  CallState,
  CancelReason,
  ControlEntry,
  EngineEvent,
  ModelFailure,
  QueuedMessage,
  TurnState,
  InboundMessage,
  Message,
  ReplyView,
} from "@larkline/protocol";
import type { Claim, CommitResult, SaveResult, SessionSettings, SessionStore } from "@larkline/store";
import type { ModelOptions } from "@larkline/process/config";
import type { LiveReply } from "@larkline/feishu";
import type { ModelChain } from "@larkline/model";
import { attemptOf, runnerAtWork, waitsForPeople, type KeepLargeResults } from "./tools.ts";
import { pastOf, runModelStep, TurnContext, type HistoryReader } from "./model-step.ts";
import type { TurnJudge, TurnApprovals } from "./approvals.ts";
import { replyOf, TurnReply } from "./turn-reply.ts";
import type { AbortReason } from "./session-runner.ts";
import type { TurnBudget, BudgetedRun } from "./budget.ts";
import { mayHold, type Hold, type TurnHolds } from "./turn-holds.ts";
import { TurnProgress, type Decision, type ProgressOptions, type PublishedEvents } from "./turn-store.ts";
import type { TurnWatch } from "./turn-watch.ts";

/**
 * Runs one turn under one claim: decide (pure), save, then act. Model deltas are published and
 * typed on a card in between; everything that matters after a crash goes through `save` and `commit`.
 */
export class TurnRun {
  readonly #options: TurnRunOptions;
  readonly #start: TurnStart;
  readonly #progress: TurnProgress;
  readonly #budget: TurnBudget;
  readonly #context: TurnContext;
  readonly #reply: TurnReply;
  readonly #judge: TurnJudge;
  #head: QueuedMessage;
  #live: LiveStep | undefined;
  /** Of the last step. */
  #failure: ModelFailure | undefined;
  /** Id of the model that gave the last step: a fallback may have. */
  #answeredBy: string | undefined;
  /** Approvals that the last decision was about. */
  #settled: ReadonlySet<string | undefined> = new Set();
  /** Calls that waited for people when the turn ended. */
  #dropped: CallState[] = [];
  /** While this turn keeps its slot for the calls that it has handed out. */
  #hold: Hold | undefined;
  /** Calls that are being handed out while the slot is kept. */
  #handing: Promise<void> | undefined;
  /** Runners that still had calls when the turn was cancelled. */
  #stopped: ReadonlySet<string> = new Set();

  constructor(start: TurnStart, options: TurnRunOptions) {
    this.#options = options;
    // What is lost may have been lost since the turn began.
    const { turn } = start;
    const lost = start.lost?.map(({ what }) => what) ?? [];
    this.#start = turn === undefined ? start : { ...start, turn: withNotes(turn, lost, options.facts().texts) };
    this.#head = start.head;
    const { store, approvals, judge, openBudget, controller } = options;
    const { session, epoch, history } = start;
    this.#judge = judge(start.head.message);
    this.#progress = new TurnProgress({
      store,
      session,
      epoch,
      turn: this.#start.turn ?? this.#first().turn,
      history,
      published: start.published,
      replaced: replacing(start),
      onLost: () => this.#lost(),
      onAsked: (asked) => approvals.asked(asked),
    });
    const { turnId } = this.#progress.turn;
    this.#budget = openBudget({ message: start.head.message, turnId, epoch, signal: controller.signal });
    this.#context = new TurnContext({ ...options, charge: this.#budget.charge }, this.#progress);
    this.#reply = new TurnReply(options, { turn: () => this.#progress.turn, live: () => this.#live });
  }

  async run(): Promise<TurnEnd> {
    this.#reply.open(this.#start.epoch);
    try {
      const end = await this.#run();
      if (end.end === "suspended") this.#reply.pause();
      return end;
    } finally {
      this.#hold?.end("stopped");
      void this.#reply.release();
    }
  }

  #lost(): void {
    this.#options.controller.abort("fenced" satisfies AbortReason);
  }

  async #run(): Promise<TurnEnd> {
    const begun = await this.#begin();
    if ("end" in begun) return begun;
    let transition = begun;
    for (;;) {
      this.#take(transition);
      const { next } = transition;
      if (next.do === "finish") return await this.#finish(next.reply, next.reason);
      const decided = await this.#act(next);
      if ("end" in decided) return decided;
      transition = decided;
    }
  }

  async #act(next: Exclude<Transition["next"], { do: "finish" }>): Promise<Transition | TurnEnd> {
    if (next.do === "model") {
      this.#handing = undefined; // every call has its outcome
      return await this.#model();
    }
    if (next.do === "compact") return await this.#compactOnDemand();
    if (next.do === "wait") return (await this.#hearHeld()) ?? (await this.#suspend());
    await this.#handing; // what could not be handed out before, and is still open
    const hold = (this.#hold = this.#options.holds.open(this.#progress.turn, this.#options.controller.signal));
    const saved = await this.#progress.save(hold === undefined ? "suspend" : "hold");
    if (saved.state === "fenced") return { end: "fenced" };
    const heard = saved.state === "running" ? saved.control : [];
    const handing = this.#dispatch(next.calls, heard);
    if (hold === undefined || heard.length > 0) {
      hold?.end("missed");
      await handing;
      return saved.state === "running" ? await this.#hear(heard) : suspendedBy(saved);
    }
    // Calls of built-in tools are answered in there, and may take longer than the hold.
    this.#handing = handing;
    handing.catch(() => hold.end("dropped"));
    return (await this.#hearHeld()) ?? (await this.#suspend());
  }

  /** While the slot is kept, the next outcomes; undefined once it is not. */
  async #hearHeld(): Promise<Transition | undefined> {
    if (!mayHold(this.#progress.turn)) this.#hold?.end("dropped");
    const entries = await this.#hold?.next();
    if (entries === undefined) return undefined;
    const heard = await this.#hear(entries);
    if (heard.next.do !== "wait") this.#hold?.end("answered");
    return heard;
  }

  /** Frees the slot, unless something has come that this turn has not read. */
  async #suspend(): Promise<Transition | TurnEnd> {
    const saved = await this.#progress.save("suspend");
    if (saved.state === "fenced") return { end: "fenced" };
    if (saved.state === "running") return await this.#hear(saved.control);
    await this.#handing;
    return suspendedBy(saved);
  }

  #first(): Transition {
    const head = this.#head;
    const { othersWait, history, lost = [] } = this.#start;
    const { commandFacts, facts, now } = this.#options;
    const { model, texts } = facts();
    const first = commandTurn(head, commandFacts()) ?? startTurn({ head, nowMs: now(), model, othersWait, history });
    const whatIsLost = lost.map(({ what }) => what);
    return { ...first, turn: withNotes(first.turn, whatIsLost, texts) };
  }

  async #begin(): Promise<Transition | TurnEnd> {
    const { turn, control, damaged } = this.#start;
    const { givenUp } = this.#options;
    if (givenUp !== undefined) {
      // A checkpoint that cannot be read was written together with the message, which is in the history by then.
      const begun = turn ?? (damaged === undefined ? this.#head : newTurn(this.#head, this.#options.now()));
      return abandonTurn(begun, this.#environment(), `given up: ${givenUp}`);
    }
    if (turn !== undefined) {
      return control.length > 0 ? await this.#hearAgain(control) : resumeTurn(turn, this.#environment());
    }
    await this.#prepare();
    const reason = this.#aborted();
    // What could not be fetched only because this process stops must not be stored as lost: nothing is saved.
    if (reason === "fenced") return { end: "fenced" };
    if (reason === "shutdown") return await this.#handOff();
    const first = this.#first();
    // Followers may hold deltas of a run that died before it saved anything.
    if (first.next.do === "model" && this.#hasStarted(first.turn)) {
      first.events.push(stepRestart(first.turn.steps, this.#environment().model, "crash"));
    }
    if (control.length === 0) return first;
    if (first.next.do === "finish") {
      this.#progress.heard(control); // a command that is done at once cannot be cancelled any more
      return first;
    }
    this.#take(first);
    return await this.#hear(control);
  }

  /** Whether a worker that died has published something of the next model step. */
  #hasStarted({ steps }: TurnState): boolean {
    return this.#start.published?.has(`turn_start ${steps + 1}`) === true;
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
    const { facts, now } = this.#options;
    const { history } = this.#progress;
    const { othersWait } = this.#start;
    const live = this.#live === undefined ? {} : { live: this.#live };
    return { ...facts(), nowMs: now(), judge: this.#judge, history, othersWait, ...live };
  }

  /** Decides once all facts are there that the decision asks for: most need none that has to be fetched. */
  async #decide(decision: Decision): Promise<Transition> {
    this.#judge.renew();
    for (;;) {
      const transition = decision(this.#environment());
      if (!(await this.#judge.supply())) return transition;
    }
  }

  async #hear(control: readonly ControlEntry[]): Promise<Transition> {
    const { approvals, keepLarge } = this.#options;
    const { turn } = this.#progress;
    this.#progress.heard(control);
    this.#settled = new Set(control.map((entry) => (entry.type === "decision" ? entry.approvalId : undefined)));
    const { entries: believed, events } = await approvals.heard(turn, control);
    const entries = await keepLarge(turn, believed);
    const heard = await this.#decide((environment) => afterControl(turn, entries, environment));
    return { ...heard, events: [...events, ...heard.events] };
  }

  /**
   * Entries woke a suspended turn. Whoever suspended it may have died before handing out all its
   * calls, so those still open are handed out again; the queue leaves alone those that wait, run, or have just been answered.
   */
  async #hearAgain(control: readonly ControlEntry[]): Promise<Transition> {
    const inStep = this.#progress.turn.calls.length === 0;
    const heard = await this.#hear(control);
    // The worker that died may have heard the same, and published deltas of the step that follows.
    if (heard.next.do === "model" && (inStep || this.#hasStarted(heard.turn))) {
      heard.events.push(stepRestart(heard.turn.steps, this.#environment().model, "crash"));
    }
    if (heard.next.do !== "wait" && heard.next.do !== "tools") return heard;
    return { ...heard, next: resumeTurn(heard.turn, this.#environment()).next };
  }

  #take(transition: Transition): void {
    if (transition.next.do === "finish") {
      this.#reply.freeze();
      const { calls } = this.#progress.turn;
      this.#dropped = calls.filter((call) => waitsForPeople(call) && !this.#settled.has(call.approvalId));
      if (transition.next.reason === "cancelled") this.#stopped = new Set(calls.flatMap(runnerAtWork));
    }
    this.#live = undefined;
    this.#progress.take(transition);
    if (transition.context !== undefined) this.#context.changed();
    this.#reply.changed();
  }

  /** A model step, with what has to come before it: waiting messages that join in, a shorter context. */
  async #model(): Promise<Transition | TurnEnd> {
    const { turn } = this.#progress;
    // Something else than its time has woken a turn whose step was put off.
    if (turn.putOff !== undefined && turn.putOff.atMs > this.#options.now()) {
      return { turn, history: [], events: [], next: { do: "wait" } };
    }
    // What makes it ready may have cost something itself.
    const instead = (await this.#makeReady()) ?? (await this.#overBudget());
    if (instead !== undefined) return instead;
    this.#live = { text: "", thinking: "" };
    const step = await this.#step();
    if (step === undefined) return await this.#brokenOff();
    if (step.failure?.code === "context_overflow") {
      const shortened = await this.#context.afterOverflow();
      if (shortened !== undefined) {
        const restart = stepRestart(shortened.turn.steps, this.#environment().model, step.failure.code);
        return step.failure.partial ? { ...shortened, events: [restart, ...shortened.events] } : shortened;
      }
      if (this.#aborted() !== undefined) return await this.#brokenOff();
    }
    this.#failure = step.failure;
    this.#context.used(step.usage);
    this.#answeredBy = step.model;
    const decided = await this.#decide((environment) => afterStep(this.#progress.turn, step, environment));
    this.#options.watch.judged(decided.turn.calls);
    return decided;
  }

  async #brokenOff(): Promise<Transition | TurnEnd> {
    // The cancel itself is a control entry: the broadcast only made us look early.
    return this.#aborted() === "cancel" ? await this.#cancelled("cancelled") : await this.#leave();
  }

  /** Undefined when the model can start; otherwise what came up instead. */
  async #makeReady(): Promise<Transition | TurnEnd | undefined> {
    const { store, followUps } = this.#options;
    // A turn that waited for its own start was not there to be stopped by the message after it.
    if (followUps === "supersede" && (await isSuperseded(store, this.#progress.turn.message))) {
      return await this.#cancelled("superseded");
    }
    const refused = await this.#overBudget();
    if (refused !== undefined) return refused;
    const joined = await this.#absorbWaiting();
    const cut = await this.#context.whenFull();
    if (cut !== undefined) this.#take(cut);
    if (!joined && cut?.context === undefined) return undefined;
    const saved = await this.#progress.save("continue");
    if (saved.state === "fenced") return { end: "fenced" };
    return saved.state === "running" && saved.control.length > 0 ? await this.#hear(saved.control) : undefined;
  }

  /** The end of the turn when a budget is spent; undefined when a model may be called. */
  async #overBudget(): Promise<Transition | undefined> {
    const transition = await this.#budget.before(this.#progress.turn);
    if (transition === undefined || transition.next.do === "finish") return transition;
    this.#take(transition);
    return undefined;
  }

  async #absorbWaiting(): Promise<boolean> {
    const { store, followUps, onJoined } = this.#options;
    const { turn } = this.#progress;
    if (followUps !== "join" || turn.steps === 0) return false;
    const waiting = await messagesToJoin(store, turn.message);
    const transition = await this.#decide((environment) => absorb(turn, waiting, environment));
    const joined = transition.absorbed?.length ?? 0;
    if (joined === 0) return false;
    this.#take(transition);
    for (const message of waiting.slice(0, joined)) onJoined(message);
    return true;
  }

  async #compactOnDemand(): Promise<Transition | TurnEnd> {
    const facts = this.#options.commandFacts();
    const { turn } = this.#progress;
    const plan = this.#context.plan(true);
    if (plan === undefined) return commandDone(turn, undefined, facts);
    const refused = await this.#overBudget();
    if (refused !== undefined) return refused;
    const summary = await this.#context.summarise(plan);
    if (summary === undefined) return await this.#brokenOff();
    if (summary.failure !== undefined) {
      return await this.#decide((environment) => afterStep(turn, summary, environment));
    }
    const compacted = this.#context.compacted(plan, summary);
    const done = commandDone(turn, compacted.report, facts);
    return { ...done, events: [...compacted.events, ...done.events], context: compacted.context };
  }

  /** Undefined when it was broken off. */
  async #step(): Promise<StepResult | undefined> {
    const { chain, instructions, request, controller, facts, read, watch } = this.#options;
    const step = {
      chain,
      model: facts().model,
      past: pastOf(this.#progress.turn),
      turnNumber: this.#progress.turn.steps + 1,
      system: instructions,
      options: request,
      history: this.#progress.history,
      read,
      tools: [...facts().tools.values()].map(({ announcement }) => announcement.spec),
      signal: controller.signal,
      charge: this.#budget.charge,
      onEvent: (event: EngineEvent) => this.#streamed(event),
      onRetry: watch.retried,
    };
    const result = await watch.step(chain, "answer", async () => await runModelStep(step));
    if (result.brokenOff !== true) return result;
    this.#live = { text: "", thinking: "", ...this.#live, broken: result };
    return undefined;
  }

  #streamed(event: EngineEvent): void {
    this.#progress.publish(event);
    const live = this.#live;
    if (live === undefined) return;
    if (event.type === "text_delta") {
      live.text += event.text;
      this.#options.watch.text();
    } else if (event.type === "thinking_delta") live.thinking += event.text;
    else if (event.type === "step_restarted") this.#live = { text: "", thinking: "" };
    else return;
    this.#reply.changed();
  }

  /** What was answered while the state was saved is not handed out again: it would run twice. */
  async #dispatch(calls: readonly CallState[], heard: readonly ControlEntry[]): Promise<void> {
    const answered = new Set(heard.map((entry) => (entry.type === "outcome" ? entry.callId : undefined)));
    const open = calls.filter((call) => !answered.has(attemptOf(call)));
    this.#options.watch.handedOut(open);
    await this.#options.dispatch(this.#progress.turn, open);
  }

  #aborted(): AbortReason | undefined {
    const { signal } = this.#options.controller;
    return signal.aborted ? (signal.reason as AbortReason) : undefined; // only our own code aborts it
  }

  /** Ends the turn; an entry of the session that says why it is cancelled counts before `reason`. */
  async #cancelled(reason: CancelReason): Promise<Transition> {
    const saved = await this.#progress.save("continue");
    const control = saved.state === "running" ? saved.control : [];
    const cancel: ControlEntry = { type: "cancel", turnId: this.#progress.turn.turnId, reason };
    this.#progress.heard(control);
    const { entries } = await this.#options.approvals.heard(this.#progress.turn, control);
    return await this.#decide((environment) => afterControl(this.#progress.turn, [...entries, cancel], environment));
  }

  async #leave(): Promise<TurnEnd> {
    if (this.#aborted() === "fenced") return { end: "fenced" };
    const saved = await this.#progress.save("handoff");
    return { end: saved.state === "fenced" ? "fenced" : "handoff" };
  }

  /** Before anything is saved: the next worker begins anew, and this run counts neither as an error nor as a death. */
  async #handOff(): Promise<TurnEnd> {
    const { session, epoch } = this.#start;
    return { end: (await this.#options.store.handOff(session, epoch)) ? "handoff" : "fenced" };
  }

  async #finish(reply: string | undefined, reason: string): Promise<TurnEnd> {
    const { turn } = this.#progress;
    const { approvals, more, now } = this.#options;
    const view = this.#reply.final(reply, reason, this.#answeredBy);
    const outbox = replyOf(turn, { text: reply, view, nowMs: now() });
    const ending = { seq: this.#start.head.seq, more: more() };
    const result = await this.#progress.commit(outbox === undefined ? ending : { ...ending, outbox });
    if (result.state === "fenced") return { end: "fenced" };
    approvals.dropped(turn, this.#dropped);
    const { session, turnId } = { session: turn.message.session, turnId: turn.turnId };
    for (const runner of this.#stopped) void this.#options.stopCalls(runner, { session, turnId });
    const settings = this.#progress.settings ?? this.#start.settings;
    // What is on its way to the card must not arrive after what the delivery of the answer sends.
    const released = this.#reply.release();
    const failure = this.#failure === undefined ? {} : { failure: this.#failure };
    return { end: "committed", result, reason, history: this.#progress.history, settings, released, ...failure };
  }
}

function suspendedBy({ wakeGen }: Extract<SaveResult, { state: "suspended" }>): TurnEnd {
  return { end: "suspended", ...(wakeGen === undefined ? {} : { wakeGen }) };
}

/** The settings become the defaults, and the context all that is left of it. */
function replacing({ lost = [], history }: TurnStart): NonNullable<ProgressOptions["replaced"]> {
  const isLost = (what: "settings" | "summary"): boolean => lost.some((each) => each.what === what);
  return {
    ...(isLost("summary") ? { context: { keep: history.length } } : {}),
    ...(isLost("settings") ? { settings: {} } : {}),
  };
}

/** How running a turn ended, seen from the session. */
export type TurnEnd =
  | { end: "fenced" }
  /** `wakeGen`: others have something to do meanwhile. */
  | { end: "suspended"; wakeGen?: number }
  | { end: "handoff" }
  /** `history` is the conversation with this turn, for the turn that follows at once. */
  | {
      end: "committed";
      result: CommitResult;
      reason: string;
      history: Message[];
      settings: SessionSettings;
      /** Settles when nothing is written to the turn's card any more. */
      released: Promise<void>;
      /** Of the model, when the turn ended in it. */
      failure?: ModelFailure;
    };

/** Where a turn starts from: a message, with the checkpoint of an earlier run if there was one. */
export interface TurnStart {
  session: string;
  epoch: string;
  head: QueuedMessage;
  turn?: TurnState;
  control: ControlEntry[];
  history: Message[];
  settings: SessionSettings;
  /** As in a claim. */
  mayHaveWaited: boolean;
  tries: number;
  deaths: Claim["deaths"];
  othersWait: boolean;
  damaged?: string;
  /** After a crash: what is in the event log of the run. */
  published?: PublishedEvents;
  lost?: Claim["lost"];
}

/** Hands calls to their runners. */
export type Dispatch = (turn: TurnState, calls: readonly CallState[]) => Promise<void>;

/** Tells a runner that its calls of a cancelled turn are to stop. */
export type StopCalls = (runner: string, cancel: { session: string; turnId: string }) => Promise<void>;

/** The facts of a moment that are the same for all turns of an agent. */
export type AgentFacts = Omit<TurnEnvironment, "nowMs" | "judge" | "history" | "live" | "othersWait">;

/** What a reply that types is opened with. */
interface ReplyOpening {
  turn: TurnState;
  epoch: string;
  view: () => ReplyView;
}

export interface TurnRunOptions {
  store: Pick<SessionStore, "save" | "commit" | "emit" | "waiting" | "handOff">;
  chain: ModelChain;
  instructions: string;
  /** What model steps ask of the vendor besides an answer. */
  request: ModelOptions;
  /** What the next message of the same person does to a turn that is not over. */
  followUps: "wait" | "join" | "supersede";
  /** The clock, epoch ms. */
  now: () => number;
  /** The facts a decision depends on, fresh for each. */
  facts: () => AgentFacts;
  /** Judges the calls of the turn. */
  judge: (message: InboundMessage) => TurnJudge;
  /** Keeps results that are too large for the conversation. Never rejects. */
  keepLarge: KeepLargeResults;
  approvals: TurnApprovals;
  /** Opens the budgets that a run of the turn draws on. */
  openBudget: (run: BudgetedRun) => TurnBudget;
  /** What a command depends on. */
  commandFacts: () => CommandFacts;
  dispatch: Dispatch;
  /** Where the turn may keep its slot while its calls run. */
  holds: Pick<TurnHolds, "open">;
  /** Tells a runner that nobody waits for its calls of this turn any more; must not reject. */
  stopCalls: StopCalls;
  /** Fetches what the message refers to, before the model sees it. Never rejects. */
  prepare: (message: InboundMessage, signal: AbortSignal) => Promise<InboundMessage>;
  /** Told of a message that has become part of the turn; must not throw. */
  onJoined: (joined: QueuedMessage) => void;
  /** Puts stored content in place of references to it. */
  read: HistoryReader;
  /** The same for a summary: the beginnings of files, no images. */
  readBriefly: HistoryReader;
  /** Opens the card that types; undefined where the answer is sent whole, or to nobody. */
  openReply: (opening: ReplyOpening) => LiveReply | undefined;
  /** What the person gets to see beside the answer; undefined: nothing but its text. */
  viewOf: (message: InboundMessage) => ViewOptions | undefined;
  /** Told of what happens. */
  watch: TurnWatch;
  /** Aborts with an {@link AbortReason}. */
  controller: AbortController;
  /** Why the message is given up instead of being answered; absent: it is not. */
  givenUp: string | undefined;
  /** Whether the next waiting message may follow at once. */
  more: () => boolean;
}

/** Waiting messages that are looked at. */
const waitingAtOnce = 20;

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

/** The messages that wait behind one, as they would join its turn: up to the first that another agent is to answer. */
export async function messagesToJoin(
  store: Pick<SessionStore, "waiting">,
  { session, sender, agent }: InboundMessage,
): Promise<QueuedMessage[]> {
  const queued = await store.waiting(session, waitingAtOnce);
  const other = queued.findIndex(({ message }) => message.agent !== agent);
  return (other === -1 ? queued : queued.slice(0, other)).map(({ seq, message }) => ({
    seq,
    message: readyToJoin(message, sender),
  }));
}

/** Whether a later message takes this one back. */
async function isSuperseded(store: Pick<SessionStore, "waiting">, message: InboundMessage): Promise<boolean> {
  const waiting = await store.waiting(message.session, waitingAtOnce);
  return waiting.some((later) => supersedes(later.message, message));
}
