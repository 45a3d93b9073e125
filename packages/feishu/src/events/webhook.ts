import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createSecretKey,
  hash,
  timingSafeEqual,
  type KeyObject,
} from "node:crypto";
import { systemClock, systemRandom, type Clock, type Random } from "@larkline/protocol/clock";
import { objectOf, parsedObject, textField, type JsonObject } from "../transport/api-call.ts";
import { parseEnvelope, type Envelope } from "./inbound-message.ts";

/** What a webhook request is. `reason` is for the log: it holds no content of the request. */
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
  /**
   * Further forms of the timestamp header, with named groups that give its instant: `seconds`, `millis`, `micros`, or
   * `year` to `second` with `zone` (`webhook.timestampForms` of the configuration).
   */
  timestampForms?: readonly RegExp[] | undefined;
  clock?: Pick<Clock, "now">;
}

/**
 * Checks webhook requests ("Receive events", "Receive and handle callbacks"): with an encrypt key
 * the signature over the raw bytes, its age, and the token if one is set; without it the token and the event's own
 * time. Without either every request is refused.
 */
export class WebhookVerifier {
  readonly #checks: Checks;

  constructor(options: WebhookVerifierOptions) {
    const encryptKey = present(options.encryptKey);
    this.#checks = {
      encryptKey,
      cipherKey: encryptKey === undefined ? undefined : cipherKeyOf(encryptKey),
      token: present(options.verificationToken),
      appId: present(options.appId),
      forms: [...builtInForms, ...(options.timestampForms ?? [])],
      clock: options.clock ?? systemClock,
    };
  }

  /** Decides on the bytes as they arrived; parsing and re-serialising them first would break the signature. */
  verify(rawBody: Buffer, headers: Headers): WebhookVerdict {
    const { cipherKey, token } = this.#checks;
    if (rawBody.length > maxBodyBytes) return refused(400, "body larger than 1 MiB");
    if (cipherKey !== undefined) {
      return verifyEncrypted(this.#checks, cipherKey, { rawBody, headers });
    }
    return token === undefined ? refused(403, notConfigured) : verifyPlain(this.#checks, rawBody);
  }
}

function present(secret: string | undefined): string | undefined {
  return secret === "" ? undefined : secret;
}

/** The platform documents no window; five minutes is what its community uses. */
const freshnessMs = 300_000;
/** The platform repeats an event for 6 h 5 min 15 s ("Event subscription overview"). */
const retriesMs = 7.5 * 3_600_000;
const maxBodyBytes = 1024 * 1024;
const maxTimestampChars = 128;

type Refusal = Extract<WebhookVerdict, { kind: "refused" }>;

function refused(status: 400 | 401 | 403, reason: string): Refusal {
  return { kind: "refused", status, reason };
}

const notConfigured =
  "webhook not configured: set FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN or both, as shown in the developer console";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Empty for bytes that are no text: replacement characters would change the content. */
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

/** `2026-10-04 18:23:46.052290112 +0800 CST m=+3612.1`: Go prints times so; seen on card callbacks. */
const goTime =
  /^(?<year>\d{4})-(?<month>\d\d)-(?<day>\d\d) (?<hour>\d\d):(?<minute>\d\d):(?<second>\d\d)(?:\.\d{1,9})? (?<zone>[+-]\d{4}) (?:[A-Z]{1,5}|[+-]\d{2,4})(?: m=[+-]\d{1,15}(?:\.\d{1,9})?)?$/;
const builtInForms: readonly RegExp[] = [/^(?<seconds>\d{10})$/, /^(?<millis>\d{13})$/, goTime];

function instantOf(groups: Readonly<Record<string, string | undefined>>): number {
  const { seconds = "", millis = "", micros = "", year, month, day, hour, minute, second } = groups;
  if (/^\d{10}$/.test(seconds)) return Number(seconds) * 1_000;
  if (/^\d{13}$/.test(millis)) return Number(millis);
  if (/^\d{16}$/.test(micros)) return Number(micros) / 1_000;
  const zone = (groups["zone"] ?? "").replace(/^([+-]\d\d):?(\d\d)$/, "$1:$2");
  return Date.parse(
    `${year}-${month}-${day}T${hour}:${minute}:${second}${zone === "UTC" ? "Z" : zone}`,
  );
}

/** Epoch ms of a timestamp header; `undefined` for unknown forms. */
function sentAtOf(timestamp: string, forms: readonly RegExp[]): number | undefined {
  if (timestamp.length > maxTimestampChars) return undefined;
  for (const form of forms) {
    const groups = form.exec(timestamp)?.groups;
    const instant = groups === undefined ? Number.NaN : instantOf(groups);
    if (!Number.isNaN(instant)) return instant;
  }
  return undefined;
}

/** A text without its content, for the log: digits as 9, letters as a, everything unprintable as a question mark. */
function shapeOf(text: string): string {
  const shape = text
    .slice(0, maxTimestampChars)
    .replace(/\d/g, "9")
    .replace(/[A-Za-z]/g, "a")
    .replace(/[^ -~]/g, "?");
  return shape === "" ? "empty" : `'${shape}'`;
}

type Headers = Record<string, string | string[] | undefined>;

function headerOf(headers: Headers, name: string): string {
  const value = headers[name];
  return (Array.isArray(value) ? value[0] : value) ?? "";
}

interface Checks {
  encryptKey: string | undefined;
  cipherKey: KeyObject | undefined;
  token: string | undefined;
  appId: string | undefined;
  forms: readonly RegExp[];
  clock: Pick<Clock, "now">;
}

const unsigned = "signature missing, wrong or too old";

/**
 * Why a request does not count as signed now; undefined when it does. Computed for every request, whatever else is
 * wrong with it. The signature covers timestamp and nonce without a separator, so characters can be moved from one to the
 * other: only whole forms that carry their own instant are taken.
 */
function signatureProblem(checks: Checks, rawBody: Buffer, headers: Headers): string | undefined {
  const timestamp = headerOf(headers, "x-lark-request-timestamp");
  const expected = signatureOf(
    [timestamp, headerOf(headers, "x-lark-request-nonce"), checks.encryptKey ?? ""],
    rawBody,
  );
  const matches = sameDigest(expected, headerOf(headers, "x-lark-signature"));
  // Forms that the deployer has added read only what the platform has signed.
  if (!matches) return unsigned;
  const sentAtMs = sentAtOf(timestamp, checks.forms);
  if (sentAtMs === undefined) {
    return `timestamp of an unknown form: ${shapeOf(timestamp)}; webhook.timestampForms can add it`;
  }
  return Math.abs(checks.clock.now() - sentAtMs) <= freshnessMs ? undefined : unsigned;
}

function challengeOf(data: JsonObject, tokenMatches: boolean): WebhookVerdict {
  if (!tokenMatches) return refused(403, "url_verification with a wrong token");
  const challenge = textField(data, "challenge");
  return challenge === ""
    ? refused(400, "url_verification without challenge")
    : { kind: "challenge", challenge };
}

function eventOf(checks: Checks, data: JsonObject): WebhookVerdict {
  const parsed = parseEnvelope(data);
  if (!parsed.ok) return refused(400, `not an event: ${parsed.error}`);
  const { appId } = parsed.value;
  if (checks.appId !== undefined && appId !== "" && appId !== checks.appId) {
    return refused(403, "event of another app");
  }
  return { kind: "event", envelope: parsed.value };
}

/**
 * All unsigned requests get the same answer, whether or not their content could be decrypted, so
 * that an attacker learns nothing about the cipher. Only url_verification is never signed.
 */
function verifyEncrypted(
  checks: Checks,
  cipherKey: KeyObject,
  request: { rawBody: Buffer; headers: Headers },
): WebhookVerdict {
  const problem = signatureProblem(checks, request.rawBody, request.headers);
  const wire = textField(parsedObject(textIn(request.rawBody)), "encrypt");
  const data = parsedObject(decryptEvent(cipherKey, wire) ?? "");
  const tokenMatches =
    checks.token === undefined || sameSecret(checks.token, data === undefined ? "" : tokenOf(data));
  if (data?.["type"] === "url_verification" && tokenMatches) return challengeOf(data, true);
  if (problem !== undefined) return refused(401, wire === "" ? "not encrypted" : problem);
  if (data === undefined) {
    return refused(400, "cannot be decrypted with the configured encrypt key");
  }
  return tokenMatches ? eventOf(checks, data) : refused(403, "wrong verification token");
}

/** Without a signature, the time inside the event is the only bound on how long a copy of it can be sent again. */
function recentEventOf(checks: Checks, data: JsonObject): WebhookVerdict {
  const verdict = eventOf(checks, data);
  if (verdict.kind !== "event") return verdict;
  const { createdAtMs } = verdict.envelope;
  const ageMs = checks.clock.now() - createdAtMs;
  if (createdAtMs === 0) return refused(401, "event without create_time");
  if (ageMs < -freshnessMs) return refused(401, "create_time is in the future");
  return ageMs <= retriesMs
    ? verdict
    : refused(401, "create_time is older than the platform's retries");
}

function verifyPlain(checks: Checks, rawBody: Buffer): WebhookVerdict {
  const data = parsedObject(textIn(rawBody));
  const tokenMatches = sameSecret(checks.token ?? "", data === undefined ? "" : tokenOf(data));
  if (data === undefined) return refused(400, "not a JSON object");
  if (data["encrypt"] !== undefined) {
    return refused(401, "encrypted, but FEISHU_ENCRYPT_KEY is not set");
  }
  if (data["type"] === "url_verification") return challengeOf(data, tokenMatches);
  return tokenMatches ? recentEventOf(checks, data) : refused(403, "wrong verification token");
}

/**
 * Key of the platform's event encryption: SHA-256 of the Encrypt Key ("Event encryption"). A `KeyObject`, because Node
 * needs four times as long to make a cipher of the bytes of a key.
 */
export function cipherKeyOf(encryptKey: string): KeyObject {
  return createSecretKey(digestOf(encryptKey));
}

/** Decrypts `base64(IV ‖ AES-256-CBC)`. Undefined when the text was not encrypted with this key, or at all. */
export function decryptEvent(key: KeyObject, wire: string): string | undefined {
  const bytes = Buffer.from(wire, "base64");
  if (bytes.length < 32 || bytes.length % 16 !== 0) return undefined;
  try {
    const decipher = createDecipheriv("aes-256-cbc", key, bytes.subarray(0, 16));
    return utf8.decode(Buffer.concat([decipher.update(bytes.subarray(16)), decipher.final()]));
  } catch {
    return undefined;
  }
}

/** The value of the header `X-Lark-Signature`; `parts` are timestamp, nonce and Encrypt Key. */
export function signatureOf(
  parts: readonly [timestamp: string, nonce: string, encryptKey: string],
  rawBody: Buffer,
): string {
  return createHash("sha256").update(parts.join(""), "utf8").update(rawBody).digest("hex");
}

function digestOf(text: string): Buffer {
  return hash("sha256", text, "buffer");
}

/** Compares two digests in hex in constant time. */
function sameDigest(expected: string, given: string): boolean {
  const [own, other] = [Buffer.from(expected), Buffer.from(given)];
  return own.length === other.length && timingSafeEqual(own, other);
}

/** Compares secrets in constant time. */
export function sameSecret(left: string, right: string): boolean {
  return timingSafeEqual(digestOf(left), digestOf(right));
}

/** The request by which the developer console checks an address, and the challenge that must come back. */
export interface WebhookChallenge {
  body: string;
  challenge: string;
}

/** A `url_verification` ("Send notifications to developer's server"): encrypted when there is a key, never signed. */
export function createWebhookChallenge(
  secrets: { encryptKey?: string; verificationToken?: string },
  random = systemRandom,
): WebhookChallenge {
  const challenge = random.id();
  const plain = JSON.stringify({
    challenge,
    token: secrets.verificationToken ?? "",
    type: "url_verification",
  });
  const { encryptKey } = secrets;
  return {
    challenge,
    body: encryptKey === undefined ? plain : encrypted(encryptKey, plain, random),
  };
}

function encrypted(encryptKey: string, plain: string, random: Random): string {
  const iv = Buffer.from(random.id(), "base64url");
  const cipher = createCipheriv("aes-256-cbc", cipherKeyOf(encryptKey), iv);
  const bytes = Buffer.concat([iv, cipher.update(plain, "utf8"), cipher.final()]);
  return JSON.stringify({ encrypt: bytes.toString("base64") });
}

/** A request as the platform sends it for an event: encrypted and signed at `sentAtMs`. */
export function createWebhookEvent(
  encryptKey: string,
  event: object,
  sentAtMs: number,
  random = systemRandom,
): { body: string; headers: Record<string, string> } {
  const body = encrypted(encryptKey, JSON.stringify(event), random);
  const [timestamp, nonce] = [String(Math.floor(sentAtMs / 1_000)), random.id()];
  const signature = signatureOf([timestamp, nonce, encryptKey], Buffer.from(body));
  return {
    body,
    headers: {
      "content-type": "application/json",
      "x-lark-request-timestamp": timestamp,
      "x-lark-request-nonce": nonce,
      "x-lark-signature": signature,
    },
  };
}
