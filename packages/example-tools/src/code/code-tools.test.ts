import { announcementOf } from "@larkline/tool-kit";
import { describe, expect, it } from "vitest";
import tools, { runJavascript, runPython, runShell } from "./index.ts";

describe("tools for code of a model", () => {
  it.each([runJavascript, runPython, runShell])(
    "$name: asks a person, runs once, in a sandbox without network",
    (tool) => {
      const { effect, requiresApproval, risk, subject } = announcementOf(tool);
      expect({ effect, requiresApproval, risk }).toEqual({
        effect: "once",
        requiresApproval: true,
        risk: "high",
      });
      expect(tool.isolation).toMatchObject({ level: "sandbox", network: "none", env: [] });
      expect(Object.keys(Object(tool.inputSchema["properties"]))).toEqual([subject]);
    },
  );

  it("pass on what the model wrote, and nothing else", () => {
    expect(runJavascript.program({ code: "return 1" })).toEqual({
      runtime: "node",
      code: "return 1",
    });
    expect(runPython.program({ code: "result = 1" })).toEqual({
      runtime: "python",
      code: "result = 1",
    });
    expect(runShell.program({ command: "ls" })).toEqual({ runtime: "bash", code: "ls" });
    expect(runShell.check({ command: "ls", timeout: 1 }).ok).toBe(false);
    expect(runShell.check({ command: "" }).ok).toBe(false);
  });

  it("are what the module offers when a configuration names it", () => {
    expect(tools.map(({ name }) => name)).toEqual(
      expect.arrayContaining(["run_javascript", "run_shell"]),
    );
  });
});
