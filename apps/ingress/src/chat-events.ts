import { describedCommands, helpText } from "@larkline/agent";
import { welcomeCard } from "@larkline/feishu/cards";
import type { FeishuSettings } from "@larkline/process/config";
import type { Envelope } from "@larkline/feishu";
import { parserOf, turnIdOf } from "@larkline/protocol";
import type { LookupCache, SessionStore } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import { Type } from "typebox";
import { servesTenant } from "./admission.ts";
import type { BotAgents } from "./bot-agents.ts";
import type { ChatFacts } from "./chat-facts.ts";
import { chatSession, type Placer } from "./conversation-place.ts";
import type { DirectChats } from "./direct-chats.ts";
import type { EventHandler } from "./event-router.ts";
import type { Inbox } from "./inbox.ts";
import type { SaidFor } from "./menu-message.ts";
import { recalledKey } from "./message-desk.ts";
import type { PersonLanguages } from "./person-language.ts";
import type { Speaker } from "./speaker.ts";

const Id = Type.String({ minLength: 1, maxLength: 128, pattern: "^[\\w-]+$" });
const Person = Type.Optional(Type.Union([Type.Object({ open_id: Type.Optional(Id) }), Type.Null()]));

const parseChat = parserOf(Type.Object({ chat_id: Id }));
const parseAdded = parserOf(
  Type.Object({
    chat_id: Id,
    operator_tenant_key: Type.Optional(Type.Union([Type.String({ maxLength: 128 }), Type.Null()])),
  }),
);
const parseEntered = parserOf(
  Type.Object({
    chat_id: Id,
    operator_id: Person,
    last_message_id: Type.Optional(Type.Union([Type.String({ maxLength: 128 }), Type.Null()])),
  }),
);
const parseCreated = parserOf(Type.Object({ chat_id: Id, user: Person }));
const parseRecalled = parserOf(Type.Object({ message_id: Id, chat_id: Id }));
const parseMenu = parserOf(
  Type.Object({
    event_key: Type.String({ minLength: 1, maxLength: 30 }),
    operator: Type.Object({ operator_id: Person }),
  }),
);

export interface ChatEventsDeps {
  app: string;
  agents: Pick<BotAgents, "in">;
  settings: Pick<FeishuSettings, "welcome" | "menu">;
  /** Keys of the tenants whose people the bot is for; `null`: everybody. */
  tenants: readonly string[] | null;
  store: Pick<SessionStore, "seqOf" | "release">;
  speak: Speaker;
  inbox: Pick<Inbox, "cancel">;
  lookups: LookupCache;
  directChats: DirectChats;
  languages: Pick<PersonLanguages, "of">;
  placer: Placer;
  facts: ChatFacts;
  speakFor: (said: SaidFor) => Promise<void>;
  /** Gets the events that say nothing to us. */
  others: (envelope: Envelope) => void;
  logger: Logger;
}

/** How long a chat is remembered to have been greeted. */
const rememberedMs = 30 * 24 * 3_600_000;
/** As long as the platform goes on delivering a message that was not acknowledged, and more. */
const recalledMs = 24 * 3_600_000;

/** Handlers for everything besides messages and clicks, by event type. */
export function createChatEvents(deps: ChatEventsDeps): Readonly<Record<string, EventHandler>> {
  const ignore: EventHandler = async (envelope) => {
    deps.others(envelope);
    return undefined;
  };
  return {
    "im.chat.member.bot.added_v1": botAdded(deps),
    "im.chat.access_event.bot_p2p_chat_entered_v1": chatEntered(deps),
    p2p_chat_create: chatCreated(deps),
    "im.message.recalled_v1": messageRecalled(deps),
    "application.bot.menu_v6": menuPressed(deps),
    "im.chat.updated_v1": chatUpdated(deps),
    "im.chat.member.bot.deleted_v1": ignore,
    "im.chat.disbanded_v1": ignore,
    "im.message.message_read_v1": ignore,
    "im.message.reaction.created_v1": ignore,
    "im.message.reaction.deleted_v1": ignore,
  };
}

