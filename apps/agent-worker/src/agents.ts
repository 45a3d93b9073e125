import {
  answerUuid,
  languageOfMessage,
  outputReader,
  turnLimits,
  type TurnLimits,
  type TurnModel,
} from "@larkline/agent";
import {
  agentOfMessage,
  botOfApp,
  type AgentConfig,
  type LarklineConfig,
  readModelNames,
  type ModelProviders,
} from "@larkline/process/config";
import type { LiveReplies } from "@larkline/feishu";
import { traceparentOfMessage, type InboundMessage, sharedNow, type ParseResult } from "@larkline/protocol";
import type { BlobStore, LookupCache, SessionSettings } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import {
  costOf,
  createModelChain,
  findModelInfo,
  ModelHealth,
  type LlmBackend,
  type ModelChain,
  type ModelChoice,
} from "@larkline/model";
import { createAnthropicBackend } from "@larkline/model/anthropic";
import { createOpenAiChatBackend, createOpenAiResponsesBackend } from "@larkline/model/openai";
import { createFileReader, createHistoryReader } from "./model-step.ts";
import { createLargeResults, createOfferedTools, type OfferedToolsDeps } from "./tools.ts";
import type { MessagePreparer } from "./prepare.ts";
import { createTurnJudge, type JudgeDeps } from "./approvals.ts";
import { openTurnBudget, type BudgetDeps } from "./budget.ts";
import type { AgentFacts, TurnRunOptions } from "./turn-run.ts";
import type { WorkerCounters } from "./services.ts";
import type { WorkerConfig } from "./config.ts";

/** What running a turn needs of its agent. */
export type AgentSide = Pick<
  TurnRunOptions,
  | "chain"
  | "instructions"
  | "request"
  | "followUps"
  | "now"
  | "facts"
  | "judge"
  | "keepLarge"
  | "openBudget"
  | "commandFacts"
  | "prepare"
  | "read"
  | "readBriefly"
  | "openReply"
  | "viewOf"
>;

interface AgentSideDeps extends OfferedToolsDeps {
  settings: LarklineConfig;
  models: AgentModels;
  authorities: JudgeDeps["authorities"];
  groupsOf: JudgeDeps["groupsOf"];
  replies: LiveReplies;
  blobs: BlobStore;
  lookups: LookupCache;
  prepare: MessagePreparer;
  budgets: Pick<BudgetDeps, "book" | "store">;
  counters: WorkerCounters;
  logger: Logger;
}

/** Text of one file that a summary is made from: it gets a sentence or two there. */
const summarisedChars = 2_000;

const followUps = {
  queue: "wait",
  reject: "wait",
  steer: "join",
  interrupt: "supersede",
} as const satisfies Record<AgentConfig["busy"], AgentSide["followUps"]>;

/** The bounds of every turn of an agent. */
export function limitsOf(
  { limits, permissions }: Pick<LarklineConfig, "limits" | "permissions">,
  { maxIterations }: Pick<AgentConfig, "maxIterations">,
): TurnLimits {
  const { maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars } = limits;
  const { maxDenials } = permissions;
  return turnLimits({ maxIterations, maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars, maxDenials });
}

/** The agents of a deployment: that of a message, under the choices of its session. */
export function createAgentSides(
  deps: AgentSideDeps,
): (message: InboundMessage, choices: SessionSettings) => AgentSide {
  const { settings, logger } = deps;
  const sides = new Map(Object.values(settings.agents).map((agent) => [agent.name, createAgentSide(deps, agent)]));
  return (message, choices) => {
    const { name } = agentOfMessage(settings, message);
    if (name !== (message.agent ?? "default")) {
      const { session, agent } = message;
      logger.warn({ session, agent, answeredBy: name }, "the agent of a message is not configured any more");
    }
    const side = sides.get(name);
    if (side === undefined) throw new RangeError(`no agent ${name}`); // it is one of them
    return side(choices);
  };
}

/** Money is counted by prices. */
function warnOfMissingPrices({ settings, models, logger }: AgentSideDeps, agent: AgentConfig): void {
  if (!settings.budgets.budgets.some(({ usd }) => usd !== undefined)) return;
  const choices = models.of(agent.name);
  const all = [undefined, ...agent.models].flatMap((name) => choices.choose(name).chain.models);
  const free = all.filter(({ inputPricePer1M, outputPricePer1M }) => inputPricePer1M + outputPricePer1M === 0);
  if (free.length === 0) return;
  const facts = { agent: agent.name, models: [...new Set(free.map(({ id }) => id))].join(", ") };
  logger.warn(facts, "budgets in money do not count these models: their prices are unknown (models[] can give them)");
}

