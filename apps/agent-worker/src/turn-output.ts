import {
  attemptOf,
  joinedEvent,
  signedBy,
  type AbsorbedMessage,
  type LiveStep,
  type Transition,
  type SessionChoices,
} from "@larkline/agent";
import { cutHistory, sessionInfo, useWith, type TurnLog } from "@larkline/agent/drive";
import { handedOverBy } from "@larkline/agent/handover";
import { helperEnd, runningHelpers, waitOf, type HelperEnd } from "@larkline/agent/helpers";
import { personMessageOf } from "@larkline/agent/messages";
import type { ControlEntry, HelperWait, QueuedMessage, SessionKey } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import type { Message } from "@larkline/protocol/content";
import {
  type EngineEvent,
  type NewEvent,
  isTerminal,
  type PersonMessage,
} from "@larkline/protocol/event";
import { argumentsHashOf } from "@larkline/protocol/runner";
import { splitAtOpenMark, withoutImageMarks } from "@larkline/protocol/stored-image";
import {
  teamOfTurn,
  agentOfTurn,
  type CallState,
  type TurnState,
  calledHelpersOf,
} from "@larkline/protocol/turn";
import type {
  AskedInReply,
  AskerUpdate,
  CallFacts,
  Claim,
  CommitRequest,
  CommitResult,
  OpenCall,
  SaveRequest,
  SaveResult,
  SessionSettings,
  SessionTotals,
} from "@larkline/store";
import { identityFactsOf } from "./call-identities.ts";
import { argumentsTextOf, peopleAsked, waitsForPeople } from "./approvals.ts";
import { actorOf } from "./call-policy.ts";
import {
  askerAnswer,
  askerUpdate,
  childOf,
  helpersOfRun,
  wakeDropped,
  wakeQueued,
} from "./helpers.ts";
import type { Services } from "./services.ts";

// What a running turn stores: its state and history, with events that `EventWriter` collects. What its person sees is in
// turn-reply.ts.

/**
 * What a turn starts from: a claim of its session, and the checkpoint of an earlier run if there was one.
 */
export interface TurnStart {
  session: SessionKey;
  epoch: string;
  head: QueuedMessage;
  turn?: TurnState;
  control: ControlEntry[];
  history: Message[];
  settings: SessionSettings;
  totals?: SessionTotals;
  /** This field and the next ones have the meaning that they have in a claim. */
  mayHaveWaited: boolean;
  failures: Claim["failures"];
  ranBefore: boolean;
  deaths: Claim["deaths"];
  /** What the last worker that died with the message has noted. */
  causeOfDeath?: string;
  othersWait: boolean;
  damaged?: string;
  /** The events of an earlier run that are in the event log. */
  published?: PublishedEvents;
  unreadable?: Claim["unreadable"];
  /** The agent that answered is not configured any more. */
  isAgentGone?: boolean;
}

/** Decided, and stored with the next write. */
interface Unsaved {
  history: Message[];
  asked: Approval[];
  absorbed: AbsorbedMessage[];
  context?: CommitRequest["context"];
  settings?: SessionSettings;
  /** The end of a helper's turn, for its asker. */
  end?: HelperEnd;
}

/** The parts of the conversation that cannot be read. */
export function unreadableIn({
  unreadable = [],
}: TurnStart): NonNullable<TurnStart["unreadable"]>[number]["what"][] {
  return unreadable.map(({ what }) => what);
}

const dayMs = 86_400_000;

/** A session that was not used for this share of the time that it is kept is warned of. */
const expiringShare = 0.8;

/** The warning of a session whose last run ended long ago: it was soon to be removed. */
export function expiringSoon({ clock, settings }: Services, { totals }: TurnStart): EngineEvent[] {
  const { conversationDays } = settings.retention;
  const days = totals === undefined ? 0 : (clock.now() - totals.endedAtMs) / dayMs;
  if (conversationDays === 0 || days < conversationDays * expiringShare) return [];
  const message = `The last message is ${Math.floor(days)} days old; conversations are removed after ${conversationDays}.`;
  return [
    {
      type: "warning",
      code: "session_expiring",
      message,
      detail: `${Math.floor(days)}/${conversationDays}`,
    },
  ];
}

/** How a commit ends a turn. */
type Ending = Pick<CommitRequest, "seq" | "more" | "outbox">;

