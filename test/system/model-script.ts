import type { ModelScript, NormalisedMessage, ScriptedCall } from "@larkline/testkit";

/** What a message asks the scripted model for: one `call <tool> <json>` per line. */
function callsIn(text: string): ScriptedCall[] {
  return text.split("\n").flatMap((line) => {
    const match = /^call (\S+) (.*)$/.exec(line.trim());
    return match === null ? [] : [{ name: match[1] ?? "", arguments: match[2] ?? "" }];
  });
}

function lastUser(messages: readonly NormalisedMessage[]): string {
  return messages.findLast(({ role, text }) => role === "user" && text !== "")?.text ?? "";
}

/**
 * A model that does what the message says: lines `call <tool> <json>` become calls, and the answer
 * is the first line in brackets with the results after it.
 */
export const obedientModel: ModelScript = ({ messages }) => {
  const asked = lastUser(messages);
  const last = messages.at(-1);
  const calls = callsIn(asked);
  const results = last?.results ?? [];
  if (results.length === 0 && calls.length > 0) return { calls };
  const shown = results.map(({ content, isError }) => `${isError ? "failed" : "ok"}:${content}`);
  const pause = /\bpause (\d+)\b/.exec(asked);
  return {
    text: [`[${asked.split("\n")[0] ?? ""}]`, ...shown].join(" "),
    ...(pause === null ? {} : { firstDelayMs: Number(pause[1]) }),
  };
};
