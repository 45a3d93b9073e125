export type { AttachedFile, Extraction } from "./extraction.ts";
export { createSlots, type Slots } from "./text-extractor.ts";
export { createTextExtractor, type TextExtractor, type TextExtractorOptions } from "./text-extractor.ts";