/**
 * The state of a running turn, and its writes. A decision is taken here and stored, with everything that comes with
 * it, by the next `save` or `commit`; all writes carry the epoch of the claim.
 */
export class TurnStore implements TurnLog {
  readonly #services: Services;
  readonly #session: SessionKey;
  readonly #epoch: string;
  readonly #events: EventWriter;
  /** The choices of the session when the turn began. */
  readonly #before: Pick<TurnStart, "settings" | "isAgentGone" | "damaged">;
  #turn: TurnState;
  #history: Message[];
  #unsaved: Unsaved;
  /** No event of the run may have been stored yet. */
  #mayBegin: boolean;
  /** Sessions of helpers that work when the turn ends: it is given up. */
  #dropped: readonly SessionKey[] = [];
  /** What the asker of a helper knows that the helper waits for, as the checkpoint has it. */
  #reportedWait: HelperWait | undefined;
  /** What is asked, or is to be asked, on the card of the reply. */
  #asks: readonly AskedInReply[] = [];
  /** Control entries decided on but not yet acknowledged. */
  #consumed = 0;
  #settings: SessionSettings | undefined;
  /** What the session has used in the runs before; with this run once it is committed. */
  #totals: SessionTotals | undefined;
  /** The model step that streams right now. */
  live: LiveStep | undefined;
  /** The time from the receipt of the message until its first text was visible, ms. */
  firstTextMs: number | undefined;

  /** `onLost` is called when another worker has taken the session over. */
  constructor(services: Services, start: TurnStart, turn: TurnState, onLost: () => void) {
    const { session, epoch, history, totals, published = new Set() } = start;
    this.#totals = totals;
    this.#before = start;
    this.#services = services;
    this.#session = session;
    this.#epoch = epoch;
    this.#turn = turn;
    this.firstTextMs = turn.shown.firstTextMs;
    this.#history = [...history];
    this.#unsaved = { history: [], asked: [], absorbed: [], ...replacementsOf(start) };
    const parentRunId = turn.message.task?.turnId;
    const run = {
      session,
      epoch,
      runId: turn.turnId,
      agent: agentOfTurn(turn),
      published,
      parentRunId,
    };
    this.#events = new EventWriter(services, run, onLost);
    this.#mayBegin = start.turn === undefined || start.turn.steps === 0;
    this.#reportedWait = start.turn?.message.task === undefined ? undefined : waitOf(start.turn);
  }

  get turn(): TurnState {
    return this.#turn;
  }

  /** What the model gets to see. */
  get history(): Message[] {
    return this.#history;
  }

  /** The choices that this turn has made for the session, if any. */
  get settings(): SessionSettings | undefined {
    return this.#settings;
  }

  /** What the session has used, with this turn once it is committed. */
  get totals(): SessionTotals | undefined {
    return this.#totals;
  }

  /** What the requester is asked on the card of the reply: stored, and not decided yet. */
  get asks(): readonly AskedInReply[] {
    return this.#asks.filter(({ approval: { id } }) => this.#waitsFor(id));
  }

