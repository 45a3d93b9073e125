import { describedCommands, helpText } from "@larkline/agent/commands";
import { messageEventType, type Envelope, type FeishuMessage } from "@larkline/feishu";
import { welcomeCard } from "@larkline/feishu/cards";
import { parserOf, turnIdOf } from "@larkline/protocol";
import { withDeadline } from "@larkline/protocol/clock";
import { Type } from "@larkline/protocol/type";
import { sendNotice, type Bot, type Transport } from "./bot.ts";
import { handleClick, keepRating } from "./clicks.ts";
import { eventDoors } from "./doors/index.ts";
import {
  handleMessage,
  languageOfPerson,
  servesTenant,
  shownLanguage,
  takeMessage,
  watched,
  type Admitted,
} from "./messages.ts";
import { otherEventOf, type EventAnswer } from "./other-events.ts";
import { endSchedules } from "./schedules.ts";
import { type Services } from "./services.ts";
import {
  cancelTurn,
  chatSession,
  forgetChatKind,
  placeOf,
  sessionOfMessage,
  type Place,
} from "./sessions.ts";

// Handles events of the platform, from webhook and long connection, and itself all but messages and clicks.

/** Handles one type of event. When it rejects, the event is not acknowledged and the platform delivers it again. */
type EventHandler = (
  services: Services,
  bot: Bot,
  envelope: Envelope,
) => Promise<EventAnswer | undefined>;

const handlers: ReadonlyMap<string, EventHandler> = new Map(
  Object.entries<EventHandler>({
    [messageEventType]: handleMessage,
    "card.action.trigger": handleClick,
    "im.chat.member.bot.added_v1": botAdded,
    "im.chat.access_event.bot_p2p_chat_entered_v1": chatEntered,
    p2p_chat_create: chatCreated,
    "im.message.recalled_v1": messageRecalled,
    "application.bot.menu_v6": menuPressed,
    "im.chat.updated_v1": chatUpdated,
    "im.chat.member.bot.deleted_v1": chatLost,
    "im.chat.disbanded_v1": chatLost,
    "im.message.message_read_v1": ignore,
    "im.message.reaction.created_v1": reacted,
    "im.message.reaction.deleted_v1": reacted,
    "auth.user_access_token.revoked_v4": grantRevoked,
    "contact.user.deleted_v3": personLeft,
  }),
);

/** The platform waits 3 s for an acknowledgement ("Event subscription overview"). */
const ackDeadlineMs = 2_500;

/**
 * Handles one event. Resolves when the event may be acknowledged, with the answer to a click; unknown types are
 * acknowledged, because a refusal would only make the platform repeat them. A rejection is logged here.
 */
export async function handleEvent(
  services: Services,
  bot: Bot,
  envelope: Envelope,
  transport: Transport,
): Promise<EventAnswer> {
  const { clock, counters } = services;
  bot.lastEventAtMs.set(transport, clock.now());
  const handler = handlers.get(envelope.type);
  const type = handler === undefined ? "unknown" : envelope.type;
  const startedMs = clock.monotonic();
  const note = (outcome: "acknowledged" | "failed"): void => {
    counters.events.add(1, { type, outcome });
    counters.ackSeconds.record((clock.monotonic() - startedMs) / 1_000, { transport, outcome });
  };
  try {
    const handling = throughDoors(handler ?? unknownEvent, services, bot, envelope);
    const answer = (await withDeadline(clock, handling, ackDeadlineMs)) ?? {};
    note("acknowledged");
    return answer;
  } catch (error) {
    note("failed");
    const facts = { error, eventType: envelope.type, eventId: envelope.eventId, transport };
    bot.log.error(facts, "event not acknowledged");
    throw error;
  }
}

async function throughDoors(
  handler: EventHandler,
  ...event: Parameters<EventHandler>
): Promise<EventAnswer | undefined> {
  const answer = await handler(...event);
  await eventDoors.get(event[2].type)?.(...event);
  return answer;
}

async function unknownEvent(services: Services, bot: Bot, envelope: Envelope): Promise<undefined> {
  services.otherEvents.pass(otherEventOf(bot.name, envelope));
  bot.log.debug(
    { eventType: envelope.type, eventId: envelope.eventId },
    "event of a type without a handler",
  );
}

