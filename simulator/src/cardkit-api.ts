import { hash } from "node:crypto";
import { type CardEntity, cardBytes, isTooLarge, type CardOperationName } from "./card-store.ts";
import {
  CardProblem,
  checkCard,
  refusing,
  refusedByCardKit,
  findElement,
  withValueAt,
  checkCardTexts,
  configProblem,
  withSplicedList,
  type CardNode,
  type CardPath,
  valueAt,
} from "./card-validator.ts";
import { type Platform, liveMessage } from "./platform.ts";
import type { ApiRoute, ApiCallContext } from "./api-route.ts";
import {
  type JsonObject,
  PlatformError,
  isJsonObject,
  success,
  parseJsonObject,
} from "./open-api.ts";

const cards = "/open-apis/cardkit/v1/cards";
const cardPath = `${cards}/:card_id`;
const elementPath = `${cardPath}/elements/:element_id`;

/** Card entities (CardKit v1). Refusals come with the codes of its error matrix. */
export function cardKitRoutes(platform: Platform): ApiRoute[] {
  const operation = (method: string, path: string, { op, apply }: CardOperation): ApiRoute => ({
    method,
    path,
    handle: (call) => runOperation(platform, call, { op, apply }),
  });
  const edit = (
    change: (call: ApiCallContext, json: JsonObject) => Edit,
  ): CardOperation["apply"] => {
    return (entity, call) => commit(platform, entity, change(call, entity.json));
  };
  return [
    { method: "POST", path: cards, handle: (call) => create(platform, call) },
    { method: "POST", path: `${cards}/id_convert`, handle: (call) => convertId(platform, call) },
    operation("PATCH", `${cardPath}/settings`, { op: "settings", apply: edit(changeSettings) }),
    operation("PUT", cardPath, { op: "update", apply: edit(replaceCard) }),
    operation("POST", `${cardPath}/batch_update`, { op: "batch_update", apply: edit(runBatch) }),
    operation("POST", `${cardPath}/elements`, { op: "add_elements", apply: edit(addElements) }),
    operation("PUT", elementPath, { op: "update_element", apply: edit(replaceElement) }),
    operation("PATCH", elementPath, { op: "patch_element", apply: edit(patchElement) }),
    operation("DELETE", elementPath, { op: "delete_element", apply: edit(deleteElement) }),
    operation("PUT", `${elementPath}/content`, {
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
  return (
    header === undefined &&
    (elements === undefined || (Array.isArray(elements) && elements.length === 0))
  );
}

function create(platform: Platform, call: ApiCallContext): JsonObject {
  const json = refusing(refusedByCardKit, () => {
    const parsed = cardArgument(call.body);
    checkedBytes(platform, parsed);
    return parsed;
  });
  const entity = platform.cards.create({ appId: call.app.appId, json, named: true });
  entity.operations.push({ op: "create", code: 0, at: platform.clock.now() });
  return success({ card_id: entity.cardId });
}

function cardArgument(body: JsonObject): JsonObject {
  if (body.type === "template") {
    throw new PlatformError(200220, "ErrCode: 200380; ErrMsg: template is not existed;");
  }
  if (body.type !== "card_json") throw parameterError("type must be card_json or template");
  return objectArgument(body, "data");
}

/** Names the entity of a message's card, so that the card API can work on it (`card.idConvert` of the SDKs). */
function convertId(platform: Platform, call: ApiCallContext): JsonObject {
  const messageId = textArgument(call.body, "message_id");
  const { message } = liveMessage(platform, { ...call, params: { message_id: messageId } });
  const entity = platform.cards.ofMessage(message.messageId);
  if (entity === undefined) throw parameterError("the message is not a card");
  if (entity.appId !== call.app.appId) {
    throw new PlatformError(300311, "the card belongs to another app");
  }
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
  return {
    json: withElements(json, { type, targetId, elements: listArgument(call.body, "elements") }),
    enable: false,
  };
}

function replaceElement(call: ApiCallContext, json: JsonObject): Edit {
  const replacement = objectArgument(call.body, "element");
  return {
    json: withReplacedElement(json, call.params.element_id ?? "", replacement),
    enable: false,
  };
}

function patchElement(call: ApiCallContext, json: JsonObject): Edit {
  const partial = objectArgument(call.body, "partial_element");
  return { json: withPatchedElement(json, call.params.element_id ?? "", partial), enable: false };
}

function deleteElement(call: ApiCallContext, json: JsonObject): Edit {
  return { json: withoutElement(json, call.params.element_id ?? ""), enable: false };
}

const operationsPerSecond = 10;
const maximumSequence = 2_147_483_647;
const maximumUuidLength = 64;

/** An operation on a card entity; `apply` throws PlatformError or CardProblem and then changes nothing. */
interface CardOperation {
  op: CardOperationName;
  apply: (entity: CardEntity, call: ApiCallContext) => void;
}

/**
 * Runs an operation of the card API (CardKit pages): own living card, `uuid`, then `sequence` before anything else is
 * looked at, then no click that waits for its answer. Only an operation that is applied uses up its sequence.
 */
function runOperation(
  platform: Platform,
  call: ApiCallContext,
  { op, apply }: CardOperation,
): JsonObject {
  const entity = ownEntity(platform, call);
  const sequence = typeof call.body.sequence === "number" ? call.body.sequence : undefined;
  const record = (code: number): void => {
    entity.operations.push({
      op,
      ...(sequence === undefined ? {} : { sequence }),
      code,
      at: platform.clock.now(),
    });
  };
  try {
    refusing(refusedByCardKit, () => applyOnce(platform, call, { entity, apply }));
  } catch (error) {
    record(error instanceof PlatformError ? error.code : -1);
    throw error;
  }
  record(0);
  return success({});
}

interface Run {
  entity: CardEntity;
  apply: CardOperation["apply"];
}

function applyOnce(platform: Platform, call: ApiCallContext, { entity, apply }: Run): void {
  // The guide states 10 operations a second for each card; clients have met it as 230020 while streaming, so it is
  // taken for a business limit, not for the gateway's 99991400.
  platform.limiter.checkBusiness(`card ${entity.cardId}`, operationsPerSecond);
  const sequence = checkedSequence(call.body.sequence);
  const uuid = checkedUuid(call.body.uuid);
  const request = uuid === undefined ? "" : hash("sha1", JSON.stringify([call.params, call.body]));
  const earlier = uuid === undefined ? undefined : entity.uuids.get(uuid);
  if (earlier !== undefined && isReplay(platform, request === earlier)) return;
  if (sequence <= entity.sequence) {
    throw new PlatformError(300317, `sequence ${sequence} must be greater than ${entity.sequence}`);
  }
  if (entity.openClicks > 0) {
    throw new PlatformError(200810, "ErrCode: 11310; ErrMsg: card action is lock;");
  }
  apply(entity, call);
  entity.sequence = sequence;
  if (uuid !== undefined) entity.uuids.set(uuid, request);
}

/** A repeated `uuid` with the same request is applied already; with another request it is a conflict. */
function isReplay(platform: Platform, sameRequest: boolean): boolean {
  if (!sameRequest || platform.cards.duplicateUuid === "conflict") {
    throw new PlatformError(200770, "uuid conflict");
  }
  return platform.cards.duplicateUuid === "success";
}

function ownEntity(platform: Platform, call: ApiCallContext): CardEntity {
  const entity = platform.cards.get(call.params.card_id ?? "");
  // What becomes of the entity of a recalled message is not documented; treated as missing, so that no code relies on it.
  const message =
    entity?.messageId === undefined ? undefined : platform.messages.get(entity.messageId);
  if (entity === undefined || !entity.named || message?.recalled === true) {
    throw new PlatformError(200740, "card entity not exist");
  }
  if (entity.appId !== call.app.appId) {
    throw new PlatformError(300311, "the card belongs to another app");
  }
  if (platform.cards.isExpired(entity)) throw new PlatformError(200750, "card entity is expired");
  return entity;
}

function checkedSequence(value: unknown): number {
  if (
    typeof value === "number" &&
    Number.isInteger(value) &&
    value >= 1 &&
    value <= maximumSequence
  ) {
    return value;
  }
  throw parameterError(`sequence must be an integer from 1 to ${maximumSequence}`);
}

function checkedUuid(value: unknown): string | undefined {
  if (value === undefined || value === "") return undefined;
  if (typeof value === "string" && value.length <= maximumUuidLength) return value;
  throw parameterError(`uuid must be a string of 1 to ${maximumUuidLength} characters`);
}

function parameterError(reason: string): PlatformError {
  return new PlatformError(10002, `invalid parameter: ${reason}`);
}

function textArgument(body: JsonObject, field: string): string {
  const value = body[field];
  if (typeof value !== "string" || value === "") throw parameterError(`${field} is required`);
  return value;
}

/** A JSON object that the field carries as text. */
function objectArgument(body: JsonObject, field: string): JsonObject {
  const value = parseJsonObject(textArgument(body, field));
  if (value === undefined) throw new CardProblem("malformed", `${field} is not a JSON object`);
  return value;
}

/** A JSON list that the field carries as text. */
function listArgument(body: JsonObject, field: string): unknown[] {
  const value = parsedJson(textArgument(body, field));
  if (!Array.isArray(value) || value.length === 0) {
    throw parameterError(`${field} is not a JSON list with entries`);
  }
  return value;
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const maximumLength = 100_000;
const streamable = new Set(["markdown", "plain_text"]);

/** Sets the full text of a streamed element (streaming text page): only while the card streams. */
function applyContent(platform: Platform, entity: CardEntity, call: ApiCallContext): void {
  const { content } = call.body;
  if (typeof content !== "string" || content.length === 0 || content.length > maximumLength) {
    throw parameterError(`content must have 1 to ${maximumLength} characters`);
  }
  checkStreaming(platform, entity);
  const elementId = call.params.element_id ?? "";
  const target = findElement(entity.json, elementId);
  if (target === undefined) throw new PlatformError(300313, `element ${elementId} not found`);
  if (!streamable.has(target.tag)) {
    throw new PlatformError(300310, `element ${elementId} is not a text element`);
  }
  const shown = typeof target.node.content === "string" ? target.node.content : "";
  const bytes = entity.bytes + jsonBytes(content) - jsonBytes(shown);
  if (isTooLarge(bytes)) throw new PlatformError(200860, "card content exceeds the limit of 30 KB");
  const json = withValueAt(entity.json, [...target.path, "content"], content);
  refusing(refusedByCardKit, () => checkCardTexts(json, platform.cards.facts));
  entity.frames.add({ elementId, text: content, shown, at: platform.clock.now() });
  platform.cards.change(entity, json, { enable: false, bytes });
}

/** The first late text gets the error that streaming timed out; from then on streaming is off. */
function checkStreaming(platform: Platform, entity: CardEntity): void {
  if (entity.streamingSince === undefined) {
    throw new PlatformError(300309, "streaming mode is closed");
  }
  if (platform.cards.isStreaming(entity)) return;
  const json = withValueAt(entity.json, ["config", "streaming_mode"], false);
  platform.cards.change(entity, json, { enable: true });
  throw new PlatformError(200850, "card streaming timeout");
}

function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text), "utf8");
}

/** Each edit returns the changed card; refusals are those of the CardKit error matrix. */

/** Merges `config` and `card_link`; a bare `streaming_mode` is taken too, as clients in the field send it. */
function withSettings(card: JsonObject, settings: JsonObject): JsonObject {
  const { config, card_link: link, ...bare } = settings;
  const names = Object.keys(bare);
  if (names.some((name) => name !== "streaming_mode")) {
    throw new PlatformError(300122, `unknown settings ${names.join()}`);
  }
  const changes = { ...bare, ...objectOrNothing(config) };
  const merged = { ...card, config: { ...objectOrNothing(card.config), ...changes } };
  const problem = configProblem(merged.config);
  if (problem !== undefined) throw new PlatformError(300122, problem);
  return link === undefined ? merged : { ...merged, card_link: link };
}

function objectOrNothing(value: unknown): JsonObject {
  if (value === undefined) return {};
  if (!isJsonObject(value)) throw new PlatformError(300122, "config must be an object");
  return value;
}

interface Addition {
  type: unknown;
  targetId: unknown;
  elements: readonly unknown[];
}

/** Inserts before or after an element, or at the end of a container; without a target, of the body. */
function withElements(card: JsonObject, { type, targetId, elements }: Addition): JsonObject {
  if (type === "append" && (targetId === undefined || targetId === "")) {
    const path = ["body", "elements"];
    return withSplicedList(card, path, {
      index: listLength(card, path),
      count: 0,
      items: elements,
    });
  }
  if (type !== "append" && type !== "insert_before" && type !== "insert_after") {
    throw parameterError("type must be insert_before, insert_after or append");
  }
  const target = findElement(card, String(targetId));
  if (target === undefined) {
    throw new PlatformError(300315, `target element ${String(targetId)} not found`);
  }
  if (type === "append") return appended(card, target, elements);
  const { list, index } = placeOf(target, 300315);
  return withSplicedList(card, list, {
    index: type === "insert_before" ? index : index + 1,
    count: 0,
    items: elements,
  });
}

function appended(
  card: JsonObject,
  { node, path }: CardNode,
  elements: readonly unknown[],
): JsonObject {
  const list = Array.isArray(node.columns) ? "columns" : "elements";
  if (!Array.isArray(node[list])) {
    throw new PlatformError(300315, "the target element is not a container");
  }
  const inside = [...path, list];
  return withSplicedList(card, inside, {
    index: listLength(card, inside),
    count: 0,
    items: elements,
  });
}

function withoutElement(card: JsonObject, elementId: string): JsonObject {
  const target = findElement(card, elementId);
  if (target === undefined) throw new PlatformError(300314, `element ${elementId} not found`);
  const { list, index } = placeOf(target, 300314);
  return withSplicedList(card, list, { index, count: 1, items: [] });
}

function withReplacedElement(card: JsonObject, elementId: string, element: JsonObject): JsonObject {
  const target = findElement(card, elementId);
  if (target === undefined) throw new PlatformError(300121, `element ${elementId} not found`);
  return withValueAt(card, target.path, element);
}

/** Sets the given properties; the tag stays. */
function withPatchedElement(card: JsonObject, elementId: string, partial: JsonObject): JsonObject {
  const target = findElement(card, elementId);
  if (target === undefined) throw new PlatformError(300313, `element ${elementId} not found`);
  if (partial.tag !== undefined && partial.tag !== target.tag) {
    throw new PlatformError(300312, `the tag of ${elementId} cannot be changed`);
  }
  return withValueAt(card, target.path, { ...target.node, ...partial });
}

/** Applies a list of actions in order, all or none. */
function withActions(
  card: JsonObject,
  actions: readonly unknown[],
): { card: JsonObject; settings: JsonObject[] } {
  let changed = card;
  const settings: JsonObject[] = [];
  for (const action of actions) {
    if (!isJsonObject(action) || !isJsonObject(action.params)) {
      throw parameterError("an action needs action and params");
    }
    const apply = typeof action.action === "string" ? batchActions[action.action] : undefined;
    if (apply === undefined) throw parameterError(`action ${String(action.action)} is unknown`);
    changed = apply(changed, action.params);
    if (isJsonObject(action.params.settings)) settings.push(action.params.settings);
  }
  return { card: changed, settings };
}

const batchActions: Readonly<Record<string, (card: JsonObject, params: JsonObject) => JsonObject>> =
  {
    partial_update_setting: (card, { settings }) =>
      withSettings(card, asObject(settings, "settings")),
    add_elements: (card, { type, target_element_id: targetId, elements }) =>
      withElements(card, { type, targetId, elements: asList(elements, "elements") }),
    delete_elements: (card, { element_ids: ids }) =>
      asList(ids, "element_ids").reduce(
        (left: JsonObject, id) => withoutElement(left, String(id)),
        card,
      ),
    partial_update_element: (card, { element_id: id, partial_element: partial }) =>
      withPatchedElement(card, String(id), asObject(partial, "partial_element")),
    update_element: (card, { element_id: id, element }) =>
      withReplacedElement(card, String(id), asObject(element, "element")),
  };

/** Inner values of a batch are objects, not text. */
function asObject(value: unknown, field: string): JsonObject {
  if (!isJsonObject(value)) throw new CardProblem("malformed", `${field} must be an object`);
  return value;
}

function asList(value: unknown, field: string): unknown[] {
  if (!Array.isArray(value)) throw new CardProblem("malformed", `${field} must be a list`);
  return value;
}

/** The list that holds an element; a text inside a component is in none. */
function placeOf({ path }: CardNode, code: number): { list: CardPath; index: number } {
  const index = path.at(-1);
  if (typeof index !== "number") {
    throw new PlatformError(code, "the element is a part of a component");
  }
  return { list: path.slice(0, -1), index };
}

function listLength(card: JsonObject, path: CardPath): number {
  const list = valueAt(card, path);
  return Array.isArray(list) ? list.length : 0;
}
