import { createCipheriv, createDecipheriv, hash } from "node:crypto";
import { jsonParserOf } from "@larkline/protocol";
import { systemRandom, type Random } from "@larkline/protocol/clock";
import { Type, type Static } from "@larkline/protocol/type";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import {
  consentMs,
  GrantBook,
  grantMember,
  keyOfGrant,
  keyOfGrantTokens,
  namesIn,
  personIn,
  usedField,
  type GrantOwner,
  type GrantRecord,
} from "./grant-book.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

// What people let an app do as them. Of each app and person there is one row, and beside it the tokens, sealed with a
// key that only workers have, so that neither Redis nor any of its other users can read them.

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

/** Tokens of a grant that has ended here. */
export interface EndingTokens {
  /** The stored form of a grant. */
  entry: string;
  owner: GrantOwner;
  /** Epoch ms. */
  endedAtMs: number;
  /** Absent where no key of this process opens them. */
  tokens: GrantTokens | undefined;
}

const parseEnding = jsonParserOf(
  Type.Object({
    member: Type.String(),
    tenant: Type.String(),
    generation: Type.String(),
    sealed: Type.Optional(Type.String()),
    endedAtMs: Type.Number(),
  }),
);

interface GrantStoreOptions extends StoreOptions {
  /** `GRANT_KEY`s of 64 hex digits: the first seals, the others still open. */
  grantKeys: readonly [string, ...string[]];
}

const writeGrant = script("write-grant");
const readGrant = script("read-grant");
const leaseGrant = script("lease-grant");
const endGrant = script("end-grant");
const noteGrant = script("note-grant");
const dropEnding = script("drop-ending");

/** What has ended is known a month longer. */
const keptMs = 30 * 86_400_000;
const ttlMs = consentMs + keptMs;
/** Those of the row itself, and of the tools that have used it. */
const maxFields = 200;
/** Nothing but Redis is waited for. */
const resealMs = 2_000;

/** The grants of people. No error and no result but `tokens` holds a token. */
export class GrantStore {
  /** The same grants, without tokens. */
  readonly book: GrantBook;
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;
  readonly #random: Random;
  readonly #seal: GrantSeal;

