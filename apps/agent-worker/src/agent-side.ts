import { languageOfMessage, turnLimits, type TurnLimits } from "@larkline/agent";
import type { AgentConfig, LarklineConfig } from "@larkline/config";
import type { LiveReplies } from "@larkline/feishu";
import type { BlobStore, LookupCache, PermissionRules, SessionSettings } from "@larkline/session";
import type { Logger } from "@larkline/telemetry";
import { createFileReader, createHistoryReader } from "./history-reader.ts";
import { createLargeResults } from "./large-results.ts";
import type { MessagePreparer } from "./message-preparer.ts";
import { turnModelOf, type ModelChoices } from "./models.ts";
import { createOfferedTools, type OfferedToolsDeps } from "./offered-tools.ts";
import { createTurnJudge, type JudgeDeps } from "./permission-judge.ts";
import { answerUuid } from "./reply.ts";
import type { AgentFacts, TurnRunOptions } from "./turn-options.ts";
import type { WorkerMetrics } from "./worker-metrics.ts";

/** What running a turn needs of its agent. */
export type AgentSide = Pick<
  TurnRunOptions,
  | "chain"
  | "instructions"
  | "followUps"
  | "now"
  | "facts"
  | "judge"
  | "keepLarge"
  | "commandFacts"
  | "prepare"
  | "read"
  | "readBriefly"
  | "openReply"
  | "viewOf"
>;

export interface AgentSideDeps extends OfferedToolsDeps {
  settings: LarklineConfig;
  models: ModelChoices;
  rules: Pick<PermissionRules, "inForce">;
  groupsOf: JudgeDeps["groupsOf"];
  replies: LiveReplies;
  blobs: BlobStore;
  lookups: LookupCache;
  prepare: MessagePreparer;
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

/** The bounds of every turn of a deployment. */
export function limitsOf({ agents, limits, permissions }: LarklineConfig): TurnLimits {
  const { maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars } = limits;
  const { maxIterations } = agents.default;
  const { maxDenials } = permissions;
  return turnLimits({ maxIterations, maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars, maxDenials });
}

/** The default agent under the choices of a session. */
export function createAgentSide(deps: AgentSideDeps): (choices: SessionSettings) => AgentSide {
  const { settings, models, rules, groupsOf, replies, blobs, lookups, prepare, metrics, logger } = deps;
  const agent = settings.agents.default;
  const limits = limitsOf(settings);
  const tools = createOfferedTools(deps, agent.tools);
  const judging = { policy: settings.permissions, rules, tools, groupsOf, logger };
  const keepLarge = createLargeResults({ desk: { blobs, lookups }, limits, metrics, logger });
  const texts = agent.language === "auto" ? {} : { texts: agent.language };
  const readBriefly = createFileReader({ blobs, maxChars: summarisedChars, maxTotalChars: 10 * summarisedChars });

  return (choices) => {
    const { name, chain } = models.choose(choices.model);
    const model = turnModelOf(chain);
    const { attachmentChars: maxChars } = settings.limits;
    return {
      chain,
      instructions: agent.instructions,
      followUps: followUps[agent.busy],
      now: Date.now,
      facts: (): AgentFacts => ({ limits, tools: tools(), model, ...texts }),
      judge: (message) => createTurnJudge(judging, message),
      keepLarge,
      commandFacts: () => ({
        nowMs: Date.now(),
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
        const language = languageOfMessage(message, texts.texts);
        const { displayName } = chain.primary;
        return { show: agent.card, language, nowMs: Date.now(), model: displayName, stoppable: true };
      },
      openReply: ({ turn, epoch, view }) => {
        const { session, reply, id } = turn.message;
        if (reply.channel !== "feishu") return undefined;
        const { channel: _channel, ...target } = reply;
        const uuid = answerUuid(reply.app, id);
        return replies.open({ session, replyId: turn.turnId, epoch, target, uuid, view });
      },
    };
  };
}
