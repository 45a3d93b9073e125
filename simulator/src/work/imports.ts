import type { ApiCallContext, ApiRoute } from "../api-route.ts";
import { isJsonObject, newId, PlatformError, stringField, success } from "../open-api.ts";
import type { SimBases } from "./base.ts";
import type { SimDocuments } from "./documents.ts";
import type { SimDrive } from "./drive.ts";
import type { SimSheets } from "./sheets.ts";
import { actorOf, type WorkWorld } from "./world.ts";

// Imports of files ("Import overview"): a job that makes a document of a file that was uploaded for it, or lies in the drive.

interface SimImport {
  /** Who began it: others cannot see it. */
  by: string;
  type: string;
  /** Of the document; empty: the job fails. */
  token: string;
  state: number;
  /** Looks that find it running. */
  looksLeft: number;
}

export interface ImportControls {
  /** How often the jobs that begin from now on are found running. Default 1. */
  setImportLooks(looks: number): void;
  /** The jobs that begin from now on end with this state, such as 100; 0: as they should. */
  setImportState(state: number): void;
}

const formats: Readonly<Record<string, readonly string[]>> = {
  docx: ["docx", "doc", "txt", "md", "mark", "markdown", "html"],
  sheet: ["xlsx", "csv", "xls"],
  bitable: ["xlsx", "csv"],
};
const paths: Readonly<Record<string, string>> = { docx: "docx", sheet: "sheets", bitable: "base" };
const scopes = ["docs:document:import", "drive:drive"];
/** "The uploaded file has expired". */
const uploadMs = 5 * 60_000;

interface Stores {
  docs: SimDocuments;
  sheets: SimSheets;
  tables: SimBases;
  drive: SimDrive;
}

export class SimImports implements ImportControls {
  readonly #world: WorkWorld;
  readonly #stores: Stores;
  readonly #jobs = new Map<string, SimImport>();
  #looks = 1;
  #state = 0;

  constructor(world: WorkWorld, stores: Stores) {
    this.#world = world;
    this.#stores = stores;
  }

  setImportLooks(looks: number): void {
    this.#looks = looks;
  }

  setImportState(state: number): void {
    this.#state = state;
  }

  routes(): ApiRoute[] {
    const path = "/open-apis/drive/v1/import_tasks";
    return [
      {
        method: "POST",
        path,
        personScopes: scopes,
        limits: { perMinute: 100 },
        handle: (call) => success({ ticket: this.#begin(call) }),
      },
      {
        method: "GET",
        path: `${path}/:ticket`,
        personScopes: scopes,
        limits: { perMinute: 100 },
        handle: (call) => {
          const ticket = call.params.ticket ?? "";
          const job = this.#jobs.get(ticket);
          if (job === undefined || job.by !== actorOf(call)) {
            throw new PlatformError(1069914, "ticket not exist");
          }
          const isRunning = job.looksLeft > 0;
          job.looksLeft -= 1;
          const { type, token, state } = job;
          const made = { token, url: `https://example.feishu.cn/${paths[type]}/${token}` };
          const end = state === 0 ? made : { job_error_msg: "failed" };
          const result = isRunning ? { job_status: 2 } : { job_status: state, ...end };
          return success({ result: { ticket, type, ...result } });
        },
      },
    ];
  }

  /** The document is there at once: the platform makes it, also where no call asks for the job again. */
  #begin(call: ApiCallContext): string {
    const type = stringField(call.body, "type");
    const extension = stringField(call.body, "file_extension");
    const { point, file_name: given } = call.body;
    if (formats[type]?.includes(extension.toLowerCase()) !== true) {
      throw new PlatformError(1069911, "import file type not match");
    }
    const file = this.#fileFor(call, stringField(call.body, "file_token"));
    if (!file.name.endsWith(`.${extension}`)) {
      throw new PlatformError(1069910, "import file extension not match");
    }
    if (!isJsonObject(point) || point.mount_type !== 1 || typeof point.mount_key !== "string") {
      throw new PlatformError(1069904, "invalid param");
    }
    const folder = point.mount_key;
    if (folder !== "") {
      if (this.#stores.drive.files.get(folder)?.type !== "folder") {
        throw new PlatformError(1069912, "folder not exist");
      }
      this.#world.require(call, folder, { right: "edit", code: 1069908 });
    }
    const title =
      typeof given === "string" && given !== "" ? given : file.name.slice(0, -extension.length - 1);
    const owner = actorOf(call);
    const state = this.#state;
    const token = state === 0 ? this.#made(type, { owner, title, folder, text: file.text }) : "";
    if (state === 0) this.#world.record(call, "drive.import", `${type} ${title}`);
    const ticket = newId("imp");
    this.#jobs.set(ticket, { by: owner, type, token, state, looksLeft: this.#looks });
    return ticket;
  }

  /** A file that was uploaded for an import a moment ago, or one of the drive. */
  #fileFor(call: ApiCallContext, token: string): { name: string; text: string } {
    const { docs, drive } = this.#stores;
    const upload = docs.uploads.get(token);
    if (upload?.by === actorOf(call)) {
      if (this.#world.clock.now() - upload.at > uploadMs) {
        throw new PlatformError(1069913, "import file token expired");
      }
      return { name: upload.name, text: Buffer.from(upload.base64, "base64").toString() };
    }
    const file = drive.files.get(token);
    if (file?.type !== "file") {
      throw new PlatformError(1069907, "file token not found", { status: 404 });
    }
    this.#world.require(call, token, { code: 1069902 });
    return file;
  }

  #made(
    type: string,
    { owner, title, folder, text }: { owner: string; title: string; folder: string; text: string },
  ): string {
    const { docs, sheets, tables } = this.#stores;
    if (type === "docx") {
      return docs.addDocument({ owner, title, markdown: text, folder }).documentId;
    }
    const rows = text.split(/\r?\n/).flatMap((line) => (line === "" ? [] : [line.split(",")]));
    if (type === "sheet") return sheets.addSpreadsheet({ owner, title, rows, folder }).token;
    const { appToken } = tables.addBase({ owner, name: title });
    const [head = ["Text"], ...rest] = rows;
    const { tableId } = tables.addTable(appToken, {
      name: title,
      fields: head.map((name) => ({ name, type: 1 })),
    });
    for (const row of rest) {
      tables.addRecord(
        appToken,
        tableId,
        Object.fromEntries(head.map((name, at) => [name, row[at] ?? ""])),
      );
    }
    return appToken;
  }
}
