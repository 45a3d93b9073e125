import {
  memoryToolNames,
  recallName,
  rememberName,
  type CallState,
  type EventOf,
  type ListPanel,
  type MemoryFound,
  type MemoryOwner,
  type Message,
  type ReplyLanguage,
  type ToolOutcome,
} from "@larkline/protocol";
import type { Ability } from "../../turn/ability.ts";
import { Type, type Static } from "@larkline/protocol/type";
import { oneLine, textsOf } from "../../texts/index.ts";
import { isSummary } from "../../turn/context.ts";

// What is remembered over conversations, as pure decisions: who may be behind a wish to remember something, and what
// people read of it. Whose it is says packages/protocol (inbox.ts). The store keeps it (packages/store), workers read and write it.

const MemoryInput = Type.Object(
  {
    /** Those of people: only where they talk to the bot alone, in groups too, or not. Default `off`. */
    person: Type.Optional(Type.Enum(["off", "direct", "everywhere"])),
    /** Those of chats. Default: no. */
    chat: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false, description: "Whose memories an agent keeps over conversations." },
);

/** Whose memories an agent keeps: those of people `everywhere`, only where they talk to it alone, or not; those of chats. */
export interface MemorySettings {
  readonly person: "off" | "direct" | "everywhere";
  readonly chat: boolean;
}

/** Of an agent's abilities, as the configuration has them. */
export function memorySettings({ memory: given }: Readonly<Record<string, unknown>>): MemorySettings {
  const { person = "off", chat = false } = (given ?? {}) as Static<typeof MemoryInput>; // checked with the configuration
  return { person, chat };
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

/** The latest memories that calls of a turn have written. */
type Written = readonly Required<Remembered>[];

const maxShown = 5;

/** Of agents that keep memories. */
export const memory: Ability<Written> = {
  name: "memory",
  config: MemoryInput,
  toolNames: memoryToolNames,
  onAnswer: ({ call, outcome, state = [] }) => {
    const kept = [...state, ...writtenBy(call, outcome)].slice(-maxShown);
    return { state: kept.length === 0 ? undefined : kept, events: recallEvents(call, outcome) };
  },
  panels: (written, { message: { session } }) => [panelOf(written, session)],
};

function writtenBy({ name }: CallState, outcome: ToolOutcome): Written {
  if (name !== rememberName || !outcome.ok) return [];
  const { id, text, about } = outcome.result as Remembered; // workers alone answer calls of their own tools
  return about === undefined ? [] : [{ id, text, about }];
}

/** People see what was written, and may take it back. */
function panelOf(written: Written, session: string): ListPanel {
  return {
    kind: "list",
    name: "memories",
    title: { zh: `🧠 已记住 ${written.length} 条`, en: `🧠 Remembered: ${written.length}` },
    items: written.map(({ id, about, text }) => ({
      text,
      button: {
        text: { zh: "撤回", en: "Take back" },
        value: { larkline: "memory", session, memory: id, about },
      },
    })),
  };
}

/** What `recall` answers. */
export interface Recalled {
  query: string;
  notes: MemoryFound[];
}

/** The event of a look-up that the model asked for by a call of a built-in tool. */
function recallEvents({ name }: CallState, outcome: ToolOutcome): EventOf<"memory_query">[] {
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
