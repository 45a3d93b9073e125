import {
  defineProgramTool,
  type LocalText,
  type ProgramTool,
  type ToolProgram,
} from "@larkline/tool-kit";
import { Type } from "typebox";

const timeoutMs = 60_000;
const maxCodeCharacters = 100_000;

const closing =
  "It runs in a sandbox without network that is thrown away afterwards: nothing of an earlier call is left, and nothing " +
  "outside can be reached or changed. Images (PNG, JPEG, GIF, WebP) that it leaves in the working directory can be shown.";

/** The same for all tools here: no person has read the program, so a person decides whether it runs. */
// Programs may hold addresses of any kind: what they reach is for the sandbox's gate to say.
const unread = {
  effect: "once",
  addresses: [],
  requiresApproval: true,
  risk: "high",
  isolation: "sandbox",
  timeoutMs,
} as const;

interface CodeTool {
  name: string;
  runtime: ToolProgram["runtime"];
  title: LocalText;
  description: string;
}

function codeTool({ name, runtime, title, description }: CodeTool): ProgramTool {
  return defineProgramTool({
    ...unread,
    name,
    title,
    description: `${description} ${closing}`,
    input: Type.Object(
      { code: Type.String({ minLength: 1, maxLength: maxCodeCharacters }) },
      { additionalProperties: false },
    ),
    subject: "code",
    program: ({ code }) => ({ runtime, code }),
  });
}

/** Runs JavaScript that a model wrote. */
export const runJavascript: ProgramTool = codeTool({
  name: "run_javascript",
  runtime: "node",
  title: { zh: "运行 JavaScript", en: "Run JavaScript" },
  description:
    "Runs JavaScript (Node.js, the body of an async function) and gives back what it returns, as JSON, and what it prints.",
});

/** Runs Python that a model wrote. */
export const runPython: ProgramTool = codeTool({
  name: "run_python",
  runtime: "python",
  title: { zh: "运行 Python", en: "Run Python" },
  description:
    "Runs Python and gives back what it assigns to `result`, as JSON, and what it prints. The standard library is there.",
});

/** Runs shell commands that a model wrote. */
export const runShell: ProgramTool = defineProgramTool({
  ...unread,
  name: "run_shell",
  title: { zh: "运行命令", en: "Run a command" },
  summary: { zh: "运行 {command}", en: "Run {command}" },
  description: `Runs a bash command line and gives back its exit code and what it prints. ${closing}`,
  input: Type.Object(
    { command: Type.String({ minLength: 1, maxLength: maxCodeCharacters }) },
    { additionalProperties: false },
  ),
  subject: "command",
  program: ({ command }) => ({ runtime: "bash", code: command }),
});
