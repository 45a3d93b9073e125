import type { Clock } from "@larkline/protocol/clock";
import type { Platform } from "../platform.ts";
import { type ApprovalControls, SimApprovals } from "./approvals.ts";
import { type BaseControls, SimBases, baseRoutes } from "./base.ts";
import { type BoardControls, SimBoards } from "./boards.ts";
import { type CalendarControls, SimCalendar } from "./calendar.ts";
import { type DocumentControls, SimDocuments, documentRoutes } from "./documents.ts";
import { type DriveControls, SimDrive } from "./drive.ts";
import { type ExportControls, SimExports } from "./exports.ts";
import { type ImportControls, SimImports } from "./imports.ts";
import { type MailControls, SimMails } from "./mail.ts";
import { type MeetingControls, SimMeetings } from "./meetings.ts";
import { type SheetControls, SimSheets } from "./sheets.ts";
import { talkRoutes } from "./talk.ts";
import { sharingRoutes } from "./sharing.ts";
import { type SubscriptionControls, SimSubscriptions } from "./subscriptions.ts";
import { type TaskControls, SimTasks } from "./tasks.ts";
import { type WorldControls, WorkWorld } from "./world.ts";
import type { ApiRoute } from "../api-route.ts";
import { type JsonObject, isJsonObject, type OpenRoute } from "../open-api.ts";

/** What people work with besides chats. */
export interface WorkControls extends WorldControls {
  readonly docs: DocumentControls;
  readonly tables: BaseControls;
  readonly calendar: CalendarControls;
  readonly tasks: TaskControls;
  readonly meetings: MeetingControls;
  readonly sheets: SheetControls;
  readonly drive: DriveControls;
  readonly exports: ExportControls;
  readonly imports: ImportControls;
  readonly boards: BoardControls;
  readonly approvals: ApprovalControls;
  readonly mail: MailControls;
  readonly subscriptions: SubscriptionControls;
}

/** The objects of the work APIs, and their operations. */
export interface Work {
  readonly world: WorkWorld;
  readonly controls: WorkControls;
  routes(platform: Platform): ApiRoute[];
  /** Operations that take no token. */
  readonly openRoutes: readonly OpenRoute[];
  /** All objects with the rights to them and the keys of writes, as JSON. */
  kept(): JsonObject;
  /** Puts what {@link Work.kept} gave into one that is empty. */
  restore(kept: JsonObject): void;
}

export function createWork(clock: Clock): Work {
  const world = new WorkWorld(clock);
  const docs = new SimDocuments(world);
  const tables = new SimBases(world);
  const subscriptions = new SimSubscriptions();
  const calendar = new SimCalendar(world, subscriptions);
  const tasks = new SimTasks(world);
  const meetings = new SimMeetings(world, subscriptions);
  const sheets = new SimSheets(world);
  const drive = new SimDrive(world, { docs, sheets, tables });
  const exports = new SimExports(world, { docs, sheets, tables });
  const boards = new SimBoards(world, docs);
  const imports = new SimImports(world, { docs, sheets, tables, drive });
  const approvals = new SimApprovals(world);
  const mail = new SimMails(world, subscriptions);
  const stores: Readonly<Record<string, Map<string, unknown>>> = {
    rights: world.rights,
    keys: world.keys,
    documents: docs.documents,
    nodes: docs.nodes,
    spaces: docs.spaces,
    bases: tables.bases,
    calendars: calendar.calendars,
    events: calendar.events,
    rooms: calendar.rooms,
    tasks: tasks.tasks,
    taskSubscriptions: tasks.subscribed,
    meetings: meetings.meetings,
    minutes: meetings.minutes,
    spreadsheets: sheets.spreadsheets,
    files: drive.files,
    pictures: docs.pictures,
    boards: boards.boards,
    approvals: approvals.approvals,
    mails: mail.mails,
    drafts: mail.drafts,
    subscriptions: subscriptions.types,
  };
  return {
    world,
    controls: Object.assign(world, {
      docs,
      tables,
      calendar,
      tasks,
      meetings,
      sheets,
      drive,
      exports,
      imports,
      boards,
      approvals,
      mail,
      subscriptions,
    }),
    openRoutes: mail.openRoutes(),
    routes: (platform) => [
      ...documentRoutes(platform, world, docs),
      ...baseRoutes(world, tables),
      ...calendar.routes(platform),
      ...tasks.routes(platform),
      ...meetings.routes(platform),
      ...talkRoutes(platform),
      ...sheets.routes(),
      ...drive.routes(),
      ...exports.routes(),
      ...imports.routes(),
      ...boards.routes(),
      ...sharingRoutes(platform, world, drive),
      ...approvals.routes(platform),
      ...mail.routes(platform),
      ...subscriptions.routes(platform),
    ],
    kept: () =>
      Object.fromEntries(Object.entries(stores).map(([name, store]) => [name, packed(store)])),
    restore: (kept) => {
      for (const [name, store] of Object.entries(stores)) {
        const entries = unpacked(kept[name]);
        if (entries instanceof Map) for (const [id, object] of entries) store.set(id, object);
      }
    },
  };
}

/** JSON has neither maps nor sets: each becomes an object that says so. */
function packed(value: unknown): unknown {
  if (value instanceof Map) {
    return { map: [...value].map(([key, one]) => [key, packed(one)]) };
  }
  if (value instanceof Set) return { set: [...value] };
  if (Array.isArray(value)) return { list: value.map(packed) };
  return isJsonObject(value)
    ? { fields: Object.entries(value).map(([key, one]) => [key, packed(one)]) }
    : value;
}

function unpacked(value: unknown): unknown {
  if (!isJsonObject(value)) return value;
  const pairs = (given: unknown): [string, unknown][] =>
    Array.isArray(given)
      ? given.flatMap((pair: unknown) =>
          Array.isArray(pair) ? [[String(pair[0]), unpacked(pair[1])]] : [],
        )
      : [];
  if ("map" in value) return new Map(pairs(value.map));
  if ("fields" in value) return Object.fromEntries(pairs(value.fields));
  if ("set" in value) return new Set(Array.isArray(value.set) ? value.set : []);
  return Array.isArray(value.list) ? value.list.map(unpacked) : undefined;
}
