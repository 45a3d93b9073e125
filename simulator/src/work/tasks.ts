import { type DeliveryReport, envelope } from "../delivery.ts";
import type { Platform } from "../platform.ts";
import { systemRandom } from "@larkline/protocol/clock";
import { type WorkWorld, actorOf } from "./world.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import {
  success,
  PlatformError,
  type JsonObject,
  pageOf,
  isJsonObject,
  stringField,
  fieldError,
} from "../open-api.ts";

// Tasks with their members and comments, and the events of those for which an app is responsible ("Task v2 overview").

interface TaskMember {
  id: string;
  type: "user" | "app";
  role: "assignee" | "follower";
}

/** Times are epoch ms; `completedAt` 0: open. */
interface SimTask {
  guid: string;
  summary: string;
  description: string;
  due?: { at: number; allDay: boolean };
  creator: string;
  members: TaskMember[];
  completedAt: number;
  createdAt: number;
  updatedAt: number;
  comments: { id: string; by: string; content: string; at: number }[];
}

export interface TaskControls {
  readonly tasks: ReadonlyMap<string, SimTask>;
  /** A task of a person, as if made in the client. */
  addTask(task: NewTask): SimTask;
  /** The same; apps that are responsible for it and have subscribed get the event. */
  giveTask(task: NewTask): Promise<{ task: SimTask; reports: DeliveryReport[] }>;
  /** A person makes one more responsible for the task. */
  assign(guid: string, who: string): Promise<DeliveryReport[]>;
  /** A person completes the task, or opens it again. */
  setDone(guid: string, isDone: boolean): Promise<DeliveryReport[]>;
  /** A person writes a comment; no app gets an event. */
  addComment(guid: string, by: string, content: string): void;
  /** Apps that get events of tasks for which they are responsible. */
  readonly subscribed: ReadonlyMap<string, true>;
}

/** What a person writes in the client. Responsible are people (open ids) and apps (their ids). */
interface NewTask {
  creator: string;
  summary: string;
  description?: string;
  assignees?: readonly string[];
}

/** A key is known for five minutes after its success ("Task v2 overview"). */
const keyWindowMs = 300_000;
const reading = ["task:task:read", "task:task:write", "task:task"];
const writing = ["task:task:write", "task:task"];
const fields = ["summary", "description", "due", "completed_at", "start", "repeat_rule", "extra"];

export class SimTasks implements TaskControls {
  readonly tasks = new Map<string, SimTask>();
  readonly subscribed = new Map<string, true>();
  readonly #world: WorkWorld;
  #platform: Platform | undefined;

  constructor(world: WorkWorld) {
    this.#world = world;
  }

  addTask({ assignees = [], ...task }: NewTask): SimTask {
    return this.#kept({ ...task, members: assignees.map(responsible) });
  }

