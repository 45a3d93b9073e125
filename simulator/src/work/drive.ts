import { FileAnswer } from "../faults.ts";
import type { SimBases } from "./base.ts";
import type { SimDocuments } from "./documents.ts";
import type { SimSheets } from "./sheets.ts";
import { type WorkWorld, actorOf } from "./world.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import {
  newId,
  stringField,
  success,
  PlatformError,
  type JsonObject,
  pageOf,
} from "../open-api.ts";

// Folders and files ("Drive overview"). Documents and spreadsheets lie in folders, too.

interface SimFile {
  token: string;
  type: "file" | "folder";
  name: string;
  owner: string;
  /** Token of the folder; empty: the root of its owner. */
  folder: string;
  createdAt: number;
  text: string;
  /** For a file whose bytes are no text. */
  base64?: string;
}

/** What lies in a folder, or in the wiki. */
export interface Entry {
  token: string;
  type: "file" | "folder" | "docx" | "sheet" | "bitable" | "wiki";
  name: string;
  owner: string;
  folder: string;
  createdAt: number;
}

export interface DriveControls {
  readonly files: ReadonlyMap<string, SimFile>;
  addFile(file: {
    owner: string;
    name: string;
    type?: SimFile["type"];
    folder?: string;
    text?: string;
    base64?: string;
  }): SimFile;
  /** The next changes meet another one that often. */
  lockDrive(times: number): void;
}

const listing = ["space:document:retrieve", "drive:drive.metadata:readonly", "drive:drive"];
/** Of uploads, copies, moves, deletions and new folders, each. */
const limits = { perSecond: 5 };
const maxUploadBytes = 20 * 1024 * 1024;

export class SimDrive implements DriveControls {
  readonly files = new Map<string, SimFile>();
  readonly #world: WorkWorld;
  readonly #docs: SimDocuments;
  readonly #sheets: SimSheets;
  readonly #tables: SimBases;
  #locks = 0;

  constructor(
    world: WorkWorld,
    { docs, sheets, tables }: { docs: SimDocuments; sheets: SimSheets; tables: SimBases },
  ) {
    this.#world = world;
    this.#docs = docs;
    this.#sheets = sheets;
    this.#tables = tables;
  }

  addFile({
    owner,
    name,
    type = "file",
    folder = "",
    text = "",
    base64,
  }: Parameters<DriveControls["addFile"]>[0]): SimFile {
    const token = newId(type === "folder" ? "fld" : "box").slice(0, 27);
    const createdAt = this.#world.clock.now();
    const file = { token, type, name, owner, folder, createdAt, text, ...(base64 && { base64 }) };
    this.files.set(token, file);
    this.#world.share(token, owner, "edit");
    return file;
  }

  lockDrive(times: number): void {
    this.#locks = times;
  }

