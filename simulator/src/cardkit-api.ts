import { CardProblem, refusedByCardKit, refusing } from "./card-problem.ts";
import { cardBytes, isTooLarge, type CardEntity } from "./card-store.ts";
import { checkCard } from "./card-validator.ts";
import { listArgument, objectArgument, parameterError, runOperation, textArgument } from "./cardkit-call.ts";
import type { CardOperation } from "./cardkit-call.ts";
import { applyContent } from "./cardkit-content.ts";
import {
  withActions,
  withElements,
  withoutElement,
  withPatchedElement,
  withReplacedElement,
  withSettings,
} from "./cardkit-edit.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";
import { liveMessage } from "./message-lookup.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

const cards = "/open-apis/cardkit/v1/cards";
const card = `${cards}/:card_id`;
const element = `${card}/elements/:element_id`;

/** Card entities (CardKit v1). Refusals come with the codes of its error matrix. */
export function cardKitRoutes(platform: Platform): ApiRoute[] {
  const operation = (method: string, path: string, { op, apply }: CardOperation): ApiRoute => ({
    method,
    path,
    handle: (call) => runOperation(platform, call, { op, apply }),
  });
  const edit = (change: (call: ApiCallContext, json: JsonObject) => Edit): CardOperation["apply"] => {
    return (entity, call) => commit(platform, entity, change(call, entity.json));
  };
  return [
    { method: "POST", path: cards, handle: (call) => create(platform, call) },
    { method: "POST", path: `${cards}/id_convert`, handle: (call) => convertId(platform, call) },
    operation("PATCH", `${card}/settings`, { op: "settings", apply: edit(changeSettings) }),
    operation("PUT", card, { op: "update", apply: edit(replaceCard) }),
    operation("POST", `${card}/batch_update`, { op: "batch_update", apply: edit(runBatch) }),
    operation("POST", `${card}/elements`, { op: "add_elements", apply: edit(addElements) }),
    operation("PUT", element, { op: "update_element", apply: edit(replaceElement) }),
    operation("PATCH", element, { op: "patch_element", apply: edit(patchElement) }),
    operation("DELETE", element, { op: "delete_element", apply: edit(deleteElement) }),
    operation("PUT", `${element}/content`, {
      op: "content",
      apply: (entity, call) => applyContent(platform, entity, call),
    }),
  ];
}

/** The card after an operation; `enable`: a streaming mode in it starts its 10 minutes anew. */
interface Edit {
  json: JsonObject;
  enable: boolean;
}

function commit(platform: Platform, entity: CardEntity, { json, enable }: Edit): void {
  const bytes = checkedBytes(platform, json);
  platform.cards.change(entity, json, { enable, bytes });
}

/** The checks of a whole card, as every operation makes them on its result. */
function checkedBytes(platform: Platform, json: JsonObject): number {
  if (isBlank(json)) throw new CardProblem("empty", "card content is empty");
  if (json.schema !== "2.0") throw new CardProblem("schema", "only schema 2.0 is supported");
  const bytes = cardBytes(json);
  if (isTooLarge(bytes)) throw new PlatformError(200860, "card content exceeds the limit of 30 KB");
  checkCard(json, platform.cards.facts);
  return bytes;
}

/** Nothing to show: neither a header nor anything in the body. */
function isBlank({ header, body }: JsonObject): boolean {
  const elements = isJsonObject(body) ? body.elements : undefined;
  return header === undefined && (elements === undefined || (Array.isArray(elements) && elements.length === 0));
}

function create(platform: Platform, call: ApiCallContext): JsonObject {
  const json = refusing(refusedByCardKit, () => {
    const parsed = cardArgument(call.body);
    checkedBytes(platform, parsed);
    return parsed;
  });
  const entity = platform.cards.create({ appId: call.app.appId, json, named: true });
  entity.operations.push({ op: "create", code: 0, at: platform.now() });
  return success({ card_id: entity.cardId });
}

function cardArgument(body: JsonObject): JsonObject {
  if (body.type === "template") throw new PlatformError(200220, "ErrCode: 200380; ErrMsg: template is not existed;");
  if (body.type !== "card_json") throw parameterError("type must be card_json or template");
  return objectArgument(body, "data");
}

/** Names the entity of a message's card, so that the card API can work on it (`card.idConvert` of the SDKs). */
function convertId(platform: Platform, call: ApiCallContext): JsonObject {
  const messageId = textArgument(call.body, "message_id");
  const { message } = liveMessage(platform, { ...call, params: { message_id: messageId } });
  const entity = platform.cards.ofMessage(message.messageId);
  if (entity === undefined) throw parameterError("the message is not a card");
  if (entity.appId !== call.app.appId) throw new PlatformError(300311, "the card belongs to another app");
  if (entity.json.schema !== "2.0") throw new PlatformError(300303, "only schema 2.0 is supported");
  entity.named = true;
  return success({ card_id: entity.cardId });
}

function changeSettings(call: ApiCallContext, json: JsonObject): Edit {
  const settings = objectArgument(call.body, "settings");
  return { json: withSettings(json, settings), enable: namesStreaming(settings) };
}

function namesStreaming({ config, streaming_mode: bare }: JsonObject): boolean {
  return bare !== undefined || (isJsonObject(config) && config.streaming_mode !== undefined);
}

function replaceCard(call: ApiCallContext): Edit {
  if (!isJsonObject(call.body.card)) throw parameterError("card is required");
  return { json: cardArgument(call.body.card), enable: true };
}

function runBatch(call: ApiCallContext, json: JsonObject): Edit {
  const { card: changed, settings } = withActions(json, listArgument(call.body, "actions"));
  return { json: changed, enable: settings.some(namesStreaming) };
}

function addElements(call: ApiCallContext, json: JsonObject): Edit {
  const { type, target_element_id: targetId } = call.body;
  return { json: withElements(json, { type, targetId, elements: listArgument(call.body, "elements") }), enable: false };
}

function replaceElement(call: ApiCallContext, json: JsonObject): Edit {
  const replacement = objectArgument(call.body, "element");
  return { json: withReplacedElement(json, call.params.element_id ?? "", replacement), enable: false };
}

function patchElement(call: ApiCallContext, json: JsonObject): Edit {
  const partial = objectArgument(call.body, "partial_element");
  return { json: withPatchedElement(json, call.params.element_id ?? "", partial), enable: false };
}

function deleteElement(call: ApiCallContext, json: JsonObject): Edit {
  return { json: withoutElement(json, call.params.element_id ?? ""), enable: false };
}
