import type { SessionKey } from "@larkline/protocol";
import type { SessionSummary, StoredTurn } from "./session-types.ts";
import { unsealed } from "./state-seal.ts";
import { queuedFrom, settingsFrom, turnFrom } from "./stored.ts";

/** Reads what `summaryLua` answers. For those who look: a seal is not checked, and what is damaged is said to be so. */
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
    ...settingsShown(settings),
  };
}

function checkpointShown(turn: string): StoredTurn {
  try {
    return turn === "" ? {} : { turn: turnFrom(unsealed(turn)) };
  } catch (error) {
    return { damaged: `${error instanceof Error ? error.message : String(error)} (${Buffer.byteLength(turn)} bytes)` };
  }
}

function settingsShown(settings: string): Pick<SessionSummary, "settings" | "damagedSettings"> {
  try {
    return { settings: settingsFrom(unsealed(settings)) };
  } catch {
    // Errors of JSON.parse repeat what they could not read.
    return { settings: {}, damagedSettings: `they are no JSON (${Buffer.byteLength(settings)} bytes)` };
  }
}
