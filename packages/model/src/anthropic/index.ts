export { createAnthropicBackend, type AnthropicBackendOptions } from "./backend.ts";
