import { GrantRefusedError, type HandlerTool, type ToolContext } from "@larkline/tool-kit";
import { pause } from "@larkline/protocol/clock";
import { imageTypeOf } from "@larkline/protocol/stored-image";
import { Type } from "typebox";
import { documentAt, wikiNodeAt } from "./documents/reading.ts";
import { driveRemedies, metaScope, nameOf } from "./drive.ts";
import {
  checkedId,
  type Platform,
  quoted,
  type Remedies,
  type Settings,
  targetOf,
} from "./platform.ts";
import { workTool } from "./work-tool.ts";

// Files that leave the platform: documents as PDF or Office files, and what lies in the drive and in chats. They are kept for the
// conversation, and sent to its chat when the person wants them.

const remedies = {
  ...driveRemedies,
  1069902: "The person may not export this; its owner can allow it.",
  1069904: "The platform does not export this kind in this format.",
  1069906: "The document was deleted.",
  1069914: "There is no such document; check the link.",
  1069918: "There is no such export any more; begin it again without `job`.",
};

/** States of an export ("Query export task result"). */
const failures: Readonly<Record<number, string>> = {
  3: "the platform has failed",
  107: "the document is too large",
  108: "it took the platform too long",
  109: "the person may not read a part of it",
  110: "the person may not export this",
  111: "the document was deleted",
  122: "the document is being copied; try again in a minute",
  123: "there is no such document",
  6000: "the document has too many pictures",
};
const running = new Set([1, 2]);

const formats = {
  docx: ["pdf", "docx"],
  sheet: ["xlsx", "csv"],
  bitable: ["xlsx", "csv"],
} as const;
type Exported = keyof typeof formats;

/** A hundred a minute ("Create export task"). */
const exportPace = { of: "exports", everyMs: 600 };
const downloadPace = { of: "downloads", everyMs: 200 };
/** A call looks for that long whether a job has ended; a later one can look again. */
const jobMs = 90_000;

function exportTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    timeoutMs: 180_000,
    savesFiles: "any",
    name: "export_document",
    description:
      "Makes a file of a document (pdf, docx), or of a spreadsheet or Base (xlsx, csv), as the person may read it. A large one takes minutes: the answer then names a job to ask for later.",
    title: { zh: "导出文档", en: "Export a document" },
    summary: { zh: "把 {document} 导出为 {format}", en: "Export {document} as {format}" },
    input: {
      document: Type.String({
        minLength: 1,
        maxLength: 500,
        description: "Link to the document, spreadsheet, Base or wiki page.",
      }),
      format: Type.Enum(["pdf", "docx", "xlsx", "csv"]),
      sheet: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "For csv: id of the sheet, or of the table of a Base.",
        }),
      ),
      job: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "Of a former answer: looks whether it is done.",
        }),
      ),
    },
    effect: "pure",
    scopes: ["docs:document:export", "wiki:node:read"],
    reach: "reads",
    run: async ({ document, format, sheet, job }, platform, context) => {
      const { token, type } = await exportedAt(platform, document);
      if (!formats[type].some((one) => one === format)) {
        throw new Error(`Such a document can be exported as ${formats[type].join(" or ")}.`);
      }
      if (format === "csv" && sheet === undefined) {
        throw new Error("For csv name the sheet or table: list_sheets and list_tables give ids.");
      }
      const ticket =
        job === undefined
          ? await startedExport(platform, {
              token,
              type,
              file_extension: format,
              ...(sheet === undefined ? {} : { sub_id: checkedId(sheet, "a sheet") }),
            })
          : checkedId(job, "an export");
      const made = await endedExport(platform, { ticket, token });
      if (made === undefined) {
        return `The export is not done yet. Ask again in a minute with job: ${JSON.stringify(ticket)}.`;
      }
      const path = `/open-apis/drive/v1/export_tasks/file/${checkedId(made.fileToken, "a file")}/download`;
      const bytes = await platform.download(path, {}, downloadPace);
      return await kept(context, {
        bytes,
        name: `${made.name}.${format}`,
        type: mediaTypes[format],
      });
    },
  });
}

const mediaTypes = {
  pdf: "application/pdf",
  docx: "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
  xlsx: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
  csv: "text/csv",
} as const;

