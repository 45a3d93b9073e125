import { describe, expect, it } from "vitest";
import { createLogger, type LogLevel } from "./logger.ts";

function record(level?: LogLevel) {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const logger = createLogger({ service: "ingress", destination, ...(level === undefined ? {} : { level }) });
  return { logger, lines: () => lines.map((line): unknown => JSON.parse(line)) };
}

describe("createLogger", () => {
  it("writes one JSON object per line with service, level and the child's bindings", () => {
    const { logger, lines } = record();
    logger.child({ session: "app.chat" }).child({ turnId: "app.chat-1" }).warn({ attempt: 2 }, "model call failed");
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
    logger.child({ apiKey: "s3cret" }).error({ text: "s3cret" }, "no answer from redis://:s3cret@host");
    expect(lines()).toHaveLength(1);
    expect(JSON.stringify(lines())).not.toContain("s3cret");
  });

  it("drops lines below its level", () => {
    const { logger, lines } = record("warn");
    logger.info({}, "quiet");
    logger.error({}, "loud");
    expect(lines()).toEqual([expect.objectContaining({ msg: "loud" })]);
  });
});
