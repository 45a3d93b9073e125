import { sessionIdOf, sessionKeyOf } from "@larkline/agent/messages";
import type { FeishuMessage } from "@larkline/feishu";
import { agentNamed, type AgentConfig, type BusyPolicy } from "@larkline/process/config";
import type { Span, Telemetry } from "@larkline/process/telemetry";
import {
  turnIdOf,
  type CancelReason,
  type InboundMessage,
  type ReplyLanguage,
  type SessionKey,
} from "@larkline/protocol";
import { withDeadline } from "@larkline/protocol/clock";
import { traceparentOfMessage, type Traceparent } from "@larkline/protocol/trace";
import type { AppendResult, OutboxTarget } from "@larkline/store";
import type { Bot } from "./bot.ts";
import type { Channel, Services } from "./services.ts";

// Finds the session of a message, appends the message, wakes the session, stops its turn, and reports to observers.

/** A message that gives an order, and the language of the answer. */
export interface Ordered {
  message: InboundMessage;
  language: ReplyLanguage;
}

/** Where a message belongs and where its answer goes. */
export interface Place {
  session: SessionKey;
  target: OutboxTarget;
  /** First message of the thread that the conversation lives in. */
  threadRootId?: string;
}

/**
 * How long a place is kept: as long as a message can be recalled unasked ("Recall message": a day by default).
 */
const placeKeptMs = 24 * 3_600_000;

/**
 * Finds the place of a message; rejects with an EngineError when an id cannot be part of a key.
 *
 * Replies name the first message of their thread; that message itself already has the thread's id and belongs to the
 * same conversation. In groups in topic form replies may come without a thread id, and their root names the topic.
 * Elsewhere a quoted message changes nothing: a root without a thread is a chain of quotes ("Thread introduction").
 */
export async function placeOf(
  services: Services,
  bot: Bot,
  message: FeishuMessage,
): Promise<Place> {
  const { chatId, messageId } = message;
  const root = await rootOf(services, bot, message);
  const session = sessionIn(bot, message, root);
  if (dependsOnChat(message) || session !== chatSession(bot.app, chatId)) {
    await services.lookups.set(placeKey(bot, messageId), session, placeKeptMs);
  }
  return {
    session,
    target: { app: bot.app, chatId, messageId, inThread: root !== undefined },
    ...(root === undefined || root === messageId ? {} : { threadRootId: root }),
  };
}

async function rootOf(
  services: Services,
  bot: Bot,
  message: FeishuMessage,
): Promise<string | undefined> {
  const { chatId, messageId, rootId, threadId } = message;
  if (!dependsOnChat(message)) return threadId === undefined ? undefined : (rootId ?? messageId);
  // A message that is delivered again goes where it went before: any other session would answer it once more.
  const before = await services.lookups.get(placeKey(bot, messageId));
  const isInTopic =
    before === undefined
      ? await isTopical(services, bot, chatId)
      : before === sessionIn(bot, message, rootId);
  return isInTopic ? rootId : undefined;
}

/** Whether the place depends on what the chat is at the moment. */
function dependsOnChat({ chatType, rootId, threadId }: FeishuMessage): boolean {
  return threadId === undefined && rootId !== undefined && chatType !== "p2p";
}

function sessionIn(bot: Bot, message: FeishuMessage, rootId: string | undefined): SessionKey {
  const { chatId, chatType, messageId, senderOpenId } = message;
  const personal =
    chatType === "group" && bot.agentIn(chatId).sessions === "sender" ? `:${senderOpenId}` : "";
  return sessionKeyOf(bot.app, `${sessionIdOf({ chatId, rootId, messageId })}${personal}`);
}

/** The conversation of a whole chat. Throws an EngineError when an id cannot be part of a key. */
export function chatSession(app: string, chatId: string): SessionKey {
  return sessionKeyOf(app, sessionIdOf({ chatId }));
}

/** The session that a message was put into, as far as it is remembered. */
export async function sessionOfMessage(
  services: Services,
  bot: Bot,
  { chatId, messageId }: { chatId: string; messageId: string },
): Promise<SessionKey> {
  return (await services.lookups.get(placeKey(bot, messageId))) ?? chatSession(bot.app, chatId);
}

