/** A field of a multipart form. Whether it is a file is the reader's matter: clients send buffers without a name. */
export interface FormPart {
  bytes: Buffer;
  fileName?: string;
}

export type FormParts = ReadonlyMap<string, FormPart>;

/** The fields of a `multipart/form-data` body (RFC 7578); undefined when it is cut off or has another form. */
export function parseMultipart(body: Buffer, contentType: string): FormParts | undefined {
  const boundary = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i.exec(contentType)?.slice(1).find(Boolean);
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
  const part = { bytes: bytes.subarray(headEnd + 4), ...(fileName === undefined ? {} : { fileName }) };
  return { name, part };
}

function parameter(disposition: string, name: string): string | undefined {
  return new RegExp(`;\\s*${name}="([^"]*)"`, "i").exec(disposition)?.[1];
}
