import { allAbilities } from "@larkline/agent";
import { apiTools } from "@larkline/feishu-tools/api";
import { decisionTools } from "@larkline/feishu-tools/approvals";
import { feishuTools } from "@larkline/feishu-tools";
import { expect, it } from "vitest";

it("no work tool has the name of a built-in tool, which would be used in its place", () => {
  const builtIn = new Set(allAbilities.flatMap(({ toolNames }) => toolNames));
  const names = [...feishuTools(), ...decisionTools(), ...apiTools()].map(({ name }) => name);
  expect(builtIn.size).toBeGreaterThan(10);
  expect(names.filter((name) => builtIn.has(name))).toEqual([]);
  expect(new Set(names).size).toBe(names.length);
});
