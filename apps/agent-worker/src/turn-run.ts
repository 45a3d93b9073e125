import {
  abandonTurn,
  allAbilities,
  attemptOf,
  atRevision,
  newTurn,
  resumeTurn,
  startTurn,
  stepRestart,
  withNotes,
  type StepResult,
  type Transition,
} from "@larkline/agent";
import { commandTurn, type CommandFacts } from "@larkline/agent/commands";
import {
  ModelSteps,
  TurnDriver,
  type AbortReason,
  type Left,
  type ReadEntries,
  type TurnHost,
  type Woken,
} from "@larkline/agent/drive";
import { handedOverBy } from "@larkline/agent/handover";
import type { UserMessage } from "@larkline/agent/messages";
import { teamFactsIn, continueTeam } from "@larkline/agent/team";
import {
  apiApp,
  turnIdOf,
  type ControlEntry,
  type InboundMessage,
  type QueuedMessage,
} from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ModelFailure } from "@larkline/protocol/model-stream";
import { teamOfTurn, agentOfTurn, type CallState, type TurnState } from "@larkline/protocol/turn";
import { noteKeptResponse, type SaveResult } from "@larkline/store";
import { type Speaker, agentOtherThan, commandFactsOf, pausedEnd, refusalOf } from "./agents.ts";
import { DecidersUnknownError, dropAsks, waitsForPeople } from "./approvals.ts";
import { withoutSteps } from "./helpers.ts";
import { TurnMemories } from "./memories.ts";
import { FilesUnreadableError, WorkerSteps } from "./model-step.ts";
import { isSuperseded, messagesToJoin, withoutThreadRoot } from "./prepare.ts";
import {
  type TurnEnd,
  type TurnSlot,
  type RunningTurn,
  takeBackReaction,
  TurnReply,
} from "./running-turn.ts";
import { noteUnanswered, zoneOf } from "./schedules.ts";
import type { Services } from "./services.ts";
import { dispatchCalls, readEntries, runnerAtWork, stopCalls, stopCallsOf } from "./tools.ts";
import { TurnBudget } from "./turn-budget.ts";
import { TurnFacts } from "./turn-facts.ts";
import { mayHold, type Hold } from "./running-turns.ts";
import { expiringSoon, unreadableIn, TurnStore, type TurnStart } from "./turn-output.ts";

/**
 * Runs one turn under one claim: decide (pure), save, then act. Model deltas are published and
 * typed on a card in between; everything that matters after a crash goes through `save` and `commit`. What calls have
 * answered stays in the control list until the next save.
 */
export class TurnRun implements TurnHost {
  readonly clock: Clock;
  readonly #services: Services;
  readonly #start: TurnStart;
  readonly #run: RunningTurn;
  readonly #stored: TurnStore;
  readonly #worker: WorkerSteps;
  readonly #steps: ModelSteps;
  readonly #driver: TurnDriver;
  readonly #reply: TurnReply;
  readonly facts: TurnFacts;
  readonly #speaker: Speaker;
  #head: QueuedMessage;
  /** What was said in the group before; undefined where the agent does not read along. */
  #overheard: UserMessage[] | undefined;
  /** The failure of the last step. */
  #failure: ModelFailure | undefined;
  /** Id of the model that gave the last step: a fallback may have. */
  #answeredBy: string | undefined;
  /** Questions to people that the last decision was about. */
  #settled: ReadonlySet<string | undefined> = new Set();
  /** Calls that waited for people when the turn ended. */
  #dropped: CallState[] = [];
  /** The slot that this turn keeps for the calls that it has handed out. */
  #hold: Hold | undefined;
  /** Calls that are being handed out while the slot is kept. */
  #handing: Promise<void> | undefined;
  /** Runners that still had calls when the turn was cancelled. */
  #stopped: ReadonlySet<string> = new Set();

