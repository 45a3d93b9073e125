import { createHmac } from "node:crypto";
import { Redis } from "ioredis";

/** A key with its content; hashes, sorted sets and entries of streams as flat lists. */
interface StoredKey {
  key: string;
  type: "string" | "hash" | "list" | "set" | "zset" | "stream";
  /** Absent: for good. */
  ttlMs?: number;
  value: string[];
}

/** What a version has stored. */
export interface Snapshot {
  /** The commit that wrote it. */
  version: string;
  takenAtMs: number;
  keys: StoredKey[];
}

/** Queues are BullMQ's, and what is in them is added again; the rest is only remembered for a while, or of processes. */
const leftOut =
  /^(?:\{larkline\}:(?:turns|tools-[^:]*|alive|duty|workers|runners|token)(?::|$)|\{larkline:rate:|larkline:look:)/;

async function valueOf(redis: Redis, key: string, type: StoredKey["type"]): Promise<string[]> {
  switch (type) {
    case "string":
      return [(await redis.get(key)) ?? ""];
    case "hash":
      return Object.entries(await redis.hgetall(key)).flat();
    case "list":
      return await redis.lrange(key, 0, -1);
    case "set":
      return await redis.smembers(key);
    case "zset":
      return await redis.zrange(key, "0", "-1", "WITHSCORES");
    case "stream":
      return (await redis.xrange(key, "-", "+")).map((entry) => JSON.stringify(entry));
  }
}

export async function takeSnapshot(url: string, version: string): Promise<Snapshot> {
  const redis = new Redis(url);
  try {
    const names = (await redis.keys("*")).filter((key) => !leftOut.test(key)).sort();
    const keys: StoredKey[] = [];
    for (const key of names) {
      const type = (await redis.type(key)) as StoredKey["type"]; // no modules are loaded
      const ttlMs = await redis.pttl(key);
      keys.push({
        key,
        type,
        ...(ttlMs < 0 ? {} : { ttlMs }),
        value: await valueOf(redis, key, type),
      });
    }
    return { version, takenAtMs: Date.now(), keys };
  } finally {
    redis.disconnect();
  }
}

const dayMs = 86_400_000;

/** Moves every moment within a week of the snapshot by as much as has passed since. */
function movedTo(nowMs: number, { takenAtMs }: Snapshot): (text: string) => string {
  return (text) =>
    text.replaceAll(/(?<!\d)1\d{12}(?!\d)/g, (digits) => {
      const isNear = Math.abs(Number(digits) - takenAtMs) < 7 * dayMs;
      return isNear ? String(Number(digits) - takenAtMs + nowMs) : digits;
    });
}

/** Fields of a session's state that its workers have sealed, and what the seal names them. */
const sealedFields: Readonly<Record<string, string>> = {
  turn: "turn",
  summary: "summary",
  settings: "settings",
};

/**
 * Seals the state of a session again, in the form of the version that was recorded: the moments in it have moved, and the
 * key with which it was sealed is not kept.
 */
function sealAgain({ key, value }: StoredKey, stateKey: string): string[] {
  const session = /^\{larkline:\d+\}:state:(.+)$/.exec(key)?.[1];
  if (session === undefined) return value;
  return value.map((stored, at) => {
    const what = at % 2 === 1 ? sealedFields[value[at - 1] ?? ""] : undefined;
    if (what === undefined) return stored;
    const [, epoch = "", text = ""] = /^1\.(\d+)\.[\w-]{43}\.(.*)$/s.exec(stored) ?? [];
    if (epoch === "") throw new Error(`${what} of ${session} is not sealed in the recorded form`);
    const mac = createHmac("sha256", stateKey)
      .update(JSON.stringify([what, session, epoch]))
      .update(text);
    return `1.${epoch}.${mac.digest("base64url")}.${text}`;
  });
}

async function restore(redis: Redis, { key, type, ttlMs, value }: StoredKey): Promise<void> {
  if (type === "string") await redis.set(key, value[0] ?? "");
  else if (type === "hash") await redis.hset(key, ...value);
  else if (type === "list") await redis.rpush(key, ...value);
  else if (type === "set") await redis.sadd(key, ...value);
  else if (type === "zset") {
    for (let at = 0; at < value.length; at += 2) {
      await redis.zadd(key, value[at + 1] ?? "0", value[at] ?? "");
    }
  } else {
    for (const entry of value) {
      const [id, fields] = JSON.parse(entry) as [string, string[]]; // as the snapshot has written it
      await redis.xadd(key, id, ...fields);
    }
  }
  if (ttlMs !== undefined) await redis.pexpire(key, ttlMs);
}

/** Puts a snapshot into an empty server, as if workers with `stateKey` had written it a moment ago. */
export async function restoreSnapshot(
  url: string,
  snapshot: Snapshot,
  stateKey: string,
): Promise<void> {
  const redis = new Redis(url);
  const moved = movedTo(Date.now(), snapshot);
  try {
    for (const stored of snapshot.keys) {
      const now = { ...stored, key: moved(stored.key), value: stored.value.map(moved) };
      await restore(redis, { ...now, value: sealAgain(now, stateKey) });
    }
  } finally {
    redis.disconnect();
  }
}
