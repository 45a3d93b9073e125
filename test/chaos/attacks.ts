import { setTimeout as delay } from "node:timers/promises";
import type { AppProcess } from "../system/app-process.ts";
import type { ProcessSystem } from "../system/system.ts";
import type { createRandom } from "./random.ts";

export type Kind = "ingress" | "agent-worker" | "tool-runner";
type Victim = Kind | "redis";

/** The system's own list of the processes of one kind. */
export function groupOf(system: ProcessSystem, kind: Kind): AppProcess[] {
  if (kind === "ingress") return system.ingresses;
  return kind === "agent-worker" ? system.workers : system.runners;
}

/** Kills one process with SIGKILL and starts another in its place. */
async function killOne(system: ProcessSystem, kind: Kind, index: number): Promise<void> {
  const group = groupOf(system, kind);
  const victim = group[index];
  if (victim === undefined) return;
  await victim.kill();
  group[index] = await system.start(kind);
}

/** Redis is killed with SIGKILL and comes back with what its append-only file holds. */
export async function restartRedis(
  system: ProcessSystem,
  random: ReturnType<typeof createRandom>,
): Promise<void> {
  system.redis.process.kill("SIGKILL");
  await system.withoutRedis(async () => await delay(random.below(1_500)));
}

/** Kills so far, by kind. */
export type Kills = Record<string, number>;

/**
 * Kills processes of these kinds, one after the other, until it is over; counts them by kind, in `kills` as it goes. A
 * failure rejects the returned promise.
 */
export function killUntil(
  ...[system, plan, over]: Parameters<typeof killAndCount>
): Promise<Kills> {
  const killing = killAndCount(system, plan, over);
  killing.catch(() => undefined); // the caller that awaits it gets the error
  return killing;
}

interface KillPlan {
  kinds: readonly Victim[];
  /** Pause between two kills: half of it to one and a half times. */
  pauseMs: number;
  random: ReturnType<typeof createRandom>;
  kills?: Kills;
  /** After so many it is over. */
  most?: number;
}

async function killAndCount(
  system: ProcessSystem,
  { kinds, pauseMs, random, kills = {}, most = Number.POSITIVE_INFINITY }: KillPlan,
  over: AbortSignal,
): Promise<Kills> {
  for (let count = 0; count < most && !over.aborted; count += 1) {
    await delay(pauseMs / 2 + random.below(pauseMs), undefined, { signal: over }).catch(
      () => undefined,
    ); // it is over
    if (over.aborted) break;
    const kind = random.pick(kinds);
    if (kind === "redis") await restartRedis(system, random);
    else await killOne(system, kind, random.below(groupOf(system, kind).length));
    kills[kind] = (kills[kind] ?? 0) + 1;
  }
  return kills;
}
