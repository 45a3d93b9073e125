/** What is to be seen, as plain data. Patched into the document, it leaves alone whatever did not change. */
export type ViewNode = ViewElement | string;
type Handler = (event: Event) => void;
/** `false` and undefined leave an attribute out, `on…` is a listener, `--…` a custom property of the style. */
type ViewAttributes = Readonly<Record<string, string | boolean | undefined | Handler>>;

export interface ViewElement {
  tag: string;
  /** Finds the same element again among changed neighbours. */
  key: string | undefined;
  attributes: ViewAttributes;
  children: readonly ViewNode[];
}

/** Describes an element; `key` among the attributes is not shown. */
export function node(
  tag: string,
  attributes: ViewAttributes = {},
  children: readonly (ViewNode | undefined)[] = [],
): ViewElement {
  const { key, ...shown } = attributes;
  return {
    tag,
    key: typeof key === "string" ? key : undefined,
    attributes: shown,
    children: children.filter((child) => child !== undefined),
  };
}

/** A view in the document. */
interface Mounted {
  readonly root: HTMLElement;
  /** Changes the document to the next view: focus, selection, folding and what was typed survive. */
  show(next: ViewElement): void;
}

type Instance = ElementInstance | TextInstance;

interface TextInstance {
  dom: Text;
  children: readonly [];
}

interface ElementInstance {
  dom: HTMLElement;
  view: ViewElement;
  children: Instance[];
}

export function mount(first: ViewElement): Mounted {
  const instance = createElement(first);
  return { root: instance.dom, show: (next) => patchElement(instance, next) };
}

function create(view: ViewNode): Instance {
  return typeof view === "string" ? { dom: document.createTextNode(view), children: [] } : createElement(view);
}

function createElement(view: ViewElement): ElementInstance {
  const dom = document.createElement(view.tag);
  const instance: ElementInstance = { dom, view: { ...view, attributes: {}, children: [] }, children: [] };
  patchElement(instance, view);
  return instance;
}

function patchElement(instance: ElementInstance, next: ViewElement): void {
  const { dom, view } = instance;
  if (view === next) return;
  for (const name of new Set([...Object.keys(view.attributes), ...Object.keys(next.attributes)])) {
    const value = next.attributes[name];
    if (value !== view.attributes[name]) setAttribute(dom, name, value);
  }
  instance.children = patchChildren(instance, next.children);
  instance.view = next;
}

function patchChildren({ dom, view, children }: ElementInstance, next: readonly ViewNode[]): Instance[] {
  const names = identities(view.children);
  const old = new Map(children.map((child, index) => [names[index] ?? "", child]));
  const nextNames = identities(next);
  const patched = next.map((child, index) => {
    const name = nextNames[index] ?? "";
    const found = old.get(name);
    old.delete(name);
    if (found === undefined) return create(child);
    patchNode(found, child);
    return found;
  });
  for (const { dom: gone } of old.values()) gone.remove();
  let cursor = dom.firstChild;
  for (const { dom: child } of patched) {
    if (child === cursor) cursor = cursor.nextSibling;
    else dom.insertBefore(child, cursor);
  }
  return patched;
}

function patchNode(instance: Instance, next: ViewNode): void {
  if (typeof next !== "string") {
    if ("view" in instance) patchElement(instance, next);
    return;
  }
  if (!(instance.dom instanceof Text) || instance.dom.data === next) return;
  // What is added at the end leaves a selection within the text as it is.
  if (next.startsWith(instance.dom.data)) instance.dom.appendData(next.slice(instance.dom.data.length));
  else instance.dom.data = next;
}

/** Names by which children are found again: the key, else the place among those of the same tag. */
function identities(views: readonly ViewNode[]): string[] {
  const counts = new Map<string, number>();
  return views.map((view) => {
    const kind = typeof view === "string" ? "#" : view.key === undefined ? view.tag : `${view.tag} ${view.key}`;
    const count = counts.get(kind) ?? 0;
    counts.set(kind, count + 1);
    return `${kind} ${count}`;
  });
}

