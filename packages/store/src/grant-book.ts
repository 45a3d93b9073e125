import { hash } from "node:crypto";
import { jsonParserOf, LocalText } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import type { RedisConnection } from "./connection.ts";
import { runScript, script } from "./lua.ts";
import { createKeyspace, type Keyspace, type StoreOptions } from "./keys.ts";

// What processes without a key know of grants: who has granted what, since when and until when, what it was used for, and
// how it has ended. No token is in these rows.

/** Whose grant it is, and for which app. */
export interface GrantOwner {
  app: string;
  tenant: string;
  openId: string;
}

/** An open_id is a person of one app, in whatever tenant. */
type GrantPerson = Pick<GrantOwner, "app" | "openId">;

/** A grant as people see it. Times are epoch ms. */
export interface GrantRecord extends GrantOwner {
  /** `needs_consent`: it cannot be refreshed any more; `revoked`: it has ended. */
  state: "active" | "needs_consent" | "revoked";
  /** When the person granted it last. */
  grantedAtMs: number;
  /** The last consent lasts until then. */
  consentEndsAtMs: number;
  granted: string[];
  accessEndsAtMs: number;
  /** Unless it is refreshed, nothing can be done with it after that. Absent: it cannot be refreshed. */
  refreshEndsAtMs?: number;
  ended?: { reason: string; atMs: number };
  /** The last refresh has failed. */
  refreshError?: { reason: string; atMs: number };
  /** The tools that have used it, the last one first. */
  used: { tool: string; title?: LocalText; atMs: number }[];
  /** `grantedAtMs` of the consent whose end its person was warned of. */
  warnedOf?: number;
}

/** A consent ends after 365 days ("Obtain authorization code"). */
export const consentMs = 365 * 86_400_000;

/** When a grant ends if it is not used again, epoch ms. */
export function grantEndsAtMs(grant: GrantRecord): number {
  const { state, accessEndsAtMs, refreshEndsAtMs = 0, consentEndsAtMs } = grant;
  const refreshed = state === "active" ? Math.min(refreshEndsAtMs, consentEndsAtMs) : 0;
  return grant.ended?.atMs ?? Math.max(accessEndsAtMs, refreshed);
}

/** `lapsed`: it was not used for so long, or for other reasons cannot be refreshed, that its person has to be asked again. */
export function grantStateAt(grant: GrantRecord, nowMs: number): "active" | "lapsed" | "ended" {
  if (grant.state === "revoked") return "ended";
  return grantEndsAtMs(grant) > nowMs ? "active" : "lapsed";
}

/** Reads grants. */
export class GrantBook {
  readonly #redis: RedisConnection;
  readonly #keys: Keyspace;

  constructor({ redis, namespace }: Pick<StoreOptions, "redis" | "namespace">) {
    this.#redis = redis;
    this.#keys = createKeyspace(namespace);
  }

  /** Undefined where the person has never granted the app anything, or it is forgotten. */
  async read(person: GrantPerson): Promise<GrantRecord | undefined> {
    return recordOf(person, await this.#redis.hgetall(keyOfGrant(this.#keys, person)));
  }

  /** Those that a worker looks after soonest, at most `limit`, and how many there are. */
  async list(limit: number): Promise<{ grants: GrantRecord[]; count: number }> {
    const index = this.#keys.grants;
    const members = await this.#redis.zrange(index, "0", String(limit - 1));
    const rows = await Promise.all(
      members.map(async (member) => await this.read(personIn(member))),
    );
    return {
      grants: rows.filter((row) => row !== undefined),
      count: await this.#redis.zcard(index),
    };
  }
}

const forget = script("forget-grant");
/** Refresh tokens end by themselves after 7 days ("Refresh user_access_token"). */
export const endingKeptMs = 7 * 86_400_000;

/** Removes all that is known of a person's grant, for a process without a key. A worker ends it at the platform. */
export async function forgetGrant(
  { redis, namespace }: Pick<StoreOptions, "redis" | "namespace">,
  person: GrantPerson,
): Promise<void> {
  const keys = createKeyspace(namespace);
  await runScript(
    redis,
    forget,
    {
      grant: keyOfGrant(keys, person),
      token: keyOfGrantTokens(keys, person),
      grants: keys.grants,
      endings: keys.grantTokensEnding,
    },
    { member: grantMember(person), keptMs: endingKeptMs },
  );
}

const UsedTool = Type.Object({ atMs: Type.Number(), title: Type.Optional(LocalText) });
const parseUsed = jsonParserOf(UsedTool);
export const usedField = "used:";

function recordOf(
  person: GrantPerson,
  row: Readonly<Record<string, string>>,
): GrantRecord | undefined {
  const { state = "", generation = "", tenant = "" } = row;
  if (generation === "") return undefined;
  const time = (name: string): number => Number(row[name] ?? 0);
  const noted = (reason: string, atMs: string) =>
    row[reason] === undefined ? undefined : { reason: row[reason], atMs: time(atMs) };
  const [ended, refreshError] = [
    noted("endReason", "endedAtMs"),
    noted("refreshError", "refreshErrorAtMs"),
  ];
  return {
    app: person.app,
    tenant,
    openId: person.openId,
    state: state === "active" || state === "needs_consent" ? state : "revoked",
    grantedAtMs: time("grantedAtMs"),
    consentEndsAtMs: time("grantedAtMs") + consentMs,
    granted: namesIn(row["granted"]),
    accessEndsAtMs: time("accessEndsAtMs"),
    ...(row["refreshEndsAtMs"] === undefined ? {} : { refreshEndsAtMs: time("refreshEndsAtMs") }),
    ...(ended === undefined ? {} : { ended }),
    ...(refreshError === undefined ? {} : { refreshError }),
    used: usedIn(row),
    ...(row["warnedOf"] === undefined ? {} : { warnedOf: time("warnedOf") }),
  };
}

function usedIn(row: Readonly<Record<string, string>>): GrantRecord["used"] {
  const used = Object.entries(row).flatMap(([name, text]) => {
    const parsed = name.startsWith(usedField) ? parseUsed(text) : undefined;
    return parsed?.ok === true ? [{ tool: name.slice(usedField.length), ...parsed.value }] : [];
  });
  return used.toSorted((one, other) => other.atMs - one.atMs);
}

/** With a hash, so that no id of a person is in a key. */
export function keyOfGrant(keys: Keyspace, { app, openId }: GrantPerson): string {
  return keys.grantOf(app, hashOf(openId));
}

export function keyOfGrantTokens(keys: Keyspace, { app, openId }: GrantPerson): string {
  return keys.grantTokensOf(app, hashOf(openId));
}

function hashOf(openId: string): string {
  return hash("sha256", openId, "base64url").slice(0, 22);
}

const parseMember = jsonParserOf(Type.Array(Type.String(), { maxItems: 2 }));

/** A person in the index of grants. */
export function grantMember({ app, openId }: GrantPerson): string {
  return JSON.stringify([app, openId]);
}

export function personIn(member: string): GrantPerson {
  const parsed = parseMember(member);
  const [app = "", openId = ""] = parsed.ok ? parsed.value : [];
  return { app, openId };
}

export function namesIn(text = ""): string[] {
  return text === "" ? [] : text.split(" ");
}

/**
 * A grant has ended, or has to, at `atMs` (epoch ms) for `reason`. `by`: who wants it so, and it is ended at the platform,
 * too; absent: the platform has said it.
 */
const GrantEnd = Type.Object({
  app: Type.String(),
  tenant: Type.String(),
  openId: Type.String(),
  reason: Type.String(),
  by: Type.Optional(Type.String()),
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
