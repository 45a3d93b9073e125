/** Rejects when `work` takes longer than `ms`; the work itself goes on. */
export async function withDeadline<T>(work: Promise<T>, ms: number): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** {@link withDeadline} for several works, all of which have to end within `ms` from now. */
export function sharedDeadline(ms: number): <T>(work: Promise<T>) => Promise<T> {
  const endMs = performance.now() + ms;
  return async (work) => await withDeadline(work, Math.max(0, Math.ceil(endMs - performance.now())));
}
