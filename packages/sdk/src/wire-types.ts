// Written by `npm run pack -- --types` from the schemas of packages/protocol: what the server sends.

export type TextDeltaEvent = { type: "text_delta"; text: string; };

export type TextEvent = { type: "text"; text: string; vendorItem?: Record<string, unknown>; vendorItems?: (Record<string, unknown>)[]; };

export type ThinkingDeltaEvent = { type: "thinking_delta"; text: string; };

export type ThinkingEvent = { type: "thinking"; text: string; vendorItem?: Record<string, unknown>; vendorItems?: (Record<string, unknown>)[]; };

export type ToolUseEvent = { type: "tool_use"; id: string; toolName: string; input: Record<string, unknown>; step?: { calls: number; inputTokens: number; outputTokens: number; cacheReadTokens: number; cacheCreationTokens: number; }; handoff?: string; helper?: string; mcp?: { server: string; tools?: ({ name: string; description: string; inputSchema: Record<string, unknown>; })[]; }; vendorItem?: Record<string, unknown>; blocksBefore?: number; vendorItems?: (Record<string, unknown>)[]; };

export type ToolProgressEvent = { type: "tool_progress"; id: string; toolName: string; progress: number; detail: string; };

export type ToolResultEvent = { type: "tool_result"; id: string; toolName: string; output: string; isError: boolean; truncated: boolean; storedPath: ""; result?: unknown; code: string; handle: string; };

export type ToolSummaryEvent = { type: "tool_summary"; id: string; toolName: string; summary: string; };

export type TurnStartEvent = { type: "turn_start"; turnNumber: number; model: string; contextWindowTokens: number; };

export type TurnEndEvent = { type: "turn_end"; turnNumber: number; inputTokens: number; outputTokens: number; cacheReadTokens: number; cacheCreationTokens: number; costUsd: number; maxTokens: number; model: string; responseId: string | null; attempts: number; estimated: boolean; vendorItems?: (Record<string, unknown>)[]; };

export type UsageEvent = { type: "usage"; inputTokens: number; outputTokens: number; cacheReadTokens: number; cacheCreationTokens: number; stopReason: string; };

export type CompactEvent = { type: "compact"; summary: string; tokensBefore: number; tokensAfter: number; };

export type CheckpointEvent = { type: "checkpoint"; toolCallId: string; toolName: string; input: Record<string, unknown>; message: string; };

export type CheckpointSuggestedEvent = { type: "checkpoint_suggested"; toolCallId: string; toolName: string; input: Record<string, unknown>; riskReason: string; riskPattern: string; };

export type PermissionRequestEvent = { type: "permission_request"; id: string; toolName: string; input: Record<string, unknown>; message: string; toolCallId?: string; };

export type PermissionLearnEvent = { type: "permission_learn"; rules: ({ ruleString: string; description: string; })[]; };

export type SessionInfoEvent = { type: "session_info"; sessionId: string; title: string; turnCount: number; inputTokens: number; outputTokens: number; costUsd: number; };

export type SlashCommandEvent = { type: "slash_command"; name: string; args: string; };

export type WarningEvent = { type: "warning"; code: string; message: string; detail: string; };

export type ErrorEvent = { type: "error"; message: string; code: string; suggestion: string; retryable: boolean; reply?: string; notice?: string; notes?: (string)[]; totalInputTokens: number; totalOutputTokens: number; totalCacheReadTokens: number; totalCacheCreationTokens: number; totalCostUsd: number; turnCount: number; agent: string; };

export type DoneEvent = { type: "done"; reason: string; final: string; output?: unknown; outputName?: string; outputFormat?: string; mention?: string; takenBy?: string; historyNote?: string; reply?: string; notice?: string; notes?: (string)[]; totalInputTokens: number; totalOutputTokens: number; totalCacheReadTokens: number; totalCacheCreationTokens: number; totalCostUsd: number; turnCount: number; agent: string; };

export type InboxMessageEvent = { type: "inbox_message"; messageType: "progress" | "log" | "result"; toolUseId: string; data: string; meta: string; };

export type TeammateMessageReceivedEvent = { type: "teammate_message_received"; from: string; to: string; messageType: string; messageId: string; payloadSize: number; };

export type StepRestartedEvent = { type: "step_restarted"; turnNumber: number; model: string; reason: string; };

