export type { AttachedFile, Extraction } from "./extraction.ts";
export { createSlots, type Slots } from "./slots.ts";
export { createTextExtractor, type TextExtractor, type TextExtractorOptions } from "./text-extractor.ts";
