import { parserOf } from "@larkline/protocol";
import { Type } from "typebox";
import { pathId, type ApiCaller, type ApiRequest, type CallOptions } from "../transport/api-call.ts";
import { FeishuError } from "../transport/error.ts";
import type { MessagesApi, ReplyRequest, SendRequest, SentMessage } from "./messages-api.ts";

/** An operation on a card entity. */
interface CardOperation {
  cardId: string;
  /** 1 to 2147483647, higher than that of every earlier operation of any kind. */
  sequence: number;
  /** Idempotency key, 1 to 64 characters. */
  uuid: string;
}

/** New text of a text element. */
export interface CardContentRequest extends CardOperation {
  elementId: string;
  /** The whole text, 1 to 100,000 characters. Clients type only the new part when the shown text is its beginning. */
  content: string;
}

/** Several changes at once, as "Batch update a card" describes them. */
export interface CardBatchRequest extends CardOperation {
  actions: readonly { action: string; params: Record<string, unknown> }[];
}

/** For example `{ config: { streaming_mode: false, summary: { content } } }`. */
export interface CardSettingsRequest extends CardOperation {
  settings: Record<string, unknown>;
}

/** A whole new card. */
export interface CardUpdateRequest extends CardOperation {
  card: Record<string, unknown>;
}

type CardReplyRequest = Omit<Extract<ReplyRequest, { text: string }>, "text" | "format"> & { cardId: string };
type CardSendRequest = Omit<Extract<SendRequest, { text: string }>, "text" | "format"> & { cardId: string };

/**
 * Calls about cards. Every method rejects with a FeishuError only. A call that is `uncertain` may have been
 * executed: `sequence_behind` or `applied_before` at the next attempt mean that it was.
 */
export class CardsApi {
  readonly #caller: ApiCaller;
  readonly #messages: MessagesApi;

  constructor(caller: ApiCaller, messages: MessagesApi) {
    this.#caller = caller;
    this.#messages = messages;
  }

  /** Makes a card entity (JSON 2.0) that can be sent once within 14 days; resolves to its id. */
  async create(card: Record<string, unknown>, options?: CallOptions): Promise<string> {
    const api = "cardkit.card.create";
    const data = { type: "card_json", data: JSON.stringify(card) };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.create({ data }, sdkOptions);
    return (await this.#caller.call({ api, run, parse: parseCreated }, options)).data.card_id;
  }

  /** Answers a message with a card entity; `card_gone` when the platform does not know the card, or it was sent. */
  async sendReply({ cardId, ...request }: CardReplyRequest, options?: CallOptions): Promise<SentMessage> {
    return await this.#messages.reply({ ...request, ...contentOf(cardId) }, options).catch(unknownIsGone);
  }

  /** Sends a card entity to a chat or a person, otherwise like `sendReply`. */
  async sendTo({ cardId, ...request }: CardSendRequest, options?: CallOptions): Promise<SentMessage> {
    return await this.#messages.send({ ...request, ...contentOf(cardId) }, options).catch(unknownIsGone);
  }

  /** Sets the text of one element. */
  async content(request: CardContentRequest, options?: CallOptions): Promise<void> {
    const { cardId, elementId, content, sequence, uuid } = request;
    const api = "cardkit.cardElement.content";
    const path = { card_id: pathId(api, cardId), element_id: pathId(api, elementId) };
    const data = { content, sequence, uuid };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.cardElement.content({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async batch({ cardId, actions, sequence, uuid }: CardBatchRequest, options?: CallOptions): Promise<void> {
    const api = "cardkit.card.batchUpdate";
    const path = { card_id: pathId(api, cardId) };
    const data = { actions: JSON.stringify(actions), sequence, uuid };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.batchUpdate({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async settings({ cardId, settings, sequence, uuid }: CardSettingsRequest, options?: CallOptions): Promise<void> {
    const api = "cardkit.card.settings";
    const path = { card_id: pathId(api, cardId) };
    const data = { settings: JSON.stringify(settings), sequence, uuid };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.settings({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  async update({ cardId, card, sequence, uuid }: CardUpdateRequest, options?: CallOptions): Promise<void> {
    const api = "cardkit.card.update";
    const path = { card_id: pathId(api, cardId) };
    const data = { card: { type: "card_json" as const, data: JSON.stringify(card) }, sequence, uuid };
    const run: Run = (client, sdkOptions) => client.cardkit.v1.card.update({ path, data }, sdkOptions);
    await this.#caller.call({ api, limits: { cardId }, run, parse: parseDone }, options);
  }

  /** Replaces the card of a message that is no card entity; both cards need `update_multi`. */
  async patchMessage(
    { messageId, card }: { messageId: string; card: Record<string, unknown> },
    options?: CallOptions,
  ): Promise<void> {
    const api = "im.message.patch";
    const payload = { path: { message_id: pathId(api, messageId) }, data: { content: JSON.stringify(card) } };
    const run: Run = (client, sdkOptions) => client.im.v1.message.patch(payload, sdkOptions);
    await this.#caller.call({ api, limits: { messageId }, run, parse: parseDone }, options);
  }

  /**
   * Replaces the card that was clicked, by the token of the click: within 30 minutes, at most twice,
   * and only after the callback was answered. Tried once: a repeat would use the token up.
   */
  async delayedUpdate(
    { token, card }: { token: string; card: Record<string, unknown> },
    options?: CallOptions,
  ): Promise<void> {
    const api = "interactive.card.update";
    const request = { method: "POST", url: "/open-apis/interactive/v1/card/update", data: { token, card } };
    const run: Run = (client, sdkOptions) => client.request(request, sdkOptions);
    await this.#caller.call({ api, run, parse: parseDone, once: true }, options);
  }
}

type Run = ApiRequest<unknown>["run"];

const parseCreated = parserOf(Type.Object({ data: Type.Object({ card_id: Type.String({ minLength: 1 }) }) }));
const parseDone = parserOf(Type.Object({}));

/** The content of a message that shows a card entity. */
function contentOf(cardId: string): { messageType: "interactive"; content: string } {
  return { messageType: "interactive", content: JSON.stringify({ type: "card", data: { card_id: cardId } }) };
}

/** The platform knows a new card within moments; a card that stays unknown is gone, or was sent before. */
function unknownIsGone(error: unknown): never {
  if (error instanceof FeishuError && error.kind === "retry" && [230099, 11310].includes(error.code)) {
    throw new FeishuError({ ...error, kind: "card_gone", reason: "card unknown" });
  }
  throw error;
}
