import type { UserPart } from "./content.ts";

/** Everything that can happen in a run: the 23 types of the contract in its order, then ours. */
export const engineEventTypes = [
  "text_delta",
  "text",
  "thinking_delta",
  "thinking",
  "tool_use",
  "tool_progress",
  "tool_result",
  "tool_summary",
  "turn_start",
  "turn_end",
  "usage",
  "compact",
  "checkpoint",
  "checkpoint_suggested",
  "permission_request",
  "permission_learn",
  "session_info",
  "slash_command",
  "warning",
  "error",
  "done",
  "inbox_message",
  "teammate_message_received",
  "step_restarted",
  "agent_changed",
  "input_requested",
  "memory_query",
] as const;
export type EngineEventType = (typeof engineEventTypes)[number];

/** Warning codes with a fixed meaning. */
export const warningCodes = ["token_usage_high", "budget_near_limit", "session_expiring"] as const;

type JsonObject = Record<string, unknown>;

/** What the first call of a model step reports about the whole step. */
export interface StepCalls {
  /** How many calls the step makes. */
  calls: number;
  /** As in the step's `turn_end`, which comes only after all results. */
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheCreationTokens: number;
}

/** The MCP server that gives a tool. */
export interface McpOrigin {
  server: string;
  /** Every tool that it gives, with its first call in a run. */
  tools?: { name: string; description: string; inputSchema: JsonObject }[];
}

/** Items of the OpenAI Responses API as the vendor wrote them, of what has no event: calls of the vendor's own tools. */
interface VendorItems {
  /** Those that come before this in the answer. */
  vendorItems?: JsonObject[];
}

// Fields that may be absent are absent in stored events of earlier versions, or say so.
/** What people read at the end of a run, where that is more than its answer. */
export interface EndTexts {
  /** What they read in place of `final`, or of `message`: the answer with a notice, or a notice alone. */
  reply?: string;
  /** Which notice, in a word: `truncated`, `callCutOff`, `callsDropped`, `refusal` or `empty`. */
  notice?: string;
  /** What stands beside the answer, such as files that could not be read. */
  notes?: string[];
}

