import { Parser } from "htmlparser2";
import { type Entry, fromBufferPromise, type ZipFile } from "yauzl";
import { passwordNeeded, Refusal } from "./draft.ts";

/** Kinds of Office Open XML documents. */
export type OfficeKind = "word" | "workbook" | "presentation";

export interface MainPart {
  kind: OfficeKind;
  path: string;
}

/** What another part is to this one. `type` is the last word of its URI: `styles`, `slide`. */
export interface Relationship {
  id: string;
  type: string;
  path: string;
}

// Templates, macro-enabled files and slide shows have types of their own that end alike.
const mainTypes: [RegExp, OfficeKind][] = [
  [/(?:wordprocessingml|ms-word)\..*\.main\+xml$/i, "word"],
  [/(?:spreadsheetml|ms-excel)\..*\.main\+xml$/i, "workbook"],
  [/(?:presentationml|ms-powerpoint)\..*\.main\+xml$/i, "presentation"],
];

/** Finds the document itself by the content types of the package; undefined when there is none. */
export async function mainPartOf(archive: ZipArchive): Promise<MainPart | undefined> {
  let main: MainPart | undefined;
  await walkXml(archive.read("[Content_Types].xml"), {
    open(name, attributes) {
      if (name !== "Override" || main !== undefined) return;
      const type = attributeOf(attributes, "ContentType") ?? "";
      const kind = mainTypes.find(([pattern]) => pattern.test(type))?.[1];
      const path = (attributeOf(attributes, "PartName") ?? "").replace(/^\//, "");
      if (kind !== undefined && archive.has(path)) main = { kind, path };
    },
  });
  return main;
}

function resolvePart(from: string, target: string): string {
  if (target.startsWith("/")) return target.slice(1);
  const steps = from.split("/").slice(0, -1);
  for (const step of target.split("/")) {
    if (step === "..") steps.pop();
    else if (step !== ".") steps.push(step);
  }
  return steps.join("/");
}

/** The parts inside the package that a part refers to. */
export async function relationshipsOf(archive: ZipArchive, path: string): Promise<Relationship[]> {
  const slash = path.lastIndexOf("/") + 1;
  const found: Relationship[] = [];
  await walkXml(archive.read(`${path.slice(0, slash)}_rels/${path.slice(slash)}.rels`), {
    open(name, attributes) {
      if (name !== "Relationship" || attributeOf(attributes, "TargetMode") === "External") return;
      const type = attributeOf(attributes, "Type") ?? "";
      found.push({
        id: attributeOf(attributes, "Id") ?? "",
        type: type.slice(type.lastIndexOf("/") + 1),
        path: resolvePart(path, attributeOf(attributes, "Target") ?? ""),
      });
    },
  });
  return found;
}

/* ---- The archive ---- */

// Real documents stay far below. Streams end at the text limit, so this stops bombs, not big sheets.
const maxEntries = 20_000;
const maxInflatedBytes = 200 * 1024 * 1024;
const maxPathCharacters = 1_024;

/** The parts of an office document: a zip archive in memory, inflated piece by piece. */
export interface ZipArchive {
  paths(): string[];
  has(path: string): boolean;
  /** The inflated bytes of a part; nothing for a part that does not exist. */
  read(path: string): AsyncIterable<Uint8Array>;
}

function damaged(): Refusal {
  return new Refusal("failed", "The file is damaged or cut off.");
}

/** Opens an archive. Refuses one that is damaged or has far too many parts. */
export async function openZip(bytes: Uint8Array): Promise<ZipArchive> {
  const entries = new Map<string, Entry>();
  let file: ZipFile;
  try {
    file = await fromBufferPromise(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    if (file.entryCount > maxEntries) throw new Refusal("failed", "The file has too many parts.");
    for await (const entry of file.eachEntry()) {
      if (entry.fileName.length <= maxPathCharacters) entries.set(entry.fileName, entry);
    }
  } catch (error) {
    throw error instanceof Refusal ? error : damaged();
  }
  let room = maxInflatedBytes;

  async function* read(path: string): AsyncGenerator<Uint8Array> {
    const entry = entries.get(path);
    if (entry === undefined) return;
    if (entry.isEncrypted()) throw passwordNeeded();
    const stream = await file.openReadStreamPromise(entry).catch(() => {
      throw damaged();
    });
    const chunks: AsyncIterator<Uint8Array> = stream[Symbol.asyncIterator]();
    try {
      for (;;) {
        const next = await chunks.next().catch(() => {
          throw damaged();
        });
        if (next.done === true) return;
        room -= next.value.byteLength;
        if (room < 0) {
          throw new Refusal("failed", "The file expands to far more than a document holds.");
        }
        yield next.value;
      }
    } finally {
      stream.destroy();
    }
  }

  return { paths: () => [...entries.keys()], has: (path) => entries.has(path), read };
}

/* ---- Its documents ---- */

/** Attributes of an element, by their full names (`r:id`). */
export type XmlAttributes = Readonly<Record<string, string>>;

/** Called with the elements of a document in order; names come without their namespace prefix. */
export interface XmlListener {
  open?(name: string, attributes: XmlAttributes): void;
  text?(text: string): void;
  close?(name: string): void;
}

// Word nests tables and shapes to a few dozen levels.
const maxDepth = 512;

function localName(name: string): string {
  return name.slice(name.indexOf(":") + 1);
}

/** An attribute by its name without prefix; one with a prefix wins (`r:id` over `id`). */
export function attributeOf(attributes: XmlAttributes, name: string): string | undefined {
  for (const [full, value] of Object.entries(attributes)) {
    if (full.endsWith(`:${name}`)) return value;
  }
  return Object.hasOwn(attributes, name) ? attributes[name] : undefined;
}

/**
 * Walks through XML piece by piece. Entities that a document declares are never expanded, nothing
 * is fetched. Refuses a document nested deeper than 512 elements.
 */
export async function walkXml(
  source: AsyncIterable<Uint8Array>,
  listener: XmlListener,
): Promise<void> {
  let depth = 0;
  const parser = new Parser(
    {
      onopentag(name, attributes) {
        depth += 1;
        if (depth > maxDepth) throw new Refusal("failed", "The document is nested too deeply.");
        listener.open?.(localName(name), attributes);
      },
      ontext: (text) => listener.text?.(text),
      onclosetag(name) {
        depth -= 1;
        listener.close?.(localName(name));
      },
    },
    { xmlMode: true },
  );
  let decoder: InstanceType<typeof TextDecoder> | undefined;
  for await (const chunk of source) {
    // XML is UTF-8 or, with a byte order mark, UTF-16.
    decoder ??= new TextDecoder(chunk[0] === 0xff && chunk[1] === 0xfe ? "utf-16le" : "utf-8");
    parser.write(decoder.decode(chunk, { stream: true }));
  }
  parser.end();
}
