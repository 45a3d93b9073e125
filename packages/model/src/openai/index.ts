export { createOpenAiChatBackend } from "./chat-backend.ts";
export { createOpenAiResponsesBackend } from "./responses-backend.ts";
export type { OpenAiBackendOptions } from "./client.ts";
