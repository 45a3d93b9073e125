import { jsonParserOf } from "@larkline/protocol";
import { AddedProvider } from "./operator-orders.ts";
import { systemRandom, type Random } from "@larkline/protocol/clock";
import { Type, type Static } from "@larkline/protocol/type";
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  hash,
  hkdfSync,
  timingSafeEqual,
  type KeyObject,
} from "node:crypto";
import { keepAllAudits } from "./audit-log.ts";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

// Servers of models that operators add at the console. The console seals a key so that only workers open it: they publish
// a public key (X25519), whose private half is made from GRANT_KEY. Workers seal the whole row, too, and believe no other.

const StoredProvider = Type.Object({
  v: Type.Literal(1),
  provider: AddedProvider,
  /** As {@link sealProviderKey} gives it. Absent: the server takes no key. */
  sealedKey: Type.Optional(Type.String()),
  /** The operator, as in the audit log. */
  by: Type.String(),
  atMs: Type.Integer(),
});
type StoredProvider = Static<typeof StoredProvider>;

/** A server as the console sees it, without its key. */
export interface ListedProvider {
  provider: AddedProvider;
  /** `old`: sealed for a `GRANT_KEY` that is not the first any more. */
  key: "none" | "sealed" | "old";
  by: string;
  atMs: number;
  /** A worker has found that its seal is wrong, or that no `GRANT_KEY` of it opens the key: it is not used. */
  isRefused: boolean;
}

/** A server as a worker uses it. */
export interface OpenedProvider {
  provider: AddedProvider;
  /** Absent: it takes none. */
  apiKey?: string;
}

/** What an operator wants a server to be. */
export interface ProviderChange {
  provider: AddedProvider;
  /** Absent: the key that it has at this address stays. */
  sealedKey?: string | undefined;
  by: string;
  atMs: number;
}

interface ProviderOptions extends StoreOptions {
  /** Seals rows, see `stateKeyOf`; only with it they can be changed and believed. */
  stateKey?: string;
  /** `GRANT_KEY`s of 64 hex digits: the first opens what the console seals from now on. Absent: there are no keys. */
  grantKeys?: readonly [string, ...string[]] | undefined;
}

const maxProviders = 100;
/** How often a row is written anew because others are changed at the same time. */
const maxTries = 20;
const longestKey = 4_000;

const parseProvider = jsonParserOf(StoredProvider);
const changeProvider = script("change-provider");

/** `<HMAC-SHA-256, base64url>.<row as JSON>` */
const sealedRow = /^([A-Za-z0-9_-]{43})\.(.*)$/s;

/** The added servers in Redis. A worker keeps what it has read last, so that no turn asks Redis. */
export class AddedProviders {
  readonly #redis: RedisConnection;
  readonly #key: string;
  readonly #audit: string;
  readonly #channel: string;
  readonly #stateKey: string | undefined;
  /** The first opens what is sealed from now on. */
  readonly #pairs: readonly KeyPair[];
  /** Revision, stamp and public key that were read last. */
  #last = " ";
  #isPublished = false;
  #known: ReadonlyMap<string, OpenedProvider> = new Map();
  /** Names that were reported. */
  readonly #refused = new Set<string>();

