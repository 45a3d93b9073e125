import { sessionIdOf, sessionKeyOf } from "@larkline/agent";
import { inboundFromEvent, type Envelope, type FeishuMessage } from "@larkline/feishu";
import type { InboundMessage, SessionKey } from "@larkline/protocol";
import type { OutboxLease, OutboxRecord, SessionStore } from "@larkline/session";
import type { Logger } from "@larkline/telemetry";
import { admit, type Admission, type AdmissionRules, type IgnoreReason } from "./admission.ts";
import type { BotIdentity } from "./bot-identity.ts";
import type { EventHandler } from "./event-router.ts";
import type { Inbox } from "./inbox.ts";
import { noticeOf, type NoticeName } from "./notice.ts";

export type MessageOutcome = "accepted" | "duplicate" | "unreadable" | "unsure" | IgnoreReason | NoticeName;

export interface MessageHandlerDeps {
  /** The bot's app id, first part of its session keys. */
  app: string;
  inbox: Inbox;
  store: Pick<SessionStore, "pushOutbox">;
  /** Sends what the outbox holds, in the background. */
  deliver: (lease: OutboxLease) => void;
  identity: Pick<BotIdentity, "openId" | "within">;
  rules: Pick<AdmissionRules, "maxAgeMs" | "maxChars" | "groups">;
  count: (outcome: MessageOutcome) => void;
  logger: Logger;
}

/** How long a group message waits for the bot to learn who it is, before it is left to redelivery. */
const identityWaitMs = 1_000;

/**
 * Where the conversation is. Replies name the first message of their thread; that message itself
 * already has the thread's id and belongs to the same conversation. Outside threads a quoted message
 * changes nothing.
 */
function sessionOf(app: string, { chatId, rootId, threadId, messageId }: FeishuMessage): SessionKey {
  const root = threadId === undefined ? undefined : (rootId ?? messageId);
  return sessionKeyOf(app, sessionIdOf({ chatId, rootId: root, messageId }));
}

function targetOf(app: string, { chatId, messageId, threadId }: FeishuMessage): OutboxRecord["target"] {
  return { app, chatId, messageId, inThread: threadId !== undefined };
}

interface Arrival {
  message: FeishuMessage;
  session: SessionKey;
}

function inboundOf(app: string, { message, session }: Arrival): InboundMessage {
  return {
    v: 1,
    session,
    id: message.messageId,
    app,
    sender: { id: message.senderOpenId },
    chatType: message.chatType,
    parts: [{ type: "text", text: message.text }],
    createdAtMs: message.createdAtMs === 0 ? Date.now() : message.createdAtMs,
    reply: { channel: "feishu", ...targetOf(app, message) },
  };
}

function createNotifier({ app, store, deliver }: MessageHandlerDeps) {
  return async ({ message, session }: Arrival, name: NoticeName, ageMs = 0): Promise<void> => {
    const target = targetOf(app, message);
    const record = noticeOf({ name, session, target, writtenText: message.text, ageMs, nowMs: Date.now() });
    const lease = await store.pushOutbox(record, message.messageId);
    if (lease !== undefined) deliver(lease);
  };
}

/** Handles messages to the bot: resolves when the message is safe, or not for the bot. */
export function createMessageHandler(deps: MessageHandlerDeps): EventHandler {
  const { app, inbox, identity, rules } = deps;
  const notify = createNotifier(deps);

  const read = (envelope: Envelope, botOpenId: string): Arrival | undefined => {
    const parsed = inboundFromEvent(envelope, { botOpenId });
    try {
      if (parsed.ok) return { message: parsed.value, session: sessionOf(app, parsed.value) };
    } catch (error) {
      deps.logger.warn({ error, eventId: envelope.eventId }, "message with an id that cannot be one");
      return undefined;
    }
    deps.logger.warn({ reason: parsed.error, eventId: envelope.eventId }, "unreadable message event");
    return undefined;
  };

  const store = async (arrival: Arrival): Promise<MessageOutcome> => {
    const appended = await inbox.append(inboundOf(app, arrival));
    if (appended.result === "full") await notify(arrival, "full");
    // Also for a duplicate: its first delivery may have died between append and wake.
    await inbox.wake(arrival.session, appended.wakeGen);
    return appended.result;
  };

  const act = async (arrival: Arrival, admission: Admission): Promise<MessageOutcome> => {
    switch (admission.verdict) {
      case "accept":
        return await store(arrival);
      case "late":
        await notify(arrival, "late", admission.ageMs);
        return "late";
      case "too_long":
      case "empty":
        await notify(arrival, admission.verdict);
        return admission.verdict;
      case "ignore":
        return admission.reason;
      case "unsure":
        return "unsure";
    }
  };

  const handle = async (envelope: Envelope, botOpenId: string): Promise<MessageOutcome> => {
    const arrival = read(envelope, botOpenId);
    if (arrival === undefined) return "unreadable";
    const admission = admit(arrival.message, { ...rules, botOpenId, nowMs: Date.now() });
    if (admission.verdict === "unsure" && botOpenId === "") {
      const learned = await identity.within(identityWaitMs);
      if (learned !== "") return await handle(envelope, learned);
    }
    const outcome = await act(arrival, admission);
    const { messageId } = arrival.message;
    deps.logger.info({ outcome, session: arrival.session, messageId, eventId: envelope.eventId }, "message handled");
    return outcome;
  };

  return async (envelope) => {
    const outcome = await handle(envelope, identity.openId());
    deps.count(outcome);
    // Neither run nor lost: not acknowledged, the platform delivers it again in 15 s.
    if (outcome === "unsure") throw new Error("a group message has to wait until the bot knows its own open_id");
    return undefined;
  };
}
