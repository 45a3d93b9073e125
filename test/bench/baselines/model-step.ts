import { readStep, type StepResult } from "@larkline/agent";
import type { ModelChain } from "@larkline/model";
import { textOf, toolResultPart, type Message } from "@larkline/protocol/content";
import type { ToolSpec } from "@larkline/protocol/tool";

export const noteTool: ToolSpec = {
  name: "note_pure",
  description: "Notes the key (pure).",
  inputSchema: { type: "object", properties: { key: { type: "string" } }, required: ["key"] },
};

export async function modelStep(
  chain: ModelChain,
  messages: readonly Message[],
): Promise<StepResult> {
  return await readStep(chain.stream({ messages, tools: [noteTool], system: "bench" }));
}

/** Runs the bare loop: model, tool, model. `callTool` gets the arguments text. */
export async function bareLoop(
  chain: ModelChain,
  history: Message[],
  callTool: (argumentsText: string) => Promise<string>,
): Promise<string> {
  for (;;) {
    const step = await modelStep(chain, history);
    const [call] = step.toolCalls;
    if (call === undefined) {
      history.push({ role: "assistant", content: [{ type: "text", text: step.text }] });
      return textOf(history.at(-1) ?? { role: "user", content: [] });
    }
    const use = {
      type: "tool_use",
      id: call.id,
      name: call.name,
      arguments: JSON.parse(call.arguments),
    } as const;
    history.push({ role: "assistant", content: [use] });
    history.push({
      role: "tool",
      content: [toolResultPart(call.id, await callTool(call.arguments))],
    });
  }
}
