import type { InboundMessage } from "@larkline/protocol";
import type { BotConfig } from "./bot-config.ts";
import type { AgentConfig, LarklineConfig } from "./larkline-config.ts";

type Settings = Pick<LarklineConfig, "agents" | "bots">;

/** The agent of that name; undefined when the configuration has none. */
export function agentNamed({ agents }: Pick<Settings, "agents">, name: string): AgentConfig | undefined {
  return Object.hasOwn(agents, name) ? agents[name] : undefined;
}

/** The agent that answers what is written to a bot in a chat now. */
export function agentInChat(settings: Pick<Settings, "agents">, bot: BotConfig, chatId: string): AgentConfig {
  // Names of agents were checked when the configuration was loaded.
  return agentNamed(settings, bot.chats.get(chatId) ?? bot.agent) ?? settings.agents.default;
}

/** The app ids of all bots; `first` is `FEISHU_APP_ID`. */
export function appIdsOf({ bots }: Pick<Settings, "bots">, first: string | undefined): string[] {
  const named = Object.values(bots).flatMap(({ app }) => app?.id ?? []);
  return first === undefined ? named : [first, ...named];
}

/** The bot of that app; one that no other has the id of is the bot of `FEISHU_APP_ID`. */
export function botOfApp({ bots }: Pick<Settings, "bots">, appId: string): BotConfig {
  return Object.values(bots).find(({ app }) => app?.id === appId) ?? bots.default;
}

/**
 * The agent that a message was accepted for. Where the configuration has lost it since, whoever would
 * answer such a message now: that of the bot and chat, and over HTTP `default`.
 */
export function agentOfMessage(
  settings: Settings,
  { app, agent = "default", reply }: Pick<InboundMessage, "app" | "agent" | "reply">,
): AgentConfig {
  const accepted = agentNamed(settings, agent);
  if (accepted !== undefined) return accepted;
  return reply.channel === "none"
    ? settings.agents.default
    : agentInChat(settings, botOfApp(settings, app), reply.chatId);
}