export type AgentChangedEvent = { type: "agent_changed"; from: string; to: string; reason: "handoff" | "selected" | "returned" | "person"; callId: string; context?: "all" | "last"; };

export type InputRequestedEvent = { type: "input_requested"; requestId: string; callId: string; question: string; choices: (string)[]; expiresAtMs: number; };

export type MemoryQueryEvent = { type: "memory_query"; query: string; items: ({ id: string; text: string; owner: "person" | "chat"; })[]; automatic: boolean; };

export type OutputMessage = { type: "message"; id: string; role: "assistant"; status: "in_progress" | "completed" | "incomplete"; phase?: string | null; content: ({ type: "output_text"; text: string | null; annotations: ({  })[]; } | { type: "refusal"; refusal: string; } | { type: string; })[]; };

export type FunctionCall = { type: "function_call"; call_id: string; name: string; arguments: string; id?: string; status?: "in_progress" | "completed" | "incomplete"; };

export type FunctionCallOutput = { type: "function_call_output"; call_id: string; output: string; status?: "in_progress" | "completed" | "incomplete"; };

export type MessageOutputItem = { type: "message_output_item"; agent: string; rawItem: OutputMessage; };

export type HandoffCallItem = { type: "handoff_call_item"; agent: string; rawItem: FunctionCall; };

export type HandoffOutputItem = { type: "handoff_output_item"; agent: string; rawItem: FunctionCallOutput; sourceAgent: string; targetAgent: string; };

export type ToolCallItem = { type: "tool_call_item"; agent: string; rawItem: FunctionCall | { type: "computer_call"; id: string; call_id: string; action?: {  }; pending_safety_checks: ({  })[]; status: "in_progress" | "completed" | "incomplete"; } | { type: "file_search_call"; id: string; queries: (string)[]; status: "in_progress" | "searching" | "completed" | "incomplete" | "failed"; results?: ({  })[] | null; } | { type: "web_search_call"; id: string; status: "in_progress" | "searching" | "completed" | "failed" | "incomplete"; action?: {  }; } | { type: "mcp_call"; id: string; server_label: string; name: string; arguments: string; output?: string | null; } | { type: "code_interpreter_call"; id: string; code: string | null; container_id: string; outputs: ({  })[] | null; status: "in_progress" | "completed" | "incomplete" | "interpreting" | "failed"; } | { type: "image_generation_call"; id: string; result: string | null; status: "in_progress" | "completed" | "generating" | "failed"; } | { type: "local_shell_call"; id: string; call_id: string; action: {  }; status: "in_progress" | "completed" | "incomplete"; }; };

export type ToolCallOutputItem = { type: "tool_call_output_item"; agent: string; rawItem: FunctionCallOutput | { type: "computer_call_output"; call_id: string; output: {  }; } | { type: "local_shell_call_output"; id: string; output: string; }; output: unknown; };

export type ReasoningItem = { type: "reasoning_item"; agent: string; rawItem: { type: "reasoning"; id: string; summary: ({ text: string; })[]; encrypted_content?: string | null; status?: "in_progress" | "completed" | "incomplete"; }; };

export type MCPListToolsItem = { type: "mcp_list_tools_item"; agent: string; rawItem: { type: "mcp_list_tools"; id: string; server_label: string; tools: ({ name: string; })[]; error?: string | null; }; };

export type MCPApprovalRequestItem = { type: "mcp_approval_request_item"; agent: string; rawItem: { type: "mcp_approval_request"; id: string; server_label: string; name: string; arguments: string; }; };

export type MCPApprovalResponseItem = { type: "mcp_approval_response_item"; agent: string; rawItem: { type: "mcp_approval_response"; approval_request_id: string; approve: boolean; reason?: string | null; }; };

export type Usage = { requests: number; input_tokens: number; output_tokens: number; total_tokens: number; cache_read_tokens: number; cache_write_tokens: number; };

export type Approval = { id: string; kind: "call" | "outcome" | "rule"; run_id: string; call_id: string; tool: string; arguments: Record<string, unknown>; reason: string; risk: "low" | "medium" | "high"; decisions: ("approve" | "reject" | "retry" | "done" | "abort")[]; may_remember: boolean; created_at: number; expires_at: number; state: "pending" | "approved" | "rejected" | "retried" | "done" | "aborted" | "expired" | "cancelled" | "undeliverable"; };

