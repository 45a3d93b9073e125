import { FileAnswer } from "../faults.ts";
import type { ApiCallContext, ApiRoute } from "../api-route.ts";
import { newId, PlatformError, stringField, success } from "../open-api.ts";
import type { SimBases } from "./base.ts";
import type { SimDocuments } from "./documents.ts";
import type { SimSheets } from "./sheets.ts";
import { actorOf, type WorkWorld } from "./world.ts";

// Exports of documents ("Export overview"): a job that runs by itself, then a file that is there for ten minutes.

interface SimExport {
  /** Who began it: others cannot see it. */
  by: string;
  token: string;
  type: string;
  extension: string;
  name: string;
  fileToken: string;
  bytes: Buffer;
  /** Looks that find it running. */
  looksLeft: number;
  madeAt: number;
}

export interface ExportControls {
  /** How often the jobs that begin from now on are found running. Default 1. */
  setExportLooks(looks: number): void;
  /** The jobs that begin from now on end with this state, such as 107; 0: as they should. */
  setExportState(state: number): void;
}

const formats: Readonly<Record<string, readonly string[]>> = {
  docx: ["docx", "pdf"],
  sheet: ["xlsx", "csv"],
  bitable: ["xlsx", "csv"],
};
const scopes = ["docs:document:export", "drive:export:readonly", "drive:drive"];
const fileMs = 10 * 60_000;

export class SimExports implements ExportControls {
  readonly #world: WorkWorld;
  readonly #docs: SimDocuments;
  readonly #sheets: SimSheets;
  readonly #tables: SimBases;
  readonly #jobs = new Map<string, SimExport>();
  #looks = 1;
  #state = 0;

  constructor(
    world: WorkWorld,
    { docs, sheets, tables }: { docs: SimDocuments; sheets: SimSheets; tables: SimBases },
  ) {
    this.#world = world;
    this.#docs = docs;
    this.#sheets = sheets;
    this.#tables = tables;
  }

  setExportLooks(looks: number): void {
    this.#looks = looks;
  }

  setExportState(state: number): void {
    this.#state = state;
  }

  routes(): ApiRoute[] {
    const path = "/open-apis/drive/v1/export_tasks";
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
          const job = this.#jobs.get(call.params.ticket ?? "");
          if (job === undefined || job.by !== actorOf(call)) {
            throw new PlatformError(1069918, "ticket not exist");
          }
          if (job.token !== call.query.get("token")) {
            throw new PlatformError(1069914, "token mismatch");
          }
          const { type, extension, name, fileToken, bytes } = job;
          const isRunning = job.looksLeft > 0;
          job.looksLeft -= 1;
          const job_status = isRunning ? 2 : this.#state;
          const file =
            job_status === 0
              ? { file_token: fileToken, file_name: name, file_size: bytes.byteLength }
              : { job_error_msg: isRunning ? "processing" : "failed" };
          return success({ result: { file_extension: extension, type, job_status, ...file } });
        },
      },
      {
        method: "GET",
        path: `${path}/file/:file_token/download`,
        personScopes: scopes,
        limits: { perMinute: 100 },
        handle: (call) => {
          const job = [...this.#jobs.values()].find(
            ({ fileToken }) => fileToken === call.params.file_token,
          );
          const isThere = job !== undefined && this.#world.clock.now() - job.madeAt < fileMs;
          if (!isThere || job.by !== actorOf(call)) {
            throw new PlatformError(1069902, "no permission", { status: 403 });
          }
          const { bytes, name, extension } = job;
          const mediaType = "application/octet-stream";
          return new FileAnswer({ bytes, mediaType, name: `${name}.${extension}` });
        },
      },
    ];
  }

  #begin(call: ApiCallContext): string {
    const [token, type, extension] = ["token", "type", "file_extension"].map((field) =>
      stringField(call.body, field),
    ) as [string, string, string]; // one for each name
    if (formats[type]?.includes(extension) !== true) {
      throw new PlatformError(1069904, "invalid params");
    }
    const { sub_id: part } = call.body;
    if (extension === "csv" && typeof part !== "string") {
      throw new PlatformError(1069904, "sub_id is required");
    }
    const found = this.#contentOf(token, type, part);
    if (found === undefined) throw new PlatformError(1069914, "token not exist");
    this.#world.require(call, token, { code: 1069902 });
    const ticket = newId("exp");
    this.#jobs.set(ticket, {
      by: actorOf(call),
      token,
      type,
      extension,
      name: found.name,
      fileToken: newId("box"),
      bytes: Buffer.from(`${extension === "pdf" ? "%PDF-1.7\n" : ""}${found.text}`),
      looksLeft: this.#looks,
      madeAt: this.#world.clock.now(),
    });
    return ticket;
  }

  #contentOf(
    token: string,
    type: string,
    part: unknown,
  ): { name: string; text: string } | undefined {
    if (type === "docx") {
      const document = this.#docs.documents.get(token);
      return document && { name: document.title, text: this.#docs.markdown(token) };
    }
    if (type === "sheet") {
      const book = this.#sheets.spreadsheets.get(token);
      const sheets = book?.sheets.filter(({ sheetId }) => part === undefined || part === sheetId);
      return book && { name: book.title, text: lines((sheets ?? []).flatMap(({ rows }) => rows)) };
    }
    const base = this.#tables.bases.get(token);
    const tables = [...(base?.tables.values() ?? [])].filter(
      ({ tableId }) => part === undefined || part === tableId,
    );
    const rows = tables.flatMap(({ records }) =>
      records.map(({ fields }) => Object.values(fields)),
    );
    return base && { name: base.name, text: lines(rows) };
  }
}

function lines(rows: readonly (readonly unknown[])[]): string {
  return rows.map((row) => row.map(String).join(",")).join("\n");
}