  async giveTask(given: NewTask): Promise<{ task: SimTask; reports: DeliveryReport[] }> {
    const task = this.addTask(given);
    return { task, reports: await this.#announce(task, "task_create") };
  }

  async assign(guid: string, who: string): Promise<DeliveryReport[]> {
    const task = this.#known(guid);
    task.members.push(responsible(who));
    return await this.#announce(task, "task_assignees_update");
  }

  async setDone(guid: string, isDone: boolean): Promise<DeliveryReport[]> {
    const task = this.#known(guid);
    task.completedAt = isDone ? this.#world.clock.now() : 0;
    return await this.#announce(task, "task_completed_update");
  }

  addComment(guid: string, by: string, content: string): void {
    const { comments } = this.#known(guid);
    comments.push({ id: String(comments.length + 1), by, content, at: this.#world.clock.now() });
  }

  #known(guid: string): SimTask {
    const task = this.tasks.get(guid);
    if (task === undefined) throw new Error(`No task ${guid}`);
    return task;
  }

  /** The task has changed: subscribed apps that are responsible for it get an event that names no person. */
  async #announce(task: SimTask, ...types: string[]): Promise<DeliveryReport[]> {
    if (types[0] !== "task_create") {
      // One tick of the platform's clock at least: a change is no part of the creation.
      task.updatedAt = Math.max(this.#world.clock.now(), task.updatedAt + 1);
    }
    const apps = task.members.flatMap(({ id, role }) => {
      const app = this.#platform?.apps.get(id);
      return app === undefined || role !== "assignee" || !this.subscribed.has(id) ? [] : [app];
    });
    const event = { event_types: types, task_guid: task.guid };
    const eventType = "task.task.update_user_access_v2";
    const createdAt = this.#world.clock.now();
    const reports = apps.map(
      async (app) => await this.#platform?.publish(envelope(app, { eventType, event, createdAt })),
    );
    return (await Promise.all(reports)).flatMap((report) => report ?? []);
  }

  routes(platform: Platform): ApiRoute[] {
    this.#platform = platform;
    const tasks = "/open-apis/task/v2/tasks";
    const comments = "/open-apis/task/v2/comments";
    return [
      {
        method: "POST",
        path: "/open-apis/task/v2/task_v2/task_subscription",
        handle: ({ app, person }) => {
          // People's own subscriptions are not simulated.
          if (person === undefined) this.subscribed.set(app.appId, true);
          return success({});
        },
      },
      { method: "GET", path: tasks, personScopes: reading, handle: (call) => this.#mine(call) },
      {
        method: "POST",
        path: `${tasks}/search`,
        personScopes: reading,
        handle: (call) => this.#search(call),
      },
      {
        method: "POST",
        path: tasks,
        personScopes: writing,
        limits: { perSecond: 10 },
        handle: (call) => this.#create(platform, call),
      },
      {
        method: "GET",
        path: `${tasks}/:task_guid`,
        personScopes: reading,
        limits: { perSecond: 10 },
        handle: (call) => success({ task: viewOf(this.#seen(call)) }),
      },
      {
        method: "PATCH",
        path: `${tasks}/:task_guid`,
        personScopes: writing,
        handle: (call) => this.#patch(call),
      },
      {
        method: "POST",
        path: `${tasks}/:task_guid/add_members`,
        personScopes: writing,
        limits: { perMinute: 100 },
        handle: (call) => this.#addMembers(platform, call),
      },
      {
        method: "POST",
        path: comments,
        personScopes: ["task:comment:write", "task:comment"],
        handle: (call) => this.#comment(call),
      },
      {
        method: "GET",
        path: comments,
        personScopes: ["task:comment:read", "task:comment:write", "task:comment"],
        handle: (call) => this.#comments(call),
      },
    ];
  }

  #kept(task: Pick<SimTask, "summary" | "creator"> & Partial<SimTask>): SimTask {
    const now = this.#world.clock.now();
    const added = {
      guid: systemRandom.uuid(),
      description: "",
      members: [],
      completedAt: 0,
      createdAt: now,
      updatedAt: now,
      comments: [],
      ...task,
    };
    this.tasks.set(added.guid, added);
    return added;
  }

  #seen(call: ApiCallContext, guid = call.params.task_guid ?? ""): SimTask {
    const task = this.tasks.get(guid);
    if (task === undefined) {
      throw new PlatformError(1470404, "the task does not exist", { status: 404 });
    }
    if (!sees(task, actorOf(call))) {
      throw new PlatformError(1470403, "no permission", { status: 403 });
    }
    return task;
  }

  /** Tasks that the person is responsible for: there are none of an app. */
  #mine(call: ApiCallContext): JsonObject {
    if (call.person === undefined) {
      throw new PlatformError(99991663, "Invalid access token for authorization.");
    }
    const { openId } = call.person;
    const completed = call.query.get("completed");
    const found = [...this.tasks.values()].filter(
      ({ members, completedAt }) =>
        members.some(({ id, role }) => id === openId && role === "assignee") &&
        (completed === null || completed === "" || (completed === "true") === completedAt > 0),
    );
    const { items, ...page } = pageOf(found, call.query, 100);
    return success({ ...page, items: items.map(viewOf) });
  }

  /** What the caller may see; the answer holds ids and links. */
  #search(call: ApiCallContext): JsonObject {
    const { query, filter } = call.body;
    const words = typeof query === "string" ? query.toLowerCase() : "";
    const {
      creator_ids: creators,
      assignee_ids: assignees,
      is_completed: done,
    } = isJsonObject(filter) ? filter : {};
    const found = [...this.tasks.values()].filter(
      (task) =>
        sees(task, actorOf(call)) &&
        `${task.summary} ${task.description}`.toLowerCase().includes(words) &&
        (!Array.isArray(creators) || creators.includes(task.creator)) &&
        (!Array.isArray(assignees) ||
          task.members.some(({ id, role }) => role === "assignee" && assignees.includes(id))) &&
        (typeof done !== "boolean" || done === task.completedAt > 0),
    );
    const { items, ...page } = pageOf(found.toReversed(), call.query, 30);
    const views = items.map((task) => ({
      id: task.guid,
      display_info: task.summary,
      meta_data: { app_link: linkOf(task), description: task.description },
    }));
    return success({ ...page, total: found.length, items: views });
  }

  #create(platform: Platform, call: ApiCallContext): JsonObject {
    const token = call.body.client_token;
    const key = typeof token === "string" && token !== "" ? token : undefined;
    const conflict = new PlatformError(1470422, "the client_token is in use", { status: 500 });
    return this.#world.once(
      call,
      { api: "task.create", key, windowMs: keyWindowMs, conflict },
      () => {
        const summary = stringField(call.body, "summary");
        if (summary.length > 3_000) throw new PlatformError(1470400, "summary is too long");
        const task = this.#kept({
          summary,
          description: typeof call.body.description === "string" ? call.body.description : "",
          creator: actorOf(call),
          members: membersOf(platform, call),
          ...dueOf(call.body.due),
        });
        this.#world.record(call, "task.create", summary);
        void this.#announce(task, "task_create");
        return success({ task: viewOf(task) });
      },
    );
  }

  #patch(call: ApiCallContext): JsonObject {
    const task = this.#seen(call);
    const { task: change, update_fields: named } = call.body;
    const names: readonly unknown[] = Array.isArray(named) ? named : [];
    if (!isJsonObject(change) || names.length === 0) {
      throw fieldError("update_fields", "is required");
    }
    const wrong = names.find((name) => typeof name !== "string" || !fields.includes(name));
    if (wrong !== undefined) {
      throw new PlatformError(1470400, `update_fields: ${String(wrong)} is unknown`);
    }
    if (names.includes("summary")) task.summary = stringField(change, "summary");
    if (names.includes("description")) {
      task.description = typeof change.description === "string" ? change.description : "";
    }
    if (names.includes("due")) {
      delete task.due;
      Object.assign(task, dueOf(change.due));
    }
    if (names.includes("completed_at")) {
      const at = Number(change.completed_at ?? 0);
      if (at > 0 && task.completedAt > 0) {
        throw new PlatformError(1470400, "the task is completed already");
      }
      task.completedAt = at;
    }
    this.#world.record(call, "task.change", `${task.summary} ${names.join(",")}`);
    const isCompletion = names.includes("completed_at");
    void this.#announce(task, isCompletion ? "task_completed_update" : "task_desc_update");
    return success({ task: viewOf(task) });
  }

  #addMembers(platform: Platform, call: ApiCallContext): JsonObject {
    const task = this.#seen(call);
    const token = call.body.client_token;
    const key = typeof token === "string" && token !== "" ? token : undefined;
    const conflict = new PlatformError(1470422, "the client_token is in use", { status: 500 });
    return this.#world.once(
      call,
      { api: `task.members ${task.guid}`, key, windowMs: keyWindowMs, conflict },
      () => {
        const added = membersOf(platform, call).filter(
          ({ id, role }) =>
            !task.members.some((member) => member.id === id && member.role === role),
        );
        task.members.push(...added);
        this.#world.record(
          call,
          "task.members",
          `${task.summary} ${added.map(({ id }) => id).join(",")}`,
        );
        void this.#announce(task, "task_assignees_update");
        return success({ task: viewOf(task) });
      },
    );
  }

  #comment(call: ApiCallContext): JsonObject {
    const task = this.#seen(call, stringField(call.body, "resource_id"));
    const content = stringField(call.body, "content");
    const comment = {
      id: String(task.comments.length + 1),
      by: actorOf(call),
      content,
      at: this.#world.clock.now(),
    };
    task.comments.push(comment);
    this.#world.record(call, "task.comment", content);
    return success({ comment: commentView(comment) });
  }

  #comments(call: ApiCallContext): JsonObject {
    const task = this.#seen(call, call.query.get("resource_id") ?? "");
    const { items, ...page } = pageOf(task.comments.toReversed(), call.query, 100);
    return success({ ...page, items: items.map(commentView) });
  }
}

