import { collectTools, defineTool } from "@larkline/tool-kit";
import { describe, expect, it } from "vitest";
import { createRunner } from "./create-runner.ts";

const tool = defineTool({
  name: "echo",
  description: "d",
  input: { type: "object" },
  effect: "pure",
  run: (input) => input,
});

describe("createRunner", () => {
  it("starts nothing where its file is loaded for the tools alone: it hands them over and says so", async () => {
    const loaded = await collectTools(
      async () => await createRunner({ name: "echo", tools: [tool], env: {} }),
    );
    expect(loaded).toEqual({ value: false, offered: [tool] });
  });
});
