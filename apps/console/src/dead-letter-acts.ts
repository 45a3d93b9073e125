import type { InboundMessage } from "@larkline/protocol";
import type { DeadLetter } from "@larkline/session";
import type { PagesDeps } from "./pages.ts";
import type { Word } from "./words.ts";

/** Stands between a message's id and which of its runs was given up. */
const againMark = ".again-";

/**
 * The message as a new one: with an id of its own, and so an answer of its own, made from the run that was
 * given up. Whoever asks for it twice asks for the same one.
 */
export function messageAgain(message: InboundMessage, turnId: string): InboundMessage {
  const [id = message.id] = message.id.split(againMark, 1);
  const run = turnId.slice(turnId.lastIndexOf("-") + 1);
  return { ...message, id: `${id.slice(0, 180)}${againMark}${run}` };
}

/** Appended first, and only then is the letter gone: whatever fails in between can be asked for again. */
async function runAgain({ backend }: PagesDeps, letter: DeadLetter & { kind: "message" }): Promise<Word> {
  const { session, id, message, turnId = id } = letter;
  const { result, wakeGen } = await backend.store.append(messageAgain(message, turnId));
  if (result === "full") return "inboxFull";
  if (wakeGen !== undefined) await backend.turns.wake(session, wakeGen);
  await backend.letters.discard(session, id);
  return "runsAgain";
}

/** Tries again what a letter is about; says what came of it. */
export async function retryLetter(deps: PagesDeps, letter: DeadLetter): Promise<Word> {
  if (letter.kind === "approval") return "approvalIsOver";
  if (letter.kind === "message") return await runAgain(deps, letter);
  return (await deps.backend.letters.resend(letter.session, letter.id)) ? "isSentAgain" : "letterGone";
}
