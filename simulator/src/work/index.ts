import type { Clock } from "@larkline/protocol";
import type { ApiRoute, Platform } from "../platform.ts";
import { type BaseControls, baseRoutes, SimBases } from "./base.ts";
import { type DocumentControls, documentRoutes, SimDocuments } from "./documents.ts";
import { WorkWorld, type WorldControls } from "./world.ts";

/** What people work with besides chats. */
export interface WorkControls extends WorldControls {
  readonly docs: DocumentControls;
  readonly tables: BaseControls;
}

/** The objects of the work APIs, and their operations. */
export interface Work {
  readonly controls: WorkControls;
  routes(platform: Platform): ApiRoute[];
}

export function createWork(clock: Clock): Work {
  const world = new WorkWorld(clock);
  const docs = new SimDocuments(world);
  const tables = new SimBases(world);
  return {
    controls: Object.assign(world, { docs, tables }),
    routes: (platform) => [...documentRoutes(platform, world, docs), ...baseRoutes(world, tables)],
  };
}
