import type { ToolOutcome } from "@larkline/protocol/tool";
import { describe, expect, it } from "vitest";
import {
  announcementOf,
  defineTool,
  runTool,
  type HandlerTool,
  type FileFacts,
  type StoreFile,
  type CallContext,
  type ToolContext,
} from "./index.ts";

const png = Buffer.from("\x89PNG\r\n\x1a\nrest", "latin1");
const tooMuch = Buffer.concat([png, Buffer.alloc(10 * 1024 * 1024)]);
const id = `blob_${"x".repeat(43)}`;

interface Kept {
  bytes: Uint8Array;
  facts: FileFacts;
}

function contextWith(signal = new AbortController().signal): CallContext {
  const actor = { app: "a", userId: "u", chatId: "c" };
  const authority = { by: "policy" } as const;
  return {
    callId: "c1",
    turnId: "t1",
    signal,
    actor,
    authority,
    progress: () => {},
    log: () => {},
  };
}

/** A tool that does `work`. */
function toolOf(
  work: (context: ToolContext) => unknown,
  savesFiles: boolean | "any" = true,
): HandlerTool {
  const input: Record<string, unknown> = { type: "object" };
  return defineTool({
    name: "draw",
    description: "Draws.",
    input,
    effect: "pure",
    savesFiles,
    run: (_input, context) => work(context),
  });
}

/** Runs a tool that saves files; `kept` is what reached the store. */
async function run(
  work: (context: ToolContext) => unknown,
  given: { storeFile?: StoreFile; signal?: AbortSignal; savesFiles?: boolean | "any" } = {},
): Promise<{ outcome: ToolOutcome; kept: Kept[] }> {
  const kept: Kept[] = [];
  const storeFile: StoreFile = async (bytes, facts) => {
    kept.push({ bytes, facts });
    return id;
  };
  const outcome = await runTool(toolOf(work, given.savesFiles), {
    argumentsText: "{}",
    context: contextWith(given.signal),
    storeFile: given.storeFile ?? storeFile,
  });
  return { outcome, kept };
}

