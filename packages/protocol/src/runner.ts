import {
  hash,
  createHmac,
  timingSafeEqual,
  createCipheriv,
  createDecipheriv,
  hkdfSync,
} from "node:crypto";
import type { Random } from "./clock.ts";
import { jsonParserOf, type ParseResult } from "./schema.ts";
import { SessionKey } from "./session.ts";
import {
  ToolEffect,
  ToolDigest,
  CallInput,
  Actor,
  CallAuthority,
  ReportedOutcome,
  CallTiming,
  ToolAnnouncement,
  ToolIdentity,
} from "./tool.ts";
import { Traceparent } from "./trace.ts";
import { Type, type Static } from "./type.ts";

// What workers and runners exchange: announcements, jobs and what a worker vouches for, hand-offs and their answers, sealed
// identities. Everything that a runner writes is checked before a worker believes it.

/** Names of runners: part of queue names and Redis keys. */
export const RunnerName = Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" });

/** Name of the queue of one runner, or of one of its tools that has limits of its own. */
export function toolsQueue(runner: string, limitedTool?: string): string {
  return limitedTool === undefined ? `tools-${runner}` : `tools-${runner}.${limitedTool}`;
}

/** One tool call on its way to a runner. */
export const ToolJob = Type.Object({
  v: Type.Literal(1),
  session: SessionKey,
  turnId: Type.String(),
  callId: Type.String(),
  name: Type.String(),
  /** JSON text of the arguments, checked by the runner against the tool's schema. */
  arguments: Type.String(),
  effect: ToolEffect,
  /** The digest of the tool that the call was made for, as its runner announced it; absent: not known. */
  toolDigest: Type.Optional(ToolDigest),
  /**
   * From 2 on a person has asked for another try of a call whose outcome was unknown, or no runner was there to start
   * the attempt before, which is closed.
   */
  attempt: Type.Integer({ minimum: 1 }),
  /** What people answered to the server, which has asked in the attempt before. */
  input: Type.Optional(CallInput),
  actor: Actor,
  /** Claims of the worker about all of this, signed for the runner: see `verifyCall`. */
  envelope: Type.String({ maxLength: 16_384 }),
  /** Epoch ms at which it was handed out. */
  queuedAtMs: Type.Integer(),
  /** Epoch ms; later the call has been answered with a timeout and must not be started. */
  deadlineMs: Type.Integer(),
  /** The worker that hands it out: notified first when the runner hands something in about it. */
  worker: Type.Optional(Type.String({ pattern: "^[A-Za-z0-9-]{1,64}$" })),
  /** The trace of the message that the call is made for. */
  traceparent: Type.Optional(Traceparent),
});

export type ToolJob = Static<typeof ToolJob>;

/** What stays of a call when its job has finished: ids and numbers, nothing that a person or a model wrote. */
export const FinishedCall = Type.Object({
  v: Type.Literal(1),
  session: SessionKey,
  turnId: Type.String(),
  callId: Type.String(),
  name: Type.String(),
  effect: ToolEffect,
  attempt: Type.Integer({ minimum: 1 }),
  /** Characters of the arguments. */
  argumentsLength: Type.Integer({ minimum: 0 }),
  queuedAtMs: Type.Integer(),
  deadlineMs: Type.Integer(),
  traceparent: Type.Optional(Traceparent),
});

export type FinishedCall = Static<typeof FinishedCall>;

export function finishedCallOf(job: ToolJob): FinishedCall {
  const { v, session, turnId, callId, name, effect, attempt, queuedAtMs, deadlineMs, traceparent } =
    job;
  const ids = { v, session, turnId, callId, name, effect, attempt };
  const numbers = { argumentsLength: job.arguments.length, queuedAtMs, deadlineMs };
  return { ...ids, ...numbers, ...(traceparent !== undefined && { traceparent }) };
}

/** Names one attempt of a call, in the ledger and in control entries: the call's id, from the second on `<id>.<attempt>`. */
export function attemptIdOf({ callId, attempt }: { callId: string; attempt: number }): string {
  return attempt === 1 ? callId : `${callId}.${attempt}`;
}

/** Job id of an attempt: the same for every retry, so that at most one is queued. */
export function toolJobId(turnId: string, attemptId: string): string {
  return `t-${turnId}-${attemptId}`.replaceAll(":", "_");
}

/** Priority of calls of background jobs: after all others. BullMQ keeps such jobs in a sorted set. */
export const backgroundPriority = 10;

