import { cardControls, formView } from "./card-controls.ts";
import {
  bodyOf,
  type CardPart,
  contentOf,
  node,
  partOf,
  partsOf,
  textOf,
  type ViewElement,
  type ViewNode,
} from "./view-node.ts";
import { imageView, inkClass, type MarkdownContext, markdownView, tableView, withSigns } from "./markdown-view.ts";
import type { Words } from "./words.ts";

/** What a person does with a component, for the platform to tell the bot. */
export interface CardUse {
  elementId?: string;
  value?: unknown;
  name?: string;
  option?: string;
  inputValue?: string;
  formValue?: Record<string, unknown>;
}

/** What a card is shown with. */
export interface CardContext extends MarkdownContext {
  words: Words;
  /** What has been typed of a streamed text, and whether it is the one that grows. */
  typed(elementId: string, text: string): string;
  growing: string | undefined;
  /** Whether the card still streams. */
  streaming: boolean;
  /** The component that waits for its answer. */
  busy: string | undefined;
  use(use: CardUse): void;
}

/** Shows one component. */
export type ShowPart = (part: CardPart, context: CardContext) => ViewNode;

/** A card as Feishu shows it; unknown parts are named, not left out. */
export function cardView(card: CardPart, context: CardContext): ViewElement {
  const { header } = card;
  const elements = bodyOf(card);
  const sign = context.streaming
    ? node("div", { class: "generating", key: "sign" }, [node("span", { class: "dots" }), context.words.generating])
    : undefined;
  const body = node("div", { class: "card-body", key: "body" }, [...partViews(elements, context), sign]);
  return node("article", { class: context.streaming ? "feishu-card streaming" : "feishu-card" }, [
    header === undefined ? undefined : headerView(partOf(header), context),
    body,
  ]);
}

function headerView(header: CardPart, context: CardContext): ViewElement {
  const subtitle = contentOf(header.subtitle);
  const tags = partsOf(header.text_tag_list)
    .slice(0, 3)
    .map((tag) => node("span", { class: `label ${inkClass(textOf(tag.color))}` }, [contentOf(tag.text)]));
  const template = /^[a-z]{1,20}$/.test(textOf(header.template)) ? textOf(header.template) : "default";
  return node("header", { class: `card-head template-${template}`, key: "head" }, [
    node("div", { class: "card-title" }, [node("strong", {}, textView(partOf(header.title), context)), ...tags]),
    subtitle === "" ? undefined : node("p", { class: "card-subtitle" }, [subtitle]),
  ]);
}

/** Components below each other; each is found again by its id. */
function partViews(parts: readonly CardPart[], context: CardContext): ViewNode[] {
  return parts.map((part) => partView(part, context));
}

function partView(part: CardPart, context: CardContext): ViewNode {
  const tag = textOf(part.tag);
  const show = Object.hasOwn(shows, tag) ? shows[tag] : undefined;
  const view = show === undefined ? unknownView(tag) : show(part, context);
  if (typeof view === "string" || typeof part.element_id !== "string") return view;
  return { ...view, key: view.key ?? part.element_id };
}

function unknownView(tag: string): ViewElement {
  return node("p", { class: "missing" }, [`‹${tag === "" ? "?" : tag}›`]);
}

const shows: Readonly<Record<string, ShowPart>> = {
  markdown: markdownPart,
  div: divView,
  plain_text: (part, context) => node("p", { class: textClass(part) }, textView(part, context)),
  lark_md: (part, context) => node("div", { class: "content" }, textView(part, context)),
  hr: () => node("hr"),
  img: imagePart,
  img_combination: (part, context) =>
    node(
      "div",
      { class: "pictures" },
      partsOf(part.img_list).map((image) => imageView({ key: textOf(image.img_key), alt: "" }, context)),
    ),
  collapsible_panel: panelView,
  column_set: columnsView,
  form: (part, context) => formView(part, context, partViews(partsOf(part.elements), context)),
  interactive_container: containerView,
  table: cardTable,
  person: (part, context) => personView(textOf(part.user_id), context),
  person_list: (part, context) =>
    node(
      "div",
      { class: "row wrap" },
      partsOf(part.persons).map((person) => personView(textOf(person.id), context)),
    ),
  note: (part, context) => node("div", { class: "note" }, partViews(partsOf(part.elements), context)),
  action: (part, context) => node("div", { class: "row wrap" }, partViews(partsOf(part.actions), context)),
  chart: (part, context) => namedView(`${context.words.chart} ${textOf(partOf(part.chart_spec).type)}`),
  audio: (_part, context) => namedView(context.words.audio),
  ...cardControls,
};

function namedView(text: string): ViewElement {
  return node("p", { class: "missing" }, [text]);
}

function markdownPart(part: CardPart, context: CardContext): ViewElement {
  const id = textOf(part.element_id);
  const text = context.typed(id, textOf(part.content));
  const caret = context.streaming && id !== "" && context.growing === id ? " caret" : "";
  const align = textOf(part.text_align);
  return node(
    "div",
    { class: `content ${sizeClass(part)}${caret}${align === "" ? "" : ` align-${align}`}` },
    markdownView(text, context),
  );
}

