import { FeishuApi, LongConnection, inboundFromEvent, type Envelope } from "@larkline/feishu";
import { memoryTokens } from "./bot.fixture.ts";

type CardJson = Record<string, unknown>;

/** A card on its way; every operation takes the next sequence. */
export interface OpenCard {
  readonly cardId: string;
  content(elementId: string, text: string): Promise<void>;
  /** Changes of `batch_update`. */
  batch(actions: readonly { action: string; params: CardJson }[]): Promise<void>;
  /** Streaming ends, with what the list of chats shows from then on. */
  finish(summary: string): Promise<void>;
}

export interface CardBotOptions {
  appId: string;
  appSecret: string;
  /** Base URL of the platform. */
  domain: string;
  /** The card that answers a message. */
  card: (text: string) => CardJson;
  /** What happens to the card after it was sent. */
  script?: (card: OpenCard, text: string) => Promise<void>;
  /** The answer to a click on a card. */
  onClick?: (action: CardJson) => Promise<CardJson>;
}

export interface CardBot {
  readonly api: FeishuApi;
  /** Settles when the scripts that were started so far have ended; rejects with the first failure. */
  idle(): Promise<void>;
  close(): Promise<void>;
}

/** A bot that answers each message with a card of CardKit. */
export async function startCardBot({
  card,
  script,
  onClick,
  ...app
}: CardBotOptions): Promise<CardBot> {
  const api = new FeishuApi({ ...app, tokenCache: memoryTokens() });
  const { openId: botOpenId } = await api.botInfo();
  const connected = Promise.withResolvers<void>();
  const running: Promise<void>[] = [];
  const answered = new Set<string>();
  const work = async (messageId: string, text: string): Promise<void> => {
    const cardId = await api.cards.create(card(text));
    await api.cards.sendReply({ messageId, inThread: false, cardId, uuid: messageId });
    await script?.(openCard(api, cardId), text);
  };
  const onEvent = async (envelope: Envelope): Promise<unknown> => {
    if (envelope.type === "card.action.trigger") {
      const { action } = envelope.event as { action: CardJson }; // The simulator's own callback.
      return await onClick?.(action);
    }
    const parsed = inboundFromEvent(envelope, { botOpenId });
    if (!parsed.ok || answered.has(parsed.value.messageId)) return undefined;
    const { messageId, text } = parsed.value;
    answered.add(messageId);
    const started = work(messageId, text);
    started.catch(() => undefined);
    running.push(started);
    return undefined;
  };
  const connection = new LongConnection({
    ...app,
    onEvent,
    onState: (state) => state === "connected" && connected.resolve(),
    backOffMs: { min: 50, max: 200 },
  });
  connection.start();
  await connected.promise;
  return {
    api,
    idle: async () => void (await Promise.all(running)),
    async close() {
      await connection.close();
      api.close();
    },
  };
}

function openCard(api: FeishuApi, cardId: string): OpenCard {
  let sequence = 0;
  const next = (): { cardId: string; sequence: number; uuid: string } => {
    sequence += 1;
    return { cardId, sequence, uuid: `${cardId}-${sequence}` };
  };
  return {
    cardId,
    content: (elementId, content) => api.cards.content({ ...next(), elementId, content }),
    batch: (actions) => api.cards.batch({ ...next(), actions }),
    finish: (content) =>
      api.cards.settings({
        ...next(),
        settings: { config: { streaming_mode: false, summary: { content } } },
      }),
  };
}
