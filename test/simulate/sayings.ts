import type { SeededRandom } from "../chaos/random.ts";
import { time } from "./time.ts";

// What people and programs say, and when.

/** What is said to the product, and what it asks for. */
export interface Said {
  /** Two digits: who says it, and the how manieth it is. */
  key: string;
  text: string;
  /** The tool that it asks for, or the helper, or the agent that is to have the conversation from then on. */
  tool: string | undefined;
  needsApproval: boolean;
  /** The process that asks the model about it dies, each time. */
  isDeadly: boolean;
  isAccepted: boolean;
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => void time.after(ms, resolve));
}

const wishes = [
  "",
  "",
  "note_pure",
  "note_once",
  "note_once",
  "ask_once",
  "research",
  "transfer_to_expert",
] as const;

/** Something to say. A program asks for nothing that people have to approve. */
export function sayingOf(key: string, random: SeededRandom, mayNeedApproval = true): Said {
  const line = random.pick([
    `m${key}`,
    `m${key}`,
    `m${key} pause ${random.below(1_500)}`,
    `m${key} type ${random.below(20)}`,
  ]);
  const said = {
    key,
    text: line,
    tool: undefined,
    needsApproval: false,
    isDeadly: false,
    isAccepted: false,
  };
  if (random.below(32) === 0) return { ...said, text: `m${key} deadly`, isDeadly: true };
  const wished = random.pick(wishes);
  const tool = wished === "ask_once" && !mayNeedApproval ? "note_once" : wished;
  const own = `call ${tool} ${JSON.stringify({ key, ...(random.below(2) === 0 && { ms: random.below(2_000) }) })}`;
  switch (tool) {
    case "":
      return said;
    case "research": {
      const inner = random.pick(["", "note_once", mayNeedApproval ? "ask_once" : "note_pure"]);
      const task = `h${key}${inner === "" ? "" : `\ncall ${inner} ${JSON.stringify({ key })}`}`;
      const text = `${line}\ncall research ${JSON.stringify({ task })}`;
      return { ...said, text, tool, needsApproval: inner === "ask_once" };
    }
    case "transfer_to_expert":
      return { ...said, text: `${line}\ncall ${tool} {"reason":"it is asked for"}`, tool };
    default:
      return { ...said, text: `${line}\n${own}`, tool, needsApproval: tool === "ask_once" };
  }
}
