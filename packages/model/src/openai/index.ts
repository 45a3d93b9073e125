export { createOpenAiChatBackend } from "./chat.ts";
export { createOpenAiResponsesBackend } from "./responses.ts";
export type { OpenAiBackendOptions } from "./client.ts";
