import { scrubText, type Span, type Tags, type Telemetry } from "@larkline/process/telemetry";
import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import { asksRequesterAlone, type Approval } from "@larkline/protocol/approval";
import type { Clock } from "@larkline/protocol/clock";
import type { Message } from "@larkline/protocol/content";
import type { ModelFailure, ModelRetry } from "@larkline/protocol/model-stream";
import type { ReplyView } from "@larkline/protocol/reply-view";
import { withoutImageMarks } from "@larkline/protocol/stored-image";
import { traceparentOfMessage } from "@larkline/protocol/trace";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import type {
  CommitResult,
  SessionSettings,
  SessionTotals,
  AskedInReply,
  OutboxRecord,
} from "@larkline/store";
import { allAbilities } from "@larkline/agent";
import type { ChosenModel, Left } from "@larkline/agent/drive";
import { answerUuid, languageOfMessage } from "@larkline/agent/messages";
import {
  finalView,
  inLanguage,
  runningView,
  withAgentTitles,
  type ViewOptions,
} from "@larkline/agent/view";
import type { LiveReply } from "@larkline/feishu";
import type { Agent, TurnOptions } from "./agent.ts";
import type { TurnMemories } from "./memories.ts";
import type { EndedRun } from "./run-records.ts";
import type { PersonZone } from "./schedules.ts";
import type { Services } from "./services.ts";
import type { TurnBudget } from "./turn-budget.ts";
import type { TurnStart, TurnStore } from "./turn-output.ts";
import { asksPlaced } from "./approvals.ts";

/** What the parts of a run share: agent, store, reply and budgets. */
export interface RunningTurn extends TurnSlot {
  /** The agent that answers; `model`, `options` and `memories` are those of this agent. */
  agent: Agent;
  model: ChosenModel;
  options: TurnOptions;
  /** The agent when the turn began, whose limits and form of reply hold for the whole turn. */
  first: Agent;
  stored: TurnStore;
  /** The budgets that the run draws on; undefined where the deployment has none. */
  budget: TurnBudget | undefined;
  /** The memories of the turn; undefined for an agent without memory. */
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
      /** The failure of the model, when the turn ended in it. */
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

/** What the person of a turn sees: the card that types while the turn runs, and the record of its answer. */
export class TurnReply {
  readonly #services: Services;
  readonly #run: RunningTurn;
  #card: LiveReply | undefined;
  /** What the card shows now. */
  #view: (() => ReplyView) | undefined;
  /** Whether each question of before is on the card. */
  readonly #placed = new Map<string, boolean>();

  constructor(services: Services, run: RunningTurn) {
    this.#services = services;
    this.#run = run;
  }

  /** Begins the card, or continues it. Nothing where the answer is sent whole, or to no person. */
  open(epoch: string): void {
    const { message, turnId } = this.#run.stored.turn;
    const options = this.#viewOptions();
    const { reply, session, id } = message;
    if (options === undefined || reply.channel !== "feishu") return;
    const { liveReplies } = this.#services;
    const { stored } = this.#run;
    // An answer with fields is shown when it is complete: until then it is JSON.
    const live = () =>
      this.#run.options.form === undefined || stored.live === undefined
        ? stored.live
        : { ...stored.live, text: "" };
    const running = (): ReplyView =>
      this.#titled(runningView(stored.turn, live(), this.#viewOptions() ?? options));
    this.#view = running;
    const { channel: _channel, ...target } = reply;
    this.#card = liveReplies.open({
      session,
      replyId: turnId,
      epoch,
      target,
      uuid: answerUuid(reply.app, id),
      view: () => (this.#view ?? running)(),
      asks: () => stored.asks,
      onAsked: (asks, isPlaced) => void this.#place(asks, isPlaced),
      traceparent: traceparentOfMessage(message),
    });
    this.#card?.changed();
  }

