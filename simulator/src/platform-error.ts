/** What the platform answers when it refuses a call: `{code, msg, error}` under an HTTP status. */
export class PlatformError extends Error {
  readonly code: number;
  readonly status: number | undefined;
  readonly headers: Record<string, string>;

  constructor(code: number, message: string, answer: { status?: number; headers?: Record<string, string> } = {}) {
    super(message);
    this.name = "PlatformError";
    this.code = code;
    this.status = answer.status;
    this.headers = answer.headers ?? {};
  }
}

/** A request field is missing or has the wrong form. */
export function fieldError(field: string, reason: string): PlatformError {
  return new PlatformError(99992402, `field validation failed: ${field} ${reason}`);
}
