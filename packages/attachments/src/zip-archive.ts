import { fromBufferPromise, type Entry, type ZipFile } from "yauzl";
import { passwordNeeded, Refusal } from "./reading.ts";

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
        if (room < 0) throw new Refusal("failed", "The file expands to far more than a document holds.");
        yield next.value;
      }
    } finally {
      stream.destroy();
    }
  }

  return { paths: () => [...entries.keys()], has: (path) => entries.has(path), read };
}
