import type { ModelRequest } from "@larkline/model";
import type { ContentPart, Message } from "@larkline/protocol";
import { isOpaque } from "./messages.ts";

/*
 * All sources of text that a model reads, each with whether it may lead out: whether a call to an address that no person
 * named is asked about once text of that source was read. A field, role or part that is added to requests or messages
 * and is missing here does not compile.
 */

/**
 * `own`: the deployer or the person of the turn wrote it, or it is the model's own. `foreign`: others did, and may have
 * put an address there. `varies`: each piece says it itself. `none`: no text.
 */
type Source = "own" | "foreign" | "varies" | "none";

export const promptSources = {
  request: {
    system: "own",
    // Notes stand behind the instructions: of other people of the chat, or written by a model that read something.
    systemBlocks: "varies",
    messages: "varies",
    // The deployer has chosen runners and servers.
    tools: "own",
    responseFormat: "own",
    extra: "own",
    hostedTools: "own",
    model: "none",
    maxTokens: "none",
    temperature: "none",
    topP: "none",
    needsThinking: "none",
    fastMode: "none",
    effort: "none",
    capabilities: "none",
    plain: "none",
    storeResponses: "none",
    // What the vendor has kept under it may hold results of tools.
    previousResponseId: "foreign",
    alive: "none",
    maxPauses: "none",
  },
  role: { user: "varies", assistant: "own", tool: "foreign" },
  part: {
    text: "varies",
    image: "foreign",
    file: "foreign",
    thinking: "varies",
    tool_use: "own",
    tool_result: "foreign",
  },
} as const satisfies {
  request: Record<keyof ModelRequest, Source>;
  role: Record<Message["role"], Source>;
  part: Record<ContentPart["type"], Source>;
};

/** Whether a message of the conversation holds text that may lead out. `isSummary`: it repeats what was read before it. */
export function mayLeadOut(said: Message, isSummary: boolean): boolean {
  if (promptSources.role[said.role] === "foreign" || isSummary) return true;
  if (said.role === "user" && said.foreign === true) return true;
  // A tool of the vendor's, such as its web search, has read something: its block is kept as thinking.
  return said.content.some((part) => promptSources.part[part.type] === "foreign" || isOpaque(part));
}
