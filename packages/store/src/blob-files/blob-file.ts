import { type BlobFacts, blobFactsFrom, blobIdOf, type StoredBlob } from "../blob-store.ts";

// Layout: length of the facts as 4 bytes (big-endian), facts as JSON, then the bytes. One file, so
// that one rename makes both visible.
const lengthBytes = 4;

/** A blob as the content of its file. */
export function blobFileOf(bytes: Uint8Array, facts: BlobFacts): Buffer {
  const json = Buffer.from(JSON.stringify(facts));
  const length = Buffer.alloc(lengthBytes);
  length.writeUInt32BE(json.byteLength);
  return Buffer.concat([length, json, bytes]);
}

/**
 * Reads the file of blob `id`. Undefined for a file whose bytes do not have that id: cut off by a
 * power failure, or damaged since.
 */
export function blobFrom(file: Buffer, id: string): StoredBlob | undefined {
  if (file.byteLength < lengthBytes) return undefined;
  const start = lengthBytes + file.readUInt32BE();
  const bytes = file.subarray(start);
  const facts = blobFactsFrom(file.toString("utf8", lengthBytes, start));
  return facts !== undefined && blobIdOf(bytes) === id ? { bytes, facts } : undefined;
}
