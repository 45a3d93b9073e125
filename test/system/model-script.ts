import type {
  ModelScript,
  NormalisedMessage,
  NormalisedRequest,
  ScriptedCall,
  ScriptedReply,
} from "@larkline/testkit";

/** What a message asks the scripted model for: one `call <tool> <json>` per line. */
function callsIn(text: string): ScriptedCall[] {
  return text.split("\n").flatMap((line) => {
    const match = /^call (\S+) (.*)$/.exec(line.trim());
    return match === null ? [] : [{ name: match[1] ?? "", arguments: match[2] ?? "" }];
  });
}

function isAsked({ role, text }: NormalisedMessage): boolean {
  return role === "user" && text !== "";
}

/** What a person has said last. */
export function lastSaid(messages: readonly NormalisedMessage[]): string {
  return messages.findLast(isAsked)?.text ?? "";
}

/** Steps of the answer to the last message of a person that the model has said already. */
export function stepsSaid(messages: readonly NormalisedMessage[]): number {
  return messages.slice(messages.findLastIndex(isAsked)).filter(({ role }) => role === "assistant")
    .length;
}

/**
 * A model that does what the message says: lines `call <tool> <json>` become calls, and the answer
 * is the first line in brackets with the results after it. `pause <ms>` comes before the first word,
 * `type <n>` adds that many words, one at a time.
 */
export const obedientModel: ModelScript = ({ messages }) => {
  const asked = lastSaid(messages);
  const last = messages.at(-1);
  const calls = callsIn(asked);
  const results = last?.results ?? [];
  if (results.length === 0 && calls.length > 0) return { calls };
  const shown = results.map(({ content, isError }) =>
    isError ? `failed:${reasonIn(content)}` : `ok:${content}`,
  );
  const pause = /\bpause (\d+)\b/.exec(asked);
  const typed = /\btype (\d+)\b/.exec(asked);
  const answer = [`[${asked.split("\n")[0] ?? ""}]`, ...shown].join(" ");
  const words = Array.from({ length: Number(typed?.[1] ?? 0) }, (_, index) => ` word${index}`);
  return {
    text: words.length === 0 ? answer : [answer, ...words],
    ...(pause === null ? {} : { firstDelayMs: Number(pause[1]) }),
    ...(words.length === 0 ? {} : { delayMs: 20 }),
  };
};

/** What a tool has said of its failure, without the code before it. */
function reasonIn(error: string): string {
  return error.replace(/^tool_execution_error: /, "");
}

/** A model that says what a test has put down for a message, and obeys otherwise. */
export interface PromptedModel {
  script: ModelScript;
  /** What is said to the message, request by request; a list that is used up is obeyed as any other message. */
  prompt(text: string, ...replies: ScriptedReply[]): void;
  /** What is said to the message, step by step: a step that is asked for again, as a worker's successor does, is the same. */
  promptSteps(text: string, ...steps: ScriptedReply[]): void;
  /** What is said to the message, by what holds when it is asked for; undefined: it is obeyed as any other message. */
  promptBy(text: string, replyTo: (request: NormalisedRequest) => ScriptedReply | undefined): void;
  /** Requests so far that the message has led to, tool results included. */
  asked(text: string): number;
}

export function createPromptedModel(): PromptedModel {
  const prompts = new Map<string, ScriptedReply[]>();
  const answers = new Map<string, (request: NormalisedRequest) => ScriptedReply | undefined>();
  const asked = new Map<string, number>();
  return {
    script: (request) => {
      const text = lastSaid(request.messages);
      asked.set(text, (asked.get(text) ?? 0) + 1);
      return answers.get(text)?.(request) ?? prompts.get(text)?.shift() ?? obedientModel(request);
    },
    prompt: (text, ...replies) => void prompts.set(text, replies),
    promptSteps: (text, ...steps) =>
      void answers.set(text, ({ messages }) => steps[stepsSaid(messages)]),
    promptBy: (text, replyTo) => void answers.set(text, replyTo),
    asked: (text) => asked.get(text) ?? 0,
  };
}

/** A stream that stops after so many pieces and keeps the connection open. */
export function hangingAfter(pieces: readonly string[], count: number): ScriptedReply {
  // Two frames come before the first piece.
  return { text: pieces, firstDelayMs: 1, fault: { kind: "hang", afterFrames: 2 + count } };
}
