import type { SimMessage } from "../view.ts";
import { button, element, type Child } from "./element.ts";
import { parseMarkdown, type Block, type Inline, type ListItem } from "./markdown.ts";
import type { Store } from "./store.ts";
import type { Words } from "./words.ts";

export interface BubbleParts {
  message: SimMessage;
  store: Store;
  words: Words;
  onReply: (message: SimMessage) => void;
  onRedeliver: (message: SimMessage) => void;
  onRecall: (message: SimMessage) => void;
}

/** One message: who, when, what it answers, its content, reactions, and what can be done with it. */
export function messageBubble(parts: BubbleParts): HTMLElement {
  const { message, store, words } = parts;
  const bot = store.isBot(message.senderId);
  const name = store.nameOf(message.senderId);
  const time = new Date(message.createdAt);
  const clock = time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  const head = element("header", {}, [
    element("strong", {}, [name]),
    bot ? element("span", { class: "tag" }, [words.bot]) : undefined,
    message.threadId === undefined ? undefined : element("span", { class: "tag" }, [words.inThread]),
    element("time", { datetime: time.toISOString() }, [clock]),
    message.edits > 0 ? element("span", { class: "faint" }, [words.edited]) : undefined,
    message.recalled ? undefined : actions(parts),
  ]);
  const body = message.recalled
    ? element("p", { class: "faint" }, [words.recalled])
    : element("div", { class: "content" }, contentNodes(message, words));
  const bubble = element("div", { class: "bubble" }, [quote(parts), body]);
  return element("li", { class: bot ? "message from-bot" : "message", "data-message-id": message.messageId }, [
    avatar(name, bot),
    element("div", { class: "said" }, [head, bubble, reactions(message)]),
  ]);
}

/** A round mark with the first letter, in a colour of its own. */
export function avatar(name: string, bot: boolean): HTMLElement {
  let sum = 0;
  for (const letter of name) sum += letter.codePointAt(0) ?? 0;
  const colour = bot ? "avatar-bot" : `avatar-${sum % 5}`;
  return element("span", { class: `avatar ${colour}`, "aria-hidden": "true" }, [[...name][0] ?? "?"]);
}

function quote({ message, store, words }: BubbleParts): HTMLElement | undefined {
  if (message.parentId === undefined) return undefined;
  const parent = store.message(message.parentId);
  if (parent === undefined) return undefined;
  const text = parent.recalled ? words.recalled : parent.text.slice(0, 120);
  return element("blockquote", { class: "quote" }, [`${store.nameOf(parent.senderId)}: ${text}`]);
}

function reactions(message: SimMessage): HTMLElement | undefined {
  if (message.reactions.length === 0) return undefined;
  const chips = message.reactions.map((reaction) => element("span", { class: "chip" }, [reaction.emojiType]));
  return element("div", { class: "reactions" }, chips);
}

function actions({ message, store, words, onReply, onRedeliver, onRecall }: BubbleParts): HTMLElement {
  const mine = !store.isBot(message.senderId);
  return element("div", { class: "actions" }, [
    button(words.replyTo, {}, () => onReply(message)),
    mine ? button(words.redeliver, {}, () => onRedeliver(message)) : undefined,
    mine ? button(words.recall, {}, () => onRecall(message)) : undefined,
  ]);
}

function contentNodes(message: SimMessage, words: Words): Child[] {
  if (message.messageType === "post") return blockNodes(parseMarkdown(message.text));
  if (message.messageType === "interactive") {
    const source = element("pre", {}, [element("code", {}, [prettyJson(message.content)])]);
    const folded = element("details", {}, [element("summary", {}, [words.cardSource]), source]);
    return [element("p", {}, [element("strong", {}, [`${words.card}: ${message.text}`])]), folded];
  }
  return [element("p", { class: "plain" }, inlineNodes(linksOnly(message.text)))];
}

function linksOnly(text: string): Inline[] {
  return text
    .split(/(https?:\/\/[^\s<>"'，。）)]+)/)
    .map((part, index) =>
      index % 2 === 1
        ? { kind: "link", href: part, children: [{ kind: "text", text: part }] }
        : { kind: "text", text: part },
    );
}

function prettyJson(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

function blockNodes(blocks: readonly Block[]): Child[] {
  return blocks.map(blockNode);
}

const headings = ["h4", "h4", "h5", "h5", "h6", "h6"] as const;

function blockNode(block: Block): Node {
  switch (block.kind) {
    case "heading":
      return element(headings[block.level - 1] ?? "h6", {}, inlineNodes(block.inlines));
    case "paragraph":
      return element("p", { class: "plain" }, inlineNodes(block.inlines));
    case "code":
      return element("pre", { tabindex: "0" }, [element("code", { "data-language": block.language }, [block.text])]);
    case "list":
      return listNode(block.items, block.start);
    case "quote":
      return element("blockquote", {}, blockNodes(block.blocks));
    case "table":
      return tableNode(block.header, block.rows);
    default:
      return element("hr");
  }
}

/** Items of one depth; the deeper ones after an item become a list inside it. */
function listNode(items: readonly ListItem[], start: number): HTMLElement {
  const [first] = items;
  const depth = first?.depth ?? 0;
  const list = element(first?.ordered === true ? "ol" : "ul", start === 1 ? {} : { start: String(start) });
  let at = 0;
  while (at < items.length) {
    const item = items[at];
    let end = at + 1;
    while (end < items.length && (items[end]?.depth ?? 0) > depth) end += 1;
    const inner = items.slice(at + 1, end);
    const nested = inner.length > 0 ? listNode(inner, 1) : undefined;
    list.append(element("li", {}, [...inlineNodes(item?.inlines ?? []), nested]));
    at = end;
  }
  return list;
}

function tableNode(header: readonly Inline[][], rows: readonly Inline[][][]): HTMLElement {
  const head = element(
    "tr",
    {},
    header.map((cell) => element("th", {}, inlineNodes(cell))),
  );
  const body = rows.map((row) =>
    element(
      "tr",
      {},
      row.map((cell) => element("td", {}, inlineNodes(cell))),
    ),
  );
  const table = element("table", {}, [element("thead", {}, [head]), element("tbody", {}, body)]);
  return element("div", { class: "table" }, [table]);
}

function inlineNodes(inlines: readonly Inline[]): Child[] {
  return inlines.map(inlineNode);
}

function inlineNode(inline: Inline): Child {
  switch (inline.kind) {
    case "text":
      return inline.text;
    case "code":
      return element("code", {}, [inline.text]);
    case "strong":
      return element("strong", {}, inlineNodes(inline.children));
    case "emphasis":
      return element("em", {}, inlineNodes(inline.children));
    case "strike":
      return element("s", {}, inlineNodes(inline.children));
    default: {
      const attributes = { href: inline.href, target: "_blank", rel: "noopener noreferrer" };
      return element("a", attributes, inlineNodes(inline.children));
    }
  }
}
