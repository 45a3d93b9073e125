import {
  abandonTurn,
  allAbilities,
  absorb,
  afterControl,
  afterStep,
  attemptOf,
  commandDone,
  commandTurn,
  atRevision,
  handedOverBy,
  newTurn,
  offeredSpecs,
  resumeTurn,
  startTurn,
  stepRestart,
  withNotes,
  teamFactsIn,
  continueTeam,
  type CommandFacts,
  type StepResult,
  type Transition,
  type UserMessage,
} from "@larkline/agent";
import {
  teamOfTurn,
  agentOfTurn,
  apiApp,
  turnIdOf,
  type CallState,
  type CancelReason,
  type ControlEntry,
  type EngineEvent,
  type InboundMessage,
  type ModelFailure,
  type ModelRetry,
  type QueuedMessage,
  type ToolSpec,
  type TurnState,
  iterationsOf,
} from "@larkline/protocol";
import { noteKeptResponse, type SaveResult } from "@larkline/store";
import type { Agent, ChosenModel } from "./agent.ts";
import { type Speaker, agentOtherThan, commandFactsOf, pausedEnd, refusalOf } from "./agents.ts";
import { checkEntries, DecidersUnknownError, dropAsks, waitsForPeople } from "./approvals.ts";
import { withoutSteps } from "./helpers.ts";
import { TurnMemories } from "./memories.ts";
import { FilesUnreadableError, ModelSteps } from "./model-step.ts";
import { messagesToJoin, supersedes, waitingAtOnce, withoutThreadRoot } from "./prepare.ts";
import type { TurnEnd, TurnSlot, RunningTurn } from "./running-turn.ts";
import type { AbortReason } from "./running-turns.ts";
import { zoneOf } from "./schedules.ts";
import type { Services } from "./services.ts";
import { dispatchCalls, keepLargeResults, runnerAtWork, stopCalls, stopCallsOf } from "./tools.ts";
import { TurnBudget } from "./turn-budget.ts";
import { TurnFacts } from "./turn-facts.ts";
import { mayHold, type Hold } from "./turn-holds.ts";
import { expiringSoon, unreadableIn, TurnStore, type TurnStart } from "./turn-output.ts";
import { takeBackReaction, TurnReply } from "./turn-reply.ts";

/**
 * Runs one turn under one claim: decide (pure), save, then act. Model deltas are published and
 * typed on a card in between; everything that matters after a crash goes through `save` and `commit`. What calls have
 * answered stays in the control list until the next save.
 */
export class TurnRun {
  readonly #services: Services;
  readonly #start: TurnStart;
  readonly #run: RunningTurn;
  readonly #stored: TurnStore;
  readonly #steps: ModelSteps;
  readonly #reply: TurnReply;
  readonly #facts: TurnFacts;
  readonly #speaker: Speaker;
  #head: QueuedMessage;
  /** What was said in the group before; undefined where the agent does not read along. */
  #overheard: UserMessage[] | undefined;
  /** Of the last step. */
  #failure: ModelFailure | undefined;
  /** Id of the model that gave the last step: a fallback may have. */
  #answeredBy: string | undefined;
  /** Questions to people that the last decision was about. */
  #settled: ReadonlySet<string | undefined> = new Set();
  /** Calls that waited for people when the turn ended. */
  #dropped: CallState[] = [];
  /** While this turn keeps its slot for the calls that it has handed out. */
  #hold: Hold | undefined;
  /** Calls that are being handed out while the slot is kept. */
  #handing: Promise<void> | undefined;
  /** Runners that still had calls when the turn was cancelled. */
  #stopped: ReadonlySet<string> = new Set();

