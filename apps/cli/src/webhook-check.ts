import { createWebhookChallenge } from "@larkline/feishu";
import type { FeishuAccess } from "./config.ts";
import { ok, problem, skipped, warning, type Finding } from "./finding.ts";

/** Feishu waits this long when an address is saved ("Send notifications to developer's server"). */
const challengeMs = 1_000;

/** The addresses of a bot, below that of the ingress. */
export function webhookPaths(bot: string): [events: string, cards: string] {
  const start = bot === "default" ? "/feishu" : `/feishu/${bot}`;
  return [`${start}/events`, `${start}/cards`];
}

interface Answer {
  status: number;
  challenge: unknown;
  tookMs: number;
}

async function challengeOf(response: Response): Promise<unknown> {
  const body: unknown = await response.json().catch(() => undefined);
  return typeof body === "object" && body !== null && "challenge" in body ? body.challenge : undefined;
}

async function ask(url: string, body: string, signal: AbortSignal): Promise<Answer | undefined> {
  const startedMs = performance.now();
  try {
    const headers = { "content-type": "application/json; charset=utf-8" };
    const response = await fetch(url, { method: "POST", headers, body, signal, redirect: "error" });
    const challenge = await challengeOf(response);
    return { status: response.status, challenge, tookMs: performance.now() - startedMs };
  } catch {
    return undefined;
  }
}

export interface WebhookCheck {
  /** Address of the ingress, without the path. */
  base: string;
  /** Nobody named the address: it may well be elsewhere. */
  guessed: boolean;
  /** `default` is the bot of `FEISHU_APP_ID`. */
  bot: string;
  feishu: FeishuAccess;
}

function unanswered(url: string, guessed: boolean): Finding {
  if (guessed) {
    const en = `No ingress answers at ${url}; name its public address with --webhook-url to have it checked`;
    return skipped("feishu.webhook", { zh: `${url} 没有应答；用 --webhook-url 指定公网地址可检查`, en });
  }
  return problem(
    "feishu.webhook",
    { zh: `${url} 没有应答`, en: `${url} does not answer` },
    { zh: "启动 ingress，检查域名、证书和反向代理。", en: "Start the ingress; check name, certificate and proxy." },
  );
}

async function checkPath(check: WebhookCheck, path: string, signal: AbortSignal): Promise<Finding> {
  const url = `${check.base.replace(/\/+$/, "")}${path}`;
  const { body, challenge } = createWebhookChallenge(check.feishu);
  const answer = await ask(url, body, signal);
  if (answer === undefined) return unanswered(url, check.guessed);
  if (answer.status !== 200 || answer.challenge !== challenge) {
    return problem(
      "feishu.webhook",
      {
        zh: `${url} 没有返回校验值（${answer.status}）`,
        en: `${url} does not return the challenge (${answer.status})`,
      },
      {
        zh: "ingress 的 FEISHU_ENCRYPT_KEY 和 FEISHU_VERIFICATION_TOKEN 必须与这里和开发者后台一致，且 FEISHU_TRANSPORT 为 webhook 或 both。",
        en: "FEISHU_ENCRYPT_KEY and FEISHU_VERIFICATION_TOKEN of the ingress must be those of here and of the console, and its FEISHU_TRANSPORT webhook or both.",
      },
    );
  }
  const took = Math.round(answer.tookMs);
  const text = { zh: `${url} 通过校验（${took} ms）`, en: `${url} answers the challenge (${took} ms)` };
  if (answer.tookMs <= challengeMs) return ok("feishu.webhook", text);
  return warning("feishu.webhook", text, { zh: "飞书只等待 1 秒。", en: "Feishu waits only 1 s." });
}

/** Sends both addresses of a bot the challenge that the developer console would send. */
export async function checkWebhook(check: WebhookCheck, signal: AbortSignal): Promise<Finding[]> {
  return await Promise.all(webhookPaths(check.bot).map((path) => checkPath(check, path, signal)));
}
