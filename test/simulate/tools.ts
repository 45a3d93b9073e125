import { setTimeout as delay } from "node:timers/promises";
import { defineTool } from "@larkline/tool-kit";
import { Type } from "typebox";

// Tools of the simulation. They run in its own process, which counts their runs.

/** Runs of the tools since the simulation began: `effect key`. */
export const runs: string[] = [];

const input = Type.Object({ key: Type.String(), ms: Type.Optional(Type.Integer({ minimum: 0 })) });

function counted(name: string, effect: "pure" | "once", requiresApproval = false) {
  return defineTool({
    name,
    description: `Counts its runs (${effect}).`,
    input,
    effect,
    requiresApproval,
    ...(requiresApproval && { subject: "key" as const }),
    isolation: "inline",
    timeoutMs: 20_000,
    run: async ({ key, ms = 0 }, { signal }) => {
      runs.push(`${effect} ${key}`);
      if (ms > 0) await delay(ms, undefined, { signal });
      return { key };
    },
  });
}

export default [
  counted("note_pure", "pure"),
  counted("note_once", "once"),
  counted("ask_once", "once", true),
];
