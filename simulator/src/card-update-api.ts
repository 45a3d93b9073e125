import { isDowngrade, isShared } from "./card-message.ts";
import { CardProblem } from "./card-problem.ts";
import { cardBytes, isTooLarge, type CardEntity } from "./card-store.ts";
import { checkCard } from "./card-validator.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

/** The delayed update of a card that a person has used (delayed update page). */
export function cardUpdateRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "POST",
      path: "/open-apis/interactive/v1/card/update",
      handle: (call) => update(platform, call),
    },
  ];
}

function update(platform: Platform, call: ApiCallContext): JsonObject {
  const { token: value, card } = call.body;
  if (typeof value !== "string" || !isJsonObject(card)) throw new PlatformError(10002, "token and card are required");
  const token = platform.cardTokens.usable(value);
  const entity = platform.cards.ofMessage(token.messageId);
  if (entity === undefined || entity.appId !== call.app.appId) {
    throw new PlatformError(200310, "the card belongs to another app");
  }
  if (platform.messages.get(token.messageId)?.recalled === true) {
    throw new PlatformError(200000, "the message of the card was recalled");
  }
  const { open_ids: openIds, ...json } = card;
  checkUpdate(platform, entity, { json, openIds });
  token.uses += 1;
  platform.cards.change(entity, json, { enable: true });
  return success({});
}

function checkUpdate(
  platform: Platform,
  entity: CardEntity,
  { json, openIds }: { json: JsonObject; openIds: unknown },
): void {
  if (json.type === "template") throw new PlatformError(10002, "template is not existed");
  if (isDowngrade(entity.json, json)) throw new PlatformError(200830, "card schema V2 can not change to V1");
  if (!isShared(json) && (!Array.isArray(openIds) || openIds.length === 0)) {
    throw new PlatformError(300090, "open_ids is required for a card that is not shared");
  }
  if (isTooLarge(cardBytes(json))) throw new PlatformError(100000, "the card is too large");
  try {
    checkCard(json, platform.cards.facts);
  } catch (error) {
    throw error instanceof CardProblem ? new PlatformError(11311, error.message) : error;
  }
}
