import { jsonParserOf } from "@larkline/protocol";
import { AgentChange } from "./operator-orders.ts";
import { createHmac, timingSafeEqual } from "node:crypto";
import { Type, type Static } from "@larkline/protocol/type";
import { keepAllAudits } from "./audit-log.ts";
import { type RedisConnection, subscriberOf } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

/** One version of an agent: what operators have changed of it, in place of the version before. */
const AgentVersion = Type.Object({
  v: Type.Literal(1),
  agent: Type.String(),
  /** 1 is the first; 0 would be the file. */
  number: Type.Integer({ minimum: 1 }),
  /** Counts the versions of all agents: a message keeps the revision that it began with. */
  revision: Type.Integer({ minimum: 1 }),
  change: AgentChange,
  /** The operator, as in the audit log. */
  by: Type.String(),
  atMs: Type.Integer(),
  note: Type.Optional(Type.String()),
  /** Hash of the file's agent that it was made for. */
  file: Type.String(),
});
export type AgentVersion = Static<typeof AgentVersion>;

/** A version that workers ignore: its seal is wrong, or it cannot be read. */
export interface RefusedVersion {
  agent: string;
  number: number;
}

/**
 * All stored versions, for the console. Seals are not checked here; workers have marked the versions that they refuse.
 */
export interface StoredVersions {
  /** Of each agent, the newest first. */
  versions: ReadonlyMap<string, AgentVersion[]>;
  refused: RefusedVersion[];
  /** The newest version of each agent that is not refused. */
  inForce: ReadonlyMap<string, AgentVersion>;
  /** Number of the last version of an agent, refused ones too. */
  heads: ReadonlyMap<string, number>;
}

/** `conflict`: another operator was there before. */
export type ChangeResult = "done" | "conflict" | "full";

/** Versions of an agent that are kept. */
const maxVersions = 50;
/** Fields of all agents. */
const maxFields = 4_000;
/** How often a version is sealed anew because other agents are changed at the same time. */
const maxTries = 20;

const parseVersion = jsonParserOf(AgentVersion);
const changeAgent = script("change-agent");

/** `<HMAC-SHA-256, base64url>.<version as JSON>` */
const sealedVersion = /^([A-Za-z0-9_-]{43})\.(.*)$/s;
const versionField = /^(version|refused):(.+):(\d+)$/;

/**
 * Versions of agents in Redis. Workers seal them and ignore versions without a right seal. A worker caches them, so
 * that no turn asks Redis.
 */
export class AgentVersions {
  readonly #redis: RedisConnection;
  readonly #key: string;
  readonly #audit: string;
  readonly #channel: string;
  readonly #stateKey: string | undefined;
  readonly #most: number;
  /** Revision and stamp of the last version that was read. */
  #last = " ";
  /** By field, as its seal was found right. */
  readonly #known = new Map<string, { version: AgentVersion; sealed: string }>();
  /** Fields that were reported. */
  readonly #refused = new Set<string>();

  /** `stateKey`: seals versions, see `stateKeyOf`; only with it they can be added and believed. */
  constructor({
    redis,
    namespace,
    stateKey,
    most = maxVersions,
  }: StoreOptions & { stateKey?: string; most?: number }) {
    const keys = createKeyspace(namespace);
    this.#redis = redis;
    this.#key = keys.agentVersions;
    this.#audit = keys.audit;
    this.#channel = keys.agentVersionsChanged;
    this.#stateKey = stateKey;
    this.#most = most;
  }

