import { randomInt } from "node:crypto";
import { createCardFrames, type CardFrames } from "./card-frames.ts";
import { cardText } from "./card-text.ts";
import type { CardFacts } from "./card-validator.ts";
import type { DuplicateCardUuid, SimCard, SimCardOperation, SimCardView } from "./card-view.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";
import type { MessageStore, SimMessage } from "./message-store.ts";

/** Streaming ends by itself this long after it was last enabled (streaming update guide). */
const streamingLifetimeMs = 600_000;
const lifetimeMs = 14 * 86_400_000;
const maximumBytes = 30 * 1024;

/** A card with its state: one that the card API made, or the card of a message. */
export interface CardEntity {
  readonly cardId: string;
  /** The app that made it; only this app may work on it. */
  readonly appId: string;
  readonly createdAt: number;
  /** Whether the app knows the id: false for a message's card until it is converted. */
  named: boolean;
  json: JsonObject;
  /** The size of the card as JSON text. */
  bytes: number;
  version: number;
  sequence: number;
  messageId?: string;
  /** Milliseconds since the epoch when streaming was last enabled; undefined while it is off. */
  streamingSince: number | undefined;
  /** Hashes of the requests that were applied, by `uuid`. */
  readonly uuids: Map<string, string>;
  readonly frames: CardFrames;
  readonly operations: SimCardOperation[];
  /** Clicks that are not answered yet. */
  openClicks: number;
  /** How often it was refused as "cardid is invalid" on purpose. */
  refusedSends: number;
  expiry?: NodeJS.Timeout;
}

/** The cards of the tenant. Changes of a card that a message shows are announced. */
export interface CardStore extends CardRules {
  create(card: { appId: string; json: JsonObject; named: boolean }): CardEntity;
  get(cardId: string): CardEntity | undefined;
  ofMessage(messageId: string): CardEntity | undefined;
  /** The message shows the card from now on. */
  attach(entity: CardEntity, messageId: string): void;
  /** Shows another JSON; with `enable`, streaming starts anew when the card asks for it. */
  change(entity: CardEntity, json: JsonObject, options: { enable: boolean; bytes?: number }): void;
  view(entity: CardEntity): SimCardView;
  describe(cardId: string): SimCard | undefined;
  isStreaming(entity: CardEntity): boolean;
  isExpired(entity: CardEntity): boolean;
}

/** What cards may refer to, and the moods of the platform. */
export interface CardRules {
  readonly facts: CardFacts;
  /** The answer to a repeated `uuid` with the same request. */
  readonly duplicateUuid: DuplicateCardUuid;
  /** The first send of each entity is refused. */
  readonly invalidOnce: boolean;
}

export interface CardStoreParts {
  rules: CardRules;
  now: () => number;
  messages: MessageStore;
  announce: (message: SimMessage) => void;
}

export function cardBytes(json: JsonObject): number {
  return Buffer.byteLength(JSON.stringify(json), "utf8");
}

/** Whether a card of this size is refused: 30 KB of UTF-8 text (card create page). */
export function isTooLarge(bytes: number): boolean {
  return bytes > maximumBytes;
}

export function createCardStore({ rules, now, messages, announce }: CardStoreParts): CardStore {
  const byId = new Map<string, CardEntity>();
  const byMessage = new Map<string, CardEntity>();

  const isStreaming = ({ streamingSince }: CardEntity): boolean =>
    streamingSince !== undefined && now() - streamingSince < streamingLifetimeMs;

  const view = (entity: CardEntity): SimCardView => ({
    ...(entity.named ? { cardId: entity.cardId } : {}),
    json: entity.json,
    streaming: isStreaming(entity),
    version: entity.version,
  });

  const show = (entity: CardEntity): void => {
    entity.version += 1;
    if (entity.messageId === undefined) return;
    const change = { card: view(entity), text: cardText(entity.json), updatedAt: now() };
    const message = messages.change(entity.messageId, change);
    if (message !== undefined) announce(message);
  };

  const enable = (entity: CardEntity): void => {
    clearTimeout(entity.expiry);
    entity.streamingSince = asksForStreaming(entity.json) ? now() : undefined;
    if (entity.streamingSince === undefined) return;
    const end = (): void => {
      if (entity.streamingSince !== undefined && !isStreaming(entity)) show(entity);
    };
    entity.expiry = setTimeout(end, streamingLifetimeMs).unref();
  };

  return {
    ...rules,
    create({ appId, json, named }) {
      const entity = newEntity({ appId, json, named, createdAt: now() });
      enable(entity);
      byId.set(entity.cardId, entity);
      return entity;
    },
    get: (cardId) => byId.get(cardId),
    ofMessage: (messageId) => byMessage.get(messageId),
    attach(entity, messageId) {
      entity.messageId = messageId;
      byMessage.set(messageId, entity);
    },
    change(entity, json, { enable: enabling, bytes }) {
      entity.json = json;
      entity.bytes = bytes ?? cardBytes(json);
      if (enabling || !asksForStreaming(json)) enable(entity);
      show(entity);
    },
    view,
    describe(cardId) {
      const entity = byId.get(cardId);
      return entity === undefined ? undefined : described(entity, isStreaming(entity));
    },
    isStreaming,
    isExpired: (entity) => now() - entity.createdAt > lifetimeMs,
  };
}

function newEntity(card: { appId: string; json: JsonObject; named: boolean; createdAt: number }): CardEntity {
  return {
    ...card,
    cardId: newCardId(),
    bytes: cardBytes(card.json),
    version: 1,
    sequence: 0,
    streamingSince: undefined,
    uuids: new Map(),
    frames: createCardFrames(),
    operations: [],
    openClicks: 0,
    refusedSends: 0,
  };
}

/** Card ids are 19 digits. */
function newCardId(): string {
  return `7${nineDigits()}${nineDigits()}`;
}

function nineDigits(): string {
  return String(randomInt(1_000_000_000)).padStart(9, "0");
}

function asksForStreaming({ config }: JsonObject): boolean {
  return isJsonObject(config) && config.streaming_mode === true;
}

function described(entity: CardEntity, streaming: boolean): SimCard {
  const { cardId, appId, messageId, json, sequence } = entity;
  return {
    cardId,
    appId,
    ...(messageId === undefined ? {} : { messageId }),
    json,
    streaming,
    sequence,
    frames: entity.frames.list(),
    operations: [...entity.operations],
  };
}
