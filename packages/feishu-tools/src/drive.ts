import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { changeOnce, makeOnce, onlyOne, sinceSeconds } from "./exactly-once.ts";
import {
  checkedId,
  isRefusal,
  type Platform,
  quoted,
  type Remedies,
  type Settings,
} from "./platform.ts";
import { workTool } from "./work-tool.ts";

// Folders and what lies in them.

/** What the codes of the drive mean. */
export const driveRemedies: Remedies = {
  1061002: "The platform does not take this.",
  1061003: "There is no such file or folder.",
  1061004: "The person may not do this with the file or folder; its owner can share it.",
  1061007: "The file was deleted.",
  1061043: "The file is too large.",
  1061045: "Another change of the drive is under way; try again in a minute.",
  1061061: "The person's space is used up.",
  1061101: "The company's space is used up.",
  1062507: "The folder is full.",
  1064510: "This cannot be done across companies.",
  1064511: "This cannot be done across Feishu and Lark.",
};

const kinds = ["docx", "sheet", "bitable", "file", "folder", "doc", "mindnote", "slides"] as const;
const Kind = Type.Enum([...kinds], { description: "Its type, as list_drive_files gives it." });
const Token = Type.String({
  minLength: 1,
  maxLength: 100,
  description: "Its token, as list_drive_files gives it.",
});
const Name = Type.String({ minLength: 1, maxLength: 250 });
const Folder = Type.Optional(
  Type.String({ maxLength: 100, description: "Token of a folder. Default: the person's own." }),
);
const listScopes = ["space:document:retrieve"];
export const metaScope = "drive:drive.metadata:readonly";

interface Listed {
  token: string;
  name: string;
  type: string;
  owner_id?: string | undefined;
  created_time?: string | undefined;
  url?: string | undefined;
}

/** The newest things in a folder; empty: the person's own. */
async function newestIn(platform: Platform, folder_token: string): Promise<Listed[]> {
  const { files = [] } = await pageIn(platform, { folder_token });
  return files;
}

interface FolderPage {
  files?: Listed[] | undefined;
  next_page_token?: string | undefined;
  has_more?: boolean | undefined;
}

async function pageIn(
  platform: Platform,
  params: { folder_token: string; page_token?: string },
): Promise<FolderPage> {
  return await platform.read((client, as) =>
    client.drive.v1.file.list(
      { params: { page_size: 200, order_by: "CreatedTime", direction: "DESC", ...params } },
      as,
    ),
  );
}

/** Looks for what a call has made: by name, owner and time, among what is newer than `before`. */
export function madeIn(
  platform: Platform,
  { folder, name, type }: { folder: string; name: string; type: string },
): () => Promise<Listed | undefined> {
  const since = sinceSeconds(platform);
  return async () => {
    const mine = (await newestIn(platform, folder)).filter(
      (one) =>
        one.name === name &&
        one.type === type &&
        one.owner_id === platform.openId &&
        Number(one.created_time) >= since,
    );
    return onlyOne(mine);
  };
}

function folderOf(folder: string | undefined): string {
  return folder === undefined || folder === "" ? "" : checkedId(folder, "a folder");
}

/** Five a second ("Upload file"). */
export const drivePace = { of: "changes of the drive", everyMs: 200 };

/** The platform takes one upload, copy, move or deletion at a time. */
export async function driveAlone<T>(platform: Platform, work: () => Promise<T>): Promise<T> {
  return await platform.exclusive("drive", work);
}

const maxShown = 100;

function listTool(settings: Settings): HandlerTool {
  return workTool(settings, driveRemedies, {
    name: "list_drive_files",
    description:
      "Lists what lies in a folder of the person's drive, the newest first: names, types, tokens and links. To find a document by words use find_documents.",
    title: { zh: "查看云空间文件", en: "List files" },
    input: {
      folder: Folder,
      page_token: Type.Optional(
        Type.String({ maxLength: 500, description: "Of a former answer: goes on there." }),
      ),
    },
    effect: "pure",
    scopes: listScopes,
    reach: "reads",
    run: async ({ folder, page_token: from }, platform) => {
      const page = await pageIn(platform, {
        folder_token: folderOf(folder),
        ...(from === undefined ? {} : { page_token: from }),
      });
      const files = page.files ?? [];
      if (files.length === 0) return "Nothing that the person may see lies there.";
      const lines = files
        .slice(0, maxShown)
        .map(({ name, type, token, url = "" }) => `- ${name} (${type}, token ${token}) ${url}`);
      const left = files.length - lines.length;
      if (left > 0) lines.push(`[${left} more are left out: search by words]`);
      if (page.has_more === true) {
        lines.push(`more follow: page_token ${page.next_page_token ?? ""}`);
      }
      return quoted("folder", lines.join("\n"));
    },
  });
}