async function exportedAt(
  platform: Platform,
  text: string,
): Promise<{ token: string; type: Exported }> {
  const { kind, id } = targetOf(text);
  if (kind === "sheets") return { token: id, type: "sheet" };
  if (kind === "base") return { token: id, type: "bitable" };
  if (kind !== "wiki") {
    return { token: (await documentAt(platform, text)).documentId, type: "docx" };
  }
  const { object, type } = await wikiNodeAt(platform, id);
  const known = (Object.keys(formats) as Exported[]).find((one) => one === type); // the keys of that object
  if (known === undefined) {
    throw new Error(`This page of the wiki holds ${type}: it has no export.`);
  }
  return { token: object, type: known };
}

async function startedExport(
  platform: Platform,
  data: { token: string; type: Exported; file_extension: keyof typeof mediaTypes; sub_id?: string },
): Promise<string> {
  // An export changes nothing: one whose answer was lost is begun again.
  const { ticket = "" } = await platform.read(
    (client, as) => client.drive.v1.exportTask.create({ data }, as),
    exportPace,
  );
  return checkedId(ticket, "an export");
}

/** The file of an export that has ended; undefined: it still runs. */
async function endedExport(
  platform: Platform,
  { ticket, token }: { ticket: string; token: string },
): Promise<{ fileToken: string; name: string } | undefined> {
  return await endOfJob(platform, async () => {
    const { result } = await platform.read(
      (client, as) => client.drive.v1.exportTask.get({ path: { ticket }, params: { token } }, as),
      exportPace,
    );
    const state = result?.job_status ?? 1;
    if (state === 0) {
      return { fileToken: result?.file_token ?? "", name: result?.file_name ?? "export" };
    }
    if (running.has(state)) return undefined;
    const reason = failures[state] ?? result?.job_error_msg ?? `state ${state}`;
    throw new Error(`There is no export: ${reason}.`);
  });
}

/** Looks at a job of the platform, ever more seldom, until it has ended; undefined: it still runs. */
export async function endOfJob<T>(
  { clock, signal }: Pick<Platform, "clock" | "signal">,
  look: () => Promise<T | undefined>,
): Promise<T | undefined> {
  const endsAt = clock.monotonic() + jobMs;
  for (let waitMs = 500; ; waitMs = Math.min(waitMs * 2, 5_000)) {
    const end = await look();
    if (end !== undefined || clock.monotonic() + waitMs >= endsAt) return end;
    await pause(clock, waitMs, signal);
  }
}

/** Text that a model reads itself, in bytes. */
const maxTextBytes = 100_000;

/** What the codes mean where a file of the drive or of a message is fetched. */
export const fileRemedies: Remedies = {
  ...driveRemedies,
  230002: "The person is not in the chat of this message.",
  230050: "The person may not see this message.",
  230110: "There is no such message, or it was deleted.",
  234003: "The message has no such file.",
  234037: "The file is too large.",
  234038: "The group does not allow files to be taken out.",
  234040: "The person may not see this message.",
  234043: "Files of this kind of message cannot be taken out.",
};

/** How tools are given a file. */
export const FileName = Type.String({
  minLength: 1,
  maxLength: 500,
  description:
    "Link to the file in the drive, or its token, as list_drive_files gives it; of a file in a chat the id of its message (om_…), as read_messages gives it.",
});

function downloadTool(settings: Settings): HandlerTool {
  return workTool(settings, fileRemedies, {
    timeoutMs: 120_000,
    savesFiles: "any",
    name: "download_file",
    description:
      "Fetches a file of the drive or of a message in a chat, such as a picture, a PDF or a CSV: texts are in the answer, other files are kept for this conversation. Documents and spreadsheets are read or exported with other tools.",
    title: { zh: "下载文件", en: "Download a file" },
    summary: { zh: "下载文件 {file}", en: "Download the file {file}" },
    input: { file: FileName },
    effect: "pure",
    scopes: driveScopes,
    reach: "reads",
    run: async ({ file }, platform, context) => {
      return await handedOver(context, await fileAt(platform, file));
    },
  });
}

/** Text in the answer, other files kept for the conversation. */
export async function handedOver(
  context: Pick<ToolContext, "saveFile">,
  { name, bytes }: { name: string; bytes: Buffer },
): Promise<string> {
  const text = bytes.byteLength <= maxTextBytes ? textOf(bytes) : undefined;
  if (text !== undefined) return quoted(name, text);
  const type = imageTypeOf(bytes) ?? "application/octet-stream";
  return await kept(context, { bytes, name, type });
}

