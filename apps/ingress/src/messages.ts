import { noticeText } from "@larkline/agent";
import { languageOf } from "@larkline/agent/messages";
import { addressesIn } from "@larkline/agent/permissions";
import {
  inboundFromEvent,
  type Envelope,
  type FeishuMessage,
  type ReactionPurpose,
} from "@larkline/feishu";
import { lateCard } from "@larkline/feishu/cards";
import type { AgentConfig, GroupPolicy } from "@larkline/process/config";
import {
  objectFeatures,
  replyLanguages,
  textIn,
  type InboundMessage,
  type MessageReferences,
  type ReplyLanguage,
} from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { withDeadline } from "@larkline/protocol/clock";
import { EngineError } from "@larkline/protocol/error";
import { answerByMessage, answerRefusals, ownOpenApproval } from "./approvals.ts";
import { sendNotice, type Bot } from "./bot.ts";
import {
  obeyCommand,
  readCommand,
  unknownCommand,
  type Order,
  type ReadCommand,
} from "./commands.ts";
import type { Shown } from "./schedules.ts";
import type { Channel, Services } from "./services.ts";
import {
  answeredBy,
  appendMessage,
  busyPolicyOf,
  MessageWatch,
  placeOf,
  supersedeTurn,
  wakeSession,
  type ArrivingMessage,
  type Place,
} from "./sessions.ts";

// A message that a person wrote in a chat, from its event to its session, the lines that are sent in place of an answer,
// and the language of both.

/**
 * The result for a message that is for the bot. `busy`: refused because the session is at work; `answer`: it answered a
 * question; `not_asked`: a reply to a question for others.
 */
export type ArrivalOutcome =
  | "accepted"
  | "answer"
  | "not_asked"
  | "duplicate"
  | "full"
  | "busy"
  | "command"
  | "late"
  | "too_long"
  | "empty"
  | "foreign_tenant"
  | "recalled"
  | "foreign";

/** `bot_limit`: other bots have caused as many turns of this chat as they may. */
type MessageOutcome = ArrivalOutcome | "unreadable" | "unsure" | "bot_limit" | IgnoreReason;

/** Handles a message event. Resolves when the message is stored and its session woken, or it is answered, or is not for the bot. */
export async function handleMessage(
  services: Services,
  bot: Bot,
  envelope: Envelope,
): Promise<undefined> {
  const outcome = await receive(services, bot, envelope, bot.identity.openId);
  services.counters.messages.add(1, { channel: "feishu", outcome });
  // Not acknowledged: the platform delivers the event again in 15 s.
  if (outcome === "unsure") {
    throw new Error("a group message has to wait until the bot knows its own open_id");
  }
}

/** How long a group message waits for the bot's open_id, before it is left to redelivery. */
const identityWaitMs = 1_000;

async function receive(
  services: Services,
  bot: Bot,
  envelope: Envelope,
  botOpenId: string,
): Promise<MessageOutcome> {
  const parsed = inboundFromEvent(envelope, { botOpenId });
  if (!parsed.ok) {
    bot.log.warn({ reason: parsed.error, eventId: envelope.eventId }, "unreadable message event");
    return "unreadable";
  }
  const message = parsed.value;
  const { chatId, messageId, senderOpenId: person } = message;
  const arriving = {
    app: bot.app,
    id: messageId,
    chat: chatId,
    person,
    channel: "feishu",
  } as const;
  const outcome = await watched(
    services,
    arriving,
    async () =>
      await admitAndTake(services, bot, message, { botOpenId, eventId: envelope.eventId }),
  );
  if (outcome === "unsure" && botOpenId === "") {
    const learned = await bot.identity.within(identityWaitMs);
    if (learned !== "") return await receive(services, bot, envelope, learned);
  }
  bot.log.info({ outcome, chatId, messageId, eventId: envelope.eventId }, "message handled");
  return outcome;
}

