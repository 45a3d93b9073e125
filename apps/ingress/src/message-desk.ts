import { noticeText } from "@larkline/agent";
import { lateCard } from "@larkline/feishu/cards";
import type { AgentConfig, FeishuSettings } from "@larkline/process/config";
import type { FeishuMessage } from "@larkline/feishu";
import { sharedNow, type InboundMessage, type ReplyLanguage } from "@larkline/protocol";
import type { LookupCache, SessionStore } from "@larkline/store";
import type { Admission } from "./admission.ts";
import { answeredBy, type BotAgents } from "./bot-agents.ts";
import type { MessageQueue, QueuedAs } from "./busy-policy.ts";
import { readCommand, type CommandDesk, type Order, type ReadCommand } from "./command-desk.ts";
import { referencesOf, type Place } from "./conversation-place.ts";
import { refusalText } from "./notice.ts";
import type { PersonLanguages } from "./person-language.ts";
import type { Speaker } from "./speaker.ts";

/** A message that is for the bot, and where it belongs. */
export interface Arrival {
  message: FeishuMessage;
  place: Place;
  /** Whose its sender is; absent when the platform does not say it. */
  tenant: string | undefined;
  /** Its words are those of an entry of the bot's menu. */
  fromMenu?: boolean;
}

/** The same when it is known in which languages to speak. */
interface HeardArrival extends Arrival {
  /** The sender's. */
  spoken: ReplyLanguage;
  /** That of the texts around the answer. */
  language: ReplyLanguage;
  /** Cards speak both languages: people who speak another one see them too. */
  bilingual: boolean;
}

/** Verdicts on messages that are for the bot. */
export type Admitted = Exclude<Admission, { verdict: "ignore" | "unsure" }>;

export type ArrivalOutcome = QueuedAs | "command" | "late" | "too_long" | "empty" | "foreign_tenant" | "recalled";

/** Deals with a message that is for the bot; resolves when it is safe, or answered. */
export type MessageDesk = (arrival: Arrival, admitted: Admitted) => Promise<ArrivalOutcome>;

export interface MessageDeskDeps {
  app: string;
  agents: Pick<BotAgents, "in">;
  settings: Pick<FeishuSettings, "lateMessages">;
  store: Pick<SessionStore, "seqOf">;
  lookups: Pick<LookupCache, "get">;
  languages: Pick<PersonLanguages, "hear">;
  queue: MessageQueue;
  commands: CommandDesk;
  speak: Speaker;
}

/** A message that was taken back before it could be stored. */
export function recalledKey(app: string, messageId: string): string {
  return `recalled:${app}:${messageId}`;
}

const maxTenantLength = 128;

function inboundOf(app: string, agent: AgentConfig, { message, place, tenant, spoken }: HeardArrival): InboundMessage {
  const references = referencesOf(message, place);
  return {
    v: 1,
    session: place.session,
    id: message.messageId,
    app,
    ...(tenant === undefined ? {} : { tenant: tenant.slice(0, maxTenantLength) }),
    sender: { id: message.senderOpenId },
    chatType: message.chatType,
    parts: [{ type: "text", text: message.text }],
    language: spoken,
    createdAtMs: message.createdAtMs === 0 ? sharedNow() : message.createdAtMs,
    reply: { channel: "feishu", ...place.target },
    ...answeredBy(agent),
    ...(references === undefined ? {} : { references }),
  };
}

/** What a message turns out to be; only bare words can be a command. */
function readArrival({ app, agents }: MessageDeskDeps, arrival: HeardArrival): ReadCommand {
  const { text, attachments, forwarded, chatId } = arrival.message;
  const agent = agents.in(chatId);
  const message = inboundOf(app, agent, arrival);
  const bare = attachments.length === 0 && !forwarded;
  return bare ? readCommand(message, text, agent.commands) : { for: "session", message };
}

