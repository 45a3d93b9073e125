import type { SessionKey } from "@larkline/protocol";
import type { SessionSummary } from "@larkline/session";
import { unsealed } from "./state-seal.ts";
import { queuedFrom, settingsFrom, turnFrom } from "./stored.ts";

/** Reads what `summaryLua` answers. For those who look: a seal is not checked. */
export function summaryFrom(session: SessionKey, reply: unknown): SessionSummary {
  const [state, gen, waiting, messages, unsent, head, turn, settings, inContext, epoch, eventSeq, setAside] = reply as [
    SessionSummary["state"],
    ...[string | number, number, number, number, string, string, string, number, string, number, [string, string][]], // shape fixed by the script
  ];
  return {
    state,
    gen: Number(gen),
    epoch,
    waiting: waiting + setAside.length,
    messages,
    inContext,
    unsent,
    eventSeq,
    ...(head === "" ? {} : { head: queuedFrom(session, head) }),
    ...checkpointShown(turn),
    setAside: setAside.map(([entry, saved]) => ({ head: queuedFrom(session, entry), ...checkpointShown(saved) })),
    settings: settingsFrom(unsealed(settings)),
  };
}

/** For those who look: a checkpoint that cannot be read is none. */
function checkpointShown(turn: string): Pick<SessionSummary, "turn"> {
  try {
    return turn === "" ? {} : { turn: turnFrom(unsealed(turn)) };
  } catch {
    return {};
  }
}
