import type { RateBucket } from "@larkline/store";

// Facts about the platform that also programs without an API client need, such as the console. This file
// must not import the SDK.

/** Where an app lives: one of the two clouds, or any base URL (a simulator, a proxy). */
export type FeishuDomain = "feishu" | "lark" | (string & {});

const clouds: Record<string, string> = {
  feishu: "https://open.feishu.cn",
  lark: "https://open.larksuite.com",
};

/** The base URL without a trailing slash. Throws when it is neither a known name nor an http(s) URL. */
export function baseUrlOf(domain: FeishuDomain): string {
  const known = clouds[domain];
  if (known !== undefined) return known;
  if (!URL.canParse(domain)) throw new Error(`FEISHU_DOMAIN must be feishu, lark or a base URL, got "${domain}"`);
  const url = new URL(domain);
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new Error(`FEISHU_DOMAIN must be an http or https URL, got "${url.protocol}"`);
  }
  return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
}

interface Tier {
  perSecond?: number;
  perMinute?: number;
}

/** "Rate limits", tier 4: what most of the APIs allow one app in one tenant. */
const defaultTier: Tier = { perSecond: 50, perMinute: 1_000 };

/** APIs of another tier. */
const tiers: Readonly<Record<string, Tier>> = {
  "contact.user.basicBatch": { perSecond: 5 },
};

/** The APIs whose slowness people notice: those that show something, and those that a message waits for. */
const visibleApis = [
  "im.message.reply",
  "im.message.create",
  "im.message.patch",
  "im.message.list",
  "im.message.get",
  "cardkit.card.create",
  "cardkit.card.update",
  "cardkit.card.batchUpdate",
  "cardkit.card.settings",
  "cardkit.cardElement.content",
  "im.image.create",
  "im.messageResource.get",
  "im.reaction.create",
  "contact.user.basicBatch",
] as const;

/** The limit of one API for one app, shared by all processes. */
export function apiBucket(app: string, api: string): RateBucket {
  return { key: `${app}:api:${api}`, ...(tiers[api] ?? defaultTier) };
}

/** The limits of the APIs that matter most. */
export function apiBuckets(app: string): RateBucket[] {
  return visibleApis.map((api) => apiBucket(app, api));
}

/** The month (`YYYY-MM`) in which the platform counts a call: its quota follows the calendar of its own time zone. */
export function monthOf(nowMs: number): string {
  return new Date(nowMs + 8 * 3_600_000).toISOString().slice(0, 7);
}

/** The name under which the processes share an app's access token. */
export function tenantTokenName(domain: FeishuDomain, app: string): string {
  return `feishu-tenant-token ${baseUrlOf(domain)} ${app}`;
}