function createAgentSide(deps: AgentSideDeps, agent: AgentConfig): (choices: SessionSettings) => AgentSide {
  const { settings, authorities, groupsOf, replies, blobs, lookups, prepare, counters, logger } = deps;
  const models = deps.models.of(agent.name);
  const limits = limitsOf(settings, agent);
  warnOfMissingPrices(deps, agent);
  const tools = createOfferedTools(deps, agent.tools);
  const judging = { policy: settings.permissions, authorities, tools, groupsOf, logger, egress: agent.egress };
  const keepLarge = createLargeResults({ desk: { blobs, lookups }, limits, counters, logger });
  const texts = agent.language === "auto" ? {} : { texts: agent.language };
  const format = agent.request.responseFormat;
  const schema = format?.type === "json_schema" ? format.jsonSchema : undefined;
  const output = schema === undefined ? {} : { output: outputReader(schema) };
  const budgets = { ...deps.budgets, counters };
  const readBriefly = createFileReader({ blobs, maxChars: summarisedChars, maxTotalChars: 10 * summarisedChars });

  return (choices) => {
    const { name, chain } = models.choose(choices.model);
    const model = turnModelOf(chain);
    const { attachmentChars: maxChars } = settings.limits;
    return {
      chain,
      instructions: agent.instructions,
      request: agent.request,
      followUps: followUps[agent.busy],
      now: sharedNow,
      facts: (): AgentFacts => ({ limits, tools: tools(), model, ...output, ...texts }),
      judge: (message) => createTurnJudge(judging, message),
      keepLarge,
      openBudget: (run) => openTurnBudget(budgets, { name: agent.name, model, now: sharedNow, ...texts }, run),
      commandFacts: () => ({
        nowMs: sharedNow(),
        model: name,
        defaultModel: models.defaultName,
        models: agent.models,
        ...texts,
      }),
      prepare,
      read: createHistoryReader({
        blobs,
        vision: chain.primary.supportsVision,
        maxChars,
        // A character of Chinese is a token: half of the window at most.
        maxTotalChars: Math.floor(chain.primary.contextWindow / 2),
      }),
      readBriefly,
      viewOf: (message) => {
        const { command, reply } = message;
        if (agent.reply !== "card" || reply.channel !== "feishu" || command !== undefined) return undefined;
        const bilingual = texts.texts === undefined && message.chatType === "group";
        const speech = { language: languageOfMessage(message, texts.texts), bilingual };
        const { displayName } = chain.primary;
        const { maxCards } = botOfApp(settings, reply.app).feishu;
        return { ...speech, show: agent.card, nowMs: sharedNow(), model: displayName, stoppable: true, maxCards };
      },
      openReply: ({ turn, epoch, view }) => {
        const { session, reply, id } = turn.message;
        if (reply.channel !== "feishu") return undefined;
        const { channel: _channel, ...target } = reply;
        const uuid = answerUuid(reply.app, id);
        const traceparent = traceparentOfMessage(turn.message);
        return replies.open({ session, replyId: turn.turnId, epoch, target, uuid, view, traceparent });
      },
    };
  };
}

/** Servers without a key take any. */
const noKey = "none";

function backendOf(provider: string, providers: ModelProviders): LlmBackend {
  const access = providers[provider];
  if (access === undefined) throw new RangeError(`no provider ${provider}`); // readModelNames has checked
  const { type, apiKey = noKey, baseUrl } = access;
  const reached = { apiKey, ...(baseUrl === undefined ? {} : { baseUrl }) };
  if (type === "anthropic") return createAnthropicBackend(reached);
  return type === "openai" ? createOpenAiChatBackend(reached) : createOpenAiResponsesBackend(reached);
}

/** The model of a deployment that names none: one of a vendor that it has a key for. */
function standardModel({ anthropic, openai }: ModelProviders): string | undefined {
  if (anthropic?.apiKey !== undefined) return "anthropic/claude-sonnet-5-5";
  return openai?.apiKey === undefined ? undefined : "openai/gpt-6.1-sol";
}

/** The models of one agent: its own, and those that people may choose. */
interface ModelChoices {
  /** `<provider>/<id>` of the model without a choice. */
  readonly defaultName: string;
  /** The chain of a choice; of the default when there is none, or not any more. */
  choose(name: string | undefined): { name: string; chain: ModelChain };
}

function nameOf({ provider, id }: ModelChoice): string {
  return `${provider}/${id}`;
}

/** The models of all agents. */
export interface AgentModels {
  /** `<provider>/<id>` of the model that an agent without one of its own has. */
  readonly defaultName: string;
  /** Those of an agent of the configuration. */
  of(agent: string): ModelChoices;
}

/**
 * The models of every agent: its own, or else those of the environment, and those that it offers for
 * `/model`. A chosen model falls back to the usual ones. The error lists every agent with a problem.
 */
