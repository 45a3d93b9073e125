import type { AvailableTool } from "@larkline/store/runners";
import { openTestStores } from "@larkline/store/testing";
import { silentLogger } from "@larkline/process/telemetry";
import { builtInRunner, systemClock, readResultName } from "@larkline/protocol";
import { expect, it } from "vitest";
import { ToolCatalog } from "./tools.ts";

function tool(name: string): [string, AvailableTool] {
  const spec = { name, description: "", inputSchema: { type: "object" } };
  return [name, { runner: "r", announcement: { spec, effect: "pure", requiresApproval: false, timeoutMs: 1 } }];
}

async function offered(
  tools: ReadonlyMap<string, AvailableTool>,
  allowed: readonly string[] | null,
): Promise<[string, string][]> {
  const { runners } = openTestStores();
  runners.tools = async () => tools;
  const catalog = new ToolCatalog(runners, systemClock, silentLogger);
  await catalog.refresh();
  expect(catalog.offeredTo({ tools: allowed })).toBe(catalog.offeredTo({ tools: allowed }));
  return [...catalog.offeredTo({ tools: allowed })].map(([name, { runner }]) => [name, runner]);
}

it("built-in tools come with those of runners, and without any there is none", async () => {
  expect(await offered(new Map([tool("a"), tool("b")]), null)).toEqual([
    ["a", "r"],
    ["b", "r"],
    [readResultName, builtInRunner],
  ]);
  expect(await offered(new Map([tool("a"), tool("b")]), ["b"])).toEqual([
    ["b", "r"],
    [readResultName, builtInRunner],
  ]);
  expect(await offered(new Map(), null)).toEqual([]);
  expect(await offered(new Map([tool("a")]), [])).toEqual([]);
});

it("a runner that offers a built-in tool's name loses", async () => {
  const tools = new Map([tool(readResultName), tool("a")]);
  expect(new Map(await offered(tools, null)).get(readResultName)).toBe(builtInRunner);
});