/** Reports a message that `work` handles to observers; settles as `work` does, whose result says how it ended. */
export async function watched<Outcome extends string>(
  services: Services,
  message: ArrivingMessage,
  work: () => Promise<Outcome>,
): Promise<Outcome> {
  const watch = new MessageWatch(services, message);
  try {
    const outcome = await work();
    watch.end(outcome);
    return outcome;
  } catch (error) {
    watch.end("failed", error);
    throw error;
  }
}

async function admitAndTake(
  services: Services,
  bot: Bot,
  message: FeishuMessage,
  { botOpenId, eventId }: { botOpenId: string; eventId: string },
): Promise<MessageOutcome> {
  const { clock, settings } = services;
  const { messageAgeMs: maxAgeMs, messageChars: maxChars } = settings.limits;
  // The sender's tenant, not that of the event: that one is the app's, and people from outside have another one.
  const tenant = message.senderTenant;
  const admission = admit(
    { ...message, tenant },
    {
      botOpenId,
      nowMs: clock.now(),
      maxAgeMs,
      maxChars,
      groups: bot.agentIn(message.chatId).groups,
      tenants: bot.settings.tenants,
      botTurnsPerHour: bot.settings.feishu.botTurnsPerHour,
    },
  );
  if (admission.verdict === "ignore") return admission.reason;
  if (admission.verdict === "unsure") return "unsure";
  const place = await validPlaceOf(services, bot, message, eventId);
  if (place === undefined) return "unreadable";
  if (message.senderType === "bot" && !(await mayCauseTurn(services, bot, message, place))) {
    return "bot_limit";
  }
  if (message.chatType === "p2p") noteDirectChat(services, bot, message, admission);
  return await takeMessage(services, bot, { message, place, tenant }, admission);
}

/**
 * The guard against bots that talk to each other without end: counts a turn that another bot causes in a chat, over all
 * processes. A message that comes again is not counted again.
 */
async function mayCauseTurn(
  { store, governor }: Services,
  { app, settings }: Bot,
  { messageId, chatId }: FeishuMessage,
  { session }: Place,
): Promise<boolean> {
  if ((await store.seqOf(session, app, messageId)) !== undefined) return true;
  return (
    (await governor.takeRequest(
      app,
      `bots of ${chatId}`,
      settings.feishu.botTurnsPerHour,
      3_600_000,
    )) === 0
  );
}

/** Returns undefined when an id of the message cannot be part of a key. */
async function validPlaceOf(
  services: Services,
  bot: Bot,
  message: FeishuMessage,
  eventId: string,
): Promise<Place | undefined> {
  try {
    return await placeOf(services, bot, message);
  } catch (error) {
    if (!(error instanceof EngineError && error.code === "api_bad_request")) throw error;
    bot.log.warn({ error, eventId }, "message with an id that cannot be one");
    return undefined;
  }
}

function noteDirectChat(
  { clock }: Services,
  bot: Bot,
  { senderOpenId, chatId }: FeishuMessage,
  { verdict }: Admitted,
): void {
  bot.recentChats.note(chatId, clock.now());
  if (verdict === "foreign_tenant") return;
  bot.background.run(
    "direct chat",
    async () => await bot.directChats.remember(senderOpenId, chatId),
  );
}

/** What admission looks at. */
export interface ArrivedMessage {
  senderOpenId: string;
  senderType: "user" | "bot";
  chatType: "p2p" | "group";
  text: string;
  /** Files, and messages that it bundles: something to work on, even without words. */
  attachments: readonly unknown[];
  forwarded: boolean;
  mentions: readonly unknown[];
  mentionsBot: boolean;
  /** Epoch ms; 0 when unknown. */
  createdAtMs: number;
  /** The sender's tenant; absent when the platform does not say it. */
  tenant: string | undefined;
}

export interface AdmissionRules {
  /** The bot's own open_id; empty while it is unknown. */
  botOpenId: string;
  nowMs: number;
  maxAgeMs: number;
  /** Longest text that is taken. */
  maxChars: number;
  groups: GroupPolicy;
  /** Keys of the tenants whose people are answered; `null`: everybody. */
  tenants: readonly string[] | null;
  /** Turns of a chat that other bots may cause; 0: they are ignored. */
  botTurnsPerHour: number;
}

