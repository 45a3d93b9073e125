import type { ImageResolver } from "@larkline/feishu";
import type { BlobStore, LookupCache } from "@larkline/session";

/** How an answer names a stored image: `![alt](blob_...)`, also with the scheme `blob:`. */
const reference = /^(?:blob:)?(blob_[\w-]{43})$/;

/** Keys of uploaded images do not expire; the blob does. */
const keptMs = 7 * 24 * 3_600_000;

/** Uploads the stored images that an answer names, once for all processes; nothing else becomes an image. */
export function createImageResolver(deps: { blobs: Pick<BlobStore, "get">; lookups: LookupCache }): ImageResolver {
  return async (api, name, signal) => {
    const blobId = reference.exec(name)?.[1];
    if (blobId === undefined) return null;
    const key = `image:${api.appId}:${blobId}`;
    const known = await deps.lookups.get(key);
    if (known !== undefined) return known;
    const stored = await deps.blobs.get(blobId);
    if (stored === undefined || !stored.facts.mediaType.startsWith("image/")) return null;
    const imageKey = await api.uploadImage(Buffer.from(stored.bytes), { signal });
    await deps.lookups.set(key, imageKey, keptMs);
    return imageKey;
  };
}
