import type { ToolAnnouncement } from "@larkline/protocol";
import type { RunnerDirectory, RunnerInstance } from "@larkline/store";

export interface AnnouncementOptions {
  directory: Pick<RunnerDirectory, "announce" | "withdraw">;
  instance: Omit<RunnerInstance, "tools" | "clock">;
  /** Which clocks differ at this moment. */
  clockProblem?: () => string | undefined;
  /** What is offered now. */
  tools(): ToolAnnouncement[];
  /** Default 2 s. */
  intervalMs?: number;
  /** Default 8 s: how long workers believe in a runner that fell silent. */
  ttlMs?: number;
  onError: (error: unknown) => void;
  /**
   * Told when it changes whether this instance is of the runner's current generation: a superseded one finishes
   * its calls and takes no new ones. Not told at first while it is.
   */
  onCurrent: (isCurrent: boolean) => void;
  /**
   * The announcement was refused after it had been accepted, because of this tool: this runner was
   * silent for too long, and another one offers the tool now.
   */
  onRefused: (conflict: string, tool: string) => void;
}

export interface Announcement {
  /** Announces at once what is offered now. */
  changed(): void;
  /** Takes the instance out of the directory; tells whether it was the runner's last. Idempotent. */
  withdraw(): Promise<{ last: boolean }>;
}

/** The announcement was refused: another living runner offers the same tool in another way. */
export class AnnouncementRefusedError extends Error {
  override readonly name = "AnnouncementRefusedError";
}

/** Announces an instance and keeps renewing. Throws {@link AnnouncementRefusedError}. */
export async function startAnnouncement(options: AnnouncementOptions): Promise<Announcement> {
  const { directory, instance, tools, clockProblem, intervalMs = 2_000, ttlMs = 8_000 } = options;
  const { onError, onCurrent, onRefused } = options;
  const announce = async () =>
    await directory.announce({ ...instance, tools: tools(), clock: clockProblem?.() }, ttlMs);
  const first = await announce();
  if (!first.ok) throw new AnnouncementRefusedError(first.conflict);
  let isCurrent = true;
  const tell = (now: boolean): void => {
    if (isCurrent !== now) onCurrent(now);
    isCurrent = now;
  };
  tell(first.isCurrent);
  let beating: Promise<void> = Promise.resolve();
  let state: "idle" | "busy" | "again" | "over" = "idle";
  const beat = async (): Promise<void> => {
    const renewed = await announce();
    if (renewed.ok) tell(renewed.isCurrent);
    else onRefused(renewed.conflict, renewed.tool);
  };
  const renew = (): void => {
    if (state !== "idle") return;
    state = "busy";
    beating = beat()
      .catch(onError)
      .finally(() => {
        const isBehind = state === "again";
        if (state !== "over") state = "idle";
        if (isBehind) renew();
      });
  };
  const timer = setInterval(renew, intervalMs);
  let withdrawn: Promise<{ last: boolean }> | undefined;
  return {
    changed: () => {
      if (state === "busy") state = "again";
      else renew();
    },
    withdraw: async () => {
      clearInterval(timer);
      state = "over";
      await beating; // a late renewal would bring the instance back
      return await (withdrawn ??= directory.withdraw(instance.runner, instance.instance));
    },
  };
}
