import type { CardEntry, CardFence, CardLedger, CardReply, ReplyMode } from "@larkline/store";

/** Another writer has the right to these cards now. */
export class FencedOut extends Error {
  override readonly name = "FencedOut";
}

/** What is to be done could not be written down, so it is not done. Nothing is wrong with the cards. */
export class LedgerFailure extends Error {
  override readonly name = "LedgerFailure";
}

/** How long it is believed that nobody has taken the cards over since the last sign of it, ms. */
const proofMs = 500;

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
  /** `performance.now()` at which the cards were certainly this writer's. */
  #provenMs = performance.now();

  constructor(of: { ledger: Pick<CardLedger, "save">; fence: CardFence; reply: CardReply }) {
    this.#ledger = of.ledger;
    this.#fence = of.fence;
    this.#reply = of.reply;
    this.#mode = of.reply.mode;
  }

  get replyId(): string {
    return this.#reply.replyId;
  }

  get cards(): readonly CardEntry[] {
    return this.#reply.cards;
  }

  /** The file with the rest of the answer, as far as it is on the platform. */
  get file(): CardReply["file"] {
    return this.#reply.file;
  }

  get createdAtMs(): number {
    return this.#reply.createdAtMs;
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

  /** The platform took an operation under our numbers: nobody has written with higher ones. */
  proven(): void {
    this.#provenMs = performance.now();
  }

  /** The turn is suspended, or the process was: another worker may go on with it. */
  doubt(): void {
    this.#provenMs = Number.NEGATIVE_INFINITY;
  }

  /**
   * To be asked right before a call leaves. Rejects with {@link FencedOut} when another writer has taken over while the
   * call waited, so that the platform does not hear of it.
   */
  async stillOurs(): Promise<void> {
    if (performance.now() - this.#provenMs > proofMs) await this.save();
  }

  async putFile(file: NonNullable<CardReply["file"]>): Promise<void> {
    await this.#save({ ...this.#reply, mode: this.#mode, file });
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
    this.proven();
  }
}
