import { imageKeys, mentionedIds, tableCount } from "./card-markdown.ts";
import { CardProblem } from "./card-problem.ts";
import { checkCardShape } from "./card-shape.ts";
import { tagRules } from "./card-tags.ts";
import { cardNodes, type CardNode } from "./card-tree.ts";
import { isJsonObject, type JsonObject } from "./json-fields.ts";

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
  "en_us zh_cn zh_hk zh_tw ja_jp id_id vi_vn th_th pt_br es_es ko_kr de_de fr_fr it_it ru_ru ms_my".split(" "),
);

/** What a card may refer to. */
export interface CardFacts {
  isPerson: (openId: string) => boolean;
  isImage: (imageKey: string) => boolean;
}

/** Checks a card of either version; the first thing wrong is thrown as CardProblem. */
export function checkCard(card: JsonObject, facts: CardFacts): void {
  if (card.schema === undefined) return checkOldCard(card);
  if (card.schema !== "2.0") throw new CardProblem("schema", `schema ${String(card.schema)} is unknown`);
  checkCardShape(card);
  const config = isJsonObject(card.config) ? card.config : {};
  if (config.update_multi === false) throw new CardProblem("not_shared", "update_multi must be true");
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
  if (card.body !== undefined) throw new CardProblem("schema", "a card with a body needs schema 2.0");
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
      throw new CardProblem("invalid", `element_id ${String(id)} of ${tag} must start with a letter, 20 at most`);
    }
    if (seen.has(id)) throw new CardProblem("duplicate_id", `element_id ${id} is used twice`);
    seen.add(id);
  }
}

/** Texts count like components (card JSON 2.0 structure); columns do not nest by themselves. */
function checkCounts(nodes: readonly CardNode[]): void {
  if (nodes.length > maximumElements) {
    throw new CardProblem("too_many_elements", `card element number ${nodes.length} over limit ${maximumElements}`);
  }
  for (const { tag, parents } of nodes) {
    const depth = [...parents, tag].filter((name) => tagRules[name]?.container === true).length;
    if (depth > maximumDepth) throw new CardProblem("too_deep", `nesting of ${tag} over limit ${maximumDepth}`);
  }
  if (nodes.filter(({ tag }) => tag === "table").length > maximumTableComponents) {
    throw new CardProblem("too_many_tables", "card table number over limit");
  }
}

/** Forms stand in the body, hold a submit button, and name what people fill in (form container page). */
function checkForms(nodes: readonly CardNode[]): void {
  const names = new Set<string>();
  for (const { node, tag, parents } of nodes) {
    const rule = tagRules[tag];
    const inForm = parents.includes("form");
    if (rule?.place === "form" && !inForm) throw new CardProblem("invalid", `${tag} works inside a form only`);
    if (rule?.place === "root" && parents.length > 0) throw new CardProblem("invalid", `${tag} must be in the body`);
    if (tag === "form") checkSubmitButton(node);
    if (tag === "form" || (inForm && rule?.interactive === true)) checkName(node, tag, names);
  }
}

function checkName({ name }: JsonObject, tag: string, names: Set<string>): void {
  if (typeof name !== "string" || name === "") throw new CardProblem("form_name", `name of ${tag} in a form is empty`);
  if (names.has(name)) throw new CardProblem("form_name", `name ${name} of ${tag} is used twice`);
  names.add(name);
}

function checkSubmitButton(form: JsonObject): void {
  const submits = cardNodes(form).some(({ node, tag }) => tag === "button" && node.form_action_type === "submit");
  if (!submits) throw new CardProblem("invalid", "a form needs a submit button");
}

/** A text in several languages holds one text for each locale that the platform knows. */
function checkLanguages(texts: unknown, tag: string): void {
  for (const [locale, text] of Object.entries(isJsonObject(texts) ? texts : {})) {
    if (locales.has(locale) && typeof text === "string") continue;
    throw new CardProblem("invalid", `i18n_content of ${tag} must hold texts by locale, not ${locale}`);
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
    throw new CardProblem("invalid", `form_action_type and required of ${tag} work inside a form only`);
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
    if (behavior.type === "open_url" && typeof (behavior.default_url ?? behavior.url) !== "string") {
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
  if (tables > maximumMarkdownTables) throw new CardProblem("too_many_tables", "card table number over limit");
}

function personsOf(node: JsonObject, tag: string): string[] {
  if (tag === "person") return [String(node.user_id)];
  if (tag !== "person_list" || !Array.isArray(node.persons) || node.drop_invalid_user_id === true) return [];
  return node.persons.filter(isJsonObject).map((person) => String(person.id));
}

function imagesOf(node: JsonObject): string[] {
  const lists = [node.img_list, node.options].flatMap((list) => (Array.isArray(list) ? list : []));
  return [node, ...lists.filter(isJsonObject)].flatMap(({ img_key: key }) => (typeof key === "string" ? [key] : []));
}

function checkPeople(openIds: readonly string[], facts: CardFacts): void {
  for (const openId of openIds) {
    if (!facts.isPerson(openId)) throw new CardProblem("unknown_person", `invalid user id ${openId}`);
  }
}

function checkImages(keys: readonly string[], facts: CardFacts): void {
  for (const key of keys) {
    if (!facts.isImage(key)) throw new CardProblem("unknown_image", `invalid image key ${key}`);
  }
}