function folderTool(settings: Settings): HandlerTool {
  return workTool(settings, driveRemedies, {
    name: "create_folder",
    description: "Creates a folder in the person's drive.",
    title: { zh: "新建文件夹", en: "Create a folder" },
    summary: { zh: "新建文件夹「{name}」", en: "Create the folder “{name}”" },
    input: { name: Name, folder: Folder },
    effect: "once",
    looks: true,
    scopes: ["space:folder:create", ...listScopes],
    reach: "own",
    run: async ({ name, folder }, platform) => {
      const folder_token = folderOf(folder);
      const made = await driveAlone(platform, async () => {
        const find = madeIn(platform, { folder: folder_token, name, type: "folder" });
        return await makeOnce(platform, {
          pace: drivePace,
          run: (client, as) =>
            client.drive.v1.file.createFolder({ data: { name, folder_token } }, as),
          result: ({ token = "", url = "" }): { token: string; url?: string | undefined } => ({
            token,
            url,
          }),
          find,
          open: `whether the folder ${JSON.stringify(name)} was created`,
        });
      });
      return `Created the folder (token ${made.token}): ${made.url ?? ""}`;
    },
  });
}

function uploadTool(settings: Settings): HandlerTool {
  return workTool(settings, driveRemedies, {
    name: "upload_text_file",
    description:
      "Puts a text as a file into the person's drive, such as notes.md or data.csv. For a document that people edit use create_document.",
    title: { zh: "上传文本文件", en: "Upload a text file" },
    summary: { zh: "上传文件「{name}」", en: "Upload the file “{name}”" },
    input: { name: Name, text: Type.String({ minLength: 1, maxLength: 200_000 }), folder: Folder },
    effect: "once",
    looks: true,
    scopes: ["drive:file:upload", ...listScopes],
    reach: "own",
    run: async ({ name, text, folder }, platform) => {
      const file = Buffer.from(text);
      const parent_node = folderOf(folder);
      const token = await driveAlone(platform, async () => {
        const find = madeIn(platform, { folder: parent_node, name, type: "file" });
        return await makeOnce(platform, {
          pace: drivePace,
          run: async (client, as) => {
            const data = {
              file_name: name,
              parent_type: "explorer" as const,
              parent_node,
              size: file.byteLength,
              file,
            };
            // The only method that gives its answer bare.
            return { data: (await client.drive.v1.file.uploadAll({ data }, as)) ?? undefined };
          },
          result: ({ file_token = "" }) => file_token,
          find: async () => (await find())?.token,
          open: `whether the file ${JSON.stringify(name)} was uploaded`,
        });
      });
      return `Uploaded ${JSON.stringify(name)} (token ${token}).`;
    },
  });
}

function copyTool(settings: Settings): HandlerTool {
  return workTool(settings, driveRemedies, {
    name: "copy_file",
    description:
      "Copies a document or a file into a folder of the person, under a new name. The copy belongs to the person.",
    title: { zh: "复制文件", en: "Copy a file" },
    summary: { zh: "把 {token} 复制为「{name}」", en: "Copy {token} as “{name}”" },
    input: {
      token: Token,
      type: Type.Enum(["docx", "sheet", "bitable", "file", "doc", "mindnote", "slides"]),
      name: Name,
      folder: Folder,
    },
    effect: "once",
    looks: true,
    scopes: ["docs:document:copy", ...listScopes],
    reach: "own",
    run: async ({ token, type, name, folder }, platform) => {
      const folder_token = folderOf(folder);
      const path = { file_token: checkedId(token, "a file") };
      const made = await driveAlone(platform, async () => {
        const find = madeIn(platform, { folder: folder_token, name, type });
        return await makeOnce(platform, {
          pace: drivePace,
          run: (client, as) =>
            client.drive.v1.file.copy({ data: { name, type, folder_token }, path }, as),
          result: ({ file }): { token: string; url?: string | undefined } => ({
            token: file?.token ?? "",
            url: file?.url,
          }),
          find,
          open: `whether the copy ${JSON.stringify(name)} was made`,
        });
      });
      return `Copied (token ${made.token}): ${made.url ?? ""}`;
    },
  });
}

/** The types of what can be shared, with the pages of a wiki. */
export type FileKind = (typeof kinds)[number] | "wiki";

