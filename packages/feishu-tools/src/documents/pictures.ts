import type { HandlerTool, ToolContext } from "@larkline/tool-kit";
import { imageTypeOf } from "@larkline/protocol/stored-image";
import { Type } from "typebox";
import { driveFile } from "../downloads.ts";
import { driveAlone, drivePace, driveRemedies, metaScope } from "../drive.ts";
import { changeOnce, keyOf, makeOnce } from "../exactly-once.ts";
import { isRefusal, type Platform, type Settings, targetOf } from "../platform.ts";
import { workTool } from "../work-tool.ts";
import { type Block, blocksOf, childrenOf, documentPace } from "./blocks.ts";
import { documentAt, documentRemedies } from "./reading.ts";
import { behind, documentLink } from "./writing.ts";

// Pictures in documents, in the platform's three steps ("Document FAQ"): an empty picture block, the file uploaded for that
// block, and the block filled with it. The bytes belong to the block: they cannot be used anywhere else.

const remedies = {
  ...driveRemedies,
  ...documentRemedies,
  1770013: "The platform does not take this picture for this block.",
};

/** What the platform shows in a document. */
const maxPictureBytes = 10 * 1024 * 1024;

function pictureTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    timeoutMs: 180_000,
    name: "add_picture",
    description:
      "Puts a picture (PNG, JPEG, GIF, WebP) of the drive into a document, at its end or behind a block. What is there stays as it is.",
    title: { zh: "插入图片", en: "Put a picture into a document" },
    summary: {
      zh: "把图片 {picture} 插入文档 {document}",
      en: "Put the picture {picture} into the document {document}",
    },
    input: {
      document: documentLink,
      picture: Type.String({
        minLength: 1,
        maxLength: 500,
        description: "Link to the file in the drive, or its token, as list_drive_files gives it.",
      }),
      after_block: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "Id of a block of read_document_blocks. Default: the end.",
        }),
      ),
    },
    effect: "once",
    scopes: [
      "drive:file:download",
      metaScope,
      "docs:document.media:upload",
      "docx:document:write_only",
      "docx:document:readonly",
      "wiki:node:read",
    ],
    reach: "shared",
    run: async ({ document, picture, after_block: after }, platform, context) => {
      const { documentId, link: place } = await documentAt(platform, document);
      const { kind, id } = targetOf(picture);
      if (kind !== "file" && kind !== "unknown") throw new Error("This is no file of the drive.");
      const file = await driveFile(platform, id);
      if (imageTypeOf(file.bytes) === undefined || file.bytes.byteLength > maxPictureBytes) {
        throw new Error(`${JSON.stringify(file.name)} is no picture of at most 10 MB.`);
      }
      const spot =
        after === undefined
          ? { parentId: documentId, index: -1 }
          : await behind(platform, documentId, after);
      const target = { documentId, windowMs: settings.keyWindowMs };
      const blockId = await addedBlock(platform, context, { ...target, ...spot });
      const token = await uploaded(platform, blockId, file);
      await fill(platform, context, { ...target, blockId, token });
      return `The picture ${JSON.stringify(file.name)} is in ${place}`;
    },
  });
}

interface Place {
  documentId: string;
  windowMs: number;
}

/** The id of a new, empty picture block. */
async function addedBlock(
  platform: Platform,
  context: Pick<ToolContext, "callId">,
  { documentId, windowMs, parentId, index }: Place & { parentId: string; index: number },
): Promise<string> {
  const before = new Set(childrenOf(await blocksOf(platform, documentId), parentId));
  return await makeOnce(platform, {
    windowMs,
    pace: documentPace,
    run: (client, as) =>
      client.docx.v1.documentBlockChildren.create(
        {
          path: { document_id: documentId, block_id: parentId },
          params: { document_revision_id: -1, client_token: keyOf(context, "picture block") },
          data: { index, children: [{ block_type: pictureType, image: {} }] },
        },
        as,
      ),
    result: ({ children }) => children?.[0]?.block_id ?? "",
    find: async () => {
      const blocks = await blocksOf(platform, documentId);
      const added = childrenOf(blocks, parentId).filter((id) => !before.has(id));
      return added.find((id) => isEmptyPicture(blocks.find(({ block_id }) => block_id === id)));
    },
    isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1770001),
    open: "whether the picture is in the document",
  });
}

const pictureType = 27;

function isEmptyPicture(block: Block | undefined): boolean {
  return block?.block_type === pictureType && tokenOf(block) === "";
}

function tokenOf(block: Block | undefined): string {
  const image = block?.["image"];
  return typeof image === "object" && image !== null && "token" in image ? String(image.token) : "";
}

/** The token of the uploaded file. A second upload shows nothing: only the one that fills the block counts. */
async function uploaded(
  platform: Platform,
  blockId: string,
  { name, bytes }: { name: string; bytes: Buffer },
): Promise<string> {
  return await driveAlone(platform, async () => {
    const { file_token: token = "" } = await platform.read(async (client, as) => {
      const data = {
        file_name: name,
        parent_type: "docx_image" as const,
        parent_node: blockId,
        size: bytes.byteLength,
        file: bytes,
      };
      return { data: (await client.drive.v1.media.uploadAll({ data }, as)) ?? undefined };
    }, drivePace);
    return token;
  });
}

async function fill(
  platform: Platform,
  context: Pick<ToolContext, "callId">,
  { documentId, windowMs, blockId, token }: Place & { blockId: string; token: string },
): Promise<void> {
  await changeOnce(platform, {
    windowMs,
    pace: documentPace,
    run: (client, as) =>
      client.docx.v1.documentBlock.patch(
        {
          path: { document_id: documentId, block_id: blockId },
          params: { document_revision_id: -1, client_token: keyOf(context, "picture") },
          data: { replace_image: { token } },
        },
        as,
      ),
    isDone: async () => {
      const blocks = await blocksOf(platform, documentId);
      return tokenOf(blocks.find(({ block_id }) => block_id === blockId)) === token;
    },
    isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1770001),
    open: "whether the picture is in the document, or an empty frame",
  });
}

/** Puts pictures into documents. */
export const pictureTools = [pictureTool];
