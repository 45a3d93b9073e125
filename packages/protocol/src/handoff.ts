import { createHmac, timingSafeEqual } from "node:crypto";
import { Type, type Static } from "typebox";
import { CallTiming } from "./inbox.ts";
import { RunnerName } from "./job.ts";
import { jsonParserOf, type ParseResult } from "./schema.ts";
import { SessionKey } from "./session.ts";
import { ToolEffect, ToolOutcome } from "./tool.ts";

/** Which attempt of which call an entry is about; a worker compares all of it with the effect ledger. */
const about = {
  v: Type.Literal(1),
  runner: RunnerName,
  session: SessionKey,
  turnId: Type.String({ maxLength: 512 }),
  callId: Type.String({ minLength: 1, maxLength: 512 }),
  attempt: Type.Integer({ minimum: 1 }),
  tool: Type.String({ maxLength: 64 }),
  /** Of the job's `arguments` text. */
  argumentsHash: Type.String({ maxLength: 64 }),
};

/** Names one question of a runner whether a call may start; made up by the runner, new for each question. */
const AskId = Type.String({ pattern: "^[A-Za-z0-9-]{8,64}$" });

/**
 * What a runner hands in about a call. Runners write these entries into a stream of their own and workers
 * carry them over into the session: nothing that a runner writes is believed before a worker has checked it.
 */
export const HandoffEntry = Type.Union([
  /** The call starts (`idempotent`), or asks whether it may (`once`: with `ask`, which is answered). */
  Type.Object({ ...about, kind: Type.Literal("begun"), effect: ToolEffect, ask: Type.Optional(AskId) }),
  /** The call was allowed to start by the answer to `ask`, and has not: it is open again. */
  Type.Object({ ...about, kind: Type.Literal("returned"), ask: AskId }),
  Type.Object({
    ...about,
    kind: Type.Literal("progress"),
    fraction: Type.Number({ minimum: 0, maximum: 1 }),
    detail: Type.String({ maxLength: 500 }),
  }),
  Type.Object({ ...about, kind: Type.Literal("log"), text: Type.String({ maxLength: 16_000 }) }),
  Type.Object({
    ...about,
    kind: Type.Literal("outcome"),
    outcome: ToolOutcome,
    timing: Type.Optional(CallTiming),
    /** The call was not run: one that was started before is not answered by this. */
    notRun: Type.Optional(Type.Boolean()),
    /** Blob that holds the text of `outcome.stored`. */
    blobId: Type.Optional(Type.String({ maxLength: 64 })),
  }),
]);
export type HandoffEntry = Static<typeof HandoffEntry>;

/** What an entry has to say about its call even where the rest of it cannot be read. */
const HandoffOutline = Type.Object({ ...about, kind: Type.String() });
type HandoffOutline = Static<typeof HandoffOutline>;

/** Says that a runner has handed something in: which stream to read, or the entry itself with its id in the stream. */
export const HandoffRing = Type.Object({
  runner: RunnerName,
  cell: Type.Integer({ minimum: 0, maximum: 15 }),
  id: Type.Optional(Type.String({ pattern: "^\\d+-\\d+$" })),
  entry: Type.Optional(Type.String()),
  mac: Type.Optional(Type.String({ maxLength: 128 })),
});

export type HandoffRing = Static<typeof HandoffRing>;

/** What a worker says to the question whether a call may start. */
export const HandoffAnswer = Type.Object({
  ask: AskId,
  answer: Type.Enum(["run", "closed", "started_before"]),
});
export type HandoffAnswer = Static<typeof HandoffAnswer>;

/** The longest entry that a worker reads, in bytes. */
export const maxHandoffBytes = 2_097_152;

const parseEntry = jsonParserOf(HandoffEntry);
const parseOutline = jsonParserOf(HandoffOutline);
export const parseHandoffAnswer = jsonParserOf(HandoffAnswer);
export const parseHandoffRing = jsonParserOf(HandoffRing);

/** HMAC-SHA-256 in hex. The prefix keeps it apart from the signature of calls, which has the same key. */
export function handoffMac(runnerKey: string, entry: string): string {
  return createHmac("sha256", runnerKey).update(`handoff:${entry}`).digest("hex");
}

/** What is wrong with an entry; `about` names the call when the entry is genuine and says at least that. */
export interface BadHandoff {
  ok: false;
  error: string;
  about?: HandoffOutline;
}

/** Reads an entry of the stream of `runner`. */
export function readHandoff(
  { runner, runnerKey }: { runner: string; runnerKey: string },
  { entry, mac }: { entry: string; mac: string },
): ParseResult<HandoffEntry> | BadHandoff {
  const expected = Buffer.from(handoffMac(runnerKey, entry), "hex");
  const given = Buffer.from(mac, "hex");
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
    return { ok: false, error: "it is not signed with the key of its runner" };
  }
  const parsed = parseEntry(entry);
  const known = parsed.ok ? parsed : parseOutline(entry);
  if (known.ok && known.value.runner !== runner) return { ok: false, error: "it is in the name of another runner" };
  if (parsed.ok) return parsed;
  return { ok: false, error: parsed.error, ...(known.ok ? { about: known.value } : {}) };
}
