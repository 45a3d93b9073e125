import { Type, type Static, type TSchema } from "../type.ts";
import { parserOf, type ParseResult } from "../schema.ts";

// What a run has produced, as items of the OpenAI Agents SDK. Raw items are objects of the OpenAI Responses API with
// its field names; their schemas check the main fields and accept others.

const status = Type.Enum(["in_progress", "completed", "incomplete"]);
const optionalStatus = Type.Optional(status);
const nullable = (schema: TSchema) => Type.Union([schema, Type.Null()]);
const optionalText = Type.Optional(Type.Unsafe<string | null>(nullable(Type.String())));
/** The vendor describes it in more detail than this code reads. */
const anObject = Type.Object({});

type Annotation =
  | { type: "file_citation"; file_id: string; filename: string; index: number }
  | { type: "url_citation"; start_index: number; end_index: number; title: string; url: string }
  | {
      type: "container_file_citation";
      container_id: string;
      file_id: string;
      filename: string;
      start_index: number;
      end_index: number;
    }
  | { type: "file_path"; file_id: string; index: number };

/** Most pieces of one item, such as parts, annotations or results; an item with more is refused. */
export const maxItemPieces = 1_000;

export const OutputText = Type.Object({
  type: Type.Literal("output_text"),
  /** Some gateways send null, which counts as no text. */
  text: Type.Unsafe<string>(nullable(Type.String())),
  annotations: Type.Array(Type.Unsafe<Annotation>(anObject), { maxItems: maxItemPieces }),
});
export const OutputRefusal = Type.Object({ type: Type.Literal("refusal"), refusal: Type.String() });
/** A part of a message of a model. Parts of unknown types are kept. */
export type OutputPart = Static<typeof OutputText> | Static<typeof OutputRefusal>;

export const OutputMessage = Type.Object({
  type: Type.Literal("message"),
  id: Type.String(),
  role: Type.Literal("assistant"),
  status,
  /** Whether it is the answer, or tells what the model is about to do. Later models name it. */
  phase: Type.Optional(Type.Unsafe<"commentary" | "final_answer" | null>(nullable(Type.String()))),
  content: Type.Array(
    Type.Unsafe<OutputPart>(
      Type.Union([
        OutputText,
        OutputRefusal,
        Type.Object({ type: Type.String({ pattern: "^(?!(output_text|refusal)$)" }) }),
      ]),
    ),
    { maxItems: maxItemPieces },
  ),
});
export type OutputMessage = Static<typeof OutputMessage>;

export const FunctionCall = Type.Object({
  type: Type.Literal("function_call"),
  /** What the output refers to; `id` is that of the item. */
  call_id: Type.String(),
  name: Type.String(),
  /** JSON text. */
  arguments: Type.String(),
  id: Type.Optional(Type.String()),
  status: optionalStatus,
});
export type FunctionCall = Static<typeof FunctionCall>;

type Keys = string[] | null;
type ComputerAction =
  | {
      type: "click";
      button: "left" | "right" | "wheel" | "back" | "forward";
      x: number;
      y: number;
      keys?: Keys;
    }
  | { type: "double_click"; x: number; y: number; keys: Keys }
  | { type: "drag"; path: { x: number; y: number }[]; keys?: Keys }
  | { type: "keypress"; keys: string[] }
  | { type: "move"; x: number; y: number; keys?: Keys }
  | { type: "screenshot" }
  | { type: "scroll"; x: number; y: number; scroll_x: number; scroll_y: number; keys?: Keys }
  | { type: "type"; text: string }
  | { type: "wait" };

interface SafetyCheck {
  id: string;
  code?: string | null;
  message?: string | null;
}

const ComputerCall = Type.Object({
  type: Type.Literal("computer_call"),
  id: Type.String(),
  call_id: Type.String(),
  /** Later models list `actions` in its place. */
  action: Type.Optional(Type.Unsafe<ComputerAction>(anObject)),
  pending_safety_checks: Type.Array(Type.Unsafe<SafetyCheck>(anObject), {
    maxItems: maxItemPieces,
  }),
  status,
});

interface FoundText {
  attributes?: Record<string, string | number | boolean> | null;
  file_id?: string;
  filename?: string;
  score?: number;
  text?: string;
}

const FileSearchCall = Type.Object({
  type: Type.Literal("file_search_call"),
  id: Type.String(),
  queries: Type.Array(Type.String(), { maxItems: maxItemPieces }),
  status: Type.Enum(["in_progress", "searching", "completed", "incomplete", "failed"]),
  results: Type.Optional(
    Type.Unsafe<FoundText[] | null>(nullable(Type.Array(anObject, { maxItems: maxItemPieces }))),
  ),
});