function responsible(id: string): TaskMember {
  return { id, type: id.startsWith("cli_") ? "app" : "user", role: "assignee" };
}

function sees({ creator, members }: SimTask, who: string): boolean {
  return creator === who || members.some(({ id }) => id === who);
}

/** People outside of the caller's visibility are refused. */
function membersOf(platform: Platform, call: ApiCallContext): TaskMember[] {
  const { members } = call.body;
  if (members === undefined) return [];
  if (!Array.isArray(members)) throw new PlatformError(1470400, "members must be a list");
  return members.map((member: unknown) => {
    const { id, type, role } = isJsonObject(member) ? member : {};
    if (typeof id !== "string" || (role !== "assignee" && role !== "follower")) {
      throw new PlatformError(1470400, "a member needs id and role");
    }
    const user = platform.directory.users.get(id);
    const isKnown =
      type === "app"
        ? platform.apps.has(id)
        : user !== undefined && user.tenantKey === call.person?.tenantKey;
    if (!isKnown) throw new PlatformError(1470403, "no permission to this member", { status: 403 });
    return { id, type: type === "app" ? ("app" as const) : ("user" as const), role };
  });
}

function dueOf(due: unknown): Pick<SimTask, "due"> {
  if (!isJsonObject(due)) return {};
  const { timestamp, is_all_day: allDay } = due;
  if (typeof timestamp !== "string" || !/^\d{12,14}$/.test(timestamp)) {
    throw new PlatformError(1470400, "due.timestamp is in milliseconds");
  }
  return { due: { at: Number(timestamp), allDay: allDay === true } };
}

function linkOf({ guid }: SimTask): string {
  return `https://applink.feishu.cn/client/todo/detail?guid=${guid}`;
}

function viewOf(task: SimTask): JsonObject {
  return {
    guid: task.guid,
    summary: task.summary,
    description: task.description,
    ...(task.due === undefined
      ? {}
      : { due: { timestamp: String(task.due.at), is_all_day: task.due.allDay } }),
    creator: {
      id: task.creator,
      type: task.creator.startsWith("cli_") ? "app" : "user",
      role: "creator",
    },
    members: task.members,
    completed_at: String(task.completedAt),
    created_at: String(task.createdAt),
    updated_at: String(task.updatedAt),
    status: task.completedAt > 0 ? "done" : "todo",
    url: linkOf(task),
  };
}

function commentView({ id, by, content, at }: SimTask["comments"][number]): JsonObject {
  const type = by.startsWith("cli_") ? "app" : "user";
  return { id, content, creator: { id: by, type }, created_at: String(at) };
}
