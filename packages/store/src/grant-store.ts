import { createCipheriv, createDecipheriv, hash } from "node:crypto";
import { jsonParserOf, systemRandom, type Random } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import { runScript, script, type RedisConnection } from "./connection.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

// What people let an app do as them. Of each app and person there is one row. Its tokens are sealed with a key
// that only workers have, so that neither Redis nor any of its other users can read them.

/** Whose grant it is, and for which app. */
export interface GrantOwner {
  app: string;
  tenant: string;
  openId: string;
}

const GrantTokens = Type.Object({
  accessToken: Type.String(),
  refreshToken: Type.Optional(Type.String()),
});
type GrantTokens = Static<typeof GrantTokens>;

/** What one consent or refresh has given. Times are epoch ms. */
export interface GrantFacts {
  tokens: GrantTokens;
  accessEndsAtMs: number;
  /** Absent where there is no refresh token. */
  refreshEndsAtMs?: number;
  /** Of the consent. */
  grantedAtMs: number;
  /** What was asked for, and what the person gave. */
  asked: string[];
  granted: string[];
  /** The endpoint that gave the tokens, and refreshes them. */
  issuer: string;
  unionId: string;
}

/**
 * A grant as it is stored. `needs_consent`: it cannot be refreshed any more, its access token may still be good;
 * `revoked`: it has ended. `tokens` are absent then, and where no key of this process opens them.
 */
export interface StoredGrant extends Omit<GrantFacts, "tokens"> {
  generation: number;
  state: "active" | "needs_consent" | "revoked";
  tokens?: GrantTokens;
}

interface GrantStoreOptions extends StoreOptions {
  /** `GRANT_KEY`s of 64 hex digits: the first seals, the others still open. */
  grantKeys: readonly [string, ...string[]];
}

const writeGrant = script("write-grant");
const leaseGrant = script("lease-grant");
const endGrant = script("end-grant");

/** A consent ends after 365 days ("Obtain authorization code"); what ended is known a month longer. */
const ttlMs = 395 * 86_400_000;
/** Nothing but Redis is waited for. */
const resealMs = 2_000;

/** The grants of people. No error and no result but `tokens` holds a token. */
export class GrantStore {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #random: Random;
  readonly #seal: GrantSeal;

  constructor({ redis, namespace, grantKeys, random = systemRandom }: GrantStoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#random = random;
    this.#seal = new GrantSeal(grantKeys, random);
  }

  /** Undefined where the person has never granted the app anything. A row under an older key is sealed anew. */
  async read(owner: GrantOwner): Promise<StoredGrant | undefined> {
    const row = await this.#redis.hgetall(this.#keyOf(owner));
    const {
      generation = "",
      sealed = "",
      accessEndsAtMs,
      refreshEndsAtMs,
      grantedAtMs,
      unionId = "",
      issuer = "",
    } = row;
    if (generation === "") return undefined;
    const place = placeOf(owner, generation);
    const opened = sealed === "" ? undefined : this.#seal.open(sealed, place);
    if (opened?.isOld === true) await this.#reseal(owner, row, opened);
    const tokens = opened === undefined ? undefined : parseTokens(opened.text);
    return {
      generation: Number(generation),
      state:
        row["state"] === "active" || row["state"] === "needs_consent" ? row["state"] : "revoked",
      ...(tokens?.ok === true ? { tokens: tokens.value } : {}),
      accessEndsAtMs: Number(accessEndsAtMs),
      ...(refreshEndsAtMs === undefined ? {} : { refreshEndsAtMs: Number(refreshEndsAtMs) }),
      grantedAtMs: Number(grantedAtMs),
      asked: namesIn(row["asked"]),
      granted: namesIn(row["granted"]),
      issuer,
      unionId,
    };
  }

