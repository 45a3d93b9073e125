import { mastersOf, type RedisConnection } from "./connection.ts";

/** How a server of Redis is that holds keys. */
export interface ServerState {
  /** `host:port`, as this process knows it. */
  node: string;
  memoryBytes: number;
  /** What it may take; where nobody has said so, what its machine has. */
  memoryLimitBytes: number;
  /** It keeps an append-only file and could write it last time: a restart brings back what it has. */
  persists: boolean;
}

function factsOf(info: string): (name: string) => string {
  const facts = new Map([...info.matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name = "", value = ""]) => [name, value]));
  return (name) => facts.get(name) ?? "";
}

/** The state of every server that holds keys: of a Cluster each master. Rejects when one of them does not answer. */
export async function readServerStates(redis: RedisConnection): Promise<ServerState[]> {
  return await Promise.all(
    mastersOf(redis).map(async (server) => {
      const fact = factsOf(`${await server.info("memory")}${await server.info("persistence")}`);
      const { host = "", port = 0 } = server.options;
      return {
        node: `${host}:${port}`,
        memoryBytes: Number(fact("used_memory")),
        memoryLimitBytes: Number(fact("maxmemory")) || Number(fact("total_system_memory")),
        persists: fact("aof_enabled") === "1" && fact("aof_last_write_status") === "ok",
      };
    }),
  );
}
