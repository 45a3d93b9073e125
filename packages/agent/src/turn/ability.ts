import type {
  ControlEntry,
  InboundMessage,
  OutputForm,
  ParseResult,
  ReplyLanguage,
} from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import type { Message } from "@larkline/protocol/content";
import type { EngineEvent, EventOf } from "@larkline/protocol/event";
import type { SchemaCheck } from "@larkline/protocol/json-schema";
import type { ModelWarning } from "@larkline/protocol/model-stream";
import type { Panel, ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import type { ScheduleEvent } from "@larkline/protocol/schedule";
import {
  builtInRunner,
  denial,
  type ToolAnnouncement,
  type ToolOutcome,
  type ToolSpec,
} from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import type { TSchema } from "@larkline/protocol/type";
import type { Question, RiskFinding } from "../permissions/policy.ts";
import type {
  CallPolicy,
  DoneEnding,
  LiveStep,
  NextAction,
  OfferedTool,
  Records,
  Transition,
  TurnLimits,
  TurnModel,
} from "./facts.ts";

// What the turn asks of an ability, and where it asks.

/**
 * Something that an agent can do besides calling the tools of runners: keep a to-do list, remember, ask people. Each is a
 * folder of `abilities/`, and the turn knows this interface alone. A method that an ability lacks has nothing to say.
 * All are pure and must not throw, but for `run`.
 *
 * Some methods are called only where the ability can have something to say, so that a turn runs no code of abilities that
 * it does not use: with facts, where the process has looked some up for it ({@link AbilityFacts}); with state, where it
 * keeps some in the turn.
 */
export interface Ability<State = unknown> {
  /** Its key in the checkpoint, `turn.abilities.<name>`; letters alone. */
  readonly name: string;
  /**
   * What the configuration of an agent may say under the ability's name; with a `description`. Absent: nothing, and agents
   * have it without being given it.
   */
  readonly config?: TSchema;
  /** Names of its tools, whether they are offered or not: no runner's tool of such a name is used. */
  readonly toolNames: readonly string[];
  /**
   * The tools that it offers in a turn: the same objects for as long as nothing changes. With a `config` it is asked only
   * where the configuration of the agent says something of it.
   */
  tools?(place: AbilityPlace, message: InboundMessage): readonly ToolAnnouncement[];
  /** Its calls that are no tools: each has a permission of its own, and the policy of tools is not asked. */
  readonly ownCalls?: OwnCalls;
  /** A task of another agent begins its turn, in which `agent` answers first. */
  onTask?(message: InboundMessage, agent: string): readonly EngineEvent[];
  /** Called with facts: how the turn begins where it does not begin with a model step. */
  firstMove?(
    turn: TurnState,
    facts: { readonly known: AbilityFacts; readonly texts: ReplyLanguage | undefined },
  ): Transition | undefined;
  /**
   * Called with state: a model step is about to begin. `limit`: the turn has none left; `next`: something else comes first.
   */
  beforeStep?(
    turn: TurnState,
    env: TurnEnvironment,
  ): { readonly limit: true } | { readonly next: NextAction } | undefined;
  /** Called with state: the model has given an answer that counts. Undefined: the turn ends with it. */
  onEnd?(turn: TurnState, ending: DoneEnding, env: TurnEnvironment): Transition | undefined;
  /** An entry of a kind that the turn does not read itself. */
  onEntry?(entry: ControlEntry, turn: TurnState): EntryEffect | undefined;
  /**
   * A call of its tools that may run: its outcome, where that needs nothing but its arguments; a question to people, whose
   * answer it waits for; undefined where it has to {@link run}.
   */
  onCall?(
    call: CallState,
    facts: CallFacts,
  ): ToolOutcome | { readonly ask: AskedPeople } | undefined;
  /**
   * A call of any tool, also of a runner's, is about to start: the policy lets it run, or people have. Undefined: the
   * ability has nothing against it. Asked again whenever people have let the call start anew, and after a question of
   * an ability before this one in the order.
   */
  beforeCall?(call: CallState, facts: CallFacts): Objection | undefined;
  /**
   * Asks people whether a call may run, where the policy or an ability wants that. One ability of a process does; without
   * it such calls are refused.
   */
  askPermission?(
    call: CallState,
    wanted: WantedPermission,
    facts: CallFacts,
  ): { readonly outcome: ToolOutcome } | { readonly ask: AskedPeople };
  /**
   * What people were asked is settled: the outcome of the call, or `start` where it may start now. An ability that asks
   * people itself must have this; answers about a permission are read by the ability that asks for them.
   */
  onDecision?(call: CallState, decision: DecisionEntry, facts: CallFacts): Decided | undefined;
  /**
   * An attempt of a call of any tool, also of a runner's, has ended; an ability with calls of its own is asked about those
   * alone. Undefined: that is the outcome of the call, as far as the ability is concerned. `ask`: the call waits for people, as one that {@link onDecision} may let start again.
   */
  onOutcome?(call: CallState, ended: OutcomeEntry, facts: CallFacts): AttemptEnd | undefined;
  /**
   * Whose permission a call needs that waits because of {@link beforeCall} or `onOutcome`, as others read it.
   */
  permissionOf?(turn: TurnState): string | undefined;
  /** Runs a call that {@link onCall} did not answer, with the stores and clients that it was made with. May reject. */
  run?(call: CallState, work: AbilityWork): Promise<ToolOutcome>;
  /** How long `run` may take, ms; undefined: 10 s. */
  runMs?(call: CallState): number | undefined;
  /** A call of its tools is answered: what it keeps from now on (undefined: nothing), and events beside the result. */
  onAnswer?(answer: AbilityAnswer<State>): {
    state: State | undefined;
    events?: readonly EngineEvent[];
  };
  /** What the person of the turn must have granted the app before a call of its tools starts. */
  scopesOf?(call: CallState): readonly string[];
  /**
   * What a process must know to continue a turn that waits for a call of its tools, or for people whom {@link beforeCall}
   * has asked; undefined: nothing besides the tool.
   */
  needs?(call: CallState): string | undefined;
  /** Whether the model reads text of others besides the history, which may name addresses. */
  readsOthers?(known: AbilityFacts): boolean;
  /** Called with facts: what people see of text that the model has written, before the whole answer is read. */
  shownText?(text: string, known: AbilityFacts): string;
  /**
   * Called with facts: the model has given its answer, without calls. Undefined: it is free text, as far as this ability is
   * concerned.
   */
  onFinal?(text: string, facts: FinalFacts<State>): FinalText<State> | undefined;
  /** Its state is about one answer: the turn drops it when another agent answers from now on. */
  readonly isOfAnswer?: true;
  /** Called with state: what people see of it beside the answer. */
  seen?(turn: TurnState): Pick<ReplyView, "contributions">;
  /** What people see of one of its calls besides the tool. `waits`: for people, although it runs. */
  seenCall?(call: CallState): SeenCall | undefined;
  /** Called with state: whose answer it is, where that is not the agent of the turn. */
  answeredBy?(turn: TurnState): string | undefined;
  /** Called with state: what people see of it on the card. */
  panels?(state: State, turn: TurnState): readonly Panel[];
}

/** What abilities know of the agent that answers, and of people. */
export interface AbilityPlace {
  /** What the configuration of the agent says of each ability, by its name; of the form of its `config`. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** The people of the deployment: names of their roles, and how long they may take to answer, ms. */
  readonly people: { readonly roles: readonly string[]; readonly answerMs: number };
  /** What happens to people and agents may wait for, where the deployment lets them. */
  readonly events?: readonly ScheduleEvent[] | undefined;
}

/** What a decision depends on besides the turn itself. */
export interface TurnEnvironment {
  nowMs: number;
  limits: TurnLimits;
  tools: ReadonlyMap<string, OfferedTool>;
  callPolicy: CallPolicy;
  schemas: SchemaFacts;
  /** All that this process has, whether an agent is configured with them or not. */
  abilities: readonly Ability[];
  place: AbilityPlace;
  /** What was looked up for abilities. */
  known?: AbilityFacts;
  model: TurnModel;
  /** Language of notices; without it that of the user's message. */
  texts?: ReplyLanguage | undefined;
  /** The conversation so far. With it no call gets an id that an earlier turn used. */
  history?: readonly Message[];
  /** Turns of other people are set aside and wait for answers. Their held steps are not in the history yet. */
  othersWait?: boolean;
  /** Output of the aborted model step; a cancel keeps it. */
  live?: LiveStep | undefined;
}

/** What is known where a call moves. */
export interface CallFacts {
  readonly turn: TurnState;
  readonly env: TurnEnvironment;
  /** The turn is about to end, so no person is asked. */
  readonly ending?: boolean;
}

/** A permission that people are to give. */
export interface WantedPermission {
  readonly question: Question;
  /** What the policy has found in the call. */
  readonly findings: readonly RiskFinding[];
  /** The ability that wants it; undefined: the policy. */
  readonly by: string | undefined;
}

/**
 * What a process has looked up for its abilities, by the name of the ability; each declares its own here. A decision looks
 * nothing up.
 */
export interface AbilityFacts {}

/** Why a call does not start now: it ends with an outcome, or waits for people. */
export type Objection =
  | { readonly outcome: ToolOutcome }
  /** {@link Ability.onDecision} reads the answer. */
  | { readonly ask: AskedPeople }
  /** People allow the call or reject it, as where the policy asks. */
  | { readonly permission: Question };

/** What people see of a call besides its tool. */
export interface SeenCall {
  readonly shown: Pick<ShownTool, "helper">;
  readonly waits: boolean;
}

/** What {@link Ability.onFinal} knows besides the text. */
export interface FinalFacts<State> {
  readonly state: State | undefined;
  readonly known: AbilityFacts;
  readonly schemas: SchemaFacts;
  readonly language: ReplyLanguage;
  /** A limit or a refusal has cut it off. */
  readonly isCut: boolean;
  /** The turn has a further model step. */
  readonly hasStepsLeft: boolean;
}

/** What becomes of an answer. `warning`: an event that says what is wrong with it. */
export type FinalText<State> =
  /** The model is asked again, and reads why. */
  | { readonly again: string; readonly state: State; readonly warning: Warning }
  /** The turn ends with it: what people see of it, its value, and how the turn has ended where that was not well. */
  | {
      readonly shown: string;
      readonly output?: { readonly value: unknown; readonly form: OutputForm };
      readonly reason?: string;
      readonly warning?: Warning;
    };

type Warning = Pick<ModelWarning, "code" | "message">;

/**
 * Whether values fit schemas that others wrote. A decision runs none of them: where the driver does not know the answer
 * yet it gives any, finds it out, and decides again.
 */
export interface SchemaFacts {
  check(schema: object, value: unknown): SchemaCheck;
}

/** What people are asked about a call, which waits for their answer. */
export interface AskedPeople {
  /** The question as it is stored and shown; the same write stores it and the call that waits. */
  readonly record: Approval;
  readonly events: readonly EngineEvent[];
}

/** People are asked about a call that has run, or was asked about before. */
export interface FurtherQuestion {
  readonly ask: AskedPeople;
  /** The call as it waits: with an outcome, where that is what people decide about. */
  readonly call: CallState;
  /** The turn with what the ability keeps from now on. */
  readonly turn?: TurnState;
}

/** What an ability makes of the end of an attempt: the outcome of the call, what it keeps from now on, or a question. */
export type AttemptEnd =
  | { readonly outcome: ToolOutcome; readonly turn?: TurnState }
  | FurtherQuestion;

/** What an entry changes. */
export interface EntryEffect {
  readonly turn: TurnState;
  readonly events: readonly EngineEvent[];
}

/** Calls of an ability that are no tools, such as those of other agents. Its tools cannot have their names. */
export interface OwnCalls {
  /** Called with facts: what the model is offered. */
  specs(turn: TurnState, env: TurnEnvironment): readonly ToolSpec[];
  /** Called with facts: whether a call of that name is one of them, offered or not. */
  takes(name: string, env: TurnEnvironment): boolean;
  /** The field of a stored call that only these have. */
  readonly mark: "handoff" | "helper";
  /** A cancelled turn stops running ones first, and ends when they have ended. */
  readonly stopFirst?: true;
  /** Decides about a call that the model has made. `before`: calls of this step that were let through before it. */
  prepare(
    wanted: OwnCall,
    facts: { turn: TurnState; env: TurnEnvironment; before: number },
  ): PreparedOwn;
  /** Steps may make the same call again. */
  readonly mayRepeat?: true;
  /** All other calls of the step are answered: ends the call that the ability has left `done` without an outcome. */
  settle?(call: CallState, turn: TurnState, env: TurnEnvironment): SettledOwn;
  /** Calls of a step are stored: what the turn keeps of those that were let through. */
  onOpen?(turn: TurnState, calls: readonly CallState[]): TurnState;
}

/** The end of a call that is answered last. */
export interface SettledOwn {
  readonly outcome: ToolOutcome;
  /** What the message with the results says of it. */
  readonly handoff?: HandoffMark;
  /** What comes next, in place of a model step of the same agent. `turn` has no calls any more. */
  readonly next?: (turn: TurnState) => Transition;
  /** The end of the turn, where that has steps left. `turn` has its calls; `records` come first. */
  readonly end?: (turn: TurnState, records: Records) => Transition;
}

type HandoffMark = NonNullable<Extract<Message, { role: "tool" }>["handoff"]>;

/** A call as the model has made it; `given`: its arguments, as far as they are a JSON object. */
export interface OwnCall {
  readonly call: CallState;
  readonly given: ParseResult<unknown>;
  /** The steps before have made it too often. */
  readonly repeated: ToolOutcome | undefined;
}

/** A call as it is handed out, or the outcome of one that is not. `event`: what its `tool_use` says besides. */
export interface PreparedOwn {
  readonly call: CallState;
  readonly outcome?: ToolOutcome;
  readonly event: Pick<EventOf<"tool_use">, "handoff" | "helper">;
}

/** What an ability makes of an answer: the outcome of its call, its start, its next attempt, or a further question. */
export type Decided =
  | ToolOutcome
  /** `turn`: as the ability keeps it. */
  | { readonly outcome: ToolOutcome; readonly turn: TurnState }
  | { readonly start: CallState }
  | { readonly again: CallState }
  | FurtherQuestion;

/** The end of an attempt, as its runner or the recovery reports it. */
export type OutcomeEntry = Extract<ControlEntry, { type: "outcome" }>;

/** What people were asked is settled. */
export type DecisionEntry = Extract<ControlEntry, { type: "decision" }>;

/** What a call runs with. */
export interface AbilityWork {
  readonly turn: TurnState;
  readonly place: AbilityPlace;
  /** Longest result that the model gets of a call of this step, characters. */
  readonly maxResultChars: number;
  readonly clients: AbilityClients;
}

/**
 * Stores and clients that a process gives to its abilities when it starts, by the name of the ability; each declares its
 * own here.
 */
export interface AbilityClients {}

/** A call of an ability that was answered, and what the ability has kept so far. */
export interface AbilityAnswer<State> {
  readonly call: CallState;
  readonly outcome: ToolOutcome;
  /** The outcome as the model reads it. */
  readonly output: string;
  readonly turn: TurnState;
  readonly state: State | undefined;
}

/** The ability that a call is for; undefined for calls of runners' tools. */
export function abilityOf(call: CallState, abilities: readonly Ability[]): Ability | undefined {
  const { name, runner } = call;
  const owner = abilities.find((ability) => isOwn(call, ability));
  if (owner !== undefined) return owner;
  return runner === builtInRunner
    ? abilities.find(({ toolNames }) => toolNames.includes(name))
    : undefined;
}

/** Whether a stored call is one of an ability's calls that are no tools. */
function isOwn(call: CallState, { ownCalls }: Ability): boolean {
  return ownCalls !== undefined && call[ownCalls.mark] !== undefined;
}

/** Whether the process has looked something up for an ability. */
function hasFacts({ name }: Ability, known: AbilityFacts = {}): boolean {
  return (known as Readonly<Record<string, unknown>>)[name] !== undefined; // abilities declare theirs by their names
}

/** Whether an ability keeps something in a turn. */
function hasState({ name }: Ability, { abilities }: TurnState): boolean {
  return abilities[name] !== undefined;
}

/**
 * The first objection to a call that is about to start, and the ability that has it. Abilities up to the one for which the
 * call has waited are not asked again.
 */
export function firstObjection(
  call: CallState,
  facts: CallFacts,
): { by: Ability; objection: Objection } | undefined {
  const { abilities } = facts.env;
  const from =
    call.askedBy === undefined ? 0 : abilities.findIndex(({ name }) => name === call.askedBy) + 1;
  for (const by of abilities.slice(from)) {
    const objection = by.beforeCall?.(call, facts);
    if (objection !== undefined) return { by, objection };
  }
  return undefined;
}

/** The ability whose question a call waits for; undefined: the policy has asked for a permission. */
export function abilityAsking(call: CallState, abilities: readonly Ability[]): Ability | undefined {
  return call.askedBy === undefined
    ? abilityOf(call, abilities)
    : abilities.find(({ name }) => name === call.askedBy);
}

/** Asks people whether a call may run. */
export function permissionAsked(
  call: CallState,
  wanted: WantedPermission,
  facts: CallFacts,
): ReturnType<NonNullable<Ability["askPermission"]>> {
  const asks = facts.env.abilities.find(({ askPermission }) => askPermission !== undefined);
  return asks?.askPermission?.(call, wanted, facts) ?? { outcome: denial(noPeople) };
}

const noPeople = "people cannot be asked here whether it may run. The call was not run.";

/** What the answer of people means for a call that has waited for it. */
export function decidedAbout(
  call: CallState,
  decision: DecisionEntry,
  facts: CallFacts,
): { by: Ability; decided: Decided } | undefined {
  const { abilities } = facts.env;
  const readers = [
    abilityAsking(call, abilities),
    abilities.find(({ askPermission }) => askPermission !== undefined),
  ];
  for (const by of readers) {
    const decided = by?.onDecision?.(call, decision, facts);
    if (by !== undefined && decided !== undefined) return { by, decided };
  }
  return undefined;
}

/** A tool of an ability as it is offered beside those of runners. */
interface AbilityTool {
  runner: string;
  announcement: ToolAnnouncement;
}

/** The tools of all abilities in a turn, by name. */
export function toolsOfAbilities(
  abilities: readonly Ability[],
  place: AbilityPlace,
  message: InboundMessage,
): [string, AbilityTool][] {
  return abilities.flatMap((ability) =>
    isConfigured(ability, place) ? (ability.tools?.(place, message) ?? []).map(asOffered) : [],
  );
}

function isConfigured({ name, config }: Ability, { settings }: AbilityPlace): boolean {
  return config === undefined || settings[name] !== undefined;
}

/** Abilities have the same announcements for all turns. */
const offeredTools = new WeakMap<ToolAnnouncement, [string, AbilityTool]>();

function asOffered(announcement: ToolAnnouncement): [string, AbilityTool] {
  const offered = offeredTools.get(announcement) ?? [
    announcement.spec.name,
    { runner: builtInRunner, announcement },
  ];
  offeredTools.set(announcement, offered);
  return offered;
}

/** What the first ability that has something to say makes of the end of an attempt. */
export function firstOnOutcome(
  call: CallState,
  ended: OutcomeEntry,
  facts: CallFacts,
): { by: Ability; made: AttemptEnd } | undefined {
  for (const by of facts.env.abilities) {
    if (by.ownCalls !== undefined && !isOwn(call, by)) continue;
    const made = by.onOutcome?.(call, ended, facts);
    if (made !== undefined) return { by, made };
  }
  return undefined;
}

/** The ability whose own call a name is, and those calls; undefined where it can be a tool's. */
export function takerOf(
  name: string,
  env: TurnEnvironment,
): { ability: Ability; calls: OwnCalls } | undefined {
  for (const ability of env.abilities) {
    const { ownCalls: calls } = ability;
    if (calls === undefined || !hasFacts(ability, env.known)) continue;
    if (calls.takes(name, env)) return { ability, calls };
  }
  return undefined;
}

/** Calls of abilities that are no tools, as the model is offered them. */
export function offeredCalls(turn: TurnState, env: TurnEnvironment): ToolSpec[] {
  return env.abilities.flatMap((ability) =>
    hasFacts(ability, env.known) ? (ability.ownCalls?.specs(turn, env) ?? []) : [],
  );
}

/** What the run of a task begins with. */
export function taskEvents(
  message: InboundMessage,
  agent: string,
  abilities: readonly Ability[],
): EngineEvent[] {
  if (message.task === undefined) return [];
  return abilities.flatMap((ability) => ability.onTask?.(message, agent) ?? []);
}

/** How a turn begins where an ability does not let it begin with a model step. */
export function firstMoveOf(
  turn: TurnState,
  facts: { readonly known: AbilityFacts; readonly texts: ReplyLanguage | undefined },
  abilities: readonly Ability[],
): Transition | undefined {
  for (const ability of abilities) {
    const first = hasFacts(ability, facts.known) ? ability.firstMove?.(turn, facts) : undefined;
    if (first !== undefined) return first;
  }
  return undefined;
}

/** The turn with what abilities keep of calls that were let through. */
export function withOpened(
  turn: TurnState,
  calls: readonly CallState[],
  { abilities }: TurnEnvironment,
): TurnState {
  return abilities.reduce((opened, ability) => {
    const own = calls.filter((call) => isOwn(call, ability));
    return own.length === 0 ? opened : (ability.ownCalls?.onOpen?.(opened, own) ?? opened);
  }, turn);
}

/** Whether no ability lets the turn begin a further model step. */
export function isOutOfSteps(turn: TurnState, env: TurnEnvironment): boolean {
  return env.abilities.some((ability) => {
    const before = hasState(ability, turn) ? ability.beforeStep?.(turn, env) : undefined;
    return before !== undefined && "limit" in before;
  });
}

/** What an ability wants done before the next model step. */
export function beforeModel(turn: TurnState, env: TurnEnvironment): NextAction | undefined {
  for (const ability of env.abilities) {
    const before = hasState(ability, turn) ? ability.beforeStep?.(turn, env) : undefined;
    if (before !== undefined && "next" in before) return before.next;
  }
  return undefined;
}

/** The call that is answered when all others are, and whose it is. */
export function lastToSettle(
  turn: TurnState,
  env: TurnEnvironment,
): { call: CallState; settled: SettledOwn } | undefined {
  const call = turn.calls.find(({ state, outcome }) => state === "done" && outcome === undefined);
  const settled =
    call === undefined
      ? undefined
      : abilityOf(call, env.abilities)?.ownCalls?.settle?.(call, turn, env);
  return call === undefined || settled === undefined ? undefined : { call, settled };
}

/** What becomes of a turn whose answer counts, where an ability does not let it end. */
export function afterAnswer(
  turn: TurnState,
  ending: DoneEnding,
  env: TurnEnvironment,
): Transition | undefined {
  for (const ability of env.abilities) {
    const next = hasState(ability, turn) ? ability.onEnd?.(turn, ending, env) : undefined;
    if (next !== undefined) return next;
  }
  return undefined;
}

/** What an entry changes that the turn does not read itself. */
export function entryEffect(
  entry: ControlEntry,
  turn: TurnState,
  abilities: readonly Ability[],
): EntryEffect {
  let effect: EntryEffect = { turn, events: [] };
  for (const ability of abilities) {
    const next = ability.onEntry?.(entry, effect.turn);
    if (next !== undefined) {
      effect = { turn: next.turn, events: [...effect.events, ...next.events] };
    }
  }
  return effect;
}

/** Running calls that a cancelled turn stops before it ends. */
export function stoppedFirst({ calls }: TurnState, abilities: readonly Ability[]): CallState[] {
  return calls.filter((call) => call.state === "running" && isStoppedFirst(call, abilities));
}

export function isStoppedFirst(call: CallState, abilities: readonly Ability[]): boolean {
  return abilities.some((ability) => ability.ownCalls?.stopFirst === true && isOwn(call, ability));
}

/** Whether the model reads text of others besides the history. */
export function readsOthers({
  abilities,
  known = {},
}: Pick<TurnEnvironment, "abilities" | "known">): boolean {
  return abilities.some((ability) => ability.readsOthers?.(known) === true);
}

/** The turn after a call was answered, as the call's ability keeps it. */
export function withAnswer(
  turn: TurnState,
  { call, outcome, output }: Omit<AbilityAnswer<unknown>, "state" | "turn">,
  abilities: readonly Ability[],
): { turn: TurnState; events: readonly EngineEvent[] } {
  const ability = abilityOf(call, abilities);
  if (ability?.onAnswer === undefined) return { turn, events: [] };
  const { state, events = [] } = ability.onAnswer({
    call,
    outcome,
    output,
    turn,
    state: turn.abilities[ability.name],
  });
  return { turn: withState(turn, ability, state), events };
}

/** The turn with what an ability keeps from now on; undefined: nothing. */
export function withState(
  turn: TurnState,
  { name }: Pick<Ability, "name">,
  state: unknown,
): TurnState {
  const { [name]: before, ...others } = turn.abilities;
  if (state === before) return turn;
  const kept = state === undefined ? others : { ...others, [name]: state };
  return { ...turn, abilities: kept };
}

/** The turn without what abilities keep about one answer. */
function withoutAnswerState(turn: TurnState, abilities: readonly Ability[]): TurnState {
  const ended = abilities.filter(({ isOfAnswer }) => isOfAnswer === true);
  return ended.reduce((kept, ability) => withState(kept, ability, undefined), turn);
}

/** Drops what abilities keep about the answer before, where another agent answers from now on. */
export function ofNextAgent(transition: Transition, { abilities }: TurnEnvironment): Transition {
  if (transition.handedOver !== true) return transition;
  return { ...transition, turn: withoutAnswerState(transition.turn, abilities) };
}

/** What people see of text that the model has written. */
export function shownTextOf(
  text: string,
  abilities: readonly Ability[],
  known: AbilityFacts = {},
): string {
  return abilities.reduce(
    (shown, ability) =>
      hasFacts(ability, known) ? (ability.shownText?.(shown, known) ?? shown) : shown,
    text,
  );
}

/** What the first of the abilities that has something to say about an answer makes of it. */
export function readFinal(
  text: string,
  { turn, ...facts }: Omit<FinalFacts<unknown>, "state"> & { turn: TurnState },
  abilities: readonly Ability[],
): (FinalText<unknown> & { readonly by: Ability }) | undefined {
  for (const by of abilities) {
    if (by.onFinal === undefined || !hasFacts(by, facts.known)) continue;
    const read = by.onFinal(text, { ...facts, state: turn.abilities[by.name] });
    if (read !== undefined) return { ...read, by };
  }
  return undefined;
}

/** What a process must know to continue a turn with these calls. */
export function needsOfCalls(calls: readonly CallState[], abilities: readonly Ability[]): string[] {
  const open = calls.filter(({ state, outcome }) => state !== "done" || outcome === undefined);
  return [...new Set(open.flatMap((call) => abilityAsking(call, abilities)?.needs?.(call) ?? []))];
}

/** What people see of the abilities beside the answer. */
export function seenBeside(
  turn: TurnState,
  abilities: readonly Ability[],
): Pick<ReplyView, "contributions"> {
  return abilities.reduce(
    (seen, ability) => (hasState(ability, turn) ? { ...seen, ...ability.seen?.(turn) } : seen),
    {},
  );
}

/** What the abilities show on the card of a turn. */
export function panelsOf(turn: TurnState, abilities: readonly Ability[]): Panel[] {
  return abilities.flatMap((ability) => {
    const state = turn.abilities[ability.name];
    return state === undefined ? [] : [...(ability.panels?.(state, turn) ?? [])];
  });
}

/** What people see of a call besides its tool. */
export function seenCallOf(call: CallState, abilities: readonly Ability[]): SeenCall | undefined {
  return abilityOf(call, abilities)?.seenCall?.(call);
}

/** Whose answer it is, where that is not the agent of the turn. */
export function answeredBy(turn: TurnState, abilities: readonly Ability[]): string | undefined {
  for (const ability of abilities) {
    const agent = hasState(ability, turn) ? ability.answeredBy?.(turn) : undefined;
    if (agent !== undefined) return agent;
  }
  return undefined;
}