function placeKey({ app }: Bot, messageId: string): string {
  return `place:${app}:${messageId}`;
}

/** A message must be acknowledged in time, whatever the platform takes to answer. */
const askDeadlineMs = 800;
const chatKindKeptMs = 24 * 3_600_000;
/** The platform is not asked again with every message of a chat that it knows nothing about. */
const unknownKindKeptMs = 60_000;

/** Whether every conversation of this group is a topic. False when the platform does not say in time. */
async function isTopical(services: Services, bot: Bot, chatId: string): Promise<boolean> {
  const known = await services.lookups.get(topicalKey(bot, chatId));
  if (known !== undefined) return known === "yes";
  // Messages that come meanwhile share one question: later ones must not overtake earlier ones.
  const asking = bot.topicQuestions.get(chatId);
  if (asking !== undefined) return await asking;
  const question = askWhetherTopical(services, bot, chatId).finally(() =>
    bot.topicQuestions.delete(chatId),
  );
  bot.topicQuestions.set(chatId, question);
  return await question;
}

async function askWhetherTopical(services: Services, bot: Bot, chatId: string): Promise<boolean> {
  const { clock, lookups } = services;
  const ask = async (): Promise<boolean> => {
    const { mode, groupMessageType } = await bot.api.chat(chatId);
    const topical = mode === "topic" || groupMessageType === "thread";
    const keptMs = mode === undefined ? unknownKindKeptMs : chatKindKeptMs;
    await lookups.set(topicalKey(bot, chatId), topical ? "yes" : "no", keptMs);
    return topical;
  };
  try {
    return await withDeadline(clock, ask(), askDeadlineMs);
  } catch (error) {
    bot.log.warn({ error, chatId }, "kind of chat unknown, taken for an ordinary group");
    await lookups.set(topicalKey(bot, chatId), "no", unknownKindKeptMs);
    return false;
  }
}

/** The chat has changed: the platform is asked again next time. */
export async function forgetChatKind(services: Services, bot: Bot, chatId: string): Promise<void> {
  await services.lookups.delete(topicalKey(bot, chatId));
}

function topicalKey({ app }: Bot, chatId: string): string {
  return `topical:${app}:${chatId}`;
}

/**
 * The part of a message that says which agent is to answer it: none where that is the agent `default`. An agent that may
 * hand over leads to sessions that workers of earlier versions would answer with the wrong one.
 */
export function answeredBy({
  name,
  handoffs,
  team,
}: AgentConfig): Pick<InboundMessage, "agent" | "needs"> {
  return {
    ...(name === "default" ? {} : { agent: name }),
    ...(handoffs.length === 0 ? {} : { needs: ["hand-over"] }),
    ...(team === null ? {} : { needs: ["hand-over", "team"] }),
  };
}

/** The busy policy of the agent that answers, which may be another one than the one that a message is for. */
export async function busyPolicyOf(
  { clock, settings, store }: Services,
  channel: Channel,
  agent: AgentConfig,
  session: SessionKey,
): Promise<BusyPolicy> {
  if (agent.handoffs.length === 0) return agent.busy;
  const { settings: choices, turn } = await withDeadline(
    clock,
    store.summary(session),
    channel.storeDeadlineMs,
  );
  const { from, to } = choices.agent ?? { from: "", to: "" };
  const name = turn?.agent ?? (from === agent.name ? to : agent.name);
  return agentNamed(settings, name)?.busy ?? agent.busy;
}

/** How a message is stored. */
interface Appending {
  policy: BusyPolicy;
  /** It may answer an open question of its session: then the result is `asks`, and nothing is stored. */
  mayAnswer?: boolean;
}

/**
 * Stores a message as the agent's busy policy says; `busy` when the session is at work and takes nothing meanwhile.
 * Append, then wake, then acknowledge: the caller passes `wakeGen` to {@link wakeSession}, for a duplicate, too. Rejects
 * when the message could not be stored, or not in time.
 */
