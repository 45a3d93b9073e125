import type { Observation, Tags } from "./observer.ts";

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

function watchCalls({ metric, event, span }: Observation): PlatformWatch["calls"] {
  return {
    waited: ({ api, traceparent }, ms, left) => {
      metric("limiter.wait_seconds", ms / 1_000, { api });
      if (left && ms >= notableWaitMs) event("limiter.waited", { ...traced(traceparent), api, ms: Math.round(ms) });
    },
    began: ({ api, traceparent }) => {
      if (!writes.test(api)) return () => undefined;
      const write = span("card.write", { ...traced(traceparent), operation: api });
      return (error) => {
        const result = error?.kind ?? "ok";
        metric("card.operations", 1, { operation: api, result });
        write.end(error, { result });
      };
    },
  };
}

function watchDeliveries({ metric, event, error: tellError, span }: Observation): PlatformWatch["deliveries"] {
  return (reply) => {
    const { id, session, attempts, traceparent, askedAtMs } = reply;
    const tags = { ...traced(traceparent), session, reply: id };
    const delivery = span("reply.deliver", { ...tags, attempts: attempts + 1 });
    return (result) => {
      const { state } = result;
      const error = "error" in result ? result.error : undefined;
      delivery.end(error, { state });
      if (state === "sent") {
        event("reply.sent", { ...tags, attempts: attempts + 1 });
        const seconds = askedAtMs === undefined ? undefined : (Date.now() - askedAtMs) / 1_000;
        if (seconds !== undefined) metric("reply.delivered_seconds", Math.max(0, seconds), { kind: kindOf(reply) });
      }
      if ("error" in result) {
        const { retryInMs } = result;
        event("reply.failed", { ...tags, reason: reasonOf(result.error), givenUp: state === "given_up", retryInMs });
        if (state === "given_up") tellError(result.error, tags);
      }
    };
  };
}

/** Makes observations of what a process does at the platform. */
export function watchPlatform(observation: Observation): PlatformWatch {
  return { calls: watchCalls(observation), deliveries: watchDeliveries(observation) };
}
