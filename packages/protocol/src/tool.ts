import { hash } from "node:crypto";
import { Type, type Static } from "./type.ts";
import { LocalText } from "./local-text.ts";

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
const riskLevels = ["low", "medium", "high"] as const;
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
const ScopeName = Type.String({ pattern: "^[A-Za-z0-9_.:-]{1,100}$" });

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
  /** The open id of the person. */
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
  // Counted in the whole result: `text` may be what an earlier cut has left.
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

/** How long a call waited for its runner and how long it ran there, ms. */
export const CallTiming = Type.Object({
  queuedMs: Type.Integer({ minimum: 0 }),
  ranMs: Type.Integer({ minimum: 0 }),
});
export type CallTiming = Static<typeof CallTiming>;

export const transferPrefix = "transfer_to_";

/** The name of the call that hands over to an agent. */
export function transferName(agent: string): string {
  return `${transferPrefix}${agent.replaceAll("-", "_")}`;
}
