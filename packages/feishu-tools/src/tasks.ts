import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { changeOnce, earlier, keyOf, makeOnce, repeatMsOf } from "./exactly-once.ts";
import { namesOf, PersonId } from "./people.ts";
import {
  isRefusal,
  type Platform,
  quoted,
  type Remedies,
  type Settings,
  UnansweredError,
} from "./platform.ts";
import { Moment, msIn, shownTime, TimeZone } from "./time.ts";
import { workTool } from "./work-tool.ts";

// Tasks of the person and of those who work with them.

const taskRemedies: Remedies = {
  1470400: "The platform does not take these values.",
  1470403:
    "The person may not see or change this task, or may not give tasks to one of these people.",
  1470404: "There is no such task.",
  1470422: "The platform is still working at the same request.",
};

const nameScope = "contact:user.basic_profile:readonly";
const maxShown = 30;
/** Pages of 100 that a search of the person's own tasks reads. */
const maxPages = 5;

const TaskId = Type.String({
  pattern: "^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$",
  description: "Id of a task, as list_tasks gives it.",
});

interface Task {
  guid?: string | undefined;
  summary?: string | undefined;
  description?: string | undefined;
  due?: { timestamp?: string | undefined; is_all_day?: boolean | undefined } | undefined;
  creator?: { id?: string | undefined } | undefined;
  members?: { id?: string | undefined; role?: string | undefined }[] | undefined;
  completed_at?: string | undefined;
  url?: string | undefined;
}

function isOpen({ completed_at: at = "0" }: Task): boolean {
  return Number(at) === 0;
}

/** Who has to do it. */
function assigneesOf({ members = [] }: Task): string[] {
  return members.flatMap(({ id, role }) => (role === "assignee" && id !== undefined ? [id] : []));
}

function lineOf(task: Task, zone: string, nameOf: (openId: string) => string): string {
  const { guid = "", summary = "", due, url = "" } = task;
  const until =
    due?.timestamp === undefined
      ? "no date"
      : `due ${due.is_all_day === true ? new Date(Number(due.timestamp)).toISOString().slice(0, 10) : shownTime(Number(due.timestamp), zone)}`;
  const people = assigneesOf(task).map(nameOf).join(", ");
  return `- [${isOpen(task) ? " " : "x"}] ${summary} (${until}${people === "" ? "" : `; for ${people}`}; id ${guid}) ${url}`;
}

async function taskAt(platform: Platform, guid: string): Promise<Task> {
  const { task = {} } = await platform.read((client, as) =>
    client.task.v2.task.get({ path: { task_guid: guid } }, as),
  );
  return task;
}

function listTool(settings: Settings): HandlerTool {
  return workTool(settings, taskRemedies, {
    name: "list_tasks",
    description:
      "Lists the person's own tasks, or finds tasks that the person may see by words of their titles. Gives ids and links.",
    title: { zh: "查看任务", en: "List tasks" },
    input: {
      time_zone: TimeZone,
      query: Type.Optional(
        Type.String({
          minLength: 1,
          maxLength: 100,
          description: "Words of the title; without: the person's own tasks.",
        }),
      ),
      state: Type.Optional(Type.Enum(["open", "done", "all"], { description: "Default open." })),
    },
    effect: "pure",
    scopes: ["task:task:read", nameScope],
    reach: "reads",
    run: async ({ time_zone: zone, query, state = "open" }, platform) => {
      const { tasks, more } =
        query === undefined
          ? await ownTasks(platform, state)
          : await foundTasks(platform, query, state);
      if (tasks.length === 0) {
        return query === undefined
          ? "The person has no such tasks."
          : "No task that the person may see was found.";
      }
      const nameOf = await namesOf(platform, tasks.flatMap(assigneesOf));
      const lines = tasks.map((task) => lineOf(task, zone, nameOf));
      return quoted(
        "tasks",
        lines.join("\n") + (more ? "\n[more tasks are left out: search by words]" : ""),
      );
    },
  });
}

type State = "open" | "done" | "all";

async function ownTasks(
  platform: Platform,
  state: State,
): Promise<{ tasks: Task[]; more: boolean }> {
  const tasks: Task[] = [];
  let page: string | undefined;
  for (let read = 0; read < maxPages && tasks.length <= maxShown; read += 1) {
    const params = {
      type: "my_tasks",
      page_size: 100,
      ...(state === "all" ? {} : { completed: state === "done" }),
      ...(page === undefined ? {} : { page_token: page }),
    };
    const answer = await platform.read((client, as) => client.task.v2.task.list({ params }, as));
    tasks.push(...(answer.items ?? []));
    page = answer.page_token;
    if (answer.has_more !== true || page === undefined) {
      return { tasks: tasks.slice(0, maxShown), more: tasks.length > maxShown };
    }
  }
  return { tasks: tasks.slice(0, maxShown), more: true };
}

