import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./free-port.ts";
import { startNodes, type TestRedisNodes, type TestRedisNodesOptions } from "./redis-nodes.ts";
import { patienceMs } from "./redis.ts";

export interface TestRedisClusterOptions extends TestRedisNodesOptions {
  /** Of each of the three masters. Default 0. */
  replicas?: number;
}

const masterCount = 3;
const slotCount = 16_384;

interface Member {
  id: string;
  port: number;
  busPort: number;
  /** Of which master; its own for a master. */
  masterId: string;
  /** Index of the master. */
  shard: number;
}

function idOf(at: number): string {
  return String(at + 1).padStart(40, "0");
}

async function planMembers(replicas: number): Promise<Member[]> {
  const members: Member[] = [];
  for (let at = 0; at < masterCount * (1 + replicas); at += 1) {
    const shard = at % masterCount;
    const ports = { port: await freePort(), busPort: await freePort() };
    members.push({ id: idOf(at), masterId: idOf(shard), shard, ...ports });
  }
  return members;
}

function firstSlot(shard: number): number {
  return Math.floor((shard * slotCount) / masterCount);
}

function lineOf(member: Member, self: Member): string {
  const isMaster = member.id === member.masterId;
  const flags = `${member === self ? "myself," : ""}${isMaster ? "master" : "slave"}`;
  const address = `127.0.0.1:${member.port}@${member.busPort}`;
  const following = isMaster ? "-" : member.masterId;
  const slots = isMaster ? ` ${firstSlot(member.shard)}-${firstSlot(member.shard + 1) - 1}` : "";
  return `${member.id} ${address} ${flags} ${following} 0 0 ${member.shard + 1} connected${slots}`;
}

/** What a node reads at its start: everybody knows everybody, so nothing has to be joined. */
function stateFile(members: readonly Member[], self: Member): string {
  const lines = members.map((member) => lineOf(member, self));
  return [...lines, `vars currentEpoch ${masterCount} lastVoteEpoch 0`, ""].join("\n");
}

async function untilFormed(
  { ask }: Pick<TestRedisNodes, "ask">,
  members: readonly Member[],
): Promise<void> {
  const deadlineMs = Date.now() + patienceMs;
  for (const { port, id, masterId } of members) {
    for (;;) {
      const state = await ask(port, "cluster", "info");
      const isFollowing = id === masterId || (await ask(port, "role")).includes("\nconnected\n");
      if (state.includes("cluster_state:ok") && isFollowing) break;
      if (Date.now() > deadlineMs) throw new Error(`the cluster does not form: ${state}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

/** Starts three masters and their replicas on free ports; `stop` ends them and removes their files. */
export async function startRedisCluster(
  options: TestRedisClusterOptions = {},
): Promise<TestRedisNodes> {
  const { replicas = 0, silenceMs = 2_000 } = options;
  const directory = await mkdtemp(join(tmpdir(), "larkline-cluster-"));
  const members = await planMembers(replicas);
  for (const member of members) {
    await mkdir(join(directory, String(member.port)));
    await writeFile(join(directory, String(member.port), "nodes.conf"), stateFile(members, member));
  }
  const clustering = ["--cluster-enabled", "yes", "--cluster-node-timeout", String(silenceMs)];
  const plans = members.map(({ port, busPort }) => ({
    port,
    settings: [
      ...clustering,
      "--cluster-port",
      String(busPort),
      "--cluster-config-file",
      "nodes.conf",
    ],
  }));
  const nodes = await startNodes(directory, plans, options);
  await untilFormed(nodes, members);
  return {
    ...nodes,
    url: `redis+cluster://${members.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
    stop: async () => {
      await nodes.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
