import { describe, expect, it } from "vitest";
import { createLogObserver } from "./log-observer.ts";
import { createLogger, type LogLevel } from "./logger.ts";
import { observeWith } from "./observer.ts";

function start(level: LogLevel) {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const observation = observeWith([createLogObserver(createLogger({ service: "ingress", level, destination }))]);
  return { observation, lines: () => lines.map((line): unknown => JSON.parse(line)) };
}

describe("createLogObserver", () => {
  it("writes events, and spans with their duration when they have ended", () => {
    const { observation, lines } = start("debug");
    observation.event("message.appended", { session: "a.b", seq: 1, ahead: 0 });
    const span = observation.span("turn.run", { session: "a.b" });
    expect(lines()).toHaveLength(1);
    span.end(new Error("cut off"), { outcome: "handoff" });
    expect(lines()).toEqual([
      expect.objectContaining({ level: "debug", event: "message.appended", session: "a.b", seq: 1 }),
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
    const { observation, lines } = start("info");
    observation.event("turn.claimed", { tries: 0 });
    observation.span("turn.run", {}).end();
    observation.error(new Error("x"), {});
    expect(lines()).toEqual([]);
  });

  it("writes errors with what they belong to, without secrets", () => {
    const { observation, lines } = start("debug");
    observation.error(new Error("redis://:s3cret@host is away"), { session: "a.b", apiKey: "s3cret" });
    expect(lines()).toEqual([expect.objectContaining({ level: "debug", session: "a.b", apiKey: "[secret]" })]);
    expect(JSON.stringify(lines())).not.toContain("s3cret");
  });
});
