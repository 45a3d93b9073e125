/** How a call ended that gave no result. `handler`: the handler threw; `closed`: the pool was closed. */
export type ProcessFailure = "handler" | "timeout" | "cancelled" | "crashed" | "oom" | "protocol" | "closed";

/** What {@link ProcessPool.call} rejects with. The pool stays usable, whatever happened to the child. */
export class ProcessCallError extends Error {
  override readonly name = "ProcessCallError";
  readonly failure: ProcessFailure;
  /** Whether the handler's code did it: it threw, exited, ran out of memory or time, or wrote garbage. A kill from outside is not. */
  readonly childFault: boolean;
  /** Exit code and signal of the child, if it ended by itself or was killed from outside. */
  readonly exitCode: number | undefined;
  readonly signal: string | undefined;

  constructor(
    failure: ProcessFailure,
    message: string,
    facts: { childFault: boolean; exitCode?: number | undefined; signal?: string | undefined },
  ) {
    super(message);
    this.failure = failure;
    this.childFault = facts.childFault;
    this.exitCode = facts.exitCode;
    this.signal = facts.signal;
  }
}

export interface ProcessCallOptions {
  /** Cancels: the child's signal aborts; 2 s later the child and what it started is killed. */
  signal: AbortSignal;
  /** Longest time from the moment a child takes the call, ms; then as if cancelled. */
  timeoutMs: number;
  /** What the handler emitted, a JSON value, in order. Must not throw. */
  onEvent(body: unknown): void;
  /** Answers what the handler requested; a rejection's message is told to the handler. */
  onRequest(body: unknown): Promise<unknown>;
}
