import { Type, type Static } from "typebox";

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

/** A file as somebody sent it: nothing about it is trusted. */
export interface AttachedFile {
  bytes: Uint8Array;
  name: string;
  mediaType?: string;
}
