/** A piece of running text. Links have a safe scheme. */
export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "emphasis" | "strike"; children: Inline[] }
  | { kind: "link"; href: string; children: Inline[] }
  | { kind: "font"; color: string; children: Inline[] }
  | { kind: "label"; color: string; text: string }
  | { kind: "at"; id: string; name: string }
  /** Epoch ms, as the reader's own clock shows it. */
  | { kind: "time"; atMs: number; shows: "date" | "time" }
  | { kind: "image"; key: string; alt: string }
  | { kind: "break" };

/** An item; deeper ones follow the item that they belong to. */
export interface ListItem {
  depth: number;
  ordered: boolean;
  inlines: Inline[];
}

/** How a column stands; absent: as the language is written. */
export type Align = "left" | "center" | "right" | undefined;

export type Block =
  | { kind: "heading"; level: number; inlines: Inline[] }
  | { kind: "paragraph"; inlines: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "list"; start: number; items: ListItem[] }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "table"; header: Inline[][]; rows: Inline[][][]; aligns: Align[] }
  | { kind: "rule" };

const maximumDepth = 6;

/** Parses the Markdown that models write. Anything else stays text; nothing becomes HTML. */
export function parseMarkdown(source: string, depth = 0): Block[] {
  const lines = source.replace(/\r\n?/g, "\n").split("\n");
  const blocks: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    if ((lines[at] ?? "").trim() === "") {
      at += 1;
      continue;
    }
    const read = readBlock(lines, at, depth);
    blocks.push(read.block);
    at = read.next;
  }
  return blocks;
}

interface ReadBlock {
  block: Block;
  next: number;
}

const itemPattern = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const fencePattern = /^\s*(`{3,}|~{3,})\s*([\w+#.-]*)\s*$/;
const headingPattern = /^(#{1,6})\s+(.*?)\s*#*$/;
const rulePattern = /^\s*([-*_])(\s*\1){2,}\s*$/;

function readBlock(lines: readonly string[], at: number, depth: number): ReadBlock {
  const line = lines[at] ?? "";
  const heading = headingPattern.exec(line);
  if (heading !== null) {
    const [, marks = "#", text = ""] = heading;
    return {
      block: { kind: "heading", level: marks.length, inlines: parseInline(text) },
      next: at + 1,
    };
  }
  if (fencePattern.test(line)) return readFence(lines, at);
  if (rulePattern.test(line)) return { block: { kind: "rule" }, next: at + 1 };
  if (line.startsWith(">") && depth < maximumDepth) return readQuote(lines, at, depth);
  if (itemPattern.test(line)) return readList(lines, at);
  if (isTable(lines, at)) return readTable(lines, at);
  return readParagraph(lines, at);
}

function readFence(lines: readonly string[], at: number): ReadBlock {
  const [, fence = "```", language = ""] = fencePattern.exec(lines[at] ?? "") ?? [];
  let end = at + 1;
  while (end < lines.length && !(lines[end] ?? "").trimStart().startsWith(fence)) end += 1;
  return {
    block: { kind: "code", language, text: lines.slice(at + 1, end).join("\n") },
    next: end + 1,
  };
}

function readQuote(lines: readonly string[], at: number, depth: number): ReadBlock {
  let end = at;
  while (end < lines.length && (lines[end] ?? "").startsWith(">")) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(/^>\s?/, ""));
  return {
    block: { kind: "quote", blocks: parseMarkdown(inner.join("\n"), depth + 1) },
    next: end,
  };
}

function readList(lines: readonly string[], at: number): ReadBlock {
  const items: ListItem[] = [];
  let next = at;
  while (next < lines.length) {
    const item = itemPattern.exec(lines[next] ?? "");
    if (item === null) break;
    const [, indent = "", marker = "-", text = ""] = item;
    const depth = Math.min(maximumDepth, Math.floor(indent.length / 2));
    items.push({ depth, ordered: /\d/.test(marker), inlines: parseInline(text) });
    next += 1;
  }
  const start = Number.parseInt(itemPattern.exec(lines[at] ?? "")?.[2] ?? "", 10);
  return { block: { kind: "list", start: Number.isNaN(start) ? 1 : start, items }, next };
}

function isTable(lines: readonly string[], at: number): boolean {
  return (
    (lines[at] ?? "").includes("|") &&
    /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "")
  );
}