type IgnoreReason = "own_message" | "bot_message" | "not_mentioned" | "groups_off";

/**
 * `unsure`: it may be for the bot, but the bot does not know its own id yet. `late`, `too_long`, `empty`
 * and `foreign_tenant` are answered with a line or a question of ours instead of a run.
 */
type Admission =
  | { verdict: "accept" }
  | { verdict: "ignore"; reason: IgnoreReason }
  | { verdict: "unsure" }
  | { verdict: "late"; ageMs: number }
  | { verdict: "too_long" }
  | { verdict: "empty" }
  | { verdict: "foreign_tenant" };

/** Verdicts on messages that are for the bot. */
export type Admitted = Exclude<Admission, { verdict: "ignore" | "unsure" }>;

/**
 * Whether a message starts a run. Messages of bots are not answered (two bots would talk without end) unless the
 * deployment allows mentions by them in groups, and people in groups by default only when they mention the bot itself:
 * `@_all` is not a mention of it. The platform repeats deliveries for up
 * to seven hours ("Event subscription overview"), hence the age limit. People of other tenants can be in a group or
 * write from outside: a bot may be for certain tenants only.
 */
export function admit(message: ArrivedMessage, rules: AdmissionRules): Admission {
  if (rules.botOpenId !== "" && message.senderOpenId === rules.botOpenId) {
    return ignore("own_message");
  }
  if (message.senderType === "bot") return admitBot(message, rules);
  const refused = message.chatType === "group" ? admitGroup(message, rules) : undefined;
  if (refused !== undefined) return refused;
  return servesTenant(rules.tenants, message.tenant)
    ? admitContent(message, rules)
    : { verdict: "foreign_tenant" };
}

/** Another bot gets a run or nothing: a line of ours could be what it answers next. */
function admitBot(message: ArrivedMessage, rules: AdmissionRules): Admission {
  const { chatType, senderOpenId, mentions, mentionsBot, tenant } = message;
  if (rules.botTurnsPerHour === 0 || chatType !== "group" || senderOpenId === "") {
    return ignore("bot_message");
  }
  if (rules.groups === "none") return ignore("groups_off");
  // Before the bot knows itself, the message may be its own.
  if (rules.botOpenId === "" && mentions.length > 0) return { verdict: "unsure" };
  if (!mentionsBot) return ignore("not_mentioned");
  const isWanted =
    servesTenant(rules.tenants, tenant) && admitContent(message, rules).verdict === "accept";
  return isWanted ? { verdict: "accept" } : ignore("bot_message");
}

function ignore(reason: IgnoreReason): Admission {
  return { verdict: "ignore", reason };
}

function admitGroup(
  message: ArrivedMessage,
  { botOpenId, groups, tenants }: AdmissionRules,
): Admission | undefined {
  if (groups === "none") return ignore("groups_off");
  // People of other tenants get the refusal when they mention the bot, not for every message in a group.
  if (message.mentionsBot || (groups === "all" && servesTenant(tenants, message.tenant))) {
    return undefined;
  }
  return botOpenId === "" && message.mentions.length > 0
    ? { verdict: "unsure" }
    : ignore("not_mentioned");
}

/** Whether a bot answers people of a tenant; people of an unknown tenant only when it answers everybody. */
export function servesTenant(
  tenants: readonly string[] | null,
  tenant: string | undefined,
): boolean {
  return tenants === null || (tenant !== undefined && tenants.includes(tenant));
}

/**
 * The same of a person whose event names the tenant that has the app, not theirs: at a bot for certain tenants only
 * people who have written to it before, as one of theirs, start something.
 */
export async function servesPerson(
  { settings: { tenants }, directChats }: Bot,
  person: string,
  tenant: string,
): Promise<boolean> {
  if (!servesTenant(tenants, tenant === "" ? undefined : tenant)) return false;
  return tenants === null || (await directChats.of(person)) !== undefined;
}

