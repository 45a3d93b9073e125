/** What a handler in a child gets besides its body. */
export interface CallContext {
  /** Aborts on cancellation and at the deadline: 2 s later the child is killed. */
  signal: AbortSignal;
  /** Sends a JSON value to the caller's `onEvent`. */
  emit(body: unknown): void;
  /** Asks the caller's `onRequest`; rejects with its message. */
  request(body: unknown): Promise<unknown>;
}

export type CallHandler = (body: unknown, context: CallContext) => Promise<unknown>;

/** Serves the calls of the pool that started this process, one at a time, until the pool ends. Call it once. */
export function serveCalls(_handler: CallHandler): void {
  throw new Error("comes within the hour");
}
