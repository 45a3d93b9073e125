import {
  tagRules,
  cardShape,
  type Shape,
  type PropertyRule,
  sharedProperties,
} from "./card-tags.ts";
import { type JsonObject, isJsonObject, PlatformError } from "./open-api.ts";

const maximumElements = 200;
const maximumDepth = 5;
const maximumTableComponents = 5;
/** One component may hold 4, but the fourth in a card has been met as refused (markdown component page; practice). */
const maximumMarkdownTables = 3;
const maximumColumns = 50;
const maximumButtonTextLength = 100;
const maximumInputLength = 1000;
/** Languages of texts (configure multi-language content). */
const locales = new Set(
  "en_us zh_cn zh_hk zh_tw ja_jp id_id vi_vn th_th pt_br es_es ko_kr de_de fr_fr it_it ru_ru ms_my".split(
    " ",
  ),
);

/** What a card may refer to. */
export interface CardFacts {
  isPerson: (openId: string) => boolean;
  isImage: (imageKey: string) => boolean;
}

/** Checks a card of either version; the first thing wrong is thrown as CardProblem. */
export function checkCard(card: JsonObject, facts: CardFacts): void {
  if (card.schema === undefined) return checkOldCard(card);
  if (card.schema !== "2.0") {
    throw new CardProblem("schema", `schema ${String(card.schema)} is unknown`);
  }
  checkCardShape(card);
  const config = isJsonObject(card.config) ? card.config : {};
  if (config.update_multi === false) {
    throw new CardProblem("not_shared", "update_multi must be true");
  }
  const nodes = cardNodes(card);
  checkIds(nodes);
  checkCounts(nodes);
  checkForms(nodes);
  for (const { node, tag } of nodes) checkLanguages(node.i18n_content, tag);
  if (isJsonObject(config.summary)) checkLanguages(config.summary.i18n_content, "summary");
  for (const node of nodes) checkNode(node);
  checkTexts(nodes, facts);
}

/** JSON 1.0 ignores what it does not know. */
function checkOldCard(card: JsonObject): void {
  if (card.body !== undefined) {
    throw new CardProblem("schema", "a card with a body needs schema 2.0");
  }
  const { elements = [] } = card;
  if (!Array.isArray(elements)) throw new CardProblem("malformed", "elements must be a list");
  if (!elements.every((element) => isJsonObject(element) && typeof element.tag === "string")) {
    throw new CardProblem("malformed", "every element needs a tag");
  }
}

function checkIds(nodes: readonly CardNode[]): void {
  const seen = new Set<string>();
  for (const { node, tag } of nodes) {
    const id = node.element_id;
    if (id === undefined) continue;
    if (typeof id !== "string" || !/^[A-Za-z]\w{0,19}$/.test(id)) {
      throw new CardProblem(
        "invalid",
        `element_id ${String(id)} of ${tag} must start with a letter, 20 at most`,
      );
    }
    if (seen.has(id)) throw new CardProblem("duplicate_id", `element_id ${id} is used twice`);
    seen.add(id);
  }
}

/** Texts count like components (card JSON 2.0 structure); columns do not nest by themselves. */
function checkCounts(nodes: readonly CardNode[]): void {
  if (nodes.length > maximumElements) {
    throw new CardProblem(
      "too_many_elements",
      `card element number ${nodes.length} over limit ${maximumElements}`,
    );
  }
  for (const { tag, parents } of nodes) {
    const depth = [...parents, tag].filter((name) => tagRules[name]?.container === true).length;
    if (depth > maximumDepth) {
      throw new CardProblem("too_deep", `nesting of ${tag} over limit ${maximumDepth}`);
    }
  }
  if (nodes.filter(({ tag }) => tag === "table").length > maximumTableComponents) {
    throw new CardProblem("too_many_tables", "card table number over limit");
  }
}

/** Forms are placed in the body, hold a submit button, and name what people fill in (form container page). */
function checkForms(nodes: readonly CardNode[]): void {
  const names = new Set<string>();
  for (const { node, tag, parents } of nodes) {
    const rule = tagRules[tag];
    const inForm = parents.includes("form");
    if (rule?.place === "form" && !inForm) {
      throw new CardProblem("invalid", `${tag} works inside a form only`);
    }
    if (rule?.place === "root" && parents.length > 0) {
      throw new CardProblem("invalid", `${tag} must be in the body`);
    }
    if (tag === "form") checkSubmitButton(node);
    if (tag === "form" || (inForm && rule?.interactive === true)) checkName(node, tag, names);
  }
}

