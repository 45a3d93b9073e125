import { sharedNow } from "@larkline/protocol";
import { setTimeout as delay } from "node:timers/promises";
import { stateVersion, type InstanceDirectory } from "@larkline/store";
import type { Presence, StateMigration } from "@larkline/store/redis";
import type { Logger } from "@larkline/process/telemetry";

export interface StateTakeoverOptions {
  migration: Pick<StateMigration, "isDone" | "run">;
  instances: Pick<InstanceDirectory, "instances">;
  presence: Pick<Presence, "takeDuty">;
  owner: string;
  logger: Logger;
  signal: AbortSignal;
}

/** How long one worker may take before another one moves the state, too: that does no harm. */
const dutyMs = 60_000;
const pauseMs = 500;

/**
 * One try to take over what the version before has stored: false while one of its processes lives, or while
 * another worker is at it. Until it is taken over no worker may take jobs.
 */
export async function takeOverState(options: StateTakeoverOptions): Promise<boolean> {
  const { migration, instances, presence, owner, logger, signal } = options;
  if (await migration.isDone()) return true;
  const nowMs = sharedNow();
  const old = (await instances.instances()).filter(
    ({ stateVersion: version = 1, expiresAtMs }) => version < stateVersion && expiresAtMs > nowMs,
  );
  if (old.length > 0) {
    const processes = old.map(({ service, host, id }) => `${service} ${host} ${id}`);
    logger.warn({ processes }, "processes of the version before still run: no jobs are taken until all have stopped");
    return false;
  }
  if (!(await presence.takeDuty("migrate-state", owner, dutyMs))) return await migration.isDone();
  const sessions = await migration.run(signal);
  logger.info({ sessions }, "what the version before has stored is sealed");
  return true;
}

/** Tries until it is taken over, or `signal` aborts. Never rejects; false when aborted. */
export async function untilStateIsTakenOver(options: StateTakeoverOptions): Promise<boolean> {
  const { logger, signal } = options;
  while (!signal.aborted) {
    try {
      if (await takeOverState(options)) return true;
    } catch (error) {
      if (!signal.aborted) logger.warn({ error }, "what the version before has stored is not taken over yet");
    }
    await delay(pauseMs, undefined, { signal }).catch(() => undefined);
  }
  return false;
}