/** What a worker vouches for when it hands out a call. */
export const CallClaims = Type.Object({
  v: Type.Literal(1),
  runner: Type.String(),
  tool: Type.String(),
  session: SessionKey,
  turnId: Type.String(),
  callId: Type.String(),
  attempt: Type.Integer({ minimum: 1 }),
  /** The hash of the job's `arguments` text. */
  argumentsHash: Type.String(),
  /** `inputHashOf` the job's `input`; absent where it has none. */
  inputHash: Type.Optional(Type.String()),
  actor: Actor,
  authority: CallAuthority,
  /** Epoch ms. */
  expiresAtMs: Type.Integer(),
});

export type CallClaims = Static<typeof CallClaims>;

const parseClaims = jsonParserOf(CallClaims);

/** SHA-256 of a call's arguments as JSON text, in hex. */
export function argumentsHashOf(argumentsText: string): string {
  return hash("sha256", argumentsText, "hex");
}

export function inputHashOf(input: CallInput): string {
  return argumentsHashOf(JSON.stringify(input));
}

/**
 * The key of one runner, made from the deployment's: its holder can check and forge calls to
 * that runner alone. 64 hex digits.
 */
export function runnerKeyOf(signingKey: string, runner: string): string {
  return createHmac("sha256", signingKey).update(`runner:${runner}`).digest("hex");
}

/**
 * The key with which workers seal what they store of a session, made from the deployment's: only workers may have
 * it. 64 hex digits.
 */
export function stateKeyOf(signingKey: string): string {
  return createHmac("sha256", signingKey).update("larkline state").digest("hex");
}

function signatureOf(runnerKey: string, payload: string): Buffer {
  return createHmac("sha256", runnerKey).update(payload).digest();
}

/** `<claims>.<HMAC-SHA-256>`, both base64url. */
export function signCall(runnerKey: string, claims: CallClaims): string {
  const payload = Buffer.from(JSON.stringify(claims)).toString("base64url");
  return `${payload}.${signatureOf(runnerKey, payload).toString("base64url")}`;
}

/** The claims of a genuine envelope that has not expired; otherwise what is wrong with it. */
export function verifyCall(
  runnerKey: string,
  envelope: string,
  nowMs: number,
): ParseResult<CallClaims> {
  const [payload = "", signature = "", ...rest] = envelope.split(".");
  const expected = signatureOf(runnerKey, payload);
  const given = Buffer.from(signature, "base64url");
  const isGenuine =
    rest.length === 0 && given.length === expected.length && timingSafeEqual(given, expected);
  if (!isGenuine) return { ok: false, error: "the signature is wrong" };
  const parsed = parseClaims(Buffer.from(payload, "base64url").toString("utf8"));
  if (parsed.ok && parsed.value.expiresAtMs < nowMs) return { ok: false, error: "it has expired" };
  return parsed;
}

/** Which attempt of which call an entry is about; a worker compares all of it with the effect ledger. */
const about = {
  v: Type.Literal(1),
  runner: RunnerName,
  session: SessionKey,
  turnId: Type.String({ maxLength: 512 }),
  callId: Type.String({ minLength: 1, maxLength: 512 }),
  attempt: Type.Integer({ minimum: 1 }),
  tool: Type.String({ maxLength: 64 }),
  /** The hash of the job's `arguments` text. */
  argumentsHash: Type.String({ maxLength: 64 }),
};

/** Names one question of a runner whether a call may start; made up by the runner, new for each question. */
const AskId = Type.String({ pattern: "^[A-Za-z0-9-]{8,64}$" });

/**
 * What a runner hands in about a call. Runners write these entries into a stream of their own and workers
 * carry them over into the session: nothing that a runner writes is believed before a worker has checked it.
 */
export const HandoffEntry = Type.Union([
  /** The call starts (`idempotent`), or asks whether it may (with `ask`, which is answered: `once`, or `identity`). */
  Type.Object({
    ...about,
    kind: Type.Literal("begun"),
    effect: ToolEffect,
    ask: Type.Optional(AskId),
    /** Its tool acts as a person or the bot: the answer says as whom. With `ask` only. */
    identity: Type.Optional(Type.Boolean()),
    /** Of `once`: a call that began no longer ago may begin again, since its writes have a key. With `ask` only. */
    repeatMs: Type.Optional(Type.Integer({ minimum: 1, maximum: 3_600_000 })),
    /** Of `once`: its tool can see what a run before has made, so `look` may be the answer. With `ask` only. */
    looks: Type.Optional(Type.Boolean()),
  }),
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
    outcome: ReportedOutcome,
    timing: Type.Optional(CallTiming),
    /** The call was not run: one that was started before is not answered by this. */
    notRun: Type.Optional(Type.Boolean()),
    /** Blob that holds the text of `outcome.stored`. */
    blobId: Type.Optional(Type.String({ maxLength: 64 })),
    /** Beside a `grant` of kind `token`: `tokenDigestOf` the one that was refused. */
    refusedToken: Type.Optional(Type.String({ maxLength: 64 })),
  }),
]);

