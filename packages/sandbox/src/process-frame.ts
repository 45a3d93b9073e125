import type { FrameBounds } from "./frame.ts";

/** What the pool writes to a child. The body of a refused reply is the message for the handler. */
export type FrameToChild =
  | { kind: "call"; id: number; body: unknown }
  | { kind: "cancel"; id: number }
  | { kind: "reply"; id: number; request: number; ok: boolean; body: unknown };

/** What a child writes: `ready` once, then per call events and requests, and one result or error. */
export type FrameToPool =
  | { kind: "ready" }
  | { kind: "event"; id: number; body: unknown }
  | { kind: "request"; id: number; request: number; body: unknown }
  | { kind: "result"; id: number; body: unknown }
  | { kind: "error"; id: number; message: string };

/** For both directions; children are reused, so the number of frames has no bound. */
export const callFrameBounds: FrameBounds = { bytes: 32 * 1024 * 1024, frames: Number.MAX_SAFE_INTEGER };

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

/** Reads what a child wrote; undefined for anything that is not in the protocol. */
export function frameFromChild(value: unknown): FrameToPool | undefined {
  if (!isRecord(value)) return undefined;
  const { kind, id, body = null, request, message } = value;
  if (kind === "ready") return { kind };
  if (typeof id !== "number") return undefined;
  if (kind === "event" || kind === "result") return { kind, id, body };
  if (kind === "request" && typeof request === "number") return { kind, id, request, body };
  if (kind === "error" && typeof message === "string") return { kind, id, message };
  return undefined;
}
