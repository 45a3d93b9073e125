import type { SimApp } from "./app.ts";
import { contentRefusal, refusedOnSend, refusing } from "./card-problem.ts";
import type { CardEntity } from "./card-store.ts";
import { cardText } from "./card-text.ts";
import { checkCard } from "./card-validator.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";
import { cardContent, type RenderedContent } from "./message-content.ts";
import type { NewMessage, SimMessage } from "./message-store.ts";
import type { Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

/** The card of a message to send: its fields, and the entity that the message will show. */
export interface SendableCard {
  fields: RenderedContent & Pick<NewMessage, "card">;
  entity: CardEntity;
}

/** Reads card content to send: a reference to an entity of this app, sent once, or the card itself. */
export function sendableCard(platform: Platform, app: SimApp, content: string): SendableCard {
  const parsed = cardContent(content);
  const entity =
    parsed.type === "card"
      ? referencedEntity(platform, app, parsed)
      : platform.cards.create({ appId: app.appId, json: inlineCard(platform, parsed), named: false });
  const card = platform.cards.view(entity);
  return { fields: { content, text: cardText(entity.json), mentions: [], card }, entity };
}

/** Puts the entity on the message. */
export function attachCard(platform: Platform, { entity }: SendableCard, messageId: string): void {
  platform.cards.attach(entity, messageId);
  if (entity.named) entity.operations.push({ op: "send", code: 0, at: platform.now() });
}

/** What PATCH puts on a message: a card in full, shared before and after. */
export function patchedCard(
  platform: Platform,
  message: SimMessage,
  content: string,
): { entity: CardEntity; json: JsonObject; content: string } {
  const json = inlineCard(platform, cardContent(content));
  const entity = platform.cards.ofMessage(message.messageId);
  if (entity === undefined || !isShared(entity.json) || !isShared(json)) {
    throw new PlatformError(230001, "Only a card with update_multi true can be updated.");
  }
  if (isDowngrade(entity.json, json)) throw contentRefusal(200830, "card schema V2 can not change to V1");
  return { entity, json, content };
}

/** A 2.0 card never becomes a 1.0 card again. */
export function isDowngrade(from: JsonObject, to: JsonObject): boolean {
  return from.schema === "2.0" && to.schema !== "2.0";
}

/** A card in full, checked. */
function inlineCard(platform: Platform, parsed: JsonObject): JsonObject {
  if (parsed.type === "template") throw contentRefusal(200380, "template is not existed");
  if (parsed.card_id !== undefined || isJsonObject(parsed.data)) {
    throw contentRefusal(200621, "parse card json err, please check whether the card json is correct");
  }
  refusing(refusedOnSend, () => checkCard(parsed, platform.cards.facts));
  return parsed;
}

/** Whether everybody sees the same card, which PATCH asks for: JSON 2.0, or 1.0 with `update_multi`. */
export function isShared(card: JsonObject): boolean {
  return card.schema === "2.0" || (isJsonObject(card.config) && card.config.update_multi === true);
}

function referencedEntity(platform: Platform, app: SimApp, { data }: JsonObject): CardEntity {
  const cardId = isJsonObject(data) ? data.card_id : undefined;
  const entity = typeof cardId === "string" ? platform.cards.get(cardId) : undefined;
  if (entity === undefined || entity.appId !== app.appId || !entity.named || platform.cards.isExpired(entity)) {
    throw contentRefusal(11310, "cardid is invalid");
  }
  if (platform.cards.invalidOnce && entity.refusedSends === 0) {
    entity.refusedSends += 1;
    return refuseSend(platform, entity, "cardid is invalid");
  }
  if (entity.messageId !== undefined) return refuseSend(platform, entity, "card entity can only be sent once");
  return entity;
}

function refuseSend(platform: Platform, entity: CardEntity, reason: string): never {
  entity.operations.push({ op: "send", code: 230099, at: platform.now() });
  throw contentRefusal(11310, reason);
}