function checkName({ name }: JsonObject, tag: string, names: Set<string>): void {
  if (typeof name !== "string" || name === "") {
    throw new CardProblem("form_name", `name of ${tag} in a form is empty`);
  }
  if (names.has(name)) throw new CardProblem("form_name", `name ${name} of ${tag} is used twice`);
  names.add(name);
}

function checkSubmitButton(form: JsonObject): void {
  const submits = cardNodes(form).some(
    ({ node, tag }) => tag === "button" && node.form_action_type === "submit",
  );
  if (!submits) throw new CardProblem("invalid", "a form needs a submit button");
}

/** A text in several languages holds one text for each locale that the platform knows. */
function checkLanguages(texts: unknown, tag: string): void {
  for (const [locale, text] of Object.entries(isJsonObject(texts) ? texts : {})) {
    if (locales.has(locale) && typeof text === "string") continue;
    throw new CardProblem(
      "invalid",
      `i18n_content of ${tag} must hold texts by locale, not ${locale}`,
    );
  }
}

/** A text in all of its languages, the one without a language first. */
function textsOf({ content, i18n_content: others }: JsonObject): string[] {
  const all = [content, ...(isJsonObject(others) ? Object.values(others) : [])];
  return all.filter((text) => typeof text === "string");
}

/** Rules within one component. */
function checkNode({ node, tag, parents }: CardNode): void {
  const inForm = parents.includes("form");
  if (!inForm && (node.form_action_type !== undefined || node.required !== undefined)) {
    throw new CardProblem(
      "invalid",
      `form_action_type and required of ${tag} work inside a form only`,
    );
  }
  checkBehaviors(node, tag);
  if (tag === "button") checkLength(node.text, maximumButtonTextLength);
  if (tag === "input" && Number(node.max_length ?? 1) > maximumInputLength) {
    throw new CardProblem("invalid", `max_length of an input is at most ${maximumInputLength}`);
  }
  if (tag === "table") checkTable(node);
}

function checkBehaviors(node: JsonObject, tag: string): void {
  const behaviors: unknown[] = Array.isArray(node.behaviors) ? node.behaviors : [];
  for (const behavior of behaviors) {
    if (!isJsonObject(behavior)) continue;
    // A value that is not an object breaks the callback with 200671 (frequent questions on card callbacks).
    if (behavior.type === "callback" && !isJsonObject(behavior.value)) {
      throw new CardProblem("invalid", `the callback value of ${tag} must be an object`);
    }
    if (
      behavior.type === "open_url" &&
      typeof (behavior.default_url ?? behavior.url) !== "string"
    ) {
      throw new CardProblem("invalid", `open_url of ${tag} needs default_url`);
    }
  }
}

function checkLength(text: unknown, maximum: number): void {
  if (!isJsonObject(text) || textsOf(text).every((content) => content.length <= maximum)) return;
  throw new CardProblem("invalid", `the text of a button has at most ${maximum} characters`);
}

function checkTable({ columns, page_size: pageSize = 5 }: JsonObject): void {
  if (Array.isArray(columns) && columns.length > maximumColumns) {
    throw new CardProblem("invalid", `a table has at most ${maximumColumns} columns`);
  }
  if (typeof pageSize !== "number" || pageSize < 1 || pageSize > 10) {
    throw new CardProblem("invalid", "page_size of a table must be 1 to 10");
  }
}

/** The part of the check that a changed text needs. */
export function checkCardTexts(card: JsonObject, facts: CardFacts): void {
  checkTexts(cardNodes(card), facts);
}

