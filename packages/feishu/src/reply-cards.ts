import {
  extendCuts,
  operationsBetween,
  restFileName,
  shownOf,
  type CardOperation,
  type CardPage,
  type RenderedCard,
  type ShownCard,
} from "./cards/index.ts";
import type { ReplyLanguage, ReplyView } from "@larkline/protocol";
import type { CardEntry, OutboxTarget } from "@larkline/store";
import {
  drawnCard,
  hashOf,
  measuresOf,
  replacedCard,
  sliceOf,
  textFollowsCard,
  type CardStyle,
} from "./card-drawing.ts";
import type { CardHandover } from "./card-handover.ts";
import { callOf, CardWriter, isKind } from "./card-writer.ts";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import { derivedUuid } from "./platform-id.ts";
import { receiverOf, sendFile } from "./reply-delivery.ts";
import type { ReplyRecord } from "./reply-record.ts";

export interface ReplyCardsOptions {
  api: FeishuApi;
  /** What a successor has to know is stored there before the platform hears of it. */
  record: ReplyRecord;
  target: OutboxTarget;
  /** The reply's own idempotency key; those of its messages are made from it. */
  uuid: string;
  /** Image keys by reference; `null` where there is no image to show. */
  images?: ReadonlyMap<string, string | null>;
  now: () => number;
  signal: AbortSignal;
  /** Of the message that is answered. */
  traceparent?: string | undefined;
  /** What other writers of this process could not record any more. */
  handover?: CardHandover | undefined;
}

/** Bytes of the answer on one card: fewer each time the platform finds a card too large that we did not. */
const answerBytesSteps = [undefined, 12_000, 6_000, 2_500];
/** A card below this size is not refused for its size, so a smaller one would be refused as well. */
const surelySmallBytes = 8_000;
/** How often the cards of one page may die under our hands within one attempt. */
const maxDeaths = 2;

/** What the ledger notes of a card that shows nothing of the answer any more. */
const retired = "retired";

interface Goal {
  view: ReplyView;
  page: CardPage;
  /** Nothing follows on this card: show it whole and end its streaming. */
  closing: boolean;
}

interface Failure {
  number: number;
  error: FeishuError;
  /** Size of the card that was to be shown. */
  bytes: number;
}

/**
 * Brings the cards of one reply to a view, whatever they show now and whoever wrote it. All that a
 * successor needs is in the ledger before the platform hears of it.
 */
export class ReplyCards {
  readonly #options: ReplyCardsOptions;
  readonly #writer: CardWriter;
  /** What the cards show, as far as this writer put it there itself; by number. */
  readonly #shown = new Map<number, ShownCard>();
  /** Ids of cards that certainly are in no chat: made here, and never sent with an unknown outcome. */
  readonly #unsent = new Set<string>();
  #shrinks = 0;
  /** The platform takes no files: the whole answer is on cards, however many. */
  #noFile = false;
  #style: CardStyle = "formatted";

  constructor(options: ReplyCardsOptions) {
    const { api, record, now, signal, traceparent } = options;
    this.#options = options;
    this.#writer = new CardWriter({ api, record, now, signal, traceparent });
  }

