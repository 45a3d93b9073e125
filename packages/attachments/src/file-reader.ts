import { Draft, DraftFull } from "./draft.ts";
import type { Extraction } from "./extraction.ts";
import { fileKindOf, type FileKind } from "./file-kind.ts";
import { readHtml } from "./html-text.ts";
import { mainPartOf, type OfficeKind } from "./office-package.ts";
import { readOpenDocument } from "./open-document-text.ts";
import { passwordNeeded, Refusal, type ReadingJob } from "./reading.ts";
import { readWorkbook } from "./sheet-text.ts";
import { readSlides } from "./slide-text.ts";
import { decodeText } from "./text-decoding.ts";
import { readWord } from "./word-text.ts";
import { openZip, type ZipArchive } from "./zip-archive.ts";

const officeTypes: Record<OfficeKind, string> = {
  word: "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
  workbook: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
  presentation: "application/vnd.openxmlformats-officedocument.presentationml.presentation",
};
const officeReaders = { word: readWord, workbook: readWorkbook, presentation: readSlides };
const openDocumentPattern = /^application\/vnd\.oasis\.opendocument\.(?:text|spreadsheet|presentation)(?:-template)?$/;

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
  for await (const chunk of chunks) return Buffer.from(chunk.subarray(0, 100)).toString("latin1").trim();
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
    throw new Refusal("unsupported", "The file is an archive or of a kind that cannot be read; send its files singly.");
  }
}

/** Old binary Office files, and new ones in an encrypted envelope (MS-OFFCRYPTO, 2.3.4.4). */
function readOle(bytes: Uint8Array): never {
  const envelope = Buffer.from("EncryptedPackage", "utf16le");
  if (Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).includes(envelope)) throw passwordNeeded();
  throw new Refusal("unsupported", "Old binary Office files cannot be read; save it as docx, xlsx, pptx or PDF.");
}

function isHtml(text: string, extension: string): boolean {
  return /^\s*(?:<!--[\s\S]{0,500}?-->\s*)?<(?:!doctype\s+html|html)[\s>]/i.test(text) || /^x?html?$/.test(extension);
}

function readText(job: ReadingJob, draft: Draft): void {
  const decoded = decodeText(job.bytes, job.maxChars);
  if (decoded === undefined) {
    draft.mediaType = "application/octet-stream";
    throw new Refusal("unsupported", "The file is binary, of a kind that cannot be read.");
  }
  const extension = extensionOf(job.name);
  draft.truncated = decoded.truncated;
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

function finished({ mediaType, pages, truncated }: Draft, text: string): Extraction {
  if (text !== "") return { state: "ready", text, mediaType, truncated, ...(pages === undefined ? {} : { pages }) };
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
        error instanceof Refusal ? error : new Refusal("failed", "The file is damaged and cannot be read.");
      return { state: refusal.state, mediaType: draft.mediaType, detail: refusal.message };
    }
  }
  return finished(draft, draft.toString());
}
