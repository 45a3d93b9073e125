import { type AvailableTool, readResultName } from "@larkline/store";
import { createLogger } from "@larkline/process/telemetry";
import { expect, it } from "vitest";
import { builtInRunner, createOfferedTools, readResultAnnouncement } from "./tools.ts";

const logger = createLogger({ service: "test", level: "silent" });
const builtIns = {
  offered: new Map([[readResultName, { runner: builtInRunner, announcement: readResultAnnouncement }]]),
};

function tool(name: string): [string, AvailableTool] {
  const spec = { name, description: "", inputSchema: { type: "object" } };
  return [name, { runner: "r", announcement: { spec, effect: "pure", requiresApproval: false, timeoutMs: 1 } }];
}

function offered(tools: ReadonlyMap<string, AvailableTool>, allowed: readonly string[] | null): [string, string][] {
  const now = createOfferedTools({ catalog: { tools: () => tools }, builtIns, logger }, allowed);
  expect(now()).toBe(now());
  return [...now()].map(([name, { runner }]) => [name, runner]);
}

it("built-in tools come with those of runners, and without any there is none", () => {
  expect(offered(new Map([tool("a"), tool("b")]), null)).toEqual([
    ["a", "r"],
    ["b", "r"],
    [readResultName, builtInRunner],
  ]);
  expect(offered(new Map([tool("a"), tool("b")]), ["b"])).toEqual([
    ["b", "r"],
    [readResultName, builtInRunner],
  ]);
  expect(offered(new Map(), null)).toEqual([]);
  expect(offered(new Map([tool("a")]), [])).toEqual([]);
});

it("a runner that offers a built-in tool's name loses", () => {
  const tools = new Map([tool(readResultName), tool("a")]);
  expect(new Map(offered(tools, null)).get(readResultName)).toBe(builtInRunner);
});