  /** Takes over what another writer of this process knows of the platform; nobody else may have written since. */
  goOnFrom(other: ReplyCards): void {
    for (const [number, shown] of other.#shown) this.#shown.set(number, shown);
    for (const cardId of other.#unsent) this.#unsent.add(cardId);
    this.#shrinks = other.#shrinks;
    this.#style = other.#style;
    this.#writer.goOnFrom(other.#writer);
  }

  /** Shows a state of a running reply. Rejects with a FeishuError, a FencedOut or a LedgerFailure. */
  async show(view: ReplyView): Promise<void> {
    await this.#bring(view, false);
  }

  /** Shows the last state; resolves when the platform has confirmed every card. Rejects like `show`. */
  async finish(view: ReplyView): Promise<void> {
    await this.#bring(view, true);
  }

  /** Whether the cards were taken only without their images: the platform does not know the keys. */
  get imagesRefused(): boolean {
    return this.#style === "imageless";
  }

  /** Empties every card, because the answer goes out as text. Rejects like `show`. */
  async retire(language: ReplyLanguage): Promise<void> {
    for (const number of this.#options.record.cards.keys()) await this.#retire(number, textFollowsCard(language));
  }

  async #bring(view: ReplyView, final: boolean): Promise<void> {
    const deaths = new Map<number, number>();
    for (;;) {
      const failure = await this.#bringOnce(view, final);
      if (failure === undefined) return;
      if (!(await this.#adapt(failure, deaths))) throw failure.error;
    }
  }

  async #bringOnce(view: ReplyView, final: boolean): Promise<Failure | undefined> {
    const maxCards = this.#noFile ? undefined : view.maxCards;
    const cuts = this.#cutsOf(view.answer, maxCards);
    const last = Math.min(cuts.length, (maxCards ?? cuts.length + 1) - 1);
    for (let number = 0; number <= last; number += 1) {
      const page = { cuts, number, restInFile: number === last && cuts.length > last };
      const failure = await this.#bringCard({ view, page, closing: final || number < last });
      if (failure !== undefined) return failure;
    }
    if (!final) return undefined;
    if (cuts.length > last && !(await this.#sendRest(view, cuts[last] ?? 0))) {
      this.#noFile = true;
      return await this.#bringOnce(view, final);
    }
    for (let number = last + 1; number < this.#options.record.cards.length; number += 1) {
      await this.#retire(number, replacedCard(view.language));
    }
    return undefined;
  }

  /** What can be done about a refusal besides asking again; false when nothing. */
  async #adapt({ number, error, bytes }: Failure, deaths: Map<number, number>): Promise<boolean> {
    const { record } = this.#options;
    if (error.heldBack) return false;
    if (isKind(error, "card_full") && bytes > surelySmallBytes && this.#shrinks < answerBytesSteps.length - 1) {
      this.#shrinks += 1;
      return true;
    }
    if (isKind(error, "card_full", "card_invalid")) {
      const style = this.#plainerStyle(error);
      if (style === undefined) return false;
      this.#style = style;
      this.#shown.clear();
      return true;
    }
    const died = (deaths.get(number) ?? 0) + 1;
    if (!isKind(error, "card_gone", "card_too_old") || died > maxDeaths) return false;
    deaths.set(number, died);
    if (record.cards[number] !== undefined) await record.change(number, { state: "dead" });
    return true;
  }

  /** Undefined when nothing is left to leave out. */
  #plainerStyle(error: FeishuError): CardStyle | undefined {
    switch (this.#style) {
      case "formatted": {
        const keys = [...(this.#options.images?.values() ?? [])];
        return isKind(error, "card_invalid") && keys.some((key) => typeof key === "string") ? "imageless" : "plain";
      }
      case "imageless":
        return "plain";
      case "plain":
        return "bare";
      default:
        return undefined;
    }
  }

  /**
   * Cuts behind cards that are full stay as long as the answer before them does: it starts anew when
   * a model step does.
   */
  #cutsOf(answer: string, maxCuts: number | undefined): number[] {
    const known: number[] = [];
    if (this.#shrinks === 0) {
      for (const { state, from, to, parts } of this.#options.record.cards) {
        if (state !== "closed" || from !== (known.at(-1) ?? 0) || to === undefined || to >= answer.length) break;
        if (parts["content"] !== hashOf(answer.slice(from, to))) break;
        known.push(to);
      }
    }
    const answerBytes = answerBytesSteps[this.#shrinks];
    return extendCuts(answer, known, {
      ...(answerBytes === undefined ? {} : { answerBytes }),
      ...(maxCuts === undefined ? {} : { maxCuts }),
    });
  }

  /**
   * The rest of a very long answer, as one file: uploaded and sent once, whoever goes on after a crash. False when the
   * platform takes none, as from an app without the right to upload.
   */
  async #sendRest(view: ReplyView, from: number): Promise<boolean> {
    const { api, record, signal, traceparent, target, uuid, now } = this.#options;
    const fileName = restFileName(view.language);
    if (record.file?.messageId !== undefined) return true;
    try {
      let key = record.file?.key;
      if (key === undefined) {
        const bytes = Buffer.from(view.answer.slice(from), "utf8");
        key = await api.uploadFile({ bytes, fileName, fileType: "stream" }, callOf("final", this.#options));
        await record.putFile({ key });
      }
      const body = { messageType: "file" as const, content: JSON.stringify({ file_key: key }) };
      const to = { api, target, traceparent, nowMs: now(), createdAtMs: record.createdAtMs, signal };
      const file = { key, name: fileName, body, uuid: derivedUuid(uuid, "f") };
      await record.putFile({ key, messageId: await sendFile(to, file) });
      return true;
    } catch (error) {
      const isHopeless = error instanceof FeishuError && !error.retryable && error.kind !== "cancelled";
      if (isHopeless && !error.uncertain) return false;
      throw error;
    }
  }

  async #bringCard(goal: Goal): Promise<Failure | undefined> {
    const { view, page, closing } = goal;
    const { number } = page;
    const known = this.#options.record.cards[number];
    const closed = closing && known?.state === "closed";
    // While the reply runs a card that is full is left alone as long as its text stays the same.
    if (closed && view.state === "running" && known.parts["content"] === contentOf(goal)) return undefined;
    const rendered = this.#draw(goal);
    if (closed && known.parts["card"] === hashOf(rendered.card)) return undefined;
    try {
      await this.#visible(goal, rendered);
      if (closing) await this.#close(goal, rendered);
      else await this.#write(number, rendered);
      return undefined;
    } catch (error) {
      if (error instanceof FeishuError) return { number, error, bytes: rendered.bytes };
      throw error;
    }
  }

  #draw({ view, page, closing }: Goal): RenderedCard {
    const { images } = this.#options;
    const style = this.#style;
    return drawnCard(view, page, { streaming: !closing, style, ...(images === undefined ? {} : { images }) });
  }

  async #visible(goal: Goal, rendered: RenderedCard): Promise<void> {
    const { number } = goal.page;
    let entry = this.#options.record.cards[number];
    if (entry === undefined || entry.state === "dead") entry = await this.#create(goal, rendered);
    if (entry.state === "created") await this.#send(number, entry);
  }

  async #create({ page, closing }: Goal, rendered: RenderedCard): Promise<CardEntry> {
    const { api, now, record, uuid } = this.#options;
    const { number, cuts } = page;
    const { handover } = this.#options;
    const sinceMs = now();
    const known = handover?.takeCard(record.replyId, number);
    const cardId = known ?? (await api.cards.create(rendered.card, callOf("final", this.#options)));
    const to = cuts[number];
    const { parts, ...measures } = measuresOf(rendered);
    const entry = {
      cardId,
      uuid: derivedUuid(uuid, cardId),
      reservedSequence: 0,
      streamingSinceMs: closing ? 0 : sinceMs,
      state: "created" as const,
      from: cuts[number - 1] ?? 0,
      ...(to === undefined ? {} : { to }),
      ...measures,
      // What one that was made before shows is not known here: it is drawn anew.
      parts: known === undefined ? { ...parts, card: hashOf(rendered.card) } : {},
    };
    this.#unsent.add(cardId);
    try {
      await record.put(number, entry);
    } catch (error) {
      handover?.keepCard(record.replyId, number, cardId);
      throw error;
    }
    if (known === undefined) this.#shown.set(number, shownOf(rendered));
    return entry;
  }

  /** A card entity can be sent once only, so that even a repeat long after `uuid` has expired shows no second card. */
  async #send(number: number, entry: CardEntry): Promise<void> {
    const { record, handover } = this.#options;
    try {
      const messageId = handover?.takeSent(entry.cardId) ?? (await this.#sendOnce(entry)).messageId;
      // Also for whoever goes on from here, should the ledger not take the next line.
      this.#unsent.delete(entry.cardId);
      handover?.keepSent(entry.cardId, messageId);
      await record.change(number, { state: "sent", messageId });
      handover?.takeSent(entry.cardId);
    } catch (error) {
      if (!(error instanceof FeishuError)) throw error;
      const wasUnsent = this.#unsent.has(entry.cardId);
      if (error.uncertain) this.#unsent.delete(entry.cardId);
      if (!isKind(error, "card_gone", "card_invalid", "card_full")) throw error;
      if (wasUnsent && !error.uncertain) {
        await record.change(number, { state: "dead" });
        throw error;
      }
      // The platform took its content before. So it was sent by somebody who did not learn of it, or
      // it is gone: the next operation on the card tells.
      this.#shown.delete(number);
      await record.change(number, { state: "sent", parts: {} });
    }
  }

  async #sendOnce({ cardId, uuid }: CardEntry): Promise<{ messageId: string }> {
    const { api, target } = this.#options;
    const { chatId, messageId, inThread } = target;
    const toChat = async (): Promise<{ messageId: string }> => {
      const to = { ...receiverOf(chatId), cardId, uuid: derivedUuid(uuid, "c") };
      return await api.cards.sendTo(to, callOf("final", this.#options));
    };
    if (messageId === "") return await toChat();
    try {
      return await api.cards.sendReply({ cardId, chatId, messageId, inThread, uuid }, callOf("final", this.#options));
    } catch (error) {
      if (!isKind(error, "target_gone")) throw error;
      if (error.uncertain) this.#unsent.delete(cardId);
      return await toChat();
    }
  }

  async #write(number: number, rendered: RenderedCard): Promise<void> {
    await this.#reopen(number);
    await this.#writer.keepStreaming(number);
    const shown = this.#shown.get(number);
    if (shown === undefined || this.#style === "plain" || this.#style === "bare") {
      return await this.#redraw(number, rendered);
    }
    const wanted = shownOf(rendered);
    for (const operation of operationsBetween(shown, rendered)) {
      try {
        await this.#writer.operate(number, operation);
        this.#shown.set(number, shownAfter(this.#shown.get(number) ?? shown, operation, wanted));
        this.#options.record.note(number, measuresOf(rendered));
      } catch (error) {
        if (!(error instanceof FeishuError) || error.heldBack) throw error;
        // Whether elements were added is not known: the whole card is drawn again.
        if (operation.kind === "batch") this.#shown.delete(number);
        // It does not show what we believe.
        if (!isKind(error, "card_invalid", "sequence_behind")) throw error;
        return await this.#redraw(number, rendered);
      }
    }
  }

  /** A card that was drawn whole types again: the answer started anew and has not filled it yet. */
  async #reopen(number: number): Promise<void> {
    const { record } = this.#options;
    const { to: _to, ...entry } = record.entry(number);
    const wasWhole = entry.state === "closed" || entry.streamingSinceMs === 0;
    if (wasWhole) await record.put(number, { ...entry, state: "sent", streamingSinceMs: 0, parts: {} });
  }

  async #redraw(number: number, rendered: RenderedCard): Promise<void> {
    this.#shown.delete(number);
    await this.#writer.redraw(number, rendered.card, "frame");
    this.#shown.set(number, shownOf(rendered));
    this.#options.record.note(number, measuresOf(rendered));
  }

  /** The last frame of a card: drawn whole, streaming off, the summary set, all in one operation. */
  async #close(goal: Goal, rendered: RenderedCard): Promise<void> {
    const { record } = this.#options;
    const { cuts, number } = goal.page;
    const card = hashOf(rendered.card);
    if (record.entry(number).parts["card"] !== card) await this.#writer.redraw(number, rendered.card, "final");
    this.#shown.set(number, shownOf(rendered));
    const { parts, ...measures } = measuresOf(rendered);
    await record.change(number, {
      state: "closed",
      streamingSinceMs: 0,
      from: cuts[number - 1] ?? 0,
      to: cuts[number] ?? goal.view.answer.length,
      ...measures,
      parts: { ...parts, content: contentOf(goal), card },
    });
  }

  /** The card shows nothing of the answer any more. */
  async #retire(number: number, card: Record<string, unknown>): Promise<void> {
    const { record } = this.#options;
    const { state, parts } = record.entry(number);
    if (state === "dead" || parts["content"] === retired) return;
    try {
      await this.#writer.redraw(number, card, "final");
      await record.change(number, { state: "closed", streamingSinceMs: 0, parts: { content: retired } });
      this.#shown.delete(number);
    } catch (error) {
      if (!isKind(error, "card_gone", "card_too_old")) throw error;
      await record.change(number, { state: "dead" });
    }
  }
}

function contentOf({ view, page }: Goal): string {
  return hashOf(sliceOf(view.answer, page));
}

function shownAfter(shown: ShownCard, operation: CardOperation, wanted: ShownCard): ShownCard {
  if (operation.kind === "batch") return { ...shown, parts: wanted.parts };
  const { elementId } = operation;
  if (elementId === "answer") return { ...shown, answer: wanted.answer };
  return { ...shown, parts: { ...shown.parts, [elementId]: wanted.parts[elementId] ?? "" } };
}
