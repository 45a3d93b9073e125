import type { ApiCallContext, ApiRoute } from "../api-route.ts";
import { newId, PlatformError, stringField, success } from "../open-api.ts";
import type { SimDocuments } from "./documents.ts";
import { blockTypes } from "./markdown.ts";
import type { Right, WorkWorld } from "./world.ts";

// Boards in documents, on which the platform draws what is written as a diagram ("Board overview").

/** What one drawing has made. */
interface SimBoardNode {
  id: string;
  diagram: string;
}

export interface BoardControls {
  /** What is on the boards of documents, by their tokens. */
  readonly boards: ReadonlyMap<string, readonly SimBoardNode[]>;
}

/** How diagrams begin, by the number of their syntax. */
const beginnings: Readonly<Record<number, RegExp>> = {
  1: /^@start\w+/,
  2: /^(graph|flowchart|sequenceDiagram|classDiagram|stateDiagram|erDiagram|mindmap|pie|gantt)\b/,
};

export class SimBoards implements BoardControls {
  readonly boards = new Map<string, SimBoardNode[]>();
  readonly #world: WorkWorld;
  readonly #docs: SimDocuments;

  constructor(world: WorkWorld, docs: SimDocuments) {
    this.#world = world;
    this.#docs = docs;
  }

  routes(): ApiRoute[] {
    const path = "/open-apis/board/v1/whiteboards/:whiteboard_id/nodes";
    return [
      {
        method: "GET",
        path,
        personScopes: ["board:whiteboard:node:read"],
        limits: { perSecond: 10 },
        handle: (call) => {
          const nodes = this.#nodesFor(call, "view").map(({ id }) => ({ id, type: "group" }));
          return success({ nodes });
        },
      },
      {
        method: "POST",
        path: `${path}/plantuml`,
        personScopes: ["board:whiteboard:node:create"],
        limits: { perSecond: 5 },
        handle: (call) => {
          const nodes = this.#nodesFor(call, "edit");
          const diagram = stringField(call.body, "plant_uml_code");
          const begins = beginnings[Number(call.body.syntax_type)];
          if (begins?.test(diagram.trim()) !== true) {
            throw new PlatformError(2890002, "invalid arg");
          }
          const id = newId("node");
          nodes.push({ id, diagram });
          this.#world.record(call, "board.draw", diagram);
          return success({ node_id: id });
        },
      },
    ];
  }

  /** A board belongs to those who may see its document. */
  #nodesFor(call: ApiCallContext, right: Right): SimBoardNode[] {
    const id = call.params.whiteboard_id ?? "";
    const document = [...this.#docs.documents.values()].find(({ blocks }) =>
      [...blocks.values()].some(
        ({ block_type, board }) =>
          block_type === blockTypes.board && JSON.stringify(board).includes(`"${id}"`),
      ),
    );
    if (document === undefined) throw new PlatformError(2890003, "record missing");
    this.#world.require(call, document.documentId, { right, code: 2890005 });
    const nodes = this.boards.get(id) ?? [];
    this.boards.set(id, nodes);
    return nodes;
  }
}