export async function appendMessage(
  services: Services,
  channel: Channel,
  message: InboundMessage,
  { policy, mayAnswer = false }: Appending,
): Promise<AppendResult | "busy"> {
  const { clock, store, telemetry } = services;
  // Orders such as `/new` are taken even while the session is busy.
  const refuses = policy === "reject" && message.command === undefined;
  const appending = store.append(message, refuses ? { maxWaiting: 1, mayAnswer } : { mayAnswer });
  const appended = await withDeadline(clock, appending, channel.storeDeadlineMs);
  if (appended.result === "accepted") tellAppended(telemetry, message, appended);
  return refuses && appended.result === "full" ? "busy" : appended;
}

/** Adds the wake-up that a write asked for, if it did; rejects when the wake-up could not be added in time. */
export async function wakeSession(
  { clock, turns }: Services,
  channel: Channel,
  session: SessionKey,
  wakeGen: number | undefined,
): Promise<void> {
  if (wakeGen !== undefined) {
    await withDeadline(clock, turns.wake(session, wakeGen), channel.storeDeadlineMs);
  }
}

/** Stops a turn wherever it runs or waits. */
export async function cancelTurn(
  services: Services,
  channel: Channel,
  { session, turnId, reason }: { session: SessionKey; turnId: string; reason: string },
): Promise<void> {
  const { clock, store, cancels } = services;
  const { storeDeadlineMs } = channel;
  const { wakeGen } = await withDeadline(
    clock,
    store.cancel(session, { turnId, reason }),
    storeDeadlineMs,
  );
  await wakeSession(services, channel, session, wakeGen);
  await withDeadline(clock, cancels.publish({ session, turnId }), storeDeadlineMs);
}

/**
 * Stops the turn that the policy `interrupt` has this message replace: a turn of the same person, never that of another
 * person. True when there was one.
 */
export async function supersedeTurn(
  services: Services,
  channel: Channel,
  { session, sender }: InboundMessage,
  appended: AppendResult,
): Promise<boolean> {
  // The first delivery may have died before its cancel.
  const head =
    appended.result === "duplicate" ? (await services.store.summary(session)).head : appended.head;
  if (head === undefined || head.seq >= appended.seq || !mayStop(head.message, sender.id)) {
    return false;
  }
  await cancelTurn(services, channel, {
    session,
    turnId: turnIdOf(session, head.seq),
    reason: "superseded",
  });
  return true;
}

/** Whether a person may stop the turn that answers this message; cards of direct chats can be forwarded, too. */
function mayStop({ sender }: InboundMessage, by: string): boolean {
  return sender.id === by;
}

export interface StopRequest {
  session: SessionKey;
  /** Who asks; only the person whose message is being answered may stop the turn. */
  by: string;
  /** The turn to stop; absent: the one that runs. */
  turnId?: string;
  /** Names the order where it may be delivered again: a repetition must not stop what started since. */
  orderId?: string;
  reason: CancelReason;
}

export type StopResult =
  /**
   * The turn has its cancel, from this or an earlier delivery of the same order. `message`: the message that it
   * answers.
   */
  | { result: "stopping"; message?: InboundMessage }
  /** Nothing runs, or not that turn any more. */
  | { result: "nothing" }
  /** It is another person's turn. */
  | { result: "not_allowed"; message: InboundMessage };

/** Longer than events are redelivered ("Event subscription overview": 7 hours). */
const orderKeptMs = 24 * 3_600_000;

/** What is remembered of an order that found no turn to stop. */
const noTurn = "none";

/** Stops the turn of a session, if the person may. */
export async function stopTurn(
  services: Services,
  channel: Channel,
  request: StopRequest,
): Promise<StopResult> {
  const { orderId, turnId } = request;
  const before = orderId === undefined ? undefined : await aimOf(services, channel, orderId);
  const result = await stopWanted(services, channel, request, before ?? turnId);
  // The turn that this order stopped has ended since.
  const wasObeyed = result.result === "nothing" && before !== undefined && before !== noTurn;
  return wasObeyed ? { result: "stopping" } : result;
}

