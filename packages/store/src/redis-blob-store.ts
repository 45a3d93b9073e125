import {
  type BlobFacts,
  blobFactsFrom,
  blobIdOf,
  type BlobStore,
  blobTooLarge,
  defaultBlobTtlMs,
  defaultMaxBlobBytes,
  isBlobId,
  type StoredBlob,
} from "./blob-store.ts";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

interface BlobStoreOptions extends StoreOptions {
  /** How long a blob is kept after its last put. Default 7 days. */
  ttlMs?: number;
  /** Largest blob, bytes. Default 32 MiB: a larger value would stall Redis for everybody. */
  maxBytes?: number;
}

/** The blob store on Redis: one hash per blob, each in a slot of its own. */
export class RedisBlobStore implements BlobStore {
  readonly #redis: RedisConnection;
  readonly #keyOf: (blobId: string) => string;
  readonly #ttlMs: number;
  readonly #maxBytes: number;

  constructor(options: BlobStoreOptions) {
    this.#redis = options.redis;
    this.#keyOf = createKeyspace(options.namespace).blob;
    this.#ttlMs = options.ttlMs ?? defaultBlobTtlMs;
    this.#maxBytes = options.maxBytes ?? defaultMaxBlobBytes;
  }

  async put(bytes: Uint8Array, facts: BlobFacts): Promise<string> {
    if (bytes.byteLength > this.#maxBytes) throw blobTooLarge(bytes.byteLength, this.#maxBytes);
    // A copy: the driver may still be writing when the caller changes his bytes.
    const content = Buffer.from(bytes);
    const id = blobIdOf(content);
    const key = this.#keyOf(id);
    // One transaction, or a crash in between would leave a blob that never expires.
    const replies = await this.#redis
      .multi()
      .hset(key, { facts: JSON.stringify(facts), bytes: content })
      .pexpire(key, this.#ttlMs)
      .exec();
    for (const [error] of replies ?? []) if (error !== null) throw error;
    return id;
  }

  async get(blobId: string): Promise<StoredBlob | undefined> {
    if (!isBlobId(blobId)) return undefined;
    const [facts, bytes] = await this.#redis.hmgetBuffer(this.#keyOf(blobId), "facts", "bytes");
    const readable = facts && blobFactsFrom(facts.toString());
    // Runners may write under any id: what is not what the id says is not there.
    return readable && bytes && blobIdOf(bytes) === blobId ? { bytes, facts: readable } : undefined;
  }

  async delete(blobId: string): Promise<void> {
    if (isBlobId(blobId)) await this.#redis.unlink(this.#keyOf(blobId));
  }
}
