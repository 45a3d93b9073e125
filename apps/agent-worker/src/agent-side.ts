import { answerUuid, languageOfMessage, outputReader, turnLimits, type TurnLimits } from "@larkline/agent";
import { agentOfMessage, botOfApp, type AgentConfig, type LarklineConfig } from "@larkline/process/config";
import type { LiveReplies } from "@larkline/feishu";
import { traceparentOfMessage, type InboundMessage, sharedNow } from "@larkline/protocol";
import type { BlobStore, LookupCache, SessionSettings } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import { createFileReader, createHistoryReader } from "./history-reader.ts";
import { createLargeResults } from "./large-results.ts";
import type { MessagePreparer } from "./message-preparer.ts";
import { turnModelOf, type AgentModels } from "./models.ts";
import { createOfferedTools, type OfferedToolsDeps } from "./offered-tools.ts";
import { createTurnJudge, type JudgeDeps } from "./permission-judge.ts";
import { openTurnBudget, type BudgetDeps } from "./turn-budget.ts";
import type { AgentFacts, TurnRunOptions } from "./turn-options.ts";
import type { WorkerMetrics } from "./worker-metrics.ts";

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

export interface AgentSideDeps extends OfferedToolsDeps {
  settings: LarklineConfig;
  models: AgentModels;
  authorities: JudgeDeps["authorities"];
  groupsOf: JudgeDeps["groupsOf"];
  replies: LiveReplies;
  blobs: BlobStore;
  lookups: LookupCache;
  prepare: MessagePreparer;
  budgets: Pick<BudgetDeps, "book" | "store">;
  metrics: WorkerMetrics;
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
  const { settings, authorities, groupsOf, replies, blobs, lookups, prepare, metrics, logger } = deps;
  const models = deps.models.of(agent.name);
  const limits = limitsOf(settings, agent);
  warnOfMissingPrices(deps, agent);
  const tools = createOfferedTools(deps, agent.tools);
  const judging = { policy: settings.permissions, authorities, tools, groupsOf, logger, egress: agent.egress };
  const keepLarge = createLargeResults({ desk: { blobs, lookups }, limits, metrics, logger });
  const texts = agent.language === "auto" ? {} : { texts: agent.language };
  const format = agent.request.responseFormat;
  const schema = format?.type === "json_schema" ? format.jsonSchema : undefined;
  const output = schema === undefined ? {} : { output: outputReader(schema) };
  const budgets = { ...deps.budgets, metrics };
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
