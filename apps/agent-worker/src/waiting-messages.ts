import type { InboundMessage, QueuedMessage } from "@larkline/protocol";
import type { SessionStore } from "@larkline/store";

/** Waiting messages that are looked at. */
const waitingAtOnce = 20;

/** The model has seen the beginning of the thread already. */
export function withoutThreadRoot(message: InboundMessage): InboundMessage {
  if (message.references?.threadRootId === undefined) return message;
  const { references, ...rest } = message;
  const { threadRootId: _threadRootId, ...others } = references;
  return Object.keys(others).length === 0 ? rest : { ...rest, references: others };
}

/** A message as it joins a turn of that person, whose name is known and whose thread the model has seen. */
function readyToJoin(message: InboundMessage, { id, name }: InboundMessage["sender"]): InboundMessage {
  const known = message.sender.id === id && name !== undefined ? { ...message, sender: { id, name } } : message;
  return withoutThreadRoot(known);
}

/** A message that came late and waits now was written before: it takes nothing back. */
function supersedes(later: InboundMessage, { chatType, sender, createdAtMs }: InboundMessage): boolean {
  return later.createdAtMs >= createdAtMs && (chatType === "p2p" || later.sender.id === sender.id);
}

/** The messages that wait behind one, as they would join its turn: up to the first that another agent is to answer. */
export async function messagesToJoin(
  store: Pick<SessionStore, "waiting">,
  { session, sender, agent }: InboundMessage,
): Promise<QueuedMessage[]> {
  const queued = await store.waiting(session, waitingAtOnce);
  const other = queued.findIndex(({ message }) => message.agent !== agent);
  return (other === -1 ? queued : queued.slice(0, other)).map(({ seq, message }) => ({
    seq,
    message: readyToJoin(message, sender),
  }));
}

/** Whether a later message takes this one back. */
export async function isSuperseded(store: Pick<SessionStore, "waiting">, message: InboundMessage): Promise<boolean> {
  const waiting = await store.waiting(message.session, waitingAtOnce);
  return waiting.some((later) => supersedes(later.message, message));
}
