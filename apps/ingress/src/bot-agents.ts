import {
  agentInChat,
  agentOfMessage,
  type AgentConfig,
  type BotConfig,
  type LarklineConfig,
} from "@larkline/process/config";
import type { InboundMessage } from "@larkline/protocol";

/** Who answers as one bot. */
export interface BotAgents {
  /** What is written in a chat from now on. */
  in(chatId: string): AgentConfig;
  /** What was accepted before. */
  of(message: Pick<InboundMessage, "app" | "agent" | "reply">): AgentConfig;
}

export function createBotAgents(settings: Pick<LarklineConfig, "agents" | "bots">, bot: BotConfig): BotAgents {
  return {
    in: (chatId) => agentInChat(settings, bot, chatId),
    of: (message) => agentOfMessage(settings, message),
  };
}

/** The part of a message that says who is to answer it: none where that is the agent `default`. */
export function answeredBy({ name }: Pick<AgentConfig, "name">): { agent?: string } {
  return name === "default" ? {} : { agent: name };
}
