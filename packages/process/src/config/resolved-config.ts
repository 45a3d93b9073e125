import type { BudgetPolicy } from "@larkline/agent/budgets";
import type { Handoff } from "@larkline/agent/handover";
import type { HelperLink } from "@larkline/agent/helpers";
import type { Access, PermissionPolicy } from "@larkline/agent/permissions";
import type { TeamSettings } from "@larkline/agent/team";
import type { DoorsConfig } from "./doors-config.ts";
import type { McpConfig } from "./mcp-config.ts";
import type { TranscriptionInput, ProviderInput } from "./provider-config.ts";
import type { OutputForm, LocalText } from "@larkline/protocol";
import type { ChainRequest, RequestExtra, ModelInfo, HostedTool } from "@larkline/model";
import type {
  FeishuInput,
  CurrencyInput,
  RetentionSettings,
  BotTransport,
  BusyPolicy,
  LimitsInput,
  SessionScope,
  GroupPolicy,
  CardInput,
} from "./config-schema.ts";

// The configuration with its defaults filled in.

/** An agent with its defaults filled in. `null` in `model` and `tools` means "no own choice". */
export interface AgentConfig {
  readonly name: string;
  readonly instructions: string;
  readonly model: string | null;
  readonly maxIterations: number;
  readonly tools: readonly string[] | null;
  /** Hosts that its tools may reach unasked, besides what people name. */
  readonly egress: readonly string[];
  readonly groups: GroupPolicy;
  /** Messages of a group that were not for the bot and that its model reads with the next one; 0: none. */
  readonly groupContext: number;
  readonly models: readonly string[];
  readonly busy: BusyPolicy;
  readonly sessions: SessionScope;
  readonly reply: "card" | "text";
  readonly card: Readonly<Required<CardInput>>;
  readonly language: "auto" | "zh" | "en";
  readonly defaultLanguage: "zh" | "en";
  readonly commands: Readonly<Record<string, { description: string; prompt: string }>>;
  /** What it says of abilities, by their names. */
  readonly abilities: Readonly<Record<string, unknown>>;
  /** Options of its model requests. */
  readonly request: ModelOptions;
  /** What goes with its requests, by provider. */
  readonly extra: Readonly<Record<string, RequestExtra>>;
  /** Tools that vendors run for it, by provider. */
  readonly hostedTools: Readonly<Record<string, readonly HostedTool[]>>;
  /** The form of its answers; null where they are free text. */
  readonly output: OutputForm | null;
  /** What people read on cards in place of its name. */
  readonly title: LocalText | undefined;
  /** Description for others. */
  readonly description: string | undefined;
  /** Whom it may hand over to. */
  readonly handoffs: readonly Handoff[];
  /** Whom it may give tasks to. */
  readonly helpers: readonly HelperLink[];
  /** Whom and where it answers; null: everybody, everywhere. */
  readonly access: Access | null;
  /** The agents that answer in turns where this is a team; `model` is the one that chooses then. */
  readonly team: TeamSettings | null;
}

/** Values of a model request that an agent may set; what is absent is not sent. */
export type ModelOptions = Pick<
  ChainRequest,
  "needsThinking" | "effort" | "temperature" | "topP" | "maxTokens" | "fastMode" | "storeResponses"
>;

/** The configuration of a deployment, complete. `agents` and `bots` always have `default`; teams are among the agents. */
export interface LarklineConfig {
  readonly agents: Readonly<Record<string, AgentConfig>> & { readonly default: AgentConfig };
  readonly models: readonly ModelInfo[];
  /** Besides the built-in ones; `readProviders` adds those, and the keys. */
  readonly providers: Readonly<Record<string, ProviderInput>>;
  /** Absent: voice messages are read only where the platform has written them down. */
  readonly transcription?: TranscriptionInput;
  readonly limits: Readonly<Required<LimitsInput>>;
  readonly bots: Readonly<Record<string, BotConfig>> & { readonly default: BotConfig };
  /** Further forms of the timestamp that webhooks carry; each matches whole texts and gives an instant. */
  readonly webhook: { readonly timestampForms: readonly RegExp[] };
  /** Handlers of platform events that Larkline does not use itself; `loadConfigFile` makes URLs of the modules. */
  readonly events: { readonly modules: readonly string[]; readonly url: string | undefined };
  /** Ways in besides messages. */
  readonly doors: DoorsConfig;
  /** By the names of tools. */
  readonly toolTitles: Readonly<Record<string, LocalText>>;
  readonly permissions: PermissionPolicy;
  readonly budgets: BudgetPolicy;
  readonly mcp: McpConfig;
  /** The runners that names of tools belong to, by name or by prefix that ends in `*`. */
  readonly toolOwners: ReadonlyMap<string, string>;
  /** Modules with observers; `loadConfigFile` makes URLs of them. */
  readonly observers: readonly string[];
  readonly retention: RetentionSettings;
  readonly sandbox: { readonly allowUnboundedMemory: boolean };
  /** Address of the console, without a slash at its end. */
  readonly consoleUrl: string | undefined;
  /** Records of runs have the first words of what was asked, and of what failed calls said. */
  readonly keepsQuestions: boolean;
  /** Operators may change agents at the console. */
  readonly changesAgents: boolean;
  /** Operators may add servers of models; these hosts may be private. Undefined: they may add none. */
  readonly modelHosts: readonly string[] | undefined;
  /** Of the costs on cards; undefined: US dollars. */
  readonly currency: CurrencyInput | undefined;
}

/** One bot of a deployment, without its secrets. */
export interface BotConfig {
  readonly name: string;
  /** Absent for `default`: that one is the bot of `FEISHU_APP_ID`, if there is one. */
  readonly app?: { readonly id: string; readonly domain: string; readonly transport: BotTransport };
  /** Name of the agent that answers where `chats` says nothing else. */
  readonly agent: string;
  /** Names of agents by chat id. */
  readonly chats: ReadonlyMap<string, string>;
  /** Keys of the tenants whose people are answered; `null`: of all tenants. */
  readonly tenants: readonly string[] | null;
  readonly feishu: FeishuSettings;
}

/** How a bot behaves on the platform, with defaults. `null` in `monthlyCalls`: not limited; in `consentUrl`: the device flow. */
export type FeishuSettings = Readonly<
  Required<Omit<FeishuInput, "monthlyCalls" | "footer" | "consentUrl">>
> & {
  readonly monthlyCalls: number | null;
  readonly consentUrl: string | null;
  readonly footer?: LocalText;
};
