import { describe, expect, it } from "vitest";
import { createLogger, type LogLevel } from "./logger.ts";

function record(level?: LogLevel) {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger({
    service: "ingress",
    destination,
    ...(level === undefined ? {} : { level }),
  });
  return { logger, lines: () => lines.map((line): unknown => JSON.parse(line)) };
}

describe("createLogger", () => {
  it("writes one JSON object per line with service, level and the child's bindings", () => {
    const { logger, lines } = record();
    logger
      .child({ session: "app.chat" })
      .child({ turnId: "app.chat-1" })
      .warn({ attempt: 2 }, "model call failed");
    expect(lines()).toEqual([
      expect.objectContaining({
        service: "ingress",
        level: "warn",
        session: "app.chat",
        turnId: "app.chat-1",
        attempt: 2,
        msg: "model call failed",
      }),
    ]);
  });

  it("redacts fields, bindings and the message", () => {
    const { logger, lines } = record();
    logger
      .child({ apiKey: "s3cret" })
      .error({ text: "s3cret" }, "no answer from redis://:s3cret@host");
    expect(lines()).toHaveLength(1);
    expect(JSON.stringify(lines())).not.toContain("s3cret");
  });

  it("redacts a secret at the cut of a long text, too", () => {
    const { logger, lines } = record();
    for (let before = 1_970; before < 2_000; before += 1) {
      logger.info({}, `${"x".repeat(before)} redis://:s3cret-word@host`);
    }
    expect(lines()).toHaveLength(30);
    expect(JSON.stringify(lines())).not.toContain("s3");
  });

  it("drops lines below its level", () => {
    const { logger, lines } = record("warn");
    logger.info({}, "quiet");
    logger.error({}, "loud");
    expect(lines()).toEqual([expect.objectContaining({ msg: "loud" })]);
  });

  it("writes ten lines a minute of one error, and counts the others", () => {
    const written: string[] = [];
    let nowMs = 0;
    const destination = { write: (line: string) => void written.push(line) };
    const logger = createLogger({
      service: "ingress",
      destination,
      clock: { monotonic: () => nowMs },
    });
    const error = new Error("NOPERM");
    for (let at = 0; at < 100_000; at += 1) {
      logger.child({ at }).warn({ error }, "Redis connection");
    }
    expect(written).toHaveLength(10);
    logger.warn({ error: new Error("another") }, "Redis connection");
    for (let at = 0; at < 20; at += 1) logger.info({}, "a line without an error");
    expect(written).toHaveLength(31);
    nowMs = 60_000;
    logger.warn({ error }, "Redis connection");
    expect(JSON.parse(written.at(-1) ?? "")).toMatchObject({
      leftOut: 99_990,
      msg: "Redis connection",
    });
  });
});
