import { createHmac, hash, timingSafeEqual } from "node:crypto";
import { Type, type Static } from "./type.ts";
import { jsonParserOf, type ParseResult } from "./schema.ts";
import { LocalText } from "./reply-view.ts";
import { SessionKey, Traceparent } from "./session.ts";

// A tool, and a call of it on its way: what a model reads, the job that a runner gets, what the worker vouches for, and
// what the runner hands in about it.

/**
 * What running a call twice would do. `pure`: nothing; `idempotent`: the same as once;
 * `once`: harm, so a call that was started and not finished is never started again.
 */
export const toolEffects = ["pure", "idempotent", "once"] as const;
export const ToolEffect = Type.Enum([...toolEffects]);
export type ToolEffect = (typeof toolEffects)[number];

/** What a model reads about a tool. Vendors accept letters, digits, `_` and `-` in names. */
export const ToolSpec = Type.Object({
  name: Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" }),
  description: Type.String({ maxLength: 8_192 }),
  inputSchema: Type.Record(Type.String(), Type.Unknown()),
});
export type ToolSpec = Static<typeof ToolSpec>;

/** How much harm a call can do; decides how loudly a person is asked. */
export const riskLevels = ["low", "medium", "high"] as const;
export const RiskLevel = Type.Enum([...riskLevels]);
export type RiskLevel = (typeof riskLevels)[number];

/**
 * Bounds of one tool, held by a queue of its own: see `toolsQueue`. `concurrency` and `rate` count
 * over all instances of the runner.
 */
export const ToolLimits = Type.Object({
  concurrency: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000 })),
  rate: Type.Optional(
    Type.Object({
      calls: Type.Integer({ minimum: 1, maximum: 1_000_000 }),
      perMs: Type.Integer({ minimum: 1, maximum: 86_400_000 }),
    }),
  ),
});
export type ToolLimits = Static<typeof ToolLimits>;

/** A permission of the platform, such as `calendar:calendar.event:create`. */
export const ScopeName = Type.String({ pattern: "^[A-Za-z0-9_.:-]{1,100}$" });

const GrantScopes = Type.Array(ScopeName, { maxItems: 20 });

/**
 * Whose token the calls of a tool get. `either`: the person's where there is a grant with the scopes, otherwise the
 * bot's. `scopes`: what the person must have granted.
 */
export const ToolIdentityNeed = Type.Object({
  as: Type.Enum(["person", "bot", "either"]),
  scopes: GrantScopes,
});
export type ToolIdentityNeed = Static<typeof ToolIdentityNeed>;

/** As whom one call acts. `token` is a secret: it lives in the process that runs the call, while the call runs. */
export const ToolIdentity = Type.Object({
  as: Type.Enum(["person", "bot"]),
  token: Type.String({ minLength: 1, maxLength: 8_192 }),
  /** Of the person. */
  openId: Type.Optional(Type.String({ maxLength: 200 })),
  /** Origin of the platform's Open API, such as `https://open.feishu.cn`. */
  apiOrigin: Type.String({ maxLength: 300 }),
});
export type ToolIdentity = Static<typeof ToolIdentity>;

/**
 * Why the platform refused a call before it took any effect. `scopes`: the person has not granted them; `token`: the
 * token is not good any more; `app-scopes`: the app lacks them, and `link` is where its administrator adds them.
 */
export const GrantRefusal = Type.Union([
  Type.Object({ kind: Type.Literal("scopes"), scopes: GrantScopes }),
  Type.Object({ kind: Type.Literal("token") }),
  Type.Object({
    kind: Type.Literal("app-scopes"),
    scopes: GrantScopes,
    link: Type.Optional(Type.String({ maxLength: 2_000 })),
  }),
]);
export type GrantRefusal = Static<typeof GrantRefusal>;

/** Names a token without telling it: tokens are long and random. */
export function tokenDigestOf(token: string): string {
  return hash("sha256", token, "base64url");
}

/** Text of a runner's choice; see {@link toolDigestOf}. */
export const ToolDigest = Type.String({ minLength: 1, maxLength: 64 });

