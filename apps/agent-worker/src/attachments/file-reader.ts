import { Draft, DraftFull, passwordNeeded, Refusal } from "./draft.ts";
import type { Extraction, ReadingJob } from "./extraction.ts";
import { type FileKind, fileKindOf } from "./file-kind.ts";
import { readHtml } from "./html-text.ts";
import { isMail, readMail } from "./mail-text.ts";
import { mainPartOf, type OfficeKind, openZip, type ZipArchive } from "./office-package.ts";
import { readOpenDocument } from "./open-document-text.ts";
import { readWorkbook } from "./sheet-text.ts";
import { readSlides } from "./slide-text.ts";
import { readWord } from "./word-text.ts";

const officeTypes: Record<OfficeKind, string> = {
  word: "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
  workbook: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
  presentation: "application/vnd.openxmlformats-officedocument.presentationml.presentation",
};
const officeReaders = { word: readWord, workbook: readWorkbook, presentation: readSlides };
const openDocumentPattern =
  /^application\/vnd\.oasis\.opendocument\.(?:text|spreadsheet|presentation)(?:-template)?$/;

const textTypes: Record<string, string> = {
  md: "text/markdown",
  markdown: "text/markdown",
  csv: "text/csv",
  tsv: "text/tab-separated-values",
  json: "application/json",
  xml: "application/xml",
  yaml: "application/yaml",
  yml: "application/yaml",
};

function extensionOf(name: string): string {
  return /\.([a-z0-9]{1,10})$/i.exec(name)?.[1]?.toLowerCase() ?? "";
}

async function firstText(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  for await (const chunk of chunks) {
    return Buffer.from(chunk.subarray(0, 100)).toString("latin1").trim();
  }
  return "";
}

async function readOffice(archive: ZipArchive, draft: Draft): Promise<boolean> {
  const main = await mainPartOf(archive);
  if (main === undefined) return false;
  draft.mediaType = officeTypes[main.kind];
  await officeReaders[main.kind](archive, main.path, draft);
  return true;
}

async function readZip(bytes: Uint8Array, draft: Draft): Promise<void> {
  const archive = await openZip(bytes);
  const mediaType = await firstText(archive.read("mimetype"));
  if (openDocumentPattern.test(mediaType)) {
    draft.mediaType = mediaType;
    await readOpenDocument(archive, draft);
  } else if (!(await readOffice(archive, draft))) {
    throw new Refusal(
      "unsupported",
      "The file is an archive or of a kind that cannot be read; send its files singly.",
    );
  }
}

/** Old binary Office files, and new ones in an encrypted envelope (MS-OFFCRYPTO, 2.3.4.4). */
function readOle(bytes: Uint8Array): never {
  const envelope = Buffer.from("EncryptedPackage", "utf16le");
  const whole = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (whole.includes(envelope)) throw passwordNeeded();
  // The properties of an Outlook message have streams of their own (MS-OXMSG, 2.4).
  if (whole.includes(Buffer.from("__substg1.0_", "utf16le"))) {
    throw new Refusal(
      "unsupported",
      "Outlook messages (.msg) cannot be read; save it as .eml or PDF.",
    );
  }
  throw new Refusal(
    "unsupported",
    "Old binary Office files cannot be read; save it as docx, xlsx, pptx or PDF.",
  );
}

function isHtml(text: string, extension: string): boolean {
  return (
    /^\s*(?:<!--[\s\S]{0,500}?-->\s*)?<(?:!doctype\s+html|html)[\s>]/i.test(text) ||
    /^x?html?$/.test(extension)
  );
}

function readText(job: ReadingJob, draft: Draft): void {
  const decoded = decodeText(job.bytes, job.maxChars);
  if (decoded === undefined) {
    draft.mediaType = "application/octet-stream";
    throw new Refusal("unsupported", "The file is binary, of a kind that cannot be read.");
  }
  const extension = extensionOf(job.name);
  draft.truncated = decoded.truncated;
  if (isMail(decoded.text, extension)) return readMail(job.bytes, draft);
  if (isHtml(decoded.text, extension)) {
    draft.mediaType = "text/html";
    readHtml(decoded.text, draft);
    return;
  }
  const claimed = /^text\/[\w.+-]+/.exec(job.mediaType ?? "")?.[0];
  draft.mediaType = textTypes[extension] ?? claimed ?? "text/plain";
  draft.add(decoded.text);
}

async function readKind(job: ReadingJob, kind: FileKind, draft: Draft): Promise<void> {
  if (kind.kind === "pdf") {
    // Large: a process that reads no PDF never loads it.
    const { readPdf } = await import("./pdf-text.ts");
    await readPdf(job.bytes, draft);
  } else if (kind.kind === "zip") await readZip(job.bytes, draft);
  else if (kind.kind === "ole") readOle(job.bytes);
  else readText(job, draft);
}

function finished({ mediaType, pages, truncated, isNoise }: Draft, text: string): Extraction {
  if (isNoise) {
    const detail =
      "What can be read of the file is noise, not its text; a picture of it, or its text copied, may help.";
    return { state: "failed", mediaType, detail };
  }
  if (text !== "") {
    return {
      state: "ready",
      text,
      mediaType,
      truncated,
      ...(pages === undefined ? {} : { pages }),
    };
  }
  const detail = truncated ? "Reading the file took too long." : "The file contains no text.";
  return { state: "failed", mediaType, detail };
}

