import type { AgentConfig, LarklineConfig } from "@larkline/config";
import {
  createGroupLookup,
  createLongConnection,
  createOutboxSender,
  createReactionDesk,
  createWebhookVerifier,
  messageEventType,
  type FeishuApi,
  type FeishuMessage,
  type GroupLookup,
  type LongConnection,
} from "@larkline/feishu";
import type { Logger } from "@larkline/telemetry";
import type { ApprovalClicksDeps } from "./approval-clicks.ts";
import { createApprovalDesk } from "./approval-desk.ts";
import type { Backend } from "./backend.ts";
import { createBackground, type Background } from "./background.ts";
import { createBotIdentity, type BotIdentity } from "./bot-identity.ts";
import { createMessageQueue } from "./busy-policy.ts";
import { cardActionType, createCardClicks } from "./card-clicks.ts";
import { createChatEvents, type SaidFor } from "./chat-events.ts";
import { createChatFacts, type ChatFacts } from "./chat-facts.ts";
import { createCommandDesk } from "./command-desk.ts";
import type { FeishuConfig } from "./config.ts";
import { createPeopleNames, type PeopleNames } from "./people-names.ts";
import { createPlacer, type Placer } from "./conversation-place.ts";
import { createDirectChats } from "./direct-chats.ts";
import { createEventRouter, type EventHandler, type EventRouter } from "./event-router.ts";
import type { Inbox } from "./inbox.ts";
import type { IngressMetrics } from "./ingress-metrics.ts";
import { createMessageDesk, type MessageDesk } from "./message-desk.ts";
import { createMessageHandler } from "./message-handler.ts";
import { createNoticeOutbox } from "./notice-outbox.ts";
import { createRuleDesk } from "./rule-desk.ts";
import { createSpeaker, type Speaker } from "./speaker.ts";
import { createTurnStopper, type TurnStopper } from "./turn-stopper.ts";
import type { WebhookRoutesDeps } from "./webhook-routes.ts";

/** Everything that faces the platform. */
export interface FeishuEdge {
  webhook: WebhookRoutesDeps | undefined;
  connection: LongConnection | undefined;
  /** Finishes what is under way; call it when nothing new can come. */
  close(): Promise<void>;
}

export interface FeishuEdgeDeps {
  feishu: FeishuConfig;
  api: FeishuApi;
  settings: LarklineConfig;
  /** Model of the deployment, as far as this process knows it. */
  model: string | undefined;
  backend: Backend;
  inbox: Inbox;
  counters: IngressMetrics;
  logger: Logger;
  /** How long closing waits for what is under way. */
  drainMs: number;
  storeDeadlineMs: number;
  decisionDeadlineMs: number;
}

/** The platform waits 3 s for an acknowledgement ("Event subscription overview"). */
const ackDeadlineMs = 2_500;

/** After the decision itself, while the answer to the click may still wait. */
const namePatienceMs = 300;

/** What the handlers of all events share. */
interface Desks extends FeishuEdgeDeps {
  app: string;
  agent: AgentConfig;
  identity: BotIdentity;
  background: Background;
  speak: Speaker;
  facts: ChatFacts;
  placer: Placer;
  stop: TurnStopper;
  namesOf: PeopleNames;
  groupsOf: GroupLookup["groupsOf"];
}

function messageDeskOf(desks: Desks): MessageDesk {
  const { app, agent, backend, inbox, api, logger, speak, background, stop, model } = desks;
  const { store, lookups } = backend;
  const settings = desks.settings.feishu;
  const reactions = createReactionDesk({ api, lookups, logger });
  const queue = createMessageQueue({ policy: agent.busy, settings, store, inbox, speak, reactions, background });
  const { rules } = backend;
  const policy = desks.settings.permissions;
  const commands = createCommandDesk({
    agent,
    model,
    store,
    stop,
    rules: createRuleDesk({ ...desks, rules, policy, lookups }),
  });
  return createMessageDesk({ app, agent, settings, store, lookups, queue, commands, speak });
}

