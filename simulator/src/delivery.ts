import { setTimeout as wait } from "node:timers/promises";
import type { SimApp, Transport } from "./app.ts";

/** An event on its way to an app. The ids and the payload stay the same on every attempt. */
export interface OutgoingEvent {
  app: SimApp;
  eventId: string;
  eventType: string;
  messageId?: string;
  /** The envelope as JSON text. */
  payload: string;
}

/** One attempt to hand an event over. Times are milliseconds. */
export interface DeliveryAttempt {
  transport: "webhook" | "websocket" | "none";
  at: number;
  durationMs: number;
  acknowledged: boolean;
  /** HTTP status of a webhook, or the code of a long-connection ack. */
  status?: number;
  /** Why it was not acknowledged. */
  error?: string;
  /** The answer's body, decoded; a callback's toast or card. */
  response?: unknown;
}

/** An attempt with what it carried: an entry of the delivery log. */
export interface DeliveryRecord extends DeliveryAttempt {
  appId: string;
  eventId: string;
  eventType: string;
  messageId?: string;
  /** 1 for the first attempt. */
  attempt: number;
}

/**
 * How a delivery ended: acknowledged; given up after the last retry; abandoned because the simulator closed; or not
 * sent because the app is not subscribed to it.
 */
export type DeliveryOutcome = "acknowledged" | "exhausted" | "abandoned" | "not_subscribed";

export interface DeliveryReport {
  eventId: string;
  messageId?: string;
  outcome: DeliveryOutcome;
  attempts: readonly DeliveryAttempt[];
}

/** Hands one event over by one transport; it resolves in bounded time and never rejects. */
export type Push = (event: OutgoingEvent) => Promise<DeliveryAttempt>;

export interface DeliveryParts {
  webhook: Push;
  websocket: Push;
  isConnected: (appId: string) => boolean;
  /** Waits between attempts; as many retries as there are waits. */
  retryDelaysMs: readonly number[];
  now: () => number;
  onAttempt: (record: DeliveryRecord) => void;
}

/** What may happen to events between the platform and an app (event overview: at least once, in no order). */
export interface DeliveryNoise {
  /** So many acknowledgements get lost on their way: the app has the event, and it is retried. */
  lostAcks?: number;
  /** Each acknowledged event is delivered once more, with the same ids. */
  duplicates?: boolean;
  /** Events wait up to this long, at random, so that their order changes. */
  shuffleMs?: number;
}

/** Delivers with the platform's retry schedule (event overview: 15 s, 5 min, 1 h, 6 h). */
export interface DeliveryService {
  deliver(event: OutgoingEvent): Promise<DeliveryReport>;
  /** A single attempt: callbacks are never retried; a redelivery on demand is one more attempt. */
  deliverOnce(event: OutgoingEvent): Promise<DeliveryReport>;
  /** From now on; callbacks and redeliveries on demand are spared. */
  setNoise(noise: DeliveryNoise): void;
  close(): void;
}

export function createDeliveryService(parts: DeliveryParts): DeliveryService {
  const closing = new AbortController();
  const attemptCounts = new WeakMap<OutgoingEvent, number>();

  let noise: DeliveryNoise = {};

  const push = async (event: OutgoingEvent, noisy: boolean): Promise<DeliveryAttempt> => {
    const attempt = (attemptCounts.get(event) ?? 0) + 1;
    attemptCounts.set(event, attempt);
    const pushed = await pushOver(parts, event);
    const result = noisy && pushed.acknowledged && (noise.lostAcks ?? 0) > 0 ? lostAck(pushed) : pushed;
    if (result !== pushed) noise = { ...noise, lostAcks: (noise.lostAcks ?? 0) - 1 };
    parts.onAttempt({
      ...result,
      appId: event.app.appId,
      eventId: event.eventId,
      eventType: event.eventType,
      ...(event.messageId === undefined ? {} : { messageId: event.messageId }),
      attempt,
    });
    return result;
  };

  const deliver = async (event: OutgoingEvent): Promise<DeliveryReport> => {
    const made: DeliveryAttempt[] = [];
    const delaysMs = [Math.random() * (noise.shuffleMs ?? 0), ...parts.retryDelaysMs];
    for (const delayMs of delaysMs) {
      if (delayMs > 0) await wait(delayMs, undefined, { signal: closing.signal }).catch(() => undefined);
      if (closing.signal.aborted) return report(event, "abandoned", made);
      const result = await push(event, true);
      made.push(result);
      if (!result.acknowledged) continue;
      if (noise.duplicates === true) made.push(await push(event, false));
      return report(event, "acknowledged", made);
    }
    return report(event, "exhausted", made);
  };

  const deliverOnce = async (event: OutgoingEvent): Promise<DeliveryReport> => {
    if (closing.signal.aborted) return report(event, "abandoned", []);
    const result = await push(event, false);
    return report(event, result.acknowledged ? "acknowledged" : "exhausted", [result]);
  };

  return {
    deliver,
    deliverOnce,
    setNoise(next) {
      noise = next;
    },
    close: () => closing.abort(),
  };
}

function lostAck(attempt: DeliveryAttempt): DeliveryAttempt {
  return { ...attempt, acknowledged: false, error: "the acknowledgement was lost" };
}

/** The report of an event that the app is not subscribed to. */
export function unsubscribed(event: OutgoingEvent): DeliveryReport {
  return report(event, "not_subscribed", []);
}

function report(event: OutgoingEvent, outcome: DeliveryOutcome, attempts: readonly DeliveryAttempt[]): DeliveryReport {
  const message = event.messageId === undefined ? {} : { messageId: event.messageId };
  return { eventId: event.eventId, ...message, outcome, attempts };
}

async function pushOver(parts: DeliveryParts, event: OutgoingEvent): Promise<DeliveryAttempt> {
  const transport = chosenTransport(event.app.transport, event.app, parts.isConnected(event.app.appId));
  if (transport === "websocket") return parts.websocket(event);
  if (transport === "webhook") return parts.webhook(event);
  return {
    transport: "none",
    at: parts.now(),
    durationMs: 0,
    acknowledged: false,
    error: "the app has no long connection and no webhook address",
  };
}

function chosenTransport(setting: Transport, app: SimApp, connected: boolean): "webhook" | "websocket" | "none" {
  if (setting !== "webhook" && connected) return "websocket";
  if (setting !== "websocket" && app.webhookUrl !== undefined) return "webhook";
  return "none";
}
