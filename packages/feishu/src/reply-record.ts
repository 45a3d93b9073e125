import type { CardEntry, CardFence, CardLedger, CardReply, ReplyMode } from "@larkline/session";

/** Another writer has the right to these cards now. */
export class FencedOut extends Error {
  override readonly name = "FencedOut";
}

/** What is to be done could not be written down, so it is not done. Nothing is wrong with the cards. */
export class LedgerFailure extends Error {
  override readonly name = "LedgerFailure";
}

/**
 * What the ledger knows of a reply. Holds nothing that is not stored: a change that could not be
 * stored is not made, so that nobody acts upon what a successor cannot know.
 */
export class ReplyRecord {
  readonly #ledger: Pick<CardLedger, "save">;
  readonly #fence: CardFence;
  #reply: CardReply;
  #mode: ReplyMode;
  readonly #noted = new Map<number, Partial<CardEntry>>();

  constructor(of: { ledger: Pick<CardLedger, "save">; fence: CardFence; reply: CardReply }) {
    this.#ledger = of.ledger;
    this.#fence = of.fence;
    this.#reply = of.reply;
    this.#mode = of.reply.mode;
  }

  get cards(): readonly CardEntry[] {
    return this.#reply.cards;
  }

  /** How the reply is written now; stored with the next change. */
  get mode(): ReplyMode {
    return this.#mode;
  }

  set mode(mode: ReplyMode) {
    this.#mode = mode;
  }

  /** Whether a person may see any of it. */
  get isVisible(): boolean {
    return this.cards.some(({ state }) => state === "sent" || state === "closed");
  }

  /** Cards that need nothing more. */
  get closed(): number {
    return this.cards.filter(({ state }) => state === "closed").length;
  }

  /** Whether it is what `stored` says: then nobody else has written since. */
  matches(stored: CardReply | undefined): boolean {
    const cards = stored?.cards ?? [];
    return JSON.stringify(cards) === JSON.stringify(this.cards);
  }

  entry(number: number): CardEntry {
    const entry = this.cards[number];
    if (entry === undefined) throw new RangeError(`no card ${number}`);
    return entry;
  }

  async change(number: number, change: Partial<CardEntry>): Promise<CardEntry> {
    return await this.put(number, { ...this.entry(number), ...this.#noted.get(number), ...change });
  }

  /** Something worth knowing that is not worth a write: stored with the card's next change. */
  note(number: number, change: Partial<CardEntry>): void {
    this.#noted.set(number, change);
  }

  /** Rejects with {@link FencedOut} or {@link LedgerFailure}; then the record is as it was. */
  async put(number: number, entry: CardEntry): Promise<CardEntry> {
    const cards = [...this.cards];
    cards[number] = entry;
    await this.#save({ ...this.#reply, mode: this.#mode, cards });
    this.#noted.delete(number);
    return entry;
  }

  /** Stores the mode. */
  async save(): Promise<void> {
    await this.#save({ ...this.#reply, mode: this.#mode });
  }

  async #save(reply: CardReply): Promise<void> {
    const saved = await this.#ledger.save(reply, this.#fence).catch((cause: unknown) => {
      throw new LedgerFailure("the card ledger could not be written", { cause });
    });
    if (!saved) throw new FencedOut("another writer has these cards");
    this.#reply = reply;
  }
}
