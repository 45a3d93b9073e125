import {
  patientClock,
  startOtlpReceiver,
  type OtlpReceiver,
  type ReceivedSpan,
} from "@larkline/testkit";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createLogger, silentLogger } from "./logger.ts";
import { otlpAdapter } from "./otlp.ts";
import { telemetryFor } from "./telemetry.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const rootId = "b7ad6b7169203331";
const traceparent = `00-${traceId}-${rootId}-01`;

let receiver: OtlpReceiver;
beforeEach(async () => {
  receiver = await startOtlpReceiver();
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await receiver.close();
});

function start(service: "ingress" | "agent-worker" = "agent-worker") {
  const headers = "authorization=Bearer%20abc, x-tenant=t1";
  // Sending ends a second after the close, and the receiver is in this process.
  const common = { logger: silentLogger, clock: patientClock };
  const adapter = otlpAdapter({ service, ...common, endpoint: `${receiver.url}/`, headers });
  return { telemetry: telemetryFor([adapter]), close: adapter.close };
}

function named(name: string): ReceivedSpan[] {
  return receiver.spans.filter((span) => span.name === name);
}

describe("otlpAdapter", () => {
  it("puts spans below the root of their message, and parts of a turn below the turn", async () => {
    const { telemetry, close } = start();
    const turn = telemetry.tracer.startSpan("turn.run", {
      attributes: { traceparent, session: "a.b" },
    });
    telemetry.events.emit({ eventName: "call.judged", attributes: { traceparent, tool: "pay" } });
    const step = telemetry.tracer.startSpan("model.step", {
      attributes: { traceparent, model: "m", tries: 2 },
    });
    step.end();
    turn.setAttributes({ outcome: "answered" }).end();
    telemetry.tracer.startSpan("reply.deliver", { attributes: { traceparent } }).end();
    await close();
    const [run] = named("turn.run");
    expect(run).toMatchObject({
      service: "larkline-agent-worker",
      traceId,
      parentSpanId: rootId,
      failed: false,
    });
    expect(run?.attributes).toEqual({ "larkline.session": "a.b", "larkline.outcome": "answered" });
    expect(run?.events).toEqual(["call.judged"]);
    expect(named("model.step")).toMatchObject([
      {
        traceId,
        parentSpanId: run?.spanId,
        attributes: { "larkline.model": "m", "larkline.tries": 2 },
      },
    ]);
    expect(named("reply.deliver")).toMatchObject([{ traceId, parentSpanId: rootId }]);
    expect(receiver.requests[0]).toMatchObject({
      path: "/v1/traces",
      headers: { authorization: "Bearer abc", "x-tenant": "t1" },
    });
  });

  it("makes the root of the delivery that decided about the message, and of no other", async () => {
    const { telemetry, close } = start("ingress");
    telemetry.tracer
      .startSpan("message.receive", { attributes: { traceparent } })
      .setAttributes({ outcome: "accepted" })
      .end();
    telemetry.tracer
      .startSpan("message.receive", { attributes: { traceparent } })
      .setAttributes({ outcome: "duplicate" })
      .end();
    telemetry.tracer
      .startSpan("message.receive", { attributes: { traceparent, continued: true } })
      .setAttributes({ outcome: "accepted" })
      .end();
    await close();
    const [root, again, continued] = named("message.receive");
    expect(continued).toMatchObject({ traceId, parentSpanId: rootId });
    expect(root).toMatchObject({ traceId, spanId: rootId, parentSpanId: undefined });
    expect(again).toMatchObject({ traceId, parentSpanId: rootId });
    expect(again?.spanId).not.toBe(rootId);
  });

  it("gives a span without a message a trace of its own, and says what failed without secrets", async () => {
    const { telemetry, close } = start();
    const span = telemetry.tracer.startSpan("card.write", { attributes: { token: "s3cret" } });
    span.recordException(new Error("Bearer s3cretS3cret was refused"));
    span.end();
    await close();
    const [card] = named("card.write");
    expect(card).toMatchObject({ parentSpanId: undefined, failed: true, events: ["exception"] });
    expect(card?.traceId).toMatch(/^[0-9a-f]{32}$/);
    expect(JSON.stringify(card)).not.toMatch(/s3cret/i);
  });

  it("closes within its deadline and says so once when no receiver takes spans", async () => {
    await receiver.close();
    vi.stubEnv("OTEL_EXPORTER_OTLP_TIMEOUT", "500");
    const lines: string[] = [];
    const logger = createLogger({
      service: "ingress",
      destination: { write: (line) => void lines.push(line) },
    });
    const adapter = otlpAdapter({ service: "ingress", logger, endpoint: receiver.url });
    const telemetry = telemetryFor([adapter]);
    for (let count = 0; count < 6_000; count += 1) {
      telemetry.tracer.startSpan("message.receive", { attributes: { traceparent } }).end();
    }
    const startedMs = performance.now();
    await adapter.close();
    await adapter.close();
    expect(performance.now() - startedMs).toBeLessThan(30_000);
    await vi.waitFor(() => expect(lines.join("")).toContain("spans cannot be sent"), {
      timeout: 60_000,
    });
    expect(lines).toHaveLength(1);
  });
});
