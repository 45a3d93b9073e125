import { describe, expect, it } from "vitest";
import {
  imageBlobIdOf,
  imageMarkOf,
  imageTypeOf,
  splitAtOpenMark,
  withoutImageMarks,
} from "./stored-image.ts";

const blobId = `blob_${"aB3-_".repeat(9).slice(0, 43)}`;

describe("the mark of a stored image", () => {
  it("names the blob that it was made of", () => {
    const mark = imageMarkOf(blobId, "sales 2024.png");
    expect(mark).toBe(`![sales 2024.png](blob:${blobId})`);
    expect(imageBlobIdOf(`blob:${blobId}`)).toBe(blobId);
    expect(imageBlobIdOf(blobId)).toBe(blobId);
  });

  it.each([
    "a](https://x.example)",
    "![",
    "a\nb",
    "\u0000",
    "`<at>`",
    "x".repeat(500),
    "",
    "😀".repeat(60),
  ])("stays one mark whatever the name is: %j", (name) => {
    const mark = imageMarkOf(blobId, name);
    expect(mark).toMatch(/^!\[[^[\]()\n]{1,80}\]\(blob:blob_[\w-]{43}\)$/);
    expect(mark.isWellFormed()).toBe(true);
  });

  it.each([
    "https://example.com/a.png",
    `https://example.com/${blobId}`,
    `blob:${blobId}x`,
    "blob:https://example.com/1",
    `../${blobId}`,
    "img_v3_1",
    "",
  ])("no other destination names a blob: %j", (destination) => {
    expect(imageBlobIdOf(destination)).toBeUndefined();
  });
});

describe("a text for places without images", () => {
  it("has names in place of stored images, and keeps everything else", () => {
    const text = `before ![bars](blob:${blobId}) and ![x](<blob:${blobId}>) ![y](${blobId} "t") ![](blob:${blobId})`;
    expect(withoutImageMarks(text)).toBe("before bars and x y 🖼️");
    const kept = "![a](https://example.com/a.png) [b](https://example.com) !important x[0](1) ![c]";
    expect(withoutImageMarks(kept)).toBe(kept);
  });

  it("has no broken references either", () => {
    expect(withoutImageMarks("![bars](blob:blob_short)")).toBe("bars");
  });

  it("grows to the same whatever the pieces, without ever showing a part of a mark", () => {
    const text = `Look! ![bars](blob:${blobId}) at ![a](https://x.example/a.png)! a[1](2) ![open](blo`;
    for (let size = 1; size < 30; size += 1) {
      let shown = "";
      let open = "";
      for (let at = 0; at < text.length; at += size) {
        const split = splitAtOpenMark(open + text.slice(at, at + size));
        shown += split.shown;
        open = split.open;
        expect(shown).not.toContain("blob");
      }
      expect(shown + withoutImageMarks(open)).toBe(withoutImageMarks(text));
    }
  });

  it("holds nothing back that cannot become a mark", () => {
    for (const text of ["![a](https:", "![a] ", "![a\n", "a!b", "![a](b:", "[a](blob:"]) {
      expect(splitAtOpenMark(text)).toEqual({ shown: text, open: "" });
    }
  });
});

describe("imageTypeOf", () => {
  it.each([
    ["image/png", "\x89PNG\r\n\x1a\n0000"],
    ["image/jpeg", "\xff\xd8\xff\xe0"],
    ["image/gif", "GIF89a"],
    ["image/webp", "RIFF0000WEBPVP8 "],
  ])("knows %s by its first bytes", (type, bytes) => {
    expect(imageTypeOf(Buffer.from(bytes, "latin1"))).toBe(type);
  });

  it.each([
    "",
    "\x89PN",
    "<svg xmlns='http://www.w3.org/2000/svg'/>",
    "RIFF0000WAVE",
    "BM000000",
    "%PDF-1.7",
  ])("takes %j for no image", (bytes) => {
    expect(imageTypeOf(Buffer.from(bytes, "latin1"))).toBeUndefined();
  });
});
