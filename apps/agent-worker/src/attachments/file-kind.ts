/** What the first bytes of a file say. `text` means: no binary format that we know. */
export interface FileKind {
  kind: "pdf" | "zip" | "ole" | "text" | "media" | "other";
  mediaType: string;
}

/** Texts by the offset at which they stand. */
type Signature = [texts: Record<number, string>, kind: FileKind["kind"], mediaType: string];

// Bytes as latin-1 text; the first match wins. Long enough that no text begins by chance like this.
const signatures: Signature[] = [
  [{ 0: "PK\x03\x04" }, "zip", "application/zip"],
  [{ 0: "PK\x05\x06" }, "zip", "application/zip"],
  [{ 0: "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" }, "ole", "application/x-ole-storage"],
  [{ 0: "\x89PNG\r\n\x1a\n" }, "media", "image/png"],
  [{ 0: "\xff\xd8\xff" }, "media", "image/jpeg"],
  [{ 0: "GIF87a" }, "media", "image/gif"],
  [{ 0: "GIF89a" }, "media", "image/gif"],
  [{ 0: "RIFF", 8: "WEBP" }, "media", "image/webp"],
  [{ 0: "RIFF", 8: "WAVE" }, "media", "audio/wav"],
  [{ 0: "RIFF", 8: "AVI " }, "media", "video/x-msvideo"],
  [{ 0: "II*\0" }, "media", "image/tiff"],
  [{ 0: "MM\0*" }, "media", "image/tiff"],
  [{ 0: "\0\0\x01\0" }, "media", "image/x-icon"],
  [{ 0: "\0\0", 4: "ftyphei" }, "media", "image/heic"],
  [{ 0: "\0\0", 4: "ftypmif1" }, "media", "image/heic"],
  [{ 0: "\0\0", 4: "ftypavif" }, "media", "image/avif"],
  [{ 0: "\0\0", 4: "ftypM4A" }, "media", "audio/mp4"],
  [{ 0: "\0\0", 4: "ftypqt" }, "media", "video/quicktime"],
  [{ 0: "\0\0", 4: "ftyp" }, "media", "video/mp4"],
  [{ 0: "\x1aE\xdf\xa3" }, "media", "video/x-matroska"],
  [{ 0: "FLV\x01" }, "media", "video/x-flv"],
  [{ 0: "OggS\0" }, "media", "audio/ogg"],
  [{ 0: "fLaC\0" }, "media", "audio/flac"],
  [{ 0: "ID3\x02" }, "media", "audio/mpeg"],
  [{ 0: "ID3\x03" }, "media", "audio/mpeg"],
  [{ 0: "ID3\x04" }, "media", "audio/mpeg"],
  [{ 0: "#!AMR" }, "media", "audio/amr"],
  [{ 0: "{\\rtf" }, "other", "application/rtf"],
  [{ 0: "\x1f\x8b" }, "other", "application/gzip"],
  [{ 0: "BZh", 4: "1AY&SY" }, "other", "application/x-bzip2"],
  [{ 0: "\xfd7zXZ\0" }, "other", "application/x-xz"],
  [{ 0: "\x28\xb5\x2f\xfd" }, "other", "application/zstd"],
  [{ 0: "7z\xbc\xaf\x27\x1c" }, "other", "application/x-7z-compressed"],
  [{ 0: "Rar!\x1a\x07" }, "other", "application/vnd.rar"],
  [{ 257: "ustar" }, "other", "application/x-tar"],
  [{ 0: "\x7fELF" }, "other", "application/x-executable"],
  [{ 0: "SQLite format 3\0" }, "other", "application/vnd.sqlite3"],
];

// Readers accept the header anywhere in the first 1,024 bytes (ISO 32000-1, annex H); at the start of
// a line, or a text about the format would be one.
const pdfPattern = /(?:^|[\r\n])%PDF-\d\.\d/;

function matches(head: string, texts: Record<number, string>): boolean {
  return Object.entries(texts).every(([offset, text]) => head.startsWith(text, Number(offset)));
}

const headBytes = 1_024;

/** Decides by the bytes alone; a name can lie. Looks at the first kilobyte. */
export function fileKindOf(bytes: Uint8Array): FileKind {
  const head = Buffer.from(
    bytes.buffer,
    bytes.byteOffset,
    Math.min(bytes.byteLength, headBytes),
  ).toString("latin1");
  const known = signatures.find(([texts]) => matches(head, texts));
  if (known !== undefined) return { kind: known[1], mediaType: known[2] };
  if (pdfPattern.test(head)) return { kind: "pdf", mediaType: "application/pdf" };
  return { kind: "text", mediaType: "text/plain" };
}

/** Why a file is not read, when its first bytes tell already; undefined when it has to be looked into. */
export function unreadableKind({ kind, mediaType }: FileKind): string | undefined {
  if (kind === "media") {
    return `The file is ${mediaType}: its content cannot be turned into text here.`;
  }
  if (kind === "other") return `Files of the kind ${mediaType} cannot be read.`;
  return undefined;
}