/** What is said in place of a run. */
function createAnswers({ settings, speak }: MessageDeskDeps) {
  /** False when it was answered before. */
  const answer = async ({ message, place }: Arrival, text: string): Promise<boolean> => {
    const { session, target } = place;
    const { messageId } = message;
    return await speak({ purpose: "notice", key: messageId, session, target, text }, { messageId });
  };

  /** Asks whether it is still wanted; orders that only make sense at once are not asked about. */
  const late = async (arrival: HeardArrival, read: ReadCommand, ageMs: number): Promise<void> => {
    const { language, bilingual } = arrival;
    const line = refusalText("late", language, ageMs);
    if (settings.lateMessages === "line" || read.for === "desk") {
      await answer(arrival, line);
      return;
    }
    const { session, target } = arrival.place;
    const { messageId, text } = arrival.message;
    const card = lateCard({ language, bilingual, session, message: messageId, ageMs, text });
    const question = { purpose: "notice", key: messageId, session, target, text: line, card } as const;
    await speak(question, { messageId, parked: read.message });
  };

  return { answer, late };
}

/** Kinds of messages whose words are the sender's own. */
const ownKinds: ReadonlySet<string> = new Set(["text", "post"]);

/** The arrival with the language of its sender, which is kept from one message to the next. */
async function heard(
  { agents, languages }: MessageDeskDeps,
  arrival: Arrival,
  { verdict }: Admitted,
): Promise<HeardArrival> {
  const { message, fromMenu = false } = arrival;
  const { text, senderOpenId, messageType, forwarded, mentions } = message;
  const agent = agents.in(message.chatId);
  const written = {
    text: fromMenu || ownKinds.has(messageType) ? text : "",
    mentioned: mentions.map(({ name }) => name),
    isForeign: fromMenu || forwarded,
    isStranger: verdict === "foreign_tenant",
  };
  const spoken = await languages.hear(senderOpenId, written, agent);
  if (agent.language !== "auto") return { ...arrival, spoken, language: agent.language, bilingual: false };
  return { ...arrival, spoken, language: spoken, bilingual: message.chatType === "group" };
}

export function createMessageDesk(deps: MessageDeskDeps): MessageDesk {
  const { app, agents, store, lookups, queue, commands } = deps;
  const { answer, late } = createAnswers(deps);

  const enqueue = async (arrival: HeardArrival, message: InboundMessage): Promise<QueuedAs> => {
    const { language } = arrival;
    const result = await queue({ message, target: arrival.place.target, language });
    if (result === "full") await answer(arrival, refusalText("full", language));
    if (result === "busy") await answer(arrival, noticeText("busy", language));
    return result;
  };

  const obey = async (arrival: HeardArrival, order: Order): Promise<ArrivalOutcome> => {
    const message = inboundOf(app, agents.in(arrival.message.chatId), arrival);
    const text = await commands(order, message, arrival.language);
    return text === undefined || (await answer(arrival, text)) ? "command" : "duplicate";
  };

  return async (arrived, admitted) => {
    const { message, place } = arrived;
    const [recalled, arrival] = await Promise.all([
      lookups.get(recalledKey(app, message.messageId)),
      heard(deps, arrived, admitted),
    ]);
    if (recalled !== undefined) return "recalled";
    if (admitted.verdict === "too_long" || admitted.verdict === "empty" || admitted.verdict === "foreign_tenant") {
      await answer(arrival, refusalText(admitted.verdict, arrival.language));
      return admitted.verdict;
    }
    const read = readArrival(deps, arrival);
    // One that is known already is not late, only this delivery is, and it may have a wake-up to repair.
    if (admitted.verdict === "late" && (await store.seqOf(place.session, app, message.messageId)) === undefined) {
      await late(arrival, read, admitted.ageMs);
      return "late";
    }
    return read.for === "desk" ? await obey(arrival, read) : await enqueue(arrival, read.message);
  };
}
