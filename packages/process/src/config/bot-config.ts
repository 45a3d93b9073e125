import type { ParseResult } from "@larkline/protocol";
import type { BotInput, BotTransport, FeishuInput } from "./config-schema.ts";
import { didYouMean } from "./did-you-mean.ts";

/** How a bot behaves on the platform, with defaults. `null` in `monthlyCalls`: not limited. */
export type FeishuSettings = Readonly<Required<Omit<FeishuInput, "monthlyCalls">>> & {
  readonly monthlyCalls: number | null;
};

/** One bot of a deployment, without its secrets. */
export interface BotConfig {
  readonly name: string;
  /** Absent for `default`: that one is the bot of `FEISHU_APP_ID`, if there is one. */
  readonly app?: { readonly id: string; readonly domain: string; readonly transport: BotTransport };
  /** Name of the agent that answers where `chats` says nothing else. */
  readonly agent: string;
  /** Names of agents by chat id. */
  readonly chats: ReadonlyMap<string, string>;
  /** Keys of the tenants whose people are answered; `null`: everybody. */
  readonly tenants: readonly string[] | null;
  readonly feishu: FeishuSettings;
}

/** What the configuration says of bots. */
export interface BotsInput {
  bots?: Readonly<Record<string, BotInput>>;
  feishu?: FeishuInput;
}

type Bots = Readonly<Record<string, BotConfig>> & { readonly default: BotConfig };

const defaultFeishu: FeishuSettings = {
  typing: false,
  queueNotice: "reaction",
  lateMessages: "ask",
  welcome: true,
  menu: {},
  monthlyCalls: null,
  maxCards: 5,
  rateLimits: true,
};

/** What is wrong with the domain of an app; undefined when nothing is. */
export function domainProblem(domain: string): string | undefined {
  const fits = domain === "feishu" || domain === "lark" || (/^https?:\/\//.test(domain) && URL.canParse(domain));
  return fits ? undefined : "must be feishu, lark or a URL that starts with http:// or https://";
}

/**
 * User groups of a person as roles name them: by their ids, and for this bot alone as `<bot>:<id>`. Another tenant may
 * give a group of its own the same id, so where bots are in several tenants only the second is sure.
 */
export function groupsAtBot({ name }: Pick<BotConfig, "name">, groups: readonly string[]): string[] {
  const own = groups.filter((id) => !id.includes(":"));
  return own.flatMap((id) => [id, `${name}:${id}`]);
}

function botOf(name: string, input: BotInput, feishu: FeishuSettings): BotConfig {
  const { appId, domain = "feishu", transport = "websocket", agent = "default", chats = {}, tenants } = input;
  return {
    name,
    ...(appId === undefined ? {} : { app: { id: appId, domain, transport } }),
    agent,
    chats: new Map(Object.entries(chats).map(([chatId, chat]) => [chatId, chat.agent])),
    tenants: tenants ?? null,
    feishu: { ...feishu, ...input.feishu },
  };
}

function placeProblems(name: string, { appId, domain, transport }: BotInput): string[] {
  const where = `bots.${name}`;
  if (name === "default") {
    const given = Object.entries({ appId, domain, transport }).filter(([, value]) => value !== undefined);
    return given.map(
      ([key]) => `${where}.${key} has no meaning: default is the bot of FEISHU_APP_ID, and so is its ${key}`,
    );
  }
  if (appId === undefined) return [`${where} has no appId`];
  const wrongDomain = domain === undefined ? undefined : domainProblem(domain);
  return wrongDomain === undefined ? [] : [`${where}.domain ${wrongDomain}`];
}

function agentProblems(name: string, { agent, chats = {} }: BotInput, agents: object): string[] {
  const named = [
    ...(agent === undefined ? [] : [[`bots.${name}`, agent] as const]),
    ...Object.entries(chats).map(([chatId, chat]) => [`bots.${name}.chats.${chatId}`, chat.agent] as const),
  ];
  return named
    .filter(([, wanted]) => !Object.hasOwn(agents, wanted))
    .map(([where, wanted]) => `${where} names the unknown agent '${wanted}'${didYouMean(wanted, Object.keys(agents))}`);
}

/** Two bots of one app would take each other's events away. */
function sharedApps(bots: Readonly<Record<string, BotInput>>): string[] {
  const byApp = Map.groupBy(Object.entries(bots), ([, { appId }]) => appId);
  return [...byApp].flatMap(([appId, sharing]) =>
    appId === undefined || sharing.length < 2
      ? []
      : [`${sharing.map(([name]) => `bots.${name}`).join(" and ")} have the same appId`],
  );
}

/** All bots with their defaults; the error names every bot that cannot work. `agents`: those there are, by name. */
export function resolveBots({ bots = {}, feishu = {} }: BotsInput, agents: object): ParseResult<Bots> {
  const problems = [
    ...Object.entries(bots).flatMap(([name, bot]) => [
      ...placeProblems(name, bot),
      ...agentProblems(name, bot, agents),
    ]),
    ...sharedApps(bots),
  ];
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  const settings = { ...defaultFeishu, ...feishu };
  const named = Object.fromEntries(Object.entries(bots).map(([name, bot]) => [name, botOf(name, bot, settings)]));
  return { ok: true, value: { ...named, default: botOf("default", bots["default"] ?? {}, settings) } };
}