  constructor(services: Services, speaker: Speaker, claimed: TurnStart, slot: TurnSlot) {
    this.#services = services;
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
    const budget = new TurnBudget(services, agent, run);
    const memories = agent.hasMemory ? new TurnMemories(services, agent, stored) : undefined;
    const starter = services.agents.get(first) ?? agent;
    this.#run = { ...slot, agent, first: starter, model, options, stored, budget, memories };
    this.#stored = stored;
    this.#facts = new TurnFacts(services, this.#run, this.#start);
    this.#steps = new ModelSteps(services, this.#run);
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
    const begun = givenUp === undefined ? await this.#begin() : this.#abandon(givenUp);
    if ("end" in begun) return begun;
    let transition = begun;
    for (;;) {
      this.#take(transition);
      const { next } = transition;
      if (next.do === "finish") return await this.#finish(next.reply, next.reason);
      // Before it asks the model, the turn of a helper reports to its asker that people have answered.
      const isNews =
        transition.handedOver === true || (next.do === "model" && this.#stored.waitIsOver);
      const decided = (isNews && (await this.#saveFirst())) || (await this.#act(next));
      if ("end" in decided) return decided;
      transition = decided;
    }
  }

  /** The first decision of this run: of a new turn, or of one that another run has left. */
  async #begin(): Promise<Transition | TurnEnd> {
    const { turn, control } = this.#start;
    if (turn !== undefined) {
      return control.length > 0 ? await this.#resume(control) : resumeTurn(turn, this.#facts.now());
    }
    await this.#prepare();
    const reason = this.#abortReason();
    // What could not be fetched only because this process stops must not be stored as lost: nothing is saved.
    if (reason === "fenced") return { end: "fenced" };
    if (reason === "shutdown") return await this.#handOff();
    const first = await this.#facts.decide(() =>
      this.#firstTransition(this.#run.agent, this.#run.model),
    );
    first.events.push(...expiringSoon(this.#services, this.#start));
    // Followers may hold deltas of a run that died before it saved anything.
    if (first.next.do === "model" && this.#hasStarted(first.turn)) {
      first.events.push(stepRestart(first.turn.steps, this.#facts.now().model, "crash"));
    }
    if (control.length === 0) return first;
    if (first.next.do === "finish") return first; // a command that is done at once cannot be cancelled any more
    this.#take(first);
    return await this.#applyControlEntries(control);
  }

  /** The message is given up: its turn ends with a note that says so. */
  #abandon(reason: string): Transition {
    const { turn, damaged } = this.#start;
    // A checkpoint that cannot be read was written together with the message, which is in the history by then.
    const begun =
      turn ??
      (damaged === undefined ? this.#head : newTurn(this.#head, this.#services.clock.now()));
    return abandonTurn(begun, this.#facts.now(), `given up: ${reason}`);
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

  #firstTransition(agent: Agent, { name, model }: ChosenModel): Transition {
    const { othersWait, history } = this.#start;
    const { message } = this.#head;
    const { known, texts } = this.#facts.now();
    const command =
      message.command === undefined
        ? undefined
        : commandTurn(this.#head, this.#commandFacts(agent, name));
    const first =
      command ??
      refusalOf(this.#services, this.#speaker, this.#head) ??
      startTurn({
        head: this.#head,
        nowMs: this.#services.clock.now(),
        model,
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

  #commandFacts(agent: Agent, model: string): CommandFacts {
    return commandFactsOf(this.#services, {
      agent,
      model,
      start: this.#start,
      mayUse: this.#facts.mayUse,
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
    const decided = await this.#applyControlEntries(control);
    // The worker that died may have applied the same entries, and published deltas of the step that follows.
    if (decided.next.do === "model" && (inStep || this.#hasStarted(decided.turn))) {
      decided.events.push(stepRestart(decided.turn.steps, this.#facts.now().model, "crash"));
    }
    if (decided.next.do !== "wait" && decided.next.do !== "tools") return decided;
    return { ...decided, next: resumeTurn(decided.turn, this.#facts.now()).next };
  }

  /** Takes over a decision, which the next write stores. */
  #take(transition: Transition): void {
    if (transition.next.do === "finish") {
      this.#reply.freeze();
      const { calls } = this.#stored.turn;
      this.#dropped = calls.filter(
        (call) => waitsForPeople(call) && !this.#settled.has(call.approvalId),
      );
      if (transition.next.reason === "cancelled") {
        this.#stopped = new Set(calls.flatMap(runnerAtWork));
      }
    }
    this.#stored.live = undefined;
    const { asked = [] } = transition;
    this.#stored.take(
      asked.length === 0 ? transition : { ...transition, asked: this.#reply.withPlaces(asked) },
    );
    if (transition.context !== undefined) this.#steps.contextChanged();
    if (transition.handedOver === true) this.#handOver();
    this.#reply.changed();
  }

  /** Another agent answers from now on. */
  #handOver(): void {
    const { turn } = this.#stored;
    const team = teamOfTurn(turn);
    const name = team?.choosing === true ? team.name : agentOfTurn(turn);
    const agent = this.#services.agents.get(name) ?? this.#run.agent; // one that the decision knew
    this.#run.agent = this.#run.budget.agent = agent;
    this.#run.memories = agent.hasMemory
      ? new TurnMemories(this.#services, agent, this.#stored)
      : undefined;
    this.#run.model = agent.modelOf(this.#start.settings.model);
    this.#run.options = agent.optionsFor(turn.message);
    this.#steps.contextChanged();
  }

  /** Stores changes before a model is asked; returns what happened meanwhile, if anything. */
  async #saveFirst(): Promise<Transition | TurnEnd | undefined> {
    const saved = await this.#stored.save("continue");
    if (saved.state === "fenced") return { end: "fenced" };
    const { state } = saved;
    return state === "running" && saved.control.length > 0
      ? await this.#applyControlEntries(saved.control)
      : undefined;
  }

  /** Carries out a decision, and returns the next one. */
  async #act(next: Exclude<Transition["next"], { do: "finish" }>): Promise<Transition | TurnEnd> {
    const paused = pausedEnd(this.#services, this.#run, next);
    if (paused !== undefined) return paused;
    switch (next.do) {
      case "model":
        this.#handing = undefined; // every call has its outcome
        // A team that answers itself had a member that is not configured any more.
        return this.#run.agent.config.team === null
          ? await this.#modelStep()
          : await this.#chooseSpeaker();
      case "tools":
        return await this.#handOut(next.calls);
      case "stop":
        this.#hold?.end("dropped");
        await this.#handing;
        // Before the save that marks the cancel as read: after a crash in between, the next run cancels them again.
        await stopCallsOf(this.#services, this.#stored.turn);
        return await this.#suspend();
      case "wait":
        return (await this.#applyHeldEntries()) ?? (await this.#suspend());
      case "compact":
        return await this.#compactOnDemand();
      case "choose":
        return await this.#chooseSpeaker();
    }
  }

  /** The next member of a team answers. */
  async #chooseSpeaker(): Promise<Transition | TurnEnd> {
    for (;;) {
      const facts = teamFactsIn(this.#facts.now());
      if (await this.#facts.supply()) continue;
      const { turn } = this.#stored;
      // Its team is not configured any more: its member answers alone.
      if (facts === undefined) return { turn, history: [], events: [], next: { do: "model" } };
      if (teamOfTurn(turn)?.choosing !== true) return continueTeam(turn, facts);
      const chosen = await this.#steps.chooseSpeaker(facts, async () => await this.#overBudget());
      return chosen ?? (await this.#brokenOff());
    }
  }

  /** A model step, with what has to come before it: waiting messages that join in, a shorter context. */
  async #modelStep(): Promise<Transition | TurnEnd> {
    const { turn } = this.#stored;
    // A turn whose step waits for its retry time was woken by something else.
    if (turn.putOff !== undefined && turn.putOff.atMs > this.#services.clock.now()) {
      return { turn, history: [], events: [], next: { do: "wait" } };
    }
    // What makes it ready may have cost something itself.
    const instead =
      (await this.#makeReady()) ??
      (await this.#overBudget()) ??
      (turn.message.task === undefined
        ? undefined
        : await withoutSteps(
            this.#services,
            { turn, epoch: this.#start.epoch },
            this.#run.first.limits,
          ));
    if (instead !== undefined) return instead;
    this.#stored.live = { text: "", thinking: "" };
    const step = await this.#askModel();
    if (step === undefined) return await this.#brokenOff();
    if (step.failure?.code === "context_overflow") {
      const shortened = await this.#steps.afterOverflow();
      if (shortened !== undefined) {
        const restart = stepRestart(
          shortened.turn.steps,
          this.#facts.now().model,
          step.failure.code,
        );
        return step.failure.partial
          ? { ...shortened, events: [restart, ...shortened.events] }
          : shortened;
      }
      if (this.#abortReason() !== undefined) return await this.#brokenOff();
    }
    this.#failure = step.failure;
    this.#steps.used(step.usage);
    this.#answeredBy = step.model;
    const decided = await this.#facts.decide((env) => afterStep(this.#stored.turn, step, env));
    this.#run.watch.decided(decided.turn.calls);
    return decided;
  }

  /** Undefined when the model can start; otherwise the event that comes first. */
  async #makeReady(): Promise<Transition | TurnEnd | undefined> {
    // A turn that waited for its own start was not there to be stopped by the message after it.
    if (this.#run.agent.config.busy === "interrupt" && (await this.#isSuperseded())) {
      return await this.#cancel("superseded");
    }
    const refused = await this.#overBudget();
    if (refused !== undefined) return refused;
    const joined = await this.#absorbWaiting();
    const cut = await this.#steps.whenFull();
    if (cut !== undefined) this.#take(cut);
    return joined || cut?.context !== undefined ? await this.#saveFirst() : undefined;
  }

  /** The end of the turn when a budget is spent; undefined when a model may be called. */
  async #overBudget(): Promise<Transition | undefined> {
    const transition = await this.#run.budget.before(this.#stored.turn);
    if (transition === undefined || transition.next.do === "finish") return transition;
    this.#take(transition);
    return undefined;
  }

  /** Whether a later message takes this one back. */
  async #isSuperseded(): Promise<boolean> {
    const { message } = this.#stored.turn;
    const waiting = await this.#services.store.waiting(message.session, waitingAtOnce);
    return waiting.some((later) => supersedes(later.message, message));
  }

  /** Takes waiting messages into the turn where the agent is steered by them; false when none has joined. */
  async #absorbWaiting(): Promise<boolean> {
    const { turn } = this.#stored;
    if (this.#run.agent.config.busy !== "steer" || turn.steps === 0) return false;
    const waiting = await messagesToJoin(this.#services, turn.message);
    const transition = await this.#facts.decide((env) => absorb(turn, waiting, env));
    const joined = transition.absorbed?.length ?? 0;
    if (joined === 0) return false;
    this.#take(transition);
    for (const message of waiting.slice(0, joined)) this.#joined(message);
    return true;
  }

  /** A message has become part of the turn. It gets no answer of its own: what was shown on it has to go now. */
  #joined({ seq, message }: QueuedMessage): void {
    const { session } = this.#start;
    this.#services.runningTurns.join(session, this.#run.controller, turnIdOf(session, seq));
    this.#run.watch.joined(message);
    takeBackReaction(this.#services, message, "queued");
    takeBackReaction(this.#services, message, "typing");
  }

  /** Undefined when the step was broken off. */
  async #askModel(): Promise<StepResult | undefined> {
    const { turn } = this.#stored;
    const maxPauses = this.#facts.now().limits.maxIterations - iterationsOf(turn) - 1;
    const offered = { tools: await this.#offered(), maxPauses };
    const result = await this.#steps.answer(offered, {
      onEvent: (event) => this.#streamed(event),
      onRetry: (retry) => this.#retried(retry),
    });
    if (result.brokenOff !== true) {
      await this.#noteKept(result);
      return result;
    }
    this.#stored.live = { text: "", thinking: "", ...this.#stored.live, broken: result };
    return undefined;
  }

  /** Before a client can read the id. A note that is lost makes an answer that cannot be continued, and no more. */
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

  async #offered(): Promise<ToolSpec[]> {
    for (;;) {
      const specs = offeredSpecs(this.#stored.turn, this.#facts.now());
      if (!(await this.#facts.supply())) return specs;
    }
  }

  /** What the card says until the model answers. */
  #retried({ code, attempt, waitMs, next }: ModelRetry): void {
    const { live } = this.#stored;
    if (live === undefined) return;
    live.retry = { code, tries: attempt, atMs: this.#services.clock.now() + waitMs, next };
    this.#reply.changed();
  }

  #streamed(event: EngineEvent): void {
    this.#stored.publish(event);
    const { live } = this.#stored;
    if (live === undefined) return;
    if (event.type === "text_delta" || event.type === "thinking_delta") live.retry = undefined;
    if (event.type === "text_delta") {
      live.text += event.text;
      this.#stored.firstTextMs ??= this.#run.watch.text();
    } else if (event.type === "thinking_delta") live.thinking += event.text;
    else if (event.type === "step_restarted") this.#stored.live = { text: "", thinking: "" };
    else return;
    this.#reply.changed();
  }

  /** A person has asked for a shorter context. */
  async #compactOnDemand(): Promise<Transition | TurnEnd> {
    const { agent, model } = this.#run;
    const facts = this.#commandFacts(agent, model.name);
    const plan = this.#steps.plan(true);
    if (plan === undefined) return commandDone(this.#stored.turn, undefined, facts);
    const refused = await this.#overBudget();
    if (refused !== undefined) return refused;
    const { turn } = this.#stored; // with the note about the budget, if there is one
    const summary = await this.#steps.summarise(plan);
    if (summary === undefined) return await this.#brokenOff();
    if (summary.failure !== undefined) {
      return await this.#facts.decide((env) => afterStep(turn, summary, env));
    }
    const compacted = this.#steps.compacted(plan, summary);
    const done = commandDone(turn, compacted.report, facts);
    return { ...done, events: [...compacted.events, ...done.events], context: compacted.context };
  }

  /**
   * Saves the turn with these calls open, then hands them to their runners. Where slots are free the turn keeps its own
   * for a moment, and continues with outcomes that come by then; otherwise it is suspended in the same save.
   */
  async #handOut(calls: readonly CallState[]): Promise<Transition | TurnEnd> {
    await this.#handing; // what could not be handed out before, and is still open
    const hold = this.#services.turnHolds.open(this.#stored.turn, this.#run.controller.signal);
    this.#hold = hold;
    const saved = await this.#stored.save(hold === undefined ? "suspend" : "hold");
    if (saved.state === "fenced") return { end: "fenced" };
    this.#reply.saved();
    const control = saved.state === "running" ? saved.control : [];
    const handing = this.#dispatch(calls, control);
    if (hold === undefined || control.length > 0) {
      hold?.end("missed");
      await handing;
      return saved.state === "running"
        ? await this.#applyControlEntries(control)
        : suspendedBy(saved);
    }
    // Calls of built-in tools are answered in there, and may take longer than the hold.
    this.#handing = handing;
    handing.catch(() => hold.end("dropped"));
    return (await this.#applyHeldEntries()) ?? (await this.#suspend());
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

  /** While the slot is kept, the decision about the next outcomes; undefined once it is not. */
  async #applyHeldEntries(): Promise<Transition | undefined> {
    if (!mayHold(this.#stored.turn)) this.#hold?.end("dropped");
    const entries = await this.#hold?.next();
    if (entries === undefined) return undefined;
    const decided = await this.#applyControlEntries(entries);
    if (decided.next.do !== "wait") this.#hold?.end("answered");
    return decided;
  }

  /** Suspends the turn and frees the slot, unless there are unread entries. */
  async #suspend(): Promise<Transition | TurnEnd> {
    const saved = await this.#stored.save("suspend");
    if (saved.state === "fenced") return { end: "fenced" };
    if (saved.state === "running") return await this.#applyControlEntries(saved.control);
    await this.#handing;
    return suspendedBy(saved);
  }

  /** The decision about outcomes, decisions of people and cancels that have come, as far as they can be believed. */
  async #applyControlEntries(control: readonly ControlEntry[]): Promise<Transition> {
    const { turn } = this.#stored;
    const checked = await checkEntries(this.#services, turn, control); // before they count as read: it may reject
    this.#stored.consume(control);
    this.#settled = new Set(
      control.map((entry) => (entry.type === "decision" ? entry.approvalId : undefined)),
    );
    const entries = await keepLargeResults(this.#services, this.#run.agent, turn, checked.entries);
    const decided = await this.#facts.decide((env) => afterControl(turn, entries, env));
    return { ...decided, events: [...checked.events, ...decided.events] };
  }

  #abortReason(): AbortReason | undefined {
    const { signal } = this.#run.controller;
    return signal.aborted ? (signal.reason as AbortReason) : undefined; // only our own code aborts it
  }

  /** The model was broken off: the turn ends, or another worker continues it. */
  async #brokenOff(): Promise<Transition | TurnEnd> {
    if (this.#abortReason() === "cancel") return await this.#cancel("cancelled");
    if (this.#abortReason() === "fenced") return { end: "fenced" };
    const saved = await this.#stored.save("handoff");
    return { end: saved.state === "fenced" ? "fenced" : "handoff" };
  }

  /** Ends the turn; an entry of the session that says why it is cancelled counts before `reason`. */
  async #cancel(reason: CancelReason): Promise<Transition> {
    const saved = await this.#stored.save("continue");
    const control = saved.state === "running" ? saved.control : [];
    const { turn } = this.#stored;
    const cancel: ControlEntry = { type: "cancel", turnId: turn.turnId, reason };
    this.#stored.consume(control);
    const { entries } = await checkEntries(this.#services, turn, control);
    return await this.#facts.decide((env) =>
      afterControl(this.#stored.turn, [...entries, cancel], env),
    );
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

  /** Before anything is saved: the next worker begins anew, and this run counts neither as an error nor as a death. */
  async #handOff(): Promise<TurnEnd> {
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

function suspendedBy({ wakeGen }: Extract<SaveResult, { state: "suspended" }>): TurnEnd {
  return { end: "suspended", ...(wakeGen === undefined ? {} : { wakeGen }) };
}
