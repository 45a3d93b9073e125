import { inboundFromEvent, type Envelope, type FeishuMessage } from "@larkline/feishu";
import { EngineError, sharedNow } from "@larkline/protocol";
import type { Logger, Observation } from "@larkline/process/telemetry";
import { admit, type AdmissionRules, type IgnoreReason } from "./admission.ts";
import type { BotAgents } from "./bot-agents.ts";
import type { BotIdentity } from "./bot-identity.ts";
import type { Place, Placer } from "./conversation-place.ts";
import type { EventHandler } from "./event-router.ts";
import type { ArrivalOutcome, MessageDesk } from "./message-desk.ts";
import { watched } from "./message-watch.ts";

export type MessageOutcome = ArrivalOutcome | "unreadable" | "unsure" | IgnoreReason;

export interface MessageHandlerDeps {
  app: string;
  desk: MessageDesk;
  placer: Placer;
  identity: Pick<BotIdentity, "openId" | "within">;
  rules: Pick<AdmissionRules, "maxAgeMs" | "maxChars" | "tenants">;
  agents: Pick<BotAgents, "in">;
  /** Told of every direct message, and whether its sender is of a tenant that is served. */
  onDirect: (message: FeishuMessage, isServed: boolean) => void;
  count: (outcome: MessageOutcome) => void;
  observation: Observation;
  logger: Logger;
}

/** How long a group message waits for the bot to learn who it is, before it is left to redelivery. */
const identityWaitMs = 1_000;

function isBadId(error: unknown): boolean {
  return error instanceof EngineError && error.code === "api_bad_request";
}

/** Handles messages to the bot: resolves when the message is safe, or not for the bot. */
export function createMessageHandler(deps: MessageHandlerDeps): EventHandler {
  const { desk, placer, identity, rules, agents, logger } = deps;

  const placeOf = async (message: FeishuMessage, eventId: string): Promise<Place | undefined> => {
    try {
      return await placer.of(message);
    } catch (error) {
      if (!isBadId(error)) throw error;
      logger.warn({ error, eventId }, "message with an id that cannot be one");
      return undefined;
    }
  };

  const take = async (message: FeishuMessage, envelope: Envelope, botOpenId: string): Promise<MessageOutcome> => {
    const { groups } = agents.in(message.chatId);
    // Theirs, not that of the event: it is the app's, and people from outside have another one.
    const tenant = message.senderTenant;
    const admission = admit({ ...message, tenant }, { ...rules, groups, botOpenId, nowMs: sharedNow() });
    if (admission.verdict === "ignore") return admission.reason;
    if (admission.verdict === "unsure") return "unsure";
    const place = await placeOf(message, envelope.eventId);
    if (place === undefined) return "unreadable";
    if (message.chatType === "p2p") deps.onDirect(message, admission.verdict !== "foreign_tenant");
    return await desk({ message, place, tenant }, admission);
  };

  const handle = async (envelope: Envelope, botOpenId: string): Promise<MessageOutcome> => {
    const parsed = inboundFromEvent(envelope, { botOpenId });
    if (!parsed.ok) {
      logger.warn({ reason: parsed.error, eventId: envelope.eventId }, "unreadable message event");
      return "unreadable";
    }
    const { chatId, messageId, senderOpenId: person } = parsed.value;
    const arriving = { app: deps.app, id: messageId, chat: chatId, person, channel: "feishu" } as const;
    const outcome = await watched(
      deps.observation,
      arriving,
      async () => await take(parsed.value, envelope, botOpenId),
    );
    if (outcome === "unsure" && botOpenId === "") {
      const learned = await identity.within(identityWaitMs);
      if (learned !== "") return await handle(envelope, learned);
    }
    logger.info({ outcome, chatId, messageId, eventId: envelope.eventId }, "message handled");
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
