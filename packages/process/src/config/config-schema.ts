import { allAbilities } from "@larkline/agent";
import { LocalText, OutputForm } from "@larkline/protocol";
import { RunnerName } from "@larkline/protocol/runner";
import { Type, type Static } from "@larkline/protocol/type";
import { BudgetsInput } from "./budget-config.ts";
import { McpInput } from "./mcp-config.ts";
import { ApprovalsInput, PermissionInput, RoleInput } from "./permission-config.ts";
import {
  ExtraInput,
  HostedToolInput,
  ProviderInput,
  providerName,
  TranscriptionInput,
} from "./provider-config.ts";
import { DoorsInput } from "./doors-config.ts";

const agentName = Type.String({ pattern: "^[a-z][a-z0-9-]{0,39}$" });

const count = (maximum: number) => Type.Integer({ minimum: 1, maximum });

/** When the bot answers in a group: only when mentioned, always, or never. */
const groupPolicies = ["mention", "all", "none"] as const;

/**
 * What happens to a message that comes while the session is busy: it waits, it joins the running
 * turn, it stops the running turn of the same person, or it is refused politely.
 */
const busyPolicies = ["queue", "steer", "interrupt", "reject"] as const;

/** Who shares a conversation in a group: the whole chat (or thread), or each person alone. */
const sessionScopes = ["chat", "sender"] as const;

const switchable = Type.Optional(Type.Boolean());

/** What a reply's card shows besides the answer; everything is on by default. Model, tokens, cost and trace are folded. */
export const CardInput = Type.Object(
  {
    thinking: switchable,
    tools: switchable,
    model: switchable,
    tokens: switchable,
    cost: switchable,
    seconds: switchable,
    trace: switchable,
  },
  { additionalProperties: false },
);
export type CardInput = Static<typeof CardInput>;

/** A command of an agent's own: `/name words` becomes the prompt followed by the words. */
const CommandInput = Type.Object(
  {
    description: Type.String({ minLength: 1, maxLength: 200 }),
    prompt: Type.String({ minLength: 1, maxLength: 10_000 }),
  },
  { additionalProperties: false },
);

const accessId = Type.String({ minLength: 1, maxLength: 240 });

/** How an agent may hand over to another one. */
const HandoffInput = Type.Object(
  {
    agent: agentName,
    /** In which cases, for the model. */
    when: Type.Optional(Type.String({ minLength: 1, maxLength: 1_000 })),
    /** What the next agent sees: the conversation, or the person's last message and the reason. Default `all`. */
    context: Type.Optional(Type.Enum(["all", "last"])),
    /** Further arguments of the hand-over: a JSON Schema of type object, whose properties come beside `reason`. */
    input: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  },
  { additionalProperties: false },
);

/** How an agent may call another one, or a team, as a tool. */
const HelperInput = Type.Object(
  {
    /** Who works on the task: an agent, or in its place a team. */
    agent: Type.Optional(agentName),
    team: Type.Optional(agentName),
    /** The name of the tool. */
    as: Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" }),
    /** What it is for, for the model; if absent the agent's own description. */
    description: Type.Optional(Type.String({ minLength: 1, maxLength: 1_000 })),
    /** Its arguments: a JSON Schema of type object. Default: `task`, a text. */
    input: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
    /** The form of its answers. Default: that of the agent. */
    output: Type.Optional(OutputForm),
    /** Most model steps of one task. Default: the agent's `maxIterations`. */
    maxSteps: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000 })),
    /** How long one task may take. Default 10 minutes. */
    timeoutMs: Type.Optional(Type.Integer({ minimum: 1, maximum: 86_400_000 })),
  },
  { additionalProperties: false },
);

/** Whose memories an agent keeps over conversations. */
/** What agents can do besides their tools, each as the ability has it. */
const abilityInputs: object = Object.fromEntries(
  allAbilities.flatMap(({ name, config }) =>
    config === undefined ? [] : [[name, Type.Optional(config)]],
  ),
);

