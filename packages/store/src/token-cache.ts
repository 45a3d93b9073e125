/** A value that all processes share and only one fetches at a time (vendor access tokens). */
export interface TokenCache {
  /**
   * The cached value under `key`, or the result of `fetch`, which at most one process runs at a
   * time; the others wait for it. A cached value equal to `rejected` (the platform refused it) is
   * dropped and fetched again once. Fails with the error of `fetch`.
   */
  get(key: string, fetch: () => Promise<{ value: string; ttlMs: number }>, rejected?: string): Promise<string>;
}

/** Looks at a token cache from outside: for people. */
export interface TokenValidity {
  /** How long the value that is kept under a name is still good for, ms; undefined when none is. Fetches nothing. */
  validity(name: string): Promise<number | undefined>;
}
