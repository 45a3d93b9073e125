import { CardProblem } from "./card-problem.ts";
import { cardShape, sharedProperties, tagRules, type PropertyRule, type Shape } from "./card-tags.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";

/** Checks tags, properties and kinds of values of a 2.0 card; the first thing wrong is thrown as CardProblem. */
export function checkCardShape(card: JsonObject): void {
  checkShape(card, cardShape, "card");
}

/** What is wrong with the `config` of a 2.0 card. */
export function configProblem(config: JsonObject): string | undefined {
  try {
    checkProperty(config, cardShape.properties.config ?? "object", "card.config");
    return undefined;
  } catch (error) {
    if (error instanceof CardProblem) return error.message;
    throw error;
  }
}

function checkShape(value: unknown, { properties, required = [] }: Shape, where: string): void {
  if (!isJsonObject(value)) throw wrong(where, "must be an object");
  for (const [name, item] of Object.entries(value)) {
    const rule = properties[name];
    if (rule === undefined) throw new CardProblem("invalid", `unknown property ${name} of ${where}`);
    checkProperty(item, rule, `${where}.${name}`);
  }
  for (const name of required) if (value[name] === undefined) throw wrong(`${where}.${name}`, "is required");
}

function checkProperty(value: unknown, rule: PropertyRule, where: string): void {
  if (typeof rule === "string") return checkKind(value, rule, where);
  if (isWordList(rule)) {
    if (!rule.includes(String(value))) throw wrong(where, `must be one of ${rule.join(", ")}`);
    return;
  }
  if ("tag" in rule) return checkTagged(value, rule.tag, where);
  if ("tags" in rule) return eachItem(value, where, (item, place) => checkTagged(item, rule.tags, place));
  if ("shape" in rule) return checkShape(value, rule.shape, where);
  eachItem(value, where, (item, place) => checkShape(item, rule.shapes, place));
}

function isWordList(rule: Exclude<PropertyRule, string>): rule is readonly string[] {
  return Array.isArray(rule);
}

const kinds: Readonly<Record<string, (value: unknown) => boolean>> = {
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  boolean: (value) => typeof value === "boolean",
  strings: (value) => Array.isArray(value) && value.every((item) => typeof item === "string"),
  object: isJsonObject,
  any: () => true,
};

function checkKind(value: unknown, kind: string, where: string): void {
  if (kind === "elements") return eachItem(value, where, checkComponent);
  if (kinds[kind]?.(value) !== true) throw wrong(where, `must be of kind ${kind}`);
}

function checkComponent(value: unknown, where: string): void {
  checkTagged(value, undefined, where);
}

/** Without a list of tags, any component may stand here. */
function checkTagged(value: unknown, allowed: readonly string[] | undefined, where: string): void {
  if (!isJsonObject(value)) throw wrong(where, "must be an object with a tag");
  const tag = String(value.tag);
  const rule = Object.hasOwn(tagRules, tag) ? tagRules[tag] : undefined;
  const fits = allowed === undefined ? rule !== undefined && rule.place !== "part" : allowed.includes(tag);
  if (rule === undefined || !fits) {
    const message = value.tag === undefined ? `${where} has no tag` : `not support tag: ${tag} at ${where}`;
    throw new CardProblem("unknown_tag", message);
  }
  const properties = { ...sharedProperties, ...rule.properties };
  checkShape(value, { properties, required: rule.required ?? [] }, `${where}(${tag})`);
}

function eachItem(value: unknown, where: string, check: (item: unknown, place: string) => void): void {
  if (!Array.isArray(value)) throw wrong(where, "must be a list");
  for (const [index, item] of value.entries()) check(item, `${where}[${index}]`);
}

function wrong(where: string, reason: string): CardProblem {
  return new CardProblem("invalid", `${where} ${reason}`);
}