/** One agent: who it is and what it may use. */
export const AgentInput = Type.Object(
  {
    /** The system prompt. */
    instructions: Type.Optional(Type.String({ maxLength: 100_000 })),
    /** `<provider>/<id>`, a comma separates fallbacks; beats the environment's `MODEL`. */
    model: Type.Optional(
      Type.String({ pattern: "^[a-z][a-z0-9-]*/[^,\\s]+(,\\s*[a-z][a-z0-9-]*/[^,\\s]+)*$" }),
    ),
    /** Model steps in one turn. */
    maxIterations: Type.Optional(count(1_000)),
    /** Names of the tools it may use; absent means every tool that a runner offers. */
    tools: Type.Optional(Type.Array(Type.String({ minLength: 1 }), { maxItems: 1_000 })),
    /**
     * Hosts that its tools may reach unasked after text from outside was read: `docs.example.com`, `*.example.com` for
     * those below, `host:port`, `*` for all. Default: none.
     */
    egress: Type.Optional(
      Type.Array(
        Type.String({ pattern: "^(\\*|(\\*\\.)?[^\\s/*@:]+(:\\d{1,5})?)$", maxLength: 260 }),
        {
          maxItems: 200,
        },
      ),
    ),
    groups: Type.Optional(Type.Enum([...groupPolicies])),
    /** Messages of a group since the last one for the bot that its model reads with the next. Default 0. */
    groupContext: Type.Optional(Type.Integer({ minimum: 0, maximum: 50 })),
    /** Models that people may choose with `/model`; absent means none but the agent's own. */
    models: Type.Optional(
      Type.Array(Type.String({ pattern: "^[a-z][a-z0-9-]*/[^,\\s]+$" }), { maxItems: 20 }),
    ),
    /** Ask for thinking; a model without it ignores this. */
    thinking: Type.Optional(Type.Boolean()),
    /** How hard the model works, if the vendor has such a setting. */
    effort: Type.Optional(Type.Enum(["low", "medium", "high"])),
    /** Sampling values go to the vendor unchecked. */
    temperature: Type.Optional(Type.Number()),
    topP: Type.Optional(Type.Number()),
    /** Most tokens of one step, thinking included. Default: what the model can write, at most 32,000. */
    maxOutputTokens: Type.Optional(count(10_000_000)),
    /** Short answers: 4,096 tokens at most, unless `maxOutputTokens` says otherwise. */
    fast: Type.Optional(Type.Boolean()),
    /** What goes with its requests, by provider: where both set the same, it wins over that of the provider. */
    extra: Type.Optional(Type.Record(providerName, ExtraInput)),
    /** Tools that vendors run, by provider, as their interfaces describe them: web search, code execution. */
    hostedTools: Type.Optional(
      Type.Record(providerName, Type.Array(HostedToolInput, { minItems: 1, maxItems: 20 })),
    ),
    /** Its vendor keeps what it answers, so that a run may continue an answer by its id: OpenAI's Responses interface alone. */
    storeResponses: Type.Optional(Type.Boolean()),
    /** The answer is a JSON object of a schema; people in chats see its `format`, or a list of its fields. */
    output: Type.Optional(OutputForm),
    ...abilityInputs,
    busy: Type.Optional(Type.Enum([...busyPolicies])),
    sessions: Type.Optional(Type.Enum([...sessionScopes])),
    /** A card that types, or a plain message when the answer is complete. */
    reply: Type.Optional(Type.Enum(["card", "text"])),
    card: Type.Optional(CardInput),
    /** Language of the texts around the answers; `auto` is the person's: that of their last message with words. */
    language: Type.Optional(Type.Enum(["auto", "zh", "en"])),
    /** The same for people who have not written any words yet. Default `zh`. */
    defaultLanguage: Type.Optional(Type.Enum(["zh", "en"])),
    commands: Type.Optional(
      Type.Record(Type.String({ pattern: "^[\\p{L}\\p{N}_-]{1,32}$" }), CommandInput),
    ),
    /** What people read on cards in place of its name: a text, or one in each language. */
    title: Type.Optional(LocalText),
    /** Description for other agents, and for people who choose an agent. */
    description: Type.Optional(Type.String({ minLength: 1, maxLength: 1_000 })),
    /** The agents that it may hand the conversation over to. */
    handoffs: Type.Optional(Type.Array(Type.Union([agentName, HandoffInput]), { maxItems: 32 })),
    /** The agents and teams that it may give tasks to, and wait for. */
    helpers: Type.Optional(Type.Array(HelperInput, { maxItems: 32 })),
    /** Whom it answers, by open_id, over HTTP `api:<name>`; with `roles`, either is enough. Default: everybody. */
    people: Type.Optional(Type.Array(accessId, { minItems: 1, maxItems: 1_000 })),
    roles: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 100 }), { minItems: 1, maxItems: 20 }),
    ),
    /** Ids of the chats that it answers in. Default: all. */
    chats: Type.Optional(Type.Array(accessId, { minItems: 1, maxItems: 1_000 })),
  },
  { additionalProperties: false },
);
export type AgentInput = Static<typeof AgentInput>;

