import { appendFile, mkdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { defineTool, type HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";

/** Longest part of the notes that a model gets: the newest. */
const maxReadCharacters = 20_000;

/** Where notes are kept when the deployer says nothing: below the working directory. */
const defaultFile = join(".data", "notes.md");

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

/** A tool that changes something, so people are asked first: adds a line to a file of notes. */
export function createAddNoteTool(file: string = defaultFile): HandlerTool {
  return defineTool({
    name: "add_note",
    description: "Adds a note for the whole team to the shared notes.",
    title: { zh: "记笔记", en: "Add a note" },
    summary: { zh: "记一条笔记：{text}", en: "Add a note: {text}" },
    input: Type.Object(
      {
        text: Type.String({
          minLength: 1,
          maxLength: 2_000,
          description: "The note, one paragraph.",
        }),
      },
      { additionalProperties: false },
    ),
    effect: "once",
    addresses: [],
    requiresApproval: true,
    risk: "low",
    subject: "text",
    timeoutMs: 10_000,
    run: async ({ text }, { actor }) => {
      const line = `- ${new Date().toISOString()} ${actor.userName ?? actor.userId}: ${text.replaceAll(/\s+/g, " ")}\n`;
      await mkdir(dirname(file), { recursive: true, mode: 0o700 });
      await appendFile(file, line, { mode: 0o600 });
      return "noted";
    },
  });
}

/** Reads what `add_note` has written. */
export function createReadNotesTool(file: string = defaultFile): HandlerTool {
  return defineTool({
    name: "read_notes",
    description: "Reads the shared notes of the team, the newest last.",
    title: { zh: "看笔记", en: "Read the notes" },
    input: Type.Object({}, { additionalProperties: false }),
    effect: "pure",
    addresses: [],
    risk: "low",
    timeoutMs: 10_000,
    run: async () => {
      const notes = await readFile(file, "utf8").catch((error: unknown) => {
        if (isMissing(error)) return "";
        throw error;
      });
      return notes === "" ? "There are no notes yet." : notes.slice(-maxReadCharacters);
    },
  });
}

/** For a demo on one machine: runners elsewhere would each have notes of their own. */
export default [createAddNoteTool(), createReadNotesTool()];
