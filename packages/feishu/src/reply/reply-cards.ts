import { createHash } from "node:crypto";
import type { ReplyLanguage } from "@larkline/protocol";
import { pause, type Random, type Clock } from "@larkline/protocol/clock";
import type { ReplyView, ShownTool } from "@larkline/protocol/reply-view";
import type { AskedInReply, CardEntry, OutboxTarget } from "@larkline/store";
import type { RatePriority } from "@larkline/store/platform";
import { askElements, withReasonForm } from "../cards/ask-in-reply.ts";
import {
  extendCuts,
  maxCardBytes,
  renderCard,
  restFileName,
  sliceOf,
  summaryPart,
  waitsForPeople,
  type CardPage,
  type CardStyle,
  type CardElement,
  type RenderedCard,
} from "../cards/card.ts";
import { replacedCard, textFollowsCard } from "../cards/notice-cards.ts";
import {
  clockSkewMs,
  derivedUuid,
  receiverOf,
  uuidProtectionMs,
  type FeishuApi,
} from "../feishu-api.ts";
import type { CallOptions } from "../transport/api-call.ts";
import { FeishuError, isKind } from "../transport/error.ts";
import type { CardHandover, ReplyRecord } from "./reply-record.ts";

export interface ReplyCardsOptions {
  api: FeishuApi;
  /** Everything that a successor has to know is stored there before the platform is called. */
  record: ReplyRecord;
  target: OutboxTarget;
  /** The reply's idempotency key; those of its messages are derived from it. */
  uuid: string;
  /** Image keys by reference; `null` where there is no image to show. */
  images?: ReadonlyMap<string, string | null>;
  clock: Clock;
  random: Random;
  signal: AbortSignal;
  /** Of the message that is answered. */
  traceparent?: string | undefined;
  /** What the live reply of this process could not record any more. */
  handover?: CardHandover | undefined;
}

/**
 * Sends one file message as an answer, or to the chat when the message is gone; a repeat within the platform's hour shows
 * no second one. Resolves to its id.
 */
export async function sendFileMessage(
  api: FeishuApi,
  { key, target, uuid }: { key: string; target: Omit<OutboxTarget, "app">; uuid: string },
  call: CallOptions,
): Promise<string> {
  const { chatId, messageId, inThread } = target;
  const body = { messageType: "file" as const, content: JSON.stringify({ file_key: key }) };
  const toChat = async (): Promise<string> =>
    (
      await api.messages.send(
        { ...receiverOf(chatId), ...body, uuid: derivedUuid(uuid, "c") },
        call,
      )
    ).messageId;
  if (messageId === "") return await toChat();
  try {
    return (await api.messages.reply({ messageId, chatId, ...body, uuid, inThread }, call))
      .messageId;
  } catch (error) {
    if (!isKind(error, "target_gone")) throw error;
    return await toChat();
  }
}

/** Bytes of the answer on one card: the next step is taken when the platform refuses a card for its size. */
const answerBytesSteps = [undefined, 12_000, 6_000, 2_500];
/** A card below this size is not refused for its size, so a smaller one would not help. */
const surelySmallBytes = 8_000;
/** How often one page may lose its card within one attempt. */
const maxDeaths = 2;

/** The platform takes 200 elements ("Card JSON 2.0"); a form adds some. */
const maxElements = 180;

/** The ledger's content mark of a card that shows nothing of the answer any more. */
const retired = "retired";

interface Goal {
  view: ReplyView;
  page: CardPage;
  /** This is the last frame of the card: draw it whole and end its streaming. */
  closing: boolean;
}

interface Failure {
  number: number;
  error: FeishuError;
  /** Size of the card that was to be shown. */
  bytes: number;
}

/**
 * Brings the cards of one reply to a view, whatever they show now and whichever process wrote it. Everything that
 * a successor needs is in the ledger before the platform is called.
 *
 * Read `#bring` first: it brings one card after the other (`#bringCard`) and reacts to refusals (`#adapt`).
 */
