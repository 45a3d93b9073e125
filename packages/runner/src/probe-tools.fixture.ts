import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { defineTool, type Tool } from "@larkline/tool-kit";
import { Type } from "typebox";

const input = Type.Object({ file: Type.String() });

/** Notes the runner whose call this is, not the process that it has for it. */
function note(file: string, callId: string): number {
  appendFileSync(file, `${callId} ${process.ppid}\n`);
  return readFileSync(file, "utf8").trim().split("\n").length;
}

/** Writes down that it ran, then hangs the first time and answers the second. */
function holding(name: string, effect: Tool["effect"]): Tool {
  return defineTool({
    name,
    description: "hangs the first time",
    input,
    effect,
    timeoutMs: 60_000,
    run: async ({ file }, { callId }) => {
      if (note(file, callId) === 1) await new Promise(() => {});
      return "second run";
    },
  });
}

/** Exists from when calls of `slow` may end. */
function goFileOf(file: string): string {
  return `${file}.go`;
}

/** Tools that let a test see and steer what a runner does. */
export default [
  holding("hold_once", "once"),
  holding("hold_pure", "pure"),
  defineTool({
    name: "slow",
    description: "ends when the test says so",
    input,
    effect: "once",
    run: async ({ file }, { callId }) => {
      note(file, callId);
      while (!existsSync(goFileOf(file))) await delay(10);
      return "finished";
    },
  }),
  defineTool({
    name: "block",
    description: "blocks its event loop",
    input: Type.Object({ file: Type.String(), ms: Type.Integer() }),
    effect: "pure",
    run: ({ file, ms }, { callId }) => {
      note(file, callId);
      const endMs = Date.now() + ms;
      while (Date.now() < endMs);
      return "unblocked";
    },
  }),
  defineTool({
    name: "alone",
    description: "notes when it works at an object, one call at a time",
    input,
    effect: "pure",
    isolation: "inline",
    run: async ({ file }, { signal, exclusive }) =>
      await exclusive?.("table", { signal }, async () => {
        appendFileSync(file, `begin ${process.pid}\n`);
        await delay(20);
        appendFileSync(file, `end ${process.pid}\n`);
      }),
  }),
  defineTool({
    name: "echo",
    description: "echoes",
    input: Type.Object({}),
    effect: "pure",
    run: (given) => given,
  }),
];
