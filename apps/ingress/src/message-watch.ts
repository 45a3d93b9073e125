import {
  canarySessionId,
  isCanary,
  traceparentOfMessage,
  type InboundMessage,
  type Traceparent,
} from "@larkline/protocol";
import { unobserved, type Observation } from "@larkline/process/telemetry";

/** What of a message is told to observers. */
export interface ArrivingMessage {
  app: string;
  /** The platform's id of the message. */
  id: string;
  chat: string;
  person: string;
  channel: "feishu" | "api";
  /** Given by the client; absent: the message's own. */
  traceparent?: Traceparent;
}

/** Told once what became of the message: a word such as `accepted`, `duplicate` or `not_mentioned`. */
export type MessageWatch = (outcome: string, error?: unknown) => void;

/** What is no refusal: the message is stored, or was an order that is carried out. */
const taken: ReadonlySet<string> = new Set(["accepted", "command"]);

/** Tells observers of a message, from its receipt until it is safe, or is not going to be. */
export function watchMessage(observation: Observation, message: ArrivingMessage): MessageWatch {
  const { app, id, chat, person, channel } = message;
  const isProbe = channel === "api" && chat === canarySessionId;
  const { span, event, error: tellError, metric } = isProbe ? unobserved : observation;
  const traceparent = traceparentOfMessage(message);
  const startedMs = performance.now();
  const tags = { traceparent, message: id };
  const continued = message.traceparent !== undefined;
  const receiving = span("message.receive", { ...tags, channel, continued });
  event("message.received", { ...tags, app, chat, person, channel });
  return (outcome, error) => {
    metric("ack_seconds", (performance.now() - startedMs) / 1_000, { channel, outcome });
    if (!taken.has(outcome)) event("message.refused", { ...tags, reason: outcome });
    if (error !== undefined) tellError(error, tags);
    receiving.end(error, { outcome });
  };
}

/** Tells observers of a message that `work` deals with; settles as `work` does, whose result says what became of it. */
export async function watched<Outcome extends string>(
  observation: Observation,
  message: ArrivingMessage,
  work: () => Promise<Outcome>,
): Promise<Outcome> {
  const ended = watchMessage(observation, message);
  try {
    const outcome = await work();
    ended(outcome);
    return outcome;
  } catch (error) {
    ended("failed", error);
    throw error;
  }
}

/** Tells observers that a message is in its session, behind `ahead` others. */
export function tellAppended(
  { event }: Observation,
  message: InboundMessage,
  { seq, ahead }: { seq: number; ahead: number },
): void {
  const { session, id } = message;
  if (isCanary(session)) return;
  event("message.appended", { traceparent: traceparentOfMessage(message), message: id, session, seq, ahead });
}
