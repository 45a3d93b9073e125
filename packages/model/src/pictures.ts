import type { ImagePart, Message, TextPart } from "@larkline/protocol/content";
import type { PictureLimits } from "./profile.ts";

/** Bytes at the beginning of a picture that are searched for its size. */
const headBytes = 262_144;

/** Why a picture is too much for a vendor, in words for the model; undefined when it is not, or its size is not known. */
export function pictureProblem(image: ImagePart, limits: PictureLimits): string | undefined {
  const { source } = image;
  if (source.sourceType !== "base64") return undefined;
  const bytes = Buffer.byteLength(source.data, "base64");
  if (bytes > limits.maxBytes) return `it has ${bytes} bytes, this model takes ${limits.maxBytes}`;
  const size = pictureSize(
    Buffer.from(source.data.slice(0, Math.ceil((headBytes * 4) / 3)), "base64"),
  );
  if (size === undefined) return undefined;
  const { width, height } = size;
  if (Math.max(width, height) > limits.maxSide) {
    return `it has ${width} x ${height} pixels, this model takes ${limits.maxSide} on a side`;
  }
  if (width * height <= limits.maxPixels) return undefined;
  return `it has ${width} x ${height} pixels, this model takes ${limits.maxPixels} in all`;
}

/** Makes a picture small enough; undefined: it cannot. Must not reject, except when the signal aborts. */
export type PictureScaling = (
  image: ImagePart,
  limits: PictureLimits,
  signal: AbortSignal | undefined,
) => Promise<ImagePart | undefined>;

/** The messages with smaller pictures in place of those that the vendor would refuse, as far as they can be made. */
export async function withScaledPictures(
  messages: readonly Message[],
  limits: PictureLimits,
  { scale, signal }: { scale: PictureScaling; signal: AbortSignal | undefined },
): Promise<readonly Message[]> {
  const latest = imagesOf(messages).toReversed().slice(0, limits.maxCount);
  const scaled = new Map<ImagePart, ImagePart>();
  for (const image of latest) {
    if (scaled.has(image) || pictureProblem(image, limits) === undefined) continue;
    const smaller = await scale(image, limits, signal);
    if (smaller !== undefined) scaled.set(image, smaller);
  }
  if (scaled.size === 0) return messages;
  return messages.map((message) => withPictures(message, (image) => scaled.get(image) ?? image));
}

/** The pictures that people and tools have sent, in their order. */
export function imagesOf(messages: readonly Message[]): ImagePart[] {
  const images: ImagePart[] = [];
  for (const { content } of messages) {
    for (const part of content) {
      if (part.type === "image") images.push(part);
      if (part.type !== "tool_result" || typeof part.content === "string") continue;
      for (const inner of part.content) if (inner.type === "image") images.push(inner);
    }
  }
  return images;
}

/**
 * The messages with a sentence in place of each picture that the vendor would refuse: all of them where the model takes
 * `none`. The latest pictures count.
 */
export function withSentPictures(
  messages: readonly Message[],
  limits: PictureLimits | "none",
): readonly Message[] {
  if (imagesOf(messages).length === 0) return messages;
  let left = limits === "none" ? 0 : limits.maxCount;
  const sent = (image: ImagePart): ImagePart | TextPart => {
    const problem =
      limits === "none"
        ? "this model takes text only"
        : left > 0
          ? pictureProblem(image, limits)
          : "newer ones leave no room for it";
    if (problem === undefined) {
      left -= 1;
      return image;
    }
    return {
      type: "text",
      text: `[A picture that is not shown: ${problem}. Say so, do not guess.]`,
    };
  };
  const changed = messages
    .toReversed()
    .map((message) => withPictures(message, sent))
    .toReversed();
  return isEqual(changed, messages) ? messages : changed;
}

function withPictures(message: Message, sent: (image: ImagePart) => ImagePart | TextPart): Message {
  if (message.role === "assistant") return message;
  if (message.role === "user") {
    const content = message.content
      .toReversed()
      .map((part) => (part.type === "image" ? sent(part) : part))
      .toReversed();
    return isEqual(content, message.content) ? message : { ...message, content };
  }
  const content = message.content.map((part) => {
    if (typeof part.content === "string") return part;
    const inner = part.content
      .toReversed()
      .map((one) => (one.type === "image" ? sent(one) : one))
      .toReversed();
    return isEqual(inner, part.content) ? part : { ...part, content: inner };
  });
  return isEqual(content, message.content) ? message : { ...message, content };
}

function isEqual(left: readonly unknown[], right: readonly unknown[]): boolean {
  return left.every((item, at) => item === right[at]);
}

/** Width and height in the head of a PNG, JPEG, GIF or WebP file; undefined of anything else. */
export function pictureSize(bytes: Uint8Array): { width: number; height: number } | undefined {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, headBytes));
  try {
    if (head.readUInt32BE(0) === 0x89504e47) {
      return { width: head.readUInt32BE(16), height: head.readUInt32BE(20) };
    }
    const magic = head.toString("latin1", 0, 4);
    if (magic === "GIF8") return { width: head.readUInt16LE(6), height: head.readUInt16LE(8) };
    if (magic === "RIFF") return webpSize(head);
    return head.readUInt16BE(0) === 0xffd8 ? jpegSize(head) : undefined;
  } catch {
    return undefined; // cut off, or no picture: the vendor judges it
  }
}

function webpSize(head: Buffer): { width: number; height: number } | undefined {
  const kind = head.toString("latin1", 12, 16);
  if (kind === "VP8X") {
    return { width: head.readUIntLE(24, 3) + 1, height: head.readUIntLE(27, 3) + 1 };
  }
  if (kind === "VP8 ") {
    return { width: head.readUInt16LE(26) & 0x3fff, height: head.readUInt16LE(28) & 0x3fff };
  }
  if (kind !== "VP8L") return undefined;
  const bits = head.readUInt32LE(21);
  return { width: (bits & 0x3fff) + 1, height: ((bits >> 14) & 0x3fff) + 1 };
}

function jpegSize(head: Buffer): { width: number; height: number } | undefined {
  for (let at = 2; at + 9 < head.length;) {
    const marker = head.readUInt16BE(at);
    // The frame headers: SOF0 to SOF15 without the tables DHT, JPG and DAC.
    const isFrame =
      marker >= 0xffc0 && marker <= 0xffcf && ![0xffc4, 0xffc8, 0xffcc].includes(marker);
    if (isFrame) return { width: head.readUInt16BE(at + 7), height: head.readUInt16BE(at + 5) };
    at += 2 + head.readUInt16BE(at + 2);
  }
  return undefined;
}
