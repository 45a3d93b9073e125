import { type SessionKey, turnIdOf, type InboundMessage } from "@larkline/protocol";
import type { Clock } from "@larkline/protocol/clock";
import { newEngineError } from "@larkline/protocol/error";
import { calledHelpersOf } from "@larkline/protocol/turn";
import type { RedisConnection } from "./connection.ts";
import { script, runScript } from "./lua.ts";
import type { Keyspace, SessionKeys } from "./keys.ts";
import { sessionOfRun } from "./runs.ts";
import {
  type ResetOptions,
  type ResetResult,
  type AskerAnswer,
  childFrom,
  type ChildSession,
} from "./session-types.ts";
import { queuedFrom, batchOf, cancelledRun, askerValue, summaryFrom } from "./stored.ts";

// An operator resets a session, also one whose stored state no worker can read.

const reset = script("reset");
const summary = script("summary");

/** Turns that may end between the look at the head and the script. */
const maxLooks = 10;

/** Looks at the head, then resets the session if all is still as it was seen. */
export async function resetSession(
  redis: RedisConnection,
  keyspace: Keyspace,
  session: SessionKey,
  { by, replyOf, auditMax, clock }: ResetOptions & { auditMax: number; clock: Clock },
): Promise<ResetResult> {
  const keys = keyspace.session(session);
  for (let look = 0; look < maxLooks; look += 1) {
    const entry = (await redis.lindex(keys.inbox, 0)) ?? "";
    const seq = entry === "" ? 0 : Number.parseInt(entry, 10);
    const turnId = turnIdOf(session, seq);
    const message = entry === "" ? undefined : queuedFrom(session, entry, clock.now()).message;
    const hasCards = (await redis.hget(keys.cards, turnId)) !== null;
    const reply = message === undefined ? undefined : await replyOf(turnId, message, hasCards);
    const { runners, helpers } = await atWork(redis, keys.calls);
    const asker = await endForAsker({ redis, keyspace, clock }, session, message);
    const waiting = await waitingTurns({ redis, keys, clock }, session, replyOf);
    const facts = JSON.stringify(seq === 0 ? {} : { turnId });
    const answer = await runScript(redis, reset, keys, {
      sid: session,
      headSeq: seq,
      channel: keys.channel,
      batch: batchOf([{ runId: turnId, event: cancelledRun }], clock.now()),
      reply: reply === undefined ? "" : JSON.stringify(reply),
      facts,
      person: by,
      hasCards: hasCards ? 1 : 0,
      waiting: JSON.stringify(waiting),
      asker: asker === undefined ? "" : askerValue(asker),
      auditMax,
    });
    if (answer.reply === "changed") continue;
    const { hasEnded, wakeGen, askerGen } = answer;
    return {
      ...(wakeGen > 0 ? { wakeGen } : {}),
      ...(hasEnded ? { turnId, ...(runners.length > 0 ? { runners } : {}) } : {}),
      ...(helpers.length > 0 ? { helpers } : {}),
      ...(asker !== undefined && askerGen > 0
        ? { asker: { session: asker.session, wakeGen: askerGen } }
        : {}),
    };
  }
  throw newEngineError("internal_error", `session ${session} answers faster than it can be reset`, {
    suggestion: "Try again.",
  });
}

/** What is counted for a checkpoint that cannot be read. */
const nothingUsed = {
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheCreationTokens: 0,
  costUsd: 0,
};

const kindsOfUse = Object.keys(nothingUsed) as (keyof typeof nothingUsed)[];
// an object of ours

/** What the asker of a helper gets about its reset; undefined for another session, or where the helper has ended. */
async function endForAsker(
  { redis, keyspace, clock }: { redis: RedisConnection; keyspace: Keyspace; clock: Clock },
  session: SessionKey,
  message: InboundMessage | undefined,
): Promise<AskerAnswer | undefined> {
  if (message?.task === undefined) return undefined;
  const { session: asker, turnId, callId } = message.task;
  const stored = await redis.hgetall(keyspace.session(session).children);
  const children = Object.entries(stored).flatMap(([one, text]) => childFrom(one, text));
  const child = children.find((one) => one.session === session);
  if (child === undefined) return undefined;
  const { session: _session, ...facts } = child;
  const outcome = {
    ok: false,
    error: "cancelled: an operator has reset the helper before it had an answer.",
  } as const;
  const used = { ...nothingUsed, steps: 0 };
  // Its own helpers are stopped with it; they would have reported what they have used to it alone.
  for (const one of [session, ...atWorkBelow(session, children)]) {
    const { turn } = summaryFrom(
      one,
      await runScript(redis, summary, keyspace.session(one)),
      clock.now(),
    );
    if (turn === undefined) continue;
    used.steps += turn.steps + (calledHelpersOf(turn)?.steps ?? 0);
    for (const kind of kindsOfUse) used[kind] += turn.totals[kind] ?? 0;
  }
  return {
    session: asker,
    turnId,
    callId,
    outcome,
    used,
    facts: { ...facts, endedAtMs: clock.now(), isOk: false },
  };
}

/** The helpers of a session that have not ended, and theirs. */
function atWorkBelow(session: SessionKey, children: readonly ChildSession[]): SessionKey[] {
  const own = children.filter(
    ({ parentRunId, endedAtMs }) =>
      endedAtMs === undefined && sessionOfRun({ turn: parentRunId }) === session,
  );
  return own.flatMap((child) => [child.session, ...atWorkBelow(child.session, children)]);
}

/** The turns set aside, as the script takes them. */
async function waitingTurns(
  { redis, keys, clock }: { redis: RedisConnection; keys: SessionKeys; clock: Clock },
  session: SessionKey,
  replyOf: ResetOptions["replyOf"],
): Promise<object[]> {
  const numbers = ((await redis.hget(keys.state, "asides")) ?? "")
    .split(",")
    .filter((number) => number !== "");
  return await Promise.all(
    numbers.map(async (number) => {
      const turnId = turnIdOf(session, Number(number));
      const entry = (await redis.hget(keys.state, `aside:${number}`)) ?? "";
      const hasCards = (await redis.hget(keys.cards, turnId)) !== null;
      const reply =
        entry === ""
          ? undefined
          : await replyOf(turnId, queuedFrom(session, entry, clock.now()).message, hasCards);
      const done = batchOf([{ runId: turnId, event: cancelledRun }], clock.now());
      return {
        seq: number,
        batch: done,
        reply: reply === undefined ? "" : JSON.stringify(reply),
        hasCards: hasCards ? "1" : "0",
      };
    }),
  );
}

/** Runners and helpers that have calls which are not answered. */
async function atWork(
  redis: RedisConnection,
  calls: string,
): Promise<{ runners: string[]; helpers: SessionKey[] }> {
  const open = (await redis.hvals(calls)).flatMap((stored) => {
    const [, facts] = /^(?:open|started) (\{.*)$/s.exec(stored) ?? [];
    return facts === undefined
      ? []
      : [JSON.parse(facts) as { runner?: string; child?: SessionKey }]; // as they were opened
  });
  const runners = new Set(open.flatMap(({ runner }) => runner ?? []));
  return { runners: [...runners], helpers: open.flatMap(({ child }) => child ?? []) };
}