async function ignore({ otherEvents }: Services, bot: Bot, envelope: Envelope): Promise<undefined> {
  otherEvents.pass(otherEventOf(bot.name, envelope));
}

const Id = Type.String({ minLength: 1, maxLength: 128, pattern: "^[\\w-]+$" });
const Person = Type.Optional(
  Type.Union([Type.Object({ open_id: Type.Optional(Id) }), Type.Null()]),
);
const ShortText = Type.Optional(Type.Union([Type.String({ maxLength: 128 }), Type.Null()]));

const parseRevoked = parserOf(
  Type.Object({ open_id: Id, revoke_token_type: ShortText, revoke_reason: ShortText }),
);

/**
 * A person has revoked a grant. Where only the access token was revoked the grant lasts, and the next call refreshes
 * it.
 */
async function grantRevoked(services: Services, bot: Bot, envelope: Envelope): Promise<undefined> {
  const parsed = parseRevoked(envelope.event);
  if (parsed.ok && (parsed.value.revoke_token_type ?? "").includes("refresh_token")) {
    const { open_id: openId, revoke_reason: reason } = parsed.value;
    await endGrant(services, envelope, { openId, reason: reason || "revoked" });
    await endSchedules(services, bot, envelope, {
      why: "schedulesRevoked",
      of: { person: openId },
    });
  }
  return await ignore(services, bot, envelope);
}

const parseLeft = parserOf(Type.Object({ object: Type.Object({ open_id: Id }) }));

async function personLeft(services: Services, bot: Bot, envelope: Envelope): Promise<undefined> {
  const parsed = parseLeft(envelope.event);
  if (parsed.ok) {
    const { open_id: openId } = parsed.value.object;
    await endGrant(services, envelope, { openId, reason: "person_left" });
    await endSchedules(services, bot, envelope, { why: "schedulesLeft", of: { person: openId } });
  }
  return await ignore(services, bot, envelope);
}

/** The bot is not in a chat any more, or the chat is gone. */
async function chatLost(services: Services, bot: Bot, envelope: Envelope): Promise<undefined> {
  const parsed = parseChat(envelope.event);
  if (parsed.ok) {
    const of = { chat: parsed.value.chat_id };
    await endSchedules(services, bot, envelope, { why: "schedulesBotGone", of });
  }
  return await ignore(services, bot, envelope);
}

/** An event may come again hours later: what was granted after it lasts. */
async function endGrant(
  { grantEnds, clock }: Services,
  { appId: app, tenantKey: tenant, createdAtMs }: Envelope,
  end: { openId: string; reason: string },
): Promise<void> {
  await grantEnds.add({ app, tenant, ...end, atMs: createdAtMs || clock.now() });
}

const parseAdded = parserOf(Type.Object({ chat_id: Id, operator_tenant_key: ShortText }));

/** The bot was added to a group. */
async function botAdded(
  services: Services,
  bot: Bot,
  { event, tenantKey }: Envelope,
): Promise<undefined> {
  const parsed = parseAdded(event);
  if (!parsed.ok) return;
  const { chat_id: chatId, operator_tenant_key: tenant } = parsed.value;
  await greet(services, bot, { chatId, tenant: tenant || tenantKey });
}

const parseEntered = parserOf(
  Type.Object({ chat_id: Id, operator_id: Person, last_message_id: ShortText }),
);

/** A person has opened their chat with the bot. */
async function chatEntered(
  services: Services,
  bot: Bot,
  { event, tenantKey: tenant }: Envelope,
): Promise<undefined> {
  const parsed = parseEntered(event);
  if (!parsed.ok) return;
  const { chat_id: chatId, operator_id: operator, last_message_id: lastMessageId } = parsed.value;
  if (operator?.open_id !== undefined) await rememberDirectChat(bot, operator.open_id, chatId);
  // No greeting where the conversation has begun before.
  if (!lastMessageId) await greet(services, bot, { chatId, tenant, person: operator?.open_id });
}

const parseCreated = parserOf(Type.Object({ chat_id: Id, user: Person }));

