import type { Platform } from "../platform.ts";
import { type SimBlock, blockTypes, blocksOf, markdownOf, textOf, dataKeyOf } from "./markdown.ts";
import { type SimComment, type WrittenComment, addComment, commentRoutes } from "./comments.ts";
import { type WorkWorld, actorOf, uuidKeyOf } from "./world.ts";
import type { ApiCallContext, ApiRoute } from "../api-route.ts";
import { FileAnswer } from "../faults.ts";
import {
  randomHex,
  PlatformError,
  newId,
  type JsonObject,
  success,
  stringField,
  isJsonObject,
  fieldError,
  pageOf,
} from "../open-api.ts";

// Documents with blocks and comments, and the tree of a wiki ("Docs overview", "Wiki overview").

export interface SimDocument {
  documentId: string;
  title: string;
  /** Open id of a person, or an app's id. */
  owner: string;
  revision: number;
  blocks: Map<string, SimBlock>;
  comments: SimComment[];
  createdAt: number;
  updatedAt: number;
  folder: string;
}

/** A picture or file that was uploaded for one block of one document. */
interface SimPicture {
  documentId: string;
  blockId: string;
  name: string;
  base64: string;
}

export interface SimWikiNode {
  nodeToken: string;
  spaceId: string;
  parent: string;
  title: string;
  type: "docx" | "bitable" | "sheet";
  /** The document or Base behind it. */
  object: string;
  createdAt: number;
  creator: string;
}

export interface SimWikiSpace {
  spaceId: string;
  name: string;
}

export interface DocumentControls {
  readonly documents: ReadonlyMap<string, SimDocument>;
  /** A document of a person, of this Markdown. */
  addDocument(document: { owner: string; title: string; markdown: string }): SimDocument;
  markdown(documentId: string): string;
  /** A comment in a document; `event` is the payload of `drive.notice.comment_add_v1` for it, to be sent. */
  comment(written: WrittenComment): { comment: SimComment; event: JsonObject };
  addSpace(space: { name: string; members: readonly string[] }): SimWikiSpace;
  /** Puts a document into a space. Members of the space may edit it. */
  addNode(node: {
    spaceId: string;
    documentId: string;
    parent?: string;
    type?: SimWikiNode["type"];
  }): SimWikiNode;
  readonly nodes: ReadonlyMap<string, SimWikiNode>;
  /** By the token of the upload. */
  readonly pictures: ReadonlyMap<string, SimPicture>;
  /** The next creations in the folder or the space meet the platform's lock that often. */
  lockTree(times: number): void;
}

/** How long the platform knows the key of a change of a document; its page names no time. */
const keyWindowMs = 10 * 60_000;
const maxBlocksOfCall = 1_000;
const perDocument = 3;
/** Earlier ones cannot be read any more. */
const maxRevisions = 50;

const denied = 1770032;

export class SimDocuments implements DocumentControls {
  readonly documents = new Map<string, SimDocument>();
  readonly nodes = new Map<string, SimWikiNode>();
  readonly spaces = new Map<string, SimWikiSpace & { members: ReadonlySet<string> }>();
  readonly pictures = new Map<string, SimPicture>();
  /** Files that were uploaded to be imported, by token. */
  readonly uploads = new Map<string, { by: string; name: string; base64: string; at: number }>();
  /** What documents were before their latest changes: their blocks in order, by revision. */
  readonly #revisions = new WeakMap<SimDocument, Map<number, SimBlock[]>>();
  readonly #world: WorkWorld;
  #locks = 0;

  constructor(world: WorkWorld) {
    this.#world = world;
  }