export function createAgentModels(
  config: Pick<WorkerConfig, "model" | "concurrency">,
  settings: LarklineConfig,
  providers: ModelProviders,
): ParseResult<AgentModels> {
  const { concurrency: slots } = config;
  const text = config.model ?? standardModel(providers);
  if (text === undefined) {
    return { ok: false, error: "Set ANTHROPIC_API_KEY or OPENAI_API_KEY (and MODEL, to choose the model)." };
  }
  const usual = readModelNames(text, { providers, models: settings.models });
  if (!usual.ok) return { ok: false, error: `MODEL: ${usual.error}` };
  const [first] = usual.value;
  if (first === undefined) return { ok: false, error: "MODEL names no model." };
  const sources: ChainSources = {
    usual: usual.value,
    settings,
    providers,
    slots,
    backends: new Map(),
    health: new Map(),
  };
  const made = Object.values(settings.agents).map((agent) => ({
    name: agent.name,
    choices: choicesOf(agent, sources),
  }));
  const problems = made.flatMap(({ choices }) => (choices.ok ? [] : [choices.error]));
  if (problems.length > 0) return { ok: false, error: problems.join("\n") };
  const byAgent = new Map(made.flatMap(({ name, choices }) => (choices.ok ? [[name, choices.value]] : [])));
  return {
    ok: true,
    value: {
      defaultName: nameOf(first),
      of: (agent) => {
        const choices = byAgent.get(agent);
        if (choices === undefined) throw new RangeError(`no agent ${agent}`); // whoever asks has its configuration
        return choices;
      },
    },
  };
}

function choicesOf({ name, model, models }: AgentConfig, sources: ChainSources): ParseResult<ModelChoices> {
  const known = { providers: sources.providers, models: sources.settings.models };
  const where = `larkline.config.ts: agents.${name}`;
  const own: ParseResult<ModelChoice[]> =
    model === null ? { ok: true, value: sources.usual } : readModelNames(model, known);
  const offered: ParseResult<ModelChoice[]> =
    models.length === 0 ? { ok: true, value: [] } : readModelNames(models.join(","), known);
  if (!own.ok) return { ok: false, error: `${where}.model: ${own.error}` };
  if (!offered.ok) return { ok: false, error: `${where}.models: ${offered.error}` };
  const [first] = own.value;
  if (first === undefined) return { ok: false, error: `${where} has no model.` };
  const usual = { name: nameOf(first), chain: chainOf(own.value, sources) };
  const chosen = offered.value.map((choice) => {
    const others = own.value.filter((other) => nameOf(other) !== nameOf(choice));
    return [nameOf(choice), chainOf([choice, ...others], sources)] as const;
  });
  const byName = new Map(chosen);
  return {
    ok: true,
    value: {
      defaultName: usual.name,
      choose: (wanted) => {
        const found = wanted === undefined ? undefined : byName.get(wanted);
        return found === undefined || wanted === undefined ? usual : { name: wanted, chain: found };
      },
    },
  };
}

interface ChainSources {
  /** Those of `MODEL`. */
  usual: ModelChoice[];
  settings: LarklineConfig;
  providers: ModelProviders;
  /** Models of one provider share a client. */
  backends: Map<string, LlmBackend>;
  /** Turns that this process runs at once. */
  slots: number;
  /** By name: what all agents of this process know of a model. */
  health: Map<string, ModelHealth>;
}

function chainOf(
  choices: readonly ModelChoice[],
  { settings, providers, slots, backends, health }: ChainSources,
): ModelChain {
  const models = choices.map(({ provider, id }) => {
    const backend = backends.get(provider) ?? backendOf(provider, providers);
    backends.set(provider, backend);
    const name = nameOf({ provider, id });
    const known = health.get(name) ?? new ModelHealth({ slots, now: () => performance.now() });
    health.set(name, known);
    return { info: findModelInfo(provider, id, settings.models), backend, health: known };
  });
  const { stepBytes, modelSilenceMs, modelThinkingMs, modelRetryMs } = settings.limits;
  return createModelChain({
    models,
    maxStepBytes: stepBytes,
    timeouts: { headersMs: modelSilenceMs, gapMs: modelSilenceMs, thinkingMs: modelThinkingMs },
    retry: { giveUpMs: modelRetryMs },
  });
}

/** What the turn needs to know about its model: facts of the first, prices of whichever answered. */
export function turnModelOf(chain: ModelChain): TurnModel {
  const byId = new Map(chain.models.map((info) => [info.id, info]));
  return {
    info: chain.primary,
    costUsd: (usage, model) => costOf(usage, byId.get(model ?? "") ?? chain.primary),
  };
}
