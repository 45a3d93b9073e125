import { startOtlpReceiver, type OtlpReceiver, type ReceivedSpan } from "@larkline/testkit";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createLogger, silentLogger } from "./logger.ts";
import { observeWith } from "./observer.ts";
import { createOtelObserver } from "./otel-observer.ts";

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
  const observer = createOtelObserver({ service, logger: silentLogger, endpoint: `${receiver.url}/`, headers });
  return { observation: observeWith([observer]), close: observer.close };
}

function named(name: string): ReceivedSpan[] {
  return receiver.spans.filter((span) => span.name === name);
}

describe("createOtelObserver", () => {
  it("puts spans below the root of their message, and parts of a turn below the turn", async () => {
    const { observation, close } = start();
    const turn = observation.span("turn.run", { traceparent, session: "a.b" });
    observation.event("call.judged", { traceparent, tool: "pay" });
    const step = observation.span("model.step", { traceparent, model: "m", tries: 2 });
    step.end();
    turn.end(undefined, { outcome: "answered" });
    observation.span("reply.deliver", { traceparent }).end();
    await close();
    const [run] = named("turn.run");
    expect(run).toMatchObject({ service: "larkline-agent-worker", traceId, parentSpanId: rootId, failed: false });
    expect(run?.attributes).toEqual({ "larkline.session": "a.b", "larkline.outcome": "answered" });
    expect(run?.events).toEqual(["call.judged"]);
    expect(named("model.step")).toMatchObject([
      { traceId, parentSpanId: run?.spanId, attributes: { "larkline.model": "m", "larkline.tries": 2 } },
    ]);
    expect(named("reply.deliver")).toMatchObject([{ traceId, parentSpanId: rootId }]);
    expect(receiver.requests[0]).toMatchObject({
      path: "/v1/traces",
      headers: { authorization: "Bearer abc", "x-tenant": "t1" },
    });
  });

  it("makes the root of the delivery that decided about the message, and of no other", async () => {
    const { observation, close } = start("ingress");
    observation.span("message.receive", { traceparent }).end(undefined, { outcome: "accepted" });
    observation.span("message.receive", { traceparent }).end(undefined, { outcome: "duplicate" });
    observation.span("message.receive", { traceparent, continued: true }).end(undefined, { outcome: "accepted" });
    await close();
    const [root, again, continued] = named("message.receive");
    expect(continued).toMatchObject({ traceId, parentSpanId: rootId });
    expect(root).toMatchObject({ traceId, spanId: rootId, parentSpanId: undefined });
    expect(again).toMatchObject({ traceId, parentSpanId: rootId });
    expect(again?.spanId).not.toBe(rootId);
  });

  it("gives a span without a message a trace of its own, and says what failed without secrets", async () => {
    const { observation, close } = start();
    const span = observation.span("card.write", { token: "s3cret" });
    span.end(new Error("Bearer s3cretS3cret was refused"));
    await close();
    const [card] = named("card.write");
    expect(card).toMatchObject({ parentSpanId: undefined, failed: true, events: ["exception"] });
    expect(card?.traceId).toMatch(/^[0-9a-f]{32}$/);
    expect(JSON.stringify(card)).not.toMatch(/s3cret/i);
  });

  it("closes within its deadline and says so once when nobody takes spans", async () => {
    await receiver.close();
    vi.stubEnv("OTEL_EXPORTER_OTLP_TIMEOUT", "500");
    const lines: string[] = [];
    const logger = createLogger({ service: "ingress", destination: { write: (line) => void lines.push(line) } });
    const observer = createOtelObserver({ service: "ingress", logger, endpoint: receiver.url });
    const observation = observeWith([observer]);
    for (let count = 0; count < 6_000; count += 1) observation.span("message.receive", { traceparent }).end();
    const startedMs = performance.now();
    await observer.close();
    await observer.close();
    expect(performance.now() - startedMs).toBeLessThan(5_000);
    await vi.waitFor(() => expect(lines.join("")).toContain("spans cannot be sent"), { timeout: 20_000 });
    expect(lines).toHaveLength(1);
  });
});