/** Words of a `plain_text`, `lark_md` or `markdown` element. */
function textView(part: CardPart, context: CardContext): ViewNode[] {
  const text = context.typed(textOf(part.element_id), textOf(part.content));
  return part.tag === "plain_text" ? withSigns(text) : markdownView(text, context);
}

function textClass(part: CardPart): string {
  const color = textOf(part.text_color);
  return `plain ${sizeClass(part)}${color === "" || color === "default" ? "" : ` ${inkClass(color)}`}`;
}

const sizes = new Set(["heading-0", "heading-1", "heading-2", "heading-3", "heading-4", "heading", "notation"]);

function sizeClass(part: CardPart): string {
  const size = textOf(part.text_size);
  return sizes.has(size) ? `size-${size}` : "size-normal";
}

function divView(part: CardPart, context: CardContext): ViewElement {
  const text = partOf(part.text);
  const fields = partsOf(part.fields).map((field) => node("div", {}, textView(partOf(field.text), context)));
  return node("div", { class: "card-text" }, [
    part.text === undefined ? undefined : node("div", { class: textClass(text) }, textView(text, context)),
    fields.length === 0 ? undefined : node("div", { class: "fields" }, fields),
  ]);
}

function imagePart(part: CardPart, context: CardContext): ViewElement {
  const title = contentOf(part.title);
  const image = imageView({ key: textOf(part.img_key), alt: contentOf(part.alt) }, context);
  return node("figure", {}, [image, title === "" ? undefined : node("figcaption", {}, [title])]);
}

/** Folded or not as the author says first; afterwards as the person left it. */
function panelView(part: CardPart, context: CardContext): ViewElement {
  const title = partOf(partOf(part.header).title);
  return node("details", { class: "panel", open: part.expanded === true }, [
    node("summary", {}, [node("span", { class: "panel-title" }, textView(title, context))]),
    node("div", { class: "panel-body" }, partViews(partsOf(part.elements), context)),
  ]);
}

function columnsView(part: CardPart, context: CardContext): ViewElement {
  const columns = partsOf(part.columns).map((column) => {
    const weight = typeof column.weight === "number" ? String(column.weight) : "1";
    const weighted = column.width === "weighted";
    return node(
      "div",
      { class: weighted ? "column weighted" : "column", "--weight": weight },
      partViews(partsOf(column.elements), context),
    );
  });
  const filled = part.background_style === "grey" ? " filled" : "";
  return node("div", { class: `column-set flex-${textOf(part.flex_mode) || "none"}${filled}` }, columns);
}

function containerView(part: CardPart, context: CardContext): ViewElement {
  const open = (): void => context.use({ elementId: textOf(part.element_id) || textOf(part.name) });
  const onkeydown = (event: Event): void => {
    if (event instanceof KeyboardEvent && event.key === "Enter" && event.target === event.currentTarget) open();
  };
  return node(
    "div",
    {
      class: part.has_border === true ? "container bordered" : "container",
      role: "button",
      tabindex: "0",
      onclick: open,
      onkeydown,
    },
    partViews(partsOf(part.elements), context),
  );
}

function personView(id: string, context: CardContext): ViewElement {
  return node("span", { class: "person" }, [context.nameOf(id)]);
}

const largestPage = 10;

/** A table component: all its rows, the first page at once, the others unfolded. */
function cardTable(part: CardPart, context: CardContext): ViewElement {
  const columns = partsOf(part.columns);
  const header = columns.map((column): ViewNode[] => [textOf(column.display_name) || textOf(column.name)]);
  const rows = partsOf(part.rows).map((row) =>
    columns.map((column) => cellView(row[textOf(column.name)], textOf(column.data_type), context)),
  );
  const size = typeof part.page_size === "number" ? Math.min(largestPage, Math.max(1, part.page_size)) : 5;
  const rest = rows.slice(size);
  if (rest.length === 0) return tableView(header, rows);
  return node("div", {}, [
    tableView(header, rows.slice(0, size)),
    node("details", { class: "more-rows" }, [
      node("summary", {}, [context.words.moreRows.replace("{n}", String(rest.length))]),
      tableView(header, rest),
    ]),
  ]);
}

function cellView(value: unknown, type: string, context: CardContext): ViewNode[] {
  if (type === "lark_md" || type === "markdown") return markdownView(textOf(value), context);
  if (type === "options") {
    return partsOf(value).map((option) =>
      node("span", { class: `label ${inkClass(textOf(option.color))}` }, [textOf(option.text)]),
    );
  }
  if (type === "persons") {
    const ids: unknown[] = Array.isArray(value) ? value : [value];
    return [ids.map((id) => context.nameOf(textOf(id))).join(", ")];
  }
  if (type === "date" && typeof value === "number") return [new Date(value).toLocaleDateString()];
  return [typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "")];
}