/** How the members of a team take turns. */
const teamSelections = ["round_robin", "model", "handoff"] as const;

/** Several agents that answer a message in turns; it may stand wherever an agent may. */
export const TeamInput = Type.Object(
  {
    /** Names of 2 to 8 agents. */
    members: Type.Array(agentName, { minItems: 2, maxItems: 8 }),
    /** Who is next: in order, as a model chooses, or whom the speaker hands over to. */
    select: Type.Enum([...teamSelections]),
    /** Of `select: "model"`. */
    selector: Type.Optional(
      Type.Object(
        {
          /** As `model` of an agent. */
          model: Type.Optional(
            Type.String({ pattern: "^[a-z][a-z0-9-]*/[^,\\s]+(,\\s*[a-z][a-z0-9-]*/[^,\\s]+)*$" }),
          ),
          /** A further prompt. */
          prompt: Type.Optional(Type.String({ minLength: 1, maxLength: 10_000 })),
          /** Whether one member may speak twice in a row. Default: no. */
          repeat: Type.Optional(Type.Boolean()),
        },
        { additionalProperties: false },
      ),
    ),
    /** What ends it. */
    end: Type.Optional(
      Type.Object(
        {
          /** Contributions. Default 12. */
          messages: Type.Optional(count(100)),
          /** Words by which a member ends it, outside of quotes. */
          mention: Type.Optional(Type.String({ pattern: "\\S", maxLength: 200 })),
          /** The members whose words count. Default: all. */
          from: Type.Optional(Type.Array(agentName, { minItems: 1, maxItems: 8 })),
          /** Tokens, in and out, of all. */
          tokens: Type.Optional(count(1_000_000_000)),
        },
        { additionalProperties: false },
      ),
    ),
    /** What the answer is: the last contribution, or all. Default `last`. */
    reply: Type.Optional(Type.Enum(["last", "transcript"])),
    /** As `title` of an agent. */
    title: Type.Optional(LocalText),
    /** Description for agents that may hand over to it. */
    description: Type.Optional(Type.String({ minLength: 1, maxLength: 1_000 })),
  },
  { additionalProperties: false },
);
export type TeamInput = Static<typeof TeamInput>;

/** How events of a bot come. */
const botTransports = ["websocket", "webhook", "both"] as const;

/** How the bot behaves on Feishu, whichever agent answers. */
export const FeishuInput = Type.Object(
  {
    /** A reaction on every message until it is answered; costs two calls each. Default off. */
    typing: Type.Optional(Type.Boolean()),
    /** How a person sees that their message waits. Default `reaction`. */
    queueNotice: Type.Optional(Type.Enum(["reaction", "line", "off"])),
    /** What a message that came late gets: the question whether to run it, or a line. Default `ask`. */
    lateMessages: Type.Optional(Type.Enum(["ask", "line"])),
    /** Greet chats that the bot is added to and people who open it. Default on. */
    welcome: Type.Optional(Type.Boolean()),
    /** What a press on a menu entry of the bot says, by event key. */
    menu: Type.Optional(
      Type.Record(
        Type.String({ minLength: 1, maxLength: 30 }),
        Type.String({ minLength: 1, maxLength: 1_000 }),
      ),
    ),
    /** API calls a month that the app's edition allows (10,000 in the free one). Default: not limited. */
    monthlyCalls: Type.Optional(count(1_000_000_000)),
    /** Cards that one answer may fill; the rest of it is one file. Default 5. */
    maxCards: Type.Optional(count(50)),
    /** A line below every answer on a card, such as "generated by AI": a text, or one in each language. Default: none. */
    footer: Type.Optional(LocalText),
    /** Ask people to rate answers: by thumbs on the card, or by these reactions to it. Default off. */
    feedback: Type.Optional(Type.Boolean()),
    /** Turns of a chat and hour that other bots may cause by mentioning this one. Default 0: other bots are ignored. */
    botTurnsPerHour: Type.Optional(Type.Integer({ minimum: 0, maximum: 60 })),
    /**
     * Where a person's consent comes back to ingress, as the developer console lists it, such as
     * `https://bot.example.com/feishu/consent`: the code flow. Default: the device flow, which needs no address.
     */
    consentUrl: Type.Optional(Type.String({ pattern: "^https?://[^?#\\s]+$", maxLength: 500 })),
    /**
     * Open ids of people who look after the app: they get the administrator's link where it lacks a permission that people's
     * calls need. Default: none.
     */
    operators: Type.Optional(
      Type.Array(Type.String({ pattern: "^ou_[A-Za-z0-9_-]{1,120}$" }), { maxItems: 20 }),
    ),
    /** Hold calls back before Feishu refuses them. Off only where the platform has no such limits. Default on. */
    rateLimits: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);
export type FeishuInput = Static<typeof FeishuInput>;

/** An app's id, as the developer console shows it. */
export const appIdPattern = /^cli_[0-9a-fA-F]{16}$/;

/** One bot: an app of the platform, who answers there, and whom. */
export const BotInput = Type.Object(
  {
    appId: Type.Optional(Type.String({ pattern: appIdPattern.source })),
    /** `feishu`, `lark` or a base URL. Default `feishu`. */
    domain: Type.Optional(Type.String({ minLength: 1, maxLength: 2_000 })),
    /** Default `websocket`. */
    transport: Type.Optional(Type.Enum([...botTransports])),
    /** Name of the agent that answers. Default `default`. */
    agent: Type.Optional(agentName),
    /** Chats in which another agent answers, by chat id. */
    chats: Type.Optional(
      Type.Record(
        Type.String({ pattern: "^[A-Za-z0-9_-]{1,128}$" }),
        Type.Object({ agent: agentName }, { additionalProperties: false }),
      ),
    ),
    /** Keys of the tenants whose people it answers. Default: everybody who can reach it. */
    tenants: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 128 }), { minItems: 1, maxItems: 1_000 }),
    ),
    /** What this bot does in another way than `feishu` says. */
    feishu: Type.Optional(FeishuInput),
  },
  { additionalProperties: false },
);
export type BotInput = Static<typeof BotInput>;

