import type { FeishuApi, ImageResolver } from "@larkline/feishu";
import { imageBlobIdOf, imageTypeOf, maxImageBytes } from "@larkline/protocol";
import type { BlobStore, LookupCache } from "@larkline/store";

export interface ImageResolverDeps {
  blobs: Pick<BlobStore, "get">;
  lookups: LookupCache;
}

/** Keys of uploaded images do not expire; the blob does. */
const keptMs = 7 * 24 * 3_600_000;
/** For one upload with its repeats. Longer than a delivery has: its next attempt finds the key. */
const uploadMs = 90_000;

function keyName({ appId }: FeishuApi, blobId: string): string {
  return `image:${appId}:${blobId}`;
}

async function uploaded(api: FeishuApi, blobId: string, { blobs, lookups }: ImageResolverDeps): Promise<string | null> {
  const key = keyName(api, blobId);
  const known = await lookups.get(key);
  if (known !== undefined) return known;
  const stored = await blobs.get(blobId);
  // What people send is stored as well, under types that they choose: only what is an image leaves as one.
  if (stored === undefined || stored.bytes.byteLength > maxImageBytes || imageTypeOf(stored.bytes) === undefined) {
    return null;
  }
  const imageKey = await api.files.uploadImage(Buffer.from(stored.bytes), { signal: AbortSignal.timeout(uploadMs) });
  await lookups.set(key, imageKey, keptMs);
  return imageKey;
}

/** Settles like `work`, or rejects with the signal's reason as soon as it aborts. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const stop = (): void => reject(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/**
 * Uploads the stored images that an answer names, once for all processes and answers; nothing else
 * becomes an image, and no name makes this process fetch anything but a blob. An upload outlives the
 * caller that began it, so that a large image does not fail again and again at short deadlines.
 */
export function createImageResolver(deps: ImageResolverDeps): ImageResolver {
  const underWay = new Map<string, Promise<string | null>>();
  const resolve: ImageResolver = async (api, reference, signal) => {
    const blobId = imageBlobIdOf(reference);
    if (blobId === undefined) return null;
    const key = keyName(api, blobId);
    let work = underWay.get(key);
    if (work === undefined) {
      work = uploaded(api, blobId, deps).finally(() => underWay.delete(key));
      work.catch(() => undefined); // whoever waits is told; there may be nobody left
      underWay.set(key, work);
    }
    return await unlessAborted(work, signal);
  };
  return Object.assign(resolve, {
    forget: async (api: FeishuApi, reference: string): Promise<void> => {
      const blobId = imageBlobIdOf(reference);
      if (blobId !== undefined) await deps.lookups.delete(keyName(api, blobId));
    },
  });
}
