import { newId } from "./id.ts";

/** A file of a person: its bytes, or a size for which zeros are made up while it is sent. */
export interface SimFile {
  bytes: Uint8Array | { sizeBytes: number };
  name?: string;
  /** Default: told by the first bytes, else `application/octet-stream`. */
  mediaType?: string;
}

export type MediaKind = "image" | "file";

/** A stored image or file. */
export interface StoredMedia {
  key: string;
  kind: MediaKind;
  name: string;
  mediaType: string;
  sizeBytes: number;
  bytes: SimFile["bytes"];
  /** The app that uploaded it; absent for what people sent. */
  ownerAppId?: string;
  /** The `file_type` of an upload. */
  fileType?: string;
}

export interface NewMedia {
  kind: MediaKind;
  file: SimFile;
  ownerAppId?: string;
  fileType?: string;
}

/** Images and files of the tenant, by key. */
export interface MediaStore {
  add(media: NewMedia): StoredMedia;
  get(key: string): StoredMedia | undefined;
}

export function createMediaStore(): MediaStore {
  const byKey = new Map<string, StoredMedia>();
  return {
    add({ kind, file, ...origin }) {
      const key = kind === "image" ? newId("img_v3_") : newId("file_v3_");
      const { bytes } = file;
      const media: StoredMedia = {
        key,
        kind,
        name: file.name ?? key,
        mediaType: file.mediaType ?? mediaTypeOf(bytes) ?? "application/octet-stream",
        sizeBytes: bytes instanceof Uint8Array ? bytes.byteLength : bytes.sizeBytes,
        bytes,
        ...origin,
      };
      byKey.set(key, media);
      return media;
    },
    get: (key) => byKey.get(key),
  };
}

const signatures: readonly { mediaType: string; at: number; bytes: string }[] = [
  { mediaType: "image/png", at: 0, bytes: "\x89PNG\r\n\x1a\n" },
  { mediaType: "image/jpeg", at: 0, bytes: "\xff\xd8\xff" },
  { mediaType: "image/gif", at: 0, bytes: "GIF8" },
  { mediaType: "image/webp", at: 8, bytes: "WEBP" },
  { mediaType: "image/bmp", at: 0, bytes: "BM" },
  { mediaType: "image/x-icon", at: 0, bytes: "\0\0\x01\0" },
  { mediaType: "image/tiff", at: 0, bytes: "II*\0" },
  { mediaType: "image/tiff", at: 0, bytes: "MM\0*" },
  { mediaType: "image/heic", at: 4, bytes: "ftyphei" },
  { mediaType: "application/pdf", at: 0, bytes: "%PDF-" },
];

/** The type that the first bytes tell: the image formats of the upload page, and PDF. */
export function mediaTypeOf(bytes: SimFile["bytes"]): string | undefined {
  if (!(bytes instanceof Uint8Array)) return undefined;
  const head = Buffer.from(bytes.subarray(0, 16)).toString("latin1");
  return signatures.find((signature) => head.startsWith(signature.bytes, signature.at))?.mediaType;
}
