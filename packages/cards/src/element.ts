/** An element of a card (JSON 2.0), or a whole card. */
export type CardElement = Record<string, unknown>;

/** Most of a whole card in bytes; the platform refuses 30 KB ("Card JSON 2.0"). */
export const maxCardBytes = 26_000;

/** UTF-8 bytes of the JSON, as the platform counts them. */
export function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}

/** Everything with a `tag` counts: components, and the texts within them. */
export function countElements(value: unknown): number {
  if (Array.isArray(value)) return value.reduce<number>((sum, entry) => sum + countElements(entry), 0);
  if (typeof value !== "object" || value === null) return 0;
  const own = "tag" in value ? 1 : 0;
  return own + countElements(Object.values(value));
}

export function plainText(content: string): CardElement {
  return { tag: "plain_text", content };
}

export function markdown(content: string, more: CardElement = {}): CardElement {
  return { tag: "markdown", ...more, content };
}

export function button(text: string, more: { value: CardElement; type?: string; elementId?: string }): CardElement {
  return {
    tag: "button",
    ...(more.elementId === undefined ? {} : { element_id: more.elementId }),
    text: plainText(text),
    type: more.type ?? "default",
    size: "small",
    behaviors: [{ type: "callback", value: more.value }],
  };
}

export function foldedPanel(title: string, elements: CardElement[], elementId?: string): CardElement {
  return {
    tag: "collapsible_panel",
    ...(elementId === undefined ? {} : { element_id: elementId }),
    expanded: false,
    header: {
      title: plainText(title),
      icon: { tag: "standard_icon", token: "down-small-ccm_outlined" },
      icon_position: "right",
      icon_expanded_angle: -180,
    },
    border: { color: "grey", corner_radius: "5px" },
    elements,
  };
}

/** The end of a text that fits, by characters and by bytes of JSON, never beginning within a character. */
export function tailWithin(text: string, { characters, bytes }: TextRoom): string {
  let from = Math.max(0, text.length - characters);
  let tail = text.slice(from).toWellFormed();
  while (jsonBytes(tail) > bytes && tail.length > 0) {
    from += Math.max(1, Math.ceil((jsonBytes(tail) - bytes) / 4));
    tail = text.slice(from).toWellFormed();
  }
  return tail.length < text.length ? tail.replace(/^\uFFFD/, "") : tail;
}

/** The beginning of a text that fits, by characters and by bytes of JSON, never ending within a character. */
export function headWithin(text: string, { characters, bytes }: TextRoom): string {
  let to = Math.min(text.length, characters);
  let head = text.slice(0, to).toWellFormed();
  while (jsonBytes(head) > bytes && head.length > 0) {
    to -= Math.max(1, Math.ceil((jsonBytes(head) - bytes) / 4));
    head = text.slice(0, Math.max(0, to)).toWellFormed();
  }
  return head.length < text.length ? head.replace(/\uFFFD$/, "") : head;
}

export function fits(text: string, { characters, bytes }: TextRoom): boolean {
  return text.length <= characters && jsonBytes(text) <= bytes;
}

export interface TextRoom {
  characters: number;
  bytes: number;
}
