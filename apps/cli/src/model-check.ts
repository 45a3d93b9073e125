import type { VendorAccess } from "./config.ts";
import { ok, problem, warning, type Finding } from "./finding.ts";
import type { Vendor } from "./local-checks.ts";

interface Probe {
  key: string;
  baseVariable: string;
  base: string;
  headers: Record<string, string>;
  /** Lists models; costs nothing. */
  listUrl: string;
  /** Where an empty body is refused, but only after the key was looked at. */
  callUrl: string;
}

function probeOf(vendor: Vendor, { apiKey, baseUrl }: VendorAccess): Probe {
  if (vendor === "anthropic") {
    const base = (baseUrl ?? "https://api.anthropic.com").replace(/\/+$/, "");
    return {
      key: "ANTHROPIC_API_KEY",
      baseVariable: "ANTHROPIC_BASE_URL",
      base,
      headers: { "x-api-key": apiKey, "anthropic-version": "2023-06-01" },
      listUrl: `${base}/v1/models?limit=1`,
      callUrl: `${base}/v1/messages`,
    };
  }
  const base = (baseUrl ?? "https://api.openai.com/v1").replace(/\/+$/, "");
  return {
    key: "OPENAI_API_KEY",
    baseVariable: "OPENAI_BASE_URL",
    base,
    headers: { authorization: `Bearer ${apiKey}` },
    listUrl: `${base}/models`,
    callUrl: `${base}/chat/completions`,
  };
}

async function statusOf(url: string, init: RequestInit): Promise<number> {
  const response = await fetch(url, { ...init, redirect: "error" });
  await response.body?.cancel();
  return response.status;
}

/** Compatible servers often list no models: those are sent a request that they must refuse. */
async function askVendor({ listUrl, callUrl, headers }: Probe, signal: AbortSignal): Promise<number> {
  const listed = await statusOf(listUrl, { headers, signal });
  if (listed !== 404 && listed !== 405) return listed;
  const type = { "content-type": "application/json" };
  return await statusOf(callUrl, { method: "POST", headers: { ...headers, ...type }, body: "{}", signal });
}

function unreachable({ base, baseVariable }: Probe): Finding {
  const { host } = new URL(base);
  return problem(
    "model.reach",
    { zh: `无法连接 ${host}`, en: `${host} cannot be reached` },
    { zh: `检查网络、代理和 ${baseVariable}。`, en: `Check the network, the proxy and ${baseVariable}.` },
  );
}

function refused({ key, base }: Probe, status: number): Finding {
  const { host } = new URL(base);
  return problem(
    "model.key",
    { zh: `${host} 拒绝了 ${key}（${status}）`, en: `${host} refuses ${key} (${status})` },
    {
      zh: `在供应商控制台重新复制密钥，并更正 ${key}。`,
      en: `Copy the key again from the vendor's console and correct ${key}.`,
    },
  );
}

/** Whether the vendor takes the key, found out without a model call. */
export async function checkModelKey(vendor: Vendor, access: VendorAccess, signal: AbortSignal): Promise<Finding> {
  const probe = probeOf(vendor, access);
  const { host } = new URL(probe.base);
  const status = await askVendor(probe, signal).catch(() => undefined);
  if (status === undefined) return unreachable(probe);
  if (status === 401 || status === 403) return refused(probe, status);
  if (status === 404 || status === 405) {
    return problem(
      "model.reach",
      { zh: `${host} 不提供所需的接口（${status}）`, en: `${host} does not have the interface (${status})` },
      { zh: `检查 ${probe.baseVariable} 的路径。`, en: `Check the path of ${probe.baseVariable}.` },
    );
  }
  if (status === 429 || status >= 500) {
    return warning(
      "model.key",
      {
        zh: `${host} 暂时无法确认 ${probe.key}（${status}）`,
        en: `${host} cannot confirm ${probe.key} now (${status})`,
      },
      { zh: "稍后再试；若持续出现，检查额度。", en: "Try again later; if it stays, check the quota." },
    );
  }
  return ok("model.key", { zh: `${host} 接受 ${probe.key}`, en: `${host} accepts ${probe.key}` });
}
