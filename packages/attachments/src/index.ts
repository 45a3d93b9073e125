export type { AttachedFile, Extraction } from "./extraction.ts";
export { createTextExtractor, type TextExtractor, type TextExtractorOptions } from "./text-extractor.ts";
