import { createBudgetBook } from "@larkline/agent/budgets";
import { groupsAtBot, type BotConfig, type EdgeAccess, type LarklineConfig } from "@larkline/process/config";
import {
  GroupLookup,
  LongConnection,
  OutboxSender,
  StatusReactions,
  WebhookVerifier,
  messageEventType,
  type Envelope,
  type FeishuApi,
} from "@larkline/feishu";
import { sharedNow, type InboundMessage } from "@larkline/protocol";
import type { AppFeed } from "@larkline/store";
import { watchPlatform, type Logger, type Observation } from "@larkline/process/telemetry";
import type { ApprovalClicksDeps } from "./approval-clicks.ts";
import { createApprovalDesk } from "./approval-desk.ts";
import type { Backend } from "./backend.ts";
import { createBackground, type Background } from "./background.ts";
import { createBotAgents, type BotAgents } from "./bot-agents.ts";
import { createBotIdentity, type BotIdentity } from "./bot-identity.ts";
import { createMessageQueue } from "./busy-policy.ts";
import { cardActionType, createCardClicks } from "./card-clicks.ts";
import { createChatEvents } from "./chat-events.ts";
import { createChatFacts, type ChatFacts } from "./chat-facts.ts";
import { createCommandDesk } from "./command-desk.ts";
import { PersonLanguages } from "./person-language.ts";
import { createPeopleNames, type PeopleNames } from "./people-names.ts";
import { createPlacer, type Placer } from "./conversation-place.ts";
import { createDirectChats } from "./direct-chats.ts";
import { createEdgeFeeds } from "./edge-feeds.ts";
import { createEventWatch, type EventWatch } from "./event-watch.ts";
import { createEventRouter, type EventHandler, type EventRouter } from "./event-router.ts";
import type { Inbox } from "./inbox.ts";
import type { IngressMetrics } from "./ingress-metrics.ts";
import { createMenuMessages } from "./menu-message.ts";
import { createMessageDesk, type MessageDesk } from "./message-desk.ts";
import { createMessageHandler, type MessageOutcome } from "./message-handler.ts";
import { createNoticeOutbox } from "./notice-outbox.ts";
import { otherEventOf, type OtherEvents } from "./other-events.ts";
import { createRuleDesk } from "./rule-desk.ts";
import { createSpeaker, type Speaker } from "./speaker.ts";
import { createTurnStopper, type TurnStopper } from "./turn-stopper.ts";
import type { WebhookRoutesDeps } from "./webhook-routes.ts";

/** Everything of one bot that faces the platform. */
export interface FeishuEdge {
  /** The bot's name. */
  name: string;
  webhook: WebhookRoutesDeps | undefined;
  connection: LongConnection | undefined;
  /** How its events come in at this moment. */
  feeds(): AppFeed[];
  /** Finishes what is under way; call it when nothing new can come. */
  close(): Promise<void>;
}

export interface FeishuEdgeDeps {
  access: EdgeAccess;
  api: FeishuApi;
  settings: LarklineConfig;
  /** Model of the deployment, as far as this process knows it. */
  model: string | undefined;
  backend: Backend;
  inbox: Inbox;
  counters: IngressMetrics;
  observation: Observation;
  /** Get what is not for us. */
  otherEvents: OtherEvents;
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
  bot: BotConfig;
  agents: BotAgents;
  identity: BotIdentity;
  background: Background;
  /** Absent: its events come by webhook, to one address. */
  eventWatch: EventWatch | undefined;
  speak: Speaker;
  facts: ChatFacts;
  placer: Placer;
  languages: PersonLanguages;
  stop: TurnStopper;
  namesOf: PeopleNames;
  groupsOf: GroupLookup["groupsOf"];
  others: (envelope: Envelope) => void;
}

function messageDeskOf(desks: Desks): MessageDesk {
  const { bot, agents, backend, inbox, api, logger, speak, background, stop, model } = desks;
  const { store, lookups } = backend;
  const settings = bot.feishu;
  const reactions = new StatusReactions({ api, lookups, logger });
  const policyFor = (message: InboundMessage) => agents.of(message).busy;
  const queue = createMessageQueue({ policyFor, settings, store, inbox, speak, reactions, background });
  const { rules } = backend;
  const policy = desks.settings.permissions;
  const commands = createCommandDesk({
    agents,
    model,
    store,
    approvals: backend.approvals,
    namesOf: desks.namesOf,
    stop,
    rules: createRuleDesk({ ...desks, rules, policy, lookups }),
    budgets: { book: createBudgetBook(desks.settings.budgets), store: backend.budgets },
  });
  return createMessageDesk({ ...desks, settings, store, lookups, queue, commands });
}

function approvalsOf(desks: Desks): ApprovalClicksDeps {
  const { app, backend, settings, inbox, groupsOf, namesOf, decisionDeadlineMs, logger } = desks;
  const { approvals } = backend;
  const decide = createApprovalDesk({
    approvals,
    inbox,
    policy: settings.permissions,
    groupsOf,
    deadlineMs: decisionDeadlineMs,
    logger,
  });
  return { app, decide, namesOf };
}

