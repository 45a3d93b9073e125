import type { RedisConnection } from "./connection.ts";

/** Members of several sorted sets up to a score, lowest first: no set comes before another one. */
export async function oldestMembers(
  redis: RedisConnection,
  keys: readonly string[],
  { untilMs, limit }: { untilMs: number; limit: number },
): Promise<string[]> {
  const lists = await Promise.all(
    keys.map(async (key) => await redis.zrangebyscore(key, "-inf", untilMs, "WITHSCORES", "LIMIT", 0, limit)),
  );
  const found = lists.flatMap((list) =>
    list.flatMap((member, at) => (at % 2 === 0 ? [{ member, score: Number(list[at + 1]) }] : [])),
  );
  return found
    .sort((one, other) => one.score - other.score)
    .slice(0, limit)
    .map(({ member }) => member);
}

/** The same where members are `session|id`; session keys have no bar. */
export async function duePairs(...given: Parameters<typeof oldestMembers>): Promise<[session: string, id: string][]> {
  const members = await oldestMembers(...given);
  return members.map((member) => {
    const bar = member.indexOf("|");
    return [member.slice(0, bar), member.slice(bar + 1)];
  });
}