const price = Type.Number({ minimum: 0 });

/** Facts about a model that the built-in table lacks or has differently. Prices: USD per million tokens. */
const ModelInput = Type.Object(
  {
    id: Type.String({ minLength: 1 }),
    provider: Type.String({ pattern: "^[a-z][a-z0-9-]*$" }),
    displayName: Type.Optional(Type.String()),
    contextWindow: count(100_000_000),
    maxOutputTokens: count(10_000_000),
    inputPricePer1M: Type.Optional(price),
    outputPricePer1M: Type.Optional(price),
    cacheReadPricePer1M: Type.Optional(price),
    cacheWritePricePer1M: Type.Optional(price),
    supportsCaching: Type.Optional(Type.Boolean()),
    supportsBatch: Type.Optional(Type.Boolean()),
    supportsThinking: Type.Optional(Type.Boolean()),
    supportsVision: Type.Optional(Type.Boolean()),
    supportsJsonSchema: Type.Optional(Type.Boolean()),
    cachingMinTokens: Type.Optional(Type.Integer({ minimum: 0 })),
    maxTools: Type.Optional(Type.Integer({ minimum: 0 })),
    maxToolsExhaustive: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);
type ModelInput = Static<typeof ModelInput>;

/** Bounds that hold for every agent. */
export const LimitsInput = Type.Object(
  {
    /** A message older than this is late: see `lateMessages`. Default 10 minutes. */
    messageAgeMs: Type.Optional(count(86_400_000)),
    /** Largest attachment that is fetched, in bytes. Default 20 MB. */
    attachmentBytes: Type.Optional(count(100_000_000)),
    /** Text of one attachment that a model gets, in characters. Default 60,000. */
    attachmentChars: Type.Optional(count(1_000_000)),
    /** Longest time for fetching everything a message refers to. Default 30 s. */
    attachmentTimeoutMs: Type.Optional(count(600_000)),
    /** CPU time for extracting the text of one attachment. Default 5 s. */
    attachmentCpuMs: Type.Optional(count(600_000)),
    /** Longest user message, in characters. Default 50,000. */
    messageChars: Type.Optional(count(1_000_000)),
    /** Calls of one model step that are run; the rest get an error result. Default 64. */
    maxCallsPerStep: Type.Optional(count(1_000)),
    /** Hand-overs from one agent to another in a turn. Default 8. */
    handoffsPerTurn: Type.Optional(count(100)),
    /** Model steps of one message and all helpers below it. Default 64. */
    stepsPerTurn: Type.Optional(count(10_000)),
    /** Longest time one tool call may run. Default 10 minutes. */
    toolTimeoutMs: Type.Optional(count(86_400_000)),
    /** How long a call waits for a runner on top of that. Default 30 s. */
    toolWaitMs: Type.Optional(count(86_400_000)),
    /** Longest tool result that the model gets, in characters. Default 100,000. */
    maxResultChars: Type.Optional(count(10_000_000)),
    /** Text, thinking and tool arguments of one model step, in bytes; more is cut. Default 1,000,000. */
    stepBytes: Type.Optional(count(100_000_000)),
    /** How long a model may send no byte before its fallback is asked. Default 30 s. */
    modelSilenceMs: Type.Optional(count(3_600_000)),
    /** The same until the first word of one that thinks over Chat Completions. Default 5 minutes. */
    modelThinkingMs: Type.Optional(count(3_600_000)),
    /** How long a step is tried again after all its models have failed. Default 5 minutes. */
    modelRetryMs: Type.Optional(count(86_400_000)),
  },
  { additionalProperties: false },
);
export type LimitsInput = Static<typeof LimitsInput>;

/** What is taken from webhooks. */
export const WebhookInput = Type.Object(
  {
    /**
     * Further forms of `X-Lark-Request-Timestamp`, as regular expressions of the whole text whose named groups give
     * its instant: `seconds` (10 digits), `millis` (13), `micros` (16), or `year`, `month`, `day`, `hour`, `minute`,
     * `second` and `zone` (`Z`, `UTC`, `+0800` or `+08:00`).
     */
    timestampForms: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 500 }), { maxItems: 10 }),
    ),
  },
  { additionalProperties: false },
);
export type WebhookInput = Static<typeof WebhookInput>;

