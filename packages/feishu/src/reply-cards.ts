import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import {
  extendCuts,
  noticeCard,
  operationsBetween,
  renderCard,
  shownOf,
  type CardOperation,
  type RenderedCard,
  type ShownCard,
} from "@larkline/cards";
import type { ReplyView } from "@larkline/protocol";
import type { CardEntry, CardFence, CardLedger, CardReply, OutboxTarget, RateLane } from "@larkline/session";
import type { CallOptions } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import type { FeishuApi } from "./feishu-api.ts";
import { derivedUuid } from "./platform-id.ts";
import { receiverOf } from "./reply-delivery.ts";

/** Another writer has the right to these cards now. */
export class FencedOut extends Error {
  override readonly name = "FencedOut";
}

export interface ReplyCardsOptions {
  api: FeishuApi;
  ledger: Pick<CardLedger, "save">;
  fence: CardFence;
  /** Changed in place and stored with every step that a successor has to know. */
  reply: CardReply;
  target: OutboxTarget;
  /** The reply's own idempotency key; those of its messages are made from it. */
  uuid: string;
  /** Image keys by reference; `null` where there is no image to show. */
  images?: ReadonlyMap<string, string | null>;
  now: () => number;
  signal: AbortSignal;
}

/**
 * Streaming mode ends 10 minutes after it was last enabled ("Streaming updates for cards"); it is
 * enabled again well before.
 */
const streamingLifetimeMs = 8 * 60_000;
/** Operation numbers reserved in the ledger at a time: a successor starts above them. */
const sequenceBlock = 64;
/** How far to jump when the platform knows a higher operation number than the ledger. */
const sequenceJump = 10_000;
const lockedRetryMs = 300;
const lockedRetries = 8;
const structureWaitMs = 5_000;

/** What the answer may take of a card when the platform objects to what is usual. */
const usualAnswerBytes = 21_000;

const replacedTexts = {
  zh: { title: "已重新生成", text: "这部分回答已重新生成，请看前面的卡片。" },
  en: { title: "Written anew", text: "This part of the answer was written anew: see the card above." },
};

interface Page {
  cuts: readonly number[];
  number: number;
}

interface Goal {
  view: ReplyView;
  page: Page;
  /** Nothing follows on this card: show it whole and end its streaming. */
  closing: boolean;
}

function hashOf(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("base64url").slice(0, 12);
}

function isKind(error: unknown, ...kinds: FeishuError["kind"][]): error is FeishuError {
  return error instanceof FeishuError && kinds.includes(error.kind);
}

/**
 * Brings the cards of one reply to a view, whatever they show now and whoever wrote it. All that a
 * successor needs is in the ledger before the platform hears of it; operation numbers only grow, so
 * a writer that was replaced is refused by the ledger, and its late operations by the platform.
 */
export class ReplyCards {
  readonly #options: ReplyCardsOptions;
  /** What the cards show, as far as this writer put it there itself; by number. */
  readonly #shown = new Map<number, ShownCard>();
  /** Last operation number used, by card. */
  readonly #used = new Map<string, number>();
  /** Shrinks when the platform finds a card too large that we did not. */
  #shrink = 1;
  /** Shows the answer as plain text, because the platform refuses how it is formatted. */
  #plain = false;

  constructor(options: ReplyCardsOptions) {
    this.#options = options;
  }

  /** Shows a state of a running reply. Rejects with a FeishuError or {@link FencedOut}. */
  async show(view: ReplyView): Promise<void> {
    await this.#bring(view, false);
  }

  /** Shows the last state; resolves when the platform has confirmed every card. Rejects like `show`. */
  async finish(view: ReplyView): Promise<void> {
    await this.#bring(view, true);
  }

