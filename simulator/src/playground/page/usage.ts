import type { ApiCall } from "../routes.ts";

/** How much an API was called lately. */
export interface ApiUsage {
  api: string;
  lastSecond: number;
  lastMinute: number;
}

/** Calls of the last minute, counted as the platform does: by API and by card. */
export interface Usage {
  count(call: ApiCall): void;
  /** The APIs of the last minute, most called first. */
  rows(now: number): ApiUsage[];
  /** Operations on a card in the last second. */
  onCard(cardId: string, now: number): number;
}

const windowMs = 60_000;

export function createUsage(): Usage {
  let calls: { api: string; cardId: string | undefined; at: number }[] = [];
  return {
    count({ method, path, at }) {
      const cardId = /^\/open-apis\/cardkit\/v1\/cards\/(\d+)/.exec(path)?.[1];
      calls.push({ api: `${method} ${apiOf(path)}`, cardId, at });
    },
    rows(now) {
      calls = calls.filter(({ at }) => now - at < windowMs);
      const rows = new Map<string, ApiUsage>();
      for (const { api, at } of calls) {
        const row = rows.get(api) ?? { api, lastSecond: 0, lastMinute: 0 };
        row.lastMinute += 1;
        if (now - at < 1000) row.lastSecond += 1;
        rows.set(api, row);
      }
      return [...rows.values()].toSorted((left, right) => right.lastMinute - left.lastMinute);
    },
    onCard: (cardId, now) => calls.filter((call) => call.cardId === cardId && now - call.at < 1000).length,
  };
}

/** The path with ids as `:id`: what is limited together. */
function apiOf(path: string): string {
  return path
    .replace(/^\/open-apis/, "")
    .replaceAll(/\/(?:(?:om|oc|ou|on|omt|img|file|cli)_[\w-]+|\d{6,}|ZCa[\w-]+)/g, "/:id")
    .replaceAll(/\/(elements|reactions|images|files|resources|users)\/[\w-]+/g, "/$1/:id");
}