function admitContent(
  message: ArrivedMessage,
  { nowMs, maxAgeMs, maxChars }: AdmissionRules,
): Admission {
  if (message.text.length > maxChars) return { verdict: "too_long" };
  if (message.text.trim() === "" && message.attachments.length === 0 && !message.forwarded) {
    return { verdict: "empty" };
  }
  const ageMs = message.createdAtMs === 0 ? 0 : nowMs - message.createdAtMs;
  return ageMs > maxAgeMs ? { verdict: "late", ageMs } : { verdict: "accept" };
}

/** A message that is for the bot, and where it belongs. */
export interface Arrival {
  message: FeishuMessage;
  place: Place;
  /** The sender's tenant; absent when the platform does not say it. */
  tenant: string | undefined;
  /** Its words are those of an entry of the bot's menu. */
  fromMenu?: boolean;
  /** It is a click: a toast says that it was not taken, and no line does. */
  hasToast?: boolean;
  /** What it is about: words of others, before its own. */
  about?: string;
}

/** The same when it is known in which languages to answer. */
interface ReadyArrival extends Arrival {
  agent: AgentConfig;
  /** The sender's. */
  spoken: ReplyLanguage;
  /** The language of the texts around the answer. */
  language: ReplyLanguage;
  /** Cards show both languages: people who speak another one see them too. */
  bilingual: boolean;
}

/** Stores a message that is for the bot, or answers it; resolves when that is done. */
export async function takeMessage(
  services: Services,
  bot: Bot,
  arrived: Arrival,
  admitted: Admitted,
): Promise<ArrivalOutcome> {
  const { message, place } = arrived;
  const arrival = await ready(services, bot, arrived, admitted);
  const { verdict } = admitted;
  const read = readArrival(services, bot, arrival);
  // For messages that are stored, the script that stores them checks for a recall.
  const isStored = verdict === "accept" && read.for !== "now";
  if (!isStored && (await services.store.recalled(place.session, bot.app, message.messageId))) {
    return "recalled";
  }
  if (verdict === "too_long" || verdict === "empty" || verdict === "foreign_tenant") {
    await answer(services, bot, arrival, refusalText(verdict, arrival.language));
    return verdict;
  }
  if (verdict === "late") {
    // A message that is known already is not late, only this delivery is, and it may have a wake-up to repair.
    const isKnown =
      (await services.store.seqOf(place.session, bot.app, message.messageId)) !== undefined;
    if (!isKnown) {
      return await askWhetherStillWanted(services, bot, { arrival, read, ageMs: admitted.ageMs });
    }
  }
  if (read.for === "now") return await runOrder(services, bot, arrival, read);
  const outcome = await enqueue(services, bot, arrival, read.message);
  // All clicks on a button share an id, and a line would mark it as answered: a later click would be a duplicate.
  if (arrival.hasToast === true || message.senderType === "bot") return outcome;
  if (outcome === "full") {
    await answer(services, bot, arrival, refusalText("full", arrival.language));
  }
  if (outcome === "busy") {
    await answer(services, bot, arrival, noticeText("busy", arrival.language));
  }
  return outcome;
}

/** Kinds of messages whose words are the sender's own. */
const ownKinds: ReadonlySet<string> = new Set(["text", "post"]);

/** The arrival with the language of its sender, which is kept from one message to the next. */
async function ready(
  services: Services,
  bot: Bot,
  arrival: Arrival,
  { verdict }: Admitted,
): Promise<ReadyArrival> {
  const { message, fromMenu = false } = arrival;
  const { text, senderOpenId, messageType, forwarded, mentions } = message;
  const agent = bot.agentIn(message.chatId);
  const written = {
    person: senderOpenId,
    text: fromMenu || ownKinds.has(messageType) ? text : "",
    mentioned: mentions.map(({ name }) => name),
    isForeign: fromMenu || forwarded,
    isStranger: verdict === "foreign_tenant",
  };
  const spoken = await languageOfMessage(services, bot, written, agent);
  const bilingual = agent.language === "auto" && message.chatType === "group";
  return { ...arrival, agent, spoken, language: shownLanguage(agent, spoken), bilingual };
}