  constructor({ redis, namespace, stateKey, grantKeys }: ProviderOptions) {
    const keys = createKeyspace(namespace);
    this.#redis = redis;
    this.#key = keys.addedProviders;
    this.#audit = keys.audit;
    this.#channel = keys.agentVersionsChanged;
    this.#stateKey = stateKey;
    this.#pairs = (grantKeys ?? []).map((grantKey) =>
      pairFrom(Buffer.from(hkdfSync("sha256", Buffer.from(grantKey, "hex"), "", pairUse, 32))),
    );
  }

  /** Everything as it is stored, for the console. `sealTo`: the public key of workers; undefined: none takes keys. */
  async list(): Promise<{ providers: ListedProvider[]; sealTo: string | undefined }> {
    const stored = await this.#redis.hgetall(this.#key);
    const { sealTo } = stored;
    const providers = rowsIn(stored).flatMap(({ name, sealed }): ListedProvider[] => {
      const row = unsealed(name, sealed)?.row;
      if (row === undefined) return [];
      const { provider, sealedKey, by, atMs } = row;
      const isRefused = stored[`refused:${name}`] !== undefined;
      const isOld = sealedKey?.split(".", 1)[0] !== sealTo;
      const key = sealedKey === undefined ? "none" : isOld ? "old" : "sealed";
      return [{ provider, key, by, atMs, isRefused }];
    });
    providers.sort((one, other) => (one.provider.name < other.provider.name ? -1 : 1));
    return { providers, sealTo };
  }

  /** Those that this worker can use, by name, as {@link refresh} has found them last. */
  known(): ReadonlyMap<string, OpenedProvider> {
    return this.#known;
  }

  /**
   * Reads what has changed, and publishes the public key where it is missing. `refused`: names of rows that this worker
   * does not use and has not reported before.
   */
  async refresh(): Promise<{ isNew: boolean; refused: string[] }> {
    const [revision = "", stamp = "", sealTo = null] = await this.#redis.hmget(
      this.#key,
      "revision",
      "stamp",
      "sealTo",
    );
    const [own] = this.#pairs;
    // Once: of two workers with other keys during a rollout, the later one counts.
    if (own !== undefined && own.name !== sealTo && (!this.#isPublished || sealTo === null)) {
      await this.#redis.hset(this.#key, "sealTo", own.name);
    }
    this.#isPublished = true;
    const last = `${revision} ${stamp}`;
    if (last === this.#last) return { isNew: false, refused: [] };
    const known = new Map<string, OpenedProvider>();
    const wrong: string[] = [];
    for (const { name, sealed } of rowsIn(await this.#redis.hgetall(this.#key))) {
      const opened = this.#open(name, sealed);
      if (opened === undefined) wrong.push(name);
      else known.set(name, opened);
    }
    for (const name of wrong) await this.#redis.hset(this.#key, `refused:${name}`, "1");
    // What a worker with other keys has marked.
    const marks = [...known.keys()].map((name) => `refused:${name}`);
    if (marks.length > 0) await this.#redis.hdel(this.#key, ...marks);
    this.#known = known;
    this.#last = last;
    const unheard = wrong.filter((name) => !this.#refused.has(name));
    for (const name of unheard) this.#refused.add(name);
    return { isNew: true, refused: unheard };
  }

  /** Adds a server, or replaces it. `not_possible`: this worker does not open the key, or it was sealed for another address. */
  async set({ provider, ...given }: ProviderChange): Promise<"done" | "full" | "not_possible"> {
    const sealedKey = given.sealedKey ?? (await this.#keyAt(provider));
    const key = sealedKey === undefined ? "" : this.#keyIn(sealedKey, provider);
    if (key === undefined || key.length > longestKey) return "not_possible";
    const { by, atMs } = given;
    const row = { v: 1, provider, ...(sealedKey === undefined ? {} : { sealedKey }), by, atMs };
    const result = await this.#write(provider.name, this.#seal(JSON.stringify(row)), {
      kind: "provider_changed",
      by,
    });
    return result === "nothing" ? "done" : result;
  }

  /** Removes a server, with its key. */
  async remove(name: string, by: string): Promise<"done" | "nothing"> {
    return (await this.#write(name, "", { kind: "provider_removed", by })) === "done"
      ? "done"
      : "nothing";
  }

  async #write(
    name: string,
    sealed: string,
    { kind, by }: { kind: string; by: string },
  ): Promise<"done" | "nothing" | "full"> {
    let last = Number(await this.#redis.hget(this.#key, "revision"));
    for (let tries = 0; tries < maxTries; tries += 1) {
      const values = {
        name,
        sealed,
        revision: last + 1,
        most: maxProviders,
        kind,
        facts: JSON.stringify({ provider: name }),
        by,
        channel: this.#channel,
        auditMax: keepAllAudits,
      };
      const keys = { providers: this.#key, audit: this.#audit };
      const [result, moved] = (await runScript(this.#redis, changeProvider, keys, values)) as [
        "done" | "nothing" | "full" | "moved",
        number,
      ]; // shape fixed by the script
      if (result !== "moved") return result;
      last = moved;
    }
    throw new Error(`the servers of models have changed ${maxTries} times while one was changed`);
  }

  /** The key that a server has, where its address is still the one that the key was given for. */
  async #keyAt(provider: AddedProvider): Promise<string | undefined> {
    const sealed = await this.#redis.hget(this.#key, `provider:${provider.name}`);
    const row = sealed === null ? undefined : this.#believed(provider.name, sealed);
    return row !== undefined && placeOf(row.provider) === placeOf(provider)
      ? row.sealedKey
      : undefined;
  }

  #open(name: string, sealed: string): OpenedProvider | undefined {
    const row = this.#believed(name, sealed);
    if (row === undefined) return undefined;
    const { provider, sealedKey } = row;
    if (sealedKey === undefined) return { provider };
    const apiKey = this.#keyIn(sealedKey, provider);
    return apiKey === undefined ? undefined : { provider, apiKey };
  }

  /** A row whose seal is right. */
  #believed(name: string, sealed: string): StoredProvider | undefined {
    const found = unsealed(name, sealed);
    if (found === undefined) return undefined;
    const [given, expected] = [Buffer.from(found.mac, "base64url"), this.#mac(found.text)];
    const isRight = given.length === expected.length && timingSafeEqual(given, expected);
    return isRight ? found.row : undefined;
  }

  #keyIn(sealedKey: string, provider: AddedProvider): string | undefined {
    const [to = "", from = "", data = ""] = sealedKey.split(".");
    const pair = this.#pairs.find(({ name }) => name === to);
    if (pair === undefined) return undefined;
    try {
      const bytes = Buffer.from(data, "base64url");
      const secret = secretBetween(pair.privateKey, from, `${from}.${to}`);
      const opening = createDecipheriv(cipher, secret, bytes.subarray(0, ivBytes), {
        authTagLength: tagBytes,
      });
      opening
        .setAAD(Buffer.from(placeOf(provider)))
        .setAuthTag(bytes.subarray(ivBytes, ivBytes + tagBytes));
      const plain = opening.update(bytes.subarray(ivBytes + tagBytes));
      return Buffer.concat([plain, opening.final()]).toString("utf8");
    } catch {
      return undefined; // changed, or of another place
    }
  }

  #seal(text: string): string {
    return `${this.#mac(text).toString("base64url")}.${text}`;
  }

  #mac(text: string): Buffer {
    if (this.#stateKey === undefined) {
      throw new TypeError("only a store with a stateKey seals servers of models");
    }
    return createHmac("sha256", this.#stateKey).update("added provider\n").update(text).digest();
  }
}

