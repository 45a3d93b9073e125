import { describe, expect, it } from "vitest";
import { createLogger, debugAdapter, type LogLevel } from "./logger.ts";
import { telemetryFor } from "./telemetry.ts";

function start(level: LogLevel) {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const telemetry = telemetryFor([
    debugAdapter(createLogger({ service: "ingress", level, destination })),
  ]);
  return { telemetry, lines: () => lines.map((line): unknown => JSON.parse(line)) };
}

describe("debugAdapter", () => {
  it("writes events, and spans with their duration when they have ended", () => {
    const { telemetry, lines } = start("debug");
    telemetry.events.emit({
      eventName: "message.appended",
      attributes: { session: "a.b", seq: 1, ahead: 0 },
    });
    const span = telemetry.tracer.startSpan("turn.run", { attributes: { session: "a.b" } });
    expect(lines()).toHaveLength(1);
    span.recordException(new Error("cut off"));
    span.setAttributes({ outcome: "handoff" }).end();
    expect(lines()).toEqual([
      expect.objectContaining({
        level: "debug",
        event: "message.appended",
        session: "a.b",
        seq: 1,
      }),
      expect.objectContaining({
        level: "debug",
        span: "turn.run",
        session: "a.b",
        outcome: "handoff",
        ms: expect.any(Number),
        error: expect.objectContaining({ message: "cut off" }),
      }),
    ]);
  });

  it("writes nothing at the usual level", () => {
    const { telemetry, lines } = start("info");
    telemetry.events.emit({ eventName: "turn.claimed", attributes: { tries: 0 } });
    telemetry.tracer.startSpan("turn.run", { attributes: {} }).end();
    telemetry.events.emit({ exception: new Error("x"), attributes: {} });
    expect(lines()).toEqual([]);
  });

  it("writes errors with what they belong to, without secrets", () => {
    const { telemetry, lines } = start("debug");
    telemetry.events.emit({
      exception: new Error("redis://:s3cret@host is away"),
      attributes: { session: "a.b", apiKey: "s3cret" },
    });
    expect(lines()).toEqual([
      expect.objectContaining({ level: "debug", session: "a.b", apiKey: "[secret]" }),
    ]);
    expect(JSON.stringify(lines())).not.toContain("s3cret");
  });
});
