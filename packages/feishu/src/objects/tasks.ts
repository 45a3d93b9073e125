import { parserOf } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";
import type { ApiCaller, ApiRequest, CallOptions } from "../transport/api-call.ts";

// Tasks as the bot sees them ("Task v2 overview"): those that it is responsible for. Comments have no key, so a sender
// looks whether its text stands there already.

export interface FeishuTask {
  guid: string;
  summary: string;
  description: string;
  creator: TaskMember;
  members: (TaskMember & { role: string })[];
  isDone: boolean;
  /** Epoch ms; 0 where the platform does not say it. */
  dueMs: number;
  createdAtMs: number;
  /** Of the last change, epoch ms. */
  updatedAtMs: number;
}

interface TaskMember {
  /** An open_id, or an app id. */
  id: string;
  type: "user" | "app" | "unknown";
}

export interface TaskComment {
  authorId: string;
  text: string;
  /** Epoch ms. */
  createdAtMs: number;
}

const Text = Type.Optional(Type.Union([Type.String(), Type.Null()]));
const Member = Type.Object({ id: Text, type: Text, role: Text });
const parseTask = parserOf(
  Type.Object({
    data: Type.Object({
      task: Type.Object({
        guid: Type.String({ minLength: 1 }),
        summary: Text,
        description: Text,
        creator: Type.Optional(Type.Union([Member, Type.Null()])),
        members: Type.Optional(Type.Array(Member, { maxItems: 1_000 })),
        due: Type.Optional(Type.Union([Type.Object({ timestamp: Text }), Type.Null()])),
        completed_at: Text,
        created_at: Text,
        updated_at: Text,
      }),
    }),
  }),
);
const parseComments = parserOf(
  Type.Object({
    data: Type.Object({
      items: Type.Optional(
        Type.Array(
          Type.Object({
            content: Text,
            creator: Type.Optional(Type.Union([Member, Type.Null()])),
            created_at: Text,
          }),
          { maxItems: 1_000 },
        ),
      ),
    }),
  }),
);
const parseDone = parserOf(Type.Object({}));

/** Comments of a task that are read: newest come first. */
const pageSize = 50;

/** Calls about tasks, as the bot. Every method rejects with a FeishuError only. */
export class TasksApi {
  readonly #caller: ApiCaller;

  constructor(caller: ApiCaller) {
    this.#caller = caller;
  }

  async fetch(guid: string, options?: CallOptions): Promise<FeishuTask> {
    const request = { api: "task.get", method: "GET", url: taskOf(guid), parse: parseTask };
    const { task } = (await this.#call(request, options)).data;
    return {
      guid: task.guid,
      summary: task.summary ?? "",
      description: task.description ?? "",
      creator: memberOf(task.creator),
      members: (task.members ?? []).map((one) => ({ ...memberOf(one), role: one.role ?? "" })),
      isDone: msOf(task.completed_at) > 0,
      dueMs: msOf(task.due?.timestamp),
      createdAtMs: msOf(task.created_at),
      updatedAtMs: msOf(task.updated_at),
    };
  }

  /** The newest comments, newest first. */
  async comments(guid: string, options?: CallOptions): Promise<TaskComment[]> {
    const params = {
      resource_type: "task",
      resource_id: guid,
      direction: "desc",
      page_size: pageSize,
    };
    const url = "/open-apis/task/v2/comments";
    const { data } = await this.#call(
      { api: "task.comment.list", method: "GET", url, params, parse: parseComments },
      options,
    );
    return (data.items ?? []).map(({ content, creator, created_at: at }) => ({
      authorId: memberOf(creator).id,
      text: content ?? "",
      createdAtMs: msOf(at),
    }));
  }

  /** Adds a comment. Tried once: the platform has no key that would make a repeat harmless. */
  async comment(guid: string, text: string, options?: CallOptions): Promise<void> {
    const url = "/open-apis/task/v2/comments";
    const data = { content: text, resource_type: "task", resource_id: guid };
    await this.#call(
      { api: "task.comment.create", method: "POST", url, data, parse: parseDone, once: true },
      options,
    );
  }

  /** Completes the task, for all who are responsible for it. The platform refuses it for one that is complete. */
  async complete(guid: string, atMs: number, options?: CallOptions): Promise<void> {
    const data = { task: { completed_at: `${atMs}` }, update_fields: ["completed_at"] };
    await this.#call(
      { api: "task.patch", method: "PATCH", url: taskOf(guid), data, parse: parseDone, once: true },
      options,
    );
  }

  async #call<T>(
    {
      method,
      url,
      params,
      data,
      ...request
    }: Pick<ApiRequest<T>, "api" | "parse" | "once"> & {
      method: string;
      url: string;
      params?: object;
      data?: object;
    },
    options?: CallOptions,
  ): Promise<T> {
    const body = { method, url, params: { user_id_type: "open_id", ...params } };
    return await this.#caller.call(
      {
        ...request,
        run: (client, sdkOptions) =>
          client.request(data === undefined ? body : { ...body, data }, sdkOptions),
      },
      options,
    );
  }
}

function taskOf(guid: string): string {
  return `/open-apis/task/v2/tasks/${encodeURIComponent(guid)}`;
}

function memberOf(
  member: { id?: string | null; type?: string | null } | null | undefined,
): TaskMember {
  const { id, type } = member ?? {};
  return { id: id ?? "", type: type === "user" || type === "app" ? type : "unknown" };
}

function msOf(digits: string | null | undefined): number {
  const value = Number(digits ?? 0);
  return Number.isSafeInteger(value) ? value : 0;
}