/** Sends a line in place of a run; false when it was sent before. */
async function answer(
  services: Services,
  bot: Bot,
  { message, place }: Arrival,
  said: string | Shown,
): Promise<boolean> {
  const { text, card } = typeof said === "string" ? { text: said, card: undefined } : said;
  const { session, target } = place;
  const { messageId } = message;
  return await sendNotice(
    services,
    bot,
    {
      purpose: "notice",
      key: messageId,
      session,
      target,
      text,
      ...(card === undefined ? {} : { card }),
    },
    { messageId },
  );
}

const mayBeCommand = /^\s*[/\uFF0F]/u;

/** What a message turns out to be; only bare words can be a command. */
function readArrival(services: Services, bot: Bot, arrival: ReadyArrival): ReadCommand {
  const { text, attachments, forwarded, senderType } = arrival.message;
  const message = inboundOf(services, bot, arrival);
  // Orders are for people.
  const bare = attachments.length === 0 && !forwarded && senderType === "user";
  if (!bare || !mayBeCommand.test(text)) return { for: "session", message };
  const { commands } = arrival.agent;
  const unknown = unknownCommand(text, commands);
  return unknown === undefined ? readCommand(message, text, commands) : { for: "now", ...unknown };
}

const maxTenantLength = 128;

function inboundOf(services: Services, bot: Bot, arrival: ReadyArrival): InboundMessage {
  const { message, place, tenant, spoken, agent, about } = arrival;
  const answered = answeredBy(agent);
  const references = referencesOf(message, place);
  return {
    v: 1,
    session: place.session,
    id: message.messageId,
    app: bot.app,
    ...(tenant === undefined ? {} : { tenant: tenant.slice(0, maxTenantLength) }),
    sender: { id: message.senderOpenId },
    chatType: message.chatType,
    parts: [
      ...(about === undefined ? [] : [{ type: "text" as const, text: about }]),
      { type: "text", text: message.text },
    ],
    ...(about === undefined ? {} : { foreign: true, addresses: addressesIn(message.text) }),
    language: spoken,
    createdAtMs: message.createdAtMs === 0 ? services.clock.now() : message.createdAtMs,
    reply: { channel: "feishu", ...place.target },
    ...answered,
    ...(place.target.object === undefined
      ? {}
      : { needs: [...(answered.needs ?? []), objectFeatures[place.target.object.kind]] }),
    ...(references === undefined ? {} : { references }),
  };
}

/** More in one message are named in its text but not fetched. */
const maxAttachments = 20;

/** What has to be fetched before the message can be understood; undefined when it speaks for itself. */
function referencesOf(
  message: FeishuMessage,
  { threadRootId }: Place,
): MessageReferences | undefined {
  const { attachments, forwarded, messageId, parentId } = message;
  const quotedId = parentId === undefined || parentId === threadRootId ? undefined : parentId;
  const references: MessageReferences = {
    ...(attachments.length === 0 ? {} : { attachments: attachments.slice(0, maxAttachments) }),
    ...(quotedId === undefined ? {} : { quotedId }),
    ...(threadRootId === undefined ? {} : { threadRootId }),
    ...(forwarded ? { forwardedId: messageId } : {}),
  };
  return Object.keys(references).length === 0 ? undefined : references;
}

/** Asks the sender of an old message; orders that only make sense at once are not asked about. */
async function askWhetherStillWanted(
  services: Services,
  bot: Bot,
  { arrival, read, ageMs }: { arrival: ReadyArrival; read: ReadCommand; ageMs: number },
): Promise<"late"> {
  const { language, bilingual, place, message } = arrival;
  const line = refusalText("late", language, ageMs);
  if (bot.settings.feishu.lateMessages === "line" || read.for === "now") {
    await answer(services, bot, arrival, line);
    return "late";
  }
  const { session, target } = place;
  const { messageId, text } = message;
  const card = lateCard({ language, bilingual, session, message: messageId, ageMs, text });
  const question = {
    purpose: "notice",
    key: messageId,
    session,
    target,
    text: line,
    card,
  } as const;
  await sendNotice(services, bot, question, { messageId, parked: read.message });
  return "late";
}

