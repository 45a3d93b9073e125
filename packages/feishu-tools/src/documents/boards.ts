import type { HandlerTool, ToolContext } from "@larkline/tool-kit";
import { Type } from "typebox";
import { keyOf, makeOnce } from "../exactly-once.ts";
import {
  checkedId,
  isRefusal,
  type Platform,
  PlatformRefusal,
  type Remedies,
  type Settings,
} from "../platform.ts";
import { type Block, blocksOf, childrenOf, documentPace } from "./blocks.ts";
import { documentAt, documentRemedies } from "./reading.ts";
import { behind, documentLink } from "./writing.ts";
import { workTool } from "../work-tool.ts";

// Diagrams on boards: a block of a document holds a board, and the platform draws Mermaid or PlantUML there ("Parse board syntax").
// Drawing has no key: what it has drawn is looked for on the board.

const remedies: Remedies = {
  ...documentRemedies,
  2890001: "The platform does not take this diagram; check its syntax.",
  2890002: "The platform does not take this diagram; check its syntax.",
  2890003: "There is no such board.",
  2890005: "The person may not draw on this board; the owner of its document can share it.",
  2890006: "The platform's limit for boards is reached; try again in a minute.",
};

const boardType = 43;
const syntaxes = { plantuml: 1, mermaid: 2 } as const;
/** Shapes that people can move, in place of a picture. */
const asShapes = 1;

/** Five drawings a second, ten looks ("Parse board syntax", "List nodes"). */
const drawPace = { of: "drawings on boards", everyMs: 200 };

function drawTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    timeoutMs: 180_000,
    name: "draw_diagram",
    description:
      "Draws a diagram, written in Mermaid or PlantUML, on a new board in a document, at its end or behind a block, or on a board that is there. What is there stays as it is.",
    title: { zh: "绘制图表", en: "Draw a diagram" },
    summary: { zh: "在文档 {document} 中绘制：{diagram}", en: "Draw in {document}: {diagram}" },
    input: {
      document: documentLink,
      syntax: Type.Enum(["mermaid", "plantuml"]),
      diagram: Type.String({ minLength: 1, maxLength: 20_000 }),
      after_block: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "Id of a block of read_document_blocks. Default: the end.",
        }),
      ),
      board: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "Id of a block of type board. Default: a new board.",
        }),
      ),
    },
    effect: "once",
    scopes: [
      "board:whiteboard:node:create",
      "board:whiteboard:node:read",
      "docx:document:write_only",
      "docx:document:readonly",
      "wiki:node:read",
    ],
    reach: "shared",
    run: async ({ document, syntax, diagram, after_block: after, board }, platform, context) => {
      const { documentId, link: place } = await documentAt(platform, document);
      const windowMs = settings.keyWindowMs;
      const { blockId, token } =
        board === undefined
          ? await addedBoard(platform, context, { documentId, after, windowMs })
          : await boardAt(platform, documentId, board);
      try {
        await draw(platform, { token, syntax, diagram });
      } catch (error) {
        if (!(error instanceof PlatformRefusal) || board !== undefined) throw error;
        throw new Error(
          `An empty board is in the document (block ${blockId}). ${error.message} Draw on it with board: ${JSON.stringify(blockId)}.`,
          { cause: error },
        );
      }
      return `The diagram is on the board (block ${blockId}) in ${place}`;
    },
  });
}

interface Board {
  blockId: string;
  token: string;
}

function boardOf(block: Block | undefined): Board | undefined {
  const data = block?.["board"];
  if (block?.block_type !== boardType || typeof data !== "object" || data === null) {
    return undefined;
  }
  const token = "token" in data ? String(data.token) : "";
  return { blockId: block.block_id ?? "", token: checkedId(token, "a board") };
}

async function boardAt(platform: Platform, documentId: string, id: string): Promise<Board> {
  const blocks = await blocksOf(platform, documentId);
  const board = boardOf(blocks.find(({ block_id }) => block_id === id));
  if (board === undefined) {
    throw new Error(`The document has no board ${JSON.stringify(id)}; read its blocks again.`);
  }
  return board;
}

async function addedBoard(
  platform: Platform,
  context: Pick<ToolContext, "callId">,
  {
    documentId,
    after,
    windowMs,
  }: { documentId: string; after: string | undefined; windowMs: number },
): Promise<Board> {
  const { parentId, index } =
    after === undefined
      ? { parentId: documentId, index: -1 }
      : await behind(platform, documentId, after);
  const before = new Set(childrenOf(await blocksOf(platform, documentId), parentId));
  const made = await makeOnce(platform, {
    windowMs,
    pace: documentPace,
    run: (client, as) =>
      client.docx.v1.documentBlockChildren.create(
        {
          path: { document_id: documentId, block_id: parentId },
          params: { document_revision_id: -1, client_token: keyOf(context, "board") },
          data: { index, children: [{ block_type: boardType, board: {} }] },
        },
        as,
      ),
    result: ({ children }) => boardOf(children?.[0] as Block | undefined), // the types of the SDK name each kind of block
    find: async () => {
      const blocks = await blocksOf(platform, documentId);
      const added = childrenOf(blocks, parentId).filter((id) => !before.has(id));
      return blocks
        .filter(({ block_id }) => added.includes(block_id ?? ""))
        .map(boardOf)
        .find((one) => one !== undefined);
    },
    isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1770001),
    open: "whether the board is in the document",
  });
  if (made === undefined) throw new Error("The platform made a block that is no board.");
  return made;
}

async function draw(
  platform: Platform,
  { token, syntax, diagram }: { token: string; syntax: keyof typeof syntaxes; diagram: string },
): Promise<void> {
  const path = { whiteboard_id: token };
  await platform.exclusive(`board ${token}`, async () => {
    const before = new Set(await nodesOn(platform, path));
    await makeOnce(platform, {
      pace: drawPace,
      run: (client, as) =>
        client.board.v1.whiteboardNode.createPlantuml(
          {
            path,
            data: {
              plant_uml_code: diagram,
              syntax_type: syntaxes[syntax],
              style_type: asShapes,
              diagram_type: 0,
            },
          },
          as,
        ),
      result: ({ node_id = "" }) => node_id,
      find: async () => (await nodesOn(platform, path)).find((id) => !before.has(id)),
      open: "whether the diagram is on the board",
    });
  });
}

async function nodesOn(platform: Platform, path: { whiteboard_id: string }): Promise<string[]> {
  const { nodes = [] } = await platform.read((client, as) =>
    client.board.v1.whiteboardNode.list({ path }, as),
  );
  return nodes.flatMap(({ id }) => id ?? []);
}

/** Draws diagrams on boards. */
export const boardTools = [drawTool];
