import { setTimeout as delay } from "node:timers/promises";
import type { SessionRetention } from "@larkline/store";
import { expireSessions, keepAudit, tendSessions, type DataKeepingDeps } from "./data-keeping.ts";
import type { Presence } from "./sweeper.ts";

export interface DataKeeperOptions extends Omit<DataKeepingDeps, "retention"> {
  retention: SessionRetention;
  presence: Pick<Presence, "takeDuty">;
  owner: string;
  intervalMs: number;
  /** Told after each round how many sessions the archive has yet to get, and whether the round went well. */
  onRound: (round: { waiting: number; isWhole: boolean }) => void;
}

/** How long `close` lets end what is under way: all of it is done again by whoever keeps the data next. */
const closeMs = 2_000;
/** Sessions that old versions have left without a note of their end are looked for so often. */
const adoptEveryMs = 24 * 3_600_000;

/**
 * Looks after stored data: archives, bounds and expires it. Every worker may do it, one at a time does;
 * two at a time would do no harm. Nothing else waits for it, and what fails is tried again in the next round.
 */
export function startDataKeeper(options: DataKeeperOptions): { close(): Promise<void> } {
  const { presence, owner, intervalMs } = options;
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  let round: Promise<void> = Promise.resolve();

  const keep = async (): Promise<void> => {
    try {
      if (await presence.takeDuty("keep", owner, intervalMs - 50)) await keepAll(options, closing.signal);
    } catch (error) {
      options.onError(error);
    }
    if (!closing.signal.aborted) timer = setTimeout(start, intervalMs);
  };
  const start = (): void => {
    round = keep();
  };
  timer = setTimeout(start, intervalMs);
  return {
    close: async () => {
      closing.abort();
      clearTimeout(timer);
      await Promise.race([round, delay(closeMs, undefined, { ref: false })]);
    },
  };
}

async function keepAll(options: DataKeeperOptions, signal: AbortSignal): Promise<void> {
  const { retention, presence, owner } = options;
  let isWhole = true;
  const deps: DataKeepingDeps = {
    ...options,
    onError: (error) => {
      isWhole = false;
      options.onError(error);
    },
  };
  const steps = [
    async () => await whileMore(async () => await tendSessions(deps, signal), signal),
    async () => await whileMore(async () => await expireSessions(deps, signal), signal),
    async () => await keepAudit(deps, signal),
    async () => {
      if (await presence.takeDuty("adopt", owner, adoptEveryMs)) await retention.adopt(signal);
    },
  ];
  for (const step of steps) {
    if (signal.aborted) return;
    // What fails in one step keeps no other from its work.
    await step().catch(deps.onError);
  }
  options.onRound({ waiting: await retention.untendedCount(), isWhole });
}

async function whileMore(step: () => Promise<boolean>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && (await step())) {
    // The next portion.
  }
}
