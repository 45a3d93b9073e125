import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { startRedis, type TestRedis, type TestRedisUsers } from "./redis.ts";

const run = promisify(execFile);

/** Users of servers that follow each other: one of them may do that, and everything else. */
export interface TestRedisNodeUsers extends TestRedisUsers {
  administrator: { name: string; password: string };
}

export interface TestRedisNodesOptions {
  users?: TestRedisNodeUsers;
  /** Further settings of every server, as `redis-server` takes them. */
  settings?: readonly string[];
  /** How long a server may be silent before it counts as dead, ms. Default 2,000, for busy machines. */
  silenceMs?: number;
}

/** Redis servers of a test: masters and replicas that can take over from them. */
export interface TestRedisNodes {
  /** As `connectRedis` takes it. */
  url: string;
  /** Ports of the servers that are masters now. */
  masters(): Promise<number[]>;
  /** Ends one with SIGKILL. */
  kill(port: number): Promise<void>;
  /** Starts a killed one again, with its data. */
  revive(port: number): Promise<void>;
  /** What one answers to a command. */
  ask(port: number, ...command: string[]): Promise<string>;
  stop(): Promise<void>;
}

export type NodePlan = Readonly<{ port: number; settings: readonly string[] }>;

function accountOf({ users }: TestRedisNodesOptions): string[] {
  if (users === undefined) return [];
  const { name, password } = users.administrator;
  return ["--masteruser", name, "--masterauth", password];
}

/** Starts one server for each plan, with its files in a folder of `directory` that is named by its port. */
export async function startNodes(
  directory: string,
  plans: readonly NodePlan[],
  options: TestRedisNodesOptions,
): Promise<Omit<TestRedisNodes, "url">> {
  const { users, settings = [] } = options;
  const nodes = new Map<number, TestRedis>();
  const start = async (plan: NodePlan): Promise<void> => {
    const folder = join(directory, String(plan.port));
    await mkdir(folder, { recursive: true });
    const all = [...plan.settings, ...accountOf(options), ...settings];
    const node = await startRedis({
      port: plan.port,
      directory: folder,
      settings: all,
      ...(users && { users }),
    });
    nodes.set(plan.port, node);
  };
  const kill = async (port: number): Promise<void> => {
    const node = nodes.get(port);
    nodes.delete(port);
    if (node === undefined) return;
    const gone = once(node.process, "exit");
    node.process.kill("SIGKILL");
    await gone;
  };
  const ask = async (port: number, ...command: string[]): Promise<string> => {
    const { name, password } = users?.administrator ?? { name: "", password: "" };
    const account = name === "" ? [] : ["--no-auth-warning", "--user", name, "--pass", password];
    return (await run("redis-cli", ["-p", String(port), ...account, ...command])).stdout;
  };
  const isMaster = async (port: number): Promise<boolean> => {
    const role = await ask(port, "role").catch(() => ""); // it has just died
    return role.startsWith("master");
  };
  await Promise.all(plans.map(start));
  return {
    masters: async () => {
      const ports = [...nodes.keys()];
      const are = await Promise.all(ports.map(isMaster));
      return ports.filter((_, at) => are[at]);
    },
    kill,
    revive: async (port) => {
      const plan = plans.find((each) => each.port === port);
      if (plan === undefined) throw new RangeError(`no server has port ${port}`);
      await start(plan);
    },
    ask,
    stop: async () => {
      await Promise.all([...nodes.keys()].map(kill));
    },
  };
}
