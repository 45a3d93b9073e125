import { createHmac, hash, timingSafeEqual } from "node:crypto";
import { Type, type Static } from "typebox";
import { jsonParserOf, type ParseResult } from "./schema.ts";
import { SessionKey } from "./session.ts";
import { Actor } from "./tool.ts";

/** What allows a call: the policy of the deployment, a decision of people, or a rule that one of them left. */
export const CallAuthority = Type.Union([
  Type.Object({ by: Type.Literal("policy") }),
  Type.Object({ by: Type.Literal("approval"), id: Type.String(), people: Type.Array(Type.String()) }),
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
  actor: Actor,
  authority: CallAuthority,
  /** Epoch ms. */
  expiresAtMs: Type.Integer(),
});
export type CallClaims = Static<typeof CallClaims>;

const parseClaims = jsonParserOf(CallClaims);

/** SHA-256 of a call's arguments as JSON text, in hex. */
export function argumentsHashOf(argumentsText: string): string {
  return hash("sha256", argumentsText);
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
export function verifyCall(runnerKey: string, envelope: string, nowMs: number): ParseResult<CallClaims> {
  const [payload = "", signature = "", ...rest] = envelope.split(".");
  const expected = signatureOf(runnerKey, payload);
  const given = Buffer.from(signature, "base64url");
  const isGenuine = rest.length === 0 && given.length === expected.length && timingSafeEqual(given, expected);
  if (!isGenuine) return { ok: false, error: "the signature is wrong" };
  const parsed = parseClaims(Buffer.from(payload, "base64url").toString("utf8"));
  if (parsed.ok && parsed.value.expiresAtMs < nowMs) return { ok: false, error: "it has expired" };
  return parsed;
}
