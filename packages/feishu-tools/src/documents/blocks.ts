import { keyOf, changeOnce } from "../exactly-once.ts";
import { isRefusal, type Platform } from "../platform.ts";
import type { ToolContext } from "@larkline/tool-kit";

// Documents by their blocks: listing them, and adding Markdown below one of them in pieces that the platform takes.

/** A block as far as tools look at it; the platform's own fields stay as they are. */
export interface Block {
  block_id?: string;
  parent_id?: string;
  block_type: number;
  children?: string[];
  [field: string]: unknown;
}

/** All blocks in reading order; the first one is the page. */
export async function blocksOf(
  platform: Platform,
  documentId: string,
  revision = -1,
): Promise<Block[]> {
  const blocks: Block[] = [];
  for (let page_token = ""; ;) {
    const token = page_token;
    const page = await platform.read(
      (client, as) =>
        client.docx.v1.documentBlock.list(
          {
            path: { document_id: documentId },
            params: {
              page_size: 500,
              document_revision_id: revision,
              ...(token === "" ? {} : { page_token: token }),
            },
          },
          as,
        ),
      blockPace,
    );
    blocks.push(...((page.items ?? []) as Block[])); // the types of the SDK name each kind of block
    if (page.has_more !== true || (page.page_token ?? "") === "" || blocks.length >= maxBlocks) {
      return blocks;
    }
    page_token = page.page_token ?? "";
  }
}

const maxBlocks = 20_000;

/** The number that the document's state has now. */
export async function revisionOf(platform: Platform, documentId: string): Promise<number> {
  const { document } = await platform.read((client, as) =>
    client.docx.v1.document.get({ path: { document_id: documentId } }, as),
  );
  return document?.revision_id ?? -1;
}

/** Names of types ("Block data structure"); others are shown by their number, never left out. */
const typeNames: Readonly<Record<number, string>> = {
  1: "page",
  2: "text",
  12: "bullet",
  13: "ordered",
  14: "code",
  15: "quote",
  17: "todo",
  18: "base",
  19: "callout",
  22: "divider",
  23: "file",
  27: "image",
  30: "sheet",
  31: "table",
  32: "table_cell",
  43: "board",
};

export function typeNameOf(type: number): string {
  if (type >= 3 && type <= 11) return `heading${type - 2}`;
  return typeNames[type] ?? `type ${type}`;
}

/** The text of a block, without its format; empty for blocks that hold none. */
export function textOf(block: Block): string {
  for (const value of Object.values(block)) {
    if (
      typeof value === "object" &&
      value !== null &&
      "elements" in value &&
      Array.isArray(value.elements)
    ) {
      return value.elements.map(contentOf).join("");
    }
  }
  return "";
}

function contentOf(element: unknown): string {
  if (typeof element !== "object" || element === null) return "";
  if ("text_run" in element && typeof element.text_run === "object" && element.text_run !== null) {
    return "content" in element.text_run ? String(element.text_run.content) : "";
  }
  const [kind = "element"] = Object.keys(element);
  return `[${kind}]`;
}

/** Three changes a second, of all documents together ("Document FAQ"). */
export const documentPace = { of: "documents", everyMs: 340 };
const blockPace = { of: "blocks of documents", everyMs: 200 };

/** The most blocks that one call may add. */
const maxBlocksOfCall = 1_000;

interface Piece {
  top: string[];
  blocks: Block[];
}

/**
 * Adds Markdown below a block, in order, each piece under a key of its own. Resolves to how many blocks were added at
 * the top. `index` is the place among the children; -1 is behind the last one.
 */