export type HandoffEntry = Static<typeof HandoffEntry>;

/** What an entry has to say about its call even where the rest of it cannot be read. */
const HandoffOutline = Type.Object({ ...about, kind: Type.String() });

type HandoffOutline = Static<typeof HandoffOutline>;

/** Says that a runner has handed something in: which stream to read, or the entry itself with its id in the stream. */
export const HandoffNotification = Type.Object({
  runner: RunnerName,
  cell: Type.Integer({ minimum: 0, maximum: 15 }),
  id: Type.Optional(Type.String({ pattern: "^\\d+-\\d+$" })),
  entry: Type.Optional(Type.String()),
  mac: Type.Optional(Type.String({ maxLength: 128 })),
});

export type HandoffNotification = Static<typeof HandoffNotification>;

/** What a worker says to the question whether a call may start. */
export const HandoffAnswer = Type.Object({
  ask: AskId,
  /** `look`, for a question with `looks` alone: the call began before; it may read and must change nothing. */
  answer: Type.Enum(["run", "look", "closed", "started_before"]),
  /** Beside `look`: when the call began. */
  beganAtMs: Type.Optional(Type.Integer({ minimum: 0 })),
  /** Beside `run` and `look`, for a question with `identity`: a `ToolIdentity`, sealed (`sealIdentity`). */
  identity: Type.Optional(Type.String({ pattern: "^[A-Za-z0-9_-]+$", maxLength: 16_384 })),
});

export type HandoffAnswer = Static<typeof HandoffAnswer>;

/** The longest entry that a worker reads, in bytes. */
export const maxHandoffBytes = 2_097_152;

const parseEntry = jsonParserOf(HandoffEntry);

const parseOutline = jsonParserOf(HandoffOutline);

export const parseHandoffAnswer = jsonParserOf(HandoffAnswer);

export const parseHandoffNotification = jsonParserOf(HandoffNotification);

/** HMAC-SHA-256 in hex. The prefix keeps it apart from the signature of calls, which has the same key. */
export function handoffMac(runnerKey: string, entry: string): string {
  return createHmac("sha256", runnerKey).update(`handoff:${entry}`).digest("hex");
}

/** What is wrong with an entry; `about` names the call when the entry is genuine and says at least that. */
interface BadHandoff {
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
  if (known.ok && known.value.runner !== runner) {
    return { ok: false, error: "it is in the name of another runner" };
  }
  if (parsed.ok) return parsed;
  return { ok: false, error: parsed.error, ...(known.ok ? { about: known.value } : {}) };
}

/** One process of a runner as it stores itself, under a key that only its runner may write. */
export const RunnerAnnouncement = Type.Object({
  /** Epoch ms of the store's clock, signed: when it counts as gone, and when it began to offer this generation. */
  expiresAtMs: Type.Integer(),
  beganAtMs: Type.Integer(),
  /** When it has withdrawn; not signed, because it makes nothing true but that it is gone. */
  goneAtMs: Type.Optional(Type.Integer()),
  /** Names the build; the one that began last gets the runner's calls. */
  generation: Type.String({ maxLength: 128 }),
  /** Per tool name a digest of what all instances of a generation must agree on. */
  digests: Type.Record(Type.String(), Type.String()),
  runner: RunnerName,
  instance: Type.String({ minLength: 1, maxLength: 128 }),
  /** JSON text of the list of {@link ToolAnnouncement}. */
  offer: Type.String(),
  /** HMAC-SHA-256 in hex, see {@link announcementMac}. */
  mac: Type.String({ maxLength: 128 }),
  /** Which clocks it finds to differ, in English, for people; not signed. */
  clock: Type.Optional(Type.String({ maxLength: 500 })),
  /**
   * Where programs of models run: the tier of the sandbox, and in a cluster the runtime class of the pod, `none` being
   * that of all pods. For operators; not signed.
   */
  sandbox: Type.Optional(
    Type.Object({
      tier: Type.String({ maxLength: 20 }),
      runtimeClass: Type.Optional(Type.String({ maxLength: 253 })),
    }),
  ),
});

export type RunnerAnnouncement = Static<typeof RunnerAnnouncement>;

/** How long the tools of a runner are offered after its last instance went, ms: longer than a deployment takes. */
export const awayMs = 600_000;

const parseAnnouncement = jsonParserOf(RunnerAnnouncement);

