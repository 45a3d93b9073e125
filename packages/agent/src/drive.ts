import type { CancelReason, ControlEntry, QueuedMessage } from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import type { Message } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ModelRetry } from "@larkline/protocol/model-stream";
import type { ToolSpec } from "@larkline/protocol/tool";
import { iterationsOf, type CallState, type TurnState } from "@larkline/protocol/turn";
import type { Awaitable, ModelSteps, StepContext } from "./model-steps.ts";
import type { TurnEnvironment } from "./turn/ability.ts";
import { absorb, afterStep, afterControl, offeredSpecs, resumeTurn } from "./turn/turn.ts";
import { commandDone, type CommandFacts } from "./turn/commands.ts";
import { compactedTransition, summaryIn } from "./turn/context.ts";
import { timeThinking } from "./turn/view.ts";
import type { LiveStep, NextAction, StepResult, Transition } from "./turn/facts.ts";
import { sessionTitleOf } from "./turn/messages.ts";

export { chosenModel, ModelSteps } from "./model-steps.ts";
export type { ChosenModel, Speaker, StepHost, StepPurpose } from "./model-steps.ts";

/*
 * The driver of turns: decide, save, act. The decisions are the pure functions of turn/turn.ts. What they decide about
 * is in a log, and what follows from them is done by a host, so that one loop runs turns in a worker, whose log is in
 * Redis, and in a program that embeds the engine, whose log is in memory.
 */

/** What is kept of a turn while it runs. */
export interface TurnLog extends StepContext {
  /** The model step that streams right now. */
  live: LiveStep | undefined;
  /** Takes over a decision, which is stored with the next write at the latest. */
  take(transition: Transition): Awaitable<void>;
  /** Publishes what happens between writes. A promise is waited for: followers are far behind. */
  publish(event: EngineEvent): Awaitable<void>;
  /** Stores what was taken over. `handoff`: another process continues the turn. */
  save(how: "continue" | "handoff"): Awaitable<Saved>;
  /** Whether people have answered a helper, and its asker does not know yet. */
  readonly waitIsOver?: boolean;
}

/** `control`: entries that no decision was about yet. */
export type Saved =
  | { state: "fenced" }
  | { state: "suspended"; wakeGen?: number }
  | { state: "running"; control: readonly ControlEntry[] };

/** Why a model step was broken off: `fenced`, another worker runs the turn; `shutdown`, this process stops. */
export type AbortReason = "cancel" | "shutdown" | "fenced";

/** The turn does not continue here. `wakeGen`: the session was released and needs this wake-up. */
export type Left = { end: "fenced" } | { end: "suspended"; wakeGen?: number } | { end: "handoff" };

/** How driving a turn ends. A finished turn is still to be committed with its answer. */
export type DriveEnd = Left | { end: "finished"; reply: string | undefined; reason: string };

/** A turn that has waited continues with these entries, or with none where its own time has come. */
export type Woken = { entries: readonly ControlEntry[] } | Left;

/** The facts that decisions are made of. */
export interface Facts {
  /** The facts of this moment. The object may be the same each time. */
  now(): TurnEnvironment;
  /** A new decision begins: facts that may have changed are looked up again. */
  renew?(): void;
  /** Fetches what decisions have missed since the last call; undefined or false when that was nothing. */
  supply?(): Promise<boolean> | undefined;
}

/** Entries that can be believed. `events`: what checking them has brought to light. */
export interface ReadEntries {
  entries: readonly ControlEntry[];
  events: readonly EngineEvent[];
}