/** The first time that a person and the bot have a chat; older clients send no other event about it. */
async function chatCreated(
  services: Services,
  bot: Bot,
  { event, tenantKey: tenant }: Envelope,
): Promise<undefined> {
  const parsed = parseCreated(event);
  if (!parsed.ok) return;
  const { chat_id: chatId, user } = parsed.value;
  if (user?.open_id !== undefined) await rememberDirectChat(bot, user.open_id, chatId);
  await greet(services, bot, { chatId, tenant, person: user?.open_id });
}

/** These events do not name the person's tenant: at a bot for certain tenants only messages tell whose a chat is. */
async function rememberDirectChat(
  { settings, directChats }: Bot,
  openId: string,
  chatId: string,
): Promise<void> {
  if (settings.tenants === null) await directChats.remember(openId, chatId);
}

/** How long a chat is remembered to have been greeted. */
const greetedKeptMs = 30 * 24 * 3_600_000;

/** Greets a chat once in a while, however often the platform says that a person of `tenant` is there. */
async function greet(
  services: Services,
  bot: Bot,
  { chatId, tenant, person }: { chatId: string; tenant: string; person?: string | undefined },
): Promise<void> {
  const { lookups } = services;
  const { app, settings } = bot;
  const key = `welcomed:${app}:${chatId}`;
  if (!settings.feishu.welcome || !servesTenant(settings.tenants, tenant)) return;
  if ((await lookups.get(key)) !== undefined) return;
  const agent = bot.agentIn(chatId);
  const spoken =
    person === undefined ? undefined : await languageOfPerson(services, bot, person, agent);
  const language = shownLanguage(agent, spoken);
  await sendNotice(services, bot, {
    purpose: "welcome",
    key: chatId,
    session: chatSession(app, chatId),
    target: { app, chatId, messageId: "", inThread: false },
    text: helpText(language, agent.commands),
    card: welcomeCard({
      language,
      bilingual: agent.language === "auto",
      commands: (each) => describedCommands(each, agent.commands),
    }),
  });
  await lookups.set(key, "yes", greetedKeptMs);
}

const parseRecalled = parserOf(Type.Object({ message_id: Id, chat_id: Id }));

/** A message that was taken back is not answered: whether it is still to come, parked, waiting or being answered. */
async function messageRecalled(
  services: Services,
  bot: Bot,
  { event }: Envelope,
): Promise<undefined> {
  const parsed = parseRecalled(event);
  if (!parsed.ok) return;
  const { store } = services;
  const { chat_id: chatId, message_id: messageId } = parsed.value;
  // First of all: a process that stores the message later finds the recall, and one that stored it before has noted the
  // session.
  await store.recall(bot.app, messageId);
  const session = await sessionOfMessage(services, bot, { chatId, messageId });
  await store.outbox.release(session, messageId, "drop");
  const seq = await store.seqOf(session, bot.app, messageId);
  if (seq === undefined || seq === 0) return;
  await cancelTurn(services, bot, { session, turnId: turnIdOf(session, seq), reason: "recalled" });
  bot.log.info({ session, messageId }, "message recalled");
}

const parseReaction = parserOf(
  Type.Object({
    message_id: Id,
    reaction_type: Type.Object({ emoji_type: Type.String({ maxLength: 64 }) }),
    user_id: Person,
    action_time: Type.Optional(Type.String({ pattern: "^\\d{1,16}$" })),
  }),
);

const reactionRatings: ReadonlyMap<string, "up" | "down"> = new Map([
  ["THUMBSUP", "up"],
  ["ThumbsDown", "down"],
]);

/** A thumb of a person on an answer rates it, and one that is taken away takes the rating back. */
async function reacted(services: Services, bot: Bot, envelope: Envelope): Promise<undefined> {
  await ignore(services, bot, envelope);
  const { feishu, tenants } = bot.settings;
  const parsed = parseReaction(envelope.event);
  if (!feishu.feedback || !parsed.ok || !servesTenant(tenants, envelope.tenantKey)) return;
  const {
    message_id: messageId,
    reaction_type: reaction,
    user_id: user,
    action_time: atMs,
  } = parsed.value;
  const word = reactionRatings.get(reaction.emoji_type);
  if (word === undefined || user?.open_id === undefined) return;
  const run = await services.ratings.runOf(messageId);
  if (run === undefined || !run.turn.startsWith(`${bot.app}.`)) return;
  const isGiven = envelope.type === "im.message.reaction.created_v1";
  const said = {
    ...(isGiven ? { rating: word } : ({ rating: "none", instead: word } as const)),
    saidMs: Number(atMs ?? 0),
  };
  await keepRating(services, bot, { run, said, person: user.open_id, eventId: envelope.eventId });
}

