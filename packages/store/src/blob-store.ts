import { createHash } from "node:crypto";
import { jsonParserOf } from "@larkline/protocol";
import { newEngineError, type EngineError } from "@larkline/protocol/error";
import { Type, type Static } from "@larkline/protocol/type";
import type { RedisConnection } from "./connection.ts";
import { createKeyspace, type StoreOptions } from "./keys.ts";

/**
 * What is known of a blob besides its bytes. `name` is what a person called the file: for display
 * only, never part of a path or key.
 */
const BlobFacts = Type.Object({ mediaType: Type.String(), name: Type.Optional(Type.String()) });

export type BlobFacts = Static<typeof BlobFacts>;

/** A blob as it was put. */
export interface StoredBlob {
  bytes: Uint8Array;
  facts: BlobFacts;
}

/** Content too large for history: files, images, long texts. */
export interface BlobStore {
  /**
   * Stores bytes under an id made from their SHA-256: the same bytes get the same id, their expiry starts anew and the
   * newest facts replace the older ones. Rejects bytes above the store's limit with an EngineError `api_bad_request`.
   */
  put(bytes: Uint8Array, facts: BlobFacts): Promise<string>;
  /** The blob, or undefined when the id is unknown, expired or no blob id at all. */
  get(blobId: string): Promise<StoredBlob | undefined>;
  /** Removes a blob before its time; all who put the same bytes lose them, too. A blob that does not exist is ignored. */
  delete(blobId: string): Promise<void>;
}

/** How long a blob is kept after it was last put when nothing else is configured: 7 days. */
export const defaultBlobTtlMs = 7 * 86_400_000;

/** The largest blob that a store takes when nothing else is configured: 32 MiB, in bytes. */
export const defaultMaxBlobBytes = 32 * 1024 * 1024;

const parseFacts = jsonParserOf(BlobFacts);

const blobIdPattern = /^blob_[\w-]{43}$/;

/** The id of these bytes: `blob_` and their SHA-256 as 43 characters of base64url. */
export function blobIdOf(bytes: Uint8Array): string {
  return `blob_${createHash("sha256").update(bytes).digest("base64url")}`;
}

/** Whether a text has the form of a blob id, and so is safe in a key or a file name. */
export function isBlobId(text: string): boolean {
  return blobIdPattern.test(text);
}

/** The error with which every store refuses bytes above its cap. */
export function blobTooLarge(bytes: number, maxBytes: number): EngineError {
  return newEngineError(
    "api_bad_request",
    `the content has ${bytes} bytes, more than the ${maxBytes} that can be kept`,
    {
      suggestion: "Send a smaller file.",
    },
  );
}

/** Facts that a store wrote as JSON; undefined when they are not readable. */
export function blobFactsFrom(json: string): BlobFacts | undefined {
  const parsed = parseFacts(json);
  return parsed.ok ? parsed.value : undefined;
}

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
    this.#keyOf = createKeyspace(options.namespace).blobOf;
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
    // Runners may write under any id: bytes that do not have the hash of their id count as absent.
    return readable && bytes && blobIdOf(bytes) === blobId ? { bytes, facts: readable } : undefined;
  }

  async delete(blobId: string): Promise<void> {
    if (isBlobId(blobId)) await this.#redis.unlink(this.#keyOf(blobId));
  }
}
