import type { FeishuApi } from "@larkline/feishu";
import type { LookupCache } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
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
  const look = async (openIds: readonly string[], names: Map<string, string>, signal: AbortSignal): Promise<void> => {
    const known = await Promise.all(openIds.map(async (id) => [id, await lookups.get(`name:${app}:${id}`)] as const));
    for (const [id, name] of known) if (name) names.set(id, name);
    const unknown = known.flatMap(([id, name]) => (name === undefined ? [id] : []));
    if (unknown.length === 0) return;
    for (const [id, name] of await api.userNames(unknown, { signal })) names.set(id, name);
  };
  return async (openIds) => {
    const signal = AbortSignal.timeout(patienceMs);
    const names = new Map<string, string>();
    try {
      await withDeadline(look([...new Set(openIds)], names, signal), patienceMs);
    } catch (error) {
      logger.warn({ error }, "not all names of people known");
    }
    return new Map(names);
  };
}