async function runOrder(
  services: Services,
  bot: Bot,
  arrival: ReadyArrival,
  order: Order,
): Promise<ArrivalOutcome> {
  const ordered = { message: inboundOf(services, bot, arrival), language: arrival.language };
  const said = await obeyCommand(services, bot, order, ordered);
  return said === undefined || (await answer(services, bot, arrival, said))
    ? "command"
    : "duplicate";
}

/** Puts a message into its session as the agent's busy policy says. */
async function enqueue(
  services: Services,
  bot: Bot,
  arrival: ReadyArrival,
  message: InboundMessage,
): Promise<ArrivalOutcome> {
  const policy = await busyPolicyOf(services, bot, arrival.agent, message.session);
  const mayAnswer = isPlain(arrival, message);
  let appended = await appendMessage(services, bot, message, { policy, mayAnswer });
  if (appended !== "busy" && appended.result === "asks") {
    const answered = await answerWith(services, bot, arrival, message);
    if (answered !== undefined) return answered;
    appended = await appendMessage(services, bot, message, { policy });
  }
  if (appended === "busy") return "busy";
  const { result, seq, ahead } = appended;
  if (result === "full" || result === "recalled" || result === "foreign") return result;
  const superseded =
    policy === "interrupt" && seq > 0 && (await supersedeTurn(services, bot, message, appended));
  // Also for a duplicate: the process of its first delivery may have died between append and wake.
  await wakeSession(services, bot, message.session, appended.wakeGen);
  if (result !== "accepted") return "duplicate";
  const isOwn = appended.head?.message.sender.id === message.sender.id;
  const joins = policy === "steer" && isOwn && message.references === undefined;
  // With `interrupt`, a message replaces the same person's running turn; messages of others stay before it.
  const left = message.chatType === "p2p" ? 0 : ahead - 1;
  showThatItWaits(services, bot, {
    arrival,
    message,
    seq,
    ahead: superseded ? left : ahead,
    joins,
  });
  return result;
}

/** A stored message: its number, how many come before it, and whether it will join the running turn. */
interface Spot {
  arrival: ReadyArrival;
  message: InboundMessage;
  seq: number;
  ahead: number;
  joins: boolean;
}

/** Whether a message is words alone, so that they may be the answer to a question. */
function isPlain(
  { message, fromMenu = false }: ReadyArrival,
  { command }: InboundMessage,
): boolean {
  const { text, attachments, forwarded } = message;
  const hasWords = text.trim() !== "" && !/^\s*[/／]/.test(text);
  return hasWords && attachments.length === 0 && !forwarded && !fromMenu && command === undefined;
}

/** The message as the answer to a question that its session has open; undefined where it is none. */
async function answerWith(
  services: Services,
  bot: Bot,
  arrival: ReadyArrival,
  message: InboundMessage,
): Promise<"answer" | "not_asked" | "duplicate" | "too_long" | undefined> {
  const { text, parentId } = arrival.message;
  const quotes = message.references?.quotedId !== undefined;
  const given = await answerByMessage(services, bot, {
    message,
    text: text.trim(),
    repliesTo: parentId,
    quotes,
  });
  if (given === "not_asked" || given === "unfit") {
    await answer(services, bot, arrival, answerRefusals[given][arrival.language]);
    return "not_asked";
  }
  if (given === "too_long") {
    await answer(services, bot, arrival, refusalText("too_long", arrival.language));
  }
  return given;
}

