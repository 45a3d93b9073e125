import type { InboundMessage } from "@larkline/protocol";
import { createKeyspace, defaultNamespace, type Keyspace, type StoreOptions } from "./keys.ts";
import { LookupCache } from "./platform.ts";
import { SessionStore } from "./session-store.ts";
import type { AppendResult } from "./session-types.ts";

const keptMs = 60_000;

/**
 * A store for messages that a process sends itself before it counts as ready. It runs the same scripts over keys of its
 * own, which expire within a minute, and which no sweeper looks at. Made for `append` alone.
 */
export class WarmUpStore extends SessionStore {
  readonly #expire: (key: string) => Promise<unknown>;
  readonly #keyspace: Keyspace;

  constructor({ redis, namespace: real = defaultNamespace }: StoreOptions) {
    const namespace = `${real}:warm-up`;
    super({ redis, namespace, dedupTtlMs: keptMs });
    this.#expire = async (key) => await redis.pexpire(key, keptMs);
    this.#keyspace = createKeyspace(namespace);
  }

  override async append(...given: Parameters<SessionStore["append"]>): Promise<AppendResult> {
    const [{ session: name }]: [InboundMessage, ...unknown[]] = given;
    const { session, inbox, dirty, who, people } = this.#keyspace.session(name);
    const appending = super.append(...given);
    // In one write with the script: a process that is killed leaves nothing that stays.
    const [appended] = await Promise.all([
      appending,
      ...[session, inbox, dirty, who, people].map(this.#expire),
    ]);
    return appended;
  }
}

/** Facts that only this process knows, and only while it warms up. */
export class WarmUpLookups extends LookupCache {
  readonly #facts = new Map<string, string>();

  override async get(key: string): Promise<string | undefined> {
    return this.#facts.get(key);
  }

  override async set(key: string, value: string): Promise<void> {
    this.#facts.set(key, value);
  }

  override async take(key: string): Promise<string | undefined> {
    const value = this.#facts.get(key);
    this.#facts.delete(key);
    return value;
  }

  override async delete(key: string): Promise<void> {
    this.#facts.delete(key);
  }
}