  constructor(services: Services, speaker: Speaker, claimed: TurnStart, slot: TurnSlot) {
    this.#services = services;
    this.clock = services.clock;
    this.#speaker = speaker;
    const { agent, turn } = speaker;
    const { head, epoch, settings } = claimed;
    this.#start = { ...claimed, isAgentGone: speaker.isGone };
    // A part may have become unreadable since the turn began.
    if (turn !== undefined) this.#start = { ...this.#start, turn: this.#withNotes(turn) };
    this.#head = head;
    const model = agent.modelOf(settings.model);
    const { controller } = slot;
    const begun =
      this.#start.turn ?? newTurn(head, services.clock.now(), agentOtherThan(head.message, agent));
    const [first = teamOfTurn(begun)?.name ?? agent.name] = handedOverBy(begun);
    const stored = new TurnStore(services, this.#start, begun, () =>
      controller.abort("fenced" satisfies AbortReason),
    );
    const run = { message: head.message, turnId: begun.turnId, epoch, signal: controller.signal };
    const options = agent.optionsFor(begun.message);
    const budget = services.budgetBook.isEmpty ? undefined : new TurnBudget(services, agent, run);
    const memories = agent.hasMemory ? new TurnMemories(services, agent, stored) : undefined;
    const starter = services.agents.get(first) ?? agent;
    this.#run = { ...slot, agent, first: starter, model, options, stored, budget, memories };
    this.#stored = stored;
    this.facts = new TurnFacts(services, this.#run, this.#start);
    this.#worker = new WorkerSteps(services, this.#run);
    this.#steps = new ModelSteps(stored, this.#worker);
    this.#driver = new TurnDriver(stored, this, this.#steps);
    this.#reply = new TurnReply(services, this.#run);
  }

  /** `givenUp`: why the message is given up instead of being answered; undefined: it is answered. */
  async run(givenUp: string | undefined): Promise<TurnEnd> {
    // Nothing is asked on the card of a message that is given up, maybe because a question cannot be read.
    if (givenUp === undefined) {
      const [zone] = await Promise.all([
        zoneOf(this.#services, this.#head.message),
        this.#stored.readAsks(),
      ]);
      this.#run.zone = zone;
    }
    this.#reply.open(this.#start.epoch);
    try {
      const end = await this.#runSteps(givenUp).catch(async (error: unknown) => {
        const mayPass =
          error instanceof DecidersUnknownError || error instanceof FilesUnreadableError;
        if (mayPass) return await this.#postpone(error);
        throw error;
      });
      if (end.end === "suspended" || end.end === "postponed") this.#reply.pause();
      return end;
    } finally {
      this.#hold?.end("stopped");
      void this.#reply.release();
    }
  }

