import type { ImagePart, Message } from "@larkline/protocol/content";
import { describe, expect, it } from "vitest";
import { pictureSize, withScaledPictures, withSentPictures } from "./backend.ts";

/** Head of a PNG of that size. */
function png(width: number, height: number, bytes = 40): Buffer {
  const head = Buffer.alloc(bytes);
  head.writeUInt32BE(0x89504e47, 0);
  head.writeUInt32BE(width, 16);
  head.writeUInt32BE(height, 20);
  return head;
}

const picture = (bytes: Buffer): ImagePart => ({
  type: "image",
  source: { sourceType: "base64", mediaType: "image/png", data: bytes.toString("base64") },
});

const limits = { maxSide: 8_000, maxPixels: 30_000_000, maxBytes: 1_000, maxCount: 3 };

describe("the size of a picture", () => {
  const jpeg = Buffer.from("ffd8ffe00004aaaaffc4000400ffffc0001108010204000301", "hex");
  const webp = (kind: string, rest: string) =>
    Buffer.from(`RIFF\0\0\0\0WEBP${kind}`, "latin1").toString("hex") + rest;
  it.each([
    ["PNG", png(9_000, 700).toString("hex"), { width: 9_000, height: 700 }],
    ["GIF", Buffer.from("GIF89a\x10\0\x20\0", "latin1").toString("hex"), { width: 16, height: 32 }],
    ["JPEG", `${jpeg.toString("hex")}00000000`, { width: 0x0400, height: 0x0102 }],
    [
      "WebP with features",
      webp("VP8X", "0000000000000000ff0300570200"),
      { width: 1_024, height: 600 },
    ],
    ["lossy WebP", webp("VP8 ", "000000000000009d012a00045802"), { width: 1_024, height: 600 }],
    ["lossless WebP", webp("VP8L", "000000002fffc39500"), { width: 1_024, height: 600 }],
    ["nothing", "", undefined],
    ["a PNG cut off", png(1, 1).subarray(0, 10).toString("hex"), undefined],
    ["text", Buffer.from("hello hello hello").toString("hex"), undefined],
  ])("is read of %s", (_kind, hex, size) => {
    expect(pictureSize(Buffer.from(hex, "hex"))).toEqual(size);
  });
});

describe("pictures that a vendor would refuse", () => {
  it("are named in a sentence, the latest are kept", () => {
    const fits = picture(png(10, 10));
    const messages: Message[] = [
      { role: "user", content: [fits, fits, picture(png(9_000, 700))] },
      { role: "assistant", content: [{ type: "text", text: "ok" }] },
      {
        role: "tool",
        content: [
          {
            type: "tool_result",
            toolCallId: "a",
            content: [picture(png(7_000, 7_000)), fits],
            isError: false,
          },
        ],
      },
      { role: "user", content: [picture(png(1, 1, 2_000)), fits] },
    ];
    const [first, answer, result, last] = withSentPictures(messages, limits);
    const said = (text: string) => ({
      type: "text",
      text: `[A picture that is not shown: ${text}. Say so, do not guess.]`,
    });
    expect(last?.content).toEqual([said("it has 2000 bytes, this model takes 1000"), fits]);
    expect(result?.content).toMatchObject([
      { content: [said("it has 7000 x 7000 pixels, this model takes 30000000 in all"), fits] },
    ]);
    expect(answer).toBe(messages[1]);
    expect(first?.content).toEqual([
      said("newer ones leave no room for it"),
      fits,
      said("it has 9000 x 700 pixels, this model takes 8000 on a side"),
    ]);
  });

  it("are made smaller where that can be done, each once, only those that are sent", async () => {
    const large = picture(png(9_000, 700));
    const endless = picture(png(9_999, 9_999));
    const fits = picture(png(10, 10));
    const smaller = picture(png(8_000, 622));
    const asked: ImagePart[] = [];
    const scale = async (image: ImagePart) => {
      asked.push(image);
      return image === large ? smaller : undefined;
    };
    const messages: Message[] = [
      { role: "user", content: [picture(png(9_001, 1)), large] },
      {
        role: "tool",
        content: [{ type: "tool_result", toolCallId: "a", content: [large], isError: false }],
      },
      { role: "user", content: [endless] },
      { role: "assistant", content: [{ type: "text", text: "ok" }] },
    ];
    const sent = await withScaledPictures(messages, limits, { scale, signal: undefined });
    expect(asked).toEqual([endless, large]);
    expect(sent[0]?.content).toEqual([messages[0]?.content[0], smaller]);
    expect(sent[1]?.content).toMatchObject([{ content: [smaller] }]);
    expect(sent.slice(2)).toEqual(messages.slice(2));
    const small: Message[] = [{ role: "user", content: [fits] }];
    expect(await withScaledPictures(small, limits, { scale, signal: undefined })).toBe(small);
  });

  it("are none where all fit: the same messages", () => {
    const messages: Message[] = [
      { role: "user", content: [picture(png(10, 10)), { type: "text", text: "see" }] },
    ];
    expect(withSentPictures(messages, limits)).toBe(messages);
  });
});