function handlersOf(desks: Desks): Readonly<Record<string, EventHandler>> {
  const { app, bot, agents, backend, settings, identity, placer, background, counters, observation, logger } = desks;
  const { store, lookups } = backend;
  const desk = messageDeskOf(desks);
  const directChats = createDirectChats({ app, lookups });
  const { messageAgeMs: maxAgeMs, messageChars: maxChars } = settings.limits;
  const { tenants } = bot;
  const count = (outcome: MessageOutcome) => counters.messages.add({ channel: "feishu", outcome });
  const message = createMessageHandler({
    app,
    desk,
    placer,
    identity,
    agents,
    rules: { maxAgeMs, maxChars, tenants },
    onDirect: ({ senderOpenId: openId, chatId }, isServed) => {
      desks.eventWatch?.noteDirect(chatId);
      if (isServed) background.run("direct chat", async () => await directChats.remember(openId, chatId));
    },
    count,
    observation,
    logger,
  });
  const chatEvents = createChatEvents({
    ...desks,
    store,
    lookups,
    directChats,
    settings: bot.feishu,
    tenants,
    speakFor: createMenuMessages({ app, tenants, maxAgeMs, placer, desk, count, observation, logger }),
  });
  const clicks = createCardClicks({ ...desks, tenants, store, approvals: approvalsOf(desks) }, [
    async (envelope) => await desks.otherEvents.click(otherEventOf(bot.name, envelope)),
  ]);
  return { ...chatEvents, [messageEventType]: message, [cardActionType]: clicks };
}

function longConnectionOf({ access, logger, drainMs }: FeishuEdgeDeps, route: EventRouter): LongConnection {
  const { appId, appSecret, domain } = access;
  return new LongConnection({
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

function eventWatchOf({ api, backend, logger }: FeishuEdgeDeps, placer: Placer, bot: BotConfig): EventWatch {
  const { store, watches: reports } = backend;
  const app = api.appId;
  const takeDuty = async (ttlMs: number) => await backend.takeDuty(`event-watch:${app}`, ttlMs);
  const { monthlyCalls } = bot.feishu;
  return createEventWatch({ app, api, store, placer, reports, takeDuty, monthlyCalls, logger });
}

/** The first bot has the plain addresses, others have their name in it. */
function webhookPath(name: string): string {
  return name === "default" ? "/feishu" : `/feishu/${name}`;
}

/** Builds the edge of one bot; the long connection is not started yet. Throws when the app id cannot be one. */
export function createFeishuEdge(deps: FeishuEdgeDeps): FeishuEdge {
  const { access, api, settings, backend, inbox, counters, drainMs } = deps;
  const { storeDeadlineMs, decisionDeadlineMs } = deps;
  const app = api.appId;
  // Names of bots come from the configuration.
  const bot = settings.bots[access.name] ?? settings.bots.default;
  const agents = createBotAgents(settings, bot);
  const logger = deps.logger.child({ bot: bot.name });
  const { store, lookups, ledger } = backend;
  const identity = createBotIdentity({ botInfo: async (signal) => await api.botInfo(signal), logger });
  const { deliveries } = watchPlatform(deps.observation);
  const outbox = createNoticeOutbox(
    store,
    backend.letters,
    (share, letters) =>
      new OutboxSender({ store: share, letters, ledger, apis: new Map([[app, api]]), watch: deliveries, logger }),
  );
  const background = createBackground({ logger, drainMs });
  const groups = new GroupLookup({ api, lookups, timeoutMs: decisionDeadlineMs });
  const facts = createChatFacts({ app, lookups, chat: async (chatId) => await api.chat(chatId), logger });
  const placer = createPlacer({ app, facts, lookups, scopeIn: (chatId) => agents.in(chatId).sessions });
  const eventWatch = access.websocket ? eventWatchOf(deps, placer, bot) : undefined;
  const desks: Desks = {
    ...deps,
    logger,
    app,
    eventWatch,
    bot,
    agents,
    identity,
    background,
    facts,
    placer,
    speak: createSpeaker({ store, deliver: (lease) => outbox.deliver(lease) }),
    languages: new PersonLanguages({ app, lookups, logger }),
    namesOf: createPeopleNames({ app, api, lookups, patienceMs: namePatienceMs, logger }),
    groupsOf: async (openId) => groupsAtBot(bot, await groups.groupsOf(openId)),
    others: (envelope) => deps.otherEvents.pass(otherEventOf(bot.name, envelope)),
    stop: createTurnStopper({ app, store, inbox, lookups, deadlineMs: storeDeadlineMs }),
  };
  const { events, ackSeconds } = counters;
  const { others } = desks;
  const routing = { handlers: handlersOf(desks), others, events, ackSeconds, deadlineMs: ackDeadlineMs, logger };
  const { noting, feeds } = createEdgeFeeds(app);
  const route = noting(createEventRouter(routing));
  const connection = access.websocket ? longConnectionOf({ ...deps, logger }, route) : undefined;
  const { name, encryptKey, verificationToken, appId } = access;
  const verifier = new WebhookVerifier({ encryptKey, verificationToken, appId, ...settings.webhook, now: sharedNow });
  return {
    name,
    webhook: access.webhook
      ? { path: webhookPath(name), verifier, route, refused: counters.refused, logger }
      : undefined,
    connection,
    feeds: () => feeds(connection, access.webhook),
    close: async () => {
      await Promise.all([background.close(), eventWatch?.close()]);
      await outbox.close();
      identity.close();
    },
  };
}