  routes(): ApiRoute[] {
    const path = "/open-apis/drive/v1/files";
    return [
      {
        method: "GET",
        path,
        personScopes: listing,
        limits: { perSecond: 20 },
        handle: (call) => this.#list(call),
      },
      {
        method: "POST",
        path: "/open-apis/drive/v1/metas/batch_query",
        personScopes: ["drive:drive.metadata:readonly", "drive:drive"],
        handle: (call) => this.#metas(call),
      },
      {
        method: "POST",
        path: `${path}/create_folder`,
        personScopes: ["space:folder:create", "drive:drive"],
        limits,
        handle: (call) => {
          const folder = this.#folderIn(call, call.body.folder_token);
          this.#passLock();
          const name = stringField(call.body, "name");
          const { token } = this.addFile({ owner: actorOf(call), name, type: "folder", folder });
          this.#world.record(call, "drive.folder", name);
          return success({ token, url: urlOf("drive/folder", token) });
        },
      },
      {
        method: "GET",
        path: `${path}/:file_token/download`,
        personScopes: ["drive:file:download", "drive:drive"],
        limits,
        handle: (call) => {
          const { token } = this.#known(call, "view");
          const file = this.files.get(token);
          if (file?.type !== "file") throw new PlatformError(1061002, "params error");
          const bytes = Buffer.from(file.base64 ?? file.text, file.base64 ? "base64" : "utf8");
          return new FileAnswer({ bytes, mediaType: "application/octet-stream", name: file.name });
        },
      },
      {
        method: "POST",
        path: `${path}/upload_all`,
        personScopes: ["drive:file:upload", "drive:drive"],
        limits,
        handle: (call) => this.#upload(call),
      },
      {
        method: "POST",
        path: `${path}/:file_token/copy`,
        personScopes: ["docs:document:copy", "drive:drive"],
        limits,
        handle: (call) => this.#copy(call),
      },
      {
        method: "POST",
        path: `${path}/:file_token/move`,
        personScopes: ["space:document:move", "drive:drive"],
        limits,
        handle: (call) => {
          const entry = this.#known(call, "edit");
          const folder = this.#folderIn(call, call.body.folder_token);
          this.#passLock();
          const moved = this.#storedOf(entry.token);
          if (moved !== undefined) moved.folder = folder;
          this.#world.record(call, "drive.move", entry.name);
          return success({});
        },
      },
      {
        method: "DELETE",
        path: `${path}/:file_token`,
        personScopes: ["space:document:delete", "drive:drive"],
        limits,
        handle: (call) => {
          const { token, name, owner } = this.#known(call, "edit");
          if (owner !== actorOf(call)) throw new PlatformError(1061004, "forbidden");
          this.#passLock();
          this.files.delete(token);
          this.#docs.documents.delete(token);
          this.#sheets.spreadsheets.delete(token);
          this.#world.record(call, "drive.delete", name);
          return success({});
        },
      },
    ];
  }

  #passLock(): void {
    if (this.#locks <= 0) return;
    this.#locks -= 1;
    throw new PlatformError(1061045, "resource contention occurred, please retry.");
  }

  /** The object of a token, of a page of the wiki, too. */
  entry(token: string): Entry | undefined {
    const node = this.#docs.nodes.get(token);
    const found = this.#entries().find((one) => one.token === (node?.object ?? token));
    return node === undefined || found === undefined
      ? found
      : { ...found, token: node.object, type: "wiki", name: node.title };
  }

  /** What the pages below a page of the wiki hold. */
  objectsBelow(nodeToken: string): string[] {
    return [...this.#docs.nodes.values()]
      .filter(({ parent }) => parent === nodeToken)
      .flatMap((node) => [node.object, ...this.objectsBelow(node.nodeToken)]);
  }

  #entries(): Entry[] {
    const bases = [...this.#tables.bases.values()].map(
      ({ appToken: token, name, owner, createdAt }): Entry => ({
        token,
        type: "bitable",
        name,
        owner,
        folder: "",
        createdAt,
      }),
    );
    const files = [...this.files.values()];
    const documents = [...this.#docs.documents.values()].map(
      ({ documentId: token, title: name, owner, folder, createdAt }): Entry => ({
        token,
        type: "docx",
        name,
        owner,
        folder,
        createdAt,
      }),
    );
    const sheets = [...this.#sheets.spreadsheets.values()].map(
      ({ token, title: name, owner, folder, createdAt }): Entry => ({
        token,
        type: "sheet",
        name,
        owner,
        folder,
        createdAt,
      }),
    );
    return [...files, ...documents, ...sheets, ...bases];
  }

