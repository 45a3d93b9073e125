import type { Envelope } from "@larkline/feishu";
import type { CounterMetric, HistogramMetric, Logger } from "@larkline/process/telemetry";
import { withDeadline } from "./deadline.ts";

/** What the platform shows or does after a callback; events need none. */
export type EventAnswer = Record<string, unknown>;

/** Deals with one kind of event. A rejection means: not acknowledged, deliver it again. */
export type EventHandler = (envelope: Envelope) => Promise<EventAnswer | undefined>;

export type Transport = "webhook" | "websocket";

export interface EventRouterDeps {
  /** By event type. */
  handlers: Readonly<Record<string, EventHandler>>;
  /** Gets the events that are not for us; must return at once. */
  others: (envelope: Envelope) => void;
  events: CounterMetric<"type" | "outcome">;
  ackSeconds: HistogramMetric<"transport" | "outcome">;
  /** The platform counts an answer as missing after 3 s ("Event subscription overview"). */
  deadlineMs: number;
  logger: Logger;
}

/**
 * The one entrance for events, however they came. Resolves when the event may be acknowledged;
 * unknown types are, because a refusal would only make the platform repeat them.
 */
export type EventRouter = (envelope: Envelope, transport: Transport) => Promise<EventAnswer>;

export function createEventRouter(deps: EventRouterDeps): EventRouter {
  const { handlers, others, events, ackSeconds, deadlineMs, logger } = deps;
  const handlerOf = new Map(Object.entries(handlers));

  const handle = async (envelope: Envelope): Promise<EventAnswer> => {
    const handler = handlerOf.get(envelope.type);
    if (handler === undefined) {
      others(envelope);
      logger.debug({ eventType: envelope.type, eventId: envelope.eventId }, "event of a type without a handler");
      return {};
    }
    return (await withDeadline(handler(envelope), deadlineMs)) ?? {};
  };

  return async (envelope, transport) => {
    const type = handlerOf.has(envelope.type) ? envelope.type : "unknown";
    const startedMs = performance.now();
    const note = (outcome: "acknowledged" | "failed") => {
      events.add({ type, outcome });
      ackSeconds.observe({ transport, outcome }, (performance.now() - startedMs) / 1_000);
    };
    try {
      const answer = await handle(envelope);
      note("acknowledged");
      return answer;
    } catch (error) {
      note("failed");
      logger.error({ error, eventType: envelope.type, eventId: envelope.eventId, transport }, "event not acknowledged");
      throw error;
    }
  };
}