  /**
   * Stores the generation after `after` (0: the person's first). False, and nothing is stored, when another one is
   * there: by another consent, another refresh, or because the grant has ended meanwhile.
   */
  async write(owner: GrantOwner, facts: GrantFacts, after: number): Promise<boolean> {
    const { tokens, asked, granted, ...rest } = facts;
    const sealed = this.#seal.close(JSON.stringify(tokens), placeOf(owner, String(after + 1)));
    const lists = { asked: asked.join(" "), granted: granted.join(" ") };
    const fields = Object.entries({ state: "active", sealed, ...lists, ...rest }).flatMap(
      ([name, value]) => [name, String(value)],
    );
    return await this.#write(owner, after, fields);
  }

  /** Whether `holder` may refresh this generation: for `leaseMs` no process may again. */
  async lease(
    owner: GrantOwner,
    generation: number,
    holder: string,
    leaseMs: number,
  ): Promise<boolean> {
    const values = { generation, holder, leaseMs };
    return (await runScript(this.#redis, leaseGrant, { grant: this.#keyOf(owner) }, values)) === 1;
  }

  /** This generation cannot be refreshed any more. False when another one is there. */
  async needsConsent(owner: GrantOwner, generation: number): Promise<boolean> {
    return await this.#end(owner, String(generation));
  }

  /** The grant has ended: its tokens are erased, and a refresh that is under way is not stored. */
  async revoke(owner: GrantOwner): Promise<boolean> {
    return await this.#end(owner, "");
  }

  /** Removes all that is known of a person's grant. */
  async forget(owner: GrantOwner): Promise<void> {
    await this.#redis.del(this.#keyOf(owner));
  }

  async #end(owner: GrantOwner, generation: string): Promise<boolean> {
    return (
      (await runScript(this.#redis, endGrant, { grant: this.#keyOf(owner) }, { generation })) === 1
    );
  }

  async #write(owner: GrantOwner, after: number, fields: string[], holder = ""): Promise<boolean> {
    const values = {
      generation: after,
      next: after + 1,
      fields: JSON.stringify(fields),
      ttlMs,
      holder,
    };
    return (await runScript(this.#redis, writeGrant, { grant: this.#keyOf(owner) }, values)) === 1;
  }

  /** As the next generation, under a lease: a refresh that is under way could not store what it gets. */
  async #reseal(owner: GrantOwner, row: Record<string, string>, { text }: Opened): Promise<void> {
    const after = Number(row["generation"]);
    const holder = this.#random.id();
    if (!(await this.lease(owner, after, holder, resealMs))) return;
    const sealed = this.#seal.close(text, placeOf(owner, String(after + 1)));
    const { generation: _generation, leaseHolder: _holder, leaseUntilMs: _untilMs, ...rest } = row;
    await this.#write(owner, after, Object.entries({ ...rest, sealed }).flat(), holder);
  }

  #keyOf(owner: GrantOwner): string {
    return keyOfGrant(this.#keys, owner);
  }
}

/** With a hash, so that no id of a person is in a key; an open_id is a person of one app, in whatever tenant. */
function keyOfGrant(keys: Keyspace, { app, openId }: Pick<GrantOwner, "app" | "openId">): string {
  return keys.grantOf(app, hash("sha256", openId, "base64url").slice(0, 22));
}

/** Removes all that is known of a person's grant, for a process without a key. */
export async function forgetGrant(
  { redis, namespace }: Pick<StoreOptions, "redis" | "namespace">,
  person: Pick<GrantOwner, "app" | "openId">,
): Promise<void> {
  await redis.del(keyOfGrant(createKeyspace(namespace), person));
}

/** The platform has said that a grant has ended, at `atMs` (epoch ms) for `reason`. */
const GrantEnd = Type.Object({
  app: Type.String(),
  tenant: Type.String(),
  openId: Type.String(),
  reason: Type.String(),
  atMs: Type.Number(),
});
export type GrantEnd = Static<typeof GrantEnd>;
const parseEnd = jsonParserOf(GrantEnd);

/** Ends of grants on their way from ingress, which cannot change a grant, to workers. */
export class GrantEnds {
  readonly #redis: RedisConnection;
  readonly #key: string;

  constructor({ redis, namespace }: Pick<StoreOptions, "redis" | "namespace">) {
    this.#redis = redis;
    this.#key = createKeyspace(namespace).grantEnds;
  }

  async add(end: GrantEnd): Promise<void> {
    await this.#redis.sadd(this.#key, JSON.stringify(end));
  }

  /** Takes each end off once `work` is done with it; one that fails comes again. */
  async each(work: (end: GrantEnd) => Promise<void>): Promise<void> {
    for (const text of await this.#redis.smembers(this.#key)) {
      const end = parseEnd(text);
      if (end.ok) await work(end.value);
      await this.#redis.srem(this.#key, text);
    }
  }
}

function namesIn(text = ""): string[] {
  return text === "" ? [] : text.split(" ");
}

/** What a seal is good for: a row that is moved to another person, app, tenant or generation does not open. */
function placeOf({ app, tenant, openId }: GrantOwner, generation: string): string {
  return JSON.stringify([app, tenant, openId, generation]);
}

interface Opened {
  text: string;
  /** Sealed with a key that is not the first any more. */
  isOld: boolean;
}

const parseTokens = jsonParserOf(GrantTokens);

/** Envelope encryption: each row has a key of its own, which is sealed with the deployment's. */
export class GrantSeal {
  readonly #random: Random;
  readonly #current: string;
  /** By id. */
  readonly #keys: ReadonlyMap<string, Buffer>;

  constructor(grantKeys: readonly [string, ...string[]], random: Random) {
    this.#random = random;
    const wrong = grantKeys.find((key) => !/^[0-9a-f]{64}$/i.test(key));
    if (wrong !== undefined) throw new TypeError("GRANT_KEY must be 64 hexadecimal digits");
    this.#current = keyIdOf(grantKeys[0]);
    this.#keys = new Map(grantKeys.map((key) => [keyIdOf(key), Buffer.from(key, "hex")]));
  }

  close(text: string, place: string): string {
    const master = this.#keys.get(this.#current);
    if (master === undefined) throw new Error("the first grant key is missing"); // the constructor has added it
    const own = this.#bytes(32);
    const data = this.#encrypted(own, text, place);
    return [this.#current, this.#encrypted(master, own, place), data].join(".");
  }

  /** Undefined where no key opens it, or it belongs to another place. */
  open(sealed: string, place: string): Opened | undefined {
    const [keyId = "", wrapped = "", data = ""] = sealed.split(".");
    const master = this.#keys.get(keyId);
    if (master === undefined) return undefined;
    try {
      const own = decrypted(master, wrapped, place);
      return { text: decrypted(own, data, place).toString("utf8"), isOld: keyId !== this.#current };
    } catch {
      return undefined; // changed, or of another place
    }
  }

  #encrypted(key: Buffer, plain: Buffer | string, place: string): string {
    const iv = this.#bytes(ivBytes);
    const sealing = createCipheriv(cipher, key, iv, { authTagLength: tagBytes }).setAAD(
      Buffer.from(place),
    );
    const data = Buffer.concat([sealing.update(plain), sealing.final()]);
    return Buffer.concat([iv, sealing.getAuthTag(), data]).toString("base64url");
  }

  /** At most 32. */
  #bytes(count: number): Buffer {
    return hash("sha256", `${this.#random.id()}${this.#random.id()}`, "buffer").subarray(0, count);
  }
}

const cipher = "aes-256-gcm";
const [ivBytes, tagBytes] = [12, 16];

/** Names a key without telling it. */
function keyIdOf(key: string): string {
  return hash("sha256", `larkline grant key ${key.toLowerCase()}`, "base64url").slice(0, 11);
}

function decrypted(key: Buffer, text: string, place: string): Buffer {
  const bytes = Buffer.from(text, "base64url");
  const opening = createDecipheriv(cipher, key, bytes.subarray(0, ivBytes), {
    authTagLength: tagBytes,
  });
  opening.setAAD(Buffer.from(place)).setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes));
  return Buffer.concat([opening.update(bytes.subarray(ivBytes + tagBytes)), opening.final()]);
}