/** A press on the menu goes the way of a message; the platform's answer to it has no message to hang on. */
function speakerFor({ app, placer, settings, counters, logger }: Desks, desk: MessageDesk) {
  return async ({ openId, chatId, text, eventId, tenant, createdAtMs }: SaidFor): Promise<void> => {
    if (createdAtMs > 0 && Date.now() - createdAtMs > settings.limits.messageAgeMs) {
      logger.info({ eventId }, "a press on the menu came too late");
      return;
    }
    const message: FeishuMessage = {
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
    const { session } = await placer.of(message);
    const place = { session, target: { app, chatId, messageId: "", inThread: false } };
    const outcome = await desk({ message, place, tenant }, { verdict: "accept" });
    counters.messages.add({ channel: "feishu", outcome });
  };
}

function approvalsOf(desks: Desks): ApprovalClicksDeps {
  const { app, backend, settings, inbox, groupsOf, namesOf, decisionDeadlineMs, logger } = desks;
  const { approvals, rules } = backend;
  const decide = createApprovalDesk({
    approvals,
    rules,
    inbox,
    policy: settings.permissions,
    groupsOf,
    deadlineMs: decisionDeadlineMs,
    logger,
  });
  return { app, decide, namesOf };
}

function handlersOf(desks: Desks): Readonly<Record<string, EventHandler>> {
  const { app, agent, backend, settings, identity, placer, background, counters, logger } = desks;
  const { store, lookups } = backend;
  const desk = messageDeskOf(desks);
  const directChats = createDirectChats({ app, lookups });
  const { messageAgeMs: maxAgeMs, messageChars: maxChars } = settings.limits;
  const message = createMessageHandler({
    desk,
    placer,
    identity,
    rules: { maxAgeMs, maxChars, groups: agent.groups },
    onDirect: ({ senderOpenId: openId, chatId }) =>
      background.run("direct chat", async () => await directChats.remember(openId, chatId)),
    count: (outcome) => counters.messages.add({ channel: "feishu", outcome }),
    logger,
  });
  const chatEvents = createChatEvents({
    ...desks,
    store,
    lookups,
    directChats,
    settings: settings.feishu,
    speakFor: speakerFor(desks, desk),
  });
  const clicks = createCardClicks({ ...desks, store, approvals: approvalsOf(desks) });
  return { ...chatEvents, [messageEventType]: message, [cardActionType]: clicks };
}

function longConnectionOf({ feishu, logger, drainMs }: FeishuEdgeDeps, route: EventRouter): LongConnection {
  const { appId, appSecret, domain } = feishu;
  return createLongConnection({
    appId,
    appSecret,
    domain,
    logger,
    onEvent: async (envelope) => {
      const answer = await route(envelope, "websocket");
      return Object.keys(answer).length === 0 ? undefined : answer;
    },
    onState: (state) => logger.info({ state }, "long connection"),
    drainMs,
  });
}

/** Builds the edge; the long connection is not started yet. Throws when the app id cannot be one. */
export function createFeishuEdge(deps: FeishuEdgeDeps): FeishuEdge {
  const { feishu, api, settings, backend, inbox, counters, logger, drainMs } = deps;
  const { storeDeadlineMs, decisionDeadlineMs } = deps;
  const app = api.appId;
  const agent = settings.agents.default;
  const { store, lookups, ledger } = backend;
  const identity = createBotIdentity({ botInfo: async (signal) => await api.botInfo(signal), logger });
  const outbox = createNoticeOutbox(store, (share) =>
    createOutboxSender({ store: share, ledger, apis: new Map([[app, api]]), logger }),
  );
  const background = createBackground({ logger, drainMs });
  const facts = createChatFacts({ app, lookups, chat: async (chatId) => await api.chat(chatId), logger });
  const desks: Desks = {
    ...deps,
    app,
    agent,
    identity,
    background,
    facts,
    placer: createPlacer({ app, facts, lookups, scope: agent.sessions }),
    speak: createSpeaker({ store, deliver: (lease) => outbox.deliver(lease) }),
    namesOf: createPeopleNames({ app, api, lookups, patienceMs: namePatienceMs, logger }),
    groupsOf: createGroupLookup({ api, lookups, timeoutMs: decisionDeadlineMs }).groupsOf,
    stop: createTurnStopper({ app, store, inbox, lookups, deadlineMs: storeDeadlineMs }),
  };
  const { events, ackSeconds } = counters;
  const route = createEventRouter({
    handlers: handlersOf(desks),
    events,
    ackSeconds,
    deadlineMs: ackDeadlineMs,
    logger,
  });
  const { encryptKey, verificationToken, appId } = feishu;
  const verifier = createWebhookVerifier({ encryptKey, verificationToken, appId });
  return {
    webhook: feishu.webhook ? { verifier, route, refused: counters.refused, logger } : undefined,
    connection: feishu.websocket ? longConnectionOf(deps, route) : undefined,
    close: async () => {
      await background.close();
      await outbox.close();
      identity.close();
    },
  };
}
