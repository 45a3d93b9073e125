import type { FeishuApi } from "@larkline/feishu";
import type { LookupCache } from "@larkline/session";
import type { Logger } from "@larkline/telemetry";
import { withDeadline } from "./deadline.ts";

export interface PeopleNamesDeps {
  app: string;
  api: Pick<FeishuApi, "userNames">;
  lookups: Pick<LookupCache, "get">;
  /** How long somebody waits for names. */
  patienceMs: number;
  logger: Logger;
}

/** Names of people by open_id, as far as they are known in time; never rejects. */
export type PeopleNames = (openIds: readonly string[]) => Promise<ReadonlyMap<string, string>>;

/** Looks where the workers remember names first. What they do not know is asked for, not remembered: it is rare. */
export function createPeopleNames({ app, api, lookups, patienceMs, logger }: PeopleNamesDeps): PeopleNames {
  const look = async (openIds: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, string>> => {
    const known = await Promise.all(openIds.map(async (id) => [id, await lookups.get(`name:${app}:${id}`)] as const));
    const unknown = known.flatMap(([id, name]) => (name === undefined ? [id] : []));
    const asked = unknown.length === 0 ? new Map<string, string>() : await api.userNames(unknown, { signal });
    return new Map([...known.flatMap(([id, name]) => (name ? [[id, name] as const] : [])), ...asked]);
  };
  return async (openIds) => {
    const signal = AbortSignal.timeout(patienceMs);
    try {
      return await withDeadline(look([...new Set(openIds)], signal), patienceMs);
    } catch (error) {
      logger.warn({ error }, "names of people unknown");
      return new Map();
    }
  };
}
