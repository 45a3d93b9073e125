import { newEngineError, turnIdOf, type InboundMessage, type SessionKey } from "@larkline/protocol";
import { cancelledRun, type ResetOptions, type ResetResult } from "@larkline/session";
import type { RedisConnection } from "./connection.ts";
import { endingKeysOf } from "./gate-args.ts";
import type { GateScripts } from "./gate-scripts.ts";
import type { Keyspace } from "./keys.ts";
import { batchOf, queuedFrom } from "./stored.ts";

interface ResetDeps {
  redis: RedisConnection;
  scripts: Pick<GateScripts, "reset">;
  keys: Keyspace;
  auditMax: number;
}

/** Turns that may end between the look at the head and the script. */
const maxLooks = 10;

/** What nobody can read is what a reset is for. */
function messageOf(entry: string): InboundMessage | undefined {
  try {
    return queuedFrom(entry).message;
  } catch {
    return undefined;
  }
}

/** Looks at the head, then resets the session if all is still as it was seen. */
export async function resetSession(
  { redis, scripts, keys: keyspace, auditMax }: ResetDeps,
  session: SessionKey,
  { by, replyOf }: ResetOptions,
): Promise<ResetResult> {
  const keys = keyspace.session(session);
  for (let look = 0; look < maxLooks; look += 1) {
    const entry = (await redis.lindex(keys.inbox, 0)) ?? "";
    const seq = entry === "" ? 0 : Number.parseInt(entry, 10);
    const turnId = turnIdOf(session, seq);
    const message = messageOf(entry);
    const hasCards = (await redis.hget(keys.cards, turnId)) !== null;
    const reply = message === undefined ? undefined : await replyOf(turnId, message, hasCards);
    const facts = JSON.stringify(seq === 0 ? {} : { turnId });
    const answer = await scripts.reset(
      [...endingKeysOf(keys), keys.cards],
      [
        session,
        seq,
        keys.channel,
        batchOf([{ runId: turnId, event: cancelledRun }]),
        reply === undefined ? "" : JSON.stringify(reply),
        facts,
        by,
        hasCards ? 1 : 0,
        auditMax,
      ],
    );
    const [ended, gen = 0] = answer as [number, number?]; // shape fixed by the script
    if (ended !== -1) return { ...(ended === 1 ? { turnId } : {}), ...(gen > 0 ? { wakeGen: gen } : {}) };
  }
  throw newEngineError("internal_error", `session ${session} answers faster than it can be reset`, {
    suggestion: "Try again.",
  });
}
