import { htmlText, type HtmlText } from "./html-text.ts";

const textTypes =
  /^(?:text\/|application\/(?:[\w.+-]+\+)?(?:json|xml)$|application\/(?:javascript|x-ndjson|yaml)$)/;
const htmlTypes = /^(?:text\/html|application\/xhtml\+xml)$/;
const headBytes = 2_048;

function mediaTypeOf(contentType: string): string {
  return (contentType.split(";")[0] ?? "").trim().toLowerCase();
}

function byteOrderMark(body: Buffer): string | undefined {
  if (body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf) return "utf-8";
  if (body[0] === 0xff && body[1] === 0xfe) return "utf-16le";
  if (body[0] === 0xfe && body[1] === 0xff) return "utf-16be";
  return undefined;
}

/** The order of the HTML standard: byte order mark, header, `meta` near the start, UTF-8. */
function charsetOf(contentType: string, body: Buffer): string {
  const header = /charset\s*=\s*"?([\w.:-]+)/i.exec(contentType)?.[1];
  const meta = /<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w.:-]+)/i.exec(
    body.toString("latin1", 0, headBytes),
  )?.[1];
  return byteOrderMark(body) ?? header ?? meta ?? "utf-8";
}

function decode(contentType: string, body: Buffer): string {
  const charset = charsetOf(contentType, body);
  try {
    return new TextDecoder(charset).decode(body);
  } catch {
    return new TextDecoder().decode(body); // an unknown label: most pages are UTF-8 whatever they say
  }
}

/** Readable text of a response body. Throws for types that are not text. */
export function pageText(contentType: string, body: Buffer): HtmlText {
  const mediaType = mediaTypeOf(contentType);
  if (mediaType !== "" && !htmlTypes.test(mediaType) && !textTypes.test(mediaType)) {
    throw new Error(`the page is ${mediaType}, not text`);
  }
  if (mediaType === "" && body.includes(0)) throw new Error("the page is binary, not text");
  const source = decode(contentType, body);
  return htmlTypes.test(mediaType) ? htmlText(source) : { title: "", text: source.trim() };
}
