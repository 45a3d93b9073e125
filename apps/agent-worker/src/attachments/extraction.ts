import { type Static, Type } from "@larkline/protocol/type";

/**
 * What became of a file. `mediaType` is what the bytes are, whatever the name says; `detail` is one
 * short English sentence for the model, without paths or stacks.
 */
export const Extraction = Type.Union([
  Type.Object({
    state: Type.Literal("ready"),
    text: Type.String(),
    mediaType: Type.String(),
    /** Whether the file holds more text than this. */
    truncated: Type.Boolean(),
    /** Pages of a PDF, slides of a presentation, sheets of a workbook. */
    pages: Type.Optional(Type.Integer()),
  }),
  Type.Object({
    state: Type.Enum(["too_large", "unsupported", "failed"]),
    mediaType: Type.String(),
    detail: Type.String(),
  }),
]);

export type Extraction = Static<typeof Extraction>;

/** A picture that was made smaller; `data` is base64. */
export const ScaledPicture = Type.Object({
  state: Type.Literal("scaled"),
  mediaType: Type.Enum(["image/jpeg", "image/png"]),
  data: Type.String(),
});

export type ScaledPicture = Static<typeof ScaledPicture>;

/** A file as a person sent it: untrusted. */
export interface AttachedFile {
  bytes: Uint8Array;
  name: string;
  mediaType?: string;
}

/* ---- The input of a reading process ---- */

/** One file for the reading process. */
export interface ReadingJob extends AttachedFile {
  maxChars: number;
  /** When this time has passed, ms, what was read so far is the answer. */
  patienceMs: number;
  /** The same for CPU time, ms. */
  patienceCpuMs: number;
  /** The file is a picture, and a smaller picture is wanted in place of text. */
  scaleTo?: PictureBounds;
}

/** What a picture may have at most: pixels of its longest side, pixels in all, bytes. */
export interface PictureBounds {
  maxSide: number;
  maxPixels: number;
  maxBytes: number;
}