function showThatItWaits(services: Services, bot: Bot, spot: Spot): void {
  // A press on the bot's menu has no message that could get a reaction.
  if (spot.arrival.place.target.messageId === "") return;
  if (spot.ahead > 0) {
    bot.courtesies.run(
      "position in the queue",
      async () => await tellPosition(services, bot, spot),
    );
  }
  if (bot.settings.feishu.typing) {
    bot.courtesies.run("typing reaction", async () => await react(services, bot, spot, "typing"));
  }
}

async function tellPosition(services: Services, bot: Bot, spot: Spot): Promise<void> {
  const { queueNotice } = bot.settings.feishu;
  const { arrival, message, ahead, joins } = spot;
  const { language, place } = arrival;
  const notice = { purpose: "queued", session: message.session, target: place.target } as const;
  const open = await ownOpenApproval(services, bot, message);
  // Without a word the person would wait for the bot, and the bot for the person. One notice for each open question.
  if (open !== undefined) {
    const text = waitsForYou(open, language);
    await sendNotice(services, bot, { ...notice, key: open.id, text });
  }
  if (queueNotice === "off") return;
  if (queueNotice === "reaction") return await react(services, bot, spot, "queued");
  if (open !== undefined) return;
  // A message that joins the running turn does not wait for a turn of its own: no number says when.
  const text = joins ? joiningTexts[language] : noticeText("queued", language, { ahead });
  await sendNotice(services, bot, { ...notice, key: message.id, text });
}

/** What a message waits for where its own writer has to answer first. */
function waitsForYou({ kind, tool, words, question }: Approval, language: ReplyLanguage): string {
  const title = textIn(words?.title ?? tool, language);
  const what = kind === "question" ? (question?.text ?? title) : title;
  return noticeText("waitsForYou", language, { what });
}

/** Adds a reaction; takes it back when the turn has begun, or ended, before the platform took the reaction. */
async function react(
  { store }: Services,
  bot: Bot,
  spot: Spot,
  purpose: ReactionPurpose,
): Promise<void> {
  const { message, seq, ahead } = spot;
  await bot.reactions.add(message.id, purpose);
  const waiting = await store.waiting(message.session, ahead + 1);
  if (waiting.some((one) => one.seq === seq)) return;
  const isBeingAnswered =
    purpose === "typing" && (await store.summary(message.session)).head?.seq === seq;
  if (!isBeingAnswered) await bot.reactions.remove(message.id, purpose);
}

/** The notice for a message that starts no run. */
type RefusalName = "late" | "full" | "too_long" | "empty" | "foreign_tenant";

const refusals = {
  late: {
    zh: "这条消息 {minutes} 分钟前发出，现在才送达，所以我没有处理。如果仍然需要，请再发一次。",
    en: "This message reached me {minutes} minutes after it was written, so I did not act on it. Please send it again if you still need it.",
  },
  full: {
    zh: "排队等待的消息太多，这条消息没有被处理。请稍后再发一次。",
    en: "Too many messages are waiting here, so this one was not taken. Please send it again later.",
  },
  too_long: {
    zh: "这条消息太长，我没有处理。请缩短后再发一次。",
    en: "This message is too long for me, so I did not act on it. Please send a shorter one.",
  },
  empty: {
    zh: "我在。请写下你的问题。",
    en: "I am here. What can I do for you?",
  },
  foreign_tenant: {
    zh: "抱歉，我不为你所在的组织提供服务。",
    en: "Sorry, I do not serve people of your organisation.",
  },
} as const satisfies Record<RefusalName, Record<ReplyLanguage, string>>;

/** The line that is sent in place of an answer. */
export function refusalText(name: RefusalName, language: ReplyLanguage, ageMs = 0): string {
  const minutes = Math.max(1, Math.round(ageMs / 60_000));
  return refusals[name][language].replace("{minutes}", String(minutes));
}

/** The notice for a message that joins the running turn. */
const joiningTexts = {
  zh: "已收到，会在正在进行的回答中一并考虑。",
  en: "Received. I will take it into account in the answer that is under way.",
} as const satisfies Record<ReplyLanguage, string>;

