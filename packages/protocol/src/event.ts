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
] as const;
export type EngineEventType = (typeof engineEventTypes)[number];

/** Warning codes with a fixed meaning. */
export const warningCodes = ["token_usage_high", "budget_near_limit", "session_expiring"] as const;

type JsonObject = Record<string, unknown>;

interface EventFields {
  text_delta: { text: string };
  text: { text: string };
  thinking_delta: { text: string };
  thinking: { text: string };
  tool_use: { id: string; toolName: string; input: JsonObject };
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
  };
  tool_summary: { id: string; toolName: string; summary: string };
  turn_start: { turnNumber: number; model: string; contextWindowTokens: number };
  /** Tokens and cost of all calls of vendors that the step took. The last fields are absent in stored events of earlier versions. */
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
  };
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
  permission_request: { id: string; toolName: string; input: JsonObject; message: string };
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
  /** The totals are absent in stored events of earlier versions. */
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
  };
  /** `reason` is empty for a normal end, otherwise names a controlled stop (`cancelled`, `max_turns_reached`, ...). */
  done: {
    totalInputTokens: number;
    totalOutputTokens: number;
    /** Absent in stored events of earlier versions, like the next one. */
    totalCacheReadTokens?: number;
    totalCacheCreationTokens?: number;
    totalCostUsd: number;
    turnCount: number;
    reason: string;
    /** Text of the last model step. */
    final: string;
    /** The answer as a JSON value, where the agent answers in a form of its own and this is one. */
    output?: unknown;
    /** With the reason `joined`: the run that answers this message, too. */
    takenBy?: string;
  };
  inbox_message: { messageType: "progress" | "log" | "result"; toolUseId: string; data: string; meta: string };
  teammate_message_received: { from: string; to: string; messageType: string; messageId: string; payloadSize: number };
  /**
   * The deltas of this step so far are void: it is asked again, of `model`. `reason` is the code of the
   * error that ended the attempt before, or `crash` when the worker was lost.
   */
  step_restarted: { turnNumber: number; model: string; reason: string };
}

/** One event of a run. Every run ends in exactly one `done` or `error`, and nothing follows it. */
export type EngineEvent = { [T in EngineEventType]: { type: T } & EventFields[T] }[EngineEventType];

export type EventOf<T extends EngineEventType> = Extract<EngineEvent, { type: T }>;

/** An event as stored and published. `seq` counts the events of the session from 1, without gaps. */
export interface EventRecord {
  seq: number;
  runId: string;
  event: EngineEvent;
}

/** Whether the run is over after this event. */
export function isTerminal(event: EngineEvent): event is EventOf<"done" | "error"> {
  return event.type === "done" || event.type === "error";
}
