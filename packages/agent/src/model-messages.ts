import { toolResultPart, type Message, type ToolResultPart, type ToolUsePart } from "@larkline/protocol";
import { isSendable, withoutTrailingThinking } from "./sendable-part.ts";

type UserMessage = Extract<Message, { role: "user" }>;
type AssistantMessage = Extract<Message, { role: "assistant" }>;
type ToolMessage = Extract<Message, { role: "tool" }>;

const lostResult = "The result of this call was lost. It is not known whether the call took effect.";

/** The same array when every element passes. */
function kept<T>(items: T[], passes: (item: T) => boolean): T[] {
  return items.every(passes) ? items : items.filter(passes);
}

function withContent<M extends Message>(message: M, content: M["content"]): M {
  return content === message.content ? message : { ...message, content };
}

function unusedId(id: string, taken: ReadonlySet<string>): string {
  let unused = id;
  for (let copy = 2; taken.has(unused); copy++) unused = `${id}_${copy}`;
  return unused;
}

/** Whether one message holds exactly one result for each use, and no id is repeated. */
function isAnswered(
  uses: readonly ToolUsePart[],
  answers: readonly ToolMessage[],
  taken: ReadonlySet<string>,
): boolean {
  const results = answers[0]?.content ?? [];
  const open = new Set(uses.map(({ id }) => id));
  if (answers.length !== 1 || open.size !== uses.length || results.length !== uses.length) return false;
  return results.every(({ toolCallId }) => !taken.has(toolCallId) && open.delete(toolCallId));
}

/** Gives every use an id of its own and exactly one result; the first result of a call wins. */
function repaired(asked: AssistantMessage, answers: readonly ToolMessage[], taken: Set<string>): Message[] {
  const found = Map.groupBy(
    answers.flatMap(({ content }) => content),
    ({ toolCallId }) => toolCallId,
  );
  const results: ToolResultPart[] = [];
  const content = asked.content.map((part) => {
    if (part.type !== "tool_use") return part;
    const id = unusedId(part.id, taken);
    taken.add(id);
    const result = found.get(part.id)?.shift() ?? toolResultPart(id, lostResult, true);
    results.push({ ...result, toolCallId: id });
    return { ...part, id };
  });
  return [
    { ...asked, content },
    { role: "tool", content: results },
  ];
}

/** An assistant message with the results that follow it, as vendors take them. */
function sendableRound(history: readonly Message[], index: number, taken: Set<string>): Message[] {
  const message = history[index];
  if (message?.role !== "assistant") return [];
  const asked = withContent(message, withoutTrailingThinking(kept(message.content, isSendable)));
  if (asked.content.length === 0) return [];
  const uses = asked.content.filter((part) => part.type === "tool_use");
  if (uses.length === 0) return [asked];
  const answers = answersAfter(history, index);
  if (!isAnswered(uses, answers, taken)) return repaired(asked, answers, taken);
  for (const { id } of uses) taken.add(id);
  return [asked, ...answers];
}

/** The tool messages that follow position `start` without a gap. */
function answersAfter(history: readonly Message[], start: number): ToolMessage[] {
  const answers: ToolMessage[] = [];
  for (let index = start + 1; ; index++) {
    const message = history[index];
    if (message?.role !== "tool") return answers;
    answers.push(message);
  }
}

function sendableUser(message: UserMessage): Message[] {
  const content = kept(message.content, isSendable);
  return content.length === 0 ? [] : [withContent(message, content)];
}

/**
 * The history as sent to a vendor, valid whatever was stored: it begins with a user message, every
 * call has exactly one result in the next message and an id of its own, no part is blank, no result
 * is an orphan, no assistant message ends in thinking. A last line of defence: histories written by
 * the turn machine come back as the same array. Linear in the number of parts.
 */
export function modelMessagesOf(history: readonly Message[]): readonly Message[] {
  const taken = new Set<string>();
  const sendable: Message[] = [];
  for (const [index, message] of history.entries()) {
    if (message.role === "user") sendable.push(...sendableUser(message));
    else if (sendable.length > 0) sendable.push(...sendableRound(history, index, taken));
  }
  const unchanged =
    sendable.length === history.length && sendable.every((message, index) => message === history[index]);
  return unchanged ? history : sendable;
}