interface EventFields {
  text_delta: { text: string };
  /** `vendorItem`: the message of the OpenAI Responses API, where it is one. */
  text: { text: string; vendorItem?: JsonObject } & VendorItems;
  thinking_delta: { text: string };
  /** `vendorItem`: the item of the OpenAI Responses API, where it is one: reasoning, or a message that is no answer. */
  thinking: { text: string; vendorItem?: JsonObject } & VendorItems;
  tool_use: {
    id: string;
    toolName: string;
    input: JsonObject;
    /** With the first call of a step. */
    step?: StepCalls;
    /** The call asks for a hand-over to this agent. */
    handoff?: string;
    /** The call is a task for this agent, which works in a run of its own. */
    helper?: string;
    mcp?: McpOrigin;
    /** The call as an item of the OpenAI Responses API, where it is one, without its arguments. */
    vendorItem?: JsonObject;
    /** How many complete blocks of the step come before the call; absent: all of them. */
    blocksBefore?: number;
  } & VendorItems;
  /** `progress` lies within 0 and 1. */
  tool_progress: { id: string; toolName: string; progress: number; detail: string };
  /** `result` is the tool's own JSON value when it succeeded; `output` the text the model gets. */
  tool_result: {
    id: string;
    toolName: string;
    output: string;
    isError: boolean;
    truncated: boolean;
    storedPath: string;
    result?: unknown;
    /** Why it failed, one of {@link errorCodes}; empty when it did not. */
    code?: string;
    /** Opaque; names the whole text of a truncated result where `storedPath` is not shown. */
    handle?: string;
  };
  tool_summary: { id: string; toolName: string; summary: string };
  turn_start: { turnNumber: number; model: string; contextWindowTokens: number };
  /** Tokens and cost of all calls of vendors that the step took. */
  turn_end: {
    turnNumber: number;
    inputTokens: number;
    outputTokens: number;
    costUsd: number;
    /** The output limit that was sent. */
    maxTokens: number;
    cacheReadTokens?: number | undefined;
    cacheCreationTokens?: number | undefined;
    /** The model that answered. */
    model?: string | undefined;
    /** The id under which its vendor knows the answer; null when there is none, or it is not whole. */
    responseId?: string | null | undefined;
    /** Calls of vendors. */
    attempts?: number | undefined;
    /** A vendor has not said all of it. */
    estimated?: boolean | undefined;
  } & VendorItems;
  usage: {
    inputTokens: number;
    outputTokens: number;
    cacheReadTokens: number;
    cacheCreationTokens: number;
    stopReason: string;
  };
  compact: { summary: string; tokensBefore: number; tokensAfter: number };
  checkpoint: { toolCallId: string; toolName: string; input: JsonObject; message: string };
  checkpoint_suggested: {
    toolCallId: string;
    toolName: string;
    input: JsonObject;
    riskReason: string;
    riskPattern: string;
  };
  /** `id` is that of the approval. */
  permission_request: {
    id: string;
    toolName: string;
    input: JsonObject;
    message: string;
    /** The call that is asked about. */
    toolCallId?: string;
  };
  permission_learn: { rules: { ruleString: string; description: string }[] };
  session_info: {
    sessionId: string;
    title: string;
    turnCount: number;
    inputTokens: number;
    outputTokens: number;
    costUsd: number;
  };
  slash_command: { name: string; args: string };
  warning: { code: string; message: string; detail: string };
  error: {
    message: string;
    code: string;
    suggestion: string;
    retryable: boolean;
    totalInputTokens?: number;
    totalOutputTokens?: number;
    totalCacheReadTokens?: number;
    totalCacheCreationTokens?: number;
    totalCostUsd?: number;
    turnCount?: number;
    /** The agent that answered. */
    agent?: string;
  } & EndTexts;
  /** `reason` is empty for a normal end, otherwise names a controlled stop (`cancelled`, `max_turns_reached`, ...). */
  done: {
    totalInputTokens: number;
    totalOutputTokens: number;
    totalCacheReadTokens?: number;
    totalCacheCreationTokens?: number;
    totalCostUsd: number;
    turnCount: number;
    reason: string;
    /** Text of the last model step. */
    final: string;
    /** The answer as a JSON value, where the agent answers in a form of its own and this is one. */
    output?: unknown;
    /** What the conversation holds behind `final`: a notice, where calls were not run or the model said nothing. */
    historyNote?: string;
    /** With `output`: the name of its form, and the text that people see, with `{field}` for a field. */
    outputName?: string;
    outputFormat?: string;
    /** Who had the last word. */
    agent?: string;
    /** The words by which a member of a team has ended it. */
    mention?: string;
    /** With the reason `joined`: the run that answers this message, too. */
    takenBy?: string;
  } & EndTexts;
  inbox_message: {
    messageType: "progress" | "log" | "result";
    toolUseId: string;
    data: string;
    meta: string;
  };
  teammate_message_received: {
    from: string;
    to: string;
    messageType: string;
    messageId: string;
    payloadSize: number;
  };
  /**
   * The deltas of this step so far are void: it is asked again, of `model`. `reason` is the code of the
   * error that ended the attempt before, or `crash` when the worker was lost.
   */
  step_restarted: { turnNumber: number; model: string; reason: string };
  /** `to` answers from now on; `callId` is the call that asked for it, or empty. */
  agent_changed: {
    from: string;
    to: string;
    reason: AgentChange;
    callId: string;
    /** For a hand-over: what `to` sees of the conversation, all of it or the last message alone. */
    context?: "all" | "last";
  };
  /** People are asked; emitted before the question is sent. */
  input_requested: {
    requestId: string;
    callId: string;
    question: string;
    choices: string[];
    expiresAtMs: number;
  };
  /** Memories were looked up, `automatic` before the first step. */
  memory_query: { query: string; items: MemoryFound[]; automatic: boolean };
}

/** Why another agent answers. */
export const agentChanges = ["handoff", "selected", "returned", "person"] as const;
export type AgentChange = (typeof agentChanges)[number];

/** A memory that was found. */
export interface MemoryFound {
  id: string;
  text: string;
  owner: "person" | "chat";
}

/** One event of a run. Every run ends in exactly one `done` or `error`; only `session_info` follows it. */
export type EngineEvent = { [T in EngineEventType]: { type: T } & EventFields[T] }[EngineEventType];

export type EventOf<T extends EngineEventType> = Extract<EngineEvent, { type: T }>;

/** An event as stored and published. `seq` counts the events of the session from 1, without gaps. */
export interface EventRecord {
  seq: number;
  runId: string;
  event: EngineEvent;
  // Absent in records of earlier versions.
  /** The agent that answered. */
  agent?: string;
  /** Epoch ms, of the store's clock. */
  atMs?: number;
  /** The run that this run works for. */
  parentRunId?: string;
  /** The message that the run answers: with the first event that its worker stores, or with its end in another run. */
  person?: PersonMessage;
}

/** What a person has said to begin a run. */
export interface PersonMessage {
  /** The person's name, else their id; over HTTP `user`. */
  source: string;
  parts: readonly UserPart[];
  /** Epoch ms. */
  atMs: number;
  /** What the client noted about the run. */
  metadata?: Readonly<Record<string, string>>;
}

/** An event on its way into the log, which numbers it. */
export type NewEvent = Omit<EventRecord, "seq">;

/** Whether a record is the end of the run of a message that has become part of the run `runId`. */
export function hasJoined({ event }: EventRecord, runId: string): boolean {
  return event.type === "done" && event.takenBy === runId;
}

/** Whether the run is over after this event. */
export function isTerminal(event: EngineEvent): event is EventOf<"done" | "error"> {
  return event.type === "done" || event.type === "error";
}