/** A tool as a runner announces it. `timeoutMs` is the deadline of one run, counted from its start. */
export const ToolAnnouncement = Type.Object({
  spec: ToolSpec,
  effect: ToolEffect,
  requiresApproval: Type.Boolean(),
  timeoutMs: Type.Integer({ minimum: 1 }),
  /** Default `medium`. */
  risk: Type.Optional(RiskLevel),
  /** What people read in place of the name. */
  title: Type.Optional(LocalText),
  /** What a call does, in a sentence: `{argument}` stands for the value of that argument. */
  summary: Type.Optional(LocalText),
  /** Names of arguments, at any depth, whose values no card, log or event outside the session shows. */
  secrets: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 100 }), { maxItems: 50 }),
  ),
  /** The argument that says what is done, such as `command`: what patterns of permission rules match. */
  subject: Type.Optional(Type.String({ minLength: 1, maxLength: 100 })),
  /**
   * Names of arguments, at any depth, that hold addresses which the tool reaches; empty when it reaches none that it is
   * given. Absent: whatever looks like an address is taken for one.
   */
  addresses: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 100 }), { maxItems: 50 }),
  ),
  /** It is called again and again with the same arguments until something has happened. Default false. */
  poll: Type.Optional(Type.Boolean()),
  limits: Type.Optional(ToolLimits),
  /** As whom it acts; absent: its calls get no token. */
  identity: Type.Optional(ToolIdentityNeed),
  /** Name of the MCP server that gives it. */
  mcp: Type.Optional(Type.String({ minLength: 1, maxLength: 200 })),
  /** Stands for schema and effect: calls carry it back, so that a runner knows those that were made for another tool. */
  digest: Type.Optional(ToolDigest),
});
export type ToolAnnouncement = Static<typeof ToolAnnouncement>;

/** What a call relies on: with another schema or effect it is a call of another tool. */
export function toolDigestOf({
  inputSchema,
  effect,
}: {
  inputSchema: unknown;
  effect: ToolEffect;
}): string {
  return hash("sha256", JSON.stringify([inputSchema, effect]), "base64url").slice(0, 22);
}

/** A call as assembled from a stream: `arguments` is the complete JSON text the model wrote. */
export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
  providerMetadata?: Record<string, string>;
}

/** A result too large for a conversation. `handle` is opaque, and good for the session that made it only. */
export const StoredResult = Type.Object({
  handle: Type.String({ pattern: "^res_[A-Za-z0-9_-]{16,64}$" }),
  characters: Type.Integer({ minimum: 0 }),
});
export type StoredResult = Static<typeof StoredResult>;

/** Stands for the workers where a call names its runner; no runner can be called so. */
export const builtInRunner = "(worker)";

/** Name of the built-in tool that reads stored results. */
export const readResultName = "read_result";

/** Names of the built-in tools for memories. */
export const [rememberName, recallName, forgetName] = ["remember", "recall", "forget"] as const;
export const memoryToolNames: readonly string[] = [rememberName, recallName, forgetName];

/** The built-in tool that asks a person. */
export const askPersonName = "ask_person";

/**
 * What a model gets in place of a stored text, or of what an earlier cut has left of it: three
 * quarters head, one quarter tail, and how to read the rest.
 */
export function shortenedResult(
  text: string,
  { handle, characters }: StoredResult,
  maxCharacters: number,
): string {
  const head = wholeCharacter(text, Math.floor((maxCharacters * 3) / 4));
  const tail = wholeCharacter(text, text.length - Math.floor(maxCharacters / 4));
  if (tail <= head) return text;
  // Of the whole: the text itself may be what an earlier cut has left.
  const left = characters - head - (text.length - tail);
  const hint = `[${left} of ${characters} characters are left out here, from ${head} on. Read them with ${readResultName}, handle "${handle}".]`;
  return `${text.slice(0, head)}\n${hint}\n${text.slice(tail)}`;
}

/** The next position that does not split a surrogate pair. */
export function wholeCharacter(text: string, position: number): number {
  const code = text.charCodeAt(position);
  return code >= 0xdc00 && code <= 0xdfff ? position + 1 : position;
}

/** Longest state that a server may give along with what it asks, in characters. */
export const maxInputStateLength = 16_384;

/** What an MCP server asks people before it does its work. Nothing of it is checked: a stranger wrote it. */
export const InputRequired = Type.Object({
  server: Type.String({ minLength: 1, maxLength: 200 }),
  requests: Type.Array(
    Type.Object({
      key: Type.String({ maxLength: 200 }),
      message: Type.String({ maxLength: 4_000 }),
      schema: Type.Record(Type.String(), Type.Unknown()),
    }),
    { minItems: 1, maxItems: 5 },
  ),
  /** Opaque; goes back with the answers, unchanged. */
  state: Type.Optional(Type.String({ maxLength: maxInputStateLength })),
});
export type InputRequired = Static<typeof InputRequired>;

/** What a person said to one request of a server, as the server gets it. */
export const InputResponse = Type.Object({
  action: Type.Enum(["accept", "decline"]),
  content: Type.Optional(
    Type.Record(
      Type.String({ maxLength: 200 }),
      Type.Union([Type.String(), Type.Number(), Type.Boolean()]),
    ),
  ),
});
export type InputResponse = Static<typeof InputResponse>;

/** The answers that a call brings to its server, by the keys of the requests. */
export const CallInput = Type.Object({
  responses: Type.Record(Type.String({ maxLength: 200 }), InputResponse),
  state: Type.Optional(Type.String({ maxLength: maxInputStateLength })),
});
export type CallInput = Static<typeof CallInput>;

