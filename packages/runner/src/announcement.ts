import type { RunnerDirectory, RunnerInstance } from "@larkline/session";

export interface AnnouncementOptions {
  directory: Pick<RunnerDirectory, "announce" | "withdraw">;
  instance: RunnerInstance;
  /** Default 2 s. */
  intervalMs?: number;
  /** Default 8 s: how long workers believe in a runner that fell silent. */
  ttlMs?: number;
  onError: (error: unknown) => void;
  /** The announcement was refused after it had been accepted: this runner was silent for too long. */
  onRefused: (conflict: string) => void;
}

export interface Announcement {
  /** Takes the instance out of the directory; tells whether it was the runner's last. Idempotent. */
  withdraw(): Promise<{ last: boolean }>;
}

/** The announcement was refused: another living runner offers the same tool in another way. */
export class AnnouncementRefusedError extends Error {
  override readonly name = "AnnouncementRefusedError";
}

/** Announces an instance and keeps renewing. Throws {@link AnnouncementRefusedError}. */
export async function startAnnouncement(options: AnnouncementOptions): Promise<Announcement> {
  const { directory, instance, intervalMs = 2_000, ttlMs = 8_000, onError, onRefused } = options;
  const first = await directory.announce(instance, ttlMs);
  if (!first.ok) throw new AnnouncementRefusedError(first.conflict);
  let beating: Promise<void> = Promise.resolve();
  let busy = false;
  const beat = async (): Promise<void> => {
    const renewed = await directory.announce(instance, ttlMs);
    if (!renewed.ok) onRefused(renewed.conflict);
  };
  const timer = setInterval(() => {
    if (busy) return;
    busy = true;
    beating = beat()
      .catch(onError)
      .finally(() => {
        busy = false;
      });
  }, intervalMs);
  let withdrawn: Promise<{ last: boolean }> | undefined;
  return {
    withdraw: async () => {
      clearInterval(timer);
      await beating; // a late renewal would bring the instance back
      return await (withdrawn ??= directory.withdraw(instance.runner, instance.instance));
    },
  };
}
