import { setTimeout as delay } from "node:timers/promises";
import type { TestRedisNodes } from "@larkline/testkit";

const patienceMs = 60_000;
const lookMs = 20;

async function until(what: string, fact: () => Promise<boolean>): Promise<void> {
  const deadlineMs = Date.now() + patienceMs;
  while (!(await fact())) {
    if (Date.now() > deadlineMs) throw new Error(`not within ${patienceMs} ms: ${what}`);
    await delay(lookMs);
  }
}

/** Ports of those that copy what the master takes. */
async function replicasOf({ ask }: TestRedisNodes, master: number): Promise<number[]> {
  const facts = await ask(master, "info", "replication");
  return [...facts.matchAll(/^slave\d+:ip=[^,]*,port=(\d+)/gm)].map(([, port]) => Number(port));
}

/** From here on the master works alone: its replicas are no longer let in. */
async function cutOff(
  { ask }: TestRedisNodes,
  master: number,
  replicas: readonly number[],
): Promise<void> {
  for (const replica of replicas) await ask(replica, "config", "set", "masterauth", "wrong");
  await ask(master, "client", "kill", "type", "replica");
}

async function isInSync({ ask }: TestRedisNodes, port: number): Promise<boolean> {
  const facts = await ask(port, "info", "replication").catch(() => "");
  return facts.includes("role:slave") && facts.includes("master_link_status:up");
}

export interface MasterFailure {
  /** For how long before its end the master has no replica, ms: what it takes meanwhile, no replica has. */
  cutMs: number;
  /** When its supervisor starts it again, ms after its end. Default: once all servers know which replica took over. */
  returnMs?: number;
}

/**
 * Kills a master, waits until a replica has taken over, and until the killed server is a replica itself.
 * Resolves with the moment of its end, on the clock of `performance`.
 */
export async function replaceMaster(
  nodes: TestRedisNodes,
  { cutMs, returnMs }: MasterFailure,
): Promise<number> {
  const masters = await nodes.masters();
  const victim = masters[Math.floor(Math.random() * masters.length)] ?? 0;
  const replicas = await replicasOf(nodes, victim);
  if (cutMs > 0) {
    await cutOff(nodes, victim, replicas);
    await delay(cutMs);
  }
  const atMs = performance.now();
  await nodes.kill(victim);
  for (const replica of replicas) await nodes.ask(replica, "config", "set", "masterauth", "");
  if (returnMs !== undefined) {
    await delay(returnMs);
    await nodes.revive(victim);
  }
  await until("a replica takes over", async () => {
    const now = await nodes.masters();
    return now.length === masters.length && !now.includes(victim);
  });
  if (returnMs === undefined) await nodes.revive(victim);
  await until("the old master follows the new one", async () => await isInSync(nodes, victim));
  for (const replica of replicas) {
    await until("all others do, too", async () => {
      const isMaster = (await nodes.masters()).includes(replica);
      return isMaster || (await isInSync(nodes, replica));
    });
  }
  return atMs;
}
