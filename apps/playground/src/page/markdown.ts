/** A piece of running text. Links have a safe scheme. */
export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "emphasis" | "strike"; children: Inline[] }
  | { kind: "link"; href: string; children: Inline[] };

/** An item; deeper ones follow the item that they belong to. */
export interface ListItem {
  depth: number;
  ordered: boolean;
  inlines: Inline[];
}

export type Block =
  | { kind: "heading"; level: number; inlines: Inline[] }
  | { kind: "paragraph"; inlines: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "list"; start: number; items: ListItem[] }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "table"; header: Inline[][]; rows: Inline[][][] }
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
    return { block: { kind: "heading", level: marks.length, inlines: parseInline(text) }, next: at + 1 };
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
  return { block: { kind: "code", language, text: lines.slice(at + 1, end).join("\n") }, next: end + 1 };
}

function readQuote(lines: readonly string[], at: number, depth: number): ReadBlock {
  let end = at;
  while (end < lines.length && (lines[end] ?? "").startsWith(">")) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(/^>\s?/, ""));
  return { block: { kind: "quote", blocks: parseMarkdown(inner.join("\n"), depth + 1) }, next: end };
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
  return (lines[at] ?? "").includes("|") && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "");
}

function readTable(lines: readonly string[], at: number): ReadBlock {
  let end = at + 2;
  while (end < lines.length && (lines[end] ?? "").includes("|")) end += 1;
  const rows = lines.slice(at + 2, end).map(cells);
  return { block: { kind: "table", header: cells(lines[at] ?? ""), rows }, next: end };
}

function cells(line: string): Inline[][] {
  const trimmed = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return trimmed.split("|").map((cell) => parseInline(cell.trim()));
}

function readParagraph(lines: readonly string[], at: number): ReadBlock {
  let end = at + 1;
  while (end < lines.length && !startsBlock(lines, end)) end += 1;
  return { block: { kind: "paragraph", inlines: parseInline(lines.slice(at, end).join("\n")) }, next: end };
}

function startsBlock(lines: readonly string[], at: number): boolean {
  const line = lines[at] ?? "";
  if (line.trim() === "" || line.startsWith(">")) return true;
  return [headingPattern, fencePattern, rulePattern, itemPattern].some((pattern) => pattern.test(line));
}

const inlinePattern =
  /`([^`\n]+)`|\[([^\]\n]{1,300})\]\(([^()\s]{1,2000})\)|\*\*(?![\s*])([^\n]+?)\*\*(?!\*)|~~([^~\n]+)~~|\*([^*\s](?:[^*\n]*[^*\s])?)\*|(https?:\/\/[^\s<>"'，。）)]+)/;

/** Parses running text: code, links, strong, emphasis, strike, bare addresses. */
export function parseInline(source: string, depth = 0): Inline[] {
  const parts: Inline[] = [];
  let rest = source;
  while (rest !== "") {
    const match = depth > maximumDepth ? null : inlinePattern.exec(rest);
    if (match === null) break;
    if (match.index > 0) parts.push({ kind: "text", text: rest.slice(0, match.index) });
    parts.push(inlineOf(match, depth + 1));
    rest = rest.slice(match.index + match[0].length);
  }
  if (rest !== "") parts.push({ kind: "text", text: rest });
  return parts;
}

function inlineOf(match: RegExpExecArray, depth: number): Inline {
  const [whole, code, label, target, strong, strike, emphasis, bare] = match;
  if (code !== undefined) return { kind: "code", text: code };
  if (label !== undefined && target !== undefined) {
    const href = safeLink(target);
    return href === undefined
      ? { kind: "text", text: whole }
      : { kind: "link", href, children: parseInline(label, depth) };
  }
  if (strong !== undefined) return { kind: "strong", children: parseInline(strong, depth) };
  if (strike !== undefined) return { kind: "strike", children: parseInline(strike, depth) };
  if (emphasis !== undefined) return { kind: "emphasis", children: parseInline(emphasis, depth) };
  return { kind: "link", href: bare ?? whole, children: [{ kind: "text", text: bare ?? whole }] };
}

function safeLink(target: string): string | undefined {
  return /^(https?:\/\/|mailto:)/i.test(target) ? target : undefined;
}
