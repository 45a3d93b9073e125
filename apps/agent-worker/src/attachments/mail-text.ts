import type { Draft } from "./draft.ts";
import { readHtml } from "./html-text.ts";

// An e-mail in a file (RFC 5322, MIME): who wrote it to whom, its texts decoded, and the names of what is attached.

const shownHeaders = ["From", "To", "Cc", "Date", "Subject"] as const;
const maxDepth = 10;
const maxParts = 200;
const maxHeadCharacters = 65_536;

/** Whether a text file is an e-mail: by its name, or by how it begins. */
export function isMail(start: string, extension: string): boolean {
  const begins =
    /^(?:(?:Received|Return-Path|Delivered-To|Message-ID|MIME-Version|From|Date|Subject|To):[^\n]*\n(?:[ \t][^\n]*\n)*){2}/i;
  return extension === "eml" || begins.test(start.slice(0, 8_192).replaceAll("\r\n", "\n"));
}

/** Reads an e-mail into the draft: its texts as a reader of mail shows them, plain text before HTML. */
export function readMail(bytes: Uint8Array, draft: Draft): void {
  draft.mediaType = "message/rfc822";
  const part = partOf(
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1"),
  );
  for (const name of shownHeaders) {
    const value = part.headers.get(name.toLowerCase());
    if (value !== undefined) draft.add(`${name}: ${decodedWords(value)}\n`);
  }
  draft.add("\n");
  addPart(part, draft, { depth: 0, parts: 0 });
}

/** A part of a mail; each character of `body` is a byte. */
interface MailPart {
  headers: ReadonlyMap<string, string>;
  body: string;
}

function partOf(text: string): MailPart {
  const end = /\r?\n\r?\n/.exec(text.slice(0, maxHeadCharacters));
  const head = text.slice(0, end?.index ?? 0).replaceAll(/\r?\n[ \t]+/g, " ");
  const headers = new Map<string, string>();
  for (const line of head.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).trim().toLowerCase();
    if (colon > 0 && !headers.has(name)) headers.set(name, line.slice(colon + 1).trim());
  }
  return { headers, body: end === null ? text : text.slice(end.index + end[0].length) };
}

function addPart(
  { headers, body }: MailPart,
  draft: Draft,
  seen: { depth: number; parts: number },
): void {
  seen.parts += 1;
  if (seen.depth > maxDepth || seen.parts > maxParts) return;
  const type = headers.get("content-type") ?? "text/plain";
  const kind = type.split(";")[0]?.trim().toLowerCase() ?? "";
  const boundary = parameterOf(type, "boundary");
  if (kind.startsWith("multipart/") && boundary !== undefined) {
    seen.depth += 1;
    const parts = body
      .split(`--${boundary}`)
      .slice(1)
      .filter((part) => !part.startsWith("--"))
      .map((part) => partOf(part.replace(/^\r?\n/, "")));
    const plain = kind === "multipart/alternative" ? parts.find(isPlain) : undefined;
    for (const part of plain === undefined ? parts : [plain]) addPart(part, draft, seen);
    seen.depth -= 1;
    return;
  }
  const disposition = headers.get("content-disposition") ?? "";
  const name = parameterOf(disposition, "filename") ?? parameterOf(type, "name");
  if (/^attachment/i.test(disposition) || !kind.startsWith("text/")) {
    draft.add(`\n[Attached: ${decodedWords(name ?? kind)}]\n`);
    return;
  }
  const text = decoded(
    bytesOf(body, headers.get("content-transfer-encoding") ?? ""),
    parameterOf(type, "charset"),
  );
  if (kind === "text/html") readHtml(text, draft);
  else draft.add(text);
  draft.add("\n");
}

function isPlain({ headers }: MailPart): boolean {
  return /^text\/plain/i.test(headers.get("content-type") ?? "text/plain");
}

function parameterOf(header: string, name: string): string | undefined {
  const found = new RegExp(`;\\s*${name}\\s*=\\s*(?:"([^"]*)"|([^\\s;]+))`, "i").exec(header);
  return found?.[1] ?? found?.[2];
}

function bytesOf(body: string, encoding: string): Buffer {
  const coded = encoding.trim().toLowerCase();
  if (coded === "base64") return Buffer.from(body, "base64");
  return Buffer.from(coded === "quoted-printable" ? fromQuotedPrintable(body) : body, "latin1");
}

function fromQuotedPrintable(text: string): string {
  const joined = text.replaceAll(/=[ \t]*\r?\n/g, "");
  return joined.replaceAll(/=([0-9A-Fa-f]{2})/g, (_, hex: string) =>
    String.fromCharCode(Number.parseInt(hex, 16)),
  );
}

/** GB2312 is what many programs call GBK, and decoders know it as that. */
function decoded(bytes: Buffer, charset = "utf-8"): string {
  try {
    return new TextDecoder(charset.trim()).decode(bytes);
  } catch {
    return new TextDecoder().decode(bytes);
  }
}

/** Words such as `=?gb2312?B?xOO6ww==?=` in a header (RFC 2047). */
function decodedWords(value: string): string {
  const words = value.replaceAll(/\?=\s+=\?/g, "?==?");
  return words.replaceAll(
    /=\?([\w-]+)\?([BbQq])\?([^?]*)\?=/g,
    (_, charset: string, way: string, text: string) => {
      const isBase64 = way.toUpperCase() === "B";
      return decoded(
        bytesOf(
          isBase64 ? text : text.replaceAll("_", " "),
          isBase64 ? "base64" : "quoted-printable",
        ),
        charset,
      );
    },
  );
}
