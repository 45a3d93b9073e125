import type { ToolAnnouncement } from "@larkline/protocol";

/** One process of a runner, as it announces itself. */
export interface RunnerInstance {
  runner: string;
  instance: string;
  tools: ToolAnnouncement[];
}

/** One that lives. */
export interface LivingRunner extends RunnerInstance {
  /** Epoch ms at which it counts as gone, unless it announces itself again before. */
  expiresAtMs: number;
}

/** `tool`: the first that is refused; `conflict` says why, for people. */
export type AnnounceResult = { ok: true } | { ok: false; conflict: string; tool: string };

/** A tool that can be called now. */
export interface AvailableTool {
  runner: string;
  announcement: ToolAnnouncement;
}

/** Which runners are alive and what they offer. */
export interface RunnerDirectory {
  /**
   * Announces or renews an instance for `ttlMs`. Refused when a living instance of any runner
   * offers a tool of the same name with another schema, effect or approval rule, or when
   * another runner offers the same name; `conflict` says which.
   */
  announce(instance: RunnerInstance, ttlMs: number): Promise<AnnounceResult>;
  /** Takes an instance out. Returns whether it was the runner's last. */
  withdraw(runner: string, instance: string): Promise<{ last: boolean }>;
  /** Tools of living instances, by name. */
  tools(): Promise<ReadonlyMap<string, AvailableTool>>;
  /** Runners with at least one living instance. */
  runners(): Promise<LivingRunner[]>;
  /**
   * Calls `listener` after every announce of something new and every withdraw, until `signal`
   * aborts; also when changes may have been missed. Resolves when watching has begun.
   */
  watch(listener: () => void, signal: AbortSignal): Promise<void>;
}