  addDocument(given: {
    owner: string;
    title: string;
    markdown: string;
    folder?: string;
  }): SimDocument {
    const documentId = randomHex(27);
    const now = this.#world.clock.now();
    const page: SimBlock = {
      block_id: documentId,
      parent_id: "",
      block_type: blockTypes.page,
      children: [],
      page: { elements: [{ text_run: { content: given.title } }] },
    };
    const document: SimDocument = {
      documentId,
      title: given.title,
      owner: given.owner,
      revision: 1,
      blocks: new Map([[documentId, page]]),
      comments: [],
      createdAt: now,
      updatedAt: now,
      folder: given.folder ?? "",
    };
    this.documents.set(documentId, document);
    this.#world.share(documentId, given.owner, "edit");
    const { top, blocks } = blocksOf(given.markdown);
    this.insert(document, { parentId: documentId, index: -1, children: top, blocks });
    return document;
  }

  markdown(documentId: string): string {
    return markdownOf(
      documentId,
      this.documents.get(documentId)?.blocks ?? new Map(),
      (token) => this.pictures.get(token)?.name,
    );
  }

  comment(written: WrittenComment): { comment: SimComment; event: JsonObject } {
    const document = this.documents.get(written.documentId);
    if (document === undefined) throw new RangeError(`unknown document ${written.documentId}`);
    return addComment(this.#world, document, written);
  }

  addSpace({ name, members }: { name: string; members: readonly string[] }): SimWikiSpace {
    const space = {
      spaceId: String(7_000_000_000 + this.spaces.size),
      name,
      members: new Set(members),
    };
    this.spaces.set(space.spaceId, space);
    return space;
  }

  addNode(given: Parameters<DocumentControls["addNode"]>[0]): SimWikiNode {
    const space = this.spaces.get(given.spaceId);
    if (space === undefined) throw new Error(`no space ${given.spaceId}`);
    const document = this.documents.get(given.documentId);
    const node: SimWikiNode = {
      nodeToken: randomHex(27),
      spaceId: given.spaceId,
      parent: given.parent ?? "",
      title: document?.title ?? "",
      type: given.type ?? "docx",
      object: given.documentId,
      createdAt: this.#world.clock.now(),
      creator: document?.owner ?? "",
    };
    this.nodes.set(node.nodeToken, node);
    for (const member of space.members) this.#world.share(given.documentId, member, "edit");
    return node;
  }

  lockTree(times: number): void {
    this.#locks = times;
  }

  /** Keeps what the document is now, before a change. */
  keepRevision(document: SimDocument): void {
    const kept = this.#revisions.get(document) ?? new Map<number, SimBlock[]>();
    kept.set(document.revision, structuredClone(inOrder(document)));
    for (const old of [...kept.keys()].slice(0, -maxRevisions)) kept.delete(old);
    this.#revisions.set(document, kept);
  }

  /** The blocks that the document had in an earlier revision; undefined: it is not kept. */
  blocksAt(document: SimDocument, revision: number): SimBlock[] | undefined {
    return this.#revisions.get(document)?.get(revision);
  }

  /** Throws the code while the tree is locked. */
  passLock(code: number): void {
    if (this.#locks <= 0) return;
    this.#locks -= 1;
    throw new PlatformError(code, "the parent is locked, try again");
  }

  spaceFor(call: ApiCallContext, spaceId: string): SimWikiSpace {
    const space = this.spaces.get(spaceId);
    if (space === undefined) throw new PlatformError(131005, "not found");
    if (!space.members.has(actorOf(call))) throw new PlatformError(131006, "permission denied");
    return space;
  }

  spacesOf(who: string): SimWikiSpace[] {
    return [...this.spaces.values()].filter(({ members }) => members.has(who));
  }

  /** Puts blocks, with their temporary ids replaced, below a parent. Returns the new ids by the temporary ones. */
  insert(
    document: SimDocument,
    {
      parentId,
      index,
      children,
      blocks,
    }: { parentId: string; index: number; children: string[]; blocks: SimBlock[] },
  ): Map<string, string> {
    const ids = new Map(blocks.map(({ block_id }) => [block_id, newId("blk")]));
    const idOf = (id: string): string => ids.get(id) ?? id;
    for (const block of blocks) {
      const made: SimBlock = {
        ...block,
        block_id: idOf(block.block_id),
        parent_id: children.includes(block.block_id) ? parentId : idOf(block.parent_id),
        children: (block.children ?? []).map(idOf),
      };
      for (const child of block.children ?? []) {
        const placed = blocks.find(({ block_id }) => block_id === child);
        if (placed !== undefined) placed.parent_id = block.block_id;
      }
      document.blocks.set(made.block_id, made);
    }
    for (const block of document.blocks.values()) {
      for (const child of block.children ?? []) {
        const placed = document.blocks.get(child);
        if (placed !== undefined) placed.parent_id = block.block_id;
      }
    }
    const parent = document.blocks.get(parentId);
    if (parent === undefined) throw new PlatformError(1770002, "not found");
    const kept = parent.children ?? [];
    const at = index < 0 || index > kept.length ? kept.length : index;
    parent.children = [...kept.slice(0, at), ...children.map(idOf), ...kept.slice(at)];
    document.revision += 1;
    document.updatedAt = this.#world.clock.now();
    return ids;
  }
}

/** The operations on documents and wiki. */
export function documentRoutes(
  platform: Platform,
  world: WorkWorld,
  store: SimDocuments,
): ApiRoute[] {
  const knownDocument = (
    call: ApiCallContext,
    right: "view" | "edit",
    code = denied,
  ): SimDocument => {
    const document = store.documents.get(call.params.document_id ?? "");
    if (document === undefined) throw new PlatformError(1770002, "not found", { status: 404 });
    world.require(call, document.documentId, { right, code });
    return document;
  };
  /** Three writes a second to one document, and three an app, over all operations that change documents. */
  const checkWrites = (call: ApiCallContext, documentId: string): void => {
    platform.limiter.checkApi({ appId: call.app.appId, api: "docx writes" }, { perSecond: 3 });
    platform.limiter.checkApi(
      { appId: call.app.appId, api: `document ${documentId}` },
      { perSecond: perDocument },
    );
  };
  /** A change under its key, of the revision that the caller has read. */
  const change = (
    call: ApiCallContext,
    api: string,
    apply: (document: SimDocument) => JsonObject,
  ): JsonObject => {
    const document = knownDocument(call, "edit");
    checkWrites(call, document.documentId);
    const key = uuidKeyOf(call, 1770001);
    const conflict = new PlatformError(1770001, "the client_token was used");
    return world.once(call, { api, key, windowMs: keyWindowMs, conflict }, () => {
      const wanted = Number(call.query.get("document_revision_id") ?? -1);
      if (wanted !== -1 && wanted !== document.revision) {
        throw new PlatformError(1770021, "too old document");
      }
      store.keepRevision(document);
      const data = apply(document);
      document.updatedAt = world.clock.now();
      return success({ ...data, document_revision_id: document.revision, client_token: key });
    });
  };
  const nameOf = (who: string): string =>
    platform.directory.users.get(who)?.name ?? platform.apps.get(who)?.name ?? "";

  return [
    {
      method: "POST",
      path: "/open-apis/search/v2/doc_wiki/search",
      personScopes: ["search:docs:read"],
      limits: { perMinute: 100 },
      handle: (call) => {
        const query = stringField(call.body, "query").toLowerCase();
        if (query.length > 50) throw new PlatformError(1274001, "query is too long");
        if (!isJsonObject(call.body.doc_filter) && !isJsonObject(call.body.wiki_filter)) {
          throw new PlatformError(1274002, "a filter is required");
        }
        const inWiki = new Map([...store.nodes.values()].map((node) => [node.object, node]));
        const found = [...store.documents.values()]
          .filter(({ documentId }) => world.may(actorOf(call), documentId))
          .filter(({ documentId, title }) =>
            `${title}\n${store.markdown(documentId)}`.toLowerCase().includes(query),
          );
        const size = Number(call.body.page_size ?? 15);
        if (size > 20) throw fieldError("page_size", "must be at most 20");
        const units = found.slice(0, size).map((document) => {
          const node = inWiki.get(document.documentId);
          const url =
            node === undefined
              ? urlOf(`docx/${document.documentId}`)
              : urlOf(`wiki/${node.nodeToken}`);
          return {
            title_highlighted: document.title.replaceAll(query, `<h>${query}</h>`),
            summary_highlighted: store.markdown(document.documentId).slice(0, 80),
            entity_type: node === undefined ? "DOC" : "WIKI",
            result_meta: {
              token: node?.nodeToken ?? document.documentId,
              url,
              doc_types: "DOCX",
              owner_name: nameOf(document.owner),
              owner_id: document.owner,
              update_time: Math.floor(document.updatedAt / 1_000),
              is_cross_tenant: false,
            },
          };
        });
        return success({ total: found.length, has_more: found.length > size, res_units: units });
      },
    },
    {
      method: "GET",
      path: "/open-apis/docs/v1/content",
      personScopes: ["docs:document.content:read"],
      limits: { perSecond: 5 },
      handle: (call) => {
        const document = store.documents.get(call.query.get("doc_token") ?? "");
        if (document === undefined) throw new PlatformError(2889914, "invalid token");
        world.require(call, document.documentId, { code: 2889902 });
        return success({
          content: `# ${document.title}\n\n${store.markdown(document.documentId)}`,
        });
      },
    },
    {
      method: "GET",
      path: "/open-apis/docx/v1/documents/:document_id",
      personScopes: ["docx:document:readonly"],
      limits: { perSecond: 5 },
      handle: (call) => {
        const { documentId, revision, title } = knownDocument(call, "view");
        return success({ document: { document_id: documentId, revision_id: revision, title } });
      },
    },
    {
      method: "GET",
      path: "/open-apis/docx/v1/documents/:document_id/blocks",
      personScopes: ["docx:document:readonly"],
      limits: { perSecond: 5 },
      handle: (call) => {
        const document = knownDocument(call, "view");
        const wanted = Number(call.query.get("document_revision_id") ?? -1);
        if (wanted === -1 || wanted === document.revision) {
          return success({ ...pageOf(inOrder(document), call.query, 500) });
        }
        // What a document was before is for those who may edit it.
        knownDocument(call, "edit");
        const blocks = store.blocksAt(document, wanted);
        if (blocks === undefined) throw new PlatformError(1770001, "invalid revision");
        return success({ ...pageOf(blocks, call.query, 500) });
      },
    },
    {
      method: "POST",
      path: "/open-apis/docx/v1/documents",
      personScopes: ["docx:document:create"],
      limits: { perSecond: 3 },
      handle: (call) => {
        store.passLock(1770036);
        const title = typeof call.body.title === "string" ? call.body.title : "";
        if (title.length > 800) throw new PlatformError(1770001, "title is too long");
        const folder = typeof call.body.folder_token === "string" ? call.body.folder_token : "";
        const document = store.addDocument({ owner: actorOf(call), title, markdown: "", folder });
        world.record(call, "document.create", title);
        return success({
          document: { document_id: document.documentId, revision_id: document.revision, title },
        });
      },
    },
    {
      method: "POST",
      path: "/open-apis/docx/v1/documents/blocks/convert",
      personScopes: ["docx:document.block:convert"],
      handle: (call) => {
        if (call.body.content_type !== "markdown") {
          throw new PlatformError(1770001, "invalid param");
        }
        const { top, blocks } = blocksOf(stringField(call.body, "content"));
        return success({ first_level_block_ids: top, blocks });
      },
    },
    {
      method: "POST",
      path: "/open-apis/docx/v1/documents/:document_id/blocks/:block_id/descendant",
      personScopes: ["docx:document:write_only"],
      handle: (call) =>
        change(call, "docx.descendant", (document) => {
          const blocks = blocksIn(call.body.descendants);
          const children = stringsIn(call.body.children_id);
          if (blocks.length > maxBlocksOfCall) throw new PlatformError(1770001, "too many blocks");
          if (JSON.stringify(blocks).includes("merge_info")) {
            throw new PlatformError(1770001, "merge_info is read-only");
          }
          const index = typeof call.body.index === "number" ? call.body.index : -1;
          const ids = store.insert(document, {
            parentId: call.params.block_id ?? "",
            index,
            children,
            blocks,
          });
          for (const id of children) {
            const made = document.blocks.get(ids.get(id) ?? "");
            if (made !== undefined) world.record(call, "document.block", textOf(made));
          }
          const relations = [...ids].map(([temporary_block_id, block_id]) => ({
            temporary_block_id,
            block_id,
          }));
          return {
            block_id_relations: relations,
            children: children.map((id) => document.blocks.get(ids.get(id) ?? "")),
          };
        }),
    },
    {
      method: "POST",
      path: "/open-apis/docx/v1/documents/:document_id/blocks/:block_id/children",
      personScopes: ["docx:document:write_only"],
      handle: (call) =>
        change(call, "docx.children", (document) => {
          const blocks = blocksIn(call.body.children).map((block) => ({
            ...block,
            block_id: newId("tmp"),
            // The platform makes the board with its block.
            ...(block.block_type === blockTypes.board
              ? { board: { token: newId("board").slice(0, 27) } }
              : {}),
          }));
          if (blocks.length === 0 || blocks.length > 50) {
            throw new PlatformError(1770001, "invalid children");
          }
          const index = typeof call.body.index === "number" ? call.body.index : -1;
          const inViews = blocks.flatMap((block) =>
            block.block_type === blockTypes.file ? [viewOf(block), block] : [block],
          );
          const inView = new Set(inViews.flatMap((block) => block.children ?? []));
          const children = inViews.flatMap(({ block_id: id }) => (inView.has(id) ? [] : [id]));
          const parentId = call.params.block_id ?? "";
          const ids = store.insert(document, { parentId, index, children, blocks: inViews });
          return { children: children.map((id) => document.blocks.get(ids.get(id) ?? "")) };
        }),
    },
    {
      method: "PATCH",
      path: "/open-apis/docx/v1/documents/:document_id/blocks/batch_update",
      personScopes: ["docx:document:write_only"],
      handle: (call) =>
        change(call, "docx.batch_update", (document) => {
          const requests = Array.isArray(call.body.requests)
            ? call.body.requests.filter(isJsonObject)
            : [];
          for (const { block_id, update_text_elements: update } of requests) {
            const block = document.blocks.get(String(block_id));
            const name = dataKeyOf(block?.block_type ?? 0);
            if (block === undefined || name === undefined) {
              throw new PlatformError(1770002, "not found");
            }
            const data = block[name];
            block[name] = {
              ...(isJsonObject(data) ? data : {}),
              elements:
                isJsonObject(update) && Array.isArray(update.elements) ? update.elements : [],
            };
            world.record(call, "document.update", textOf(block));
          }
          document.revision += 1;
          return {};
        }),
    },
    {
      method: "PATCH",
      path: "/open-apis/docx/v1/documents/:document_id/blocks/:block_id",
      personScopes: ["docx:document:write_only"],
      handle: (call) =>
        change(call, "docx.patch", (document) => {
          const block = document.blocks.get(call.params.block_id ?? "");
          if (block === undefined) throw new PlatformError(1770002, "not found");
          const isFile = block.block_type === blockTypes.file;
          const given = isFile ? call.body.replace_file : call.body.replace_image;
          const token = isJsonObject(given) ? String(given.token) : "";
          const picture = store.pictures.get(token);
          if (picture?.blockId !== block.block_id) {
            throw new PlatformError(1770013, "relation mismatch");
          }
          if (isFile) block.file = { token, name: picture.name };
          else block.image = { token, width: 1, height: 1 };
          document.revision += 1;
          world.record(call, isFile ? "document.file" : "document.picture", picture.name);
          return { block };
        }),
    },
    {
      method: "POST",
      path: "/open-apis/drive/v1/medias/upload_all",
      personScopes: ["docs:document.media:upload", "drive:drive"],
      limits: { perSecond: 5 },
      handle: (call) => {
        const field = (name: string): string => call.form?.get(name)?.bytes.toString() ?? "";
        const bytes = call.form?.get("file")?.bytes;
        const blockId = field("parent_node");
        if (field("parent_type") === "ccm_import_open") {
          const isWhole = Number(field("size")) === bytes?.byteLength;
          if (!isWhole || !/"obj_type".*"file_extension"/.test(field("extra"))) {
            throw new PlatformError(1061002, "params error");
          }
          const upload = { by: actorOf(call), name: field("file_name"), at: world.clock.now() };
          const token = newId("imp").slice(0, 27);
          store.uploads.set(token, { ...upload, base64: bytes?.toString("base64") ?? "" });
          return success({ file_token: token });
        }
        const type = uploadTypes[field("parent_type")];
        const document = [...store.documents.values()].find(
          ({ blocks }) => blocks.get(blockId)?.block_type === type,
        );
        if (
          type === undefined ||
          document === undefined ||
          !field("extra").includes(JSON.stringify(document.documentId)) ||
          bytes === undefined ||
          Number(field("size")) !== bytes.byteLength
        ) {
          throw new PlatformError(1061002, "params error");
        }
        world.require(call, document.documentId, { right: "edit", code: 1061004 });
        const token = newId("img").slice(0, 27);
        const { documentId } = document;
        const name = field("file_name");
        store.pictures.set(token, { documentId, blockId, name, base64: bytes.toString("base64") });
        return success({ file_token: token });
      },
    },
    {
      method: "GET",
      path: "/open-apis/drive/v1/medias/:file_token/download",
      personScopes: ["docs:document.media:download", "drive:drive"],
      limits: { perSecond: 5 },
      handle: (call) => {
        const picture = store.pictures.get(call.params.file_token ?? "");
        if (picture === undefined) throw new PlatformError(1061003, "not found", { status: 404 });
        // A bare call is refused, whatever the person may read.
        const isNamed = (call.query.get("extra") ?? "").includes(picture.documentId);
        if (!isNamed) throw new PlatformError(1061004, "forbidden", { status: 403 });
        world.require(call, picture.documentId, { code: 1061004 });
        const bytes = Buffer.from(picture.base64, "base64");
        return new FileAnswer({ bytes, mediaType: "application/octet-stream", name: picture.name });
      },
    },
    {
      method: "DELETE",
      path: "/open-apis/docx/v1/documents/:document_id/blocks/:block_id/children/batch_delete",
      personScopes: ["docx:document", "docx:document:write_only"],
      handle: (call) =>
        change(call, "docx.batch_delete", (document) => {
          const parent = document.blocks.get(call.params.block_id ?? "");
          const { start_index: start, end_index: end } = call.body;
          const children = parent?.children ?? [];
          if (
            parent === undefined ||
            typeof start !== "number" ||
            typeof end !== "number" ||
            end > children.length
          ) {
            throw new PlatformError(1770001, "invalid range");
          }
          for (const id of children.slice(start, end)) {
            const block = document.blocks.get(id);
            if (block !== undefined) world.record(call, "document.delete", textOf(block));
            document.blocks.delete(id);
          }
          parent.children = [...children.slice(0, start), ...children.slice(end)];
          document.revision += 1;
          return {};
        }),
    },
    ...commentRoutes(world, store.documents),
    ...wikiRoutes(world, store),
  ];
}

/** Types of the blocks for which files are uploaded. */
const uploadTypes: Readonly<Record<string, number>> = {
  docx_image: blockTypes.image,
  docx_file: blockTypes.file,
};

/** The block around a block of a file, which the platform makes itself. */
function viewOf({ block_id }: SimBlock): SimBlock {
  return {
    block_id: newId("tmp"),
    parent_id: "",
    block_type: blockTypes.view,
    children: [block_id],
    view: { view_type: 1 },
  };
}

function wikiRoutes(world: WorkWorld, store: SimDocuments): ApiRoute[] {
  const view = (node: SimWikiNode): JsonObject => ({
    space_id: node.spaceId,
    node_token: node.nodeToken,
    obj_token: node.object,
    obj_type: node.type,
    parent_node_token: node.parent,
    node_type: "origin",
    title: node.title,
    has_child: [...store.nodes.values()].some(({ parent }) => parent === node.nodeToken),
    obj_edit_time: String(
      Math.floor((store.documents.get(node.object)?.updatedAt ?? node.createdAt) / 1_000),
    ),
    node_create_time: String(Math.floor(node.createdAt / 1_000)),
    creator: node.creator,
    owner: node.creator,
  });
  return [
    {
      method: "GET",
      path: "/open-apis/wiki/v2/spaces",
      personScopes: ["wiki:space:retrieve"],
      limits: { perMinute: 100 },
      handle: (call) => {
        const spaces = store
          .spacesOf(actorOf(call))
          .map(({ spaceId, name }) => ({ space_id: spaceId, name }));
        return success({ ...pageOf(spaces, call.query, 50) });
      },
    },
    {
      method: "GET",
      path: "/open-apis/wiki/v2/spaces/get_node",
      personScopes: ["wiki:node:read"],
      limits: { perMinute: 100 },
      handle: (call) => {
        const node = store.nodes.get(call.query.get("token") ?? "");
        if (node === undefined) throw new PlatformError(131005, "not found");
        store.spaceFor(call, node.spaceId);
        return success({ node: view(node) });
      },
    },
    {
      method: "GET",
      path: "/open-apis/wiki/v2/spaces/:space_id/nodes",
      personScopes: ["wiki:node:retrieve"],
      limits: { perMinute: 100 },
      handle: (call) => {
        const { spaceId } = store.spaceFor(call, call.params.space_id ?? "");
        const parent = call.query.get("parent_node_token") ?? "";
        const nodes = [...store.nodes.values()].filter(
          (node) => node.spaceId === spaceId && node.parent === parent,
        );
        return success({ ...pageOf(nodes.map(view), call.query, 50) });
      },
    },
    {
      method: "POST",
      path: "/open-apis/wiki/v2/spaces/:space_id/nodes",
      personScopes: ["wiki:node:create"],
      limits: { perMinute: 100 },
      handle: (call) => {
        const { spaceId } = store.spaceFor(call, call.params.space_id ?? "");
        store.passLock(131009);
        const title = stringField(call.body, "title");
        const parent =
          typeof call.body.parent_node_token === "string" ? call.body.parent_node_token : "";
        const { documentId } = store.addDocument({
          owner: actorOf(call),
          title,
          markdown: "",
          folder: `wiki ${spaceId}`,
        });
        world.record(call, "wiki.create", title);
        return success({ node: view(store.addNode({ spaceId, documentId, parent })) });
      },
    },
  ];
}

function urlOf(path: string): string {
  return `https://example.feishu.cn/${path}`;
}

/** The blocks in preorder, as the platform lists them. */
function inOrder({ documentId, blocks }: SimDocument): SimBlock[] {
  const listed: SimBlock[] = [];
  const visit = (id: string): void => {
    const block = blocks.get(id);
    if (block === undefined) return;
    listed.push(block);
    for (const child of block.children ?? []) visit(child);
  };
  visit(documentId);
  return listed;
}

function blocksIn(value: unknown): SimBlock[] {
  return Array.isArray(value) ? (value.filter(isJsonObject) as SimBlock[]) : []; // what is missing counts as nothing
}

function stringsIn(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === "string") : [];
}
