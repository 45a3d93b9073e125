import { expect, it } from "vitest";
import { silentLogger } from "./logger.ts";
import { createOutageLog } from "./logger.ts";

it("an outage is one line, and its end another", () => {
  const lines: string[] = [];
  const note = (_fields: object, line?: string): void => void lines.push(line ?? "");
  const outages = createOutageLog({ ...silentLogger, warn: note, info: note }, "Redis");
  outages.back();
  outages.failed(new Error("refused"));
  outages.failed(new Error("refused"));
  outages.back();
  outages.back();
  outages.failed(new Error("refused"));
  const begins = "Redis cannot be reached, trying again";
  expect(lines).toEqual([begins, "Redis is reached again", begins]);
});