export async function addMarkdown(
  platform: Platform,
  context: Pick<ToolContext, "callId">,
  { documentId, parentId, index, markdown, windowMs }: Addition,
): Promise<number> {
  const converted = await platform.read((client, as) =>
    client.docx.v1.document.convert(
      { data: { content_type: "markdown", content: withoutPictures(markdown) } },
      as,
    ),
  );
  const pieces = piecesOf(
    converted.first_level_block_ids ?? [],
    (converted.blocks ?? []) as Block[],
  ); // as above
  let added = 0;
  for (const [at, piece] of pieces.entries()) {
    // Only into documents of its own does a call write that may look later: nothing was there before.
    const before = new Set(
      platform.beganAtMs === undefined
        ? childrenOf(await blocksOf(platform, documentId), parentId)
        : [],
    );
    const expected = piece.top.map((id) =>
      textOf(piece.blocks.find(({ block_id }) => block_id === id) ?? noBlock),
    );
    await changeOnce(platform, {
      windowMs,
      pace: documentPace,
      run: (client, as) =>
        client.docx.v1.documentBlockDescendant.create(
          {
            path: { document_id: documentId, block_id: parentId },
            params: { document_revision_id: -1, client_token: keyOf(context, `blocks ${at}`) },
            data: {
              children_id: piece.top,
              index: index < 0 ? -1 : index + added,
              descendants: piece.blocks as unknown as Descendants, // what the platform has just made
            },
          },
          as,
        ),
      isDone: async () => {
        const now = await blocksOf(platform, documentId);
        const texts = new Map(now.map((block) => [block.block_id ?? "", textOf(block)]));
        const fresh = childrenOf(now, parentId).filter((id) => !before.has(id));
        return isRunOf(
          fresh.map((id) => texts.get(id) ?? ""),
          expected,
        );
      },
      isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1770001),
      open: `whether part ${at + 1} of ${pieces.length} of the text is in the document`,
    });
    added += piece.top.length;
  }
  return added;
}

/** Pictures as links: the platform would make empty frames of them, because it fetches none. */
function withoutPictures(markdown: string): string {
  return markdown
    .split(/(^```[^]*?^```|`[^`\n]*`)/m)
    .map((part, at) =>
      at % 2 === 1
        ? part
        : part.replaceAll(
            /!\[([^\]\n]*)\]\(/g,
            (_, name: string) => `[${name === "" ? "picture" : name}](`,
          ),
    )
    .join("");
}

interface Addition {
  documentId: string;
  parentId: string;
  index: number;
  markdown: string;
  windowMs: number;
}

type Descendants = {
  block_id?: string;
  block_type: number;
  children?: string[];
}[];

const noBlock: Block = { block_type: 0 };

export function childrenOf(blocks: readonly Block[], parentId: string): string[] {
  return blocks.find(({ block_id }) => block_id === parentId)?.children ?? [];
}

/** Whether the texts hold the wanted ones, in their order and side by side. */
function isRunOf(texts: readonly string[], wanted: readonly string[]): boolean {
  return texts.some((_, start) => wanted.every((text, at) => texts[start + at] === text));
}

/** Pieces that each hold whole blocks of the top, with all that is in them. */
function piecesOf(top: readonly string[], blocks: readonly Block[]): Piece[] {
  const byId = new Map(blocks.map((block) => [block.block_id ?? "", withoutReadOnly(block)]));
  const withDescendants = (id: string): Block[] => {
    const block = byId.get(id);
    return block === undefined ? [] : [block, ...(block.children ?? []).flatMap(withDescendants)];
  };
  const pieces: Piece[] = [];
  for (const id of top) {
    const group = withDescendants(id);
    if (group.length > maxBlocksOfCall) {
      throw new Error(
        `One table or list has ${group.length} parts; the platform takes ${maxBlocksOfCall}. Split it.`,
      );
    }
    const last = pieces.at(-1);
    if (last !== undefined && last.blocks.length + group.length <= maxBlocksOfCall) {
      last.top.push(id);
      last.blocks.push(...group);
    } else pieces.push({ top: [id], blocks: group });
  }
  return pieces;
}

/** Conversion gives `merge_info` of tables, which may not be sent ("Convert content to blocks"). */
function withoutReadOnly(block: Block): Block {
  const { table } = block;
  if (typeof table !== "object" || table === null || !("property" in table)) return block;
  const { property } = table;
  if (typeof property !== "object" || property === null || !("merge_info" in property)) {
    return block;
  }
  const { merge_info: _merged, ...kept } = property;
  return { ...block, table: { ...table, property: kept } };
}