/** Extracts the text of one file. Never rejects: a bad file is an answer too. */
export async function readFile(job: ReadingJob): Promise<Extraction> {
  const kind = fileKindOf(job.bytes);
  const draft = new Draft(kind.mediaType, job);
  try {
    await readKind(job, kind, draft);
  } catch (error) {
    if (!(error instanceof DraftFull)) {
      const refusal =
        error instanceof Refusal
          ? error
          : new Refusal("failed", "The file is damaged and cannot be read.");
      return { state: refusal.state, mediaType: draft.mediaType, detail: refusal.message };
    }
  }
  return finished(draft, draft.toString());
}

/* ---- Plain text ---- */

// Enough for a byte order mark and any declaration near the start.
const declarationBytes = 1_024;
const sampleBytes = 65_536;

function byteOrderMark(bytes: Uint8Array): string | undefined {
  const [first, second, third] = bytes;
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if (first === 0xff && second === 0xfe) return "utf-16le";
  if (first === 0xfe && second === 0xff) return "utf-16be";
  return undefined;
}

/** UTF-16 without a mark: western characters leave every second byte 0. */
function bareUtf16(sample: Uint8Array): string | undefined {
  const zeros = [0, 0];
  for (const [i, byte] of sample.entries()) if (byte === 0) zeros[i % 2] = (zeros[i % 2] ?? 0) + 1;
  const [even = 0, odd = 0] = zeros;
  const many = sample.byteLength / 20;
  if (odd > many && even === 0) return "utf-16le";
  if (even > many && odd === 0) return "utf-16be";
  return undefined;
}

/** The encoding that an XML declaration or an HTML `meta` names, if it is one that exists. */
function declaredEncoding(bytes: Uint8Array): string | undefined {
  const head = Buffer.from(bytes.subarray(0, declarationBytes)).toString("latin1");
  const label =
    /^\s*<\?xml[^>]{0,200}encoding\s*=\s*["']([\w.:-]+)/.exec(head)?.[1] ??
    /<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w.:-]+)/i.exec(head)?.[1];
  if (label === undefined) return undefined;
  try {
    return new TextDecoder(label).encoding;
  } catch {
    return undefined;
  }
}

function decode(bytes: Uint8Array, encoding: string): string {
  // As a stream, so that a character cut off at the end is left out, not replaced.
  return new TextDecoder(encoding).decode(bytes, { stream: true });
}

function count(text: string, pattern: RegExp): number {
  return text.match(pattern)?.length ?? 0;
}

/** Whether this is UTF-8, a few damaged characters allowed. */
function looksLikeUtf8(sample: Uint8Array): boolean {
  const text = decode(sample, "utf-8");
  const damaged = count(text, /\uFFFD/g);
  return damaged === 0 || damaged * 50 < count(text, /[^\0-\x7F\uFFFD]/g);
}

/**
 * Whether this is GB18030 (GBK, GB2312) rather than a western encoding: common Chinese characters
 * have two bytes above 127, while in western text a letter follows most accents.
 */
function looksLikeGb18030(sample: Uint8Array): boolean {
  let chinese = 0;
  let other = 0;
  for (let i = 0; i < sample.byteLength; i += 1) {
    if ((sample[i] ?? 0) < 0x80) continue;
    if ((sample[i + 1] ?? 0) >= 0x80) chinese += 1;
    else other += 1;
    i += 1;
  }
  return chinese > other && count(decode(sample, "gb18030"), /\uFFFD/g) * 50 <= chinese;
}

/** The encoding of a text. Order: byte order mark, UTF-8 if it fits, declaration, guess. */
function encodingOf(bytes: Uint8Array): string {
  const sample = bytes.subarray(0, sampleBytes);
  const certain = byteOrderMark(bytes) ?? bareUtf16(sample);
  if (certain !== undefined) return certain;
  if (looksLikeUtf8(sample)) return "utf-8";
  return declaredEncoding(bytes) ?? (looksLikeGb18030(sample) ? "gb18030" : "windows-1252");
}

function isBinary(text: string, encoding: string): boolean {
  const sample = text.slice(0, sampleBytes);
  if (sample.includes("\0")) return true;
  // Tab, line feed, form feed, return and escape (coloured logs) are text.
  const strange = count(sample, controlPattern) + count(sample, /\uFFFD/g);
  // Every byte is a character of windows-1252: nothing else speaks against it.
  return strange > (encoding === "windows-1252" ? 0 : 1 + sample.length / 100);
}

const controlPattern = new RegExp(String.raw`[\u0001-\u0008\u000b\u000e-\u001a\u001c-\u001f]`, "g");

/** Bytes as text, at most about `maxChars` characters of it; undefined when they are no text. */
export function decodeText(
  bytes: Uint8Array,
  maxChars: number,
): { text: string; truncated: boolean } | undefined {
  const encoding = encodingOf(bytes);
  const start = bytes.subarray(0, maxChars * 4 + 4); // no encoding takes more bytes for a character
  const text = decode(start, encoding);
  if (isBinary(text, encoding)) return undefined;
  return { text, truncated: start.byteLength < bytes.byteLength };
}
