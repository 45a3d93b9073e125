import { languageOfMessage, turnLimits, type TurnEnvironment, type TurnLimits } from "@larkline/agent";
import type { AgentConfig, LarklineConfig } from "@larkline/config";
import type { LiveReplies } from "@larkline/feishu";
import type { AvailableTool, BlobStore, SessionSettings } from "@larkline/session";
import { createFileReader, createHistoryReader } from "./history-reader.ts";
import type { MessagePreparer } from "./message-preparer.ts";
import { turnModelOf, type ModelChoices } from "./models.ts";
import { answerUuid } from "./reply.ts";
import type { ToolCatalog } from "./tool-catalog.ts";
import type { TurnRunOptions } from "./turn-options.ts";

/** What running a turn needs of its agent. */
export type AgentSide = Pick<
  TurnRunOptions,
  | "chain"
  | "instructions"
  | "followUps"
  | "environment"
  | "commandFacts"
  | "prepare"
  | "read"
  | "readBriefly"
  | "openReply"
  | "viewOf"
>;

export interface AgentSideDeps {
  settings: LarklineConfig;
  models: ModelChoices;
  catalog: Pick<ToolCatalog, "tools">;
  replies: LiveReplies;
  blobs: BlobStore;
  prepare: MessagePreparer;
}

/** Text of one file that a summary is made from: it gets a sentence or two there. */
const summarisedChars = 2_000;

const followUps = {
  queue: "wait",
  reject: "wait",
  steer: "join",
  interrupt: "supersede",
} as const satisfies Record<AgentConfig["busy"], AgentSide["followUps"]>;

function limitsOf({ agents, limits }: LarklineConfig): TurnLimits {
  const { maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars } = limits;
  const { maxIterations } = agents.default;
  return turnLimits({ maxIterations, maxCallsPerStep, toolTimeoutMs, toolWaitMs, maxResultChars });
}

/** The tools an agent may use; filtered once per change of the catalog. */
function toolsOf(
  { tools }: AgentConfig,
  catalog: Pick<ToolCatalog, "tools">,
): () => ReadonlyMap<string, AvailableTool> {
  let source: ReadonlyMap<string, AvailableTool> | undefined;
  let allowed: ReadonlyMap<string, AvailableTool> = new Map();
  return () => {
    const all = catalog.tools();
    if (all === source) return allowed;
    source = all;
    allowed = tools === null ? all : new Map([...all].filter(([name]) => tools.includes(name)));
    return allowed;
  };
}

/** The default agent under the choices of a session. */
export function createAgentSide(deps: AgentSideDeps): (choices: SessionSettings) => AgentSide {
  const { settings, models, catalog, replies, blobs, prepare } = deps;
  const agent = settings.agents.default;
  const limits = limitsOf(settings);
  const tools = toolsOf(agent, catalog);
  const texts = agent.language === "auto" ? {} : { texts: agent.language };
  const readBriefly = createFileReader({ blobs, maxChars: summarisedChars, maxTotalChars: 10 * summarisedChars });

  return (choices) => {
    const { name, chain } = models.choose(choices.model);
    const model = turnModelOf(chain);
    const { attachmentChars: maxChars } = settings.limits;
    const environment = (): TurnEnvironment => ({ nowMs: Date.now(), limits, tools: tools(), model, ...texts });
    return {
      chain,
      instructions: agent.instructions,
      followUps: followUps[agent.busy],
      environment,
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
