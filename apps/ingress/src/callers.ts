import { createHash, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import type { EnvReader } from "@larkline/process/config";
import { apiApp, jsonParserOf, type ParseResult } from "@larkline/protocol";
import { withDeadline, type Clock } from "@larkline/protocol/clock";
import { Type } from "@larkline/protocol/type";
import type { RateGovernor } from "@larkline/store/platform";
import type { JSONWebKeySet, JWTVerifyGetKey } from "jose";
import { LRUCache } from "lru-cache";

// Callers of the HTTP API: their credentials, names and limits.

/** A caller that shows a key of its own. */
interface ApiKey {
  name: string;
  /** SHA-256 of the key. */
  digest: Buffer;
}

/** The keys and tokens by which callers are known. */
export interface CallerRules {
  /** The one caller without a name; undefined: none. */
  token: string | undefined;
  /** Several keys of one name are one caller. */
  keys: readonly ApiKey[];
  /** Signs JSON Web Tokens with HS256. */
  jwtSecret: Uint8Array | undefined;
  /** Has the keys of tokens that were signed with ES256 or RS256. */
  jwks: KeyFile | undefined;
}

/** Shorter tokens can be guessed. */
const shortestToken = 16;
/** RFC 7518, section 3.2: a key of HS256 is as long as its hash. */
const shortestJwtSecret = 32;

/**
 * Reads how callers are known:
 * - `API_TOKEN`: bearer token of one caller
 * - `API_KEYS`: `name:sha256hex` pairs with commas between; a name may have several keys
 * - `API_JWT_SECRET`, `API_JWKS`: JSON Web Tokens signed with HS256, or with ES256 or RS256 and keys of that file
 */
export function readCallers(reader: EnvReader): CallerRules {
  const token = reader.secret("API_TOKEN", { minLength: shortestToken });
  if (token !== undefined && /\s/.test(token)) {
    reader.problem("API_TOKEN must not contain blanks: no header can carry it.");
  }
  const secret = reader.secret("API_JWT_SECRET", { minLength: shortestJwtSecret });
  if (secret !== undefined) void loadJose(); // before the first request
  return {
    token,
    keys: readKeys(reader),
    jwtSecret: secret === undefined ? undefined : new TextEncoder().encode(secret),
    jwks: readJwks(reader),
  };
}

function readKeys(reader: EnvReader): ApiKey[] {
  const entries = (reader.secret("API_KEYS") ?? "").split(",").map((entry) => entry.trim());
  return entries.flatMap((entry, at) => {
    if (entry === "") return [];
    const [, name = "", digest = ""] =
      /^([A-Za-z0-9_.@-]{1,64}):([0-9a-f]{64})$/i.exec(entry) ?? [];
    if (name !== "") return [{ name, digest: Buffer.from(digest, "hex") }];
    // The message does not quote the entry, which may be a key instead of its hash.
    reader.problem(
      `API_KEYS must be name:sha256hex pairs with commas between, but entry ${at + 1} is none.`,
    );
    return [];
  });
}

const parseJwks = jsonParserOf(
  Type.Object({
    keys: Type.Array(
      Type.Object({ kty: Type.Enum(["EC", "RSA"]), d: Type.Optional(Type.Never()) }),
      {
        minItems: 1,
        maxItems: 100,
      },
    ),
  }),
);

function readJwks(reader: EnvReader): KeyFile | undefined {
  const file = reader.text("API_JWKS");
  if (file === undefined) return undefined;
  try {
    const read = keySetIn(readFileSync(file, "utf8"));
    if (read.ok) return new KeyFile(file, read.value);
    reader.problem(
      `API_JWKS must be a JSON Web Key Set of public keys for ES256 or RS256: ${read.error}.`,
    );
  } catch (error) {
    reader.problem(
      `API_JWKS could not be read: ${error instanceof Error ? error.message : String(error)}.`,
    );
  }
  return undefined;
}

/** Loads the library for JSON Web Tokens, in processes that take such tokens only. */
const loadJose = async () => await import("jose");

function keySetIn(text: string): ParseResult<JWTVerifyGetKey> {
  const parsed = parseJwks(text);
  if (!parsed.ok) return parsed;
  const keys = parsed.value as JSONWebKeySet; // it checks each key when it is used
  const loaded = loadJose().then(({ createLocalJWKSet }) => createLocalJWKSet(keys));
  return { ok: true, value: async (header, token) => await (await loaded)(header, token) };
}

/** Minimum pause between two reads of the key file, because a token can name any key. */
const rereadMs = 60_000;

/** The keys of a file. A key that is not among them may have been added since, so that the file is read again. */
class KeyFile {
  readonly #file: string;
  #keys: JWTVerifyGetKey;
  #rereadAtMs = -Infinity;
  #rereading: Promise<void> | undefined;

  constructor(file: string, keys: JWTVerifyGetKey) {
    this.#file = file;
    this.#keys = keys;
  }

  /** Finds the key of a token. What it returns rejects when there is none, with an error of jose. */
  finder(clock: Clock): JWTVerifyGetKey {
    return async (header, token) => {
      try {
        return await this.#keys(header, token);
      } catch (error) {
        if (header.kid === undefined || !isUnknownKey(error)) throw error;
        await this.#reread(clock);
        return await this.#keys(header, token);
      }
    };
  }

  /** Reads the key set again, at most once a minute; requests that come meanwhile wait for it. */
  async #reread(clock: Clock): Promise<void> {
    const now = clock.monotonic();
    if (this.#rereading === undefined && now - this.#rereadAtMs >= rereadMs) {
      this.#rereadAtMs = now;
      this.#rereading = this.#read().finally(() => (this.#rereading = undefined));
    }
    await this.#rereading;
  }

  async #read(): Promise<void> {
    // A file that cannot be used, such as one that is just being written, leaves the keys as they are.
    const read = keySetIn(await readFile(this.#file, "utf8").catch(() => ""));
    if (read.ok) this.#keys = read.value;
  }
}

function isUnknownKey(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ERR_JWKS_NO_MATCHING_KEY";
}

/** Whether callers have to show who they are. */
export function needsCredentials({ token, keys, jwtSecret, jwks }: CallerRules): boolean {
  return token !== undefined || hasNames({ keys, jwtSecret, jwks });
}

/** Whether there may be several callers. */
export function hasNames({ keys, jwtSecret, jwks }: Omit<CallerRules, "token">): boolean {
  return keys.length > 0 || jwtSecret !== undefined || jwks !== undefined;
}

/** The person that a credential stands for, as messages name them; undefined when it is wrong. */
export async function personOf(
  rules: CallerRules,
  credential: string,
  clock: Clock,
): Promise<string | undefined> {
  const digest = digestOf(credential);
  // All are compared, each in constant time, so that the duration reveals nothing.
  const isToken = rules.token !== undefined && timingSafeEqual(digest, digestOf(rules.token));
  const names = rules.keys
    .filter((key) => timingSafeEqual(digest, key.digest))
    .map(({ name }) => name);
  if (isToken) return apiApp;
  const name = names[0] ?? (await subjectOf(rules, credential, clock));
  return name === undefined ? undefined : `${apiApp}:${name}`;
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** Who a valid JSON Web Token is about. Each algorithm has keys of its own kind. */
async function subjectOf(
  { jwtSecret, jwks }: CallerRules,
  token: string,
  clock: Clock,
): Promise<string | undefined> {
  if (jwtSecret === undefined && jwks === undefined) return undefined;
  const { decodeProtectedHeader, jwtVerify } = await loadJose();
  const options = {
    audience: "larkline",
    requiredClaims: ["exp", "sub"],
    currentDate: new Date(clock.now()),
  };
  try {
    const { alg } = decodeProtectedHeader(token);
    if (alg === "HS256" && jwtSecret !== undefined) {
      const { payload } = await jwtVerify(token, jwtSecret, { ...options, algorithms: ["HS256"] });
      return nameIn(payload.sub);
    }
    if (alg === "HS256" || jwks === undefined) return undefined;
    const { payload } = await jwtVerify(token, jwks.finder(clock), {
      ...options,
      algorithms: ["ES256", "RS256"],
    });
    return nameIn(payload.sub);
  } catch {
    return undefined; // no token, not ours, or expired: which one is nothing that a caller should learn
  }
}

/** Bars separate fields of stored indexes. */
function nameIn(sub: string | undefined): string | undefined {
  return sub !== undefined && /^[\x21-\x7e]{1,120}$/.test(sub)
    ? sub.replaceAll("|", "%7C")
    : undefined;
}

interface Bucket {
  tokens: number;
  atMs: number;
}

/** Bound of the table of callers. The caller that was silent for longest is dropped from it. */
const maxCallers = 10_000;

/** How long a request waits for the count of all processes. */
const countDeadlineMs = 500;

/**
 * Counts requests by caller, over all processes of ingress with one round trip to the store. While the store does not
 * answer, each process counts for itself, so that callers are neither locked out nor without a limit.
 */
export class RequestLimits {
  readonly #clock: Clock;
  readonly #perMinute: number;
  readonly #governor: RateGovernor;
  readonly #isReady: () => boolean;
  readonly #buckets = new LRUCache<string, Bucket>({ max: maxCallers });
  /** The time until which a caller beyond its limit is refused without asking the store again. */
  readonly #refusedUntilMs = new LRUCache<string, number>({ max: maxCallers });

  /** `perMinute`: 0 is no limit. A caller may spend a minute's requests at once. `isReady`: of the store. */
  constructor(parts: {
    clock: Clock;
    governor: RateGovernor;
    isReady: () => boolean;
    perMinute: number;
  }) {
    this.#clock = parts.clock;
    this.#governor = parts.governor;
    this.#isReady = parts.isReady;
    this.#perMinute = parts.perMinute;
  }

  /** Counts a request. Resolves with 0 when it may pass, otherwise with the seconds after which one may. Never rejects. */
  async take(caller: string): Promise<number> {
    if (this.#perMinute === 0) return 0;
    const refusedMs = (this.#refusedUntilMs.get(caller) ?? -Infinity) - this.#clock.monotonic();
    if (refusedMs > 0) return Math.ceil(refusedMs / 1_000);
    const waitMs = await this.#count(caller);
    if (waitMs > 0) this.#refusedUntilMs.set(caller, this.#clock.monotonic() + waitMs);
    return Math.ceil(waitMs / 1_000);
  }

  async #count(caller: string): Promise<number> {
    if (!this.#isReady()) return this.#countHere(caller);
    try {
      const counted = this.#governor.takeRequest(apiApp, caller, this.#perMinute);
      return await withDeadline(this.#clock, counted, countDeadlineMs);
    } catch {
      return this.#countHere(caller);
    }
  }

  #countHere(caller: string): number {
    const now = this.#clock.monotonic();
    const { tokens: left, atMs } = this.#buckets.get(caller) ?? {
      tokens: this.#perMinute,
      atMs: now,
    };
    const tokens = Math.min(this.#perMinute, left + ((now - atMs) * this.#perMinute) / 60_000);
    const passes = tokens >= 1;
    this.#buckets.set(caller, { tokens: passes ? tokens - 1 : tokens, atMs: now });
    return passes ? 0 : ((1 - tokens) * 60_000) / this.#perMinute;
  }
}
