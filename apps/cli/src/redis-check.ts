import type { RedisServerFacts } from "@larkline/store";
import { ok, problem, warning, type Finding } from "./finding.ts";

const oldestVersion = 7;
const slowPingMs = 10;

/** `host:port` of an address, without user and password, which may also be parameters. */
export function shownRedis(url: string): string {
  return url
    .replace(/^[^/]*\/\//, "")
    .replace(/^.*@/, "")
    .replace(/[?#].*$/, "");
}

export function unreachableRedis(url: string, reason: string): Finding {
  const shown = shownRedis(url);
  return problem(
    "redis.reach",
    { zh: `${shown} 上的 Redis 没有应答（${reason}）`, en: `Redis at ${shown} does not answer (${reason})` },
    {
      zh: "启动 Redis，或更正 REDIS_URL（地址、端口、密码）；本机试用可取消 REDIS_URL，由 npm start 自己运行。",
      en: "Start it, or correct REDIS_URL (address, port, password); on one machine, unset it and npm start runs its own.",
    },
  );
}

function versionFinding({ product, version }: RedisServerFacts): Finding {
  const name = product === "redis" ? "Redis" : "Valkey";
  const text = { zh: `${name} ${version}`, en: `${name} ${version}` };
  if (Number.parseInt(version, 10) >= oldestVersion) return ok("redis.version", text);
  return problem("redis.version", text, {
    zh: `需要 Redis ${oldestVersion} 或更新版本，或 Valkey 8。`,
    en: `Redis ${oldestVersion} or newer, or Valkey 8, is needed.`,
  });
}

function evictionFinding({ evictionPolicy }: RedisServerFacts): Finding {
  const text = { zh: `maxmemory-policy 为 ${evictionPolicy}`, en: `maxmemory-policy is ${evictionPolicy}` };
  if (evictionPolicy === "noeviction") return ok("redis.eviction", text);
  return problem("redis.eviction", text, {
    zh: "内存不足时 Redis 会丢弃消息和会话：运行 CONFIG SET maxmemory-policy noeviction 并写入配置文件。",
    en: "Short of memory, Redis would drop messages and sessions: CONFIG SET maxmemory-policy noeviction, and in its file.",
  });
}

function persistenceFinding({ appendOnly, appendFsync }: RedisServerFacts): Finding {
  const fsync = appendFsync === undefined ? "" : `, appendfsync ${appendFsync}`;
  const state = `appendonly ${appendOnly ? "yes" : "no"}${fsync}`;
  const text = { zh: state, en: state };
  if (appendOnly && appendFsync !== "no") return ok("redis.persistence", text);
  return warning("redis.persistence", text, {
    zh: "Redis 重启会丢失已确认的消息：设置 appendonly yes 和 appendfsync everysec。",
    en: "A restart of Redis would lose acknowledged messages: set appendonly yes and appendfsync everysec.",
  });
}

/** A server without replicas has no failover that could lose anything. */
function replicaFindings({ replicas, needsReplica }: RedisServerFacts): Finding[] {
  if (replicas === 0) return [];
  const text = { zh: `${replicas} 个副本`, en: `${replicas} replica(s)` };
  if (needsReplica) return [ok("redis.replicas", text)];
  const advice = {
    zh: "故障切换会丢失副本尚未收到的写入，包括已确认的消息：设置 min-replicas-to-write 1（见 docs/reliability.md）。",
    en: "A failover loses what no replica has got, acknowledged messages too: set min-replicas-to-write 1 (docs/reliability.md).",
  };
  return [warning("redis.replicas", text, advice)];
}

function latencyFinding({ pingMs }: RedisServerFacts): Finding {
  const shown = pingMs.toFixed(1);
  const text = { zh: `Redis 往返 ${shown} ms（中位数）`, en: `Redis answers in ${shown} ms (median)` };
  if (pingMs <= slowPingMs) return ok("redis.latency", text);
  return warning("redis.latency", text, {
    zh: "每条消息需要数十次往返：把进程放到 Redis 附近。",
    en: "Each message takes dozens of round trips: run the processes closer to Redis.",
  });
}

/** What the facts of a server mean for a deployment. */
export function redisFindings(facts: RedisServerFacts): Finding[] {
  const kept = [evictionFinding(facts), persistenceFinding(facts), ...replicaFindings(facts)];
  return [versionFinding(facts), ...kept, latencyFinding(facts)];
}
