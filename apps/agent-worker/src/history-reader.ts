import { attachmentText } from "@larkline/agent";
import type { FilePart, ImagePart, Message, TextPart } from "@larkline/protocol";
import type { BlobStore } from "@larkline/store";
import type { HistoryReader } from "./model-step.ts";

export interface HistoryReaderDeps {
  blobs: Pick<BlobStore, "get">;
  /** Whether the model sees images. */
  vision: boolean;
  /** Text of one file that the model gets, in characters. */
  maxChars: number;
  /** Text of all files together; the latest come first. */
  maxTotalChars: number;
}

type Part = Message["content"][number];

/** An image of the history that is kept elsewhere. */
interface StoredImage {
  part: ImagePart;
  blobId: string;
  mediaType: string;
}

/**
 * The latest images that a model gets; earlier ones are only named, because each costs like a page of
 * text. Bytes as well: a request has 32 MB at most (Anthropic, "Overview"), and base64 takes a third more.
 */
const maxImages = 10;
const maxImageBytes = 15_000_000;

function storedImage(part: Part): StoredImage | undefined {
  return part.type === "image" && part.source.sourceType === "blob" ? { part, ...part.source } : undefined;
}

function storedImages(history: readonly Message[]): StoredImage[] {
  return history.flatMap(({ content }) => content.flatMap((part) => storedImage(part) ?? []));
}

function textPart(text: string): TextPart {
  return { type: "text", text };
}

function filesIn(history: readonly Message[]): FilePart[] {
  return history.flatMap(({ content }) => content.filter((part) => part.type === "file"));
}

type Texts = ReadonlyMap<Part, TextPart>;

/** What stands for each file. */
async function fileTexts(
  history: readonly Message[],
  { blobs, maxChars, maxTotalChars }: Omit<HistoryReaderDeps, "vision">,
): Promise<Texts> {
  const texts = new Map<Part, TextPart>();
  let charsLeft = maxTotalChars;
  for (const part of filesIn(history).toReversed()) {
    const stored = part.blobId === undefined ? undefined : await blobs.get(part.blobId);
    const content = stored === undefined ? undefined : Buffer.from(stored.bytes).toString("utf8");
    const allowed = Math.min(maxChars, charsLeft);
    charsLeft -= Math.min(allowed, content?.length ?? 0);
    texts.set(part, textPart(attachmentText(part, content, allowed)));
  }
  return texts;
}

/** What stands for each image that is shown. */
async function imagesOf(
  history: readonly Message[],
  blobs: Pick<BlobStore, "get">,
): Promise<ReadonlyMap<Part, ImagePart | TextPart>> {
  const shown = new Map<Part, ImagePart | TextPart>();
  let bytesLeft = maxImageBytes;
  for (const { part, blobId, mediaType } of storedImages(history).toReversed().slice(0, maxImages)) {
    const stored = await blobs.get(blobId);
    if (stored === undefined) {
      shown.set(part, textPart("[An image that is no longer stored. Say so, do not guess what it shows.]"));
      continue;
    }
    bytesLeft -= stored.bytes.byteLength;
    if (bytesLeft < 0) break;
    const data = Buffer.from(stored.bytes).toString("base64");
    shown.set(part, { type: "image", source: { sourceType: "base64", mediaType, data } });
  }
  return shown;
}

const hiddenImage =
  "[An image that is not shown, because a request has room for the latest ones only. Say so, do not guess.]";
const unseenImage = "[An image that you cannot see: this model takes text only. Say so, do not guess.]";

type UserMessage = Extract<Message, { role: "user" }>;

/** The history with other parts in the messages of people; the same message where none is another. */
function withParts(
  history: readonly Message[],
  replace: (part: UserMessage["content"][number]) => UserMessage["content"][number],
): Message[] {
  return history.map((message) => {
    if (message.role !== "user") return message;
    const content = message.content.map(replace);
    return content.every((part, index) => part === message.content[index]) ? message : { ...message, content };
  });
}

/**
 * Puts the content of stored images and files in place of their references, for one request: history
 * itself keeps the references. Without any it returns the same array.
 */
export function createHistoryReader(deps: HistoryReaderDeps): HistoryReader {
  return async (history) => {
    const files = await fileTexts(history, deps);
    const images = deps.vision ? await imagesOf(history, deps.blobs) : new Map<Part, ImagePart>();
    if (files.size === 0 && storedImages(history).length === 0) return history;
    const missing = textPart(deps.vision ? hiddenImage : unseenImage);
    return withParts(history, (part) => {
      if (part.type === "file") return files.get(part) ?? part;
      return storedImage(part) === undefined ? part : (images.get(part) ?? missing);
    });
  };
}

/** Puts the text of files in place of their references, and leaves images alone. */
export function createFileReader(deps: Omit<HistoryReaderDeps, "vision">): HistoryReader {
  return async (history) => {
    const files = await fileTexts(history, deps);
    return files.size === 0 ? history : withParts(history, (part) => files.get(part) ?? part);
  };
}
