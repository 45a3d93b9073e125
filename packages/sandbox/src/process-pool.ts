import type { ProcessCallOptions } from "./process-call.ts";

export interface ProcessPoolOptions {
  /** A module that calls `serveCalls` of `@larkline/sandbox/child`; run in each child. */
  entry: URL;
  /** Children, and so calls at once. Others wait in order. */
  size: number;
  /** Heap of a child; 128 MB more in all and it is killed (in a call) or replaced. Default 256. */
  memoryMb?: number;
  /** Calls after which a child is replaced. Default 500. */
  maxCalls?: number;
  /** Environment of the children besides PATH, LANG and TZ. Nothing of this process's own. */
  env?: Readonly<Record<string, string>>;
  /** A line that a child wrote, cut at 8 KB. */
  onLog?(line: string, stream: "stdout" | "stderr"): void;
  nodePath?: string;
}

/** Reused warm children that take one call at a time: faults of trusted code stay in them. */
export interface ProcessPool {
  /** `body` and the result are JSON values. Rejects with a {@link ProcessCallError}, or a TypeError for a body that is no JSON. */
  call(body: unknown, options: ProcessCallOptions): Promise<unknown>;
  /** Kills the children; calls under way reject as `closed`. Idempotent. */
  close(): Promise<void>;
}

export function createProcessPool(_options: ProcessPoolOptions): ProcessPool {
  throw new Error("comes within the hour");
}