/**
 * Seals the key of a server for workers, whose public key `sealTo` is. It opens for this name, interface and address
 * only: a key cannot be sent anywhere else by changing the address of its server.
 */
export function sealProviderKey(
  sealTo: string,
  provider: AddedProvider,
  apiKey: string,
  random: Random = systemRandom,
): string {
  const own = pairFrom(bytesFrom(random, 32));
  const secret = secretBetween(own.privateKey, sealTo, `${own.name}.${sealTo}`);
  const iv = bytesFrom(random, ivBytes);
  const sealing = createCipheriv(cipher, secret, iv, { authTagLength: tagBytes }).setAAD(
    Buffer.from(placeOf(provider)),
  );
  const data = Buffer.concat([sealing.update(apiKey, "utf8"), sealing.final()]);
  const box = Buffer.concat([iv, sealing.getAuthTag(), data]).toString("base64url");
  return [sealTo, own.name, box].join(".");
}

interface KeyPair {
  /** The public key, base64url. */
  name: string;
  privateKey: KeyObject;
}

const cipher = "aes-256-gcm";
const [ivBytes, tagBytes] = [12, 16];
const pairUse = "larkline keys of models";
/** What stands before the 32 bytes of a private key of X25519 in PKCS #8 (RFC 8410). */
const pkcs8 = Buffer.from("302e020100300506032b656e04220420", "hex");

function pairFrom(seed: Buffer): KeyPair {
  const key = Buffer.concat([pkcs8, seed]);
  const privateKey = createPrivateKey({ key, format: "der", type: "pkcs8" });
  const { x = "" } = createPublicKey(privateKey).export({ format: "jwk" });
  return { name: x, privateKey };
}

/** What both ends share, bound to their public keys `ends`; `x` is the one of the other end. */
function secretBetween(privateKey: KeyObject, x: string, ends: string): Buffer {
  const publicKey = createPublicKey({ key: { kty: "OKP", crv: "X25519", x }, format: "jwk" });
  const shared = diffieHellman({ privateKey, publicKey });
  return Buffer.from(hkdfSync("sha256", shared, ends, "larkline key of a model", 32));
}

/** At most 32. */
function bytesFrom(random: Random, count: number): Buffer {
  return hash("sha256", `${random.id()}${random.id()}`, "buffer").subarray(0, count);
}

/** What a sealed key is good for. */
function placeOf({ name, type, baseUrl = "" }: AddedProvider): string {
  return JSON.stringify([name, type, baseUrl]);
}

function rowsIn(stored: Readonly<Record<string, string>>): { name: string; sealed: string }[] {
  return Object.entries(stored).flatMap(([field, sealed]) =>
    field.startsWith("provider:") ? [{ name: field.slice("provider:".length), sealed }] : [],
  );
}

/** What a field holds, its seal unchecked; undefined where it is no row, or one of another name. */
function unsealed(
  name: string,
  sealed: string,
): { row: StoredProvider; mac: string; text: string } | undefined {
  const [, mac, text = ""] = sealedRow.exec(sealed) ?? [];
  const parsed = parseProvider(text);
  if (mac === undefined || !parsed.ok || parsed.value.provider.name !== name) return undefined;
  return { row: parsed.value, mac, text };
}
