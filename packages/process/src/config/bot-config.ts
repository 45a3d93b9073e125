import type { InboundMessage, ParseResult } from "@larkline/protocol";
import { appIdPattern, type BotInput, type FeishuInput } from "./config-schema.ts";
import { didYouMean } from "./did-you-mean.ts";
import { createEnvReader, type Env, type EnvReader } from "./environment.ts";
import type { AgentConfig, LarklineConfig, BotConfig, FeishuSettings } from "./resolved-config.ts";

/** The part of the configuration about bots. */
interface BotsInput {
  bots?: Readonly<Record<string, BotInput>>;
  feishu?: FeishuInput;
}

type ResolvedBots = Readonly<Record<string, BotConfig>> & { readonly default: BotConfig };

const defaultFeishu: FeishuSettings = {
  typing: false,
  queueNotice: "reaction",
  lateMessages: "ask",
  welcome: true,
  menu: {},
  monthlyCalls: null,
  consentUrl: null,
  operators: [],
  maxCards: 5,
  feedback: false,
  botTurnsPerHour: 0,
  rateLimits: true,
};

/** All bots with their defaults; the error names every bot that cannot work. `agents`: those there are, by name. */
export function resolveBots(
  { bots = {}, feishu = {} }: BotsInput,
  agents: object,
): ParseResult<ResolvedBots> {
  const problems = [
    ...Object.entries(bots).flatMap(([name, bot]) => [
      ...placeProblems(name, bot),
      ...agentProblems(name, bot, agents),
    ]),
    ...sharedApps(bots),
  ];
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  const settings = { ...defaultFeishu, ...feishu };
  const named = Object.fromEntries(
    Object.entries(bots).map(([name, bot]) => [name, botOf(name, bot, settings)]),
  );
  return {
    ok: true,
    value: { ...named, default: botOf("default", bots["default"] ?? {}, settings) },
  };
}

function placeProblems(name: string, { appId, domain, transport }: BotInput): string[] {
  const where = `bots.${name}`;
  if (name === "default") {
    const given = Object.entries({ appId, domain, transport }).filter(
      ([, value]) => value !== undefined,
    );
    return given.map(
      ([key]) =>
        `${where}.${key} has no meaning: default is the bot of FEISHU_APP_ID, and so is its ${key}`,
    );
  }
  if (appId === undefined) return [`${where} has no appId`];
  const wrongDomain = domain === undefined ? undefined : domainProblem(domain);
  return wrongDomain === undefined ? [] : [`${where}.domain ${wrongDomain}`];
}

function agentProblems(name: string, { agent, chats = {} }: BotInput, agents: object): string[] {
  const named = [
    ...(agent === undefined ? [] : [[`bots.${name}`, agent] as const]),
    ...Object.entries(chats).map(
      ([chatId, chat]) => [`bots.${name}.chats.${chatId}`, chat.agent] as const,
    ),
  ];
  return named
    .filter(([, wanted]) => !Object.hasOwn(agents, wanted))
    .map(
      ([where, wanted]) =>
        `${where} names the unknown agent '${wanted}'${didYouMean(wanted, Object.keys(agents))}`,
    );
}

/** Two bots must not share an app: the platform would split its events between them. */
function sharedApps(bots: Readonly<Record<string, BotInput>>): string[] {
  const byApp = Map.groupBy(Object.entries(bots), ([, { appId }]) => appId);
  return [...byApp].flatMap(([appId, sharing]) =>
    appId === undefined || sharing.length < 2
      ? []
      : [`${sharing.map(([name]) => `bots.${name}`).join(" and ")} have the same appId`],
  );
}

function botOf(name: string, input: BotInput, feishu: FeishuSettings): BotConfig {
  const {
    appId,
    domain = "feishu",
    transport = "websocket",
    agent = "default",
    chats = {},
    tenants,
  } = input;
  return {
    name,
    ...(appId === undefined ? {} : { app: { id: appId, domain, transport } }),
    agent,
    chats: new Map(Object.entries(chats).map(([chatId, chat]) => [chatId, chat.agent])),
    tenants: tenants ?? null,
    feishu: { ...feishu, ...input.feishu },
  };
}