/** What the process that runs a turn does for it. */
export interface TurnHost {
  readonly clock: Clock;
  readonly facts: Facts;
  commandFacts(): CommandFacts;
  /** Why the turn is broken off; undefined while the signal is not aborted. */
  abortReason(): AbortReason | undefined;
  /** The end of the turn when a budget is spent, or a warning that one is nearly spent. */
  overBudget(): Awaitable<Transition | undefined>;
  /** Waiting messages that may join the turn, where its agent is steered by them. */
  messagesToJoin(): Awaitable<readonly QueuedMessage[]>;
  /** Saves the turn, then starts these calls, then waits as {@link wait} does. */
  handOut(calls: readonly CallState[]): Promise<Woken>;
  /** Waits for entries as long as the turn may stay here, then leaves it to the next wake-up. */
  wait(): Promise<Woken>;
  /** Checks entries that the next decision is about; the next write removes them. */
  readEntries(control: readonly ControlEntry[]): Awaitable<ReadEntries>;
  /** Called before a decision is taken over; returns what is taken over. */
  taking?(transition: Transition): Transition;
  /** Called after a decision was taken over. */
  taken?(transition: Transition): void;
  /** A message has become part of the turn. */
  joined?(message: QueuedMessage): void;
  /** What people see of the turn has changed; `event`: by this event of the model step. */
  changed?(event?: EngineEvent): void;
  /** Called with a step whose end counts, before the decision about it. */
  answered?(step: StepResult): Promise<void>;
  /** Returns the transition that replaces an action, for example when the agent is paused; undefined: the action is taken. */
  insteadOf?(next: NextAction): Transition | undefined;
  /** Whether a later message takes this one back. */
  isSuperseded?(): Promise<boolean>;
  /** Counts the model step that is about to begin; its turn may have none left. */
  countStep?(): Promise<Transition | Left | undefined>;
  /** Stops these calls, which end before the turn does. May be repeated. */
  stopCalls?(calls: readonly CallState[]): Promise<void>;
  /** Whether a team answers, one of whose members is to be chosen first. */
  readonly isTeam?: boolean;
  /** Makes the next member of a team answer; undefined when the request for it was broken off. */
  chooseSpeaker?(
    overBudget: () => Promise<Transition | undefined>,
  ): Promise<Transition | undefined>;
}

/** Drives one turn, from its first decision to its end or until it is left to another process. */
export class TurnDriver {
  readonly #log: TurnLog;
  readonly #host: TurnHost;
  readonly #steps: ModelSteps;

  constructor(log: TurnLog, host: TurnHost, steps: ModelSteps) {
    this.#log = log;
    this.#host = host;
    this.#steps = steps;
  }

  async run(first: Transition | Left): Promise<DriveEnd> {
    let decided = first;
    while (!("end" in decided)) {
      await this.take(decided);
      const { next } = decided;
      if (next.do === "finish") {
        return { end: "finished", reply: next.reply, reason: next.reason };
      }
      // Before it asks the model, the turn of a helper reports to its asker that people have answered.
      const isNews =
        decided.handedOver === true || (next.do === "model" && this.#log.waitIsOver === true);
      decided = (isNews ? await this.#saveFirst() : undefined) ?? (await this.#act(next));
    }
    return decided;
  }

  /** Takes over a decision. */
  async take(transition: Transition): Promise<void> {
    const taken = this.#host.taking?.(transition) ?? transition;
    this.#log.live = undefined;
    await this.#log.take(taken);
    if (taken.context !== undefined || taken.handedOver === true) this.#steps.contextChanged();
    this.#host.taken?.(taken);
  }

  /** The decision about outcomes, decisions of people and cancels that have come, as far as they can be believed. */
  async applyEntries(
    control: readonly ControlEntry[],
    more: readonly ControlEntry[] = [],
  ): Promise<Transition> {
    const { entries, events } = await this.#host.readEntries(control);
    const { turn } = this.#log;
    const decided = await this.decide((facts) => afterControl(turn, [...entries, ...more], facts));
    return { ...decided, events: [...events, ...decided.events] };
  }

  /** Decides anew, and again once facts are there that the decision has missed; most decisions miss none. */
  async decide(decision: (facts: TurnEnvironment) => Transition): Promise<Transition> {
    this.#host.facts.renew?.();
    return await this.withFacts(decision);
  }

  async withFacts<T>(ask: (facts: TurnEnvironment) => T): Promise<T> {
    const { facts } = this.#host;
    for (;;) {
      const answer = ask(facts.now());
      const supplied = facts.supply?.();
      if (supplied === undefined || !(await supplied)) return answer;
    }
  }

  /** Stores changes before a model is asked; returns what happened meanwhile, if anything. */
  async #saveFirst(): Promise<Transition | Left | undefined> {
    const saved = await this.#log.save("continue");
    if (saved.state === "fenced") return { end: "fenced" };
    return saved.state === "running" && saved.control.length > 0
      ? await this.applyEntries(saved.control)
      : undefined;
  }

  /** Carries out a decision, and returns the next one. */
  async #act(next: Exclude<NextAction, { do: "finish" }>): Promise<Transition | Left> {
    const instead = this.#host.insteadOf?.(next);
    if (instead !== undefined) return instead;
    switch (next.do) {
      case "model":
        return this.#host.isTeam === true ? await this.#chooseSpeaker() : await this.#modelStep();
      case "tools":
        return await this.#woken(await this.#host.handOut(next.calls));
      case "stop":
        // Before the save that marks the cancel as read: after a crash in between, the next run cancels them again.
        await this.#host.stopCalls?.(next.calls);
        return await this.#woken(await this.#host.wait());
      case "wait":
        return await this.#woken(await this.#host.wait());
      case "compact":
        return await this.#compactOnDemand();
      case "choose":
        return await this.#chooseSpeaker();
    }
  }

