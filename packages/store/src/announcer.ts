import { sharedNow } from "@larkline/protocol";
import { hostname } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { type Instance, type InstanceDirectory, stateVersion } from "./instance-directory.ts";

export interface AnnouncerOptions {
  directory: Pick<InstanceDirectory, "announce" | "withdraw">;
  id: string;
  service: string;
  version: string;
  apps: readonly string[];
  /** How events come in at this moment; absent: this process takes none. */
  feeds?: () => Instance["feeds"];
  /** Which clocks differ at this moment. */
  clockProblem?: () => string | undefined;
  /** Told when the directory could not be told; it is told again soon. */
  onError: (error: unknown) => void;
}

const intervalMs = 5_000;
const ttlMs = 16_000;
const goodbyeMs = 1_000;

/**
 * Tells the directory every few seconds that this process lives, and how. Begins at once, waits for
 * nothing: work does not depend on it.
 */
export function startAnnouncing(options: AnnouncerOptions): { close(): Promise<void> } {
  const { directory, id, service, version, apps, feeds = () => [], clockProblem, onError } = options;
  const host = hostname();
  const startedAtMs = sharedNow();
  const announce = async (): Promise<void> => {
    const shown = { id, service, host, version, stateVersion, startedAtMs, apps };
    const instance = { ...shown, feeds: feeds(), clock: clockProblem?.() };
    await directory.announce(instance, ttlMs).catch(onError);
  };
  let telling = announce();
  const timer = setInterval(() => void (telling = announce()), intervalMs);
  return {
    close: async () => {
      clearInterval(timer);
      const goodbye = telling.then(async () => await directory.withdraw(id)).catch(onError);
      // Whoever stops does not wait for a store that does not answer: its word runs out.
      await Promise.race([goodbye, delay(goodbyeMs, undefined, { ref: false })]);
    },
  };
}
