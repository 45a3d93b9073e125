import type { ComponentChildren, VNode } from "preact";
import { type Align, type Block, type Inline, type ListItem, parseMarkdown } from "./markdown.ts";

/** What Markdown refers to. */
export interface MarkdownContext {
  nameOf(id: string): string;
}

/** The blocks of a Markdown text. */
export function markdownView(source: string, context: MarkdownContext): VNode[] {
  let deepest = -1;
  // A text may begin with any level; readers who go by headings need them without gaps below the chat's title.
  const headingOf = (level: number): Heading => {
    deepest = Math.min(level - 1, deepest + 1);
    return headings[deepest] ?? "h6";
  };
  return parseMarkdown(source).map((block) => blockView(block, { ...context, headingOf }));
}

const headings = ["h3", "h4", "h5", "h6"] as const;
type Heading = (typeof headings)[number];

interface BlockContext extends MarkdownContext {
  headingOf(level: number): Heading;
}

function blockView(block: Block, context: BlockContext): VNode {
  switch (block.kind) {
    case "heading": {
      const Heading = context.headingOf(block.level);
      return (
        <Heading class={`size-${Math.min(block.level, 4)}`}>
          {inlineViews(block.inlines, context)}
        </Heading>
      );
    }
    case "paragraph":
      return <p class="plain">{inlineViews(block.inlines, context)}</p>;
    case "code":
      return (
        <div class="code">
          {block.language !== "" && <span class="code-language">{block.language}</span>}
          <pre tabIndex={0}>
            <code>{inPieces(block.text)}</code>
          </pre>
        </div>
      );
    case "list":
      return listView(block.items, block.start, context);
    case "quote":
      return <blockquote>{block.blocks.map((inner) => blockView(inner, context))}</blockquote>;
    case "table":
      return tableView(
        block.header.map((cell) => inlineViews(cell, context)),
        block.rows.map((row) => row.map((cell) => inlineViews(cell, context))),
        block.aligns,
      );
    default:
      return <hr />;
  }
}

/** A number or a date with its unit: it stays on one line, as in Feishu's tables. */
function isFigure(cell: ComponentChildren): boolean {
  const [text, ...more] = [cell].flat(2);
  return more.length === 0 && typeof text === "string" && /^\p{Sc}?-?\d.{0,19}$/u.test(text);
}

/** Items of one depth; the deeper ones after an item become a list inside it. */
function listView(items: readonly ListItem[], start: number, context: MarkdownContext): VNode {
  const [first] = items;
  const depth = first?.depth ?? 0;
  const views: VNode[] = [];
  let at = 0;
  while (at < items.length) {
    const item = items[at];
    let end = at + 1;
    while (end < items.length && (items[end]?.depth ?? 0) > depth) end += 1;
    const inner = items.slice(at + 1, end);
    views.push(
      <li>
        {inlineViews(item?.inlines ?? [], context)}
        {inner.length > 0 && listView(inner, 1, context)}
      </li>,
    );
    at = end;
  }
  if (first?.ordered !== true) return <ul>{views}</ul>;
  return start === 1 ? <ol>{views}</ol> : <ol start={start}>{views}</ol>;
}