function readTable(lines: readonly string[], at: number): ReadBlock {
  let end = at + 2;
  while (end < lines.length && (lines[end] ?? "").includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map(cells);
  const header = cells(lines[at] ?? "");
  return {
    block: { kind: "table", header, rows, aligns: alignsOf(lines[at + 1] ?? "") },
    next: end,
  };
}

function alignsOf(delimiter: string): Align[] {
  const marks = delimiter.trim().replace(/^\|/, "").replace(/\|$/, "").split("|");
  return marks.map((mark) => {
    const [begins, ends] = [mark.trim().startsWith(":"), mark.trim().endsWith(":")];
    if (ends) return begins ? "center" : "right";
    return begins ? "left" : undefined;
  });
}

function cells(line: string): Inline[][] {
  const trimmed = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return trimmed.split(/(?<!\\)\|/).map((cell) => parseInline(cell.trim()));
}

function readParagraph(lines: readonly string[], at: number): ReadBlock {
  let end = at + 1;
  while (end < lines.length && !startsBlock(lines, end)) end += 1;
  return {
    block: { kind: "paragraph", inlines: parseInline(lines.slice(at, end).join("\n")) },
    next: end,
  };
}

function startsBlock(lines: readonly string[], at: number): boolean {
  const line = lines[at] ?? "";
  if (line.trim() === "" || line.startsWith(">")) return true;
  return [headingPattern, fencePattern, rulePattern, itemPattern].some((pattern) =>
    pattern.test(line),
  );
}

/** The inline marks of Markdown, and those of Feishu's cards ("Rich text (Markdown)"). */
const inlinePattern = new RegExp(
  [
    /`(?<code>[^`\n]+)`/,
    /!\[(?<alt>[^\]\n]{0,300})\]\((?<image>[^()\s]{1,2000})\)/,
    /\[(?<label>[^\]\n]{1,300})\]\((?<target>[^()\s]{1,2000})\)/,
    /\*\*(?![\s*])(?<strong>[^\n]+?)\*\*(?!\*)/,
    /~~(?<strike>[^~\n]+)~~/,
    /\*(?<emphasis>[^*\s](?:[^*\n]*[^*\s])?)\*/,
    /<font\s+color\s*=\s*["']?(?<ink>[\w-]{1,40})["']?\s*>(?<inked>[^<]{0,5000})<\/font>/,
    /<text_tag\s+color\s*=\s*["']?(?<tint>[\w-]{1,40})["']?\s*>(?<tinted>[^<\n]{1,200})<\/text_tag>/,
    /<(?:at|person)\s+(?:user_)?ids?\s*=\s*["']?(?<at>[\w,-]{1,400})["']?[^<>\n]{0,200}>(?<name>[^<\n]{0,100})<\/(?:at|person)>/,
    /<local_datetime\s+millisecond=["']?(?<moment>\d{1,15})["']?\s+format_type=["']?(?<shows>\w{1,20})["']?[^<>\n]{0,200}>(?:<\/local_datetime>)/,
    /<a\s+href\s*=\s*["']?(?<anchor>[^"'<>\s]{1,2000})["']?\s*>(?<anchored>[^<\n]{1,300})<\/a>/,
    /(?<break><br\s*\/?>)/,
    /\\(?<escaped>[\\`*_~[\]()#|<>!-])/,
    /(?<bare>https?:\/\/[^\s<>"'，。）)]+)/,
  ]
    .map((pattern) => pattern.source)
    .join("|"),
);

/** Parses running text: code, links, strong, emphasis, strike, bare addresses, and the tags of cards. */
export function parseInline(source: string, depth = 0): Inline[] {
  const parts: Inline[] = [];
  let rest = source;
  while (rest !== "") {
    const match = depth > maximumDepth ? null : inlinePattern.exec(rest);
    if (match === null) break;
    if (match.index > 0) parts.push(plain(rest.slice(0, match.index)));
    parts.push(inlineOf(match, depth + 1));
    rest = rest.slice(match.index + match[0].length);
  }
  if (rest !== "") parts.push(plain(rest));
  return parts;
}

type Read = (
  groups: Readonly<Record<string, string | undefined>>,
  text: string,
  depth: number,
) => Inline | undefined;

/** By the group that stands for the mark; the first one that matched decides. */
const readers: Readonly<Record<string, Read>> = {
  code: (_, text) => ({ kind: "code", text }),
  image: ({ alt = "" }, key) => ({ kind: "image", key, alt }),
  target: ({ label = "" }, target, depth) => linkOf(target, label, depth),
  strong: (_, text, depth) => ({ kind: "strong", children: parseInline(text, depth) }),
  strike: (_, text, depth) => ({ kind: "strike", children: parseInline(text, depth) }),
  emphasis: (_, text, depth) => ({ kind: "emphasis", children: parseInline(text, depth) }),
  ink: ({ inked = "" }, color, depth) => ({
    kind: "font",
    color,
    children: parseInline(inked, depth),
  }),
  tint: ({ tinted = "" }, color) => ({ kind: "label", color, text: decoded(tinted) }),
  at: ({ name = "" }, id) => ({ kind: "at", id, name: decoded(name) }),
  moment: ({ shows = "" }, text) => ({
    kind: "time",
    atMs: Number(text),
    shows: /date/.test(shows) ? "date" : "time",
  }),
  anchor: ({ anchored = "" }, target, depth) => linkOf(target, anchored, depth),
  break: () => ({ kind: "break" }),
  escaped: (_, text) => ({ kind: "text", text }),
  bare: (_, href) => ({ kind: "link", href, children: [{ kind: "text", text: href }] }),
};

function inlineOf(match: RegExpExecArray, depth: number): Inline {
  const groups: Readonly<Record<string, string | undefined>> = match.groups ?? {};
  for (const [name, read] of Object.entries(readers)) {
    const text = groups[name];
    const inline = text === undefined ? undefined : read(groups, text, depth);
    if (inline !== undefined) return inline;
  }
  return plain(match[0]);
}

function linkOf(target: string, label: string, depth: number): Inline | undefined {
  const safe = /^(https?:\/\/|mailto:)/i.test(target);
  return safe ? { kind: "link", href: target, children: parseInline(label, depth) } : undefined;
}

const entities: Readonly<Record<string, string>> = {
  lt: "<",
  gt: ">",
  amp: "&",
  quot: '"',
  nbsp: "\u00A0",
};

/** Entities of HTML as the characters that they stand for; they only ever become text. */
function decoded(text: string): string {
  return text.replaceAll(
    /&(?:#(\d{1,7})|([a-z]{2,4}));/g,
    (whole, code: string | undefined, name: string) => {
      if (code === undefined) return entities[name] ?? whole;
      const point = Number(code);
      return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : whole;
    },
  );
}

function plain(text: string): Inline {
  return { kind: "text", text: decoded(text) };
}
