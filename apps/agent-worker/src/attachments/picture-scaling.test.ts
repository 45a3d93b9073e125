import { PhotonImage } from "@silvia-odwyer/photon-node";
import { pictureSize } from "@larkline/model";
import { afterAll, describe, expect, it } from "vitest";
import type { PictureBounds, ScaledPicture } from "./extraction.ts";
import { scalePicture } from "./picture-scaling.ts";
import { createTextExtractor } from "./text-extractor.ts";

const bounds: PictureBounds = { maxSide: 400, maxPixels: 1_000_000, maxBytes: 1_000_000 };

/** Pixels that no format packs well. */
function noise(width: number, height: number, alpha = 255): PhotonImage {
  const pixels = new Uint8Array(width * height * 4);
  let seed = 1;
  for (let at = 0; at < pixels.length; at += 1) {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    pixels[at] = at % 4 === 3 ? alpha : seed >>> 24;
  }
  return new PhotonImage(pixels, width, height);
}

function scaled(bytes: Uint8Array, to: Partial<PictureBounds> = {}) {
  const job = { bytes, name: "", maxChars: 0, patienceMs: 0, patienceCpuMs: 0 };
  return scalePicture(job, { ...bounds, ...to });
}

function pictureOf(result: ReturnType<typeof scaled>): { bytes: Buffer; mediaType: string } {
  expect(result).toMatchObject({ state: "scaled" });
  const { data, mediaType } = result as ScaledPicture;
  return { bytes: Buffer.from(data, "base64"), mediaType };
}

/** A camera's JPEG that was held the other way. */
function turned(jpeg: Uint8Array, orientation: number): Buffer {
  const exif = Buffer.from(
    "457869660000 49492a0008000000 0100 1201 0300 01000000 0000 0000 00000000".replaceAll(" ", ""),
    "hex",
  );
  exif.writeUInt16LE(orientation, 24);
  const head = Buffer.from([0xff, 0xd8, 0xff, 0xe1, 0, 2 + exif.length]);
  return Buffer.concat([head, exif, jpeg.subarray(2)]);
}

describe("a picture that a vendor would refuse is made smaller", () => {
  it.each([
    ["its side", { maxSide: 400 }, { width: 400, height: 31 }],
    ["its pixels", { maxSide: 9_000, maxPixels: 7_000 }, { width: 300, height: 23 }],
  ])("because of %s, in its proportions", (_why, to, size) => {
    const { bytes, mediaType } = pictureOf(scaled(noise(900, 70).get_bytes(), to));
    expect(mediaType).toBe("image/png");
    expect(pictureSize(bytes)).toEqual(size);
  });

  it("because of its bytes: a photograph stays one", () => {
    const jpeg = noise(400, 300).get_bytes_jpeg(95);
    const { bytes, mediaType } = pictureOf(scaled(jpeg, { maxBytes: 20_000 }));
    expect(mediaType).toBe("image/jpeg");
    expect(bytes.length).toBeLessThanOrEqual(20_000);
    expect(jpeg.length).toBeGreaterThan(100_000);
  });

  it("because of its bytes: what was transparent becomes white, not black", () => {
    const { bytes, mediaType } = pictureOf(
      scaled(noise(300, 300, 0).get_bytes(), { maxBytes: 30_000 }),
    );
    expect(mediaType).toBe("image/jpeg");
    const pixels = PhotonImage.new_from_byteslice(bytes).get_raw_pixels();
    expect([...new Set(pixels)]).toEqual([255]);
  });

  it("and says as the camera did how it is to be turned", () => {
    const { bytes } = pictureOf(scaled(turned(noise(800, 600).get_bytes_jpeg(90), 6)));
    const again = pictureOf(scaled(bytes, { maxSide: 100 })).bytes;
    expect(again.toString("latin1", 6, 10)).toBe("Exif");
    expect(again.readUInt16BE(12 + 18)).toBe(6);
    expect(pictureSize(again)).toEqual({ width: 100, height: 75 });
  });

  it("unless it is damaged", () => {
    expect(scaled(Buffer.from("89504e470d0a1a0a0000000d49484452", "hex"))).toMatchObject({
      state: "failed",
    });
  });
});

describe("pictures of strangers are decoded in the reading process", () => {
  // Its memory is that of a deployment.
  const extractor = createTextExtractor({ cpuMs: 600_000, deadlineMs: 600_000, processes: 1 });
  afterAll(() => extractor.close());

  it("once for all requests that send them", async () => {
    const png = noise(900, 70).get_bytes();
    const first = await extractor.scale(png, bounds);
    expect(pictureSize(Buffer.from(first?.data ?? "", "base64"))).toEqual({
      width: 400,
      height: 31,
    });
    expect(await extractor.scale(Uint8Array.from(png), bounds)).toBe(first);
    expect(await extractor.scale(png, { ...bounds, maxSide: 90 })).not.toBe(first);
  });

  it("up to what cameras make, 24 million pixels", async () => {
    const [width, height] = [6_000, 4_000];
    const photo = new PhotonImage(
      new Uint8Array(width * height * 4).fill(200),
      width,
      height,
    ).get_bytes_jpeg(80);
    const picture = await extractor.scale(photo, {
      ...bounds,
      maxSide: 4_096,
      maxPixels: 30_000_000,
    });
    expect(pictureSize(Buffer.from(picture?.data ?? "", "base64"))).toEqual({
      width: 3_000,
      height: 2_000,
    });
  });

  it("not if they say that they hold more pixels than memory takes", async () => {
    const bomb = noise(10, 10).get_bytes();
    Buffer.from(bomb.buffer).writeUInt32BE(60_000, 16);
    Buffer.from(bomb.buffer).writeUInt32BE(60_000, 20);
    expect(await extractor.scale(bomb, bounds)).toBeUndefined();
  });

  it("and damaged ones give none", async () => {
    const cut = noise(900, 70).get_bytes().subarray(0, 2_000);
    expect(await extractor.scale(cut, bounds)).toBeUndefined();
    expect(await extractor.scale(Buffer.from("no picture"), bounds)).toBeUndefined();
  });
});