const parseMenu = parserOf(
  Type.Object({
    event_key: Type.String({ minLength: 1, maxLength: 30 }),
    operator: Type.Object({ operator_id: Person }),
  }),
);

/** The event names no chat: it counts as said in the person's own chat with the bot, as far as that is known. */
async function menuPressed(services: Services, bot: Bot, envelope: Envelope): Promise<undefined> {
  const { event, eventId, tenantKey, createdAtMs } = envelope;
  const parsed = parseMenu(event);
  const openId = parsed.ok ? parsed.value.operator.operator_id?.open_id : undefined;
  if (!parsed.ok || openId === undefined) return;
  const key = parsed.value.event_key;
  const { menu } = bot.settings.feishu;
  const meaning = Object.hasOwn(menu, key) ? menu[key] : undefined;
  const text = meaning ?? (key.startsWith("/") ? key : undefined);
  if (text === undefined) {
    bot.log.warn(
      { eventKey: key },
      "a press on the menu without a meaning: name it in feishu.menu",
    );
    return;
  }
  const chatId = (await bot.directChats.of(openId)) ?? openId;
  const tenant = tenantKey === "" ? undefined : tenantKey;
  await takePress(services, bot, { openId, chatId, text, eventId, tenant, createdAtMs });
}

/** A press on the bot's menu. */
interface Press {
  openId: string;
  /** The person's chat with the bot, else their open_id again. */
  chatId: string;
  /** What the press counts as having said. */
  text: string;
  eventId: string;
  /** Tenant that has the app, not always the person's; absent when the platform does not say it. */
  tenant: string | undefined;
  createdAtMs: number;
}

/** Sends a press the way of a message; there is no message that the answer could reply to. */
async function takePress(services: Services, bot: Bot, press: Press): Promise<void> {
  const { clock, counters, settings } = services;
  const { openId: person, chatId, eventId, tenant, createdAtMs } = press;
  if (createdAtMs > 0 && clock.now() - createdAtMs > settings.limits.messageAgeMs) {
    bot.log.info({ eventId }, "a press on the menu came too late");
    return;
  }
  const message = messageOfPress(press);
  const { session } = await placeOf(services, bot, message);
  const place: Place = {
    session,
    target: { app: bot.app, chatId, messageId: "", inThread: false },
  };
  const admitted = admitPress(bot, press);
  const arriving = {
    app: bot.app,
    id: message.messageId,
    chat: chatId,
    person,
    channel: "feishu",
  } as const;
  const arrival = { message, place, tenant, fromMenu: true };
  const outcome = await watched(
    services,
    arriving,
    async () => await takeMessage(services, bot, arrival, admitted),
  );
  counters.messages.add(1, { channel: "feishu", outcome });
}

function messageOfPress({ openId, chatId, text, eventId, createdAtMs }: Press): FeishuMessage {
  return {
    messageId: `menu-${eventId}`.slice(0, 128),
    chatId,
    chatType: "p2p",
    senderOpenId: openId,
    senderType: "user",
    messageType: "text",
    text,
    attachments: [],
    forwarded: false,
    mentions: [],
    mentionsBot: false,
    mentionsAll: false,
    createdAtMs,
  };
}

/**
 * The event names the tenant that has the app, not the person's: at a bot for certain tenants only people who have
 * written to it before, as one of theirs, start something.
 */
function admitPress({ settings: { tenants } }: Bot, { openId, chatId, tenant }: Press): Admitted {
  if (!servesTenant(tenants, tenant)) return { verdict: "foreign_tenant" };
  return { verdict: tenants === null || chatId !== openId ? "accept" : "empty" };
}

const parseChat = parserOf(Type.Object({ chat_id: Id }));

async function chatUpdated(services: Services, bot: Bot, { event }: Envelope): Promise<undefined> {
  const parsed = parseChat(event);
  if (parsed.ok) await forgetChatKind(services, bot, parsed.value.chat_id);
}
