/** A call that the open platform received. `status` 0 means that the caller got no answer. */
export interface ApiCall {
  method: string;
  path: string;
  status: number;
  /** The platform's code in the body; -1 when there was no answer. */
  code: number;
  /** Milliseconds since the epoch. */
  at: number;
  durationMs: number;
  logId: string;
  appId?: string;
}