/** What texts refer to: tables are counted over the whole card, people and images must exist. */
function checkTexts(nodes: readonly CardNode[], facts: CardFacts): void {
  let tables = 0;
  for (const { node, tag } of nodes) {
    const markdown = tag === "markdown" || tag === "lark_md" ? textsOf(node) : [];
    if (tag === "markdown") tables += Math.max(0, ...markdown.map(tableCount));
    checkPeople([...markdown.flatMap(mentionedIds), ...personsOf(node, tag)], facts);
    checkImages([...markdown.flatMap(imageKeys), ...imagesOf(node)], facts);
  }
  if (tables > maximumMarkdownTables) {
    throw new CardProblem("too_many_tables", "card table number over limit");
  }
}

function personsOf(node: JsonObject, tag: string): string[] {
  if (tag === "person") return [String(node.user_id)];
  if (tag !== "person_list" || !Array.isArray(node.persons) || node.drop_invalid_user_id === true) {
    return [];
  }
  return node.persons.filter(isJsonObject).map((person) => String(person.id));
}

function imagesOf(node: JsonObject): string[] {
  const lists = [node.img_list, node.options].flatMap((list) => (Array.isArray(list) ? list : []));
  return [node, ...lists.filter(isJsonObject)].flatMap(({ img_key: key }) =>
    typeof key === "string" ? [key] : [],
  );
}

function checkPeople(openIds: readonly string[], facts: CardFacts): void {
  for (const openId of openIds) {
    if (!facts.isPerson(openId)) {
      throw new CardProblem("unknown_person", `invalid user id ${openId}`);
    }
  }
}

function checkImages(keys: readonly string[], facts: CardFacts): void {
  for (const key of keys) {
    if (!facts.isImage(key)) throw new CardProblem("unknown_image", `invalid image key ${key}`);
  }
}

/** Checks tags, properties and kinds of values of a 2.0 card; the first thing wrong is thrown as CardProblem. */
function checkCardShape(card: JsonObject): void {
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
    if (rule === undefined) {
      throw new CardProblem("invalid", `unknown property ${name} of ${where}`);
    }
    checkProperty(item, rule, `${where}.${name}`);
  }
  for (const name of required) {
    if (value[name] === undefined) throw wrong(`${where}.${name}`, "is required");
  }
}

function checkProperty(value: unknown, rule: PropertyRule, where: string): void {
  if (typeof rule === "string") return checkKind(value, rule, where);
  if (isWordList(rule)) {
    if (!rule.includes(String(value))) throw wrong(where, `must be one of ${rule.join(", ")}`);
    return;
  }
  if ("tag" in rule) return checkTagged(value, rule.tag, where);
  if ("tags" in rule) {
    return eachItem(value, where, (item, place) => checkTagged(item, rule.tags, place));
  }
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
  const fits =
    allowed === undefined ? rule !== undefined && rule.place !== "part" : allowed.includes(tag);
  if (rule === undefined || !fits) {
    const message =
      value.tag === undefined ? `${where} has no tag` : `not support tag: ${tag} at ${where}`;
    throw new CardProblem("unknown_tag", message);
  }
  const properties = { ...sharedProperties, ...rule.properties };
  checkShape(value, { properties, required: rule.required ?? [] }, `${where}(${tag})`);
}

function eachItem(
  value: unknown,
  where: string,
  check: (item: unknown, place: string) => void,
): void {
  if (!Array.isArray(value)) throw wrong(where, "must be a list");
  for (const [index, item] of value.entries()) check(item, `${where}[${index}]`);
}

function wrong(where: string, reason: string): CardProblem {
  return new CardProblem("invalid", `${where} ${reason}`);
}

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
    for (const [key, item] of Object.entries(value)) {
      if (!opaque.has(key)) visit(item, [...path, key], inside);
    }
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
    return current.map((item: unknown, index) =>
      index === key ? replaced(item, rest, value) : item,
    );
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

/** Tables in card markdown: a row followed by a row of dashes, outside of code. A table lasts to the next empty line. */
function tableCount(markdown: string): number {
  if (!markdown.includes("|")) return 0;
  let tables = 0;
  let inTable = false;
  let previous = "";
  for (const line of linesOutsideFences(markdown)) {
    if (line.trim() === "") inTable = false;
    else if (!inTable && previous.includes("|") && isDelimiterRow(line)) {
      inTable = true;
      tables += 1;
    }
    previous = line;
  }
  return tables;
}

