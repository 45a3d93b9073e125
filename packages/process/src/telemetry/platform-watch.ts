import type { Tags, Telemetry } from "./telemetry.ts";

/** A call of the platform, as those who make it tell of it. */
interface Call {
  api: string;
  traceparent: string | undefined;
}

interface Failure {
  kind: string;
  code: number;
  heldBack: boolean;
}

interface Reply {
  id: string;
  session: string;
  attempts: number;
  traceparent?: string;
  /** When the message was written that it answers, epoch ms. */
  askedAtMs?: number;
  view?: unknown;
  card?: unknown;
}

type Result = { state: "sent" | "left" } | { state: "failed" | "given_up"; error: Failure; retryInMs: number };

/** Told of the calls and deliveries of one process; it fits what packages/feishu asks for. */
export interface PlatformWatch {
  calls: {
    waited(call: Call, ms: number, left: boolean): void;
    began(call: Call): (error?: Failure) => void;
  };
  deliveries: (reply: Reply) => (result: Result) => void;
}

/** Calls that write cards and messages. */
const writes = /^(?:cardkit\.|im\.message\.(?:create|reply|patch|update)$|interactive\.)/;

/** Waits that are worth an entry in a trace, ms. */
const notableWaitMs = 50;

function traced(traceparent: string | undefined): Tags {
  return traceparent === undefined ? {} : { traceparent };
}

function reasonOf({ kind, code }: Failure): string {
  return code === 0 ? kind : `${kind} ${code}`;
}

function kindOf({ view, card }: Reply): string {
  if (view !== undefined) return "answer";
  return card === undefined ? "text" : "card";
}

function watchCalls({ tracer, events, samples }: Telemetry): PlatformWatch["calls"] {
  return {
    waited: ({ api, traceparent }, ms, left) => {
      samples["limiter.wait_seconds"].record(ms / 1_000, { api });
      if (!left || ms < notableWaitMs) return;
      events.emit({ eventName: "limiter.waited", attributes: { ...traced(traceparent), api, ms: Math.round(ms) } });
    },
    began: ({ api, traceparent }) => {
      if (!writes.test(api)) return () => undefined;
      const write = tracer.startSpan("card.write", { attributes: { ...traced(traceparent), operation: api } });
      return (error) => {
        const result = error?.kind ?? "ok";
        samples["card.operations"].add(1, { operation: api, result });
        if (error !== undefined) write.recordException(error);
        write.setAttributes({ result }).end();
      };
    },
  };
}

function watchDeliveries({ tracer, events, samples }: Telemetry): PlatformWatch["deliveries"] {
  return (reply) => {
    const { id, session, attempts, traceparent, askedAtMs } = reply;
    const tags = { ...traced(traceparent), session, reply: id };
    const delivery = tracer.startSpan("reply.deliver", { attributes: { ...tags, attempts: attempts + 1 } });
    return (result) => {
      const { state } = result;
      const error = "error" in result ? result.error : undefined;
      if (error !== undefined) delivery.recordException(error);
      delivery.setAttributes({ state }).end();
      if (state === "sent") {
        events.emit({ eventName: "reply.sent", attributes: { ...tags, attempts: attempts + 1 } });
        const seconds = askedAtMs === undefined ? undefined : Math.max(0, Date.now() - askedAtMs) / 1_000;
        if (seconds !== undefined) samples["reply.delivered_seconds"].record(seconds, { kind: kindOf(reply) });
      }
      if ("error" in result) {
        const { retryInMs } = result;
        const facts = { reason: reasonOf(result.error), givenUp: state === "given_up", retryInMs };
        events.emit({ eventName: "reply.failed", attributes: { ...tags, ...facts } });
        if (state === "given_up") events.emit({ exception: result.error, attributes: tags });
      }
    };
  };
}

/** Tells of what a process does at the platform. */
export function watchPlatform(telemetry: Telemetry): PlatformWatch {
  return { calls: watchCalls(telemetry), deliveries: watchDeliveries(telemetry) };
}