const parseOffer = jsonParserOf(Type.Array(ToolAnnouncement, { maxItems: 1_000 }));

type Signed = Pick<
  RunnerAnnouncement,
  "runner" | "instance" | "generation" | "beganAtMs" | "expiresAtMs" | "offer"
>;

/**
 * What a runner signs of its announcement, with its `RUNNER_KEY`: the seven lines `announcement`, runner, instance,
 * generation, beganAtMs, expiresAtMs, offer. With the times, an announcement cannot be used again later, nor made older.
 */
export function announcementMac(signed: Signed, runnerKey: string): string {
  const { runner, instance, generation, beganAtMs, expiresAtMs, offer } = signed;
  const lines = ["announcement", runner, instance, generation, beganAtMs, expiresAtMs, offer];
  return createHmac("sha256", runnerKey).update(lines.join("\n")).digest("hex");
}

/**
 * Reads what stands under the key of `runner`; with its key, refuses what it has not signed. Workers believe what a
 * tool is said to be, such as that it needs no approval.
 */
export function readAnnouncement(
  text: string,
  {
    runner,
    runnerKey,
    known,
  }: {
    runner: string;
    runnerKey: string | undefined;
    /** Tools of offers that were read before: an instance announces the same ones again and again. */
    known?: ReadonlyMap<string, ToolAnnouncement[]>;
  },
): ParseResult<RunnerAnnouncement & { tools: ToolAnnouncement[] }> {
  const parsed = parseAnnouncement(text);
  if (!parsed.ok) return parsed;
  const announcement = parsed.value;
  if (announcement.runner !== runner) return { ok: false, error: "it is of another runner" };
  if (runnerKey !== undefined) {
    const [given, expected] = [
      Buffer.from(announcement.mac),
      Buffer.from(announcementMac(announcement, runnerKey)),
    ];
    const isGenuine = given.length === expected.length && timingSafeEqual(given, expected);
    if (!isGenuine) return { ok: false, error: "the signature is wrong" };
  }
  const before = known?.get(announcement.offer);
  const tools: ParseResult<ToolAnnouncement[]> =
    before === undefined ? parseOffer(announcement.offer) : { ok: true, value: [...before] };
  if (!tools.ok) return tools;
  const { goneAtMs = announcement.expiresAtMs } = announcement;
  const expiresAtMs = Math.min(announcement.expiresAtMs, goneAtMs);
  return { ok: true, value: { ...announcement, expiresAtMs, tools: tools.value } };
}

// As whom a call acts goes to its runner with the permission to begin, sealed: what Redis keeps of the answer opens with
// the key of that runner alone, and as the answer to that question alone.

/** The question that an identity is the answer to. `callId`: of the attempt. */
interface IdentityPlace {
  session: SessionKey;
  callId: string;
  ask: string;
}

const cipher = "aes-256-gcm";
const [ivBytes, tagBytes] = [12, 16];

export function sealIdentity(
  runnerKey: string,
  place: IdentityPlace,
  identity: ToolIdentity,
  random: Random,
): string {
  const iv = Buffer.from(random.id(), "base64url").subarray(0, ivBytes);
  const sealing = createCipheriv(cipher, keyOf(runnerKey), iv, { authTagLength: tagBytes }).setAAD(
    dataOf(place),
  );
  const sealed = Buffer.concat([sealing.update(JSON.stringify(identity)), sealing.final()]);
  return Buffer.concat([iv, sealing.getAuthTag(), sealed]).toString("base64url");
}

/** Undefined where it was sealed for another runner, call or question, or was changed. */
export function openIdentity(
  runnerKey: string,
  place: IdentityPlace,
  sealed: string,
): ToolIdentity | undefined {
  const bytes = Buffer.from(sealed, "base64url");
  try {
    const iv = bytes.subarray(0, ivBytes);
    const opening = createDecipheriv(cipher, keyOf(runnerKey), iv, { authTagLength: tagBytes });
    opening.setAAD(dataOf(place)).setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes));
    const opened = Buffer.concat([
      opening.update(bytes.subarray(ivBytes + tagBytes)),
      opening.final(),
    ]);
    const parsed = parseIdentity(opened.toString("utf8"));
    return parsed.ok ? parsed.value : undefined;
  } catch {
    return undefined;
  }
}

const parseIdentity = jsonParserOf(ToolIdentity);

function keyOf(runnerKey: string): Buffer {
  return Buffer.from(hkdfSync("sha256", runnerKey, "", "larkline identity of a call", 32));
}

function dataOf({ session, callId, ask }: IdentityPlace): Buffer {
  return Buffer.from(JSON.stringify([session, callId, ask]));
}