async function stopWanted(
  services: Services,
  channel: Channel,
  request: StopRequest,
  wanted: string | undefined,
): Promise<StopResult> {
  const { session, by, reason } = request;
  const summary = await withDeadline(
    services.clock,
    services.store.summary(session),
    channel.storeDeadlineMs,
  );
  const { state, head: first, setAside } = summary;
  const turns = [...(first === undefined ? [] : [first]), ...setAside.map((turn) => turn.head)];
  // Of several waiting turns a person stops their own.
  const meant = turns.find(({ seq, message }) =>
    wanted === undefined ? mayStop(message, by) : turnIdOf(session, seq) === wanted,
  );
  const head = meant ?? first;
  const running = state === "idle" || head === undefined ? noTurn : turnIdOf(session, head.seq);
  const isAllowed = head !== undefined && mayStop(head.message, by);
  // Stored before the cancel, so that a redelivery of the order stops the same turn.
  if (wanted === undefined && request.orderId !== undefined) {
    await keepAim(services, channel, request.orderId, isAllowed ? running : noTurn);
  }
  if (head === undefined || running === noTurn) return { result: "nothing" };
  if (wanted !== undefined && wanted !== running) return { result: "nothing" };
  if (!isAllowed) return { result: "not_allowed", message: head.message };
  await cancelTurn(services, channel, { session, turnId: running, reason });
  return { result: "stopping", message: head.message };
}

async function aimOf(
  { clock, lookups }: Services,
  channel: Channel,
  orderId: string,
): Promise<string | undefined> {
  return await withDeadline(
    clock,
    lookups.get(`stop:${channel.app}:${orderId}`),
    channel.storeDeadlineMs,
  );
}

async function keepAim(
  services: Services,
  channel: Channel,
  orderId: string,
  turnId: string,
): Promise<void> {
  const { clock, lookups } = services;
  const keeping = lookups.set(`stop:${channel.app}:${orderId}`, turnId, orderKeptMs);
  await withDeadline(clock, keeping, channel.storeDeadlineMs);
}

/** The observations of one message. */
export interface ArrivingMessage {
  app: string;
  /** The platform's id of the message. */
  id: string;
  chat: string;
  person: string;
  channel: "feishu" | "api";
  /** The trace that the client has begun; absent: the message's own. */
  traceparent?: Traceparent;
}

/** Outcomes that are no refusal: the message is stored, or was an order that is carried out. */
const takenOutcomes: ReadonlySet<string> = new Set(["accepted", "command", "answer"]);

/** Reports one message to observers, from its receipt until it is stored, answered or refused. */
export class MessageWatch {
  readonly #services: Services;
  readonly #telemetry: Telemetry;
  readonly #message: ArrivingMessage;
  readonly #startedMs: number;
  readonly #tags: { traceparent: Traceparent; message: string };
  readonly #span: Span;

  /** Begins the span. */
  constructor(services: Services, message: ArrivingMessage) {
    const { app, id, chat, person, channel } = message;
    this.#services = services;
    this.#telemetry = services.telemetry;
    this.#message = message;
    this.#startedMs = services.clock.monotonic();
    this.#tags = { traceparent: traceparentOfMessage(message), message: id };
    const { tracer, events } = this.#telemetry;
    const continued = message.traceparent !== undefined;
    this.#span = tracer.startSpan("message.receive", {
      attributes: { ...this.#tags, channel, continued },
    });
    events.emit({
      eventName: "message.received",
      attributes: { ...this.#tags, app, chat, person, channel },
    });
  }

  /** Called once with what became of the message: a word such as `accepted`, `duplicate` or `not_mentioned`. */
  end(outcome: string, error?: unknown): void {
    const { events, samples } = this.#telemetry;
    const { channel } = this.#message;
    const seconds = (this.#services.clock.monotonic() - this.#startedMs) / 1_000;
    samples.ack_seconds.record(seconds, { channel, outcome });
    if (!takenOutcomes.has(outcome)) {
      events.emit({ eventName: "message.refused", attributes: { ...this.#tags, reason: outcome } });
    }
    if (error !== undefined) {
      events.emit({ exception: error, attributes: this.#tags });
      this.#span.recordException(error);
    }
    this.#span.setAttributes({ outcome }).end();
  }
}

/** Reports to observers that a message is in its session, behind `ahead` others. */
export function tellAppended(
  { events }: Telemetry,
  message: InboundMessage,
  { seq, ahead }: { seq: number; ahead: number },
): void {
  const { session, id } = message;
  const attributes = {
    traceparent: traceparentOfMessage(message),
    message: id,
    session,
    seq,
    ahead,
  };
  events.emit({ eventName: "message.appended", attributes });
}
