import { readdirSync, readFileSync } from "node:fs";
import { connect } from "node:net";
import { env } from "node:process";
import {
  defineProgramTool,
  defineTool,
  type ToolContext,
  type ToolProgram,
} from "@larkline/tool-kit";
import { Type } from "typebox";

function seen(path: string): string {
  try {
    return readFileSync(path, "utf8").slice(0, 200);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EISDIR") {
      return readdirSync(path).join(" ");
    }
    return error instanceof Error && "code" in error ? String(error.code) : String(error);
  }
}

async function reached(port: number): Promise<string> {
  return await new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => resolve("connected"));
    socket.on("error", (error) => resolve("code" in error ? String(error.code) : "failed"));
  });
}

/** What the tool can see from where it runs. */
async function look(
  { paths, port }: { paths: string[]; port?: number },
  { callId, actor, authority, progress, log }: ToolContext,
): Promise<unknown> {
  progress(0.5, "looking");
  log("looked", { paths: paths.length });
  return {
    seen: Object.fromEntries(paths.map((path) => [path, seen(path)])),
    variables: Object.keys(env),
    reached: port === undefined ? "" : await reached(port),
    facts: { callId, actor, authority },
  };
}

const input = Type.Object({
  paths: Type.Array(Type.String()),
  port: Type.Optional(Type.Integer()),
});
const isolation = { level: "sandbox", env: ["LARKLINE_GIVEN"], memoryMb: 256 } as const;

/** A tool for programs of one language. */
function programTool(name: string, runtime: ToolProgram["runtime"]) {
  return defineProgramTool({
    name,
    description: "d",
    input: Type.Object({ code: Type.String() }),
    effect: "once",
    timeoutMs: 60_000,
    program: ({ code }) => ({ runtime, code }),
  });
}

/** Tools of a deployer who does not trust what they work on. */
export default [
  programTool("javascript", "node"),
  programTool("shell", "bash"),
  defineTool({ name: "look", description: "d", input, effect: "once", isolation, run: look }),
  defineTool({
    name: "spin_inside",
    description: "d",
    input: Type.Object({}),
    effect: "once",
    timeoutMs: 1_500,
    isolation,
    run: () => {
      for (;;);
    },
  }),
];
