import { attachmentText } from "@larkline/agent";
import type { FilePart, ImagePart, Message, TextPart } from "@larkline/protocol";
import type { BlobStore } from "@larkline/session";
import type { HistoryReader } from "./model-step.ts";

export interface HistoryReaderDeps {
  blobs: Pick<BlobStore, "get">;
  /** Whether the model sees images. */
  vision: boolean;
  /** Text of one file that the model gets, in characters. */
  maxChars: number;
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

/** Whether nothing in it has to be fetched. */
function isPlain({ role, content }: Message): boolean {
  return role !== "user" || content.every((part) => part.type !== "file" && storedImage(part) === undefined);
}

/**
 * Puts the content of stored images and files in place of their references, for one request: history
 * itself keeps the references. Without any it returns the same array.
 */
export function createHistoryReader({ blobs, vision, maxChars }: HistoryReaderDeps): HistoryReader {
  /** What stands for each image; the latest come first when there is not room for all. */
  const imagesOf = async (history: readonly Message[]): Promise<ReadonlyMap<Part, ImagePart | TextPart>> => {
    const shown = new Map<Part, ImagePart | TextPart>();
    let bytesLeft = maxImageBytes;
    for (const { part, blobId, mediaType } of storedImages(history)
      .toReversed()
      .slice(0, vision ? maxImages : 0)) {
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
  };

  const hidden = vision
    ? "[An image that is not shown, because a request has room for the latest ones only. Say so, do not guess.]"
    : "[An image that you cannot see: this model takes text only. Say so, do not guess.]";

  const file = async (part: FilePart): Promise<TextPart> => {
    const stored = part.blobId === undefined ? undefined : await blobs.get(part.blobId);
    const content = stored === undefined ? undefined : Buffer.from(stored.bytes).toString("utf8");
    return textPart(attachmentText(part, content, maxChars));
  };

  return async (history) => {
    if (history.every(isPlain)) return history;
    const images = await imagesOf(history);
    const readMessage = async (message: Message): Promise<Message> => {
      if (message.role !== "user" || isPlain(message)) return message;
      const content = message.content.map(async (part) => {
        if (part.type === "file") return await file(part);
        return storedImage(part) === undefined ? part : (images.get(part) ?? textPart(hidden));
      });
      return { ...message, content: await Promise.all(content) };
    };
    return await Promise.all(history.map(readMessage));
  };
}