/** The name that the platform has; undefined: it is not there, or the person may not see it. */
export async function nameOf(
  platform: Platform,
  { token, type }: { token: string; type: FileKind },
): Promise<string | undefined> {
  const { metas = [] } = await platform.read((client, as) =>
    client.drive.v1.meta.batchQuery(
      { data: { request_docs: [{ doc_token: token, doc_type: type }] } },
      as,
    ),
  );
  return metas[0]?.title;
}

/** What the person approved must be what is there: a name is what people check. */
export async function checkName(
  platform: Platform,
  { token, type, name }: { token: string; type: FileKind; name: string },
): Promise<void> {
  const real = await nameOf(platform, { token: checkedId(token, "a file"), type });
  if (real === undefined) throw new Error("Nothing was done: the person cannot see such a file.");
  if (real.trim() !== name.trim()) {
    throw new Error(`Nothing was done: the name of this file is ${JSON.stringify(real)}.`);
  }
}

function moveTool(settings: Settings): HandlerTool {
  return workTool(settings, driveRemedies, {
    name: "move_file",
    description:
      "Moves a document, file or folder into another folder. Others may see it there, or no longer. Needs its name and that of the folder, as list_drive_files gives them.",
    title: { zh: "移动文件", en: "Move a file" },
    summary: {
      zh: "把「{name}」移到文件夹「{folder_name}」（{folder}）",
      en: "Move “{name}” to the folder “{folder_name}” ({folder})",
    },
    input: {
      token: Token,
      type: Kind,
      name: Name,
      folder: Type.String({ minLength: 1, maxLength: 100, description: "Token of the folder." }),
      folder_name: Type.String({ minLength: 1, maxLength: 250 }),
    },
    effect: "idempotent",
    scopes: ["space:document:move", metaScope, ...listScopes],
    reach: "shared",
    run: async ({ token, type, name, folder, folder_name: folderName }, platform) => {
      const folder_token = checkedId(folder, "a folder");
      await checkName(platform, { token, type, name });
      await checkName(platform, { token: folder_token, type: "folder", name: folderName });
      await driveAlone(platform, async () => {
        await changeOnce(platform, {
          windowMs: settings.keyWindowMs, // what lies there stays there
          pace: drivePace,
          run: (client, as) =>
            client.drive.v1.file.move(
              { data: { type, folder_token }, path: { file_token: token } },
              as,
            ),
          isDone: async () => await liesIn(platform, folder_token, token),
          open: "whether it was moved",
        });
      });
      return `Moved ${JSON.stringify(name)}.`;
    },
  });
}

async function liesIn(platform: Platform, folder_token: string, token: string): Promise<boolean> {
  // A folder holds 1,500 things at most.
  for (let page = await pageIn(platform, { folder_token }); ;) {
    if (page.files?.some((one) => one.token === token) === true) return true;
    const next = page.next_page_token ?? "";
    if (page.has_more !== true || next === "") return false;
    page = await pageIn(platform, { folder_token, page_token: next });
  }
}

function deleteTool(settings: Settings): HandlerTool {
  return workTool(settings, driveRemedies, {
    name: "delete_drive_file",
    description:
      "Deletes a document, file or folder with all that is in it: it goes to the bin of its owner, and others lose it. Needs its name, as list_drive_files gives it.",
    title: { zh: "删除文件", en: "Delete a file" },
    summary: { zh: "删除「{name}」（{type} {token}）", en: "Delete “{name}” ({type} {token})" },
    input: { token: Token, type: Kind, name: Name },
    effect: "idempotent",
    scopes: ["space:document:delete", metaScope],
    reach: "destroys",
    run: async ({ token, type, name }, platform) => {
      await checkName(platform, { token, type, name });
      await driveAlone(platform, async () => {
        await changeOnce(platform, {
          windowMs: settings.keyWindowMs, // what is deleted cannot be deleted again
          pace: drivePace,
          run: (client, as) =>
            client.drive.v1.file.delete({ params: { type }, path: { file_token: token } }, as),
          isDone: async () => (await nameOf(platform, { token, type })) === undefined,
          isDuplicate: (error, wasUnanswered) =>
            wasUnanswered && isRefusal(error, 1061003, 1061007),
          done: true,
          open: "whether it was deleted",
        });
      });
      return `Deleted ${JSON.stringify(name)}.`;
    },
  });
}

/** Lists, makes, copies, moves and deletes files and folders. */
export const driveTools = [listTool, folderTool, uploadTool, copyTool, moveTool, deleteTool];
