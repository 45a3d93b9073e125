import type { RateBucket } from "@larkline/store";
import { baseUrlOf, type FeishuDomain } from "./domain.ts";

// What others than the callers of the platform have to know of its limits. Without the SDK.

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

/** The APIs that people feel when they are slow: those that show something, and those that are asked on the way. */
const watchedApis = [
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
  return watchedApis.map((api) => apiBucket(app, api));
}

/** The month in which the platform counts a call: its quota follows the calendar of its own time zone. */
export function monthOf(nowMs: number): string {
  return new Date(nowMs + 8 * 3_600_000).toISOString().slice(0, 7);
}

/** Under which name the processes share an app's access token. */
export function tenantTokenName(domain: FeishuDomain, app: string): string {
  return `feishu-tenant-token ${baseUrlOf(domain)} ${app}`;
}
