/** Longest value that a lookup cache keeps, in bytes of UTF-8. */
export const maxLookupBytes = 4_096;

/**
 * Small facts that cost a call to find out (names, kinds of chats, ids of reactions), shared by all
 * processes and forgotten in time. Losing one is harmless.
 */
export interface LookupCache {
  /** `key` is any text up to 200 characters. */
  get(key: string): Promise<string | undefined>;
  /** A value longer than {@link maxLookupBytes} is not kept. */
  set(key: string, value: string, ttlMs: number): Promise<void>;
  /** Removes and returns it: at most one caller gets it. */
  take(key: string): Promise<string | undefined>;
  delete(key: string): Promise<void>;
}
