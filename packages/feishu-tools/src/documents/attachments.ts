import type { HandlerTool, ToolContext } from "@larkline/tool-kit";
import { imageTypeOf } from "@larkline/protocol/stored-image";
import { Type } from "typebox";
import { fileAt, FileName, fileRemedies } from "../downloads.ts";
import { driveAlone, drivePace, metaScope } from "../drive.ts";
import { changeOnce, keyOf, makeOnce } from "../exactly-once.ts";
import { isRefusal, type Platform, type Settings } from "../platform.ts";
import { workTool } from "../work-tool.ts";
import { type Block, blocksOf, childrenOf, documentPace } from "./blocks.ts";
import { documentAt, documentRemedies } from "./reading.ts";
import { behind, documentLink } from "./writing.ts";

// Pictures and files in documents, in the platform's three steps ("Document FAQ"): an empty block, the file uploaded for that
// block, and the block filled with it. The bytes belong to the block: they cannot be used anywhere else.

const remedies = {
  ...fileRemedies,
  ...documentRemedies,
  1770013: "The platform does not take this file for this block.",
};

/** What the platform shows in a document. */
const maxPictureBytes = 10 * 1024 * 1024;

/** The two kinds of blocks that hold a file. A block of a file lies in a view, which the platform makes with it. */
const kinds = {
  picture: { type: 27, data: "image", parent: "docx_image" },
  file: { type: 23, data: "file", parent: "docx_file" },
} as const;
type Kind = keyof typeof kinds;

const input = {
  document: documentLink,
  after_block: Type.Optional(
    Type.String({
      maxLength: 100,
      description: "Id of a block of read_document_blocks. Default: the end.",
    }),
  ),
};
const scopes = [
  "drive:file:download",
  metaScope,
  "docs:document.media:upload",
  "docx:document:write_only",
  "docx:document:readonly",
  "wiki:node:read",
];

function pictureTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    timeoutMs: 180_000,
    name: "add_picture",
    description:
      "Puts a picture (PNG, JPEG, GIF, WebP) of the drive or of a chat into a document, at its end or behind a block. What is there stays as it is.",
    title: { zh: "插入图片", en: "Put a picture into a document" },
    summary: {
      zh: "把图片 {picture} 插入文档 {document}",
      en: "Put the picture {picture} into the document {document}",
    },
    input: { ...input, picture: FileName },
    effect: "once",
    scopes,
    reach: "shared",
    run: async ({ document, picture, after_block: after }, platform, context) => {
      const place = await documentAt(platform, document);
      const file = await fileAt(platform, picture);
      if (imageTypeOf(file.bytes) === undefined || file.bytes.byteLength > maxPictureBytes) {
        throw new Error(`${JSON.stringify(file.name)} is no picture of at most 10 MB.`);
      }
      const where = { ...place, windowMs: settings.keyWindowMs, after };
      await putIn(platform, context, { ...where, kind: "picture", file });
      return `The picture ${JSON.stringify(file.name)} is in ${place.link}`;
    },
  });
}

function fileTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    timeoutMs: 180_000,
    name: "attach_file",
    description:
      "Puts a file of the drive or of a chat, such as a PDF, into a document as an attachment, at its end or behind a block. What is there stays as it is.",
    title: { zh: "插入附件", en: "Attach a file to a document" },
    summary: {
      zh: "把文件 {file} 作为附件插入文档 {document}",
      en: "Attach the file {file} to the document {document}",
    },
    input: { ...input, file: FileName },
    effect: "once",
    scopes,
    reach: "shared",
    run: async ({ document, file: named, after_block: after }, platform, context) => {
      const place = await documentAt(platform, document);
      const file = await fileAt(platform, named);
      const where = { ...place, windowMs: settings.keyWindowMs, after };
      await putIn(platform, context, { ...where, kind: "file", file });
      return `The file ${JSON.stringify(file.name)} is in ${place.link}`;
    },
  });
}

