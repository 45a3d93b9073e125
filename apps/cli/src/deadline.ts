/** Something took longer than it may. */
export class DeadlineError extends Error {
  override readonly name = "DeadlineError";

  constructor(deadlineMs: number) {
    super(`no answer within ${deadlineMs / 1_000} s`);
  }
}

/**
 * Runs work with a deadline: its signal aborts then, and the result is a rejection even when the
 * work does not listen.
 */
export async function within<T>(deadlineMs: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const over = new AbortController();
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    reject(new DeadlineError(deadlineMs));
    over.abort();
  }, deadlineMs);
  try {
    return await Promise.race([work(over.signal), promise]);
  } finally {
    clearTimeout(timer);
  }
}
