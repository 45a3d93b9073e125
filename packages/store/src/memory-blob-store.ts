import {
  blobIdOf,
  blobTooLarge,
  defaultBlobTtlMs,
  defaultMaxBlobBytes,
  type BlobStore,
  type StoredBlob,
} from "./blob-store.ts";

export interface MemoryBlobStoreOptions {
  /** How long a blob is kept after its last put. Default 7 days. */
  ttlMs?: number;
  /** Largest blob, bytes. Default 32 MiB. */
  maxBytes?: number;
  /** The clock, epoch ms. */
  now?: () => number;
}

/** A blob store for one process. */
export function createMemoryBlobStore(options: MemoryBlobStoreOptions = {}): BlobStore {
  const { ttlMs = defaultBlobTtlMs, maxBytes = defaultMaxBlobBytes, now = Date.now } = options;
  const blobs = new Map<string, StoredBlob & { untilMs: number }>();

  function dropExpired(): void {
    for (const [id, { untilMs }] of blobs) if (untilMs <= now()) blobs.delete(id);
  }

  return {
    async put(bytes, facts) {
      if (bytes.byteLength > maxBytes) throw blobTooLarge(bytes.byteLength, maxBytes);
      dropExpired();
      const id = blobIdOf(bytes);
      blobs.set(id, { bytes: Uint8Array.from(bytes), facts: { ...facts }, untilMs: now() + ttlMs });
      return id;
    },
    async get(blobId) {
      dropExpired();
      const blob = blobs.get(blobId);
      return blob && { bytes: Uint8Array.from(blob.bytes), facts: { ...blob.facts } };
    },
    async delete(blobId) {
      blobs.delete(blobId);
    },
  };
}