async function putIn(
  platform: Platform,
  context: Pick<ToolContext, "callId">,
  {
    after,
    file,
    ...place
  }: Place & { after: string | undefined; file: { name: string; bytes: Buffer } },
): Promise<void> {
  const { documentId } = place;
  const spot =
    after === undefined
      ? { parentId: documentId, index: -1 }
      : await behind(platform, documentId, after);
  const blockId = await addedBlock(platform, context, { ...place, ...spot });
  const token = await uploaded(platform, { ...place, blockId }, file);
  await fill(platform, context, { ...place, blockId, token });
}

interface Place {
  documentId: string;
  windowMs: number;
  kind: Kind;
}

/** Shown as a card. The types of the SDK leave `token` out, which the platform's own example has. */
const emptyFile = { token: "", view_type: 1 };

/** The id of a new, empty block. */
async function addedBlock(
  platform: Platform,
  context: Pick<ToolContext, "callId">,
  { documentId, windowMs, kind, parentId, index }: Place & { parentId: string; index: number },
): Promise<string> {
  const { type } = kinds[kind];
  const before = new Set(childrenOf(await blocksOf(platform, documentId), parentId));
  return await makeOnce(platform, {
    windowMs,
    pace: documentPace,
    run: (client, as) =>
      client.docx.v1.documentBlockChildren.create(
        {
          path: { document_id: documentId, block_id: parentId },
          params: { document_revision_id: -1, client_token: keyOf(context, `${kind} block`) },
          data: {
            index,
            children:
              kind === "picture"
                ? [{ block_type: type, image: {} }]
                : [{ block_type: type, file: emptyFile }],
          },
        },
        as,
      ),
    result: ({ children }) => {
      const [made] = children ?? [];
      return (kind === "file" ? made?.children?.[0] : made?.block_id) ?? "";
    },
    find: async () => {
      const blocks = await blocksOf(platform, documentId);
      const added = childrenOf(blocks, parentId).filter((id) => !before.has(id));
      const inside = added.flatMap((id) => [id, ...childrenOf(blocks, id)]);
      return inside.find((id) => {
        const block = blocks.find(({ block_id }) => block_id === id);
        return block?.block_type === type && tokenOf(block, kind) === "";
      });
    },
    isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1770001),
    open: `whether the ${kind} is in the document`,
  });
}

function tokenOf(block: Block | undefined, kind: Kind): string {
  const data = block?.[kinds[kind].data];
  return typeof data === "object" && data !== null && "token" in data ? String(data.token) : "";
}

/** The token of the uploaded file. A second upload shows nothing: only the one that fills the block counts. */
async function uploaded(
  platform: Platform,
  { documentId, kind, blockId }: Place & { blockId: string },
  { name, bytes }: { name: string; bytes: Buffer },
): Promise<string> {
  return await driveAlone(platform, async () => {
    const { file_token: token = "" } = await platform.read(async (client, as) => {
      const data = {
        file_name: name,
        parent_type: kinds[kind].parent,
        parent_node: blockId,
        size: bytes.byteLength,
        // Uploads for a block name its document ("Media overview").
        extra: JSON.stringify({ drive_route_token: documentId }),
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
  { documentId, windowMs, kind, blockId, token }: Place & { blockId: string; token: string },
): Promise<void> {
  await changeOnce(platform, {
    windowMs,
    pace: documentPace,
    run: (client, as) =>
      client.docx.v1.documentBlock.patch(
        {
          path: { document_id: documentId, block_id: blockId },
          params: { document_revision_id: -1, client_token: keyOf(context, kind) },
          data: kind === "file" ? { replace_file: { token } } : { replace_image: { token } },
        },
        as,
      ),
    isDone: async () => {
      const blocks = await blocksOf(platform, documentId);
      return (
        tokenOf(
          blocks.find(({ block_id }) => block_id === blockId),
          kind,
        ) === token
      );
    },
    isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1770001),
    open: `whether the ${kind} is in the document, or an empty frame`,
  });
}

/** Puts pictures and files into documents. */
export const attachmentTools = [pictureTool, fileTool];
