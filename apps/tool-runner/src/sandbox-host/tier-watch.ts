import { systemClock, type Clock } from "@larkline/protocol";
import type { TierFinding } from "@larkline/sandbox";

export interface TierWatchOptions {
  /** Attacks the tier in use once more. */
  probe(): Promise<readonly TierFinding[]>;
  /** Called once, when the attack got through twice in a row. */
  onLost(reason: string): void;
  /** Default one hour. */
  everyMs?: number;
  clock?: Clock;
}

async function finding(probe: TierWatchOptions["probe"]): Promise<string | undefined> {
  try {
    const findings = await probe();
    return findings.some(({ holds }) => holds) ? undefined : findings.map(({ reason }) => reason).join("; ");
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/**
 * Proves again and again that a tier holds: a kernel setting, a container or a program may change under
 * a process that lives for months. A failed proof is repeated at once, since a busy machine fails too.
 */
export function watchTier(options: TierWatchOptions): { stop(): void } {
  const { probe, onLost, everyMs = 3_600_000, clock = systemClock } = options;
  let stopped = false;
  let cancelTimer: () => void;
  const check = async (): Promise<void> => {
    const reason = (await finding(probe)) && (await finding(probe));
    if (stopped) return;
    if (reason === undefined) cancelTimer = clock.after(everyMs, () => void check());
    else onLost(reason);
  };
  cancelTimer = clock.after(everyMs, () => void check());
  return {
    stop: () => {
      stopped = true;
      cancelTimer();
    },
  };
}
