import { deadline, systemClock, type Clock } from "@larkline/protocol/clock";
import { imageBlobIdOf, maxImageBytes, imageTypeOf } from "@larkline/protocol/stored-image";
import type { BlobStore } from "@larkline/store";
import type { LookupCache } from "@larkline/store/platform";
import type { FeishuApi } from "../feishu-api.ts";

// The images that answers name: from stored bytes, or from an address, to a key of the platform.

/** Knows the images that answers name. */
export interface ImageResolver {
  /**
   * The platform's key of the image; `null` when there is none to show. `hosts`: those whose images may be fetched; absent:
   * stored images only.
   */
  (
    api: FeishuApi,
    reference: string,
    signal: AbortSignal,
    hosts?: readonly string[],
  ): Promise<string | null>;
  /** The platform does not know the key: the image has to be uploaded again. */
  forget?: (api: FeishuApi, reference: string) => Promise<void>;
}

/** Fetches an image of one of these hosts; undefined: it may not, or there is none. Rejects where it cannot be reached. */
export type RemoteImages = (
  address: string,
  hosts: readonly string[],
  signal: AbortSignal,
) => Promise<Buffer | undefined>;

/** Keys of uploaded images do not expire; the blob does. */
const keptMs = 7 * 24 * 3_600_000;
/** For one upload with its repeats. Longer than a delivery has: its next attempt finds the key. */
const uploadMs = 90_000;

/**
 * Uploads the stored images that an answer names, once for all processes and answers, and those that `remote` fetches of
 * hosts that the caller names; no other name makes this process fetch anything. The upload of a stored image outlives
 * the caller that began it, so that a large image does not fail again and again at short deadlines.
 */
export function createImageResolver(
  blobs: BlobStore,
  lookups: LookupCache,
  { clock = systemClock, remote }: { clock?: Clock; remote?: RemoteImages } = {},
): ImageResolver {
  const underWay = new Map<string, Promise<string | null>>();
  const resolve: ImageResolver = async (api, reference, signal, hosts = []) => {
    const blobId = imageBlobIdOf(reference);
    if (blobId === undefined) {
      if (remote === undefined || hosts.length === 0 || !isAddress(reference)) return null;
      const fetchImage = async (): Promise<Buffer | undefined> =>
        await remote(reference, hosts, signal);
      return await unlessAborted(
        uploadRemote({ api, lookups, signal }, reference, fetchImage),
        signal,
      );
    }
    const key = imageKeyName(api, blobId);
    let work = underWay.get(key);
    if (work === undefined) {
      work = uploadImage({ api, blobs, lookups, clock }, blobId).finally(() =>
        underWay.delete(key),
      );
      work.catch(() => undefined); // the callers that wait get the error; all may have left
      underWay.set(key, work);
    }
    return await unlessAborted(work, signal);
  };
  return Object.assign(resolve, {
    forget: async (api: FeishuApi, reference: string): Promise<void> => {
      await lookups.delete(imageKeyName(api, imageBlobIdOf(reference) ?? reference));
    },
  });
}

/** Whether an answer names an image by its address, not by the id of stored bytes. */
export function isAddress(reference: string): boolean {
  return /^https?:\/\//i.test(reference);
}

function imageKeyName({ appId }: FeishuApi, blobId: string): string {
  return `image:${appId}:${blobId}`;
}

/** How long the key of an image at an address is used: there may be another one later. */
const remoteKeptMs = 3_600_000;

async function uploadRemote(
  { api, lookups, signal }: { api: FeishuApi; lookups: LookupCache; signal: AbortSignal },
  address: string,
  fetchImage: () => Promise<Buffer | undefined>,
): Promise<string | null> {
  const key = imageKeyName(api, address);
  const known = await lookups.get(key);
  if (known !== undefined) return known;
  const bytes = await fetchImage();
  if (bytes === undefined || bytes.byteLength > maxImageBytes || imageTypeOf(bytes) === undefined) {
    return null;
  }
  const imageKey = await api.files.uploadImage(bytes, { signal });
  await lookups.set(key, imageKey, remoteKeptMs);
  return imageKey;
}

async function uploadImage(
  {
    api,
    blobs,
    lookups,
    clock,
  }: { api: FeishuApi; blobs: BlobStore; lookups: LookupCache; clock: Clock },
  blobId: string,
): Promise<string | null> {
  const key = imageKeyName(api, blobId);
  const known = await lookups.get(key);
  if (known !== undefined) return known;
  const stored = await blobs.get(blobId);
  // What people send is stored as well, under types that they choose: only what is an image leaves as one.
  if (
    stored === undefined ||
    stored.bytes.byteLength > maxImageBytes ||
    imageTypeOf(stored.bytes) === undefined
  ) {
    return null;
  }
  const imageKey = await api.files.uploadImage(Buffer.from(stored.bytes), {
    signal: deadline(clock, uploadMs),
  });
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
