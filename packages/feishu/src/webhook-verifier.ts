import { parseEnvelope, type Envelope } from "./envelope.ts";
import { objectOf, parsedObject, textField, type JsonObject } from "./json-object.ts";
import { cipherKeyOf, decryptEvent, sameSecret, signatureOf } from "./webhook-cipher.ts";

/** What a webhook request is. `reason` is for the log: it holds nothing of the request. */
export type WebhookVerdict =
  | { kind: "challenge"; challenge: string }
  | { kind: "event"; envelope: Envelope }
  | { kind: "refused"; status: 400 | 401 | 403; reason: string };

export interface WebhookVerifierOptions {
  /** Encrypt Key of the app: requests must be encrypted and signed. */
  encryptKey?: string | undefined;
  /** Verification Token of the app. */
  verificationToken?: string | undefined;
  /** Events of other apps are refused. */
  appId?: string | undefined;
  /** Epoch ms. */
  now?: () => number;
}

export interface WebhookVerifier {
  /** Decides on the bytes as they arrived; parsing and re-serialising them first would break the signature. */
  verify(rawBody: Buffer, headers: Record<string, string | string[] | undefined>): WebhookVerdict;
}

/** The platform documents no window; five minutes is what its community uses. */
const freshnessMs = 300_000;
const maxBodyBytes = 1024 * 1024;

type Refusal = Extract<WebhookVerdict, { kind: "refused" }>;

function refused(status: 400 | 401 | 403, reason: string): Refusal {
  return { kind: "refused", status, reason };
}

const notConfigured =
  "webhook not configured: set FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN or both, as shown in the developer console";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Empty for bytes that are no text: replaced characters would make other content of it. */
function textIn(bytes: Buffer): string {
  try {
    return utf8.decode(bytes);
  } catch {
    return "";
  }
}

/** The token of either envelope or of a url_verification. */
function tokenOf(data: JsonObject): string {
  return textField(objectOf(data["header"]) ?? data, "token");
}

/** Whether a numeric timestamp is recent. Card callbacks were seen with a text in its place: those pass. */
function isFresh(timestamp: string, nowMs: number): boolean {
  if (!/^\d{9,16}$/.test(timestamp)) return true;
  const sentAtMs = timestamp.length >= 12 ? Number(timestamp) : Number(timestamp) * 1000;
  return Math.abs(nowMs - sentAtMs) <= freshnessMs;
}

type HeaderReader = (name: string) => string;

function headerReader(headers: Record<string, string | string[] | undefined>): HeaderReader {
  return (name) => {
    const value = headers[name];
    return (Array.isArray(value) ? value[0] : value) ?? "";
  };
}

interface Checks {
  encryptKey: string | undefined;
  cipherKey: Buffer | undefined;
  token: string | undefined;
  appId: string | undefined;
  now: () => number;
}

/** Computed for every request, whatever else is wrong with it. */
function hasSignature(checks: Checks, rawBody: Buffer, header: HeaderReader): boolean {
  const timestamp = header("x-lark-request-timestamp");
  const expected = signatureOf([timestamp, header("x-lark-request-nonce"), checks.encryptKey ?? ""], rawBody);
  const matches = sameSecret(expected, header("x-lark-signature"));
  return matches && isFresh(timestamp, checks.now());
}

function challengeOf(data: JsonObject, tokenMatches: boolean): WebhookVerdict {
  if (!tokenMatches) return refused(403, "url_verification with a wrong token");
  const challenge = textField(data, "challenge");
  return challenge === "" ? refused(400, "url_verification without challenge") : { kind: "challenge", challenge };
}

function eventOf(checks: Checks, data: JsonObject): WebhookVerdict {
  const parsed = parseEnvelope(data);
  if (!parsed.ok) return refused(400, `not an event: ${parsed.error}`);
  const { appId } = parsed.value;
  if (checks.appId !== undefined && appId !== "" && appId !== checks.appId) return refused(403, "event of another app");
  return { kind: "event", envelope: parsed.value };
}

/**
 * Unsigned requests all get the same answer, whether or not their content could be decrypted, so
 * that nobody can use it to guess at the cipher. Only url_verification is never signed.
 */
function verifyEncrypted(
  checks: Checks,
  cipherKey: Buffer,
  request: { rawBody: Buffer; header: HeaderReader },
): WebhookVerdict {
  const signed = hasSignature(checks, request.rawBody, request.header);
  const wire = textField(parsedObject(textIn(request.rawBody)), "encrypt");
  const data = parsedObject(decryptEvent(cipherKey, wire) ?? "");
  const tokenMatches = checks.token === undefined || sameSecret(checks.token, data === undefined ? "" : tokenOf(data));
  if (data?.["type"] === "url_verification" && tokenMatches) return challengeOf(data, true);
  if (!signed) return refused(401, wire === "" ? "not encrypted" : "signature missing, wrong or too old");
  if (data === undefined) return refused(400, "cannot be decrypted with the configured encrypt key");
  return tokenMatches ? eventOf(checks, data) : refused(403, "wrong verification token");
}

function verifyPlain(checks: Checks, rawBody: Buffer): WebhookVerdict {
  const data = parsedObject(textIn(rawBody));
  const tokenMatches = sameSecret(checks.token ?? "", data === undefined ? "" : tokenOf(data));
  if (data === undefined) return refused(400, "not a JSON object");
  if (data["encrypt"] !== undefined) return refused(401, "encrypted, but FEISHU_ENCRYPT_KEY is not set");
  if (data["type"] === "url_verification") return challengeOf(data, tokenMatches);
  return tokenMatches ? eventOf(checks, data) : refused(403, "wrong verification token");
}

function present(secret: string | undefined): string | undefined {
  return secret === "" ? undefined : secret;
}

/**
 * Checks webhook requests ("Receive events", "Receive and handle callbacks"): with an encrypt key
 * the signature over the raw bytes, its age and the token if one is set; without it the token alone.
 * Without either everything is refused.
 */
export function createWebhookVerifier(options: WebhookVerifierOptions): WebhookVerifier {
  const encryptKey = present(options.encryptKey);
  const cipherKey = encryptKey === undefined ? undefined : cipherKeyOf(encryptKey);
  const token = present(options.verificationToken);
  const checks: Checks = { encryptKey, cipherKey, token, appId: present(options.appId), now: options.now ?? Date.now };
  return {
    verify: (rawBody, headers) => {
      if (rawBody.length > maxBodyBytes) return refused(400, "body larger than 1 MiB");
      if (cipherKey !== undefined)
        return verifyEncrypted(checks, cipherKey, { rawBody, header: headerReader(headers) });
      return token === undefined ? refused(403, notConfigured) : verifyPlain(checks, rawBody);
    },
  };
}
