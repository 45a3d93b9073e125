import { type HandlerTool, OutcomeUnknownError, type ToolContext } from "@larkline/tool-kit";
import { Type } from "typebox";
import { changeOnce, keyOf, makeOnce, onlyOne, sinceSeconds } from "../exactly-once.ts";
import { checkedId, isRefusal, type Platform, quoted, type Settings } from "../platform.ts";
import {
  addMarkdown,
  type Block,
  blocksOf,
  childrenOf,
  documentPace,
  revisionOf,
  textOf,
  typeNameOf,
} from "./blocks.ts";
import { madeIn } from "../drive.ts";
import { documentAt, documentRemedies, linkOf, wikiNodeAt } from "./reading.ts";
import { workTool } from "../work-tool.ts";

export const documentLink = Type.String({
  minLength: 1,
  maxLength: 500,
  description: "Link to the document or page, or its id.",
});
const markdownText = Type.String({
  minLength: 1,
  maxLength: 200_000,
  description: "Markdown. Pictures become links: add_picture puts one in.",
});

const fillScopes = [
  "docx:document.block:convert",
  "docx:document:write_only",
  "docx:document:readonly",
];

function createDocumentTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    timeoutMs: 180_000,
    name: "create_document",
    description:
      "Creates a document of the person's own, with this text. Others see it only once it is shared. For a page of a wiki use create_wiki_page.",
    title: { zh: "新建文档", en: "Create a document" },
    summary: { zh: "新建文档《{title}》", en: "Create the document “{title}”" },
    input: {
      title: Type.String({ minLength: 1, maxLength: 800 }),
      markdown: Type.Optional(markdownText),
      folder: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "Id of a folder. Default: the person's own.",
        }),
      ),
    },
    effect: "once",
    looks: true,
    scopes: ["docx:document:create", "space:document:retrieve", ...fillScopes],
    reach: "own",
    run: async ({ title, markdown, folder }, platform, context) => {
      const folder_token = folder === undefined ? "" : checkedId(folder, "a folder");
      const find = madeIn(platform, { folder: folder_token, name: title, type: "docx" });
      const folderName = folder_token === "" ? (platform.openId ?? "") : folder_token;
      const documentId = await platform.exclusive(
        `folder ${folderName}`,
        async () =>
          await makeOnce(platform, {
            run: (client, as) =>
              client.docx.v1.document.create(
                { data: { title, ...(folder_token === "" ? {} : { folder_token }) } },
                as,
              ),
            result: ({ document }) => document?.document_id ?? "",
            find: async () => (await find())?.token,
            open: `whether the document ${JSON.stringify(title)} was created`,
          }),
      );
      const created = linkOf("docx", documentId, { origin: undefined });
      await filled(platform, context, {
        documentId,
        markdown,
        windowMs: settings.keyWindowMs,
        place: created,
      });
      return `Created: ${created}`;
    },
  });
}

function createPageTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    timeoutMs: 180_000,
    name: "create_wiki_page",
    description:
      "Creates a page in a wiki, with this text. All who may read that part of the wiki see it.",
    title: { zh: "新建知识库页面", en: "Create a wiki page" },
    summary: { zh: "在知识库新建页面《{title}》", en: "Create the wiki page “{title}”" },
    input: {
      title: Type.String({ minLength: 1, maxLength: 800 }),
      markdown: Type.Optional(markdownText),
      space: Type.Optional(
        Type.String({ maxLength: 100, description: "Id of the space, as browse_wiki gives it." }),
      ),
      parent: Type.Optional(
        Type.String({ maxLength: 500, description: "Link to the page below which it stands." }),
      ),
    },
    effect: "once",
    looks: true,
    scopes: ["wiki:node:create", "wiki:node:retrieve", "wiki:node:read", ...fillScopes],
    reach: "shared",
    run: async ({ title, markdown, space, parent }, platform, context) => {
      const above =
        parent === undefined ? undefined : await wikiNodeAt(platform, checkedToken(parent));
      const spaceId = above?.spaceId ?? space;
      if (spaceId === undefined) {
        throw new Error("Name the space or the page below which the new one stands.");
      }
      const path = { space_id: checkedId(spaceId, "a space") };
      const parent_node_token = above?.nodeToken;
      const below = parent_node_token === undefined ? {} : { parent_node_token };
      const since = sinceSeconds(platform);
      const node = await makeOnce(platform, {
        run: (client, as) =>
          client.wiki.v2.spaceNode.create(
            { path, data: { obj_type: "docx", node_type: "origin", title, ...below } },
            as,
          ),
        result: (answer) => ({
          token: answer.node?.node_token ?? "",
          documentId: answer.node?.obj_token ?? "",
        }),
        find: async () => {
          const nodes = await nodesIn(platform, {
            spaceId: path.space_id,
            parent: parent_node_token,
          });
          const mine = nodes.filter(
            (one) =>
              one.title === title &&
              one.creator === platform.openId &&
              Number(one.node_create_time) >= since,
          );
          const found = onlyOne(mine);
          if (found === undefined) return undefined;
          return { token: found.node_token ?? "", documentId: found.obj_token ?? "" };
        },
        open: `whether the page ${JSON.stringify(title)} was created`,
      });
      const place = linkOf("wiki", node.token, { origin: undefined });
      const { documentId } = node;
      await filled(platform, context, {
        documentId,
        markdown,
        windowMs: settings.keyWindowMs,
        place,
      });
      return `Created: ${place}`;
    },
  });
}