const handlers = new WeakMap<HTMLElement, Map<string, Handler>>();

function setAttribute(dom: HTMLElement, name: string, value: ViewAttributes[string]): void {
  if (name.startsWith("on")) return setHandler(dom, name.slice(2), value);
  if (name.startsWith("--")) return dom.style.setProperty(name, typeof value === "string" ? value : "");
  if (value === undefined || value === false || typeof value === "function") dom.removeAttribute(name);
  else dom.setAttribute(name, value === true ? "" : value);
}

function setHandler(dom: HTMLElement, type: string, value: ViewAttributes[string]): void {
  const known = handlers.get(dom) ?? new Map<string, Handler>();
  handlers.set(dom, known);
  if (!known.has(type)) dom.addEventListener(type, (event) => known.get(type)?.(event));
  known.set(type, typeof value === "function" ? value : () => undefined);
}

/** A part of a card, as it came. */
export type CardPart = Readonly<Record<string, unknown>>;

export function isPart(value: unknown): value is CardPart {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** An object, or an empty one where there is none. */
export function partOf(value: unknown): CardPart {
  return isPart(value) ? value : {};
}

/** The objects of a list. */
export function partsOf(value: unknown): CardPart[] {
  return Array.isArray(value) ? value.filter(isPart) : [];
}

export function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** The words of a text element. */
export function contentOf(value: unknown): string {
  return textOf(partOf(value).content);
}

/**
 * The card as a reader sees it: of texts in several languages the one of their client, else the English one, else
 * the one that has no language ("Configure multi-language content").
 */
export function inLocale(card: CardPart, locale: string): CardPart {
  const shown = localised(card, locale, localesOf(card));
  return isPart(shown) ? shown : card;
}

/** Where a card names the locales that count, others do not. */
function localesOf(card: CardPart): readonly unknown[] | undefined {
  const { locales } = partOf(card.config);
  return Array.isArray(locales) ? locales : undefined;
}

function localised(value: unknown, locale: string, allowed: readonly unknown[] | undefined): unknown {
  if (Array.isArray(value)) return value.map((item: unknown) => localised(item, locale, allowed));
  if (!isPart(value)) return value;
  const { i18n_content: texts, ...rest } = value;
  const members = Object.entries(rest).map(
    ([name, item]) => [name, opaque.has(name) ? item : localised(item, locale, allowed)] as const,
  );
  const known = [locale, "en_us"].find(
    (each) => textOf(partOf(texts)[each]) !== "" && (allowed === undefined || allowed.includes(each)),
  );
  const content = known === undefined ? {} : { content: textOf(partOf(texts)[known]) };
  return { ...Object.fromEntries(members), ...content };
}

/** The elements of a card, of JSON 2.0 or 1.0. */
export function bodyOf(card: CardPart): CardPart[] {
  return partsOf(partOf(card.body).elements ?? card.elements);
}

/** Authors fill these freely: what looks like a component there is none. */
const opaque = new Set(["value", "chart_spec", "rows", "style", "i18n_content"]);

/** Calls back for every tagged object, outer ones first. */
export function eachTagged(value: unknown, visit: (part: CardPart) => void): void {
  if (Array.isArray(value)) return value.forEach((item: unknown) => eachTagged(item, visit));
  if (!isPart(value)) return;
  if (typeof value.tag === "string") visit(value);
  for (const [name, item] of Object.entries(value)) if (!opaque.has(name)) eachTagged(item, visit);
}

/** Bytes of the JSON in UTF-8, and tagged objects, as the platform counts them. */
export function cardSize(card: CardPart): { bytes: number; elements: number } {
  let elements = 0;
  eachTagged(card, () => (elements += 1));
  return { bytes: new TextEncoder().encode(JSON.stringify(card)).byteLength, elements };
}
