import { sharedNow, type Approval } from "@larkline/protocol";
import type { RedisConnection } from "./connection.ts";
import type { Keyspace } from "./keys.ts";

const weekMs = 7 * 24 * 60 * 60 * 1_000;

/**
 * Notes which session an approval belongs to: a button carries its id only. Comes before the approval
 * itself, so that whoever has seen one can find it; a note without an approval leads nowhere.
 */
export async function indexApprovals(
  redis: RedisConnection,
  keys: Keyspace,
  approvals: readonly Approval[],
): Promise<void> {
  const nowMs = sharedNow();
  await Promise.all(
    approvals.map(async ({ id, session, expiresAtMs }) => {
      await redis.set(keys.approval(id), session, "PX", Math.max(0, expiresAtMs - nowMs) + weekMs);
    }),
  );
}
