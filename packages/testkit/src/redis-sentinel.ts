import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { freePort } from "./free-port.ts";
import { startNodes, type TestRedisNodes, type TestRedisNodesOptions } from "./redis-nodes.ts";
import { patienceMs, untilRedisAnswers } from "./redis.ts";

const run = promisify(execFile);

const watched = "mymaster";
const sentinelCount = 3;

interface Watch {
  port: number;
  id: string;
}

interface Plan {
  directory: string;
  sentinels: readonly Watch[];
  masterPort: number;
  replicaPorts: readonly number[];
  options: TestRedisNodesOptions;
}

/** What a sentinel reads at its start: it knows the others and the replicas, so a failover may come at once. */
function settingsOf(
  self: Watch,
  { masterPort, replicaPorts, sentinels, options, directory }: Plan,
): string {
  const { users, silenceMs = 2_000 } = options;
  const others = sentinels.filter(({ id }) => id !== self.id);
  return [
    `port ${self.port}`,
    "bind 127.0.0.1",
    `dir ${join(directory, String(self.port))}`,
    `sentinel myid ${self.id}`,
    `sentinel monitor ${watched} 127.0.0.1 ${masterPort} 2`,
    `sentinel down-after-milliseconds ${watched} ${silenceMs}`,
    `sentinel failover-timeout ${watched} 10000`,
    ...(users === undefined
      ? []
      : [
          `sentinel auth-user ${watched} ${users.administrator.name}`,
          `sentinel auth-pass ${watched} ${users.administrator.password}`,
        ]),
    ...replicaPorts.map((port) => `sentinel known-replica ${watched} 127.0.0.1 ${port}`),
    ...others.map(({ port, id }) => `sentinel known-sentinel ${watched} 127.0.0.1 ${port} ${id}`),
    "",
  ].join("\n");
}

async function startSentinel(self: Watch, plan: Plan): Promise<ChildProcess> {
  const folder = join(plan.directory, String(self.port));
  await mkdir(folder);
  const file = join(folder, "sentinel.conf");
  await writeFile(file, settingsOf(self, plan));
  const sentinel = spawn("redis-server", [file, "--sentinel"], { stdio: "ignore" });
  await untilRedisAnswers(self.port, () => sentinel.exitCode !== null);
  return sentinel;
}

async function untilFollowed(
  { ask }: Pick<TestRedisNodes, "ask">,
  ports: readonly number[],
): Promise<void> {
  const deadlineMs = Date.now() + patienceMs;
  for (const port of ports) {
    while (!(await ask(port, "role")).includes("\nconnected\n")) {
      if (Date.now() > deadlineMs) throw new Error("a replica does not reach its master");
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/**
 * Starts a master, two replicas and three sentinels on free ports; `stop` ends them and removes their
 * files. Its masters are those that sentinels tell clients: more than one while they do not agree.
 */
export async function startRedisSentinel(
  options: TestRedisNodesOptions = {},
): Promise<TestRedisNodes> {
  const directory = await mkdtemp(join(tmpdir(), "larkline-sentinel-"));
  const masterPort = await freePort();
  const replicaPorts = [await freePort(), await freePort()];
  const following = ["--replicaof", "127.0.0.1", String(masterPort)];
  const nodes = await startNodes(
    directory,
    [
      { port: masterPort, settings: [] },
      ...replicaPorts.map((port) => ({ port, settings: following })),
    ],
    options,
  );
  await untilFollowed(nodes, replicaPorts);
  const sentinels: Watch[] = [];
  for (let at = 0; at < sentinelCount; at += 1) {
    sentinels.push({ port: await freePort(), id: String(at + 1).padStart(40, "5") });
  }
  const plan: Plan = { directory, sentinels, masterPort, replicaPorts, options };
  const processes = await Promise.all(
    sentinels.map(async (sentinel) => await startSentinel(sentinel, plan)),
  );
  const primaryOf = async ({ port }: Watch): Promise<number> => {
    const address = await run("redis-cli", [
      "-p",
      String(port),
      "sentinel",
      "get-master-addr-by-name",
      watched,
    ]);
    return Number(address.stdout.split("\n")[1]);
  };
  return {
    ...nodes,
    masters: async () => {
      const alive = await nodes.masters();
      const primaries = new Set(await Promise.all(sentinels.map(primaryOf)));
      return [...primaries].filter((port) => alive.includes(port));
    },
    url: `redis+sentinel://${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(",")}/${watched}`,
    stop: async () => {
      const ended = processes.map(async (sentinel) => await once(sentinel, "exit"));
      for (const sentinel of processes) sentinel.kill("SIGKILL");
      await Promise.all(ended);
      await nodes.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
