import { setTimeout as delay } from "node:timers/promises";
import { defineTool, type HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";

const maxSeconds = 60;

/** Waits, and reports its progress: for agents that look again later, and to see what a card shows meanwhile. */
export function createWaitTool(secondMs = 1_000): HandlerTool {
  return defineTool({
    name: "wait",
    description: `Waits for 1 to ${maxSeconds} seconds. Use it before you look again at something that takes time.`,
    title: { zh: "等一会儿", en: "Wait" },
    summary: { zh: "等 {seconds} 秒", en: "Wait {seconds} seconds" },
    input: Type.Object(
      { seconds: Type.Integer({ minimum: 1, maximum: maxSeconds }) },
      { additionalProperties: false },
    ),
    effect: "pure",
    addresses: [],
    risk: "low",
    poll: true,
    timeoutMs: (maxSeconds + 10) * 1_000,
    run: async ({ seconds }, { progress, signal }) => {
      for (let waited = 0; waited < seconds; waited += 1) {
        progress(waited / seconds, `${waited}/${seconds}`);
        await delay(secondMs, undefined, { signal });
      }
      return `${seconds} seconds are over`;
    },
  });
}

export default [createWaitTool()];