export class ReplyCards {
  readonly #options: ReplyCardsOptions;
  readonly #writer: CardWriter;
  /** What the cards show that this writer has drawn itself, by number. */
  readonly #shown = new Map<number, ShownCard>();
  /** Ids of cards that are certainly in no chat: made here, and never sent with an uncertain outcome. */
  readonly #unsent = new Set<string>();
  #shrinks = 0;
  /** The platform takes no files, so cards carry the whole answer, however many it takes. */
  #noFile = false;
  /** Of the card that was drawn last. */
  #hasCharts = false;
  #style: CardStyle = "formatted";
  /** What the person is asked on the last card. */
  #asks: readonly AskedInReply[] = [];
  /** Those of them that the card has shown since. */
  #asked: readonly AskedInReply[] = [];
  /** Whether an operation is under way that changes a card which people see, and nothing else. */
  #isUpdating = false;
  #hasLeft = false;

  constructor(options: ReplyCardsOptions) {
    const { api, record, clock, random, signal, traceparent } = options;
    this.#options = options;
    this.#writer = new CardWriter({ api, record, clock, random, signal, traceparent });
  }

  /** Takes over what an earlier writer of this process knows. No other process may have written since. */
  continueFrom(other: ReplyCards): void {
    for (const [number, shown] of other.#shown) this.#shown.set(number, shown);
    for (const cardId of other.#unsent) this.#unsent.add(cardId);
    this.#shrinks = other.#shrinks;
    this.#style = other.#style;
    this.#writer.continueFrom(other.#writer);
  }

  /**
   * Shows a state of a running reply, with buttons for what its person is asked. Resolves to what of that the card has
   * room for. Rejects with a FeishuError, a FencedOut or a LedgerFailure.
   */
  async show(
    view: ReplyView,
    asks: readonly AskedInReply[] = [],
  ): Promise<readonly AskedInReply[]> {
    this.#asks = asks;
    // Time that passes is no reason to draw a card anew on which a person may be writing.
    const still = asks.length === 0 ? view : { ...view, tools: view.tools.map(withoutTimes) };
    await this.#bring(still, false);
    return this.#asked;
  }

  /**
   * Lets what is under way end and begins nothing further: a successor draws the cards. Returns whether what is under way
   * changes a card that people see, and nothing else.
   */
  leave(): boolean {
    this.#hasLeft = true;
    return this.#isUpdating;
  }

  /** Shows the last state; resolves when the platform has confirmed every card. Rejects like `show`. */
  async finish(view: ReplyView): Promise<void> {
    this.#asks = [];
    await this.#bring(view, true);
  }

  /** Whether the cards were taken only without their images: the platform does not know the keys. */
  get imagesRefused(): boolean {
    return this.#style === "imageless";
  }

  /** Replaces every card by a note, because the answer is sent as text. Rejects like `show`. */
  async retire(language: ReplyLanguage): Promise<void> {
    for (const number of this.#options.record.cards.keys()) {
      await this.#retire(number, textFollowsCard(language));
    }
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
    for (let number = 0; number <= last && !this.#hasLeft; number += 1) {
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

  /** Changes how the cards are drawn after a refusal. Resolves to false when nothing is left to change. */
  async #adapt({ number, error, bytes }: Failure, deaths: Map<number, number>): Promise<boolean> {
    const { record } = this.#options;
    if (error.heldBack) return false;
    if (
      isKind(error, "card_full") &&
      bytes > surelySmallBytes &&
      this.#shrinks < answerBytesSteps.length - 1
    ) {
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

  /** The next plainer style; undefined when nothing is left to leave out. */
  #plainerStyle(error: FeishuError): CardStyle | undefined {
    const isInvalid = isKind(error, "card_invalid");
    if (this.#style === "formatted" && isInvalid && this.#hasCharts) return "chartless";
    switch (this.#style) {
      case "formatted":
      case "chartless": {
        const keys = [...(this.#options.images?.values() ?? [])];
        return isInvalid && keys.some((key) => typeof key === "string") ? "imageless" : "plain";
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
   * Cuts after full cards stay as long as the answer before them stays the same. It changes when a model step starts
   * again.
   */
  #cutsOf(answer: string, maxCuts: number | undefined): number[] {
    const known: number[] = [];
    if (this.#shrinks === 0) {
      for (const { state, from, to, parts } of this.#options.record.cards) {
        if (
          state !== "closed" ||
          from !== (known.at(-1) ?? 0) ||
          to === undefined ||
          to >= answer.length
        ) {
          break;
        }
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
   * Sends the rest of a very long answer as one file. The ledger keeps the steps, so the file is uploaded and sent
   * once, also after a crash. Resolves to false when the platform takes no file, for example because the app lacks
   * the right to upload.
   */
  async #sendRest(view: ReplyView, from: number): Promise<boolean> {
    const { api, record } = this.#options;
    const fileName = restFileName(view.language);
    if (record.file?.messageId !== undefined) return true;
    try {
      let key = record.file?.key;
      if (key === undefined) {
        const bytes = Buffer.from(view.answer.slice(from), "utf8");
        key = await api.files.uploadFile(
          { bytes, fileName, fileType: "stream" },
          callOf("final", this.#options),
        );
        await record.putFile({ key });
      }
      const messageId = await this.#sendFile(key, fileName);
      await record.putFile({ key, messageId });
      return true;
    } catch (error) {
      const isHopeless =
        error instanceof FeishuError && !error.retryable && error.kind !== "cancelled";
      if (isHopeless && !error.uncertain) return false;
      throw error;
    }
  }

  /** Sends one file message as an answer, or to the chat when the message is gone. Resolves to its id. */
  async #sendFile(key: string, name: string): Promise<string> {
    const { api, record, target, uuid, clock, signal, traceparent } = this.#options;
    const { chatId, messageId } = target;
    const call = { signal, traceparent };
    // The platform has forgotten the `uuid`: an earlier attempt may have succeeded without being recorded.
    if (clock.now() - record.createdAtMs >= uuidProtectionMs && messageId !== "") {
      const request = {
        chatId,
        messageId,
        sinceMs: record.createdAtMs - clockSkewMs,
        file: { key, name },
      };
      const found = await api.history.findReply(request, call).catch((error: unknown) => {
        if (!isKind(error, "forbidden", "target_gone", "bad_request", "app_setup")) throw error;
        return undefined;
      });
      if (found !== undefined) return found;
    }
    return await sendFileMessage(api, { key, target, uuid: derivedUuid(uuid, "f") }, call);
  }

  async #bringCard(goal: Goal): Promise<Failure | undefined> {
    const { view, page, closing } = goal;
    const { number } = page;
    const known = this.#options.record.cards[number];
    const closed = closing && known?.state === "closed";
    // While the reply runs a full card is left unchanged as long as its text stays the same.
    if (closed && view.state === "running" && known.parts["content"] === contentOf(goal)) {
      return undefined;
    }
    const { rendered, asked, asking } = this.#draw(goal);
    if (closed && known.parts["card"] === hashOf(rendered.card)) return undefined;
    try {
      // A click may ask for the form before this process knows that the card is there.
      if (asking !== undefined) await this.#options.record.putAsking(asking);
      await this.#visible(goal, rendered);
      if (closing) await this.#close(goal, rendered);
      else if (this.#rests(goal)) await this.#rest(number, rendered);
      else await this.#write(goal, rendered);
      if (!closing) this.#asked = asked;
      return undefined;
    } catch (error) {
      if (error instanceof FeishuError) return { number, error, bytes: rendered.bytes };
      throw error;
    }
  }

  /** No text comes before people have answered. */
  #rests({ view, closing }: Goal): boolean {
    return !closing && (waitsForPeople(view) || this.#asks.length > 0);
  }

  /** With as much of what the person is asked as the card has room for; `asking` is it without an open form. */
  #draw(goal: Goal): {
    rendered: RenderedCard;
    asked: readonly AskedInReply[];
    asking?: CardElement;
  } {
    const { view, page, closing } = goal;
    const { images } = this.#options;
    const style = this.#style;
    const form = {
      streaming: !closing && !this.#rests(goal),
      style,
      ...(images === undefined ? {} : { images }),
    };
    for (
      let asked = closing || style === "bare" ? [] : this.#asks;
      asked.length > 0;
      asked = asked.slice(0, -1)
    ) {
      const asks = asked.flatMap(({ approval }, at) => askElements(approval, view, at + 1));
      const rendered = renderCard(view, page, { ...form, asks });
      if (rendered.bytes > maxCardBytes || rendered.elements > maxElements) continue;
      const { card } = rendered;
      const open = asked.toSorted((a, b) => a.reasonAskedAtMs - b.reasonAskedAtMs).at(-1);
      const withForm =
        open !== undefined && open.reasonAskedAtMs > 0
          ? withReasonForm(card, open.approval)
          : undefined;
      return { rendered: { ...rendered, card: withForm ?? card }, asked, asking: card };
    }
    const rendered = renderCard(view, page, form);
    this.#hasCharts = rendered.hasCharts;
    return { rendered, asked: [] };
  }

  async #visible(goal: Goal, rendered: RenderedCard): Promise<void> {
    const { number } = goal.page;
    let entry = this.#options.record.cards[number];
    if (entry === undefined || entry.state === "dead") entry = await this.#create(goal, rendered);
    if (entry.state === "created") await this.#send(number, entry);
  }

  async #create({ view, page, closing }: Goal, rendered: RenderedCard): Promise<CardEntry> {
    const { api, clock, record, uuid } = this.#options;
    const { number, cuts } = page;
    const { handover } = this.#options;
    const sinceMs = clock.now();
    const known = handover?.takeCard(record.replyId, number);
    const cardId = known ?? (await api.cards.create(rendered.card, callOf("final", this.#options)));
    const to = cuts[number];
    const { parts, ...measures } = measuresOf(rendered);
    const entry = {
      cardId,
      uuid: derivedUuid(uuid, cardId),
      reservedSequence: 0,
      streamingSinceMs: closing || this.#rests({ view, page, closing }) ? 0 : sinceMs,
      state: "created" as const,
      from: cuts[number - 1] ?? 0,
      ...(to === undefined ? {} : { to }),
      ...measures,
      // What a card shows that was made before is not known here, so it is drawn again.
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

  /** A card entity can be sent only once, so even a repeat long after the `uuid` has expired shows no second card. */
  async #send(number: number, entry: CardEntry): Promise<void> {
    const { record, handover } = this.#options;
    try {
      const messageId = handover?.takeSent(entry.cardId) ?? (await this.#sendOnce(entry)).messageId;
      // For the delivery of the answer, in case the ledger does not take the next change.
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
      // The platform took the content of this card before. So an earlier send succeeded without our knowledge, or
      // the card is gone: the next operation on the card shows which.
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
      return await api.cards.sendReply(
        { cardId, chatId, messageId, inThread, uuid },
        callOf("final", this.#options),
      );
    } catch (error) {
      if (!isKind(error, "target_gone")) throw error;
      if (error.uncertain) this.#unsent.delete(cardId);
      return await toChat();
    }
  }

  async #write({ view, page: { number } }: Goal, rendered: RenderedCard): Promise<void> {
    const wasWhole = await this.#reopen(number);
    await this.#writer.keepStreaming(number, wasWhole ? { summary: summaryPart(view) } : {});
    const shown = this.#shown.get(number);
    if (shown === undefined || this.#style === "plain" || this.#style === "bare") {
      return await this.#redraw(number, rendered);
    }
    const wanted = shownOf(rendered);
    for (const operation of operationsBetween(shown, rendered)) {
      if (this.#hasLeft) return;
      try {
        await this.#updating(this.#writer.operate(number, operation));
        this.#shown.set(number, shownAfter(this.#shown.get(number) ?? shown, operation, wanted));
        this.#options.record.note(number, measuresOf(rendered));
      } catch (error) {
        if (!(error instanceof FeishuError) || error.heldBack) throw error;
        // Whether elements were added is uncertain, so the whole card is drawn again.
        if (operation.kind === "batch") this.#shown.delete(number);
        // The card does not show what we believe it shows.
        if (!isKind(error, "card_invalid", "sequence_behind")) throw error;
        return await this.#redraw(number, rendered);
      }
    }
  }

  async #updating(operation: Promise<void>): Promise<void> {
    this.#isUpdating = true;
    try {
      await operation;
    } finally {
      this.#isUpdating = false;
    }
  }

  /**
   * Streams again on a card that was drawn whole: people have answered, or the answer started again and has not filled
   * it yet. Resolves to whether it was.
   */
  async #reopen(number: number): Promise<boolean> {
    const { state, streamingSinceMs } = this.#options.record.entry(number);
    const wasWhole = state === "closed" || streamingSinceMs === 0;
    if (wasWhole) await this.#noteWhole(number);
    // Answers to clicks may have changed what it shows.
    if (this.#options.record.asking !== undefined) this.#shown.delete(number);
    await this.#options.record.putAsking(undefined);
    return wasWhole;
  }

  /** Stores that the card does not stream, before it is drawn so. */
  async #noteWhole(number: number): Promise<void> {
    const { record } = this.#options;
    const { to: _to, ...entry } = record.entry(number);
    await record.put(number, { ...entry, state: "sent", streamingSinceMs: 0, parts: {} });
  }

  /**
   * Shows that the turn waits for people: the whole card, with streaming off. The wait may last for days, and the list
   * of chats says what it is for.
   */
  async #rest(number: number, rendered: RenderedCard): Promise<void> {
    const { record } = this.#options;
    const card = hashOf(rendered.card);
    const { state, streamingSinceMs, parts } = record.entry(number);
    if (state === "sent" && streamingSinceMs === 0 && parts["card"] === card) return;
    await this.#noteWhole(number);
    await this.#redraw(number, rendered);
    const measures = measuresOf(rendered);
    await record.change(number, { ...measures, parts: { ...measures.parts, card } });
  }

  async #redraw(number: number, rendered: RenderedCard): Promise<void> {
    this.#shown.delete(number);
    await this.#writer.redraw(number, rendered.card, "frame");
    this.#shown.set(number, shownOf(rendered));
    this.#options.record.note(number, measuresOf(rendered));
  }

  /** Draws the last frame of a card in one operation: the whole card, with streaming off and the summary set. */
  async #close(goal: Goal, rendered: RenderedCard): Promise<void> {
    const { record } = this.#options;
    const { cuts, number } = goal.page;
    const card = hashOf(rendered.card);
    if (record.entry(number).parts["card"] !== card) {
      await this.#writer.redraw(number, rendered.card, "final");
    }
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

  /** Replaces a card that is to show nothing of the answer any more. */
  async #retire(number: number, card: Record<string, unknown>): Promise<void> {
    const { record } = this.#options;
    const { state, parts } = record.entry(number);
    if (state === "dead" || parts["content"] === retired) return;
    try {
      await this.#writer.redraw(number, card, "final");
      await record.change(number, {
        state: "closed",
        streamingSinceMs: 0,
        parts: { content: retired },
      });
      this.#shown.delete(number);
    } catch (error) {
      if (!isKind(error, "card_gone", "card_too_old")) throw error;
      await record.change(number, { state: "dead" });
    }
  }
}

function withoutTimes({ elapsedMs, progress: _progress, ...tool }: ShownTool): ShownTool {
  return tool.state === "running" || elapsedMs === undefined ? tool : { ...tool, elapsedMs };
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

/** What the ledger keeps of a card. */
function measuresOf(
  rendered: RenderedCard,
): Pick<CardEntry, "bytes" | "elements" | "tables" | "parts"> {
  const { bytes, elements, tables } = rendered;
  return { bytes, elements, tables, parts: shownOf(rendered).parts };
}

/** One change of a batch update, as the platform takes it. */
interface CardAction {
  action: string;
  params: Record<string, unknown>;
}

/** One call that changes what a card shows. */
type CardOperation =
  | { kind: "content"; elementId: string; content: string }
  /** Actions of one batch update, which counts as one operation. */
  | { kind: "batch"; actions: CardAction[] };

/** What a card shows, as hashes: small enough for the ledger, enough to find what changed. */
interface ShownCard {
  answer: string;
  /**
   * Hash by element id; `thinking_text` has its own, apart from the panel around it, and so has `tools_calls`, all of the
   * calls' panel but its title.
   */
  parts: Record<string, string>;
}

/**
 * The cheapest operations that turn what is shown into what is wanted: everything but the answer in
 * one batch (first what frees room), then the text of the answer. Empty when nothing changed.
 */
export function operationsBetween(shown: ShownCard, wanted: RenderedCard): CardOperation[] {
  const ids = Object.keys(shown.parts).filter((id) => placeOf(id) !== -1);
  const gone = ids.filter((id) => wanted.parts[id] === undefined);
  const present = new Set(ids.filter((id) => wanted.parts[id] !== undefined));
  const actions: CardAction[] = [];
  if (gone.length > 0) actions.push({ action: "delete_elements", params: { element_ids: gone } });
  actions.push(...changesOf(shown.parts, wanted.parts));
  for (const [id, element] of Object.entries(wanted.parts)) {
    if (present.has(id)) continue;
    actions.push(addition(id, element, present));
    present.add(id);
  }
  const operations: CardOperation[] = actions.length === 0 ? [] : [{ kind: "batch", actions }];
  if (shown.answer !== wanted.answer) {
    operations.push({ kind: "content", elementId: "answer", content: wanted.answer });
  }
  return operations;
}

/** What the card shows once it is on the platform as rendered. */
export function shownOf(rendered: RenderedCard): ShownCard {
  return { answer: rendered.answer, parts: hashesOf(rendered.parts) };
}

/** Sections of a team: as many as a checkpoint keeps. */
const sections = Array.from({ length: 12 }, (_, at) => `said_${at + 1}`);

/** From top to bottom; those that end in `_` stand for all parts that begin so. */
const order = [
  "thinking",
  "tools",
  "helpers",
  "progress_",
  ...sections,
  "speaker",
  "answer",
  "rest",
  "list_",
  "stop",
  "again",
  "footer",
];

/** A short hash of a value, to tell whether it changed. */
function hashOf(value: unknown): string {
  return createHash("sha256").update(JSON.stringify(value)).digest("base64url").slice(0, 16);
}

function thinkingContent(parts: RenderedCard["parts"]): string | undefined {
  const elements = parts["thinking"]?.["elements"];
  const [text]: unknown[] = Array.isArray(elements) ? elements : [];
  if (typeof text !== "object" || text === null || !("content" in text)) return undefined;
  return typeof text.content === "string" ? text.content : undefined;
}

function hashesOf(parts: RenderedCard["parts"]): Record<string, string> {
  const hashes: Record<string, string> = {};
  for (const [id, part] of Object.entries(parts)) {
    const { elements, ...frame } = part;
    hashes[id] = hashOf(id === "thinking" ? frame : part);
    if (id === "thinking") hashes["thinking_text"] = hashOf(thinkingContent(parts) ?? elements);
    if (id === "tools") hashes["tools_calls"] = hashOf({ ...part, header: undefined });
  }
  return hashes;
}

function placeOf(id: string): number {
  return order.findIndex((place) => id === place || (place.endsWith("_") && id.startsWith(place)));
}

function addition(id: string, element: CardElement, present: ReadonlySet<string>): CardAction {
  const at = placeOf(id);
  const above = at < placeOf("answer");
  const others = ["answer", ...present].toSorted((one, other) => placeOf(one) - placeOf(other));
  const target = above
    ? others.find((other) => placeOf(other) > at)
    : others.findLast((other) => placeOf(other) <= at && placeOf(other) >= placeOf("answer"));
  const type = above ? "insert_before" : "insert_after";
  return {
    action: "add_elements",
    params: { type, target_element_id: target ?? "answer", elements: [element] },
  };
}

function change(id: string, element: CardElement): CardAction {
  return { action: "update_element", params: { element_id: id, element } };
}

function partialChange(id: string, partial: CardElement): CardAction {
  return { action: "partial_update_element", params: { element_id: id, partial_element: partial } };
}

function changesOf(shown: ShownCard["parts"], wanted: RenderedCard["parts"]): CardAction[] {
  const hashes = hashesOf(wanted);
  const changes: CardAction[] = [];
  for (const [id, element] of Object.entries(wanted)) {
    if (shown[id] === undefined) continue;
    const isSame = shown[id] === hashes[id];
    if (id === "tools" && !isSame && shown["tools_calls"] === hashes["tools_calls"]) {
      // Small, and a panel that a reader has unfolded stays as it is.
      changes.push(partialChange(id, { header: element["header"] }));
    } else if (!isSame) changes.push(change(id, element));
    else if (id === "thinking" && shown["thinking_text"] !== hashes["thinking_text"]) {
      changes.push(partialChange("thinking_text", { content: thinkingContent(wanted) ?? "" }));
    }
  }
  return changes;
}

interface CardWriterOptions {
  api: FeishuApi;
  record: ReplyRecord;
  clock: Clock;
  random: Random;
  signal: AbortSignal;
  /** Of the message that is answered. */
  traceparent?: string | undefined;
}

/**
 * Streaming mode ends 10 minutes after it was last enabled ("Streaming updates for cards"); we enable it again
 * well before.
 */
const streamingLifetimeMs = 8 * 60_000;
/** Operation numbers that are reserved in the ledger at a time: a successor starts above them. */
const sequenceBlock = 64;
/** How far to jump, each time, when the platform knows a higher operation number than the ledger. */
const sequenceJumps = [10_000, 10_000_000, 1_000_000_000];
const maxSequence = 2_147_483_647;
const lockedRetryMs = 300;
const lockedRetries = 8;
const maxDoubts = 2;
/**
 * The longest wait of an operation that changes the structure of a card: it keeps its place in the rate limiter's
 * line. When 300 replies begin at once the last one waits for 9 s. The caller's signal may end the wait earlier.
 */
const structureWaitMs = 30_000;

/** How a call about a reply's cards is made: it leaves only while the cards are still ours. */
function callOf(
  priority: RatePriority,
  {
    signal,
    traceparent,
    record,
  }: { signal: AbortSignal; traceparent?: string | undefined; record: ReplyRecord },
): CallOptions {
  const beforeLeaving = async (): Promise<void> => await record.stillOurs();
  return {
    signal,
    traceparent,
    priority,
    maxWaitMs: priority === "frame" ? 0 : structureWaitMs,
    beforeLeaving,
  };
}

/** How often one operation was refused, by reason. */
interface Troubles {
  locked: number;
  behind: number;
  doubts: number;
  closed: number;
}

type Run = (id: { cardId: string; sequence: number; uuid: string }) => Promise<void>;

/**
 * Operations on the cards of one reply, each under a number of its own. Numbers only grow, so the platform refuses
 * a late operation of a writer that was replaced, and the ledger refuses the writer.
 */
class CardWriter {
  readonly #options: CardWriterOptions;
  /** Last operation number used, by card. */
  readonly #used = new Map<string, number>();
  /** Cards on which this writer has put text. */
  readonly #typed = new Set<string>();
  /** Part of every idempotency key, so that `applied_before` always means an operation of this writer. */
  readonly #writerId: string;

  constructor(options: CardWriterOptions) {
    this.#options = options;
    this.#writerId = options.random.id().slice(0, 8);
  }

  /** Continues with the numbers that another writer of this process had reserved and not used. */
  continueFrom(other: CardWriter): void {
    for (const [cardId, sequence] of other.#used) this.#used.set(cardId, sequence);
  }

  /** Replaces the whole card. */
  async redraw(
    number: number,
    card: Record<string, unknown>,
    priority: RatePriority,
  ): Promise<void> {
    const { api } = this.#options;
    await this.#numbered(number, true, async (id) => {
      await api.cards.update({ ...id, card }, callOf(priority, this.#options));
    });
  }

  /** Runs one operation of a frame. */
  async operate(number: number, operation: CardOperation): Promise<void> {
    const { api } = this.#options;
    const { kind } = operation;
    await this.#numbered(number, kind === "content", async (id) => {
      if (kind === "batch") {
        await api.cards.batch(
          { ...id, actions: operation.actions },
          callOf("frame", this.#options),
        );
      } else {
        const { elementId, content } = operation;
        // A person waits for the first text, so it is no mere frame.
        const priority = this.#typed.has(id.cardId) ? "frame" : "final";
        await api.cards.content({ ...id, elementId, content }, callOf(priority, this.#options));
        this.#typed.add(id.cardId);
      }
    });
  }

  /** Enables streaming when it is off or about to end; `more` is set with it. */
  async keepStreaming(number: number, more: { summary?: CardElement | undefined }): Promise<void> {
    const { clock, record } = this.#options;
    if (clock.now() - record.entry(number).streamingSinceMs >= streamingLifetimeMs) {
      await this.#enable(number, more);
    }
  }

  async #enable(number: number, more: { summary?: CardElement | undefined } = {}): Promise<void> {
    const { api, clock, record } = this.#options;
    const sinceMs = clock.now();
    await this.#numbered(number, true, async (id) => {
      const settings = { config: { streaming_mode: true, ...more } };
      await api.cards.settings({ ...id, settings }, callOf("final", this.#options));
    });
    await record.change(number, { streamingSinceMs: sinceMs });
  }

  /**
   * Runs an operation under the next number. `repeatable`: running it twice has the effect of running it once, so
   * an uncertain attempt is repeated.
   */
  async #numbered(number: number, repeatable: boolean, run: Run): Promise<void> {
    const { record } = this.#options;
    const troubles: Troubles = { locked: 0, behind: 0, doubts: 0, closed: 0 };
    for (;;) {
      const sequence = await this.#nextSequence(number);
      const { cardId } = record.entry(number);
      try {
        await run({ cardId, sequence, uuid: `${cardId}-${sequence}-${this.#writerId}` });
        return record.proven();
      } catch (error) {
        // The answer to the first attempt was lost; the platform has applied it and refuses the repeat.
        if (isKind(error, "applied_before")) return;
        if (!(await this.#mayRepeat(number, error, { troubles, repeatable }))) throw error;
      }
    }
  }

  async #mayRepeat(
    number: number,
    error: unknown,
    { troubles, repeatable }: { troubles: Troubles; repeatable: boolean },
  ): Promise<boolean> {
    if (!(error instanceof FeishuError)) return false;
    switch (error.kind) {
      case "card_locked": {
        troubles.locked += 1;
        if (troubles.locked > lockedRetries) return false;
        await pause(this.#options.clock, lockedRetryMs, this.#options.signal);
        return !this.#options.signal.aborted;
      }
      case "sequence_behind":
        if (error.uncertain) {
          troubles.doubts += 1;
          return repeatable && troubles.doubts <= maxDoubts;
        }
        return this.#jump(number, troubles);
      case "streaming_closed":
        troubles.closed += 1;
        if (troubles.closed > 1) return false;
        await this.#enable(number);
        return true;
      default:
        return false;
    }
  }

  #jump(number: number, troubles: Troubles): boolean {
    const jump = sequenceJumps[troubles.behind];
    if (jump === undefined) return false;
    troubles.behind += 1;
    const { cardId, reservedSequence } = this.#options.record.entry(number);
    this.#used.set(cardId, reservedSequence + jump);
    return true;
  }

  async #nextSequence(number: number): Promise<number> {
    const { record } = this.#options;
    const { cardId, reservedSequence } = record.entry(number);
    const used = this.#used.get(cardId);
    const next = (used ?? reservedSequence) + 1;
    if (next > maxSequence) {
      const reason = "no operation numbers left";
      throw new FeishuError({ api: "cardkit", kind: "card_gone", code: 0, httpStatus: 0, reason });
    }
    if (next > reservedSequence) {
      await record.change(number, {
        reservedSequence: Math.min(maxSequence, next + sequenceBlock - 1),
      });
    }
    this.#used.set(cardId, next);
    return next;
  }
}