/** A file of the drive or of a message, as the person may read it. */
export async function fileAt(
  platform: Platform,
  named: string,
): Promise<{ name: string; bytes: Buffer }> {
  const [, message, key] =
    /^(om_[A-Za-z0-9_-]{1,80})(?:\/([A-Za-z0-9_-]{1,200}))?$/.exec(named) ?? [];
  if (message !== undefined) {
    return await asking(messageScopes, async () => await messageFile(platform, message, key));
  }
  const { kind, id: token } = targetOf(named);
  if (kind !== "file" && kind !== "unknown") {
    throw new Error(`This is a link to ${kind}: read it, or make a file with export_document.`);
  }
  return await asking(driveScopes, async () => {
    const name = await nameOf(platform, { token, type: "file" });
    if (name === undefined) throw new Error("The person can see no such file.");
    const path = `/open-apis/drive/v1/files/${token}/download`;
    return { name, bytes: await platform.download(path, {}, downloadPace) };
  });
}

/** The platform names every permission that would do, also the right to send: asks for these alone. */
async function asking<T>(scopes: readonly string[], work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof GrantRefusedError && error.refusal.kind === "scopes") {
      throw new GrantRefusedError({ kind: "scopes", scopes: [...scopes] });
    }
    throw error;
  }
}

/** What a person must have granted for files. Asked for where such a file is wanted. */
const driveScopes = ["drive:file:download", metaScope];
const messageScopes = [
  "im:message:readonly",
  "im:message.group_msg:get_as_user",
  "im:message.p2p_msg:get_as_user",
];
const messagePace = { of: "files of messages", everyMs: 20 };

/** The file of a message; `key` says which one, where a message has several. */
async function messageFile(
  platform: Platform,
  messageId: string,
  key: string | undefined,
): Promise<{ name: string; bytes: Buffer }> {
  const { items = [] } = await platform.read((client, as) =>
    client.im.v1.message.get({ path: { message_id: messageId } }, as),
  );
  const files = filesIn(contentOf(items[0]?.body?.content));
  const [first, ...others] = files.filter((one) => key === undefined || one.key === key);
  if (first === undefined) throw new Error("The message has no such file.");
  if (others.length > 0) {
    const names = files.map((one) => `${messageId}/${one.key}`).join(", ");
    throw new Error(`The message has several files: name one of ${names}.`);
  }
  const path = `/open-apis/im/v1/messages/${messageId}/resources/${checkedId(first.key, "a file")}`;
  const bytes = await platform.download(path, { type: first.type }, messagePace);
  const extension = /^image\/(\w+)$/.exec(imageTypeOf(bytes) ?? "")?.[1];
  return { name: first.name ?? `picture.${extension ?? "bin"}`, bytes };
}

function contentOf(text = "{}"): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

interface MessageFile {
  type: "image" | "file";
  key: string;
  name: string | undefined;
}

/** The pictures and files of a message: a post is a tree of elements. A video's cover is none of them. */
function filesIn(value: unknown, depth = 0): MessageFile[] {
  if (typeof value !== "object" || value === null || depth > 8) return [];
  const { file_key: file, image_key: image, file_name: name } = value as Record<string, unknown>; // an object, as checked
  if (typeof file === "string") {
    return [{ type: "file", key: file, name: typeof name === "string" ? name : undefined }];
  }
  if (typeof image === "string") return [{ type: "image", key: image, name: undefined }];
  return Object.values(value).flatMap((one) => filesIn(one, depth + 1));
}

/** What the bytes say, where they are text. */
function textOf(bytes: Buffer): string | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? undefined : text;
  } catch {
    return undefined;
  }
}

async function kept(
  { saveFile }: Pick<ToolContext, "saveFile">,
  { bytes, name, type }: { bytes: Buffer; name: string; type: string },
): Promise<string> {
  const mark = await saveFile(bytes, { mediaType: type, name });
  return `${quoted("name of the file", name)}\n${Math.ceil(bytes.byteLength / 1_024)} KB: ${mark}`;
}

/** Makes files of documents, and fetches files of the drive and of messages. */
export const downloadTools = [exportTool, downloadTool];
