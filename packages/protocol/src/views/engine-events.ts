import { Type, type Static, type TSchema } from "../type.ts";
import { agentChanges, type EngineEventType } from "../event.ts";
import { parserOf, type ParseResult, type Parser } from "../schema.ts";

// The events of a run as others read them: every field is there, whichever version has stored the event.

const JsonObject = Type.Record(Type.String(), Type.Unknown());
const count = Type.Integer({ minimum: 0 });
const usd = Type.Number({ minimum: 0 });
const vendorItems = Type.Optional(Type.Array(JsonObject));

/** What both terminal events say of the whole run. */
const totals = {
  totalInputTokens: count,
  totalOutputTokens: count,
  totalCacheReadTokens: count,
  totalCacheCreationTokens: count,
  totalCostUsd: usd,
  turnCount: count,
  /** Who had the last word. */
  agent: Type.String(),
};

const StepCalls = Type.Object({
  calls: Type.Integer({ minimum: 1 }),
  inputTokens: count,
  outputTokens: count,
  cacheReadTokens: count,
  cacheCreationTokens: count,
});

const McpOrigin = Type.Object({
  server: Type.String(),
  tools: Type.Optional(
    Type.Array(
      Type.Object({ name: Type.String(), description: Type.String(), inputSchema: JsonObject }),
    ),
  ),
});

/** The schema of every type of event. Readers skip types that they do not know. */
/** See `EndTexts`. */
const endTexts = {
  reply: Type.Optional(Type.String()),
  notice: Type.Optional(Type.String()),
  notes: Type.Optional(Type.Array(Type.String())),
};

export const eventSchemas = {
  text_delta: Type.Object({ type: Type.Literal("text_delta"), text: Type.String() }),
  text: Type.Object({
    type: Type.Literal("text"),
    text: Type.String(),
    vendorItem: Type.Optional(JsonObject),
    vendorItems,
  }),
  thinking_delta: Type.Object({ type: Type.Literal("thinking_delta"), text: Type.String() }),
  thinking: Type.Object({
    type: Type.Literal("thinking"),
    text: Type.String(),
    vendorItem: Type.Optional(JsonObject),
    vendorItems,
  }),
  tool_use: Type.Object({
    type: Type.Literal("tool_use"),
    id: Type.String({ minLength: 1 }),
    toolName: Type.String(),
    input: JsonObject,
    step: Type.Optional(StepCalls),
    handoff: Type.Optional(Type.String()),
    helper: Type.Optional(Type.String()),
    mcp: Type.Optional(McpOrigin),
    vendorItem: Type.Optional(JsonObject),
    blocksBefore: Type.Optional(Type.Integer({ minimum: 0 })),
    vendorItems,
  }),
  tool_progress: Type.Object({
    type: Type.Literal("tool_progress"),
    id: Type.String(),
    toolName: Type.String(),
    progress: Type.Number({ minimum: 0, maximum: 1 }),
    detail: Type.String(),
  }),
  tool_result: Type.Object({
    type: Type.Literal("tool_result"),
    id: Type.String({ minLength: 1 }),
    toolName: Type.String(),
    output: Type.String(),
    isError: Type.Boolean(),
    truncated: Type.Boolean(),
    /** Where the whole text lies is not shown. */
    storedPath: Type.Literal(""),
    result: Type.Optional(Type.Unknown()),
    code: Type.String(),
    handle: Type.String(),
  }),
  tool_summary: Type.Object({
    type: Type.Literal("tool_summary"),
    id: Type.String(),
    toolName: Type.String(),
    summary: Type.String({ maxLength: 20 }),
  }),
  turn_start: Type.Object({
    type: Type.Literal("turn_start"),
    turnNumber: Type.Integer({ minimum: 1 }),
    model: Type.String(),
    contextWindowTokens: count,
  }),
  turn_end: Type.Object({
    type: Type.Literal("turn_end"),
    turnNumber: Type.Integer({ minimum: 1 }),
    inputTokens: count,
    outputTokens: count,
    cacheReadTokens: count,
    cacheCreationTokens: count,
    costUsd: usd,
    maxTokens: count,
    model: Type.String(),
    responseId: Type.Union([Type.String(), Type.Null()]),
    attempts: count,
    estimated: Type.Boolean(),
    vendorItems,
  }),
  usage: Type.Object({
    type: Type.Literal("usage"),
    inputTokens: count,
    outputTokens: count,
    cacheReadTokens: count,
    cacheCreationTokens: count,
    stopReason: Type.String(),
  }),
  compact: Type.Object({
    type: Type.Literal("compact"),
    summary: Type.String(),
    tokensBefore: count,
    tokensAfter: count,
  }),
  checkpoint: Type.Object({
    type: Type.Literal("checkpoint"),
    toolCallId: Type.String(),
    toolName: Type.String(),
    input: JsonObject,
    message: Type.String(),
  }),
  checkpoint_suggested: Type.Object({
    type: Type.Literal("checkpoint_suggested"),
    toolCallId: Type.String(),
    toolName: Type.String(),
    input: JsonObject,
    riskReason: Type.String(),
    riskPattern: Type.String(),
  }),
  permission_request: Type.Object({
    type: Type.Literal("permission_request"),
    id: Type.String(),
    toolName: Type.String(),
    input: JsonObject,
    message: Type.String(),
    toolCallId: Type.Optional(Type.String()),
  }),
  permission_learn: Type.Object({
    type: Type.Literal("permission_learn"),
    rules: Type.Array(Type.Object({ ruleString: Type.String(), description: Type.String() })),
  }),
  session_info: Type.Object({
    type: Type.Literal("session_info"),
    sessionId: Type.String(),
    title: Type.String(),
    turnCount: count,
    inputTokens: count,
    outputTokens: count,
    costUsd: usd,
  }),
  slash_command: Type.Object({
    type: Type.Literal("slash_command"),
    name: Type.String(),
    args: Type.String(),
  }),
  warning: Type.Object({
    type: Type.Literal("warning"),
    code: Type.String(),
    message: Type.String(),
    detail: Type.String(),
  }),
  error: Type.Object({
    type: Type.Literal("error"),
    message: Type.String(),
    /** Mostly one of `errorCodes`; readers accept others. */
    code: Type.String(),
    suggestion: Type.String(),
    retryable: Type.Boolean(),
    ...endTexts,
    ...totals,
  }),
  done: Type.Object({
    type: Type.Literal("done"),
    reason: Type.String(),
    final: Type.String(),
    output: Type.Optional(Type.Unknown()),
    outputName: Type.Optional(Type.String()),
    outputFormat: Type.Optional(Type.String()),
    mention: Type.Optional(Type.String()),
    takenBy: Type.Optional(Type.String()),
    historyNote: Type.Optional(Type.String()),
    ...endTexts,
    ...totals,
  }),
  inbox_message: Type.Object({
    type: Type.Literal("inbox_message"),
    messageType: Type.Enum(["progress", "log", "result"]),
    toolUseId: Type.String(),
    data: Type.String(),
    meta: Type.String(),
  }),
  teammate_message_received: Type.Object({
    type: Type.Literal("teammate_message_received"),
    from: Type.String(),
    to: Type.String(),
    messageType: Type.String(),
    messageId: Type.String(),
    payloadSize: count,
  }),
  step_restarted: Type.Object({
    type: Type.Literal("step_restarted"),
    turnNumber: Type.Integer({ minimum: 1 }),
    model: Type.String(),
    reason: Type.String(),
  }),
  agent_changed: Type.Object({
    type: Type.Literal("agent_changed"),
    from: Type.String(),
    to: Type.String(),
    reason: Type.Enum([...agentChanges]),
    callId: Type.String(),
    context: Type.Optional(Type.Enum(["all", "last"])),
  }),
  input_requested: Type.Object({
    type: Type.Literal("input_requested"),
    requestId: Type.String(),
    callId: Type.String(),
    question: Type.String(),
    choices: Type.Array(Type.String()),
    expiresAtMs: Type.Integer(),
  }),
  memory_query: Type.Object({
    type: Type.Literal("memory_query"),
    query: Type.String(),
    items: Type.Array(
      Type.Object({ id: Type.String(), text: Type.String(), owner: Type.Enum(["person", "chat"]) }),
    ),
    automatic: Type.Boolean(),
  }),
} as const satisfies Record<EngineEventType, TSchema>;

