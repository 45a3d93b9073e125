import { newId } from "./open-api.ts";

/** A file of a person: its bytes, or a size for which zeros are made up while it is sent. */
export interface SimFile {
  bytes: Uint8Array | { sizeBytes: number };
  name?: string;
  /** Default: by the first bytes, else `application/octet-stream`. */
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
  /** Puts back what an earlier process has stored, under its key. */
  restore(media: StoredMedia): void;
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
    restore: (media) => void byKey.set(media.key, media),
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

/** A field of a multipart form. Whether it is a file is the reader's matter: clients send buffers without a name. */
interface FormPart {
  bytes: Buffer;
  fileName?: string;
}

export type FormParts = ReadonlyMap<string, FormPart>;

/** The fields of a `multipart/form-data` body (RFC 7578); undefined when it is cut off or has another form. */
export function parseMultipart(body: Buffer, contentType: string): FormParts | undefined {
  const boundary = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i
    .exec(contentType)
    ?.slice(1)
    .find(Boolean);
  if (boundary === undefined) return undefined;
  const parts = new Map<string, FormPart>();
  const delimiter = Buffer.from(`--${boundary}`);
  const next = Buffer.from(`\r\n--${boundary}`);
  let at = body.indexOf(delimiter);
  if (at < 0) return undefined;
  at += delimiter.length;
  while (body.toString("latin1", at, at + 2) !== "--") {
    const end = body.indexOf(next, at);
    const part = end < 0 ? undefined : parsePart(body.subarray(at, end));
    if (part === undefined) return undefined;
    parts.set(part.name, part.part);
    at = end + next.length;
  }
  return parts;
}

/** `bytes` begin with the line break after the delimiter. */
function parsePart(bytes: Buffer): { name: string; part: FormPart } | undefined {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return undefined;
  const head = bytes.toString("utf8", 0, headEnd);
  const disposition = /^content-disposition:\s*form-data(.*)$/im.exec(head)?.[1] ?? "";
  const name = parameter(disposition, "name");
  if (name === undefined) return undefined;
  const fileName = parameter(disposition, "filename");
  const part = {
    bytes: bytes.subarray(headEnd + 4),
    ...(fileName === undefined ? {} : { fileName }),
  };
  return { name, part };
}

function parameter(disposition: string, name: string): string | undefined {
  return new RegExp(`;\\s*${name}="([^"]*)"`, "i").exec(disposition)?.[1];
}