  constructor({ redis, namespace, grantKeys, random = systemRandom }: GrantStoreOptions) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
    this.#random = random;
    this.#seal = new GrantSeal(grantKeys, random);
    this.book = new GrantBook({ redis, ...(namespace === undefined ? {} : { namespace }) });
  }

  /** Undefined where the person has never granted the app anything. A row under an older key is sealed anew. */
  async read(owner: GrantOwner): Promise<StoredGrant | undefined> {
    const { row: flat, sealed = "" } = await runScript(
      this.#redis,
      readGrant,
      this.#rowOf(owner),
      {},
    );
    const row = Object.fromEntries(pairsIn(flat));
    const { generation = "", accessEndsAtMs, refreshEndsAtMs, grantedAtMs } = row;
    const { unionId = "", issuer = "" } = row;
    if (generation === "") return undefined;
    const place = placeOf(owner, generation);
    const opened = sealed === "" ? undefined : this.#seal.open(sealed, place);
    if (opened?.isOld === true) await this.#reseal(owner, Number(generation), opened);
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
    const fields = { state: "active", tenant: owner.tenant, ...lists, ...rest };
    const flat = Object.entries(fields).flatMap(([name, value]) => [name, String(value)]);
    const lookAtMs = lookAfterAtMs(facts);
    return await this.#write(owner, after, { facts: JSON.stringify(flat), sealed, lookAtMs });
  }

  /** Whether `holder` may refresh this generation: for `leaseMs` no process may again. */
  async lease(
    owner: GrantOwner,
    generation: number,
    holder: string,
    leaseMs: number,
  ): Promise<boolean> {
    const values = { generation, holder, leaseMs };
    const { grant } = this.#rowOf(owner);
    return (await runScript(this.#redis, leaseGrant, { grant }, values)) === 1;
  }

  /** This generation cannot be refreshed any more. False when another one is there. */
  async needsConsent(owner: GrantOwner, generation: number): Promise<boolean> {
    return await this.#end(owner, { generation });
  }

  /** The same, where the platform refuses its access token as well: that is erased. */
  async refused(owner: GrantOwner, generation: number): Promise<boolean> {
    return await this.#end(owner, { generation, isRefused: true });
  }

  /**
   * The grant has ended for `reason`: its tokens are erased, and a refresh that is under way is not stored.
   * `atPlatform`: the platform has to end them, too; until then they are among the {@link endings}.
   */
  async revoke(owner: GrantOwner, reason: string, { atPlatform = false } = {}): Promise<boolean> {
    return await this.#end(owner, { reason, atPlatform });
  }

  /** Tokens that the platform has to end and is asked to at that time, at most `limit`. */
  async endings(nowMs: number, limit: number): Promise<EndingTokens[]> {
    const key = this.#keys.grantTokensEnding;
    const texts = await this.#redis.zrangebyscore(key, 0, nowMs, "LIMIT", 0, limit);
    const found: EndingTokens[] = [];
    for (const entry of texts) {
      const parsed = parseEnding(entry);
      if (!parsed.ok) {
        await this.#redis.zrem(key, entry);
        continue;
      }
      const { member, tenant, generation, endedAtMs } = parsed.value;
      const owner = { ...personIn(member), tenant };
      // Of a deleted person they are where they were.
      const { token } = this.#rowOf(owner);
      const sealed = parsed.value.sealed ?? (await this.#redis.get(token)) ?? "";
      const opened = this.#seal.open(sealed, placeOf(owner, generation));
      const tokens = opened === undefined ? undefined : parseTokens(opened.text);
      found.push({
        entry,
        owner,
        endedAtMs,
        tokens: tokens?.ok === true ? tokens.value : undefined,
      });
    }
    return found;
  }

  /** The platform has ended them, or does not have to any more. */
  async ended({ entry, owner }: EndingTokens): Promise<void> {
    const keys = { ...this.#rowOf(owner), endings: this.#keys.grantTokensEnding };
    await runScript(this.#redis, dropEnding, keys, { entry });
  }

  /** They are due again at that time. */
  async endLater({ entry }: EndingTokens, atMs: number): Promise<void> {
    await this.#redis.zadd(this.#keys.grantTokensEnding, "XX", atMs, entry);
  }

  /** A tool has used the grant. */
  async noteUse(owner: GrantOwner, { tool, ...use }: GrantRecord["used"][number]): Promise<void> {
    await this.#note(owner, { [usedField + tool]: JSON.stringify(use) });
  }

  async noteRefreshError(owner: GrantOwner, reason: string, atMs: number): Promise<void> {
    await this.#note(owner, { refreshError: reason, refreshErrorAtMs: String(atMs) });
  }

  /** Its person was warned of the end of the consent that they gave at `grantedAtMs`. */
  async noteWarning(owner: GrantOwner, grantedAtMs: number): Promise<void> {
    await this.#note(owner, { warnedOf: String(grantedAtMs) });
  }

  /** Grants that a worker has to look after at that time, at most `limit`; what is forgotten leaves the index. */
  async due(nowMs: number, limit: number): Promise<GrantRecord[]> {
    const members = await this.#redis.zrangebyscore(this.#keys.grants, 0, nowMs, "LIMIT", 0, limit);
    const found: GrantRecord[] = [];
    for (const member of members) {
      const record = await this.book.read(personIn(member));
      if (record === undefined) await this.#redis.zrem(this.#keys.grants, member);
      else found.push(record);
    }
    return found;
  }

  /** The grant is due again at that time. */
  async lookAgain(owner: GrantOwner, atMs: number): Promise<void> {
    await this.#redis.zadd(this.#keys.grants, "XX", atMs, grantMember(owner));
  }

  async #note(owner: GrantOwner, facts: Record<string, string>): Promise<void> {
    const values = { facts: JSON.stringify(Object.entries(facts).flat()), maxFields };
    await runScript(this.#redis, noteGrant, { grant: this.#rowOf(owner).grant }, values);
  }

  async #end(
    owner: GrantOwner,
    {
      generation = "",
      isRefused = false,
      reason = "",
      atPlatform = false,
    }: { generation?: number | ""; isRefused?: boolean; reason?: string; atPlatform?: boolean },
  ): Promise<boolean> {
    const { grants, grantTokensEnding: endings } = this.#keys;
    const keys = { ...this.#rowOf(owner), grants, endings };
    const values = {
      generation,
      isRefused: isRefused ? 1 : 0,
      member: grantMember(owner),
      reason,
      keptMs,
      atPlatform: atPlatform ? 1 : 0,
    };
    return (await runScript(this.#redis, endGrant, keys, values)) === 1;
  }

  async #write(
    owner: GrantOwner,
    after: number,
    { holder = "", ...row }: { facts: string; sealed: string; lookAtMs: number; holder?: string },
  ): Promise<boolean> {
    const keys = { ...this.#rowOf(owner), grants: this.#keys.grants };
    const values = {
      ...row,
      generation: after,
      next: after + 1,
      member: grantMember(owner),
      ttlMs,
      holder,
    };
    return (await runScript(this.#redis, writeGrant, keys, values)) === 1;
  }

  /** As the next generation, under a lease: a refresh that is under way could not store what it gets. */
  async #reseal(owner: GrantOwner, after: number, { text }: Opened): Promise<void> {
    const holder = this.#random.id();
    if (!(await this.lease(owner, after, holder, resealMs))) return;
    const sealed = this.#seal.close(text, placeOf(owner, String(after + 1)));
    await this.#write(owner, after, { facts: "", sealed, lookAtMs: 0, holder });
  }

  #rowOf(owner: GrantOwner): { grant: string; token: string } {
    return { grant: keyOfGrant(this.#keys, owner), token: keyOfGrantTokens(this.#keys, owner) };
  }
}

function pairsIn(flat: readonly string[]): [name: string, value: string][] {
  return flat.flatMap((name, at) => (at % 2 === 0 ? [[name, flat[at + 1] ?? ""]] : []));
}

/** A grant is kept alive with so much time left. */
export const keepAliveMs = 48 * 3_600_000;
/** People are warned so long before their consent ends. */
export const warnMs = 14 * 86_400_000;

/** When a worker looks after a grant: to keep it alive, or to warn of the end of the consent. */
function lookAfterAtMs({ refreshEndsAtMs, grantedAtMs }: GrantFacts): number {
  const warnAtMs = grantedAtMs + consentMs - warnMs;
  return refreshEndsAtMs === undefined
    ? warnAtMs
    : Math.min(refreshEndsAtMs - keepAliveMs, warnAtMs);
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
