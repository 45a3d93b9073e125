import { botVariable, readIngressBots, type Env, type LarklineConfig } from "@larkline/process/config";
import type { FeishuAccess } from "./config.ts";
import { problem, type Finding } from "./finding.ts";
import type { Bilingual } from "./language.ts";

/** A bot whose app can be looked at. */
export interface CheckedBot {
  /** `default` is the bot of `FEISHU_APP_ID`. */
  name: string;
  access: FeishuAccess;
}

/** The bots that have a name in the configuration; without their secrets there are none to look at. */
export function namedBots(
  env: Env,
  config: LarklineConfig | undefined,
  first: FeishuAccess | undefined,
): { bots: CheckedBot[]; findings: Finding[] } {
  if (config === undefined) return { bots: [], findings: [] };
  const bots = Object.values(config.bots);
  const shared = bots.filter(({ app }) => app !== undefined && app.id === first?.appId);
  const read = readIngressBots(env, config.bots);
  const problems = [
    ...shared.map(({ name }) => `FEISHU_APP_ID is also the appId of bots.${name}: each bot is named once.`),
    ...(read.ok ? [] : read.error.split("\n")),
  ];
  const findings = problems.map((text) =>
    problem("bots", { zh: text, en: text }, { zh: "在 .env 或环境变量中更正。", en: "Correct it in .env." }),
  );
  const accesses = read.ok ? read.value : [];
  return {
    findings,
    bots: accesses.map(({ name, websocket, webhook, encryptKey, verificationToken, ...access }) => ({
      name,
      access: {
        ...access,
        transport: websocket ? (webhook ? "both" : "websocket") : "webhook",
        ...(encryptKey === undefined ? {} : { encryptKey }),
        ...(verificationToken === undefined ? {} : { verificationToken }),
      },
    })),
  };
}

const keyOf: Readonly<Record<string, string>> = {
  FEISHU_APP_ID: "appId",
  FEISHU_DOMAIN: "domain",
  FEISHU_TRANSPORT: "transport",
};

/** Findings speak of the variables of the first bot; another one has its own, and keys of the configuration. */
function renamed({ zh, en }: Bilingual, bot: string): Bilingual {
  const rename = (text: string): string =>
    text.replaceAll(/FEISHU_[A-Z_]+/g, (variable) => {
      const key = keyOf[variable];
      return key === undefined ? botVariable(variable, bot) : `bots.${bot}.${key}`;
    });
  return { zh: rename(zh), en: rename(en) };
}

/** What was found about one bot, saying which. */
export function ofBot(bot: string, findings: readonly Finding[]): Finding[] {
  if (bot === "default") return [...findings];
  return findings.map(({ text, advice, ...finding }) => ({
    ...finding,
    text: renamed({ zh: `机器人 ${bot}：${text.zh}`, en: `Bot ${bot}: ${text.en}` }, bot),
    ...(advice === undefined ? {} : { advice: renamed(advice, bot) }),
  }));
}
