// Chat messages and agent events as AutoGen AgentChat writes them, for programs that are no part of a deployment.

// Read, make and write messages of the fifteen classes.
export {
  createMessage,
  dumpMessage,
  loadMessage,
  parseAgentEvent,
  parseChatMessage,
  parseMessage,
  StructuredModels,
} from "@larkline/protocol/views/chat-messages";

export { MessageError } from "@larkline/protocol/views/message-error";

// As text for people and for models.
export {
  imageMediaType,
  toModelMessage,
  toModelText,
  toText,
} from "@larkline/protocol/views/chat-texts";

// The schemas of the classes, by name, and what they are made of.
export {
  AgentEvent,
  agentEventSchemas,
  ChatMessage,
  chatMessageSchemas,
  LlmMessage,
  memoryMimeTypes,
  StructuredMessage,
} from "@larkline/protocol/views/chat-messages";
export type {
  AnyMessage,
  FieldsOf,
  FunctionCall,
  HandoffMessage,
  Image,
  MessageOf,
  MessageType,
  MultiModalMessage,
  RequestUsage,
  TextMessage,
  UserMessage,
} from "@larkline/protocol/views/chat-messages";
export type { ParseResult } from "@larkline/protocol";
