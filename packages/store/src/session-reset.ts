import { newEngineError, turnIdOf, type SessionKey } from "@larkline/protocol";
import { cancelledRun } from "./cancelled-run.ts";
import type { RedisConnection } from "./connection.ts";
import type { Keyspace, SessionKeys } from "./keys.ts";
import { runScript, script } from "./script.ts";
import type { ResetOptions, ResetResult } from "./session-types.ts";
import { batchOf, queuedFrom } from "./stored.ts";

const reset = script("reset");

interface ResetDeps {
  redis: RedisConnection;
  keys: Keyspace;
  auditMax: number;
}

/** Turns that may end between the look at the head and the script. */
const maxLooks = 10;

/** The turns set aside, as the script takes them. */
async function waitingTurns(
  { redis, keys }: { redis: RedisConnection; keys: SessionKeys },
  session: SessionKey,
  replyOf: ResetOptions["replyOf"],
): Promise<object[]> {
  const numbers = ((await redis.hget(keys.state, "asides")) ?? "").split(",").filter((number) => number !== "");
  return await Promise.all(
    numbers.map(async (number) => {
      const turnId = turnIdOf(session, Number(number));
      const entry = (await redis.hget(keys.state, `aside:${number}`)) ?? "";
      const hasCards = (await redis.hget(keys.cards, turnId)) !== null;
      const reply = entry === "" ? undefined : await replyOf(turnId, queuedFrom(session, entry).message, hasCards);
      const done = batchOf([{ runId: turnId, event: cancelledRun }]);
      return {
        seq: number,
        batch: done,
        reply: reply === undefined ? "" : JSON.stringify(reply),
        hasCards: hasCards ? "1" : "0",
      };
    }),
  );
}

/** Runners that have calls which are not answered. */
async function runnersAtWork(redis: RedisConnection, calls: string): Promise<string[]> {
  const runners = (await redis.hvals(calls)).flatMap((stored) => {
    const [, facts] = /^(?:open|started) (\{.*)$/s.exec(stored) ?? [];
    const { runner } = facts === undefined ? {} : (JSON.parse(facts) as { runner?: string }); // as they were opened
    return runner === undefined ? [] : [runner];
  });
  return [...new Set(runners)];
}

/** Looks at the head, then resets the session if all is still as it was seen. */
export async function resetSession(
  { redis, keys: keyspace, auditMax }: ResetDeps,
  session: SessionKey,
  { by, replyOf }: ResetOptions,
): Promise<ResetResult> {
  const keys = keyspace.session(session);
  for (let look = 0; look < maxLooks; look += 1) {
    const entry = (await redis.lindex(keys.inbox, 0)) ?? "";
    const seq = entry === "" ? 0 : Number.parseInt(entry, 10);
    const turnId = turnIdOf(session, seq);
    const message = entry === "" ? undefined : queuedFrom(session, entry).message;
    const hasCards = (await redis.hget(keys.cards, turnId)) !== null;
    const reply = message === undefined ? undefined : await replyOf(turnId, message, hasCards);
    const runners = await runnersAtWork(redis, keys.calls);
    const waiting = await waitingTurns({ redis, keys }, session, replyOf);
    const facts = JSON.stringify(seq === 0 ? {} : { turnId });
    const answer = await runScript(redis, reset, keys, {
      sid: session,
      headSeq: seq,
      channel: keys.channel,
      batch: batchOf([{ runId: turnId, event: cancelledRun }]),
      reply: reply === undefined ? "" : JSON.stringify(reply),
      facts,
      person: by,
      hasCards: hasCards ? 1 : 0,
      waiting: JSON.stringify(waiting),
      auditMax,
    });
    const [ended, gen = 0] = answer as [number, number?]; // shape fixed by the script
    if (ended === -1) continue;
    return {
      ...(ended === 1 ? { turnId } : {}),
      ...(gen > 0 ? { wakeGen: gen } : {}),
      ...(ended === 1 && runners.length > 0 ? { runners } : {}),
    };
  }
  throw newEngineError("internal_error", `session ${session} answers faster than it can be reset`, {
    suggestion: "Try again.",
  });
}
