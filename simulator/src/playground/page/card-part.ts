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

function localised(
  value: unknown,
  locale: string,
  allowed: readonly unknown[] | undefined,
): unknown {
  if (Array.isArray(value)) return value.map((item: unknown) => localised(item, locale, allowed));
  if (!isPart(value)) return value;
  const { i18n_content: texts, ...rest } = value;
  const members = Object.entries(rest).map(
    ([name, item]) => [name, opaque.has(name) ? item : localised(item, locale, allowed)] as const,
  );
  const known = [locale, "en_us"].find(
    (each) =>
      textOf(partOf(texts)[each]) !== "" && (allowed === undefined || allowed.includes(each)),
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