const Success = Type.Object({
  ok: Type.Literal(true),
  result: Type.Unknown(),
  /** The whole text is kept elsewhere; `result` is its head and tail and names the handle. */
  stored: Type.Optional(StoredResult),
});

const Failure = Type.Object({
  ok: Type.Literal(false),
  error: Type.String(),
  /** The call was started, and it is not known whether it took effect. */
  unknown: Type.Optional(Type.Boolean()),
  /** The call took no effect: its server asks this first. */
  input: Type.Optional(InputRequired),
  /** The call took no effect: the platform refused it for want of a grant. */
  grant: Type.Optional(GrantRefusal),
});

/** How a call ended, as tools and runners report it. */
export const ReportedOutcome = Type.Union([Success, Failure]);
export type ReportedOutcome = Static<typeof ReportedOutcome>;

/** How a call ended, as stored. `denied`: people or a policy refused it. */
export const ToolOutcome = Type.Union([
  Success,
  Type.Object({ ...Failure.properties, denied: Type.Optional(Type.Literal(true)) }),
]);
export type ToolOutcome = Static<typeof ToolOutcome>;

/** The outcome of a call that people or a policy refused; the model reads the reason behind the code. */
export function denial(reason: string): ToolOutcome {
  return { ok: false, denied: true, error: `permission_denied: ${reason}` };
}

/** What a tool or a runner has reported, without a `denied` that it may have added: only those say it who decide about calls. */
export function reportedOutcome(outcome: ToolOutcome): ReportedOutcome {
  if (outcome.ok || outcome.denied === undefined) return outcome;
  const { denied: _denied, ...reported } = outcome;
  return reported;
}

/**
 * The text a model gets for an outcome: strings unchanged, everything else as JSON with readable
 * non-ASCII, no value as `null`.
 */
export function outcomeText(outcome: ToolOutcome): string {
  if (!outcome.ok) return outcome.error;
  if (typeof outcome.result === "string") return outcome.result;
  return JSON.stringify(outcome.result ?? null);
}

/** Person and place a call acts for. */
export const Actor = Type.Object({
  app: Type.String(),
  /** The platform's tenant key, where it is known. */
  tenant: Type.Optional(Type.String()),
  userId: Type.String(),
  userName: Type.Optional(Type.String()),
  chatId: Type.String(),
});
export type Actor = Static<typeof Actor>;

/** Name of the queue of one runner, or of one of its tools that has limits of its own. */
export function toolsQueue(runner: string, limitedTool?: string): string {
  return limitedTool === undefined ? `tools-${runner}` : `tools-${runner}.${limitedTool}`;
}

/** Names of runners: part of queue names and Redis keys. */
export const RunnerName = Type.String({ pattern: "^[A-Za-z0-9_-]{1,64}$" });

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
  /** Of the tool that the call was made for, as its runner announced it; absent: not known. */
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
  /** Of the message that the call is made for. */
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

/** What allows a call: the policy of the deployment, a decision of people, or a rule that one of them left. */
export const CallAuthority = Type.Union([
  Type.Object({ by: Type.Literal("policy") }),
  Type.Object({
    by: Type.Literal("approval"),
    id: Type.String(),
    people: Type.Array(Type.String()),
  }),
  Type.Object({ by: Type.Literal("rule"), id: Type.String() }),
]);
export type CallAuthority = Static<typeof CallAuthority>;

/** What a worker vouches for when it hands out a call. */
export const CallClaims = Type.Object({
  v: Type.Literal(1),
  runner: Type.String(),
  tool: Type.String(),
  session: SessionKey,
  turnId: Type.String(),
  callId: Type.String(),
  attempt: Type.Integer({ minimum: 1 }),
  /** Of the job's `arguments` text. */
  argumentsHash: Type.String(),
  /** Of the job's `input`: see `inputHashOf`; absent where it has none. */
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

/** How long a call waited for its runner and how long it ran there, ms. */
export const CallTiming = Type.Object({
  queuedMs: Type.Integer({ minimum: 0 }),
  ranMs: Type.Integer({ minimum: 0 }),
});
export type CallTiming = Static<typeof CallTiming>;

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
  answer: Type.Enum(["run", "closed", "started_before"]),
  /** Beside `run`, for a question with `identity`: a `ToolIdentity`, sealed (`sealIdentity`). */
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
  if (known.ok && known.value.runner !== runner) {
    return { ok: false, error: "it is in the name of another runner" };
  }
  if (parsed.ok) return parsed;
  return { ok: false, error: parsed.error, ...(known.ok ? { about: known.value } : {}) };
}

export const transferPrefix = "transfer_to_";

/** The name of the call that hands over to an agent. */
export function transferName(agent: string): string {
  return `${transferPrefix}${agent.replaceAll("-", "_")}`;
}