/** A search gives ids alone; each task costs a call. */
async function foundTasks(
  platform: Platform,
  query: string,
  state: State,
): Promise<{ tasks: Task[]; more: boolean }> {
  const filter = state === "all" ? {} : { is_completed: state === "done" };
  const { items = [], has_more: more = false } = await platform.read((client, as) =>
    client.task.v2.task.search({ data: { query, filter }, params: { page_size: maxFound } }, as),
  );
  const tasks: Task[] = [];
  for (const { id } of items) {
    try {
      tasks.push(await taskAt(platform, id));
    } catch (error) {
      if (!isRefusal(error, 1470403, 1470404)) throw error;
    }
  }
  return { tasks, more };
}

const maxFound = 10;

const due = Type.Optional(Moment("When it must be done."));

function dueOf(text: string, zone: string): { timestamp: string; is_all_day: boolean } {
  return { timestamp: String(msIn(text, zone)), is_all_day: false };
}

function createTool(settings: Settings): HandlerTool {
  return workTool(settings, taskRemedies, {
    name: "create_task",
    description:
      "Creates a task, for the person or for others. Those who get it are notified. Gives the link. Use list_tasks first where it may exist already.",
    title: { zh: "新建任务", en: "Create a task" },
    summary: { zh: "新建任务：{summary}", en: "Create the task: {summary}" },
    input: {
      summary: Type.String({ minLength: 1, maxLength: 500, description: "What is to be done." }),
      description: Type.Optional(Type.String({ maxLength: 2_000 })),
      due,
      time_zone: Type.Optional(TimeZone),
      assignees: Type.Optional(
        Type.Array(PersonId, {
          maxItems: 20,
          description: "Who has to do it. Default: the person.",
        }),
      ),
    },
    effect: "once",
    repeatMs: repeatMsOf(settings.taskKeyWindowMs),
    scopes: ["task:task:write", "task:task:read"],
    reach: "shared",
    run: async (
      { summary, description = "", due: until, time_zone: zone, assignees },
      platform,
      context,
    ) => {
      if (until !== undefined && zone === undefined) {
        throw new Error("A due time needs time_zone, the person's zone.");
      }
      const before = await ownTasksNamed(platform, summary);
      const people = assignees ?? (platform.openId === undefined ? [] : [platform.openId]);
      const data = {
        summary,
        description,
        ...(until === undefined || zone === undefined ? {} : { due: dueOf(until, zone) }),
        members: people.map((id) => ({ id, type: "user", role: "assignee" })),
        client_token: keyOf(context, "create"),
      };
      const task = await makeOnce(platform, {
        run: async (client, as) =>
          await client.task.v2.task.create({ data, params: { user_id_type: "open_id" } }, as),
        result: ({ task: made = {} }): Task => made,
        find: async () => await createdTask(platform, { summary, description, before }),
        windowMs: settings.taskKeyWindowMs,
        // It knows the key: an earlier run of this call has made the task.
        isDuplicate: (error) => error instanceof UnansweredError && error.code === 1470422,
        done: {},
        open: "whether the task was created",
      });
      return task.guid === undefined
        ? "Created the task."
        : `Created the task (id ${task.guid}): ${task.url ?? ""}`;
    },
  });
}

/** Tasks of these words that the person has made, newest first. */
async function ownTasksNamed(platform: Platform, summary: string): Promise<string[]> {
  const filter = platform.openId === undefined ? {} : { creator_ids: [platform.openId] };
  const { items = [] } = await platform.read((client, as) =>
    client.task.v2.task.search(
      {
        data: { query: summary.slice(0, 100), filter },
        params: { page_size: maxFound, user_id_type: "open_id" },
      },
      as,
    ),
  );
  return items.map(({ id }) => id);
}

/** The task that is there since the call began. */
async function createdTask(
  platform: Platform,
  {
    summary,
    description,
    before,
  }: { summary: string; description: string; before: readonly string[] },
): Promise<Task | undefined> {
  for (const id of await ownTasksNamed(platform, summary)) {
    if (before.includes(id)) continue;
    const task = await taskAt(platform, id);
    if (task.summary === summary && (task.description ?? "") === description) return task;
  }
  return undefined;
}