export type Question = { id: string; kind: "question"; run_id: string; call_id: string; question: string; choices: (string)[]; format?: "date" | "date-time"; form?: { server: string; message: string; fields: ({ name: string; label: string; hint?: string; kind: "text" | "number" | "integer" | "boolean" | "choice" | "email" | "uri" | "date" | "date-time"; required: boolean; options?: ({ value: string; label: string; })[]; min?: number; max?: number; })[]; }; created_at: number; expires_at: number; state: "pending" | "answered" | "expired" | "cancelled" | "undeliverable"; };

export type RunReport = { run_id: string; session_id: string; state: "queued" | "running" | "waiting" | "done" | "error" | "cancelled"; agent: string | null; last_agent: string; final_output: string | null; output?: unknown; usage: Usage; cost_usd: number; response_ids: (string | null)[]; reason: string; error: null | { code: string; message: string; suggestion: string; retryable: boolean; }; interruptions: (Approval | Question)[]; children: (string)[]; metadata: Record<string, string>; created_at: number | null; ended_at: number | null; next: string | null; };

/** Something that happens in a run, distinguished by `type`. */
export type EngineEvent = TextDeltaEvent | TextEvent | ThinkingDeltaEvent | ThinkingEvent | ToolUseEvent | ToolProgressEvent | ToolResultEvent | ToolSummaryEvent | TurnStartEvent | TurnEndEvent | UsageEvent | CompactEvent | CheckpointEvent | CheckpointSuggestedEvent | PermissionRequestEvent | PermissionLearnEvent | SessionInfoEvent | SlashCommandEvent | WarningEvent | ErrorEvent | DoneEvent | InboxMessageEvent | TeammateMessageReceivedEvent | StepRestartedEvent | AgentChangedEvent | InputRequestedEvent | MemoryQueryEvent;

/** Something that a run has produced, distinguished by `type`. */
export type RunItem = MessageOutputItem | HandoffCallItem | HandoffOutputItem | ToolCallItem | ToolCallOutputItem | ReasoningItem | MCPListToolsItem | MCPApprovalRequestItem | MCPApprovalResponseItem;

/** What persons and agents say, distinguished by `type`. */
export type ChatMessage = { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: string; type: "TextMessage"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: (string | { data: string; })[]; type: "MultiModalMessage"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: string; type: "StopMessage"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: string; type: "ToolCallSummaryMessage"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: string; target: string; context: ({ content: string; type: "SystemMessage"; } | { content: string | (string | { data: string; })[]; source: string; type: "UserMessage"; } | { content: string | ({ id: string; arguments: string; name: string; })[]; thought: string | null; source: string; type: "AssistantMessage"; } | { content: ({ content: string; name: string; call_id: string; is_error: boolean | null; })[]; type: "FunctionExecutionResultMessage"; })[]; type: "HandoffMessage"; };

/** What agents report to people and programs, distinguished by `type`. */
export type AgentEvent = { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: ({ id: string; arguments: string; name: string; })[]; type: "ToolCallRequestEvent"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: ({ content: string; name: string; call_id: string; is_error: boolean | null; })[]; type: "ToolCallExecutionEvent"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: ({ content: string | Record<string, unknown>; mime_type: string; metadata: Record<string, unknown> | null; })[]; type: "MemoryQueryEvent"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; request_id: string; content: ""; type: "UserInputRequestedEvent"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: string; type: "ModelClientStreamingChunkEvent"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: string; type: "ThoughtEvent"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: (string)[]; type: "SelectSpeakerEvent"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; retry_attempt: number; content: string; code_blocks: ({ code: string; language: string; })[]; type: "CodeGenerationEvent"; } | { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; retry_attempt: number; result: { exit_code: number; output: string; }; type: "CodeExecutionEvent"; };

/** An answer in a form of its own, whose name is in `type`. */
export type StructuredMessage = { source: string; models_usage: { prompt_tokens: number; completion_tokens: number; } | null; metadata: Record<string, string>; created_at: string; content: Record<string, unknown>; format_string: string | null; type: `StructuredMessage[${string}]`; };

/** A message of the view `messages`. */
export type RunMessage = ChatMessage | AgentEvent | StructuredMessage;
