export { createOpenAiChatBackend } from "./chat.ts";
export { createOpenAiResponsesBackend } from "./responses.ts";
export { transcribe, type TranscriptionAccess } from "./transcription.ts";
export type { OpenAiBackendOptions } from "./client.ts";
