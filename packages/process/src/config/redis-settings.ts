import type { EnvReader } from "./env-reader.ts";

/** Protocols of `REDIS_URL`: a single node, Sentinel or Cluster, each with or without TLS. */
export const redisProtocols = [
  "redis:",
  "rediss:",
  "redis+sentinel:",
  "rediss+sentinel:",
  "redis+cluster:",
  "rediss+cluster:",
] as const;

/** Protocols of `ARCHIVE_URL`. */
export const archiveProtocols = ["postgres:", "postgresql:"] as const;

/** Reports a `REDIS_NAMESPACE` that cannot be part of keys and queue prefixes. */
export function checkNamespace(reader: EnvReader, namespace: string): string {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(namespace)) {
    reader.problem("REDIS_NAMESPACE must be 1 to 64 letters, digits, '_' or '-'.");
  }
  return namespace;
}