/** Puts the text into a new document. What fails here must not hide that the document is there. */
async function filled(
  platform: Platform,
  context: Pick<ToolContext, "callId">,
  { documentId, markdown, windowMs, place }: FilledDocument,
): Promise<void> {
  if (markdown === undefined) return;
  try {
    await addMarkdown(platform, context, {
      documentId,
      parentId: documentId,
      index: -1,
      markdown,
      windowMs,
    });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const words = `The document was created (${place}), but not all of the text is in it: ${reason}`;
    throw error instanceof OutcomeUnknownError ? new OutcomeUnknownError(words) : new Error(words);
  }
}

interface FilledDocument {
  documentId: string;
  markdown: string | undefined;
  windowMs: number;
  place: string;
}

function checkedToken(text: string): string {
  const token = /\/wiki\/([A-Za-z0-9_-]{1,100})/.exec(text)?.[1] ?? text;
  return checkedId(token, "a page");
}

interface WikiNode {
  node_token?: string | undefined;
  obj_token?: string | undefined;
  obj_type?: string | undefined;
  title?: string | undefined;
  has_child?: boolean | undefined;
  creator?: string | undefined;
  node_create_time?: string | undefined;
}

const maxNodes = 500;

async function nodesIn(
  platform: Platform,
  { spaceId, parent }: { spaceId: string; parent: string | undefined },
): Promise<WikiNode[]> {
  const nodes: WikiNode[] = [];
  for (let page_token = ""; ;) {
    const params = {
      page_size: 50,
      ...(page_token === "" ? {} : { page_token }),
      ...(parent === undefined ? {} : { parent_node_token: parent }),
    };
    const page = await platform.read((client, as) =>
      client.wiki.v2.spaceNode.list({ path: { space_id: spaceId }, params }, as),
    );
    nodes.push(...(page.items ?? []));
    // A page may be empty although more follow.
    if (page.has_more !== true || (page.page_token ?? "") === "" || nodes.length >= maxNodes) {
      return nodes;
    }
    page_token = page.page_token ?? "";
  }
}

function browseTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "browse_wiki",
    description:
      "Lists the wiki spaces of the person, or the pages of a space or below a page. To find a page by words use find_documents.",
    title: { zh: "浏览知识库", en: "Browse the wiki" },
    input: {
      space: Type.Optional(
        Type.String({ maxLength: 100, description: "Id of a space. Absent: lists the spaces." }),
      ),
      page: Type.Optional(
        Type.String({ maxLength: 500, description: "Link to the page whose pages are listed." }),
      ),
    },
    effect: "pure",
    scopes: ["wiki:space:retrieve", "wiki:node:retrieve", "wiki:node:read"],
    reach: "reads",
    run: async ({ space, page }, platform) => {
      if (space === undefined && page === undefined) {
        const { items = [] } = await platform.read((client, as) =>
          client.wiki.v2.space.list({ params: { page_size: 50 } }, as),
        );
        const lines = items.map(({ space_id, name }) => `- ${name ?? ""}: space ${space_id ?? ""}`);
        return lines.length === 0
          ? "The person is in no wiki space."
          : quoted("wiki", lines.join("\n"));
      }
      const above = page === undefined ? undefined : await wikiNodeAt(platform, checkedToken(page));
      const spaceId = checkedId(above?.spaceId ?? space ?? "", "a space");
      const nodes = await nodesIn(platform, { spaceId, parent: above?.nodeToken });
      const lines = nodes.map(
        ({ title = "", node_token = "", obj_type = "", has_child }) =>
          `- ${title} (${obj_type}${has_child === true ? ", has pages" : ""}): ${linkOf("wiki", node_token, { origin: undefined })}`,
      );
      return lines.length === 0 ? "There are no pages here." : quoted("wiki", lines.join("\n"));
    },
  });
}

