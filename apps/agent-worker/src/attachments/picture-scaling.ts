import { SamplingFilter, PhotonImage, resize } from "@silvia-odwyer/photon-node";
import type { Extraction, PictureBounds, ReadingJob, ScaledPicture } from "./extraction.ts";

/*
 * Pictures within the bounds of a vendor. Runs in the reading process only: decoders work on a stranger's bytes, as
 * WebAssembly, whose memory never shrinks.
 */

const jpegQuality = 85;
/** Each one makes the picture smaller. */
const maxTries = 8;

/** Makes the picture small enough. A photograph stays a JPEG; other pictures become a PNG where that has the bytes for it. */
export function scalePicture(
  { bytes }: ReadingJob,
  bounds: PictureBounds,
): ScaledPicture | Extraction {
  try {
    return scaled(bytes, bounds);
  } catch {
    return {
      state: "failed",
      mediaType: "application/octet-stream",
      detail: "The picture is damaged.",
    };
  }
}

function scaled(
  bytes: Uint8Array,
  { maxSide, maxPixels, maxBytes }: PictureBounds,
): ScaledPicture | Extraction {
  const isJpeg = bytes[0] === 0xff && bytes[1] === 0xd8;
  const orientation = isJpeg
    ? orientationOf(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength))
    : undefined;
  let image = PhotonImage.new_from_byteslice(bytes);
  const fitting = (): number => {
    const [width, height] = [image.get_width(), image.get_height()];
    return Math.min(1, maxSide / Math.max(width, height), Math.sqrt(maxPixels / (width * height)));
  };
  while (isHalvedFirst(image, fitting())) image = halved(image);
  const [width, height] = [image.get_width(), image.get_height()];
  let scale = fitting();
  let asPng = !isJpeg;
  for (let tries = 0; tries < maxTries; tries += 1) {
    image = resized(
      image,
      Math.max(1, Math.floor(width * scale)),
      Math.max(1, Math.floor(height * scale)),
    );
    const data = asPng
      ? image.get_bytes()
      : withOrientation(image.get_bytes_jpeg(jpegQuality), orientation);
    if (data.byteLength <= maxBytes) {
      const mediaType = asPng ? "image/png" : "image/jpeg";
      return { state: "scaled", mediaType, data: Buffer.from(data).toString("base64") };
    }
    if (asPng) {
      asPng = false;
      image = onWhite(image);
    } else scale *= Math.min(0.8, Math.sqrt(maxBytes / data.byteLength));
  }
  return {
    state: "too_large",
    mediaType: "image/jpeg",
    detail: "The picture cannot be made small enough.",
  };
}

/** Pixels that are smoothed at once: that takes 16 bytes more for each. */
const maxSmoothed = 13_000_000;

function isHalvedFirst(image: PhotonImage, scale: number): boolean {
  const [width, height] = [image.get_width(), image.get_height()];
  return Math.min(width, height) >= 2 && (scale <= 0.5 || width * height > maxSmoothed);
}

/** Of each four pixels their mean: in little memory. */
function halved(image: PhotonImage): PhotonImage {
  const pixels = image.get_raw_pixels();
  const row = image.get_width() * 4;
  const [width, height] = [image.get_width() >> 1, image.get_height() >> 1];
  image.free();
  const smaller = new Uint8Array(width * height * 4);
  let to = 0;
  for (let y = 0; y < height; y += 1) {
    for (let from = y * 2 * row, end = from + width * 8; from < end; from += 8) {
      for (let at = from; at < from + 4; at += 1) {
        const sum =
          (pixels[at] ?? 0) +
          (pixels[at + 4] ?? 0) +
          (pixels[at + row] ?? 0) +
          (pixels[at + row + 4] ?? 0);
        smaller[to++] = (sum + 2) >> 2;
      }
    }
  }
  return new PhotonImage(smaller, width, height);
}

function resized(image: PhotonImage, width: number, height: number): PhotonImage {
  if (image.get_width() === width && image.get_height() === height) return image;
  const smaller = resize(image, width, height, SamplingFilter.Triangle);
  image.free();
  return smaller;
}

/** A JPEG knows no transparency: what was transparent would be black. */
function onWhite(image: PhotonImage): PhotonImage {
  const pixels = image.get_raw_pixels();
  const flat = new PhotonImage(blended(pixels), image.get_width(), image.get_height());
  image.free();
  return flat;
}

function blended(pixels: Uint8Array): Uint8Array {
  for (let at = 0; at < pixels.length; at += 4) {
    const alpha = pixels[at + 3] ?? 255;
    if (alpha === 255) continue;
    for (let channel = at; channel < at + 3; channel += 1) {
      pixels[channel] = Math.round(((pixels[channel] ?? 0) * alpha + 255 * (255 - alpha)) / 255);
    }
    pixels[at + 3] = 255;
  }
  return pixels;
}

/* ---- How a camera was held: Exif 2.32, tag 0x0112 ---- */

const exifMark = Buffer.from("Exif\0\0", "latin1");

/** 2 to 8 where the pixels are not as the picture is seen; undefined: they are, or it is not said. */
function orientationOf(jpeg: Buffer): number | undefined {
  for (let at = 2; at + 4 <= jpeg.length && jpeg[at] === 0xff;) {
    const marker = jpeg[at + 1];
    if (marker === 0xda) return undefined; // the pixels begin
    const end = at + 2 + jpeg.readUInt16BE(at + 2);
    const segment = jpeg.subarray(at + 4, end);
    if (marker === 0xe1 && segment.subarray(0, 6).equals(exifMark)) {
      return orientationIn(segment.subarray(6));
    }
    at = end;
  }
  return undefined;
}

function orientationIn(tiff: Buffer): number | undefined {
  const isLittle = tiff.toString("latin1", 0, 2) === "II";
  const short = (at: number): number => (isLittle ? tiff.readUInt16LE(at) : tiff.readUInt16BE(at));
  const directory = isLittle ? tiff.readUInt32LE(4) : tiff.readUInt32BE(4);
  const count = Math.min(short(directory), 100);
  for (let entry = directory + 2; entry < directory + 2 + count * 12; entry += 12) {
    if (short(entry) !== 0x0112) continue;
    const value = short(entry + 8);
    return value >= 2 && value <= 8 ? value : undefined;
  }
  return undefined;
}

/** The picture with one segment in front that says how to turn it, as the camera's did. */
function withOrientation(jpeg: Uint8Array, orientation: number | undefined): Uint8Array {
  if (orientation === undefined) return jpeg;
  const tiff = Buffer.from("4d4d002a00000008000101120003000000010000000000000000", "hex");
  tiff.writeUInt16BE(orientation, 18);
  const head = Buffer.from([0xff, 0xd8, 0xff, 0xe1, 0, 2 + exifMark.length + tiff.length]);
  return Buffer.concat([head, exifMark, tiff, jpeg.subarray(2)]);
}