describe("saveFile", () => {
  it("resolves to the Markdown that shows the image, for the result", async () => {
    const { outcome, kept } = await run((context) =>
      context.saveFile(png, { mediaType: "image/png", name: "bars [1].png" }),
    );
    expect(outcome).toEqual({ ok: true, result: `![bars 1 .png](blob:${id})` });
    expect(kept).toEqual([{ bytes: png, facts: { mediaType: "image/png", name: "bars [1].png" } }]);
  });

  const refused: [what: string, given: { bytes: unknown; mediaType: string; error: RegExp }][] = [
    ["no bytes", { bytes: "text", mediaType: "image/png", error: /Uint8Array/ }],
    [
      "nothing",
      { bytes: new Uint8Array(), mediaType: "image/png", error: /no PNG, JPEG, GIF or WebP/ },
    ],
    [
      "another kind of file",
      { bytes: Buffer.from("a,b"), mediaType: "text/csv", error: /put text into the result/ },
    ],
    [
      "SVG",
      { bytes: Buffer.from("<svg/>"), mediaType: "image/svg+xml", error: /convert the file/ },
    ],
    [
      "bytes of another type",
      { bytes: png, mediaType: "image/jpeg", error: /are image\/png, but .* says image\/jpeg/ },
    ],
    ["too much", { bytes: tooMuch, mediaType: "image/png", error: /make it smaller/ }],
  ];
  it.each(refused)("refuses %s and says what to do", async (_what, { bytes, mediaType, error }) => {
    const { outcome, kept } = await run((context) =>
      context.saveFile(bytes as Uint8Array, { mediaType }),
    ); // untyped callers
    expect(outcome).toEqual({ ok: false, error: expect.stringMatching(error) });
    expect(kept).toEqual([]);
  });

  it("keeps any file of a tool that says so, with a name, to be sent", async () => {
    const csv = Buffer.from("a,b");
    const facts = { mediaType: "text/csv", name: "data.csv" };
    const savesFiles = "any";
    const { outcome, kept } = await run((context) => context.saveFile(csv, facts), { savesFiles });
    expect(outcome).toEqual({ ok: true, result: `blob:${id}` });
    expect(kept).toEqual([{ bytes: csv, facts }]);
    const shown = await run((context) => context.saveFile(png, { mediaType: "image/png" }), {
      savesFiles,
    });
    expect(shown.outcome).toEqual({ ok: true, result: `![image](blob:${id})` });
    const wrong = [
      { bytes: csv, name: " ", error: /needs a name/ },
      { bytes: Buffer.alloc(0), name: "a", error: /0 bytes/ },
      { bytes: Buffer.alloc(20 * 1024 * 1024 + 1), name: "a", error: /20971520 can be kept/ },
    ];
    for (const { bytes, name, error } of wrong) {
      const { outcome: answer } = await run(
        (context) => context.saveFile(bytes, { mediaType: "text/csv", name }),
        { savesFiles },
      );
      expect(answer).toEqual({ ok: false, error: expect.stringMatching(error) });
    }
  });

  it("saves eight files of one call, also when they are saved at once", async () => {
    const save = async (context: ToolContext): Promise<unknown> => {
      const all = Array.from({ length: 9 }, () =>
        context.saveFile(png, { mediaType: "image/png" }),
      );
      const settled = await Promise.allSettled(all);
      return settled.map((one) => (one.status === "rejected" ? String(one.reason) : "saved"));
    };
    const { outcome, kept } = await run(save);
    expect(outcome).toMatchObject({
      result: [...Array(8).fill("saved"), expect.stringContaining("8 files at most")],
    });
    expect(kept).toHaveLength(8);
  });

  it("rejects with the reason of the abort while the store hangs, and stores nothing afterwards", async () => {
    const controller = new AbortController();
    let asked = 0;
    const told: unknown[] = [];
    const { promise: over, resolve } = Promise.withResolvers<void>();
    const { outcome } = await run(
      async (context) => {
        for (let time = 0; time < 2; time += 1) {
          await context
            .saveFile(png, { mediaType: "image/png" })
            .catch((error: unknown) => told.push(error));
        }
        resolve();
      },
      {
        signal: controller.signal,
        storeFile: async () => {
          asked += 1;
          controller.abort(new Error("cancelled"));
          return await new Promise<string>(() => {});
        },
      },
    );
    await over;
    expect(outcome).toEqual({ ok: false, error: "cancelled" });
    expect(told).toEqual([new Error("cancelled"), new Error("cancelled")]);
    expect(asked).toBe(1);
  });

  it("is over with the call", async () => {
    let late: Promise<string> | undefined;
    const { promise: answered, resolve } = Promise.withResolvers<void>();
    const { kept } = await run((context) => {
      late = answered.then(() => context.saveFile(png, { mediaType: "image/png" }));
      return "done";
    });
    resolve();
    await expect(late).rejects.toThrow("await saveFile before returning");
    expect(kept).toEqual([]);
  });

  it("rejects where no store keeps files, and for tools that did not say that they save some", async () => {
    const save = async (context: ToolContext): Promise<string> =>
      await context.saveFile(png, { mediaType: "image/png" });
    const undeclared = await run(save, { savesFiles: false });
    expect(undeclared.outcome).toEqual({
      ok: false,
      error: expect.stringContaining("set savesFiles: true"),
    });
    expect(await runTool(toolOf(save), { argumentsText: "{}", context: contextWith() })).toEqual({
      ok: false,
      error: expect.stringContaining("cannot be saved here"),
    });
  });
});

it("the description says to models how to show what a tool saves, and only of such tools", () => {
  const definition = {
    name: "t",
    description: "Draws.",
    input: { type: "object" },
    effect: "pure",
    run: () => 1,
  } as const;
  expect(announcementOf(defineTool(definition)).spec.description).toBe("Draws.");
  const told = announcementOf(defineTool({ ...definition, savesFiles: true })).spec.description;
  expect(told).toMatch(/^Draws\. .*write its Markdown in the answer exactly/);
});
