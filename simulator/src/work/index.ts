import type { Clock } from "@larkline/protocol";
import type { ApiRoute, Platform } from "../platform.ts";
import { type BaseControls, baseRoutes, SimBases } from "./base.ts";
import { type CalendarControls, SimCalendar } from "./calendar.ts";
import { type DocumentControls, documentRoutes, SimDocuments } from "./documents.ts";
import { type MeetingControls, SimMeetings } from "./meetings.ts";
import { talkRoutes } from "./talk.ts";
import { SimTasks, type TaskControls } from "./tasks.ts";
import { WorkWorld, type WorldControls } from "./world.ts";

/** What people work with besides chats. */
export interface WorkControls extends WorldControls {
  readonly docs: DocumentControls;
  readonly tables: BaseControls;
  readonly calendar: CalendarControls;
  readonly tasks: TaskControls;
  readonly meetings: MeetingControls;
}

/** The objects of the work APIs, and their operations. */
export interface Work {
  readonly world: WorkWorld;
  readonly controls: WorkControls;
  routes(platform: Platform): ApiRoute[];
}

export function createWork(clock: Clock): Work {
  const world = new WorkWorld(clock);
  const docs = new SimDocuments(world);
  const tables = new SimBases(world);
  const calendar = new SimCalendar(world);
  const tasks = new SimTasks(world);
  const meetings = new SimMeetings(world);
  return {
    world,
    controls: Object.assign(world, { docs, tables, calendar, tasks, meetings }),
    routes: (platform) => [
      ...documentRoutes(platform, world, docs),
      ...baseRoutes(world, tables),
      ...calendar.routes(platform),
      ...tasks.routes(platform),
      ...meetings.routes(platform),
      ...talkRoutes(platform),
    ],
  };
}
