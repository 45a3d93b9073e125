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

/** The latest images that a model gets; earlier ones are only named, because each costs like a page of text. */
const maxImages = 10;

function isStoredImage(part: Part): part is ImagePart {
  return part.type === "image" && part.source.sourceType === "blob";
}

function countImages(history: readonly Message[]): number {
  return history.reduce((count, { content }) => count + content.filter(isStoredImage).length, 0);
}

function textPart(text: string): TextPart {
  return { type: "text", text };
}

/**
 * Puts the content of stored images and files in place of their references, for one request: history
 * itself keeps the references. Without any it returns the same array.
 */
export function createHistoryReader({ blobs, vision, maxChars }: HistoryReaderDeps): HistoryReader {
  const image = async (part: ImagePart, isRecent: boolean): Promise<ImagePart | TextPart> => {
    if (part.source.sourceType !== "blob") return part;
    if (!vision) return textPart("[An image that you cannot see: this model takes text only. Say so, do not guess.]");
    if (!isRecent) return textPart("[An earlier image, not shown again.]");
    const stored = await blobs.get(part.source.blobId);
    if (stored === undefined)
      return textPart("[An image that is no longer stored. Say so, do not guess what it shows.]");
    const data = Buffer.from(stored.bytes).toString("base64");
    return { type: "image", source: { sourceType: "base64", mediaType: part.source.mediaType, data } };
  };

  const file = async (part: FilePart): Promise<TextPart> => {
    const stored = part.blobId === undefined ? undefined : await blobs.get(part.blobId);
    const content = stored === undefined ? undefined : Buffer.from(stored.bytes).toString("utf8");
    return textPart(attachmentText(part, content, maxChars));
  };

  return async (history) => {
    let older = countImages(history) - maxImages;
    const readMessage = async (message: Message): Promise<Message> => {
      if (message.role !== "user" || message.content.every(({ type }) => type === "text")) return message;
      const content = message.content.map(async (part) => {
        if (part.type === "file") return await file(part);
        if (!isStoredImage(part)) return part;
        older -= 1;
        return await image(part, older < 0);
      });
      return { ...message, content: await Promise.all(content) };
    };
    const plain = history.every(({ role, content }) => role !== "user" || content.every(({ type }) => type === "text"));
    return plain ? history : await Promise.all(history.map(readMessage));
  };
}