const maxShownBlocks = 300;
const maxShownText = 300;

function readBlocksTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "read_document_blocks",
    description:
      "Lists the blocks of a document with their ids and the revision that was read: needed by edit_document and delete_document_blocks.",
    title: { zh: "查看文档块", en: "Read the blocks of a document" },
    summary: { zh: "查看文档 {document} 的块", en: "Read the blocks of {document}" },
    input: {
      document: documentLink,
      containing: Type.Optional(
        Type.String({ maxLength: 200, description: "Only blocks whose text holds this." }),
      ),
    },
    effect: "pure",
    scopes: ["docx:document:readonly", "wiki:node:read"],
    reach: "reads",
    run: async ({ document, containing = "" }, platform) => {
      const place = await documentAt(platform, document);
      const revision = await revisionOf(platform, place.documentId);
      const blocks = await blocksOf(platform, place.documentId, revision);
      const shown = blocks.filter((block) => textOf(block).includes(containing));
      const lines = shown
        .slice(0, maxShownBlocks)
        .map(
          (block) =>
            `${block.block_id} ${typeNameOf(block.block_type)}: ${textOf(block).slice(0, maxShownText)}`,
        );
      const more =
        shown.length > maxShownBlocks
          ? `\n${shown.length - maxShownBlocks} more; use containing.`
          : "";
      return `revision ${revision}\n${quoted(place.link, lines.join("\n") + more)}`;
    },
  });
}

function appendTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    timeoutMs: 180_000,
    name: "append_to_document",
    description:
      "Adds Markdown to a document: at its end, or behind a block. What is there stays as it is.",
    title: { zh: "追加到文档", en: "Add to a document" },
    summary: {
      zh: "在文档 {document} 中加入：{markdown}",
      en: "Add to the document {document}: {markdown}",
    },
    input: {
      document: documentLink,
      markdown: markdownText,
      after_block: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "Id of a block of read_document_blocks. Default: the end.",
        }),
      ),
    },
    effect: "once",
    scopes: [...fillScopes, "wiki:node:read"],
    reach: "shared",
    run: async ({ document, markdown, after_block: after }, platform, context) => {
      const { documentId, link: place } = await documentAt(platform, document);
      const spot =
        after === undefined
          ? { parentId: documentId, index: -1 }
          : await behind(platform, documentId, after);
      const windowMs = settings.keyWindowMs;
      const added = await addMarkdown(platform, context, {
        documentId,
        ...spot,
        markdown,
        windowMs,
      });
      return `Added ${added} blocks to ${place}`;
    },
  });
}

export async function behind(
  platform: Platform,
  documentId: string,
  blockId: string,
): Promise<{ parentId: string; index: number }> {
  const blocks = await blocksOf(platform, documentId);
  const parent = blocks.find(({ children }) => children?.includes(blockId) === true);
  if (parent?.block_id === undefined) throw unknownBlock(blockId);
  return {
    parentId: parent.block_id,
    index: childrenOf(blocks, parent.block_id).indexOf(blockId) + 1,
  };
}

function unknownBlock(id: string): Error {
  return new Error(
    `The document has no block ${JSON.stringify(id.slice(0, 100))}; read its blocks again.`,
  );
}

const maxChanges = 50;
const isUsedKey = (error: unknown, wasUnanswered: boolean): boolean =>
  wasUnanswered && isRefusal(error, 1770001, 1770021);

function editTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "edit_document",
    description:
      "Replaces the text of blocks of a document, by the ids and the revision that read_document_blocks gave. Give the text that each has now, too, so that the person who is asked sees what goes and what comes. Formatting inside of these blocks is lost; all else stays.",
    title: { zh: "修改文档", en: "Edit a document" },
    summary: {
      zh: "修改文档 {document}：{changes}",
      en: "Edit the document {document}: {changes}",
    },
    input: {
      document: documentLink,
      revision: Type.Integer({ minimum: 0, description: "The revision that was read." }),
      changes: Type.Array(
        Type.Object(
          {
            block: Type.String({ minLength: 1, maxLength: 100 }),
            old_text: Type.String({
              maxLength: 20_000,
              description: "The whole text of the block as it is now.",
            }),
            text: Type.String({
              maxLength: 20_000,
              description: "The whole new text of the block.",
            }),
          },
          { additionalProperties: false },
        ),
        { minItems: 1, maxItems: maxChanges },
      ),
    },
    effect: "once",
    scopes: ["docx:document:write_only", "docx:document:readonly", "wiki:node:read"],
    reach: "shared",
    run: async ({ document, revision, changes }, platform, context) => {
      const { documentId, link: place } = await documentAt(platform, document);
      const before = await blocksOf(platform, documentId, revision);
      for (const { block: id, old_text: old } of changes) checkText(before, { id, text: old });
      await changeOnce(platform, {
        windowMs: settings.keyWindowMs,
        pace: documentPace,
        run: (client, as) =>
          client.docx.v1.documentBlock.batchUpdate(
            {
              path: { document_id: documentId },
              params: { document_revision_id: revision, client_token: keyOf(context, "edit") },
              data: {
                requests: changes.map(({ block, text }) => ({
                  block_id: block,
                  update_text_elements: { elements: [{ text_run: { content: text } }] },
                })),
              },
            },
            as,
          ),
        isDone: async () => {
          const texts = new Map(
            (await blocksOf(platform, documentId)).map((one) => [one.block_id, textOf(one)]),
          );
          return changes.every(({ block, text }) => texts.get(block) === text);
        },
        isDuplicate: isUsedKey,
        open: "whether the blocks were changed",
      });
      return `Changed ${changes.length} blocks of ${place}`;
    },
  });
}

function deleteTool(settings: Settings): HandlerTool {
  return workTool(settings, documentRemedies, {
    name: "delete_document_blocks",
    description:
      "Deletes blocks that stand side by side, with all that is in them, by the ids and the revision that read_document_blocks gave. Give the text of each, so that the person who is asked sees what goes.",
    title: { zh: "删除文档内容", en: "Delete parts of a document" },
    summary: {
      zh: "从文档 {document} 删除：{blocks}",
      en: "Delete from the document {document}: {blocks}",
    },
    input: {
      document: documentLink,
      revision: Type.Integer({ minimum: 0, description: "The revision that was read." }),
      blocks: Type.Array(
        Type.Object(
          {
            id: Type.String({ minLength: 1, maxLength: 100 }),
            text: Type.String({ maxLength: 20_000 }),
          },
          { additionalProperties: false },
        ),
        { minItems: 1, maxItems: maxChanges },
      ),
    },
    effect: "once",
    scopes: ["docx:document", "docx:document:readonly", "wiki:node:read"],
    reach: "destroys",
    run: async ({ document, revision, blocks }, platform, context) => {
      const { documentId, link: place } = await documentAt(platform, document);
      const { parentId, start } = rangeOf(await blocksOf(platform, documentId, revision), blocks);
      await changeOnce(platform, {
        windowMs: settings.keyWindowMs,
        pace: documentPace,
        run: (client, as) =>
          client.docx.v1.documentBlockChildren.batchDelete(
            {
              path: { document_id: documentId, block_id: parentId },
              params: { document_revision_id: revision, client_token: keyOf(context, "delete") },
              data: { start_index: start, end_index: start + blocks.length },
            },
            as,
          ),
        isDone: async () => {
          const left = new Set(
            (await blocksOf(platform, documentId)).map(({ block_id }) => block_id),
          );
          return blocks.every(({ id }) => !left.has(id));
        },
        isDuplicate: isUsedKey,
        open: "whether the blocks were deleted",
      });
      return `Deleted ${blocks.length} blocks from ${place}`;
    },
  });
}

/** What the person saw on the card must be what is there. */
function checkText(all: readonly Block[], { id, text }: { id: string; text: string }): void {
  const block = all.find(({ block_id }) => block_id === id);
  if (block === undefined) throw unknownBlock(id);
  if (textOf(block).trim() !== text.trim()) {
    throw new Error(
      `The block ${id} says something else: ${JSON.stringify(textOf(block).slice(0, 300))}`,
    );
  }
}

/** Where the named blocks stand. Throws when they are not side by side, or say something else than is claimed. */
function rangeOf(
  all: readonly Block[],
  named: readonly { id: string; text: string }[],
): { parentId: string; start: number } {
  for (const one of named) checkText(all, one);
  const ids = named.map(({ id }) => id);
  const parent = all.find(({ children }) => children?.includes(ids[0] ?? "") === true);
  const start = parent?.children?.indexOf(ids[0] ?? "") ?? -1;
  const isRun = ids.every((id, at) => parent?.children?.[start + at] === id);
  if (parent?.block_id === undefined || !isRun) {
    throw new Error("The blocks do not stand side by side in this order.");
  }
  return { parentId: parent.block_id, start };
}

/** Creates and changes documents, and reads what is needed for that. */
export const writingTools = [
  browseTool,
  createDocumentTool,
  createPageTool,
  readBlocksTool,
  appendTool,
  editTool,
  deleteTool,
];
