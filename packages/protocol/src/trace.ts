import { hash } from "node:crypto";
import { Type, type Static } from "./type.ts";

/**
 * What ties together everything that is done for one message, in every process: version, trace id, id
 * of the root span, flags (W3C Trace Context, "Traceparent Header").
 */
export const Traceparent = Type.String({ pattern: "^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$" });

export type Traceparent = Static<typeof Traceparent>;

/** 32 hexadecimal digits: the id of a trace, as people see it in a card's footer and look it up by. */
export const TraceId = Type.String({ pattern: "^[0-9a-f]{32}$" });

export type TraceId = Static<typeof TraceId>;

/**
 * The trace of a message. Made from what names the message, so that a redelivered one continues its
 * own trace, and every process that knows the message knows its trace.
 */
export function traceparentOf({ app, id }: { app: string; id: string }): Traceparent {
  const digest = hash("sha256", JSON.stringify(["larkline", app, id]), "hex");
  return `00-${digest.slice(0, 32)}-${digest.slice(32, 48)}-01`;
}

/** The trace id within a traceparent. */
export function traceIdOf(traceparent: Traceparent): TraceId {
  return traceparent.slice(3, 35);
}

interface TracedMessage {
  traceparent?: Traceparent;
  app: string;
  id: string;
}

/** Worked out once for each message: all that is observed of a turn asks for it. */
const known = new WeakMap<TracedMessage, Traceparent>();

/** The traceparent of a message: what came with it, or else its own. */
export function traceparentOfMessage(message: TracedMessage): Traceparent {
  const traceparent = known.get(message) ?? message.traceparent ?? traceparentOf(message);
  known.set(message, traceparent);
  return traceparent;
}

/**
 * One line of a trace: that something happened (`event`), went wrong (`error`), began (`begin`), is over
 * (`end`), or both within a moment (`span`). Ids and numbers, never content.
 */
export const TraceEntry = Type.Object({
  /** When it happened; of a `span` when it began. */
  atMs: Type.Integer(),
  kind: Type.Enum(["event", "error", "begin", "end", "span"]),
  /** As in the catalogue of observations, such as `model.step`. */
  name: Type.String(),
  service: Type.String(),
  /** Distinguishes the processes of a service. */
  instance: Type.String(),
  /** Of `begin` and `end`: what they are the two ends of, unique in its process. */
  span: Type.Optional(Type.String()),
  /** Of `end` and `span`: how long it took. */
  ms: Type.Optional(Type.Integer({ minimum: 0 })),
  /** Of `end`, `span` and `error`: the code of what went wrong. */
  failed: Type.Optional(Type.String()),
  data: Type.Record(Type.String(), Type.Union([Type.String(), Type.Number(), Type.Boolean()])),
});

export type TraceEntry = Static<typeof TraceEntry>;
