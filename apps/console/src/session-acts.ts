import { answerUuid, noticeText } from "@larkline/agent";
import { turnIdOf, type InboundMessage, type SessionKey } from "@larkline/protocol";
import type { OutboxRecord } from "@larkline/session";
import type { PagesDeps } from "./pages.ts";
import { consoleId } from "./rule-routes.ts";

/** How many waiting messages are taken out in one go: as many as a session may hold. */
const maxDropped = 1_000;

/** As a person's `/stop` does it, whoever's turn it is: stored first, then told to all workers. */
export async function stopTurn({ backend }: PagesDeps, session: SessionKey, seq: number): Promise<boolean> {
  const turnId = turnIdOf(session, seq);
  const { accepted, wakeGen } = await backend.store.cancel(session, { turnId, reason: "cancelled" });
  if (wakeGen !== undefined) await backend.turns.wake(session, wakeGen);
  await backend.cancels.publish({ session, turnId });
  return accepted;
}

/**
 * What ends the card, or stands in place of the answer: ids and key are those of the turn's own answer, so
 * that a person gets one of the two. `onCard`: whether the turn has one.
 */
function resetReply(turnId: string, message: InboundMessage, onCard: boolean): OutboxRecord | undefined {
  const { id, session, reply, language = "en" } = message;
  if (reply.channel === "none") return undefined;
  const text = [noticeText("stopped", language), noticeText("newConversation", language)].join(" ");
  const { channel: _channel, ...target } = reply;
  const nothing = { thinking: "", tools: [], earlierTools: 0, footer: {} };
  return {
    v: 1,
    id: turnId,
    uuid: answerUuid(reply.app, id),
    session,
    target,
    text,
    ...(onCard ? { view: { v: 1, language, state: "stopped", answer: text, ...nothing } } : {}),
    createdAtMs: Date.now(),
    attempts: 0,
    uncertainSinceMs: 0,
  };
}

/** Ends the turn whatever its state, and begins a new conversation. Resolves to the turn that it ended. */
export async function resetSession({ backend }: PagesDeps, session: SessionKey): Promise<string | undefined> {
  const { turnId, wakeGen } = await backend.store.reset(session, {
    by: consoleId,
    replyOf: async (ending, message, hasCards) => resetReply(ending, message, hasCards),
  });
  if (wakeGen !== undefined) await backend.turns.wake(session, wakeGen);
  // Whoever runs it is fenced already; this makes its model and its tools stop at once.
  if (turnId !== undefined) await backend.cancels.publish({ session, turnId });
  return turnId;
}

/** Takes the waiting messages out of the inbox, each as its person would. Resolves to how many there were. */
export async function dropWaiting({ backend }: PagesDeps, session: SessionKey): Promise<number> {
  const waiting = await backend.store.waiting(session, maxDropped);
  const dropped = await Promise.all(
    waiting.map(async ({ seq }) => {
      const turnId = turnIdOf(session, seq);
      const { accepted, wakeGen } = await backend.store.cancel(session, { turnId, reason: "cancelled" });
      if (wakeGen !== undefined) await backend.turns.wake(session, wakeGen);
      return accepted;
    }),
  );
  return dropped.filter(Boolean).length;
}
