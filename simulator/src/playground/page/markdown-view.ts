import { type Block, type Inline, type ListItem, parseMarkdown } from "./markdown.ts";
import { node, type ViewElement, type ViewNode } from "./view-node.ts";

/** What Markdown refers to. */
export interface MarkdownContext {
  nameOf(id: string): string;
  imageUrl(key: string): string | undefined;
}

/** The blocks of a Markdown text. */
export function markdownView(source: string, context: MarkdownContext): ViewNode[] {
  return parseMarkdown(source).map((block) => blockView(block, context));
}

const headings = ["h3", "h4", "h5", "h6", "h6", "h6"] as const;

function blockView(block: Block, context: MarkdownContext): ViewElement {
  switch (block.kind) {
    case "heading":
      return node(headings[block.level - 1] ?? "h6", {}, inlineViews(block.inlines, context));
    case "paragraph":
      return node("p", { class: "plain" }, inlineViews(block.inlines, context));
    case "code":
      return codeView(block.language, block.text);
    case "list":
      return listView(block.items, block.start, context);
    case "quote":
      return node(
        "blockquote",
        {},
        block.blocks.map((inner) => blockView(inner, context)),
      );
    case "table":
      return tableView(
        block.header.map((cell) => inlineViews(cell, context)),
        block.rows.map((row) => row.map((cell) => inlineViews(cell, context))),
      );
    default:
      return node("hr");
  }
}

function codeView(language: string, text: string): ViewElement {
  const label = language === "" ? undefined : node("span", { class: "code-language" }, [language]);
  return node("div", { class: "code" }, [label, node("pre", { tabindex: "0" }, [node("code", {}, [text])])]);
}

/** Items of one depth; the deeper ones after an item become a list inside it. */
function listView(items: readonly ListItem[], start: number, context: MarkdownContext): ViewElement {
  const [first] = items;
  const depth = first?.depth ?? 0;
  const views: ViewElement[] = [];
  let at = 0;
  while (at < items.length) {
    const item = items[at];
    let end = at + 1;
    while (end < items.length && (items[end]?.depth ?? 0) > depth) end += 1;
    const inner = items.slice(at + 1, end);
    const nested = inner.length > 0 ? listView(inner, 1, context) : undefined;
    views.push(node("li", {}, [...inlineViews(item?.inlines ?? [], context), nested]));
    at = end;
  }
  return node(first?.ordered === true ? "ol" : "ul", start === 1 ? {} : { start: String(start) }, views);
}

/** A table that scrolls by itself when it is too wide. */
export function tableView(header: readonly ViewNode[][], rows: readonly ViewNode[][][]): ViewElement {
  const headRow = node(
    "tr",
    {},
    header.map((cell) => node("th", { scope: "col" }, cell)),
  );
  const bodyRows = rows.map((row) =>
    node(
      "tr",
      {},
      row.map((cell) => node("td", {}, cell)),
    ),
  );
  const table = node("table", {}, [node("thead", {}, [headRow]), node("tbody", {}, bodyRows)]);
  return node("div", { class: "table", tabindex: "0" }, [table]);
}

function inlineViews(inlines: readonly Inline[], context: MarkdownContext): ViewNode[] {
  return inlines.flatMap((inline) => (inline.kind === "text" ? withSigns(inline.text) : [inlineView(inline, context)]));
}

function inlineView(inline: Exclude<Inline, { kind: "text" }>, context: MarkdownContext): ViewNode {
  switch (inline.kind) {
    case "code":
      return node("code", {}, [inline.text]);
    case "strong":
      return node("strong", {}, inlineViews(inline.children, context));
    case "emphasis":
      return node("em", {}, inlineViews(inline.children, context));
    case "strike":
      return node("s", {}, inlineViews(inline.children, context));
    case "font":
      return node("span", { class: inkClass(inline.color) }, inlineViews(inline.children, context));
    case "label":
      return node("span", { class: `label ${inkClass(inline.color)}` }, [inline.text]);
    case "at":
      return mentionView(inline, context);
    case "time":
      return timeView(inline.atMs, inline.shows);
    case "image":
      return imageView(inline, context);
    case "break":
      return node("br");
    default:
      return linkView(inline.href, inlineViews(inline.children, context));
  }
}

/** In the reader's own time zone and way of writing. */
function timeView(atMs: number, shows: "date" | "time"): ViewElement {
  const style = shows === "date" ? ({ dateStyle: "medium" } as const) : ({ timeStyle: "short" } as const);
  const moment = new Date(Math.min(atMs, latestMs));
  return node("time", { datetime: moment.toISOString() }, [new Intl.DateTimeFormat(undefined, style).format(moment)]);
}

/** The last moment that a Date can hold. */
const latestMs = 8_640_000_000_000_000;

function linkView(href: string, children: readonly ViewNode[]): ViewElement {
  return node("a", { href, target: "_blank", rel: "noopener noreferrer" }, children);
}

/** Plain text in which addresses can be followed. */
export function linkedText(text: string): ViewNode[] {
  return text
    .split(/(https?:\/\/[^\s<>"'，。）)]+)/)
    .map((part, index) => (index % 2 === 1 ? linkView(part, [part]) : part));
}

function mentionView({ id, name }: { id: string; name: string }, context: MarkdownContext): ViewElement {
  const names = id.split(",").map((one) => (one === "all" ? "所有人" : name === "" ? context.nameOf(one) : name));
  return node("span", { class: "mention" }, [names.map((one) => `@${one}`).join(" ")]);
}

/** An image of the platform by its key; what the platform does not hold is named. */
export function imageView({ key, alt }: { key: string; alt: string }, context: MarkdownContext): ViewElement {
  const src = context.imageUrl(key);
  if (src === undefined) return node("span", { class: "missing" }, [alt === "" ? key : alt]);
  return node("img", { class: "picture", src, alt, loading: "lazy" });
}

const inks = new Set(
  "blue wathet turquoise lime green yellow orange red carmine violet purple indigo grey neutral".split(" "),
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
};

/** The reaction that people can give here. */
export const offeredReaction = "THUMBSUP";

/** A reaction as its icon, where there is one, and its name. */
export function reactionView(emojiType: string): ViewNode[] {
  const icon = Object.hasOwn(reactionIcons, emojiType) ? reactionIcons[emojiType] : undefined;
  return [
    ...(icon === undefined ? [] : [node("span", { class: `icon icon-${icon}`, "aria-hidden": "true" })]),
    emojiType,
  ];
}

/** Signs of state that are drawn, so that they look the same on every machine. */
const signs: Readonly<Record<string, string>> = {
  "\u2705": "done",
  "\u274C": "failed",
  "\u23F3": "clock",
  "\u23F9": "stopped",
  "\u26A0": "warning",
};

/** Text with its signs of state drawn; what is copied or read aloud is the text. */
export function withSigns(text: string): ViewNode[] {
  return text
    .split(/([\u2705\u274C\u23F3]|[\u23F9\u26A0]\uFE0F?)/u)
    .filter((part) => part !== "")
    .map((part) => {
      const sign = part.length <= 2 ? signs[part.charAt(0)] : undefined;
      return sign === undefined ? part : node("span", { class: `sign icon-${sign}` }, [part]);
    });
}
