import type { Metrics } from "@larkline/process/telemetry";

/** The metrics of this process. `streams` is asked for the number of open event streams. */
export function createIngressMetrics(metrics: Metrics, streams: () => number) {
  metrics.gauge({ name: "larkline_ingress_streams", help: "Event streams that are open now.", read: streams });
  return {
    messages: metrics.counter({
      name: "larkline_ingress_messages_total",
      help: "Messages by channel and what became of them (accepted, duplicate, full, late, not_mentioned, ...).",
      labels: ["channel", "outcome"],
    }),
    events: metrics.counter({
      name: "larkline_ingress_events_total",
      help: "Events of the platform by type (unknown: without a handler).",
      labels: ["type", "outcome"],
    }),
    otherEvents: metrics.counter({
      name: "larkline_ingress_other_events_total",
      help: "Events and clicks that are not Larkline's own, by what became of them at each consumer (passed, failed, dropped).",
      labels: ["kind", "outcome"],
    }),
    refused: metrics.counter({
      name: "larkline_ingress_webhook_refused_total",
      help: "Webhook requests that were forged, unreadable or of another app.",
      labels: ["status"],
    }),
    ackSeconds: metrics.histogram({
      name: "larkline_ingress_ack_seconds",
      help: "Time until an event was acknowledged or given back.",
      labels: ["transport", "outcome"],
    }),
  };
}

export type IngressMetrics = ReturnType<typeof createIngressMetrics>;
