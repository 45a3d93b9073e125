import { isJsonObject, type JsonObject } from "./json-fields.ts";

export type CardPath = readonly (string | number)[];

/** A tagged object of a card and where it stands. */
export interface CardNode {
  node: JsonObject;
  tag: string;
  path: CardPath;
  /** The tags around it, outermost first. */
  parents: readonly string[];
}

/** Values that authors fill freely: what looks like a component there is none. */
const opaque = new Set(["value", "chart_spec", "rows", "style", "i18n_content"]);

/** Every tagged object of a card, in reading order. */
export function cardNodes(root: unknown): CardNode[] {
  const found: CardNode[] = [];
  const visit = (value: unknown, path: CardPath, parents: readonly string[]): void => {
    if (Array.isArray(value)) {
      for (const [index, item] of value.entries()) visit(item, [...path, index], parents);
      return;
    }
    if (!isJsonObject(value)) return;
    const tag = typeof value.tag === "string" ? value.tag : undefined;
    if (tag !== undefined) found.push({ node: value, tag, path, parents });
    const inside = tag === undefined ? parents : [...parents, tag];
    for (const [key, item] of Object.entries(value)) if (!opaque.has(key)) visit(item, [...path, key], inside);
  };
  visit(root, [], []);
  return found;
}

/** The tagged object with this `element_id`. */
export function findElement(card: JsonObject, elementId: string): CardNode | undefined {
  return cardNodes(card).find(({ node }) => node.element_id === elementId);
}

export function valueAt(root: unknown, path: CardPath): unknown {
  let value = root;
  for (const key of path) {
    if (Array.isArray(value) && typeof key === "number") value = value[key];
    else value = isJsonObject(value) ? value[String(key)] : undefined;
  }
  return value;
}

/** A copy of the card with another value at the path; everything beside the path is kept, not copied. */
export function withValueAt(root: JsonObject, path: CardPath, value: unknown): JsonObject {
  const changed = replaced(root, path, value);
  return isJsonObject(changed) ? changed : root;
}

function replaced(current: unknown, path: CardPath, value: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return value;
  if (Array.isArray(current)) {
    return current.map((item: unknown, index) => (index === key ? replaced(item, rest, value) : item));
  }
  const object = isJsonObject(current) ? current : {};
  return { ...object, [String(key)]: replaced(object[String(key)], rest, value) };
}

/** A copy of the card whose list at the path is changed: `count` items from `index` on give way to `items`. */
export function withSplicedList(
  root: JsonObject,
  path: CardPath,
  splice: { index: number; count: number; items: readonly unknown[] },
): JsonObject {
  const current = valueAt(root, path);
  const list: unknown[] = Array.isArray(current) ? [...current] : [];
  list.splice(splice.index, splice.count, ...splice.items);
  return withValueAt(root, path, list);
}
