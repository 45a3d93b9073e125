interface CodeDefaults {
  retryable: boolean;
  suggestion: string;
}

/** Every error code with what holds when a caller says nothing else. */
export const errorCodes = {
  api_auth_error: { retryable: false, suggestion: "Check the API key and its rights." },
  api_rate_limit: { retryable: true, suggestion: "Wait, then retry with back-off." },
  api_overloaded: { retryable: true, suggestion: "Retry later or use another model." },
  api_bad_request: { retryable: false, suggestion: "Check the request parameters." },
  tool_not_found: {
    retryable: false,
    suggestion: "Check that a running tool-runner offers this tool.",
  },
  tool_execution_error: { retryable: false, suggestion: "Look at the tool's output." },
  permission_denied: { retryable: false, suggestion: "Ask for approval." },
  context_overflow: {
    retryable: false,
    suggestion: "Compact the conversation or start a new session.",
  },
  budget_exceeded: { retryable: false, suggestion: "Raise the budget." },
  max_turns_reached: { retryable: false, suggestion: "Raise the limit or narrow the task." },
  session_not_found: { retryable: false, suggestion: "Start a new session." },
  session_closed: { retryable: false, suggestion: "Start a new session." },
  mcp_connection_error: { retryable: true, suggestion: "Check that the MCP server runs." },
  plugin_load_error: { retryable: false, suggestion: "Check the plugin." },
  internal_error: { retryable: false, suggestion: "Report this with the run id." },
  stream_truncated: { retryable: true, suggestion: "Retry the turn." },
} as const satisfies Record<string, CodeDefaults>;

export type ErrorCode = keyof typeof errorCodes;

export interface EngineErrorOptions {
  cause?: unknown;
  detail?: string;
  suggestion?: string;
  retryable?: boolean;
}

/** An error that says what to do. Messages are for people: they hold no secret and no stack. */
export class EngineError extends Error {
  override readonly name = "EngineError";
  readonly code: ErrorCode;
  readonly detail: string;
  readonly suggestion: string;
  readonly retryable: boolean;

  constructor(code: ErrorCode, message: string, options: EngineErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.detail = options.detail ?? "";
    this.suggestion = options.suggestion ?? errorCodes[code].suggestion;
    this.retryable = options.retryable ?? errorCodes[code].retryable;
  }
}

/** Creates an error; suggestion and retryable come from the code's defaults unless given. */
export function newEngineError(
  code: ErrorCode,
  message: string,
  options: EngineErrorOptions = {},
): EngineError {
  return new EngineError(code, message, options);
}

/** Wraps any error; an EngineError stays reachable as cause and its `retryable` is kept. */
export function wrapError(cause: unknown, code: ErrorCode, message: string): EngineError {
  return cause instanceof EngineError
    ? new EngineError(code, message, { cause, retryable: cause.retryable })
    : new EngineError(code, message, { cause });
}

/** What the model reads when a person has rejected a call; the same in every language, by contract. */
export const rejectedText = "User rejected this action.";

const resultCode =
  /^(tool_not_found|tool_execution_error|permission_denied|mcp_connection_error): /;

/** The code that the text of a failed call begins with; undefined for one that names none. */
export function resultCodeIn(text: string): string | undefined {
  return text.startsWith(rejectedText) ? "permission_denied" : resultCode.exec(text)?.[1];
}

function causesOf(error: unknown): unknown[] {
  const chain: unknown[] = [];
  let current: unknown = error;
  while (current !== null && current !== undefined && !chain.includes(current)) {
    chain.push(current);
    current = current instanceof Error ? current.cause : undefined;
  }
  return chain;
}

/** Whether it makes sense to try again: decided by the first EngineError or `error` event of the cause chain. */
export function isRetryable(error: unknown): boolean {
  for (const item of causesOf(error)) {
    if (item instanceof EngineError) return item.retryable;
    if (
      typeof item === "object" &&
      item !== null &&
      "type" in item &&
      item.type === "error" &&
      "retryable" in item
    ) {
      return item.retryable === true;
    }
  }
  return false;
}

/** Text for people: message and suggestion; verbose adds code, detail and the messages of the causes. Never a stack. */
export function formatErrorForDisplay(error: unknown, verbose = false): string {
  if (error === null || error === undefined) return "";
  if (!(error instanceof EngineError)) {
    return error instanceof Error ? error.message : String(error);
  }
  const lines = [verbose ? `[${error.code}] ${error.message}` : error.message];
  if (verbose && error.detail !== "") lines.push(error.detail);
  if (error.suggestion !== "") lines.push(error.suggestion);
  if (verbose) {
    for (const cause of causesOf(error.cause)) {
      lines.push(`cause: ${cause instanceof Error ? cause.message : String(cause)}`);
    }
  }
  return lines.join("\n");
}