  async #woken(woken: Woken): Promise<Transition | Left> {
    if ("end" in woken) return woken;
    if (woken.entries.length > 0) return await this.applyEntries(woken.entries);
    const { turn } = this.#log;
    return await this.decide((facts) => resumeTurn(turn, facts));
  }

  /** The next member of a team answers. */
  async #chooseSpeaker(): Promise<Transition | Left> {
    const overBudget = async (): Promise<Transition | undefined> => await this.#overBudget();
    return (await this.#host.chooseSpeaker?.(overBudget)) ?? (await this.#brokenOff());
  }

  /** A model step, with what has to come before it: waiting messages that join in, a shorter context. */
  async #modelStep(): Promise<Transition | Left> {
    const { turn } = this.#log;
    // A turn whose step waits for its retry time was woken by something else.
    const { putOff } = turn.requests;
    if (putOff !== undefined && putOff.atMs > this.#host.clock.now()) {
      return { turn, history: [], events: [], next: { do: "wait" } };
    }
    // Making it ready may have cost something itself.
    const instead =
      (await this.#makeReady()) ?? (await this.#overBudget()) ?? (await this.#host.countStep?.());
    if (instead !== undefined) return instead;
    this.#log.live = { text: "", thinking: "" };
    const step = await this.#askModel();
    if (step.brokenOff === true) {
      this.#log.live = { ...(this.#log.live ?? { text: "", thinking: "" }), broken: step };
      return await this.#brokenOff();
    }
    if (step.failure?.code === "context_overflow") {
      const shortened = await this.#steps.afterOverflow(step.failure);
      if (shortened !== undefined) return shortened;
      if (this.#host.abortReason() !== undefined) return await this.#brokenOff();
    }
    this.#steps.used(step.usage);
    await this.#host.answered?.(step);
    const { thinkingMs } = this.#log.live;
    return await this.decide((facts) => afterStep(this.#log.turn, { ...step, thinkingMs }, facts));
  }

  /** Returns the decision that comes before the next model step; undefined: the step can start. */
  async #makeReady(): Promise<Transition | Left | undefined> {
    // A turn that waited for its own start was not there to be stopped by the message after it.
    if ((await this.#host.isSuperseded?.()) === true) return await this.#cancel("superseded");
    const refused = await this.#overBudget();
    if (refused !== undefined) return refused;
    const joined = await this.#absorbWaiting();
    const cut = await this.#steps.whenFull();
    if (cut !== undefined) await this.take(cut);
    return joined || cut?.context !== undefined ? await this.#saveFirst() : undefined;
  }

  /** The end of the turn when a budget is spent; undefined when a model may be called. */
  async #overBudget(): Promise<Transition | undefined> {
    const transition = await this.#host.overBudget();
    if (transition === undefined || transition.next.do === "finish") return transition;
    await this.take(transition);
    return undefined;
  }

  /** Takes waiting messages into the turn; false when none has joined. */
  async #absorbWaiting(): Promise<boolean> {
    const { turn } = this.#log;
    const waiting = turn.steps === 0 ? [] : await this.#host.messagesToJoin();
    if (waiting.length === 0) return false;
    const transition = await this.decide((facts) => absorb(turn, waiting, facts));
    const joined = transition.absorbed?.length ?? 0;
    if (joined === 0) return false;
    await this.take(transition);
    for (const message of waiting.slice(0, joined)) this.#host.joined?.(message);
    return true;
  }

  async #askModel(): Promise<StepResult> {
    const { turn } = this.#log;
    const offered = await this.withFacts((env): { tools: ToolSpec[]; maxPauses: number } => ({
      tools: offeredSpecs(turn, env),
      maxPauses: env.limits.maxIterations - iterationsOf(turn) - 1,
    }));
    return await this.#steps.answer(offered, {
      onEvent: (event) => this.#streamed(event),
      onRetry: (retry) => this.#retried(retry),
    });
  }

  /** Shows that a call has failed and when the next one follows, until the model answers. */
  #retried({ code, attempt, waitMs, next }: ModelRetry): void {
    const { live } = this.#log;
    if (live === undefined) return;
    live.retry = { code, tries: attempt, atMs: this.#host.clock.now() + waitMs, next };
    this.#host.changed?.();
  }

  #streamed(event: EngineEvent): Awaitable<void> {
    const published = this.#log.publish(event);
    const { live } = this.#log;
    if (live === undefined) return published;
    if (event.type === "text_delta" || event.type === "thinking_delta") live.retry = undefined;
    timeThinking(live, event, this.#host.clock.now());
    if (event.type === "text_delta") live.text += event.text;
    else if (event.type === "thinking_delta") live.thinking += event.text;
    else if (event.type === "step_restarted") this.#log.live = { text: "", thinking: "" };
    else return published;
    this.#host.changed?.(event);
    return published;
  }

  /** A person has asked for a shorter context. */
  async #compactOnDemand(): Promise<Transition | Left> {
    const known = this.#host.commandFacts();
    const plan = this.#steps.plan(true);
    if (plan === undefined) return commandDone(this.#log.turn, undefined, known);
    const refused = await this.#overBudget();
    if (refused !== undefined) return refused;
    const { turn } = this.#log; // with the note about the budget, if there is one
    const summary = await this.#steps.summarise(plan);
    if (summary === undefined) return await this.#brokenOff();
    if (summary.failure !== undefined) {
      return await this.decide((facts) => afterStep(turn, summary, facts));
    }
    const compacted = compactedTransition(turn, plan, summaryIn(summary));
    const done = commandDone(turn, compacted.report, known);
    return { ...done, events: [...compacted.events, ...done.events], context: compacted.context };
  }

  /** The model was broken off: the turn ends, or another process continues it. */
  async #brokenOff(): Promise<Transition | Left> {
    const reason = this.#host.abortReason();
    if (reason === "cancel") return await this.#cancel("cancelled");
    if (reason === "fenced") return { end: "fenced" };
    const saved = await this.#log.save("handoff");
    return { end: saved.state === "fenced" ? "fenced" : "handoff" };
  }

  /** Ends the turn; an entry that says why it is cancelled counts before `reason`. */
  async #cancel(reason: CancelReason): Promise<Transition> {
    const saved = await this.#log.save("continue");
    const control = saved.state === "running" ? saved.control : [];
    const { turnId } = this.#log.turn;
    return await this.applyEntries(control, [{ type: "cancel", turnId, reason }]);
  }
}