  async #bring(view: ReplyView, final: boolean): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#bringOnce(view, final);
      } catch (error) {
        if (attempt > 3 || !(await this.#adapt(error))) throw error;
      }
    }
  }

  async #bringOnce(view: ReplyView, final: boolean): Promise<void> {
    const { cards } = this.#options.reply;
    const cuts = this.#cutsOf(view.answer);
    for (let number = 0; number <= cuts.length; number += 1) {
      await this.#bringCard({ view, page: { cuts, number }, closing: final || number < cuts.length });
    }
    if (!final) return;
    for (let number = cuts.length + 1; number < cards.length; number += 1) await this.#empty(number, view);
  }

  /** What can be done about a refusal besides asking again; false when nothing. */
  async #adapt(error: unknown): Promise<boolean> {
    if (isKind(error, "card_full")) {
      this.#shrink *= 0.6;
      return true;
    }
    if (isKind(error, "card_invalid") && !this.#plain) {
      this.#plain = true;
      this.#shown.clear();
      return true;
    }
    if (!isKind(error, "card_gone", "card_too_old")) return false;
    const gone = this.#options.reply.cards.findIndex(({ state }) => state === "created" || state === "sent");
    if (gone === -1) return false;
    await this.#replace(gone, { state: "dead" });
    return true;
  }

  /** Known cuts stay as long as the answer reaches them: it starts anew when a model step does. */
  #cutsOf(answer: string): number[] {
    const known = this.#options.reply.cards.flatMap(({ to }) => (to === undefined || to >= answer.length ? [] : [to]));
    const limits = { answerBytes: Math.floor(usualAnswerBytes * this.#shrink), tables: 1 };
    return extendCuts(answer, known, this.#shrink === 1 ? {} : limits);
  }

  async #bringCard(goal: Goal): Promise<void> {
    const { view, page, closing } = goal;
    const known = this.#options.reply.cards[page.number];
    const content = hashOf(view.answer.slice(page.cuts[page.number - 1] ?? 0, page.cuts[page.number]));
    // While the reply runs a card that is full is left alone as long as its text stays the same.
    const settled = closing && known?.state === "closed" && known.parts["content"] === content;
    if (settled && view.state === "running") return;
    const rendered = this.#render(goal);
    if (settled && known.parts["card"] === hashOf(rendered.card)) return;
    let entry = known;
    if (entry === undefined || entry.state === "dead") entry = await this.#create(goal, rendered);
    if (entry.state === "created") entry = await this.#send(page.number, entry);
    if (closing) await this.#close(goal, rendered, content);
    else await this.#write(page.number, rendered);
  }

  #render({ view, page, closing }: Goal): RenderedCard {
    const { images } = this.#options;
    const rendered = renderCard(view, page, { streaming: !closing, ...(images === undefined ? {} : { images }) });
    if (!this.#plain) return rendered;
    const text = view.answer.slice(page.cuts[page.number - 1] ?? 0, page.cuts[page.number]);
    return { ...rendered, card: withPlainAnswer(rendered.card, text), answer: text };
  }

  async #create({ page, closing }: Goal, rendered: RenderedCard): Promise<CardEntry> {
    const { api, now, uuid } = this.#options;
    const cardId = await api.cards.create(rendered.card, this.#call("final"));
    const to = page.cuts[page.number];
    const entry: CardEntry = {
      cardId,
      uuid: derivedUuid(uuid, cardId),
      reservedSequence: 0,
      streamingSinceMs: closing ? 0 : now(),
      state: "created",
      from: page.cuts[page.number - 1] ?? 0,
      ...(to === undefined ? {} : { to }),
      ...measuresOf(rendered),
    };
    this.#shown.set(page.number, shownOf(rendered));
    return await this.#replace(page.number, entry);
  }

  /** A card entity can be sent once only, so that even a repeat long after `uuid` has expired shows no second card. */
  async #send(number: number, entry: CardEntry): Promise<CardEntry> {
    const { api, target } = this.#options;
    const { chatId, messageId, inThread } = target;
    const { cardId } = entry;
    const toChat = async (): Promise<{ messageId: string }> => {
      const to = { ...receiverOf(chatId), cardId, uuid: derivedUuid(entry.uuid, "c") };
      return await api.cards.sendTo(to, this.#call("final"));
    };
    const reply = async (): Promise<{ messageId: string }> =>
      await api.cards.sendReply({ cardId, chatId, messageId, inThread, uuid: entry.uuid }, this.#call("final"));
    try {
      const sent =
        messageId === ""
          ? await toChat()
          : await reply().catch(async (error: unknown) => {
              if (isKind(error, "target_gone")) return await toChat();
              throw error;
            });
      return await this.#replace(number, { state: "sent", messageId: sent.messageId });
    } catch (error) {
      if (!isKind(error, "card_gone", "card_invalid", "card_full")) throw error;
      // Its content was accepted when it was created. So it was sent before, by somebody who died
      // before noting it, or it is really gone: the next operation on the card tells.
      this.#shown.delete(number);
      return await this.#replace(number, { state: "sent" });
    }
  }

  async #write(number: number, rendered: RenderedCard): Promise<void> {
    const entry = this.#entry(number);
    await this.#keepStreaming(number, entry);
    const shown = this.#shown.get(number);
    if (shown === undefined || this.#plain) return await this.#redraw(number, rendered, "frame");
    for (const operation of operationsBetween(shown, rendered)) {
      await this.#operate(number, operation).catch((error: unknown) => {
        // Whether elements were added is not known: the whole card is drawn again.
        if (operation.kind === "batch" && !(error instanceof FeishuError && error.heldBack)) this.#shown.delete(number);
        throw error;
      });
      this.#note(number, operation, rendered);
    }
  }

  #note(number: number, operation: CardOperation, rendered: RenderedCard): void {
    const shown = this.#shown.get(number);
    if (shown === undefined) return;
    const wanted = shownOf(rendered);
    this.#shown.set(number, shownAfter(shown, operation, wanted));
    Object.assign(this.#entry(number), measuresOf(rendered));
  }

  /** The last frame of a card: drawn whole, streaming off, the summary set, all in one operation. */
  async #close(goal: Goal, rendered: RenderedCard, content: string): Promise<void> {
    const { number, cuts } = goal.page;
    const untouched = this.#entry(number).streamingSinceMs === 0 && this.#shown.has(number);
    if (!untouched) await this.#redraw(number, rendered, "final");
    const { parts, ...measures } = measuresOf(rendered);
    const to = cuts[number] ?? goal.view.answer.length;
    const seen = { ...parts, content, card: hashOf(rendered.card) };
    const closed = { state: "closed", streamingSinceMs: 0, to, ...measures, parts: seen } as const;
    await this.#replace(number, closed);
  }

  /** A card of an earlier run of the step that the answer no longer needs. */
  async #empty(number: number, { language }: ReplyView): Promise<void> {
    const entry = this.#entry(number);
    if (entry.state === "dead" || entry.parts["content"] === "empty") return;
    const card = noticeCard(replacedTexts[language]);
    await this.#numbered(number, async (sequence, uuid) => {
      await this.#options.api.cards.update({ cardId: entry.cardId, card, sequence, uuid }, this.#call("final"));
    });
    await this.#replace(number, { state: "closed", streamingSinceMs: 0, parts: { content: "empty" } });
  }

  async #redraw(number: number, rendered: RenderedCard, lane: RateLane): Promise<void> {
    const { cardId } = this.#entry(number);
    const { card } = rendered;
    await this.#numbered(number, async (sequence, uuid) => {
      await this.#options.api.cards.update({ cardId, card, sequence, uuid }, this.#call(lane));
    });
    this.#shown.set(number, shownOf(rendered));
  }

  async #operate(number: number, operation: CardOperation): Promise<void> {
    const { api } = this.#options;
    const { cardId } = this.#entry(number);
    const { kind } = operation;
    await this.#numbered(number, async (sequence, uuid) => {
      if (kind === "batch") {
        await api.cards.batch({ cardId, actions: operation.actions, sequence, uuid }, this.#call("frame"));
      } else {
        const { elementId, content } = operation;
        await api.cards.content({ cardId, elementId, content, sequence, uuid }, this.#call("frame"));
      }
    });
  }

  async #keepStreaming(number: number, { cardId, streamingSinceMs }: CardEntry): Promise<void> {
    const { api, now } = this.#options;
    if (now() - streamingSinceMs < streamingLifetimeMs) return;
    await this.#numbered(number, async (sequence, uuid) => {
      const settings = { config: { streaming_mode: true } };
      await api.cards.settings({ cardId, settings, sequence, uuid }, this.#call("final"));
    });
    await this.#replace(number, { streamingSinceMs: now() });
  }

  /** Runs an operation with the card's next number; repeats it where the platform asks for no more than that. */
  async #numbered(number: number, run: (sequence: number, uuid: string) => Promise<void>): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      const sequence = await this.#nextSequence(number);
      try {
        return await run(sequence, `${this.#entry(number).cardId}-${sequence}`);
      } catch (error) {
        // After a lost answer the platform refuses the repeat: the first one was applied.
        if (isKind(error, "applied_before") || (isKind(error, "sequence_behind") && error.uncertain)) return;
        if (!(await this.#mayRepeat(number, error, attempt))) throw error;
      }
    }
  }

  async #mayRepeat(number: number, error: unknown, attempt: number): Promise<boolean> {
    const { now, signal } = this.#options;
    if (isKind(error, "card_locked") && attempt <= lockedRetries) {
      return await delay(lockedRetryMs, true, { signal }).catch(() => false);
    }
    if (attempt > 3) return false;
    if (isKind(error, "sequence_behind")) {
      const { cardId, reservedSequence } = this.#entry(number);
      this.#used.set(cardId, reservedSequence + sequenceJump);
      return true;
    }
    if (!isKind(error, "streaming_closed")) return false;
    await this.#replace(number, { streamingSinceMs: 0 });
    await this.#keepStreaming(number, { ...this.#entry(number), streamingSinceMs: now() - streamingLifetimeMs });
    return true;
  }

  async #nextSequence(number: number): Promise<number> {
    const { cardId, reservedSequence } = this.#entry(number);
    const next = (this.#used.get(cardId) ?? reservedSequence) + 1;
    const limit = this.#used.has(cardId) ? reservedSequence : 0;
    if (next > limit) await this.#replace(number, { reservedSequence: next + sequenceBlock - 1 });
    this.#used.set(cardId, next);
    return next;
  }

  #entry(number: number): CardEntry {
    const entry = this.#options.reply.cards[number];
    if (entry === undefined) throw new RangeError(`no card ${number}`);
    return entry;
  }

  /** Changes an entry and stores it; only then may the platform be told. */
  async #replace(number: number, change: Partial<CardEntry>): Promise<CardEntry> {
    const { reply, ledger, fence } = this.#options;
    const entry = { ...reply.cards[number], ...change } as CardEntry; // a new one is complete, a change keeps the rest
    reply.cards[number] = entry;
    if (!(await ledger.save(reply, fence))) throw new FencedOut("another writer has these cards");
    return entry;
  }

  #call(lane: RateLane): CallOptions {
    const { signal } = this.#options;
    return { signal, lane, maxWaitMs: lane === "frame" ? 0 : structureWaitMs };
  }
}

/** The same card with its answer as plain text, which the platform takes whatever it holds. */
function withPlainAnswer(card: Record<string, unknown>, text: string): Record<string, unknown> {
  const body = card["body"] as { elements: Record<string, unknown>[] }; // as renderCard makes it
  const plain = { tag: "div", text: { tag: "plain_text", content: text === "" ? "…" : text } };
  const elements = body.elements.map((element) => (element["element_id"] === "answer" ? plain : element));
  return { ...card, body: { ...body, elements } };
}

function shownAfter(shown: ShownCard, operation: CardOperation, wanted: ShownCard): ShownCard {
  if (operation.kind === "batch") return { ...shown, parts: wanted.parts };
  const { elementId } = operation;
  if (elementId === "answer") return { ...shown, answer: wanted.answer };
  return { ...shown, parts: { ...shown.parts, [elementId]: wanted.parts[elementId] ?? "" } };
}

function measuresOf(rendered: RenderedCard): Pick<CardEntry, "bytes" | "elements" | "tables" | "parts"> {
  const { bytes, elements, tables } = rendered;
  return { bytes, elements, tables, parts: shownOf(rendered).parts };
}
