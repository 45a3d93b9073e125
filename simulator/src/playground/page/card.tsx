import { type ComponentChildren, Fragment, type VNode } from "preact";
import { type CardContext, cardControls, formView, type ShowPart } from "./card-controls.tsx";
import { bodyOf, type CardPart, contentOf, partOf, partsOf, textOf } from "./card-part.ts";
import { chartView } from "./chart-view.tsx";
import { imageView, inkClass, markdownView, tableView, withSigns } from "./markdown-view.tsx";

/** A card as Feishu shows it; unknown parts are named, not left out. */
export function cardView(card: CardPart, context: CardContext): VNode {
  return (
    <article
      class={`feishu-card${context.streaming ? " streaming" : ""}${partOf(card.config).width_mode === "fill" ? " wide" : ""}`}
    >
      {card.header !== undefined && headerView(partOf(card.header), context)}
      <div class="card-body">
        {partViews(bodyOf(card), context)}
        {context.streaming && (
          <div class="generating" key="sign">
            <span class="dots" />
            {context.words.generating}
          </div>
        )}
      </div>
    </article>
  );
}

function headerView(header: CardPart, context: CardContext): VNode {
  const subtitle = contentOf(header.subtitle);
  const tags = partsOf(header.text_tag_list).slice(0, 3);
  const template = /^[a-z]{1,20}$/.test(textOf(header.template))
    ? textOf(header.template)
    : "default";
  return (
    <header class={`card-head template-${template}`}>
      <div class="card-title">
        <strong>{textView(partOf(header.title), context)}</strong>
        {tags.map((tag) => (
          <span class={`label ${inkClass(textOf(tag.color))}`}>{contentOf(tag.text)}</span>
        ))}
      </div>
      {subtitle !== "" && <p class="card-subtitle">{subtitle}</p>}
    </header>
  );
}

/** Components below each other; each is found again by its id. */
function partViews(parts: readonly CardPart[], context: CardContext): VNode[] {
  return parts.map((part) => {
    const tag = textOf(part.tag);
    const show = Object.hasOwn(shows, tag) ? shows[tag] : undefined;
    const view = show === undefined ? missing(`‹${tag === "" ? "?" : tag}›`) : show(part, context);
    return typeof part.element_id === "string" ? (
      <Fragment key={part.element_id}>{view}</Fragment>
    ) : (
      view
    );
  });
}

function missing(text: string): VNode {
  return <p class="missing">{text}</p>;
}

const shows: Readonly<Record<string, ShowPart>> = {
  markdown: markdownPart,
  div: divView,
  plain_text: (part, context) => <p class={textClass(part)}>{textView(part, context)}</p>,
  lark_md: (part, context) => <div class="content">{textView(part, context)}</div>,
  hr: () => <hr />,
  img: imagePart,
  img_combination: (part) => (
    <div class="pictures">
      {partsOf(part.img_list).map((image) => imageView({ key: textOf(image.img_key), alt: "" }))}
    </div>
  ),
  collapsible_panel: panelView,
  column_set: columnsView,
  form: (part, context) => formView(part, context, partViews(partsOf(part.elements), context)),
  interactive_container: containerView,
  table: cardTable,
  person: (part, context) => personView(textOf(part.user_id), context),
  person_list: (part, context) => (
    <div class="row wrap">
      {partsOf(part.persons).map((person) => personView(textOf(person.id), context))}
    </div>
  ),
  note: (part, context) => <div class="note">{partViews(partsOf(part.elements), context)}</div>,
  action: (part, context) => (
    <div class="row wrap">{partViews(partsOf(part.actions), context)}</div>
  ),
  chart: (part, context) =>
    chartView(partOf(part.chart_spec)) ??
    missing(`${context.words.chart} ${textOf(partOf(part.chart_spec).type)}`),
  audio: (_part, context) => missing(context.words.audio),
  ...cardControls,
};

function markdownPart(part: CardPart, context: CardContext): VNode {
  const id = textOf(part.element_id);
  const text = context.typed(id, textOf(part.content));
  const caret = context.streaming && id !== "" && context.growing === id ? " caret" : "";
  const align = textOf(part.text_align);
  return (
    <div class={`content ${sizeClass(part)}${caret}${align === "" ? "" : ` align-${align}`}`}>
      {markdownView(text, context)}
    </div>
  );
}

/** Words of a `plain_text`, `lark_md` or `markdown` element. */
function textView(part: CardPart, context: CardContext): ComponentChildren[] {
  const text = context.typed(textOf(part.element_id), textOf(part.content));
  return part.tag === "plain_text" ? withSigns(text) : markdownView(text, context);
}