/** Who gets the events and clicks of the platform that Larkline has no use for itself. */
export const EventsInput = Type.Object(
  {
    /** Modules whose default export wants them: paths from the folder of this file, or packages. */
    modules: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 1_000 }), { maxItems: 20 }),
    ),
    /** They are sent there, signed with `EVENTS_SIGNING_KEY`; https, or http on this machine. */
    url: Type.Optional(
      Type.String({
        pattern: "^(https://|http://(localhost|127\\.0\\.0\\.1|\\[::1\\])[:/])",
        maxLength: 2_000,
      }),
    ),
  },
  { additionalProperties: false },
);
export type EventsInput = Static<typeof EventsInput>;

const days = Type.Integer({ minimum: 0, maximum: 36_500 });

/** How long what is stored is kept. 0 days: for good. */
const RetentionInput = Type.Object(
  {
    /** Conversations, after their last message. Default 90 days. */
    conversationDays: Type.Optional(days),
    /** Messages of one conversation that are kept although no model sees them any more. Default 1,000. */
    historyMessages: Type.Optional(Type.Integer({ minimum: 0, maximum: 10_000_000 })),
    /** Records of the audit log. Default 365 days. */
    auditDays: Type.Optional(days),
    /** About how many records the audit log has at most, the oldest go first. Default 1,000,000. */
    auditRecords: Type.Optional(Type.Integer({ minimum: 1_000, maximum: 1_000_000_000 })),
    /** Files and images, after they were last stored. Default 7 days. */
    blobDays: Type.Optional(Type.Integer({ minimum: 1, maximum: 36_500 })),
    /** Memories of people and chats, after their last use. Default 365 days. */
    memoryDays: Type.Optional(days),
    /** What was done for each message, for "Why no answer?", after its last step. Default 3 days. */
    traceDays: Type.Optional(Type.Integer({ minimum: 1, maximum: 30 })),
    /** How people have rated answers. Default 90 days. */
    ratingDays: Type.Optional(Type.Integer({ minimum: 1, maximum: 3_650 })),
  },
  { additionalProperties: false },
);