  /** What the card shows beside the answer; undefined where the answer is its text and nothing else. */
  #viewOptions(): ViewOptions | undefined {
    const { message, agent } = this.#run.stored.turn;
    const { command, reply } = message;
    const { config, speech } = this.#run.agent;
    const isCard = this.#run.first.config.reply === "card" && command === undefined;
    if (!isCard || reply.channel !== "feishu" || reply.object !== undefined) return undefined;
    const { bots, clock, settings } = this.#services;
    const { feishu } = bots.get(reply.app)?.settings ?? settings.bots.default;
    return {
      abilities: allAbilities,
      language: languageOfMessage(message, speech.texts),
      bilingual: speech.texts === undefined && message.chatType === "group",
      show: config.card,
      nowMs: clock.now(),
      model: this.#run.model.chain.primary.displayName,
      ...(agent === undefined ? {} : { agent }),
      footer: { line: feishu.footer, consoleUrl: settings.consoleUrl, currency: settings.currency },
      stoppable: true,
      maxCards: feishu.maxCards,
    };
  }

  /** Questions that the requester alone answers stand on the card of the reply, where there is one. */
  withPlaces(asked: readonly Approval[]): Approval[] {
    const hasCard = this.#card !== undefined;
    return asked.map((one) =>
      hasCard && asksRequesterAlone(one) ? { ...one, inReply: true } : one,
    );
  }

  /** Questions may be stored now: not before may the card show them. */
  saved(): void {
    if (this.#run.stored.asks.length > 0) this.#card?.changed();
  }

  async #place(asks: readonly AskedInReply[], isPlaced: boolean): Promise<void> {
    const news = asks.filter(({ approval: { id } }) => this.#placed.get(id) !== isPlaced);
    for (const { approval } of news) this.#placed.set(approval.id, isPlaced);
    const moved = news.map(({ approval }) => approval);
    const elsewhere = await asksPlaced(this.#services, moved, isPlaced);
    if (elsewhere.length === 0) return;
    this.#run.stored.dropAsks(elsewhere);
    this.#card?.changed();
  }

  /** The turn has changed. */
  changed(): void {
    this.#card?.changed();
  }

  /** Stops updates of the card; the delivery of the answer shows how the turn ended. */
  freeze(): void {
    this.#card?.answered();
    const seen = this.#view?.();
    if (seen !== undefined) this.#view = () => seen;
  }

  /** The turn is suspended: the worker that resumes it continues the same card. */
  pause(): void {
    this.saved();
    this.#card?.pause();
    this.#card = undefined;
  }

  /** Resolves when all writes to the card have ended. */
  async release(): Promise<void> {
    await this.#card?.release();
  }

  /**
   * The record of the turn's answer for the outbox; undefined when there is nothing to send or no place to send it to.
   * `answeredBy`: id of the model of the last step.
   */
  outboxRecord(
    text: string | undefined,
    reason: string,
    answeredBy: string | undefined,
  ): OutboxRecord | undefined {
    const { turn } = this.#run.stored;
    const { reply, session, id } = turn.message;
    if (reply.channel === "none" || text === undefined || text.trim() === "") return undefined;
    const view = this.#finalView(text, reason, answeredBy);
    const said = inLanguage(text, languageOfMessage(turn.message, this.#run.agent.speech.texts));
    // Where there is no card, what stands below its answer comes after the text.
    const whole = view === undefined ? [said, ...turn.shown.notes].join("\n\n") : said;
    return {
      v: 1,
      id: turn.turnId,
      uuid: answerUuid(reply.app, id),
      session,
      target: {
        app: reply.app,
        chatId: reply.chatId,
        messageId: reply.messageId,
        inThread: reply.inThread,
        ...(reply.object === undefined ? {} : { object: reply.object }),
      },
      text: withoutImageMarks(whole),
      ...(view === undefined ? {} : { view }),
      ...(reply.object !== undefined && reason === "" ? { isDone: true as const } : {}),
      traceparent: traceparentOfMessage(turn.message),
      askedAtMs: turn.message.createdAtMs,
      createdAtMs: this.#services.clock.now(),
      attempts: 0,
      uncertainSinceMs: 0,
    };
  }

  #asksForRating(): boolean {
    const { bots, settings } = this.#services;
    return (bots.get(this.#run.stored.turn.message.app)?.settings ?? settings.bots.default).feishu
      .feedback;
  }

  #finalView(reply: string, reason: string, answeredBy: string | undefined): ReplyView | undefined {
    const options = this.#viewOptions();
    if (options === undefined) return undefined;
    const answered = this.#run.model.chain.models.find(({ id }) => id === answeredBy);
    const model = answered?.displayName ?? options.model;
    const ratedModel = this.#asksForRating() ? (answeredBy ?? "") : undefined;
    const end = { reply, reason };
    const view = this.#titled(
      finalView(this.#run.stored.turn, end, { ...options, model, ratedModel }),
    );
    const imageHosts = this.#run.agent.config.egress.slice(0, maxImageHosts);
    return imageHosts.length === 0 ? view : { ...view, imageHosts };
  }

  /** Puts the titles of agents in place of their names. */
  #titled(view: ReplyView): ReplyView {
    const { agents } = this.#services;
    return withAgentTitles(view, (name) => agents.get(name)?.config.title ?? name);
  }
}

const maxImageHosts = 100;

/** Takes back what ingress has put on a message, or below it, when it stops being true. Waits for nothing; never throws. */
export function takeBackReaction(
  { bots }: Services,
  { app, reply }: InboundMessage,
  purpose: "queued" | "typing",
): void {
  const bot = bots.get(app);
  if (bot === undefined || reply.channel !== "feishu" || reply.messageId === "") return;
  const { queueNotice, typing } = bot.settings.feishu;
  const isShown = purpose === "queued" ? queueNotice === "reaction" : typing;
  if (isShown) void bot.reactions.remove(reply.messageId, purpose);
  // Whatever the setting is: a line also says what the person has to answer first.
  if (purpose === "queued") void bot.reactions.remove(reply.messageId, "line");
}