function textClass(part: CardPart): string {
  const color = textOf(part.text_color);
  return `plain ${sizeClass(part)}${color === "" || color === "default" ? "" : ` ${inkClass(color)}`}`;
}

const sizes = new Set([
  "heading-0",
  "heading-1",
  "heading-2",
  "heading-3",
  "heading-4",
  "heading",
  "notation",
]);

function sizeClass(part: CardPart): string {
  const size = textOf(part.text_size);
  return sizes.has(size) ? `size-${size}` : "size-normal";
}

function divView(part: CardPart, context: CardContext): VNode {
  const text = partOf(part.text);
  const fields = partsOf(part.fields);
  return (
    <div class="card-text">
      {part.text !== undefined && <div class={textClass(text)}>{textView(text, context)}</div>}
      {fields.length > 0 && (
        <div class="fields">
          {fields.map((field) => (
            <div>{textView(partOf(field.text), context)}</div>
          ))}
        </div>
      )}
    </div>
  );
}

function imagePart(part: CardPart): VNode {
  const title = contentOf(part.title);
  return (
    <figure>
      {imageView({ key: textOf(part.img_key), alt: contentOf(part.alt) })}
      {title !== "" && <figcaption>{title}</figcaption>}
    </figure>
  );
}

/** Folded or not as the author says first; afterwards as the person left it. */
function panelView(part: CardPart, context: CardContext): VNode {
  return (
    <details class={`panel ${borderClass(partOf(part.border))}`} open={part.expanded === true}>
      <summary>
        <span class="panel-title">{textView(partOf(partOf(part.header).title), context)}</span>
      </summary>
      <div class="panel-body">{partViews(partsOf(part.elements), context)}</div>
    </details>
  );
}

function borderClass(border: CardPart): string {
  if (Object.keys(border).length === 0) return "bare";
  const color = textOf(border.color);
  return color === "" || color.startsWith("grey") ? "" : `bordered ${inkClass(color)}`;
}

function columnsView(part: CardPart, context: CardContext): VNode {
  const filled = part.background_style === "grey" ? " filled" : "";
  return (
    <div class={`column-set flex-${textOf(part.flex_mode) || "none"}${filled}`}>
      {partsOf(part.columns).map((column) => (
        <div
          class={column.width === "weighted" ? "column weighted" : "column"}
          style={{ "--weight": typeof column.weight === "number" ? String(column.weight) : "1" }}
        >
          {partViews(partsOf(column.elements), context)}
        </div>
      ))}
    </div>
  );
}

function containerView(part: CardPart, context: CardContext): VNode {
  const open = (): void => context.use({ elementId: textOf(part.element_id) || textOf(part.name) });
  return (
    <div
      class={part.has_border === true ? "container bordered" : "container"}
      role="button"
      tabIndex={0}
      onClick={open}
      onKeyDown={(event) => event.key === "Enter" && event.target === event.currentTarget && open()}
    >
      {partViews(partsOf(part.elements), context)}
    </div>
  );
}

function personView(id: string, context: CardContext): VNode {
  return <span class="person">{context.nameOf(id)}</span>;
}

const largestPage = 10;

/** A table component: all its rows, the first page at once, the others unfolded. */
function cardTable(part: CardPart, context: CardContext): VNode {
  const columns = partsOf(part.columns);
  const header = columns.map((column) => textOf(column.display_name) || textOf(column.name));
  const rows = partsOf(part.rows).map((row) =>
    columns.map((column) => cellView(row[textOf(column.name)], textOf(column.data_type), context)),
  );
  const size =
    typeof part.page_size === "number" ? Math.min(largestPage, Math.max(1, part.page_size)) : 5;
  const rest = rows.slice(size);
  if (rest.length === 0) return tableView(header, rows);
  return (
    <div>
      {tableView(header, rows.slice(0, size))}
      <details class="more-rows">
        <summary>{context.words.moreRows.replace("{n}", String(rest.length))}</summary>
        {tableView(header, rest)}
      </details>
    </div>
  );
}

function cellView(value: unknown, type: string, context: CardContext): ComponentChildren {
  if (type === "lark_md" || type === "markdown") return markdownView(textOf(value), context);
  if (type === "options") {
    return partsOf(value).map((option) => (
      <span class={`label ${inkClass(textOf(option.color))}`}>{textOf(option.text)}</span>
    ));
  }
  if (type === "persons") {
    const ids: unknown[] = Array.isArray(value) ? value : [value];
    return ids.map((id) => context.nameOf(textOf(id))).join(", ");
  }
  if (type === "date" && typeof value === "number") return new Date(value).toLocaleDateString();
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
}
