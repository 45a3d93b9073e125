import {
  recallName,
  rememberName,
  memoryToolNames,
  type CallState,
  type EventOf,
  type MemoryFound,
  type MemoryOwner,
  type Message,
  type ReplyLanguage,
  type ShownMemory,
  type ToolOutcome,
} from "@larkline/protocol";
import { oneLine, textsOf } from "../../texts/index.ts";
import { isSummary } from "../../turn/context.ts";

// What is remembered over conversations, as pure decisions: who may be behind a wish to remember something, and what
// people read of it. Whose it is says packages/protocol (inbox.ts). The store keeps it (packages/store), workers read and write it.

/** Whose memories an agent keeps: those of people `everywhere`, only where they talk to it alone, or not; those of chats. */
export interface MemorySettings {
  readonly person: "off" | "direct" | "everywhere";
  readonly chat: boolean;
}

/** What a call wants remembered, by its word for the owner. */
export function aboutOf(kind: MemoryOwner["kind"]): "me" | "chat" {
  return kind === "person" ? "me" : "chat";
}

/**
 * Whether text of others may be behind a wish of the model: of a tool, a file, an image, a quote, a summary, which may
 * repeat all of these, and, for a memory of one person, of other people. The whole conversation counts: a page that was
 * read an hour ago is as able to give orders as one of this turn. So does what other members of a team have said;
 * `agent`: the one that wishes it.
 */
export function othersHaveSpoken(
  history: readonly Message[],
  { about, sender, isGroup, agent }: { about: "me" | "chat"; sender: string; isGroup: boolean; agent: string },
): boolean {
  const own = new Set<string>();
  return history.some((said) => {
    if (said.role === "assistant") {
      for (const part of said.content) {
        // In a group the memories of the chat come from everybody there.
        const isOwn = part.type === "tool_use" && memoryToolNames.includes(part.name);
        if (isOwn && !(isGroup && about === "me" && part.name === recallName)) own.add(part.id);
      }
      return said.team !== undefined && (said.agent ?? "default") !== agent;
    }
    if (said.role === "tool") return said.content.some(({ toolCallId }) => !own.has(toolCallId));
    const isOther = about === "me" && said.sender !== undefined && said.sender !== sender;
    return isOther || said.foreign === true || isSummary(said) || said.content.some(({ type }) => type !== "text");
  });
}

/** What `remember` answers: with `about` where the memory is new. */
export interface Remembered {
  id: string;
  text: string;
  about?: "me" | "chat";
}

/** The memory that a call of a built-in tool has written; undefined where it wrote none. */
export function rememberedBy({ name }: CallState, outcome: ToolOutcome): ShownMemory | undefined {
  if (name !== rememberName || !outcome.ok) return undefined;
  const { id, text, about } = outcome.result as Remembered; // workers alone answer calls of their own tools
  return about === undefined ? undefined : { id, text, about };
}

/** What `recall` answers. */
export interface Recalled {
  query: string;
  notes: MemoryFound[];
}

/** The event of a look-up that the model asked for by a call of a built-in tool. */
export function recallEvents({ name }: CallState, outcome: ToolOutcome): EventOf<"memory_query">[] {
  if (name !== recallName || !outcome.ok) return [];
  const { query, notes } = outcome.result as Recalled; // workers alone answer calls of their own tools
  return [{ type: "memory_query", query, items: notes, automatic: false }];
}

/** What `/memory` is asked to do. */
export type MemoryOrder = { do: "list" } | { do: "on" } | { do: "off" } | { do: "forget"; which: number };

/** Reads the words after `/memory`; anything else lists. */
export function memoryOrder(argument: string): MemoryOrder {
  const words = argument.trim().toLowerCase();
  const [, number = ""] = /^(?:forget|忘记|忘掉|删除)\s*(\d{1,4})$/u.exec(words) ?? [];
  if (number !== "") return { do: "forget", which: Number(number) };
  if (/^(?:off|关|关闭)$/u.test(words)) return { do: "off" };
  return { do: /^(?:on|开|开启|打开)$/u.test(words) ? "on" : "list" };
}

/** A memory as `/memory` lists it. */
export interface ListedMemory {
  about: "me" | "chat";
  text: string;
}

const maxListedCharacters = 300;

/** What `/memory` answers. `isGroup`: others read along, so the memories of people are not listed. */
export function memoriesText(
  memories: readonly ListedMemory[],
  { language, isGroup, off }: { language: ReplyLanguage; isGroup: boolean; off: boolean },
): string {
  const { none, off: offText, title, line, hint, alone } = textsOf(language).memory;
  const lines = memories.map(({ about, text }, at) => line(at + 1, oneLine(text, maxListedCharacters), about));
  const list = off ? [offText] : lines.length === 0 ? [none] : [title, ...lines, "", hint];
  return [...list, ...(isGroup ? ["", alone] : [])].join("\n");
}