  #storedOf(token: string): { folder: string } | undefined {
    return (
      this.files.get(token) ??
      this.#docs.documents.get(token) ??
      this.#sheets.spreadsheets.get(token)
    );
  }

  #known(call: ApiCallContext, right: "view" | "edit"): Entry {
    const entry = this.#entries().find(({ token }) => token === call.params.file_token);
    if (entry === undefined) throw new PlatformError(1061003, "not found", { status: 404 });
    this.#world.require(call, entry.token, { right, code: 1061004 });
    return entry;
  }

  /** A folder into which the caller may put things. */
  #folderIn(call: ApiCallContext, token: unknown): string {
    if (typeof token !== "string" || token === "") return "";
    if (this.files.get(token)?.type !== "folder") throw new PlatformError(1061003, "not found");
    this.#world.require(call, token, { right: "edit", code: 1061004 });
    return token;
  }

  /** The newest first, as it is asked for. */
  #list(call: ApiCallContext): JsonObject {
    const folder = call.query.get("folder_token") ?? "";
    if (folder !== "") this.#world.require(call, folder, { code: 1061004 });
    const found = this.#entries()
      .filter((one) => one.folder === folder && this.#world.may(actorOf(call), one.token))
      .filter((one) => folder !== "" || one.owner === actorOf(call))
      .toSorted((left, right) => left.createdAt - right.createdAt)
      .toReversed();
    const { items, ...page } = pageOf(found.map(viewOf), call.query, 200);
    return success({ files: items, has_more: page.has_more, next_page_token: page.page_token });
  }

  #metas(call: ApiCallContext): JsonObject {
    const asked = Array.isArray(call.body.request_docs) ? call.body.request_docs : [];
    const metas: JsonObject[] = [];
    const failed_list: JsonObject[] = [];
    for (const { doc_token: token } of asked as { doc_token: string }[]) {
      // what is missing is not found
      const entry = this.entry(token);
      if (entry === undefined) failed_list.push({ token, code: 970_005 });
      else if (!this.#world.may(actorOf(call), entry.token)) {
        failed_list.push({ token, code: 970_003 });
      } else {
        metas.push({
          doc_token: token,
          doc_type: entry.type,
          title: entry.name,
          owner_id: entry.owner,
          create_time: String(Math.floor(entry.createdAt / 1_000)),
          url: urlOf(entry.type, token),
        });
      }
    }
    return success({ metas, failed_list });
  }

  #upload(call: ApiCallContext): JsonObject {
    const text = (field: string): string => call.form?.get(field)?.bytes.toString() ?? "";
    const name = text("file_name");
    const bytes = call.form?.get("file")?.bytes;
    if (name === "" || bytes === undefined || Number(text("size")) !== bytes.byteLength) {
      throw new PlatformError(1061002, "params error");
    }
    if (bytes.byteLength > maxUploadBytes) {
      throw new PlatformError(1061043, "file size beyond limit");
    }
    const folder = this.#folderIn(call, text("parent_node"));
    this.#passLock();
    const { token } = this.addFile({ owner: actorOf(call), name, folder, text: bytes.toString() });
    this.#world.record(call, "drive.upload", `${name} ${bytes.toString()}`);
    return success({ file_token: token });
  }

  #copy(call: ApiCallContext): JsonObject {
    const entry = this.#known(call, "view");
    const folder = this.#folderIn(call, call.body.folder_token);
    this.#passLock();
    const name = stringField(call.body, "name");
    const owner = actorOf(call);
    const copied = this.#copied(entry, { owner, name, folder });
    this.#world.record(call, "drive.copy", name);
    return success({ file: viewOf({ ...entry, ...copied, owner, name, folder }) });
  }

  #copied(
    { token, type }: Entry,
    { owner, name, folder }: { owner: string; name: string; folder: string },
  ): { token: string } {
    if (type === "docx") {
      const markdown = this.#docs.markdown(token);
      const { documentId } = this.#docs.addDocument({ owner, title: name, markdown, folder });
      return { token: documentId };
    }
    if (type === "sheet") {
      const rows = this.#sheets.spreadsheets.get(token)?.sheets[0]?.rows ?? [];
      return this.#sheets.addSpreadsheet({ owner, title: name, rows, folder });
    }
    if (type === "folder") throw new PlatformError(1061002, "params error");
    return this.addFile({ owner, name, folder, text: this.files.get(token)?.text ?? "" });
  }
}

function viewOf({ token, type, name, owner, folder, createdAt }: Entry): JsonObject {
  return {
    token,
    name,
    type,
    parent_token: folder,
    owner_id: owner,
    created_time: String(Math.floor(createdAt / 1_000)),
    modified_time: String(Math.floor(createdAt / 1_000)),
    url: urlOf(type, token),
  };
}

function urlOf(type: string, token: string): string {
  const path = type === "sheet" ? "sheets" : type === "folder" ? "drive/folder" : type;
  return `https://example.feishu.cn/${path}/${token}`;
}