type WebAction =
  | { type: "search"; queries?: string[]; query?: string; sources?: { type: "url"; url: string }[] }
  | { type: "open_page"; url?: string | null }
  | { type: "find_in_page"; pattern: string; url: string };

const WebSearchCall = Type.Object({
  type: Type.Literal("web_search_call"),
  id: Type.String(),
  status: Type.Enum(["in_progress", "searching", "completed", "failed", "incomplete"]),
  /** Earlier versions of the interface have none. */
  action: Type.Unsafe<WebAction>(Type.Optional(anObject)),
});

const McpCall = Type.Object({
  type: Type.Literal("mcp_call"),
  id: Type.String(),
  server_label: Type.String(),
  name: Type.String(),
  arguments: Type.String(),
  output: optionalText,
});

type CodeOutput = { type: "logs"; logs: string } | { type: "image"; url: string };

const CodeInterpreterCall = Type.Object({
  type: Type.Literal("code_interpreter_call"),
  id: Type.String(),
  code: Type.Unsafe<string | null>(nullable(Type.String())),
  container_id: Type.String(),
  outputs: Type.Unsafe<CodeOutput[] | null>(
    nullable(Type.Array(anObject, { maxItems: maxItemPieces })),
  ),
  status: Type.Enum(["in_progress", "completed", "incomplete", "interpreting", "failed"]),
});

const ImageGenerationCall = Type.Object({
  type: Type.Literal("image_generation_call"),
  id: Type.String(),
  /** Base64. */
  result: Type.Unsafe<string | null>(nullable(Type.String())),
  status: Type.Enum(["in_progress", "completed", "generating", "failed"]),
});

interface ShellAction {
  type: "exec";
  command: string[];
  env: Record<string, string>;
  timeout_ms?: number | null;
  user?: string | null;
  working_directory?: string | null;
}

const LocalShellCall = Type.Object({
  type: Type.Literal("local_shell_call"),
  id: Type.String(),
  call_id: Type.String(),
  action: Type.Unsafe<ShellAction>(anObject),
  status,
});

export const ToolCallRaw = Type.Union([
  FunctionCall,
  ComputerCall,
  FileSearchCall,
  WebSearchCall,
  McpCall,
  CodeInterpreterCall,
  ImageGenerationCall,
  LocalShellCall,
]);
export type ToolCallRaw = Static<typeof ToolCallRaw>;

interface Summary {
  type: "summary_text";
  text: string;
}

export const Reasoning = Type.Object({
  type: Type.Literal("reasoning"),
  id: Type.String(),
  summary: Type.Array(Type.Unsafe<Summary>(Type.Object({ text: Type.String() })), {
    maxItems: maxItemPieces,
  }),
  encrypted_content: optionalText,
  status: optionalStatus,
});
export type Reasoning = Static<typeof Reasoning>;

interface ListedTool {
  name: string;
  input_schema: unknown;
  description?: string | null;
  annotations?: unknown;
}

const McpListTools = Type.Object({
  type: Type.Literal("mcp_list_tools"),
  id: Type.String(),
  server_label: Type.String(),
  tools: Type.Array(Type.Unsafe<ListedTool>(Type.Object({ name: Type.String() })), {
    maxItems: maxItemPieces,
  }),
  error: optionalText,
});

const McpApprovalRequest = Type.Object({
  type: Type.Literal("mcp_approval_request"),
  id: Type.String(),
  server_label: Type.String(),
  name: Type.String(),
  arguments: Type.String(),
});

const McpApprovalResponse = Type.Object({
  type: Type.Literal("mcp_approval_response"),
  approval_request_id: Type.String(),
  approve: Type.Boolean(),
  reason: optionalText,
});

export const FunctionCallOutput = Type.Object({
  type: Type.Literal("function_call_output"),
  call_id: Type.String(),
  output: Type.String(),
  /** `incomplete`: the call has failed, and the output says why. */
  status: optionalStatus,
});
export type FunctionCallOutput = Static<typeof FunctionCallOutput>;

interface Screenshot {
  type: "computer_screenshot";
  file_id?: string;
  image_url?: string;
}

const ComputerCallOutput = Type.Object({
  type: Type.Literal("computer_call_output"),
  call_id: Type.String(),
  output: Type.Unsafe<Screenshot>(anObject),
});

/** Refers to its call by `id`. */
const LocalShellCallOutput = Type.Object({
  type: Type.Literal("local_shell_call_output"),
  id: Type.String(),
  output: Type.String(),
});

export const ToolOutputRaw = Type.Union([
  FunctionCallOutput,
  ComputerCallOutput,
  LocalShellCallOutput,
]);
export type ToolOutputRaw = Static<typeof ToolOutputRaw>;

/** What a model has produced. Other types of the vendor are kept as they are. */
export type OutputItem =
  | OutputMessage
  | ToolCallRaw
  | Reasoning
  | Static<typeof McpListTools>
  | Static<typeof McpApprovalRequest>;

