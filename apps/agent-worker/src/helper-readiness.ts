import type { Logger } from "@larkline/process/telemetry";
import type { Clock } from "@larkline/protocol";
import type { InstanceDirectory } from "@larkline/store/operations";
import type { Agent } from "./agent.ts";

/** How long the last result is used, ms. */
const lookEveryMs = 5_000;

/**
 * Whether all processes that live know of helpers: one of the version before would not find, stop or remove their sessions.
 * Looked up by workers whose agents have some, and by no other.
 */
export class HelperReadiness {
  isReady = false;
  /** They can also read the updates that an asker gets about a helper that waits for people. */
  readsWaits = false;

  async start({ agents, instances, clock, log }: Processes, signal: AbortSignal): Promise<void> {
    if ([...agents.values()].every(({ helpers }) => helpers.size === 0)) return;
    const look = async (): Promise<void> => {
      const living = (await instances.instances()).filter(
        ({ expiresAtMs }) => expiresAtMs > clock.now(),
      );
      const older = living.filter(({ features = [] }) => !features.includes("helpers"));
      if (older.length > 0 && this.isReady) {
        log.warn(
          { older: older.map(({ id }) => id) },
          "processes of the version before live: no helper is started",
        );
      }
      this.isReady = older.length === 0;
      this.readsWaits = living.every(({ features = [] }) => features.includes("helper-waits"));
    };
    await look();
    const again = (): void =>
      void look().catch((error: unknown) => log.warn({ error }, "processes were not looked up"));
    signal.addEventListener("abort", clock.every(lookEveryMs, again), { once: true });
  }
}

/** What it looks at. */
interface Processes {
  readonly agents: ReadonlyMap<string, Agent>;
  readonly instances: InstanceDirectory;
  readonly clock: Clock;
  readonly log: Logger;
}
