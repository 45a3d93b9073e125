import { type HandlerTool, OutcomeUnknownError } from "@larkline/tool-kit";
import { Type } from "typebox";
import { endOfJob, fileAt, FileName, fileRemedies } from "./downloads.ts";
import { driveAlone, drivePace, madeIn, metaScope } from "./drive.ts";
import { makeOnce } from "./exactly-once.ts";
import { checkedId, type Platform, PlatformRefusal, type Settings } from "./platform.ts";
import { workTool } from "./work-tool.ts";

// Files that become documents, spreadsheets and Bases ("Import overview"): the file is uploaded for the import alone, then a job
// of the platform makes the document. The job has no key: where its answer is lost, the document is looked for.

const remedies = {
  ...fileRemedies,
  1069902: "The person may not do this here.",
  1069904: "The platform does not take this file as such a document.",
  1069907: "The file is not there any more; import it again.",
  1069908: "There is no such folder, or the person may not put anything into it.",
  1069909: "The file is too large to be imported.",
  1069910: "The file is not of the kind that its name says.",
  1069911: "The platform does not make such a document of this file.",
  1069912: "There is no such folder.",
  1069913: "The upload has expired; import the file again.",
  1069914: "There is no such import any more.",
  1069923: "The platform's limit for imports is reached; try again in a minute.",
};

/** States of an import ("Query import task result"). */
const failures: Readonly<Record<number, string>> = {
  100: "the file is encrypted",
  104: "the company's space is used up",
  105: "the folder is full",
  108: "it took the platform too long",
  110: "the person may not do this here",
  112: "the platform does not take this kind of file",
  113: "the platform does not take this Office file",
};
const running = new Set([1, 2]);

/** Types of the platform, by what people call them. */
const types = { document: "docx", spreadsheet: "sheet", base: "bitable" } as const;
type Made = keyof typeof types;

/** What becomes of which file. */
const becomes: Readonly<Record<string, readonly Made[]>> = {
  docx: ["document"],
  doc: ["document"],
  txt: ["document"],
  md: ["document"],
  mark: ["document"],
  markdown: ["document"],
  html: ["document"],
  xlsx: ["spreadsheet", "base"],
  csv: ["spreadsheet", "base"],
  xls: ["spreadsheet"],
};

/** A hundred a minute ("Create import task"). */
const importPace = { of: "imports", everyMs: 600 };

function importTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    timeoutMs: 240_000,
    name: "import_file",
    description:
      "Makes a document of the person's own of a file of the drive or of a chat (docx, doc, txt, md, html), or a spreadsheet or Base (xlsx, csv). A large one takes minutes: the answer then names a job to ask for later.",
    title: { zh: "把文件导入为文档", en: "Import a file as a document" },
    summary: { zh: "把文件 {file} 导入为 {as}", en: "Import the file {file} as a {as}" },
    input: {
      file: FileName,
      as: Type.Enum(["document", "spreadsheet", "base"]),
      name: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 200,
          description: "Title. Default: the file's name.",
        }),
      ),
      folder: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "Token of a folder. Default: the person's own.",
        }),
      ),
      job: Type.Optional(
        Type.String({
          maxLength: 100,
          description: "Of a former answer: looks whether it is done.",
        }),
      ),
    },
    effect: "once",
    scopes: [
      "docs:document:import",
      "docs:document.media:upload",
      "drive:file:download",
      metaScope,
      "space:document:retrieve",
    ],
    reach: "own",
    run: async ({ file: named, as, name, folder, job }, platform) => {
      if (job !== undefined) return await ending(platform, checkedId(job, "an import"));
      const folderToken =
        folder === undefined || folder === "" ? "" : checkedId(folder, "a folder");
      const file = await fileAt(platform, named);
      const [, title = file.name, extension = ""] = /^(.*)\.(\w{1,10})$/s.exec(file.name) ?? [];
      const possible = becomes[extension.toLowerCase()] ?? [];
      if (!possible.includes(as)) {
        const what = possible.length === 0 ? "nothing" : possible.join(" or ");
        throw new Error(`A file ${JSON.stringify(file.name)} can become ${what}.`);
      }
      const began = await begun(platform, {
        ...file,
        extension,
        title: name ?? title,
        type: types[as],
        folderToken,
      });
      return typeof began === "string" ? await ending(platform, began) : `Imported: ${began.url}`;
    },
  });
}

interface Import {
  name: string;
  bytes: Buffer;
  extension: string;
  title: string;
  type: (typeof types)[Made];
  folderToken: string;
}

/** The ticket of a job, or the document where the job's answer was lost. */
async function begun(
  platform: Platform,
  { name, bytes, extension: file_extension, title, type, folderToken }: Import,
): Promise<string | { url: string }> {
  return await driveAlone(platform, async () => {
    const { file_token = "" } = await platform.read(async (client, as) => {
      const data = {
        file_name: name,
        parent_type: "ccm_import_open" as const,
        parent_node: "",
        size: bytes.byteLength,
        extra: JSON.stringify({ obj_type: type, file_extension }),
        file: bytes,
      };
      return { data: (await client.drive.v1.media.uploadAll({ data }, as)) ?? undefined };
    }, drivePace);
    const find = madeIn(platform, { folder: folderToken, name: title, type });
    return await makeOnce<{ ticket?: string | undefined }, string | { url: string }>(platform, {
      pace: importPace,
      run: (client, as) =>
        client.drive.v1.importTask.create(
          {
            data: {
              file_extension,
              file_token,
              type,
              file_name: title,
              point: { mount_type: 1, mount_key: folderToken },
            },
          },
          as,
        ),
      result: ({ ticket = "" }) => checkedId(ticket, "an import"),
      find: async () => {
        const made = await find();
        return made === undefined ? undefined : { url: made.url ?? made.token };
      },
      open: `whether ${JSON.stringify(title)} was imported`,
    });
  });
}

/** What became of a job that was begun. What fails here must not hide that. */
async function ending(platform: Platform, ticket: string): Promise<string> {
  const later = `Ask again in a minute with job: ${JSON.stringify(ticket)}.`;
  const end = await endOfJob(platform, async () => await lookedAt(platform, ticket)).catch(
    (error: unknown) => {
      if (error instanceof PlatformRefusal) throw error;
      const reason = error instanceof Error ? error.message : String(error);
      throw new OutcomeUnknownError(`The import was begun. ${reason} ${later}`);
    },
  );
  if (end === undefined) return `The import is not done yet. ${later}`;
  if ("failure" in end) throw new Error(`There is no import: ${end.failure}.`);
  const cut = end.notes.length === 0 ? "" : "\nThe platform has left out what is too much for it.";
  return `Imported: ${end.url}${cut}`;
}

async function lookedAt(
  platform: Platform,
  ticket: string,
): Promise<{ url: string; notes: string[] } | { failure: string } | undefined> {
  const { result } = await platform.read(
    (client, as) => client.drive.v1.importTask.get({ path: { ticket } }, as),
    importPace,
  );
  const state = result?.job_status ?? 1;
  if (running.has(state)) return undefined;
  if (state === 0) return { url: result?.url ?? result?.token ?? "", notes: result?.extra ?? [] };
  return { failure: failures[state] ?? result?.job_error_msg ?? `state ${state}` };
}

/** Makes documents of files. */
export const importTools = [importTool];
