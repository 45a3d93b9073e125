export { createFileBlobStore, type FileBlobStoreOptions } from "./file-blob-store.ts";