function isDelimiterRow(line: string): boolean {
  return line.includes("|") && line.includes("-") && /^[\s|:-]+$/.test(line);
}

/** Open ids in `<at id=ou_…>` and `<person id='ou_…'>` tags outside of code; `all` names no person. */
function mentionedIds(markdown: string): string[] {
  if (!markdown.includes("<")) return [];
  const tags = outsideCode(markdown).matchAll(/<(?:at|person)\s+ids?\s*=\s*["']?([^"'>\s]+)/g);
  return [...tags]
    .flatMap(([, ids = ""]) => ids.split(","))
    .filter((id) => id !== "" && id !== "all");
}

/** Image keys of `![…](…)` outside of code. */
function imageKeys(markdown: string): string[] {
  if (!markdown.includes("![")) return [];
  return [...outsideCode(markdown).matchAll(/!\[[^\]\n]*\]\(([^)\s]+)/g)].map(
    ([, key = ""]) => key,
  );
}

function outsideCode(markdown: string): string {
  return linesOutsideFences(markdown)
    .join("\n")
    .replaceAll(/(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)/g, "");
}

/**
 * The lines outside of code fences; code counts as empty lines. As in CommonMark, a fence that is still open reaches
 * to the end, nothing follows the marks that close one, and no backtick follows the backticks that open one.
 */
function linesOutsideFences(markdown: string): string[] {
  let fence: string | undefined;
  return markdown.split("\n").map((line) => {
    const [, marks = "", rest = ""] = /^\s*(`{3,}|~{3,})(.*)$/.exec(line) ?? [];
    if (fence !== undefined) {
      if (marks.startsWith(fence) && rest.trim() === "") fence = undefined;
      return "";
    }
    if (marks === "" || (marks.startsWith("`") && rest.includes("`"))) return line;
    fence = marks;
    return "";
  });
}

/**
 * What can be wrong with a card, with the code of the card API (CardKit error matrix) and the sub-code that sending
 * puts into `ext=ErrCode: …` of 230099 (card patch page). The limit on tables has been met as 230099 in both.
 */
const codes = {
  malformed: { cardKit: 10002, send: 200621 },
  invalid: { cardKit: 200220, send: 200621 },
  schema: { cardKit: 300303, send: 200621 },
  empty: { cardKit: 300307, send: 200621 },
  not_shared: { cardKit: 300302, send: 200621 },
  unknown_tag: { cardKit: 200220, send: 200861 },
  duplicate_id: { cardKit: 300301, send: 300301 },
  too_many_elements: { cardKit: 300305, send: 11310 },
  too_deep: { cardKit: 200220, send: 11310 },
  too_many_tables: { cardKit: 230099, send: 11310 },
  form_name: { cardKit: 200220, send: 200530 },
  unknown_person: { cardKit: 200220, send: 100290 },
  unknown_image: { cardKit: 200220, send: 200570 },
} as const;

type CardProblemKind = keyof typeof codes;

/** Why a card is refused, before it is known who asked. */
export class CardProblem extends Error {
  readonly kind: CardProblemKind;

  constructor(kind: CardProblemKind, message: string) {
    super(message);
    this.name = "CardProblem";
    this.kind = kind;
  }
}

/** The refusal of a message with this card. */
export function refusedOnSend({ kind, message }: CardProblem): PlatformError {
  return contentRefusal(codes[kind].send, message);
}

/** 230099 with a sub-code. */
export function contentRefusal(subCode: number, message: string): PlatformError {
  return new PlatformError(
    230099,
    `Failed to create card content, ext=ErrCode: ${subCode}; ErrMsg: ${message}; `,
  );
}

/** The refusal of a card API call; the sub-code is in the text here too. */
export function refusedByCardKit({ kind, message }: CardProblem): PlatformError {
  return new PlatformError(
    codes[kind].cardKit,
    `ErrCode: ${codes[kind].send}; ErrMsg: ${message};`,
  );
}

/** Runs a check and turns its problem into the refusal of the caller's API. */
export function refusing<Result>(
  refusal: (problem: CardProblem) => PlatformError,
  check: () => Result,
): Result {
  try {
    return check();
  } catch (error) {
    throw error instanceof CardProblem ? refusal(error) : error;
  }
}
