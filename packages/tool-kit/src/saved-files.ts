import { imageMarkOf, imageTypeOf, maxImageBytes } from "@larkline/protocol/stored-image";
import type { Tool } from "./tool.ts";

/** What a tool says of a file that it saves. */
export interface FileFacts {
  /** `image/png`, `image/jpeg`, `image/gif` or `image/webp`: other files cannot be shown. */
  mediaType: string;
  /** For people: shown where the image cannot be. */
  name?: string;
}

/**
 * Keeps a file and resolves to its id. Given by whoever runs tools: tool code itself gets no
 * connection to any store. May reject; what it rejects with is told to the tool.
 */
export type StoreFile = (bytes: Uint8Array, facts: FileFacts) => Promise<string>;

/** Files that one call may save: each is kept for days, and a card has little room. */
export const maxFilesPerCall = 8;

function problemOf(bytes: Uint8Array, { mediaType }: FileFacts): string | undefined {
  if (!(bytes instanceof Uint8Array)) return "saveFile takes the bytes as a Uint8Array or Buffer";
  if (bytes.byteLength > maxImageBytes) {
    return `the file has ${bytes.byteLength} bytes, more than the ${maxImageBytes} that can be shown: make it smaller`;
  }
  const found = imageTypeOf(bytes);
  if (found === undefined) {
    return "the bytes are no PNG, JPEG, GIF or WebP image; only those can be shown: convert the file, or put text into the result";
  }
  return found === mediaType
    ? undefined
    : `the bytes are ${found}, but mediaType says ${mediaType}: correct one of them`;
}

/** Settles like `work`, or rejects with the signal's reason as soon as it aborts. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const stop = (): void => reject(signal.reason);
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) stop();
  try {
    return await Promise.race([work, aborted]);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

/** One run of a tool. */
export interface Run {
  signal: AbortSignal;
  answered: () => boolean;
}

/** The `saveFile` of one call. */
export function fileSaver(
  tool: Pick<Tool, "name" | "savesFiles">,
  store: StoreFile | undefined,
  { signal, answered }: Run,
): (bytes: Uint8Array, facts: FileFacts) => Promise<string> {
  let saved = 0;
  return async (bytes, facts) => {
    if (!tool.savesFiles) {
      throw new Error(`tool ${tool.name} saves files without saying so: set savesFiles: true in its definition`);
    }
    if (store === undefined) throw new Error("files cannot be saved here: whoever runs the tool keeps none");
    const problem = problemOf(bytes, facts);
    if (problem !== undefined) throw new TypeError(problem);
    if (saved >= maxFilesPerCall) {
      throw new RangeError(`one call may save ${maxFilesPerCall} files at most: put several pictures into one`);
    }
    signal.throwIfAborted();
    if (answered()) throw new Error("the call is answered already: await saveFile before returning the result");
    saved += 1;
    const { mediaType, name } = facts;
    const id = await unlessAborted(store(bytes, { mediaType, ...(name === undefined ? {} : { name }) }), signal);
    return imageMarkOf(id, name ?? "");
  };
}