/** A table that scrolls by itself when it is too wide. */
export function tableView(
  header: readonly ComponentChildren[],
  rows: readonly ComponentChildren[][],
  aligns: readonly Align[] = [],
): VNode {
  const classOf = (column: number): string | undefined =>
    aligns[column] && `align-${aligns[column]}`;
  return (
    <div class="table" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {header.map((cell, column) => (
              <th scope="col" class={classOf(column)}>
                {cell}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              {row.map((cell, column) => (
                <td class={classOf(column)} style={isFigure(cell) ? { whiteSpace: "nowrap" } : {}}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inlineViews(inlines: readonly Inline[], context: MarkdownContext): ComponentChildren[] {
  return inlines.flatMap((inline) =>
    inline.kind === "text" ? withSigns(inline.text) : [inlineView(inline, context)],
  );
}

function inlineView(inline: Exclude<Inline, { kind: "text" }>, context: MarkdownContext): VNode {
  switch (inline.kind) {
    case "code":
      return <code>{inline.text}</code>;
    case "strong":
      return <strong>{inlineViews(inline.children, context)}</strong>;
    case "emphasis":
      return <em>{inlineViews(inline.children, context)}</em>;
    case "strike":
      return <s>{inlineViews(inline.children, context)}</s>;
    case "font":
      return <span class={inkClass(inline.color)}>{inlineViews(inline.children, context)}</span>;
    case "label":
      return <span class={`label ${inkClass(inline.color)}`}>{inline.text}</span>;
    case "at":
      return mentionView(inline, context);
    case "time":
      return timeView(inline.atMs, inline.shows);
    case "image":
      return imageView(inline);
    case "break":
      return <br />;
    default:
      return linkView(inline.href, inlineViews(inline.children, context));
  }
}

/** In the reader's own time zone and way of writing. */
function timeView(atMs: number, shows: "date" | "time"): VNode {
  const style =
    shows === "date" ? ({ dateStyle: "medium" } as const) : ({ timeStyle: "short" } as const);
  const moment = new Date(Math.min(atMs, latestMs));
  return (
    <time dateTime={moment.toISOString()}>
      {new Intl.DateTimeFormat(undefined, style).format(moment)}
    </time>
  );
}

/** The last moment that a Date can hold. */
const latestMs = 8_640_000_000_000_000;

function linkView(href: string, children: ComponentChildren): VNode {
  return (
    <a href={href} target="_blank" rel="noopener noreferrer">
      {children}
    </a>
  );
}

/** Plain text in which addresses can be followed. */
export function linkedText(text: string): ComponentChildren[] {
  return text
    .split(/(https?:\/\/[^\s<>"'，。）)]+)/)
    .map((part, index) => (index % 2 === 1 ? linkView(part, part) : part));
}

function mentionView({ id, name }: { id: string; name: string }, context: MarkdownContext): VNode {
  const names = id
    .split(",")
    .map((one) => (one === "all" ? "所有人" : name === "" ? context.nameOf(one) : name));
  return <span class="mention">{names.map((one) => `@${one}`).join(" ")}</span>;
}

/** An image of the platform by its key; what the platform does not hold is named. */
export function imageView({ key, alt }: { key: string; alt: string }): VNode {
  if (!/^[\w-]+$/.test(key)) return <span class="missing">{alt === "" ? key : alt}</span>;
  return <img class="picture" src={`/api/images/${key}`} alt={alt} loading="lazy" />;
}

const inks = new Set(
  "blue wathet turquoise lime green yellow orange red carmine violet purple indigo grey neutral".split(
    " ",
  ),
);

/** The class of a colour by its name in cards; names with a shade (`red-600`) count as the colour. */
export function inkClass(color: string): string {
  const [name = ""] = color.toLowerCase().replace("gray", "grey").split("-");
  return inks.has(name) ? `ink ink-${name}` : "ink";
}

/** The icon of a reaction of the platform, by emoji type ("Reaction emoji"). */
const reactionIcons: Readonly<Record<string, string>> = {
  Typing: "typing",
  OnIt: "check",
  OneSecond: "clock",
  THINKING: "typing",
  Get: "check",
  DONE: "done",
  OK: "check",
  CheckMark: "done",
  CrossMark: "failed",
  ERROR: "warning",
  THUMBSUP: "thumb",
  ThumbsDown: "thumb-down",
};

/** The reactions that people can give here. */
export const offeredReactions = ["THUMBSUP", "ThumbsDown"] as const;

/** A reaction as its icon, where there is one, and its name. */
export function reactionView(emojiType: string): ComponentChildren[] {
  const icon = Object.hasOwn(reactionIcons, emojiType) ? reactionIcons[emojiType] : undefined;
  return [icon !== undefined && <span class={`icon icon-${icon}`} aria-hidden="true" />, emojiType];
}

/** Signs of state that are drawn, so that they look the same on every machine. */
const signs: Readonly<Record<string, string>> = {
  "\u2705": "done",
  "\u274C": "failed",
  "\u23F3": "clock",
  "\u23F9": "stopped",
  "\u26A0": "warning",
  "\u{1F44D}": "thumb",
  "\u{1F44E}": "thumb-down",
};

/** Text with its signs of state drawn; what is copied or read aloud is the text. */
export function withSigns(text: string): ComponentChildren[] {
  return text
    .split(/([\u2705\u274C\u23F3\u{1F44D}\u{1F44E}]|[\u23F9\u26A0]\uFE0F?)/u)
    .filter((part) => part !== "")
    .flatMap((part): ComponentChildren[] => {
      const sign =
        part.length <= 2 ? signs[String.fromCodePoint(part.codePointAt(0) ?? 0)] : undefined;
      return sign === undefined
        ? inPieces(part)
        : [<span class={`sign icon-${sign}`}>{part}</span>];
    });
}

/** While a text grows, all text nodes but the last one stay as they are, and so does a selection in them. */
function inPieces(text: string): string[] {
  return text.match(/[\s\S]{1,60}/gu) ?? [];
}
