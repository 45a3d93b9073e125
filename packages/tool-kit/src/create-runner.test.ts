import { collectTools } from "@larkline/tool";
import { describe, expect, it } from "vitest";
import { createRunner, defineTool } from "./index.ts";

const tool = defineTool({
  name: "echo",
  description: "d",
  input: { type: "object" },
  effect: "pure",
  run: (input) => input,
});

describe("createRunner", () => {
  it("starts nothing where its file is loaded for the tools alone: it hands them over and says so", async () => {
    const loaded = await collectTools(async () => await createRunner({ name: "echo", tools: [tool], env: {} }));
    expect(loaded).toEqual({ value: false, offered: [tool] });
  });
});
