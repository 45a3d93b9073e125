import type { ParseResult } from "@larkline/protocol";
import type { BotConfig } from "./bot-config.ts";
import { createEnvReader, type Env, type EnvReader } from "./env-reader.ts";

/** What a process needs to speak as a bot. */
export interface BotAccess {
  /** `default` is the bot of `FEISHU_APP_ID`. */
  readonly name: string;
  readonly appId: string;
  readonly appSecret: string;
  /** `feishu`, `lark` or a base URL. */
  readonly domain: string;
}

/** The same for a process that takes the bot's events. */
export interface EdgeAccess extends BotAccess {
  readonly encryptKey: string | undefined;
  readonly verificationToken: string | undefined;
  readonly websocket: boolean;
  readonly webhook: boolean;
}

type Bots = Readonly<Record<string, BotConfig>>;

/** The variable of one bot: that of the first one with the bot's name behind it. */
export function botVariable(variable: string, bot: string): string {
  return bot === "default" ? variable : `${variable}_${bot.toUpperCase().replaceAll("-", "_")}`;
}

function namedApps(bots: Bots) {
  return Object.values(bots).flatMap(({ name, app }) => (app === undefined ? [] : [{ name, app }]));
}

function readAccess(reader: EnvReader, { name, app }: { name: string; app: NonNullable<BotConfig["app"]> }): BotAccess {
  const appSecret = reader.secret(botVariable("FEISHU_APP_SECRET", name), { required: true });
  return { name, appId: app.id, appSecret, domain: app.domain };
}

/** Messages of the HTTP API have this name where others have their app id. */
const apiName = "api";

/** The bot of `FEISHU_APP_ID` must be none of those that have a name, and not pose as the HTTP API. */
function checkFirst(reader: EnvReader, bots: Bots, first: string | undefined): void {
  if (first === apiName) reader.problem("FEISHU_APP_ID must be an app id such as cli_0123456789abcdef.");
  for (const { name, app } of namedApps(bots)) {
    if (app.id === first) reader.problem(`FEISHU_APP_ID is also the appId of bots.${name}: each bot is named once.`);
  }
}

/**
 * The bots of the configuration with their secrets from `FEISHU_APP_SECRET_<NAME>`, after `first`, the
 * one of `FEISHU_APP_ID`. Every secret that is missing is a problem of its own.
 */
export function readBots(env: Env, bots: Bots, first?: Omit<BotAccess, "name">): ParseResult<BotAccess[]> {
  const reader = createEnvReader(env);
  checkFirst(reader, bots, first?.appId);
  const named = namedApps(bots).map((bot) => readAccess(reader, bot));
  return reader.finish([...(first === undefined ? [] : [{ name: "default", ...first }]), ...named]);
}

/** The same with `FEISHU_ENCRYPT_KEY_<NAME>` and `FEISHU_VERIFICATION_TOKEN_<NAME>`; webhooks need one of them. */
export function readEdges(env: Env, bots: Bots, first?: Omit<EdgeAccess, "name">): ParseResult<EdgeAccess[]> {
  const reader = createEnvReader(env);
  checkFirst(reader, bots, first?.appId);
  const named = namedApps(bots).map((bot): EdgeAccess => {
    const { name, app } = bot;
    const [key, token] = [
      botVariable("FEISHU_ENCRYPT_KEY", name),
      botVariable("FEISHU_VERIFICATION_TOKEN", name),
    ] as const;
    const webhook = app.transport !== "websocket";
    const encryptKey = reader.secret(key);
    const verificationToken = reader.secret(token);
    if (webhook && encryptKey === undefined && verificationToken === undefined) {
      reader.problem(`bots.${name}.transport ${app.transport} needs ${key}, ${token} or both to tell forged requests.`);
    }
    const access = readAccess(reader, bot);
    return { ...access, encryptKey, verificationToken, websocket: app.transport !== "webhook", webhook };
  });
  return reader.finish([...(first === undefined ? [] : [{ name: "default", ...first }]), ...named]);
}