  async #runSteps(givenUp: string | undefined): Promise<TurnEnd> {
    const first = givenUp === undefined ? await this.#begin() : this.#abandon(givenUp);
    const end = await this.#driver.run(first);
    return end.end === "finished" ? await this.#finish(end.reply, end.reason) : end;
  }

  /** The first decision of this run: of a new turn, or of one that another run has left. */
  async #begin(): Promise<Transition | Left> {
    const { turn, control } = this.#start;
    if (turn !== undefined) {
      return control.length > 0 ? await this.#resume(control) : resumeTurn(turn, this.facts.now());
    }
    await this.#prepare();
    const reason = this.abortReason();
    // What could not be fetched only because this process stops must not be stored as lost: nothing is saved.
    if (reason === "fenced") return { end: "fenced" };
    if (reason === "shutdown") return await this.#handOff();
    const first = await this.#driver.decide(() => this.#firstTransition());
    first.events.push(...expiringSoon(this.#services, this.#start));
    // Followers may hold deltas of a run that died before it saved anything.
    if (first.next.do === "model" && this.#hasStarted(first.turn)) {
      first.events.push(stepRestart(first.turn.steps, this.facts.now().model, "crash"));
    }
    if (control.length === 0) return first;
    if (first.next.do === "finish") return first; // a command that is done at once cannot be cancelled any more
    await this.#driver.take(first);
    return await this.#driver.applyEntries(control);
  }

  /** The message is given up: its turn ends with a note that says so. */
  #abandon(reason: string): Transition {
    const { turn, damaged } = this.#start;
    // A checkpoint that cannot be read was written together with the message, which is in the history by then.
    const begun =
      turn ??
      (damaged === undefined ? this.#head : newTurn(this.#head, this.#services.clock.now()));
    return abandonTurn(begun, this.facts.now(), `given up: ${reason}`);
  }

  /** Fetches what the message refers to, and what was said in the group before it. */
  async #prepare(): Promise<void> {
    const { message } = this.#head;
    if (message.command !== undefined) return; // no model sees it
    const { preparer } = this.#services;
    const { signal } = this.#run.controller;
    const { history } = this.#start;
    const { groupContext: most } = this.#run.agent.config;
    const overheard =
      most === 0 ? undefined : preparer.overheard(message, { most, history }, signal);
    let prepared = message;
    if (!isPlain(message)) {
      prepared = await preparer.prepare(
        history.length === 0 ? message : withoutThreadRoot(message),
        signal,
      );
    }
    this.#overheard = await overheard;
    const authors = new Set(this.#overheard?.flatMap(({ sender }) => sender ?? []));
    if (authors.size > 0) await this.#services.store.noteAuthors(message.session, [...authors]);
    const isShown = prepared.reply.channel !== "none";
    this.#head = {
      ...this.#head,
      message: isShown ? { ...prepared, seq: this.#head.seq } : prepared,
    };
  }

  #firstTransition(): Transition {
    const { agent, model } = this.#run;
    const { othersWait, history } = this.#start;
    const { message } = this.#head;
    const { known, texts } = this.facts.now();
    const command =
      message.command === undefined ? undefined : commandTurn(this.#head, this.commandFacts());
    const first =
      command ??
      refusalOf(this.#services, this.#speaker, this.#head) ??
      startTurn({
        head: this.#head,
        nowMs: this.#services.clock.now(),
        model: model.model,
        othersWait,
        history,
        abilities: allAbilities,
        agent: agentOtherThan(message, agent),
        known,
        texts,
        overheard: this.#overheard,
      });
    const { revision } = this.#services;
    return {
      ...first,
      turn: this.#withNotes(revision === 0 ? first.turn : atRevision(first.turn, revision)),
    };
  }

  #withNotes(turn: TurnState): TurnState {
    const { agent, isRefused, notes } = this.#speaker;
    return withNotes(turn, unreadableIn(this.#start), agent.speech.texts, isRefused ? [] : notes);
  }

  commandFacts(): CommandFacts {
    const { agent, model } = this.#run;
    return commandFactsOf(this.#services, {
      agent,
      model: model.name,
      start: this.#start,
      mayUse: this.facts.mayUse,
    });
  }

  /** Whether a worker that died has published something of the next model step. */
  #hasStarted({ steps }: TurnState): boolean {
    return this.#start.published?.has(`turn_start ${steps + 1}`) === true;
  }

  /**
   * Entries woke a suspended turn. The worker that suspended it may have died before it handed out all
   * calls, so those still open are handed out again; the queue leaves alone those that wait, run, or have just been answered.
   */
  async #resume(control: readonly ControlEntry[]): Promise<Transition> {
    const inStep = this.#stored.turn.calls.length === 0;
    const decided = await this.#driver.applyEntries(control);
    // The worker that died may have applied the same entries, and published deltas of the step that follows.
    if (decided.next.do === "model" && (inStep || this.#hasStarted(decided.turn))) {
      decided.events.push(stepRestart(decided.turn.steps, this.facts.now().model, "crash"));
    }
    if (decided.next.do !== "wait" && decided.next.do !== "tools") return decided;
    return { ...decided, next: resumeTurn(decided.turn, this.facts.now()).next };
  }

  taking(transition: Transition): Transition {
    const { next, asked = [] } = transition;
    const { calls } = this.#stored.turn;
    if (next.do !== "wait") this.#hold?.end("answered");
    if (next.do === "model") this.#handing = undefined; // every call has its outcome
    if (next.do === "finish") {
      this.#reply.freeze();
      this.#dropped = calls.filter(
        (call) => waitsForPeople(call) && !this.#settled.has(call.approvalId),
      );
      if (next.reason === "cancelled") this.#stopped = new Set(calls.flatMap(runnerAtWork));
    }
    // What the policy has decided about a new step.
    if (calls.length === 0) this.#run.watch.decided(transition.turn.calls);
    return asked.length === 0
      ? transition
      : { ...transition, asked: this.#reply.withPlaces(asked) };
  }

  taken({ handedOver }: Transition): void {
    if (handedOver === true) this.#handOver();
    this.#reply.changed();
  }

  /** Another agent answers from now on. */
  #handOver(): void {
    const { turn } = this.#stored;
    const team = teamOfTurn(turn);
    const name = team?.choosing === true ? team.name : agentOfTurn(turn);
    const agent = this.#services.agents.get(name) ?? this.#run.agent; // one that the decision knew
    this.#run.agent = agent;
    if (this.#run.budget !== undefined) this.#run.budget.agent = agent;
    this.#run.memories = agent.hasMemory
      ? new TurnMemories(this.#services, agent, this.#stored)
      : undefined;
    this.#run.model = agent.modelOf(this.#start.settings.model);
    this.#run.options = agent.optionsFor(turn.message);
  }

  insteadOf(next: Transition["next"]): Transition | undefined {
    return pausedEnd(this.#services, this.#run, next);
  }

  /** A team that answers itself had a member that is not configured any more. */
  get isTeam(): boolean {
    return this.#run.agent.config.team !== null;
  }

  async chooseSpeaker(
    overBudget: () => Promise<Transition | undefined>,
  ): Promise<Transition | undefined> {
    const facts = await this.#driver.withFacts(teamFactsIn);
    const { turn } = this.#stored;
    // Its team is not configured any more: its member answers alone.
    if (facts === undefined) return { turn, history: [], events: [], next: { do: "model" } };
    return teamOfTurn(turn)?.choosing === true
      ? await this.#worker.chooseSpeaker(this.#steps, facts, overBudget)
      : continueTeam(turn, facts);
  }

  async countStep(): Promise<Transition | Left | undefined> {
    const { turn } = this.#stored;
    return await withoutSteps(
      this.#services,
      { turn, epoch: this.#start.epoch },
      this.#run.first.limits,
    );
  }

  async overBudget(): Promise<Transition | undefined> {
    return await this.#run.budget?.before(this.#stored.turn);
  }

  async isSuperseded(): Promise<boolean> {
    if (this.#run.agent.config.busy !== "interrupt") return false;
    return await isSuperseded(this.#services, this.#stored.turn.message);
  }

  async messagesToJoin(): Promise<readonly QueuedMessage[]> {
    if (this.#run.agent.config.busy !== "steer") return [];
    return await messagesToJoin(this.#services, this.#stored.turn.message);
  }

  /** It gets no answer of its own: what was shown on it has to go now. */
  joined({ seq, message }: QueuedMessage): void {
    const { session } = this.#start;
    this.#services.runningTurns.join(session, this.#run.controller, turnIdOf(session, seq));
    this.#run.watch.joined(message);
    takeBackReaction(this.#services, message, "queued");
    takeBackReaction(this.#services, message, "typing");
  }

  async answered(step: StepResult): Promise<void> {
    this.#failure = step.failure;
    this.#answeredBy = step.model;
    await this.#noteKept(step);
  }

  /**
   * Notes for whom an answer is kept, before a client can read its id. Without the note the answer cannot be continued.
   */
  async #noteKept({ responseId }: StepResult): Promise<void> {
    const { message, turnId } = this.#stored.turn;
    if (
      responseId === undefined ||
      this.#run.options.request.storeResponses !== true ||
      message.app !== apiApp
    ) {
      return;
    }
    const { clock, lookups, log, settings } = this.#services;
    const { conversationDays } = settings.retention;
    const kept = {
      responseId,
      caller: message.sender.id,
      session: message.session,
      atMs: clock.now(),
      conversationMs:
        conversationDays === 0 ? Number.POSITIVE_INFINITY : conversationDays * 86_400_000,
    };
    await noteKeptResponse(lookups, kept).catch((error: unknown) => {
      log.warn(
        { error, turnId },
        "for whom an answer is kept was not noted: it cannot be continued",
      );
    });
  }

  changed(event?: EngineEvent): void {
    if (event?.type === "text_delta") this.#stored.firstTextMs ??= this.#run.watch.text();
    this.#reply.changed();
  }

  /**
   * Saves the turn with these calls open, then hands them to their runners. Where slots are free the turn keeps its own
   * for a moment, and continues with outcomes that come by then; otherwise it is suspended in the same save.
   */
  async handOut(calls: readonly CallState[]): Promise<Woken> {
    await this.#handing; // what could not be handed out before, and is still open
    const hold = this.#services.turnHolds.open(this.#stored.turn, this.#run.controller.signal);
    this.#hold = hold;
    const saved = await this.#stored.save(hold === undefined ? "suspend" : "hold");
    if (saved.state === "fenced") return { end: "fenced" };
    this.#reply.saved();
    const entries = saved.state === "running" ? saved.control : [];
    const handing = this.#dispatch(calls, entries);
    if (hold === undefined || entries.length > 0) {
      hold?.end("missed");
      await handing;
      return saved.state === "running" ? { entries } : suspendedBy(saved);
    }
    // Calls of built-in tools are answered in there, and may take longer than the hold.
    this.#handing = handing;
    handing.catch(() => hold.end("dropped"));
    return await this.wait();
  }

  /** What was answered while the state was saved is not handed out again: it would run twice. */
  async #dispatch(calls: readonly CallState[], control: readonly ControlEntry[]): Promise<void> {
    const answered = new Set(
      control.map((entry) => (entry.type === "outcome" ? entry.callId : undefined)),
    );
    const open = calls.filter((call) => !answered.has(attemptOf(call)));
    this.#run.watch.handedOut(open);
    await dispatchCalls(this.#services, this.#stored.turn, open);
  }

  /** Keeps the slot while that may pay, and then frees it, unless there are unread entries. */
  async wait(): Promise<Woken> {
    if (!mayHold(this.#stored.turn)) this.#hold?.end("dropped");
    const entries = await this.#hold?.next();
    if (entries !== undefined) return { entries };
    const saved = await this.#stored.save("suspend");
    if (saved.state === "fenced") return { end: "fenced" };
    if (saved.state === "running") return { entries: saved.control };
    await this.#handing;
    return suspendedBy(saved);
  }

  async stopCalls(): Promise<void> {
    this.#hold?.end("dropped");
    await this.#handing;
    await stopCallsOf(this.#services, this.#stored.turn);
  }

  async readEntries(control: readonly ControlEntry[]): Promise<ReadEntries> {
    const { turn } = this.#stored;
    const read = await readEntries(this.#services, this.#run.agent, turn, control); // before they count as read: it may reject
    await noteUnanswered(this.#services, turn.message, control);
    this.#stored.consume(control);
    this.#settled = new Set(
      control.map((entry) => (entry.type === "decision" ? entry.approvalId : undefined)),
    );
    return read;
  }

  abortReason(): AbortReason | undefined {
    const { signal } = this.#run.controller;
    return signal.aborted ? (signal.reason as AbortReason) : undefined; // only our own code aborts it
  }

  /**
   * Whether a decision counts, or what is in a file, cannot be known now: the session is given back with what has come for
   * it unread, and its job comes later. That counts neither as an error nor as a death.
   */
  async #postpone(reason: Error): Promise<TurnEnd> {
    const { session } = this.#start;
    this.#services.log.warn(
      { session, turnId: this.#stored.turn.turnId, error: reason },
      "a turn waits for a look-up",
    );
    this.#hold?.end("dropped");
    await Promise.allSettled([this.#handing]); // which may have failed in the same way
    const saved = await this.#stored.save("handoff");
    return { end: saved.state === "fenced" ? "fenced" : "postponed" };
  }

  /**
   * Gives the turn back before anything is saved: the next worker begins anew, and this run counts neither as an error
   * nor as a death.
   */
  async #handOff(): Promise<Left> {
    const { session, epoch } = this.#start;
    return { end: (await this.#services.store.handOff(session, epoch)) ? "handoff" : "fenced" };
  }

  /** Commits the turn with its answer. The card is closed by the delivery of that answer. */
  async #finish(text: string | undefined, reason: string): Promise<TurnEnd> {
    const { turn } = this.#stored;
    const { isLast, shutdown } = this.#run;
    const outbox = this.#reply.outboxRecord(text, reason, this.#answeredBy);
    const ending = { seq: this.#start.head.seq, more: !isLast && !shutdown.aborted };
    const result = await this.#stored.commit(outbox === undefined ? ending : { ...ending, outbox });
    if (result.state === "fenced") return { end: "fenced" };
    if (this.#dropped.length > 0) dropAsks(this.#services, turn, this.#dropped);
    const cancel = { session: turn.message.session, turnId: turn.turnId };
    for (const runner of this.#stopped) void stopCalls(this.#services, runner, cancel);
    const settings = this.#stored.settings ?? this.#start.settings;
    const { history, totals, firstTextMs } = this.#stored;
    // Writes to the card must end before the delivery of the answer begins.
    const released = this.#reply.release();
    const failure = this.#failure === undefined ? {} : { failure: this.#failure };
    const run = {
      turn,
      model: this.#answeredBy ?? "",
      firstTextMs,
      version: this.#run.agent.version,
    };
    return {
      end: "committed",
      result,
      reason,
      history,
      settings,
      totals,
      released,
      ...failure,
      run,
    };
  }
}

/** Whether the text of a message is all that a model has to know of it, as of most. */
function isPlain({ references, parts, chatType, sender }: InboundMessage): boolean {
  const isKnown = chatType !== "group" || sender.name !== undefined;
  return references === undefined && isKnown && parts.every(({ type }) => type === "text");
}

function suspendedBy({ wakeGen }: Extract<SaveResult, { state: "suspended" }>): Left {
  return { end: "suspended", ...(wakeGen === undefined ? {} : { wakeGen }) };
}
