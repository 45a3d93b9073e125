import { textOf, type Message } from "@larkline/protocol";
import { underSpeaker } from "./messages.ts";
import { isCorrection } from "./structured-answer.ts";
import { textHead } from "./texts/index.ts";

/*
 * What an agent sees of a conversation that it shares with others. The store keeps what was said as it was said; each
 * request is made from what these functions leave of it.
 */

/**
 * What an agent sees of a conversation: all of it, or what came since it was given the word with the person's last
 * message alone. What others have said in a team comes as a quote. The same array where nothing is another one. `team`:
 * the one that the agent speaks in.
 */
export function conversationFor(agent: string, history: readonly Message[], team?: string): readonly Message[] {
  return withQuotes(agent, sinceHandOver(team ?? agent, history));
}

const maxReasonChars = 4_000;

/** Within a team the word goes round: what counts is who gave it to the team. */
function sinceHandOver(agent: string, history: readonly Message[]): readonly Message[] {
  const at = history.findLastIndex(
    (message) => message.role === "tool" && message.handoff !== undefined && message.team === undefined,
  );
  const answer = history[at];
  if (answer?.role !== "tool" || answer.handoff?.to !== agent || answer.handoff.context !== "last") return history;
  const { from, callId } = answer.handoff;
  const note = {
    type: "text",
    text: `\n[${from} has handed this over to you. ${reasonOf(history[at - 1], callId)}]`,
  } as const;
  const asked = history.slice(0, at).findLast((message) => message.role === "user" && !isCorrection(message));
  const first: Message =
    asked?.role === "user" ? { ...asked, content: [...asked.content, note] } : { role: "user", content: [note] };
  return [first, ...history.slice(at + 1)];
}

function reasonOf(message: Message | undefined, callId: string): string {
  const call =
    message?.role === "assistant"
      ? message.content.find((part) => part.type === "tool_use" && part.id === callId)
      : undefined;
  if (call?.type !== "tool_use") return "";
  const { reason: why, ...others } = call.arguments;
  const facts = Object.keys(others).length === 0 ? "" : ` ${JSON.stringify(others)}`;
  return textHead(`Reason: ${typeof why === "string" ? why : ""}${facts}`, maxReasonChars);
}

/** The agent that a message comes from; undefined for those of people and of the system. */
export function authorOf(message: Message): string | undefined {
  return message.role === "user" ? undefined : (message.agent ?? "default");
}

/** Whether a message is a step of a team's member. */
export function isOfTeam(message: Message): boolean {
  return message.role !== "user" && message.team !== undefined;
}

/** Vendors want a message of the user before an assistant speaks again. */
const wordAgain = "[You have the word again.]";

/** With the contributions of other agents as quotes of users, and without the steps that they took to them. */
function withQuotes(agent: string, history: readonly Message[]): readonly Message[] {
  if (!history.some(isOfTeam)) return history;
  const seen: Message[] = [];
  for (const [at, message] of history.entries()) {
    const before = history[at - 1];
    if (isOfTeam(message) && authorOf(message) !== agent) {
      const said = contributionAt(history, at);
      if (said !== undefined) seen.push(quoteOf(said));
      continue;
    }
    // What the system told another agent about its answer.
    const isForOther = isCorrection(message) && before !== undefined && isOfTeam(before) && authorOf(before) !== agent;
    if (!isForOther) seen.push(message);
  }
  if (seen.at(-1)?.role === "assistant") seen.push(textMessage(wordAgain));
  return seen;
}

/** What a member of a team has said to the others. */
export interface Contribution {
  agent: string;
  text: string;
  /** Whom it gave the word to, and why. */
  note?: string;
}

/** The contribution that ends with a message: its text, or the hand-over that it ends with. Undefined for other steps. */
export function contributionAt(history: readonly Message[], at: number): Contribution | undefined {
  const message = history[at];
  if (message?.role !== "assistant" || !isOfTeam(message)) return undefined;
  const agent = authorOf(message) ?? "";
  const text = textOf(message);
  const next = history[at + 1];
  if (!message.content.some(({ type }) => type === "tool_use")) {
    return next !== undefined && isCorrection(next) ? undefined : { agent, text };
  }
  if (next?.role !== "tool" || next.handoff === undefined) return undefined;
  const { to, callId } = next.handoff;
  return { agent, text, note: `[gives the word to ${to}. ${reasonOf(message, callId)}]` };
}

/** With a line break at its end: adapters may put the next message behind it. */
function quoteOf(said: Contribution): Message {
  return textMessage(`${quotedText(said)}\n`);
}

function textMessage(text: string): Message {
  return { role: "user", content: [{ type: "text", text }] };
}

/**
 * What others read of a contribution: its author, then each line behind `> `. No text can end the quote, and no message
 * of a person looks like one: their further lines are indented.
 */
export function quotedText({ agent, text, note }: Contribution): string {
  const said = [text.trim(), ...(note === undefined ? [] : [note])].filter((line) => line !== "").join("\n");
  return `${agent}:\n> ${underSpeaker(said === "" ? "(nothing)" : said).replaceAll("\n  ", "\n> ")}`;
}

/** The messages of a decision with their author: none for the agent `default`, because earlier versions wrote none. */
export function signedBy(
  messages: readonly Message[],
  { agent, team }: { agent: string; team: string | undefined },
): Message[] {
  return messages.map((message) => {
    if (message.role === "user" || (agent === "default" && team === undefined)) return message;
    return { ...message, ...(agent === "default" ? {} : { agent }), ...(team === undefined ? {} : { team }) };
  });
}
