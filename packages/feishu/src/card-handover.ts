/**
 * What a writer of this process has done on the platform when the ledger took it no more, because the turn had ended
 * meanwhile. The delivery of the answer goes on from there: no card is made and thrown away, and none is sent twice.
 * Lost with the process; then the card is made anew, and the repeated send is recognised by its `uuid`.
 */
export interface CardHandover {
  /** A card that was made for this page and is in no chat. */
  keepCard(replyId: string, page: number, cardId: string): void;
  takeCard(replyId: string, page: number): string | undefined;
  /** A card that this message shows. */
  keepSent(cardId: string, messageId: string): void;
  takeSent(cardId: string): string | undefined;
}

/** Each is taken within moments; more than these are those of turns that another process delivers. */
const maxKept = 500;

function keep(map: Map<string, string>, key: string, value: string): void {
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > maxKept && oldest !== undefined) map.delete(oldest);
}

function take(map: Map<string, string>, key: string): string | undefined {
  const value = map.get(key);
  map.delete(key);
  return value;
}

export function createCardHandover(): CardHandover {
  const cards = new Map<string, string>();
  const sent = new Map<string, string>();
  return {
    keepCard: (replyId, page, cardId) => keep(cards, `${replyId} ${page}`, cardId),
    takeCard: (replyId, page) => take(cards, `${replyId} ${page}`),
    keepSent: (cardId, messageId) => keep(sent, cardId, messageId),
    takeSent: (cardId) => take(sent, cardId),
  };
}
