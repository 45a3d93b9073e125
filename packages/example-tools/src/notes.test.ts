import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runTool, type HandlerTool } from "@larkline/tool-kit";
import { describe, expect, it } from "vitest";
import { createAddNoteTool, createReadNotesTool } from "./notes.ts";

async function call(tool: HandlerTool, input: object): Promise<unknown> {
  return await runTool(tool, {
    argumentsText: JSON.stringify(input),
    context: {
      callId: "c1",
      turnId: "t1",
      actor: { app: "cli", userId: "ou_1", userName: "Ann", chatId: "oc_1" },
      authority: { by: "policy" },
      signal: new AbortController().signal,
      progress: () => undefined,
      log: () => undefined,
    },
  });
}

describe("the shared notes", () => {
  it("keep one line per note, with who wrote it, and are read back", async () => {
    const file = join(mkdtempSync(join(tmpdir(), "larkline-notes-")), "deep", "notes.md");
    expect(await call(createReadNotesTool(file), {})).toEqual({
      ok: true,
      result: "There are no notes yet.",
    });
    expect(await call(createAddNoteTool(file), { text: "water\nthe plants" })).toEqual({
      ok: true,
      result: "noted",
    });
    expect(await call(createAddNoteTool(file), { text: "second" })).toMatchObject({ ok: true });
    const notes = await call(createReadNotesTool(file), {});
    expect(notes).toMatchObject({
      result: expect.stringMatching(/^- \S+ Ann: water the plants\n- \S+ Ann: second\n$/),
    });
  });

  it("are asked about before they change", () => {
    expect(createAddNoteTool()).toMatchObject({ effect: "once", requiresApproval: true });
    expect(createReadNotesTool()).toMatchObject({ effect: "pure", requiresApproval: false });
  });
});