/** What a person has written, as far as it shows their language. */
export interface Written {
  text: string;
  /** Names that follow an `@` in the text. */
  mentioned?: readonly string[];
  /** The words are not the person's: a picture's, a forwarded card's, those of a menu entry. */
  isForeign?: boolean;
  /** The person is not served, as far as is known: nothing is kept of them. */
  isStranger?: boolean;
}

type DefaultLanguage = Pick<AgentConfig, "defaultLanguage">;

/**
 * The language of a message's writer: that of their last message with words of their own, which is kept. Over HTTP,
 * where no person is known, `person` is the id of the session. Never rejects.
 */
export async function languageOfMessage(
  services: Services,
  channel: Channel,
  { person, ...written }: Written & { person: string },
  { defaultLanguage }: DefaultLanguage,
): Promise<ReplyLanguage> {
  const found = writtenLanguage(written);
  if (found?.isSure !== true) {
    return (await keptLanguage(services, channel, person)) ?? found?.language ?? defaultLanguage;
  }
  // A message never waits for this.
  if (written.isStranger !== true) void keepLanguage(services, channel, person, found.language);
  return found.language;
}

/** The language of a person who writes nothing at the moment. Never rejects. */
export async function languageOfPerson(
  services: Services,
  channel: Channel,
  person: string,
  { defaultLanguage }: DefaultLanguage,
): Promise<ReplyLanguage> {
  return (await keptLanguage(services, channel, person)) ?? defaultLanguage;
}

/** A message does not wait longer than this for the language of its texts. */
const languagePatienceMs = 1_000;

async function keptLanguage(
  services: Services,
  channel: Channel,
  person: string,
): Promise<ReplyLanguage | undefined> {
  const { clock, lookups } = services;
  try {
    const kept = await withDeadline(
      clock,
      lookups.get(languageKey(channel, person)),
      languagePatienceMs,
    );
    return replyLanguages.find((language) => language === kept);
  } catch (error) {
    channel.log.warn({ error }, "a person's language could not be read");
    return undefined;
  }
}

/** Never rejects. */
export async function keepLanguage(
  services: Services,
  channel: Channel,
  person: string,
  language: ReplyLanguage,
) {
  try {
    await services.lookups.set(languageKey(channel, person), language, channel.languageKeptMs);
  } catch (error) {
    channel.log.warn({ error }, "a person's language could not be kept");
  }
}

function languageKey({ app }: Channel, person: string): string {
  return `lang:${app}:${person}`;
}

/**
 * The language that a text is written in; undefined where it has no words, such as a number, a picture or an emoji.
 * Not sure: a command such as `/help` alone, which speakers of every language write, and words of another author.
 */
export function writtenLanguage(
  written: Written,
): { language: ReplyLanguage; isSure: boolean } | undefined {
  const words = wordsOf(written);
  const command = /^\s*\/[\w-]+\s*$/;
  if (!/\p{L}/u.test(words)) return undefined;
  return {
    language: languageOf(words),
    isSure: written.isForeign !== true && !command.test(words),
  };
}

/** The text without what is the same in every language: code, addresses, names of people and of emoji. */
function wordsOf({ text, mentioned = [] }: Written): string {
  const bare = mentioned.reduce(
    (left, name) => (name === "" ? left : left.replaceAll(`@${name}`, " ")),
    text,
  );
  return bare
    .replaceAll(/```[^]*?(?:```|$)|`[^`\n]*`/g, " ")
    .replaceAll(/https?:\/\/[^\s\p{Script=Han}]+|@\S+/giu, " ")
    .replaceAll(/\[[\p{L}\p{N}_]{1,20}\](?!\()|:[A-Za-z\d_]{1,30}:/gu, " ");
}

/** The language of the texts around an answer to a message of that language. */
export function shownLanguage(
  agent: AgentConfig,
  spoken: ReplyLanguage | undefined,
): ReplyLanguage {
  return agent.language === "auto" ? (spoken ?? agent.defaultLanguage) : agent.language;
}
