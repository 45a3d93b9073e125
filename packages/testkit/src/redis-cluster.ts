import { execFile, spawn, type ChildProcess } from "node:child_process";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { freePort } from "./free-port.ts";
import { untilRedisAnswers } from "./redis.ts";

const run = promisify(execFile);

/** A private Redis Cluster of a test: three masters, no replicas. */
export interface TestRedisCluster {
  /** As `connectRedis` takes it. */
  url: string;
  stop(): Promise<void>;
}

/** A port whose cluster bus port (10,000 higher) exists too. */
async function clusterPort(): Promise<number> {
  for (;;) {
    const port = await freePort();
    if (port < 55_000) return port;
  }
}

async function startNode(directory: string, port: number): Promise<ChildProcess> {
  await mkdir(join(directory, String(port)));
  const basics = ["--port", String(port), "--bind", "127.0.0.1", "--dir", join(directory, String(port)), "--save", ""];
  const clustering = [
    "--cluster-enabled",
    "yes",
    "--cluster-config-file",
    "nodes.conf",
    "--cluster-node-timeout",
    "2000",
  ];
  const node = spawn("redis-server", [...basics, ...clustering], { stdio: "ignore" });
  await untilRedisAnswers(port, () => node.exitCode !== null);
  return node;
}

async function untilFormed(ports: readonly number[]): Promise<void> {
  const deadlineMs = Date.now() + 20_000;
  for (const port of ports) {
    for (;;) {
      const { stdout } = await run("redis-cli", ["-p", String(port), "cluster", "info"]);
      if (stdout.includes("cluster_state:ok")) break;
      if (Date.now() > deadlineMs) throw new Error(`the cluster does not form: ${stdout}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** Starts a cluster on free ports; `stop` ends it and removes its files. */
export async function startRedisCluster(): Promise<TestRedisCluster> {
  const directory = await mkdtemp(join(tmpdir(), "larkline-cluster-"));
  const ports = [await clusterPort(), await clusterPort(), await clusterPort()];
  const nodes = await Promise.all(ports.map(async (port) => await startNode(directory, port)));
  const addresses = ports.map((port) => `127.0.0.1:${port}`);
  await run("redis-cli", ["--cluster", "create", ...addresses, "--cluster-yes"]);
  await untilFormed(ports);
  return {
    url: `redis+cluster://${addresses.join(",")}`,
    stop: async () => {
      const ended = nodes.map(async (node) => await new Promise((resolve) => node.once("exit", resolve)));
      for (const node of nodes) node.kill("SIGTERM");
      await Promise.all(ended);
      await rm(directory, { recursive: true, force: true });
    },
  };
}