  /** Adds the version after `base`. The audit log has it in the same step. */
  async add({
    base,
    ...change
  }: Omit<AgentVersion, "v" | "number" | "revision"> & { base: number }): Promise<ChangeResult> {
    const { agent, by } = change;
    const number = base + 1;
    let last = Number(await this.#redis.hget(this.#key, "revision"));
    for (let tries = 0; tries < maxTries; tries += 1) {
      const revision = last + 1;
      const values = {
        agent,
        number,
        revision,
        sealed: this.#seal(JSON.stringify({ v: 1, ...change, number, revision })),
        most: this.#most,
        mostOfAll: maxFields,
        facts: JSON.stringify({ agent, from: base, to: number }),
        by,
        channel: this.#channel,
        auditMax: keepAllAudits,
      };
      const keys = { versions: this.#key, audit: this.#audit };
      const [result, moved] = (await runScript(this.#redis, changeAgent, keys, values)) as [
        string,
        number,
      ]; // shape fixed by the script
      if (result !== "moved") {
        return result === "stale" ? "conflict" : result === "full" ? "full" : "done";
      }
      last = moved;
    }
    throw new Error(`the revision of agents has moved ${maxTries} times while one was changed`);
  }

  /**
   * Reads what has changed. What was found right stays as it was where it is damaged since. A failover may have lost
   * versions, and others may have their numbers: the stamp shows it.
   */
  async refresh(): Promise<{ isNew: boolean; refused: RefusedVersion[] }> {
    const last = (await this.#redis.hmget(this.#key, "revision", "stamp")).join(" ");
    if (last === this.#last) return { isNew: false, refused: [] };
    const stored = new Map(Object.entries(await this.#redis.hgetall(this.#key)));
    for (const field of this.#known.keys()) if (!stored.has(field)) this.#known.delete(field);
    const versions = [...stored].filter(([field]) => isVersion(field));
    const fresh = versions.filter(([field, sealed]) => this.#known.get(field)?.sealed !== sealed);
    const wrong = fresh
      .filter(([field, sealed]) => !this.#learn(field, sealed))
      .map(([field]) => field);
    for (const field of wrong) await this.#redis.hset(this.#key, refusedField(field), "1");
    // A worker with another key has marked what is right.
    const marked = versions.flatMap(([field]) => {
      const mark = refusedField(field);
      return stored.has(mark) && !wrong.includes(field) ? [mark] : [];
    });
    if (marked.length > 0) await this.#redis.hdel(this.#key, ...marked);
    this.#last = last;
    const unheard = wrong.filter((field) => !this.#refused.has(field));
    for (const field of unheard) this.#refused.add(field);
    return { isNew: true, refused: unheard.flatMap((field) => placeOf(field) ?? []) };
  }

  /** Known ones, of each agent in their order. */
  known(): ReadonlyMap<string, readonly AgentVersion[]> {
    const versions = [...this.#known.values()].map(({ version }) => version);
    return byAgent(versions, (one, other) => one.number - other.number);
  }

  /** Everything as it is stored, for the console. */
  async list(): Promise<StoredVersions> {
    const stored = Object.entries(await this.#redis.hgetall(this.#key));
    const versions = stored.flatMap(([field, text]) =>
      isVersion(field) ? (unsealed(field, text)?.version ?? []) : [],
    );
    const refused = stored.flatMap(([field, text]) =>
      field.startsWith("refused:") || (isVersion(field) && unsealed(field, text) === undefined)
        ? (placeOf(field) ?? [])
        : [],
    );
    const heads = stored.flatMap(([field, text]): [string, number][] =>
      field.startsWith("head:") ? [[field.slice(5), Number(text)]] : [],
    );
    const newestFirst = byAgent(versions, (one, other) => other.number - one.number);
    const inForce = [...newestFirst].flatMap(([agent, own]): [string, AgentVersion][] => {
      const isRefused = ({ number }: AgentVersion): boolean =>
        refused.some((one) => one.agent === agent && one.number === number);
      const newest = own.find((version) => !isRefused(version));
      return newest === undefined ? [] : [[agent, newest]];
    });
    return { versions: newestFirst, refused, inForce: new Map(inForce), heads: new Map(heads) };
  }

  /**
   * Calls `listener` after every change until `signal` aborts; also when changes may have been missed. Resolves when
   * watching has begun.
   */
  async watch(listener: () => void, signal: AbortSignal): Promise<void> {
    const subscriber = subscriberOf(this.#redis);
    subscriber.on("error", () => undefined); // ioredis reconnects and subscribes again by itself
    subscriber.on("message", listener);
    subscriber.on("ready", listener);
    signal.addEventListener("abort", () => subscriber.disconnect(), { once: true });
    await subscriber.subscribe(this.#channel);
    if (signal.aborted) subscriber.disconnect();
  }

  #learn(field: string, sealed: string): boolean {
    const found = unsealed(field, sealed);
    if (found === undefined) return false;
    const given = Buffer.from(found.mac, "base64url");
    const expected = this.#mac(found.text);
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return false;
    this.#known.set(field, { version: found.version, sealed });
    return true;
  }

  #seal(text: string): string {
    return `${this.#mac(text).toString("base64url")}.${text}`;
  }

  #mac(text: string): Buffer {
    if (this.#stateKey === undefined) {
      throw new TypeError("only a store with a stateKey seals versions of agents");
    }
    return createHmac("sha256", this.#stateKey).update("agent version\n").update(text).digest();
  }
}

function refusedField(field: string): string {
  return field.replace("version:", "refused:");
}

function isVersion(field: string): boolean {
  return field.startsWith("version:");
}

function placeOf(field: string): RefusedVersion | undefined {
  const [, , agent, number] = versionField.exec(field) ?? [];
  return agent === undefined ? undefined : { agent, number: Number(number) };
}

/** What a field holds, its seal unchecked; undefined where it is no version, or one of another place. */
function unsealed(
  field: string,
  sealed: string,
): { version: AgentVersion; mac: string; text: string } | undefined {
  const [, mac, text = ""] = sealedVersion.exec(sealed) ?? [];
  const parsed = parseVersion(text);
  const place = placeOf(field);
  if (mac === undefined || !parsed.ok) return undefined;
  const { value: version } = parsed;
  return version.agent === place?.agent && version.number === place.number
    ? { version, mac, text }
    : undefined;
}

function byAgent(
  versions: Iterable<AgentVersion>,
  order: (one: AgentVersion, other: AgentVersion) => number,
): Map<string, AgentVersion[]> {
  const agents = Map.groupBy(versions, ({ agent }) => agent);
  for (const own of agents.values()) own.sort(order);
  return agents;
}
