import { Failure } from "./failure.mjs";
import { text } from "./texts.mjs";

const deadlineMs = 5_000;
const domains = { feishu: "https://open.feishu.cn", lark: "https://open.larksuite.com" };

function hostOf(url, variable) {
  if (!URL.canParse(url)) throw new Failure(text("urlWrong", variable));
  return new URL(url).host;
}

async function answerOf(url, init, signal) {
  try {
    return await fetch(url, {
      ...init,
      signal: AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]),
    });
  } catch {
    return undefined;
  }
}

const vendorChecks = {
  anthropic: (env) => ({
    key: "ANTHROPIC_API_KEY",
    variable: "ANTHROPIC_BASE_URL",
    url: `${env.ANTHROPIC_BASE_URL || "https://api.anthropic.com"}/v1/models?limit=1`,
    headers: { "x-api-key": env.ANTHROPIC_API_KEY, "anthropic-version": "2023-06-01" },
  }),
  openai: (env) => ({
    key: "OPENAI_API_KEY",
    variable: "OPENAI_BASE_URL",
    url: `${env.OPENAI_BASE_URL || "https://api.openai.com/v1"}/models`,
    headers: { authorization: `Bearer ${env.OPENAI_API_KEY}` },
  }),
};

async function checkVendor(vendor, env, { signal, say }) {
  const { key, variable, url, headers } = vendorChecks[vendor](env);
  const host = hostOf(url, variable);
  const response = await answerOf(url, { headers }, signal);
  if (response === undefined) say(text("unreachable", host, key));
  else if (response.status === 401 || response.status === 403) {
    throw new Failure(text("keyRefused", key, host, response.status));
  }
  await response?.body?.cancel();
}

async function checkFeishu({ appId, appSecret, domain }, { signal, say }) {
  const base = domains[domain] ?? domain;
  const host = hostOf(base, "FEISHU_DOMAIN");
  const response = await answerOf(
    `${base}/open-apis/auth/v3/tenant_access_token/internal`,
    {
      method: "POST",
      headers: { "content-type": "application/json; charset=utf-8" },
      body: JSON.stringify({ app_id: appId, app_secret: appSecret }),
    },
    signal,
  );
  const answer = await response?.json().catch(() => undefined);
  if (typeof answer?.code !== "number") say(text("unreachable", host, "FEISHU_APP_ID"));
  else if (answer.code !== 0) {
    throw new Failure(text("feishuRefused", host, answer.code, answer.msg));
  }
}

/**
 * Asks Feishu and the model vendors whether they take our keys, when real ones are in use: a wrong
 * key is found here, not in the first conversation. Who cannot be reached is only mentioned.
 */
export async function requireCredentials({ plan: { feishu, model }, env, life }) {
  const checks =
    model.kind === "vendor" ? model.vendors.map((vendor) => checkVendor(vendor, env, life)) : [];
  if (feishu.kind === "real") checks.push(checkFeishu(feishu, life));
  await Promise.all(checks);
}