/** The history after the context was cut. */
export function cutHistory(
  history: readonly Message[],
  { keep, summary }: NonNullable<Transition["context"]>,
): Message[] {
  const kept = keep === 0 ? [] : history.slice(-keep);
  return summary === undefined ? kept : [summary, ...kept];
}

/** What a session has used. */
export interface SessionUse {
  /** The beginning of its first message. */
  title: string;
  /** Model steps. */
  turnCount: number;
  inputTokens: number;
  outputTokens: number;
  costUsd: number;
  /** Calls that people have rejected. */
  denials: number;
}

/** What a session has used with a turn that ends now. */
export function useWith(
  { message, steps, totals, called }: TurnState,
  before: Partial<SessionUse> | undefined,
): SessionUse {
  const { inputTokens, outputTokens, costUsd } = totals;
  return {
    title: before?.title || sessionTitleOf(message),
    turnCount: (before?.turnCount ?? 0) + steps,
    inputTokens: (before?.inputTokens ?? 0) + inputTokens,
    outputTokens: (before?.outputTokens ?? 0) + outputTokens,
    costUsd: (before?.costUsd ?? 0) + costUsd,
    denials: (before?.denials ?? 0) + called.refused,
  };
}

/** The last event of a run. */
export function sessionInfo(
  sessionId: string,
  { title, turnCount, inputTokens, outputTokens, costUsd }: SessionUse,
): EngineEvent {
  return {
    type: "session_info",
    sessionId,
    title,
    turnCount,
    inputTokens,
    outputTokens,
    costUsd,
  };
}