/** What an operator accepts of the sandboxes of runners. */
const SandboxInput = Type.Object(
  {
    /** Accepts a sandbox in which programs get more than twice the memory that they may have. Default: refused. */
    allowUnboundedMemory: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);

/** A runner, as far as the deployment says something about it. */
const RunnerInput = Type.Object(
  {
    /**
     * Names of tools, or prefixes such as `mail_*`, that belong to it: what other runners offer under these names is
     * not used. A name that no runner has here belongs to the first one that offers it.
     */
    tools: Type.Optional(
      Type.Array(Type.String({ pattern: "^[A-Za-z0-9_-]{0,64}\\*?$", minLength: 1 }), {
        maxItems: 1_000,
      }),
    ),
  },
  { additionalProperties: false },
);
/** The console as people reach it. */
const ConsoleInput = Type.Object(
  {
    /** Its address: traces below answers are links then. Default: no links. */
    url: Type.Optional(Type.String({ pattern: '^https?://[^\\s()<>"]+$', maxLength: 500 })),
    /**
     * Lists of runs and sessions have the first 60 characters of what was asked, and the beginning of what failed calls
     * said: for operators who ask for it, with a record of each look. Default: no.
     */
    questions: Type.Optional(Type.Boolean()),
    /** Operators may change agents, within what this file allows. Default: no. */
    changes: Type.Optional(Type.Boolean()),
    /**
     * Operators may add servers of models, at public https addresses; `hosts` (`host` or `host:port`) may be private and
     * without https, too. Needs `changes`. Default: no.
     */
    models: Type.Optional(
      Type.Union([
        Type.Boolean(),
        Type.Object(
          {
            hosts: Type.Array(Type.String({ pattern: "^[A-Za-z0-9.:_[\\]-]{1,260}$" }), {
              maxItems: 100,
            }),
          },
          { additionalProperties: false },
        ),
      ]),
    ),
  },
  { additionalProperties: false },
);

/** The currency in which cards show what an answer has cost. Default: US dollars, as in prices and budgets. */
const CurrencyInput = Type.Object(
  {
    /** Its code, such as `CNY`. */
    code: Type.String({ pattern: "^[A-Z]{3}$" }),
    /** How much of it a US dollar is. */
    perUsd: Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000_000 }),
  },
  { additionalProperties: false },
);
export type CurrencyInput = Static<typeof CurrencyInput>;

/**
 * What `larkline.config.ts` holds; everything is optional. Unknown keys are refused, so that a
 * typing error is found at start.
 */
export const ConfigInput = Type.Object(
  {
    /** By name; the agent `default` answers where nothing else is asked for. */
    agents: Type.Optional(Type.Record(agentName, AgentInput)),
    /** By name, which is no agent's. */
    teams: Type.Optional(Type.Record(agentName, TeamInput)),
    /** By name; `default` is the bot of `FEISHU_APP_ID`. */
    bots: Type.Optional(Type.Record(Type.String({ pattern: "^[a-z][a-z0-9-]{0,31}$" }), BotInput)),
    models: Type.Optional(Type.Array(ModelInput, { maxItems: 1_000 })),
    /** Servers with models, by the name that stands before the slash of a model's name. */
    providers: Type.Optional(Type.Record(providerName, ProviderInput)),
    transcription: Type.Optional(TranscriptionInput),
    limits: Type.Optional(LimitsInput),
    feishu: Type.Optional(FeishuInput),
    webhook: Type.Optional(WebhookInput),
    doors: Type.Optional(DoorsInput),
    events: Type.Optional(EventsInput),
    roles: Type.Optional(
      Type.Record(Type.String({ pattern: "^[\\p{L}\\p{N}_-]{1,64}$" }), RoleInput),
    ),
    permissions: Type.Optional(Type.Array(PermissionInput, { maxItems: 1_000 })),
    approvals: Type.Optional(ApprovalsInput),
    budgets: Type.Optional(BudgetsInput),
    mcp: Type.Optional(McpInput),
    /** Runners by name, with what belongs to each. */
    runners: Type.Optional(Type.Record(RunnerName, RunnerInput)),
    /** How people read the names of tools whose authors gave them no title in their language, by name. */
    toolTitles: Type.Optional(
      Type.Record(Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" }), LocalText),
    ),
    /** Modules whose default export is an observer, or several: paths from the folder of this file, or packages. */
    observers: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 1_000 }), { maxItems: 20 }),
    ),
    retention: Type.Optional(RetentionInput),
    sandbox: Type.Optional(SandboxInput),
    console: Type.Optional(ConsoleInput),
    currency: Type.Optional(CurrencyInput),
  },
  { additionalProperties: false },
);
export type ConfigInput = Static<typeof ConfigInput>;

export type GroupPolicy = (typeof groupPolicies)[number];

export type BusyPolicy = (typeof busyPolicies)[number];

export type SessionScope = (typeof sessionScopes)[number];

export type BotTransport = (typeof botTransports)[number];

/** Retention with its defaults. */
export type RetentionSettings = Readonly<Required<Static<typeof RetentionInput>>>;

export const defaultRetention: RetentionSettings = {
  conversationDays: 90,
  historyMessages: 1_000,
  auditDays: 365,
  auditRecords: 1_000_000,
  blobDays: 7,
  memoryDays: 365,
  traceDays: 3,
  ratingDays: 90,
};