/** Greets a chat once in a while, however often the platform says that somebody of `tenant` is there. */
async function greet(
  { app, agents, settings, tenants, lookups, languages, speak }: ChatEventsDeps,
  { chatId, tenant, person }: { chatId: string; tenant: string; person?: string | undefined },
): Promise<void> {
  const key = `welcomed:${app}:${chatId}`;
  if (!settings.welcome || !servesTenant(tenants, tenant) || (await lookups.get(key)) !== undefined) return;
  const agent = agents.in(chatId);
  const spoken = person === undefined ? agent.defaultLanguage : await languages.of(person, agent);
  const language = agent.language === "auto" ? spoken : agent.language;
  await speak({
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
  await lookups.set(key, "yes", rememberedMs);
}

function botAdded(deps: ChatEventsDeps): EventHandler {
  return async ({ event, tenantKey }) => {
    const parsed = parseAdded(event);
    if (!parsed.ok) return undefined;
    const { chat_id: chatId, operator_tenant_key: tenant } = parsed.value;
    await greet(deps, { chatId, tenant: tenant || tenantKey });
    return undefined;
  };
}

/** Whose tenant's the person is, these events do not say: only messages of those who are served tell their chat then. */
async function remember({ tenants, directChats }: ChatEventsDeps, openId: string, chatId: string): Promise<void> {
  if (tenants === null) await directChats.remember(openId, chatId);
}

function chatEntered(deps: ChatEventsDeps): EventHandler {
  return async ({ event, tenantKey: tenant }) => {
    const parsed = parseEntered(event);
    if (!parsed.ok) return undefined;
    const { chat_id: chatId, operator_id: operator, last_message_id: lastMessageId } = parsed.value;
    if (operator?.open_id !== undefined) await remember(deps, operator.open_id, chatId);
    // Where something was said before, nobody needs an introduction.
    if (!lastMessageId) await greet(deps, { chatId, tenant, person: operator?.open_id });
    return undefined;
  };
}

/** The first time that a person and the bot have a chat; older clients tell nothing else of it. */
function chatCreated(deps: ChatEventsDeps): EventHandler {
  return async ({ event, tenantKey: tenant }) => {
    const parsed = parseCreated(event);
    if (!parsed.ok) return undefined;
    const { chat_id: chatId, user } = parsed.value;
    if (user?.open_id !== undefined) await remember(deps, user.open_id, chatId);
    await greet(deps, { chatId, tenant, person: user?.open_id });
    return undefined;
  };
}

/** A message that was taken back is not answered: whether it is still to come, parked, waiting or being answered. */
function messageRecalled({ app, store, inbox, placer, lookups, logger }: ChatEventsDeps): EventHandler {
  return async ({ event }) => {
    const parsed = parseRecalled(event);
    if (!parsed.ok) return undefined;
    const { chat_id: chatId, message_id: messageId } = parsed.value;
    // First: whoever stores the message after this line sees it, and whoever did before has said where.
    await lookups.set(recalledKey(app, messageId), "yes", recalledMs);
    const session = await placer.sessionOf(chatId, messageId);
    await store.release(session, messageId, "drop");
    const seq = await store.seqOf(session, app, messageId);
    if (seq === undefined || seq === 0) return undefined;
    await inbox.cancel(session, turnIdOf(session, seq), "recalled");
    logger.info({ session, messageId }, "message recalled");
    return undefined;
  };
}

/** The event names no chat: it counts as said in the person's own chat with the bot, as far as that is known. */
function menuPressed({ directChats, settings, speakFor, logger }: ChatEventsDeps): EventHandler {
  return async ({ event, eventId, tenantKey, createdAtMs }) => {
    const parsed = parseMenu(event);
    const openId = parsed.ok ? parsed.value.operator.operator_id?.open_id : undefined;
    if (!parsed.ok || openId === undefined) return undefined;
    const key = parsed.value.event_key;
    const text = Object.hasOwn(settings.menu, key) ? settings.menu[key] : undefined;
    const said = text ?? (key.startsWith("/") ? key : undefined);
    if (said === undefined) {
      logger.warn({ eventKey: key }, "a press on the menu without a meaning: name it in feishu.menu");
      return undefined;
    }
    const chatId = (await directChats.of(openId)) ?? openId;
    const tenant = tenantKey === "" ? undefined : tenantKey;
    await speakFor({ openId, chatId, text: said, eventId, tenant, createdAtMs });
    return undefined;
  };
}

function chatUpdated({ facts }: ChatEventsDeps): EventHandler {
  return async ({ event }) => {
    const parsed = parseChat(event);
    if (parsed.ok) await facts.forget(parsed.value.chat_id);
    return undefined;
  };
}
