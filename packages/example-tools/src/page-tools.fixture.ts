import { appendFileSync } from "node:fs";
import { defineTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { createFetchPageTool } from "./fetch-page.ts";

// Every name leads to this machine, and each look-up leaves a line: a name server would see it.
const isolation = { level: "process", env: ["RECORDING_FILE"] } as const;
// oxlint-disable-next-line node/no-process-env -- a tool of tests has no other way to know it
const logFile = process.env["RECORDING_FILE"] ?? "";

async function resolve(host: string): Promise<string[]> {
  appendFileSync(logFile, `lookup ${host}\n`);
  return await Promise.resolve(["127.0.0.1"]);
}

const readNotes = defineTool({
  name: "read_notes",
  description: "Reads the notes of the team.",
  input: Type.Object({}),
  effect: "pure",
  addresses: [],
  isolation,
  run: () => "The code word is s3cret-of-the-team.",
});

/** As of an author who says nothing about addresses. */
const notify = defineTool({
  name: "notify",
  description: "Calls a webhook.",
  input: Type.Object({}, { additionalProperties: true }),
  effect: "pure",
  isolation,
  run: (input) => {
    appendFileSync(logFile, `notify ${JSON.stringify(input)}\n`);
    return "called";
  },
});

const page = createFetchPageTool({ resolve, allowPrivate: (address) => address === "127.0.0.1" });

/** As it is, but with the file of the lines in its environment. */
const fetchPage = defineTool({
  name: page.name,
  description: page.description,
  input: Type.Object({ url: Type.String() }),
  effect: page.effect,
  addresses: page.addresses ?? [],
  isolation,
  run: (input, context) => page.run(input, context),
});

export default [fetchPage, readNotes, notify];
