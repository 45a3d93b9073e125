export type { LlmBackend, ModelRequest, ResponseFormat, SystemBlock } from "./backend.ts";
export type { ModelInfo } from "./model-info.ts";
