import { CardProblem } from "./card-problem.ts";
import { configProblem } from "./card-shape.ts";
import { findElement, valueAt, withSplicedList, withValueAt, type CardNode, type CardPath } from "./card-tree.ts";
import { parameterError } from "./cardkit-call.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";
import { PlatformError } from "./platform-error.ts";

/** Each edit returns the changed card; refusals are those of the CardKit error matrix. */

/** Merges `config` and `card_link`; a bare `streaming_mode` is taken too, as clients in the field send it. */
export function withSettings(card: JsonObject, settings: JsonObject): JsonObject {
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

export interface Addition {
  type: unknown;
  targetId: unknown;
  elements: readonly unknown[];
}

/** Inserts before or after an element, or at the end of a container; without a target, of the body. */
export function withElements(card: JsonObject, { type, targetId, elements }: Addition): JsonObject {
  if (type === "append" && (targetId === undefined || targetId === "")) {
    const path = ["body", "elements"];
    return withSplicedList(card, path, { index: listLength(card, path), count: 0, items: elements });
  }
  if (type !== "append" && type !== "insert_before" && type !== "insert_after") {
    throw parameterError("type must be insert_before, insert_after or append");
  }
  const target = findElement(card, String(targetId));
  if (target === undefined) throw new PlatformError(300315, `target element ${String(targetId)} not found`);
  if (type === "append") return appended(card, target, elements);
  const { list, index } = placeOf(target, 300315);
  return withSplicedList(card, list, {
    index: type === "insert_before" ? index : index + 1,
    count: 0,
    items: elements,
  });
}

function appended(card: JsonObject, { node, path }: CardNode, elements: readonly unknown[]): JsonObject {
  const list = Array.isArray(node.columns) ? "columns" : "elements";
  if (!Array.isArray(node[list])) throw new PlatformError(300315, "the target element is not a container");
  const inside = [...path, list];
  return withSplicedList(card, inside, { index: listLength(card, inside), count: 0, items: elements });
}

export function withoutElement(card: JsonObject, elementId: string): JsonObject {
  const target = findElement(card, elementId);
  if (target === undefined) throw new PlatformError(300314, `element ${elementId} not found`);
  const { list, index } = placeOf(target, 300314);
  return withSplicedList(card, list, { index, count: 1, items: [] });
}

export function withReplacedElement(card: JsonObject, elementId: string, element: JsonObject): JsonObject {
  const target = findElement(card, elementId);
  if (target === undefined) throw new PlatformError(300121, `element ${elementId} not found`);
  return withValueAt(card, target.path, element);
}

/** Sets the given properties; the tag stays. */
export function withPatchedElement(card: JsonObject, elementId: string, partial: JsonObject): JsonObject {
  const target = findElement(card, elementId);
  if (target === undefined) throw new PlatformError(300313, `element ${elementId} not found`);
  if (partial.tag !== undefined && partial.tag !== target.tag) {
    throw new PlatformError(300312, `the tag of ${elementId} cannot be changed`);
  }
  return withValueAt(card, target.path, { ...target.node, ...partial });
}

/** Applies a list of actions in order, all or none. */
export function withActions(
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

const batchActions: Readonly<Record<string, (card: JsonObject, params: JsonObject) => JsonObject>> = {
  partial_update_setting: (card, { settings }) => withSettings(card, asObject(settings, "settings")),
  add_elements: (card, { type, target_element_id: targetId, elements }) =>
    withElements(card, { type, targetId, elements: asList(elements, "elements") }),
  delete_elements: (card, { element_ids: ids }) =>
    asList(ids, "element_ids").reduce((left: JsonObject, id) => withoutElement(left, String(id)), card),
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
  if (typeof index !== "number") throw new PlatformError(code, "the element is a part of a component");
  return { list: path.slice(0, -1), index };
}

function listLength(card: JsonObject, path: CardPath): number {
  const list = valueAt(card, path);
  return Array.isArray(list) ? list.length : 0;
}