const InputText = Type.Object({ type: Type.Literal("input_text"), text: Type.String() });

const InputImage = Type.Object({
  type: Type.Literal("input_image"),
  detail: Type.Enum(["low", "high", "auto"]),
  /** HTTPS, or a data URL. */
  image_url: Type.String(),
});

/** A message of a person, or in short form one of a model. */
export const EasyMessage = Type.Object({
  role: Type.Enum(["user", "assistant"]),
  content: Type.Union([
    Type.String(),
    Type.Array(Type.Union([InputText, InputImage]), { maxItems: maxItemPieces }),
  ]),
  type: Type.Optional(Type.Literal("message")),
});
export type EasyMessage = Static<typeof EasyMessage>;

/** What is sent to a model. */
export type InputItem =
  | OutputItem
  | EasyMessage
  | ToolOutputRaw
  | Static<typeof McpApprovalResponse>;

/** The name of the agent whose run produced the item. */
const agent = Type.String();

export const itemSchemas = {
  message_output_item: Type.Object({
    type: Type.Literal("message_output_item"),
    agent,
    rawItem: OutputMessage,
  }),
  handoff_call_item: Type.Object({
    type: Type.Literal("handoff_call_item"),
    agent,
    rawItem: FunctionCall,
  }),
  handoff_output_item: Type.Object({
    type: Type.Literal("handoff_output_item"),
    agent,
    rawItem: FunctionCallOutput,
    /** Who hands over, and who takes over. */
    sourceAgent: Type.String(),
    targetAgent: Type.String(),
  }),
  tool_call_item: Type.Object({
    type: Type.Literal("tool_call_item"),
    agent,
    rawItem: ToolCallRaw,
  }),
  tool_call_output_item: Type.Object({
    type: Type.Literal("tool_call_output_item"),
    agent,
    rawItem: ToolOutputRaw,
    /** What the tool gave back: JSON. The raw item holds it as text. */
    output: Type.Unknown(),
  }),
  reasoning_item: Type.Object({ type: Type.Literal("reasoning_item"), agent, rawItem: Reasoning }),
  mcp_list_tools_item: Type.Object({
    type: Type.Literal("mcp_list_tools_item"),
    agent,
    rawItem: McpListTools,
  }),
  mcp_approval_request_item: Type.Object({
    type: Type.Literal("mcp_approval_request_item"),
    agent,
    rawItem: McpApprovalRequest,
  }),
  mcp_approval_response_item: Type.Object({
    type: Type.Literal("mcp_approval_response_item"),
    agent,
    rawItem: McpApprovalResponse,
  }),
} as const;

type ItemsByType = { [T in keyof typeof itemSchemas]: Static<(typeof itemSchemas)[T]> };
export type RunItemType = keyof ItemsByType;
export type RunItemOf<T extends RunItemType> = ItemsByType[T];

/** Something that a run has produced, distinguished by `type`. */
export type RunItem = ItemsByType[RunItemType];
export const RunItem = Type.Union(Object.values(itemSchemas));

/** Usage of vendors, repeated calls included. `input_tokens` are those that no cache has served or stored. */
export const ItemUsage = Type.Object({
  requests: Type.Integer({ minimum: 0 }),
  input_tokens: Type.Integer({ minimum: 0 }),
  output_tokens: Type.Integer({ minimum: 0 }),
  total_tokens: Type.Integer({ minimum: 0 }),
  cache_read_tokens: Type.Integer({ minimum: 0 }),
  cache_write_tokens: Type.Integer({ minimum: 0 }),
});
export type ItemUsage = Static<typeof ItemUsage>;

const OutputItemOfAnyType = Type.Object({ type: Type.String() });

/** The answer to one model step. */
export const ModelResponse = Type.Object({
  output: Type.Array(Type.Unsafe<OutputItem>(OutputItemOfAnyType)),
  usage: ItemUsage,
  /** The vendor's id of it; null where there is none. */
  responseId: Type.Union([Type.String(), Type.Null()]),
});
export type ModelResponse = Static<typeof ModelResponse>;

const parsers = Object.fromEntries(
  Object.entries(itemSchemas).map(([type, schema]) => [type, parserOf(schema)]),
);

/** Reads an item. An unknown type is an error that names it. */
export function parseRunItem(data: unknown): ParseResult<RunItem> {
  const type = typeof data === "object" && data !== null && "type" in data ? data.type : undefined;
  const parse =
    typeof type === "string" && Object.hasOwn(parsers, type) ? parsers[type] : undefined;
  return (
    parse?.(data) ?? {
      ok: false,
      error: `there is no item of type ${JSON.stringify(type ?? null)}`,
    }
  );
}

export const parseModelResponse = parserOf(ModelResponse);
