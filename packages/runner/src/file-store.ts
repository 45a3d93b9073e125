import type { BlobStore } from "@larkline/store";
import type { StoreFile } from "@larkline/tool-kit";

export interface FileStoreOptions {
  blobs: Pick<BlobStore, "put">;
  onError: (error: unknown) => void;
}

/** Keeps what tools save where workers find it. Why it fails is for the operator: tools and models are told that it did. */
export function createFileStore({ blobs, onError }: FileStoreOptions): StoreFile {
  return async (bytes, facts) => {
    try {
      return await blobs.put(bytes, facts);
    } catch (error) {
      onError(error);
      throw new Error("the file could not be stored; call the tool again later, or answer without it", {
        cause: error,
      });
    }
  };
}