  #waitsFor(approvalId: string): boolean {
    return this.#turn.calls.some((call) => call.approvalId === approvalId && waitsForPeople(call));
  }

  /** Reads what another run of this turn has asked. Must come before its card is drawn. */
  async readAsks(): Promise<void> {
    const waiting = this.#turn.calls.filter(waitsForPeople);
    const ids = waiting.flatMap(({ approvalId }) => approvalId ?? []);
    if (ids.length > 0) this.#asks = await this.#services.approvals.inReply(this.#session, ids);
  }

  /** These are not asked on the card of the reply. */
  dropAsks(asked: readonly Approval[]): void {
    const ids = new Set(asked.map(({ id }) => id));
    this.#asks = this.#asks.filter(({ approval: { id } }) => !ids.has(id));
  }

  /** Publishes what happens between writes. */
  publish(event: EngineEvent): void {
    this.#events.push(event);
  }

  /** Takes over a decision, which the next write stores. */
  take(transition: Transition): void {
    const {
      turn,
      history,
      events,
      context,
      settings,
      absorbed = [],
      asked = [],
      next,
    } = transition;
    if (next.do === "finish" && turn.message.task !== undefined) {
      this.#unsaved.end = helperEnd(transition);
    }
    if (next.do === "finish" && calledHelpersOf(this.#turn) !== undefined) {
      this.#dropped = runningHelpers(this.#turn).flatMap(({ helper }) => helper?.session ?? []);
    }
    const agent = agentOfTurn(this.#turn); // before a hand-over
    const said = signedBy(history, { agent, team: teamOfTurn(this.#turn)?.name });
    this.#turn = turn;
    this.#history.push(...said);
    this.#unsaved.history.push(...said);
    this.#unsaved.absorbed.push(...absorbed);
    this.#unsaved.asked.push(...asked);
    const cut = this.#unsaved.context;
    // A cut counts the messages up to its write, which come in the same write as these.
    if (cut !== undefined) this.#unsaved.context = { ...cut, keep: cut.keep + history.length };
    if (context !== undefined) {
      this.#history = cutHistory(this.#history, context);
      this.#unsaved.context = context;
    }
    if (settings !== undefined) this.#settings = this.#unsaved.settings = settings;
    if (this.#mayBegin) this.#events.tellWith(personMessageOf(turn.message));
    this.#mayBegin = false;
    for (const event of events) this.#events.push(event);
  }

  /** The decision that follows handles these control entries; the next write removes them. */
  consume(control: readonly ControlEntry[]): void {
    this.#consumed += control.length;
  }

  /** Whether people have answered a helper, and its asker does not know yet. */
  get waitIsOver(): boolean {
    const update = this.#askerUpdate();
    return update !== undefined && update.wait === undefined;
  }

  /**
   * The update for the asker of a helper; undefined where nothing is new, and for the turn of a person's message.
   */
  #askerUpdate(): AskerUpdate | undefined {
    const { task } = this.#turn.message;
    return task === undefined
      ? undefined
      : askerUpdate(this.#services, this.#turn, this.#reportedWait);
  }

  /** `hold`: keep running while the open calls are worked on. */
  async save(how: SaveRequest["mode"] | "hold"): Promise<SaveResult> {
    const mode = how === "hold" ? "continue" : how;
    const { history, context, absorbed, asked } = this.#unsaved;
    const asker = this.#askerUpdate();
    const { putOff } = this.#turn.requests;
    const inReply = asked.filter((one) => one.inReply === true);
    const asksInReply = inReply.length > 0 || this.asks.length > 0;
    const turn = asksInReply ? withNeed(this.#turn, "ask-in-reply") : this.#turn;
    const result = await this.#services.store.save({
      session: this.#session,
      epoch: this.#epoch,
      history,
      events: await this.#takenEvents(),
      consumed: this.#consumed,
      turn: withFirstText(turn, this.firstTextMs),
      needs: needsOfChoices(this.#services, this.#before.settings),
      open:
        how === "suspend" || how === "hold"
          ? openCallsOf(this.#services, this.#turn, this.#history)
          : [],
      mode,
      ...(putOff === undefined ? {} : { wakeAtMs: putOff.atMs }),
      ...(context === undefined ? {} : { context }),
      ...(asked.length === 0 ? {} : { approvals: asked }),
      ...(mode === "suspend" && waitsForPeopleOnly(this.#turn)
        ? { waits: this.#turn.message.sender.id }
        : {}),
      ...(asker === undefined ? {} : { asker }),
      ...(absorbed.length === 0 ? {} : { absorbed: absorbed.map(({ seq }) => seq) }),
    });
    const { settings } = this.#unsaved;
    this.#unsaved = {
      history: [],
      asked: [],
      absorbed: [],
      ...(settings === undefined ? {} : { settings }),
    };
    this.#consumed = 0;
    if (result.state === "fenced") return result;
    if (asked.length > 0) peopleAsked(this.#services, asked);
    this.#asks = [...this.#asks, ...inReply.map((approval) => ({ approval, reasonAskedAtMs: 0 }))];
    if (asker === undefined) return result;
    this.#reportedWait = asker.wait;
    await wakeQueued(this.#services, asker.session);
    return result;
  }

  async commit(ending: Ending): Promise<CommitResult> {
    const { history, context } = this.#unsaved;
    const settings = choicesAfter(this.#turn, this.#before, this.#unsaved.settings);
    this.#settings = settings ?? this.#settings;
    const endedAtMs = this.#services.clock.now();
    const totals = (this.#totals = { ...useWith(this.#turn, this.#totals), endedAtMs });
    this.#events.push(sessionInfo(this.#session, totals));
    const { end } = this.#unsaved;
    const asker = end === undefined ? undefined : askerAnswer(this.#turn, end, endedAtMs);
    const result = await this.#services.store.commit({
      ...ending,
      ...(asker === undefined ? {} : { asker }),
      ...(calledHelpersOf(this.#turn) === undefined ? {} : { helpers: true }),
      session: this.#session,
      epoch: this.#epoch,
      history,
      events: await this.#takenEvents(),
      totals,
      needs: needsOfChoices(this.#services, settings ?? this.#before.settings),
      ...(context === undefined ? {} : { context }),
      ...(settings === undefined ? {} : { settings }),
    });
    if (result.state === "fenced") return result;
    // A checkpoint that cannot be read names none of them.
    if (this.#before.damaged !== undefined) {
      this.#dropped = await helpersOfRun(this.#services, this.#turn);
    }
    if (this.#dropped.length > 0) await wakeDropped(this.#services, this.#dropped);
    return result;
  }

  /** The events of this run, with the ends of the runs of messages that have joined it. */
  async #takenEvents(): Promise<NewEvent[]> {
    const events = await this.#events.take();
    const takenBy = this.#turn.turnId;
    const agent = agentOfTurn(this.#turn);
    const about = { agent, atMs: this.#services.clock.now(), event: joinedEvent(takenBy, agent) };
    return [
      ...events,
      ...this.#unsaved.absorbed.map(({ runId, person }) => ({ runId, person, ...about })),
    ];
  }
}

function withFirstText(turn: TurnState, firstTextMs: number | undefined): TurnState {
  return firstTextMs === undefined ? turn : { ...turn, shown: { ...turn.shown, firstTextMs } };
}

function withNeed(turn: TurnState, feature: string): TurnState {
  const { needs = [], ...rest } = turn;
  return { needs: [...new Set([...needs, feature])], ...rest };
}

/** The attempts of a turn that runners and helpers work on. */
function openCallsOf(services: Services, turn: TurnState, history: readonly Message[]): OpenCall[] {
  const running = turn.calls.filter(({ state }) => state === "running");
  return running.map((call) => {
    const open = {
      callId: attemptOf(call),
      deadlineMs: call.deadlineMs ?? Number.MAX_SAFE_INTEGER,
    };
    const facts = factsOf(turn, call);
    const child = call.helper === undefined ? undefined : childOf(services, turn, call, history);
    if (child === undefined) return { ...open, facts };
    return { ...open, facts: { ...facts, child: child.message.session }, child };
  });
}

/** What the audit log says of a call. */
function factsOf(turn: TurnState, call: CallState): CallFacts {
  const { userName: _userName, ...actor } = actorOf(turn);
  const { authority, runner } = call;
  return {
    ...actor,
    turnId: turn.turnId,
    tool: call.name,
    argumentsHash: argumentsHashOf(argumentsTextOf(call)),
    ...identityFactsOf(turn, call),
    ...(runner === undefined ? {} : { runner }),
    ...(authority?.by === "approval" ? { approvalId: authority.id } : {}),
    ...(authority?.by === "rule" ? { ruleId: authority.id } : {}),
  };
}

/** Whether a turn in a group waits for people and for nothing else, so that turns of others may come before its end. */
function waitsForPeopleOnly({ calls, message }: TurnState): boolean {
  const open = calls.filter(({ state }) => state !== "done");
  if (message.task !== undefined) return false; // a child session has one message
  return message.chatType === "group" && open.length > 0 && open.every(waitsForPeople);
}

/** What the next write puts in place of unreadable fields: default settings, and all that is left of the context. */
function replacementsOf({
  unreadable = [],
  history,
}: TurnStart): Pick<Unsaved, "context" | "settings"> {
  const isUnreadable = (what: "settings" | "summary"): boolean =>
    unreadable.some((each) => each.what === what);
  return {
    ...(isUnreadable("summary") ? { context: { keep: history.length } } : {}),
    ...(isUnreadable("settings") ? { settings: {} } : {}),
  };
}

/** The choices of a session after a turn, if they are other ones; `chosen`: by the turn itself. */
function choicesAfter(
  turn: TurnState,
  { settings: before, isAgentGone: isGone = false }: Pick<TurnStart, "settings" | "isAgentGone">,
  chosen: SessionChoices | undefined,
): SessionChoices | undefined {
  const { message } = turn;
  const handOvers = handedOverBy(turn).length;
  if (handOvers === 0 && (!isGone || chosen !== undefined)) return chosen;
  const { agent: _agent, ...rest } = chosen ?? before;
  const [from, to] = [message.agent ?? "default", teamOfTurn(turn)?.name ?? agentOfTurn(turn)];
  return handOvers === 0 || to === from ? rest : { ...rest, agent: { from, to } };
}

/** The features that a process needs to continue a session with these choices. */
function needsOfChoices({ agents }: Services, { agent }: SessionChoices): readonly string[] {
  if (agent === undefined) return [];
  const isTeam = (agents.get(agent.to)?.config.team ?? null) !== null;
  return isTeam ? ["hand-over", "team"] : ["hand-over"];
}

interface EventedRun {
  session: SessionKey;
  epoch: string;
  runId: string;
  /** The agent that answers when the run begins or continues. */
  agent: string;
  /** What a worker before this one has published of the run: nothing of it is published again. */
  published: PublishedEvents;
  /** The run of the asker, where this is the run of a helper. */
  parentRunId?: string | undefined;
}

// The first deltas of an answer go out after this time, so that an answer that is complete by then
// costs no write of its own; later ones are collected for longer. Other events can wait for those:
// the write that goes with a step is rarely far.
const firstDeltaDelayMs = 15;
const laterDeltaDelayMs = 50;
const otherDelayMs = 150;

/**
 * Publishes the events of a run while it generates, a few times a second at most. What is still
 * collected when the turn saves goes along with that write. Followers get text without images, so
 * the names of stored ones take their place; the results of tools are published as they are.
 */
export class EventWriter {
  readonly #services: Services;
  readonly #run: EventedRun;
  readonly #onLost: () => void;
  #agent: string;
  #pending: NewEvent[] = [];
  #cancelTimer: (() => void) | undefined;
  #timerDelayMs = 0;
  #writing: Promise<void> = Promise.resolve();
  #written = false;
  /** Batches are numbered: one whose write was not confirmed is written once more, and published once. */
  #batches = 0;
  #unconfirmed: { number: number; events: NewEvent[] } | undefined;
  #person: PersonMessage | undefined;
  /** End of the text so far that may become the mark of an image. */
  #openText = "";

  /** `onLost` is called when another worker has taken the session over. */
  constructor(services: Services, run: EventedRun, onLost: () => void) {
    this.#services = services;
    this.#run = run;
    this.#onLost = onLost;
    this.#agent = run.agent;
  }

  /** What the person said goes with the next event. */
  tellWith(person: PersonMessage): void {
    this.#person = person;
  }

  push(event: EngineEvent): void {
    if (event.type !== "text_delta") {
      // The text that the held end belongs to is over; one that begins anew voids it.
      this.#endText();
      return this.#push(this.#complete(event));
    }
    // No mark of an image begins or continues in it.
    if (this.#openText === "" && !event.text.includes("!")) {
      return event.text === "" ? undefined : this.#push(event);
    }
    const { shown, open } = splitAtOpenMark(this.#openText + event.text);
    this.#openText = open;
    if (shown !== "") this.#push({ type: "text_delta", text: shown });
  }

  #complete(event: EngineEvent): EngineEvent {
    const shown = withoutImages(event);
    return isTerminal(shown) ? { ...shown, agent: this.#agent } : shown;
  }

  #endText(): void {
    const text = withoutImageMarks(this.#openText);
    this.#openText = "";
    if (text !== "") this.#push({ type: "text_delta", text });
  }

  #push(event: EngineEvent): void {
    const key = keyOf(event);
    if (key !== undefined && this.#run.published.has(key)) return;
    const last = this.#pending.at(-1)?.event;
    if (last !== undefined && isDelta(last) && last.type === event.type && isDelta(event)) {
      last.text += event.text;
    } else this.#pending.push(this.#recordOf(isDelta(event) ? { ...event } : event));
    if (event.type === "agent_changed") this.#agent = event.to;
    this.#flushIn(delayOf(event, this.#written));
  }

  #recordOf(event: EngineEvent): NewEvent {
    const person = this.#person;
    this.#person = undefined;
    const { runId, parentRunId } = this.#run;
    const record: NewEvent = { runId, agent: this.#agent, atMs: this.#services.clock.now(), event };
    if (parentRunId !== undefined) record.parentRunId = parentRunId;
    return person === undefined ? record : { ...record, person };
  }

  #flushIn(delayMs: number): void {
    if (this.#cancelTimer !== undefined && this.#timerDelayMs <= delayMs) return;
    this.#cancelTimer?.();
    this.#timerDelayMs = delayMs;
    this.#cancelTimer = this.#services.clock.after(delayMs, () => this.#flush());
  }

  /**
   * Everything not yet published, for the caller to write; waits for a write that is under way. Rejects where it stays
   * unknown whether the last batch was published.
   */
  async take(): Promise<NewEvent[]> {
    this.#endText();
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    await this.#writing;
    await this.#publishUnconfirmed();
    const taken = this.#pending;
    this.#pending = [];
    return taken;
  }

  #flush(): void {
    this.#cancelTimer = undefined;
    this.#writing = this.#writing.then(async () => await this.#write());
  }

  async #write(): Promise<void> {
    try {
      await this.#publishUnconfirmed();
      const events = this.#pending;
      const last = events.at(-1)?.event;
      // The end of a run is stored with its state, and with the totals that follow it.
      if (last === undefined || isTerminal(last)) return;
      this.#pending = [];
      this.#written ||= events.some(({ event }) => isDelta(event));
      this.#batches += 1;
      this.#unconfirmed = { number: this.#batches, events };
      await this.#publishUnconfirmed();
    } catch {
      // The batch goes with the next write.
    }
  }

  async #publishUnconfirmed(): Promise<void> {
    if (this.#unconfirmed === undefined) return;
    const { session, epoch } = this.#run;
    const isOurs = await this.#services.store.emit({ session, epoch, ...this.#unconfirmed });
    this.#unconfirmed = undefined;
    if (!isOurs) this.#onLost();
  }
}

function withoutImages(event: EngineEvent): EngineEvent {
  if (event.type === "text") return { ...event, text: withoutImageMarks(event.text) };
  if (event.type !== "done") return event;
  const reply = event.reply === undefined ? {} : { reply: withoutImageMarks(event.reply) };
  return { ...event, final: withoutImageMarks(event.final), ...reply };
}

function delayOf(event: EngineEvent, written: boolean): number {
  if (!isDelta(event)) return otherDelayMs;
  return written ? laterDeltaDelayMs : firstDeltaDelayMs;
}

function isDelta(
  event: EngineEvent,
): event is Extract<EngineEvent, { type: "text_delta" | "thinking_delta" }> {
  return event.type === "text_delta" || event.type === "thinking_delta";
}

/** Keys of events that a run may have once only. */
type PublishedEvents = ReadonlySet<string>;

/** What an event is the only one of in its run; undefined for those that may come again. */
function keyOf(event: EngineEvent): string | undefined {
  switch (event.type) {
    case "turn_start":
    case "turn_end":
      return `${event.type} ${event.turnNumber}`;
    case "tool_result":
    case "tool_summary":
      return `${event.type} ${event.id}`;
    case "slash_command":
    case "session_info":
      return event.type;
    case "memory_query":
      return event.automatic ? event.type : undefined;
    default:
      return undefined;
  }
}

const pageSize = 500;
/** Events of a session that are looked at, newest first: more than a model step publishes. */
const maxLooked = 10_000;

/**
 * What is in the log of a run whose worker died: it may have published more than it saved. Called by the worker that
 * holds the session, so that nothing is added meanwhile.
 */
export async function publishedBefore(
  { store, eventLog }: Services,
  session: SessionKey,
  runId: string,
): Promise<PublishedEvents> {
  const found = new Set<string>();
  const { eventSeq } = await store.summary(session);
  const first = Math.max(0, eventSeq - maxLooked);
  for (let after = eventSeq; after > first && !found.has("turn_start 1");) {
    after = Math.max(first, after - pageSize);
    for (const record of await eventLog.read(session, after, pageSize)) {
      const key = record.runId === runId ? keyOf(record.event) : undefined;
      if (key !== undefined) found.add(key);
    }
  }
  return found;
}