function changeTool(settings: Settings): HandlerTool {
  return workTool(settings, taskRemedies, {
    name: "change_task",
    description:
      "Changes a task: title, description, due time; completes it (for everybody who has it) or opens it again; adds people. Only what is given is changed.",
    title: { zh: "修改任务", en: "Change a task" },
    summary: { zh: "修改任务 {task}", en: "Change the task {task}" },
    input: {
      task: TaskId,
      summary: Type.Optional(Type.String({ minLength: 1, maxLength: 500 })),
      description: Type.Optional(Type.String({ maxLength: 2_000 })),
      due,
      time_zone: Type.Optional(TimeZone),
      done: Type.Optional(
        Type.Boolean({ description: "true completes it, false opens it again." }),
      ),
      add_assignees: Type.Optional(Type.Array(PersonId, { minItems: 1, maxItems: 20 })),
    },
    effect: "idempotent",
    scopes: ["task:task:write", "task:task:read"],
    reach: "shared",
    run: async (
      { task: guid, summary, description, due: until, time_zone: zone, done, add_assignees: added },
      platform,
      context,
    ) => {
      if (until !== undefined && zone === undefined) {
        throw new Error("A due time needs time_zone, the person's zone.");
      }
      const before = await taskAt(platform, guid);
      const change = {
        ...(summary === undefined ? {} : { summary }),
        ...(description === undefined ? {} : { description }),
        ...(until === undefined || zone === undefined ? {} : { due: dueOf(until, zone) }),
        // Completing what is complete is refused.
        ...(done === undefined || done !== isOpen(before)
          ? {}
          : { completed_at: done ? String(platform.clock.now()) : "0" }),
      };
      const fields = Object.keys(change);
      if (fields.length > 0) await patched(platform, guid, { change, fields });
      const missing = (added ?? []).filter((id) => !assigneesOf(before).includes(id));
      if (missing.length > 0) {
        await joined(platform, guid, missing, {
          token: keyOf(context, "members"),
          windowMs: settings.taskKeyWindowMs,
        });
      }
      const after = await taskAt(platform, guid);
      const nothing = fields.length === 0 && missing.length === 0 ? "It was so already. " : "";
      const state = isOpen(after) ? "open" : "done";
      return `${nothing}The task is now ${state}: ${JSON.stringify(after.summary ?? "")} ${after.url ?? ""}. Before: ${JSON.stringify(before.summary ?? "")}.`;
    },
  });
}

/** Setting values is harmless to repeat; what is complete by now is done. */
async function patched(
  platform: Platform,
  guid: string,
  { change, fields }: { change: Record<string, unknown>; fields: string[] },
): Promise<void> {
  await changeOnce(platform, {
    run: async (client, as) =>
      await client.task.v2.task.patch(
        { data: { task: change, update_fields: fields }, path: { task_guid: guid } },
        as,
      ),
    isDone: async () => isChanged(await taskAt(platform, guid), change),
    open: "whether the task was changed",
  });
}

function isChanged(
  task: Task,
  { summary, description, due: until, completed_at: at }: Record<string, unknown>,
): boolean {
  const wanted =
    typeof until === "object" && until !== null && "timestamp" in until
      ? until.timestamp
      : undefined;
  return (
    (summary === undefined || task.summary === summary) &&
    (description === undefined || task.description === description) &&
    (wanted === undefined || task.due?.timestamp === wanted) &&
    (at === undefined || isOpen(task) === (at === "0"))
  );
}

async function joined(
  platform: Platform,
  guid: string,
  people: readonly string[],
  { token, windowMs }: { token: string; windowMs: number },
): Promise<void> {
  const members = people.map((id) => ({ id, type: "user", role: "assignee" }));
  await changeOnce(platform, {
    run: async (client, as) =>
      await client.task.v2.task.addMembers(
        { data: { members, client_token: token }, path: { task_guid: guid } },
        as,
      ),
    isDone: async () => {
      const there = assigneesOf(await taskAt(platform, guid));
      return people.every((id) => there.includes(id));
    },
    windowMs,
    open: "whether the people were added to the task",
  });
}

function commentTool(settings: Settings): HandlerTool {
  return workTool(settings, taskRemedies, {
    name: "comment_task",
    description:
      "Writes a comment below a task in the person's name. All who have the task see it.",
    title: { zh: "评论任务", en: "Comment on a task" },
    summary: { zh: "在任务 {task} 下评论：{text}", en: "Comment on the task {task}: {text}" },
    input: { task: TaskId, text: Type.String({ minLength: 1, maxLength: 2_000 }) },
    effect: "once",
    looks: true,
    scopes: ["task:comment:write", "task:comment:read"],
    reach: "shared",
    run: async ({ task, text }, platform) => {
      const there = await ownComments(platform, task, text);
      const before = earlier(platform, there, ({ created_at: at }) => Number(at)).length;
      await changeOnce(platform, {
        run: async (client, as) =>
          await client.task.v2.comment.create(
            { data: { content: text, resource_type: "task", resource_id: task } },
            as,
          ),
        // Without a key the same words may stand there from before: one more of them is this one.
        isDone: async () => (await ownComments(platform, task, text)).length === before + 1,
        open: "whether the comment was written",
      });
      return "The comment was written.";
    },
  });
}

/** Those of the latest 100 comments that are these words of the person. */
async function ownComments(platform: Platform, task: string, text: string) {
  const params = {
    resource_type: "task",
    resource_id: task,
    direction: "desc" as const,
    page_size: 100,
  };
  const { items = [] } = await platform.read((client, as) =>
    client.task.v2.comment.list({ params }, as),
  );
  return items.filter(
    ({ content, creator }) => content === text && creator?.id === platform.openId,
  );
}

/** Tasks: list, create, change, comment. */
export const taskTools = [listTool, createTool, changeTool, commentTool];
