import { parserOf } from "@larkline/protocol";
import { Type } from "typebox";
import type { ApiCaller, CallOptions, SdkCallOptions } from "./api-caller.ts";
import { FeishuError } from "./error.ts";
import type { Client } from "@larksuiteoapi/node-sdk";
import type { CallLimits } from "./rate-gate.ts";
import type { MessageSender, ReplyRequest, SendRequest, SentMessage } from "./message-sender.ts";
import { pathId } from "./platform-id.ts";

/** An operation on a card entity. */
interface CardOperation {
  cardId: string;
  /** 1 to 2147483647, higher than that of every operation before, of whatever kind. */
  sequence: number;
  /** Idempotency key, 1 to 64 characters. */
  uuid: string;
}

/** New text of a text element. */
export interface CardContentRequest extends CardOperation {
  elementId: string;
  /** The whole text, 1 to 100,000 characters; typed on where the shown text is its beginning. */
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
 * Calls about cards. All reject with a FeishuError only. One that is `uncertain` may have been
 * executed: `sequence_behind` or `applied_before` after that mean that it was.
 */
export interface CardApi {
  /** Makes a card entity (JSON 2.0) that can be sent once within 14 days; resolves to its id. */
  create(card: Record<string, unknown>, options?: CallOptions): Promise<string>;
  /** Answers a message with a card entity; `card_gone` when the platform does not know the card, or it was sent. */
  sendReply(request: CardReplyRequest, options?: CallOptions): Promise<SentMessage>;
  sendTo(request: CardSendRequest, options?: CallOptions): Promise<SentMessage>;
  content(request: CardContentRequest, options?: CallOptions): Promise<void>;
  batch(request: CardBatchRequest, options?: CallOptions): Promise<void>;
  settings(request: CardSettingsRequest, options?: CallOptions): Promise<void>;
  update(request: CardUpdateRequest, options?: CallOptions): Promise<void>;
  /** Replaces the card of a message that is no card entity; both cards need `update_multi`. */
  patchMessage(request: { messageId: string; card: Record<string, unknown> }, options?: CallOptions): Promise<void>;
  /**
   * Replaces the card that was clicked, by the token of the click: within 30 minutes, at most twice,
   * and only after the callback was answered. Tried once: a repeat would use the token up.
   */
  delayedUpdate(request: { token: string; card: Record<string, unknown> }, options?: CallOptions): Promise<void>;
}

const parseCreated = parserOf(Type.Object({ data: Type.Object({ card_id: Type.String({ minLength: 1 }) }) }));
const parseDone = parserOf(Type.Object({}));

type Run = (client: Client, options: SdkCallOptions) => Promise<unknown>;

interface Operation {
  api: string;
  limits: CallLimits;
  run: Run;
  options: CallOptions | undefined;
}

/** The content of a message that shows a card entity. */
function cardContent(cardId: string): { messageType: "interactive"; content: string } {
  return { messageType: "interactive", content: JSON.stringify({ type: "card", data: { card_id: cardId } }) };
}

/** The platform knows a new card within moments; one that stays unknown is gone, or was sent before. */
async function sending(send: () => Promise<SentMessage>): Promise<SentMessage> {
  try {
    return await send();
  } catch (error) {
    if (error instanceof FeishuError && error.kind === "retry" && [230099, 11310].includes(error.code)) {
      throw new FeishuError({ ...error, kind: "card_gone", reason: "card unknown" });
    }
    throw error;
  }
}

function createOperations(call: (operation: Operation) => Promise<void>) {
  return {
    content: ({ cardId, elementId, content, sequence, uuid }: CardContentRequest, options?: CallOptions) => {
      const api = "cardkit.cardElement.content";
      const path = { card_id: pathId(api, cardId), element_id: pathId(api, elementId) };
      const data = { content, sequence, uuid };
      const run: Run = (client, sdk) => client.cardkit.v1.cardElement.content({ path, data }, sdk);
      return call({ api, limits: { cardId }, options, run });
    },
    batch: ({ cardId, actions, sequence, uuid }: CardBatchRequest, options?: CallOptions) => {
      const api = "cardkit.card.batchUpdate";
      const path = { card_id: pathId(api, cardId) };
      const data = { actions: JSON.stringify(actions), sequence, uuid };
      const run: Run = (client, sdk) => client.cardkit.v1.card.batchUpdate({ path, data }, sdk);
      return call({ api, limits: { cardId }, options, run });
    },
    settings: ({ cardId, settings, sequence, uuid }: CardSettingsRequest, options?: CallOptions) => {
      const api = "cardkit.card.settings";
      const path = { card_id: pathId(api, cardId) };
      const data = { settings: JSON.stringify(settings), sequence, uuid };
      const run: Run = (client, sdk) => client.cardkit.v1.card.settings({ path, data }, sdk);
      return call({ api, limits: { cardId }, options, run });
    },
    update: ({ cardId, card, sequence, uuid }: CardUpdateRequest, options?: CallOptions) => {
      const api = "cardkit.card.update";
      const path = { card_id: pathId(api, cardId) };
      const data = { card: { type: "card_json" as const, data: JSON.stringify(card) }, sequence, uuid };
      const run: Run = (client, sdk) => client.cardkit.v1.card.update({ path, data }, sdk);
      return call({ api, limits: { cardId }, options, run });
    },
    patchMessage: (
      { messageId, card }: { messageId: string; card: Record<string, unknown> },
      options?: CallOptions,
    ) => {
      const api = "im.message.patch";
      const payload = { path: { message_id: pathId(api, messageId) }, data: { content: JSON.stringify(card) } };
      const run: Run = (client, sdk) => client.im.v1.message.patch(payload, sdk);
      return call({ api, limits: { messageId }, options, run });
    },
  };
}

export function createCardApi(caller: ApiCaller, sender: MessageSender): CardApi {
  const call = async ({ api, limits, run, options }: Operation): Promise<void> => {
    await caller.call({ api, limits, run, parse: parseDone }, options);
  };
  const operations = createOperations(call);
  return {
    create: async (card, options) => {
      const data = { type: "card_json", data: JSON.stringify(card) };
      const run: Run = (client, sdk) => client.cardkit.v1.card.create({ data }, sdk);
      return (await caller.call({ api: "cardkit.card.create", run, parse: parseCreated }, options)).data.card_id;
    },
    sendReply: ({ cardId, ...request }, options) =>
      sending(() => sender.reply({ ...request, ...cardContent(cardId) }, options)),
    sendTo: ({ cardId, ...request }, options) =>
      sending(() => sender.send({ ...request, ...cardContent(cardId) }, options)),
    // `pathId` throws; as a promise's rejection the failure has one form.
    content: async (request, options) => await operations.content(request, options),
    batch: async (request, options) => await operations.batch(request, options),
    settings: async (request, options) => await operations.settings(request, options),
    update: async (request, options) => await operations.update(request, options),
    patchMessage: async (request, options) => await operations.patchMessage(request, options),
    delayedUpdate: async ({ token, card }, options) => {
      const data = { token, card };
      const request = { method: "POST", url: "/open-apis/interactive/v1/card/update", data };
      await caller.call(
        {
          api: "interactive.card.update",
          run: (client, sdk) => client.request(request, sdk),
          parse: parseDone,
          once: true,
        },
        options,
      );
    },
  };
}