type EventsByType = { [T in EngineEventType]: Static<(typeof eventSchemas)[T]> };

/** An event with all fields of the contract. */
export type RunEvent = EventsByType[EngineEventType];
export type RunEventOf<T extends EngineEventType> = EventsByType[T];

export const RunEvent = Type.Union(Object.values(eventSchemas));

const place = {
  /** Position in the session: grows over its runs, with gaps where events are not shown. */
  seq: Type.Integer({ minimum: 1 }),
  runId: Type.String({ minLength: 1 }),
  /** The agent that answered. */
  agent: Type.String(),
  /** Epoch ms, of the store's clock. */
  atMs: Type.Integer({ minimum: 0, maximum: 8_640_000_000_000_000 }),
  /** For a run that works for another one. */
  parentRunId: Type.Optional(Type.String()),
};

/** An event of a run with its place. */
export const RunRecord = Type.Object({ ...place, event: RunEvent });
export interface RunRecord {
  seq: number;
  runId: string;
  agent: string;
  atMs: number;
  parentRunId?: string;
  event: RunEvent;
}

// Checked on its own: the problems of one type are worth reading, those of 27 are not.
const parsePlace = parserOf(Type.Object({ ...place, event: Type.Object({ type: Type.String() }) }));
const parsers = new Map<string, Parser<unknown>>(
  Object.entries(eventSchemas).map(([type, schema]) => [type, parserOf(schema)]),
);

/** Reads an event. An unknown type is an error that names it. */
export function parseRunEvent(data: unknown): ParseResult<RunEvent> {
  const type = typeof data === "object" && data !== null && "type" in data ? data.type : undefined;
  const parse = typeof type === "string" ? parsers.get(type) : undefined;
  if (parse === undefined) {
    return { ok: false, error: `there is no event of type ${JSON.stringify(type ?? null)}` };
  }
  return parse(data) as ParseResult<RunEvent>; // by the parser of its type
}

/** Reads a record as {@link parseRunEvent} reads an event. */
export function parseRunRecord(data: unknown): ParseResult<RunRecord> {
  const outline = parsePlace(data);
  if (!outline.ok) return outline;
  const event = parseRunEvent(outline.value.event);
  return event.ok ? { ok: true, value: { ...outline.value, event: event.value } } : event;
}