/** The problem with the domain of an app; undefined when it is valid. */
export function domainProblem(domain: string): string | undefined {
  const fits =
    domain === "feishu" ||
    domain === "lark" ||
    (/^https?:\/\//.test(domain) && URL.canParse(domain));
  return fits ? undefined : "must be feishu, lark or a URL that starts with http:// or https://";
}

/**
 * User groups of a person as roles name them: by their ids, and for this bot alone as `<bot>:<id>`. Another tenant may
 * give a group of its own the same id, so where bots are in several tenants only the second is sure.
 */
export function groupsAtBot(
  { name }: Pick<BotConfig, "name">,
  groups: readonly string[],
): string[] {
  const own = groups.filter((id) => !id.includes(":"));
  return own.flatMap((id) => [id, `${name}:${id}`]);
}

/** The credentials that a process needs to call the platform as a bot. */
export interface BotAccess {
  /** `default` is the bot of `FEISHU_APP_ID`. */
  readonly name: string;
  readonly appId: string;
  readonly appSecret: string;
  /** `feishu`, `lark` or a base URL. */
  readonly domain: string;
}

/** The credentials of a bot whose events a process receives. */
export interface IngressBotAccess extends BotAccess {
  readonly encryptKey: string | undefined;
  readonly verificationToken: string | undefined;
  readonly websocket: boolean;
  readonly webhook: boolean;
}

/** The variable of one bot: that of the first one with the bot's name behind it. */
export function botVariable(variable: string, bot: string): string {
  return bot === "default" ? variable : `${variable}_${bot.toUpperCase().replaceAll("-", "_")}`;
}

type Bots = Readonly<Record<string, BotConfig>>;

/** The app of `FEISHU_APP_ID` and `FEISHU_APP_SECRET`; undefined where neither is set. */
export function readFirstApp(
  reader: EnvReader,
): Pick<BotAccess, "appId" | "appSecret"> | undefined {
  const appId = reader.text("FEISHU_APP_ID");
  const appSecret = reader.secret("FEISHU_APP_SECRET");
  if (appId === undefined && appSecret === undefined) return undefined;
  if (appId === undefined) {
    reader.problem("FEISHU_APP_ID is not set, but FEISHU_APP_SECRET is.");
  } else if (!appIdPattern.test(appId)) {
    reader.problem("FEISHU_APP_ID must be an app id such as cli_0123456789abcdef.");
  }
  if (appSecret === undefined) {
    reader.problem("FEISHU_APP_SECRET is not set, but FEISHU_APP_ID is.");
  }
  return { appId: appId ?? "", appSecret: appSecret ?? "" };
}

/**
 * The bots of the configuration with their secrets from `FEISHU_APP_SECRET_<NAME>`, after `first`, the
 * one of `FEISHU_APP_ID`. Every secret that is missing is a problem of its own.
 */
export function readBots(
  env: Env,
  bots: Bots,
  first?: Omit<BotAccess, "name">,
): ParseResult<BotAccess[]> {
  const reader = createEnvReader(env);
  checkFirst(reader, bots, first?.appId);
  const named = namedApps(bots).map((bot) => readAccess(reader, bot));
  return reader.finish([...(first === undefined ? [] : [{ name: "default", ...first }]), ...named]);
}

/** The bot of `FEISHU_APP_ID` must be none of those that have a name. */
function checkFirst(reader: EnvReader, bots: Bots, first: string | undefined): void {
  for (const { name, app } of namedApps(bots)) {
    if (app.id === first) {
      reader.problem(`FEISHU_APP_ID is also the appId of bots.${name}: each bot is named once.`);
    }
  }
}

function namedApps(bots: Bots) {
  return Object.values(bots).flatMap(({ name, app }) => (app === undefined ? [] : [{ name, app }]));
}

function readAccess(
  reader: EnvReader,
  { name, app }: { name: string; app: NonNullable<BotConfig["app"]> },
): BotAccess {
  const appSecret = reader.secret(botVariable("FEISHU_APP_SECRET", name), { required: true });
  return { name, appId: app.id, appSecret, domain: app.domain };
}

/** The same with `FEISHU_ENCRYPT_KEY_<NAME>` and `FEISHU_VERIFICATION_TOKEN_<NAME>`; webhooks need one of them. */
export function readIngressBots(
  env: Env,
  bots: Bots,
  first?: Omit<IngressBotAccess, "name">,
): ParseResult<IngressBotAccess[]> {
  const reader = createEnvReader(env);
  checkFirst(reader, bots, first?.appId);
  const named = namedApps(bots).map((bot): IngressBotAccess => {
    const { name, app } = bot;
    const [key, token] = [
      botVariable("FEISHU_ENCRYPT_KEY", name),
      botVariable("FEISHU_VERIFICATION_TOKEN", name),
    ] as const;
    const webhook = app.transport !== "websocket";
    const encryptKey = reader.secret(key);
    const verificationToken = reader.secret(token);
    if (webhook && encryptKey === undefined && verificationToken === undefined) {
      reader.problem(
        `bots.${name}.transport ${app.transport} needs ${key}, ${token} or both to tell forged requests.`,
      );
    }
    const access = readAccess(reader, bot);
    return {
      ...access,
      encryptKey,
      verificationToken,
      websocket: app.transport !== "webhook",
      webhook,
    };
  });
  return reader.finish([...(first === undefined ? [] : [{ name: "default", ...first }]), ...named]);
}

type Settings = Pick<LarklineConfig, "agents" | "bots">;

/** The agent of that name; undefined when the configuration has none. */
export function agentNamed(
  { agents }: Pick<Settings, "agents">,
  name: string,
): AgentConfig | undefined {
  return Object.hasOwn(agents, name) ? agents[name] : undefined;
}

/** The agent that answers what is written to a bot in a chat now. */
function agentInChat(
  settings: Pick<Settings, "agents">,
  bot: BotConfig,
  chatId: string,
): AgentConfig {
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
 * The agent that a message was accepted for. If the configuration has lost it since, the agent that
 * would answer such a message now: that of the bot and chat, and over HTTP `default`.
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
