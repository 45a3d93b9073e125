import { legacyEnvelope } from "../delivery.ts";
import type { Platform } from "../platform.ts";
import { systemRandom } from "@larkline/protocol/clock";
import { type WorkWorld, actorOf } from "./world.ts";
import type { ApiRoute, ApiCallContext } from "../api-route.ts";
import { type JsonObject, PlatformError, pageOf, success, stringField } from "../open-api.ts";

// Approvals ("Approval overview"): the calls that take the token of a person, and the events for apps that subscribe to a form.

interface SimApprovalTask {
  taskId: string;
  approver: string;
  status: "PENDING" | "APPROVED" | "REJECTED";
}

interface SimApproval {
  instanceCode: string;
  definitionCode: string;
  /** Of the form, such as "Leave". */
  name: string;
  initiator: string;
  form: { name: string; value: string }[];
  tasks: SimApprovalTask[];
  comments: { by: string; text: string }[];
  createdAt: number;
}

export interface ApprovalControls {
  readonly approvals: ReadonlyMap<string, SimApproval>;
  /** A person has asked these people, each of whom decides. */
  addApproval(approval: {
    initiator: string;
    name: string;
    form: readonly { name: string; value: string }[];
    approvers: readonly string[];
    /** Of the form; default: one of its own. */
    definitionCode?: string;
  }): SimApproval;
  /** A form that people can fill in, to which an app can subscribe. Returns its code. */
  addDefinition(code?: string): string;
  /** Apps that get the events of a form. */
  subscribed(code: string): readonly string[];
}

const reading = ["approval:task:read", "approval:instance:read"];

export class SimApprovals implements ApprovalControls {
  readonly approvals = new Map<string, SimApproval>();
  readonly #world: WorkWorld;
  /** Apps that get the events of a form, by its code. */
  readonly #subscribers = new Map<string, Set<string>>();
  #platform: Platform | undefined;

  constructor(world: WorkWorld) {
    this.#world = world;
  }

  addApproval({
    initiator,
    name,
    form,
    approvers,
    definitionCode = this.addDefinition(),
  }: Parameters<ApprovalControls["addApproval"]>[0]): SimApproval {
    const approval: SimApproval = {
      instanceCode: systemRandom.uuid().toUpperCase(),
      definitionCode,
      name,
      initiator,
      form: [...form],
      tasks: approvers.map((approver, at) => ({
        taskId: String(7_000_000_000 + this.approvals.size * 100 + at),
        approver,
        status: "PENDING",
      })),
      comments: [],
      createdAt: this.#world.clock.now(),
    };
    this.approvals.set(approval.instanceCode, approval);
    this.#publish(approval);
    for (const task of approval.tasks) this.#publish(approval, task);
    return approval;
  }

  addDefinition(code: string = systemRandom.uuid().toUpperCase()): string {
    this.#subscribers.set(code, new Set());
    return code;
  }

  subscribed(code: string): readonly string[] {
    return [...(this.#subscribers.get(code) ?? [])];
  }

  /** The event that the state of an approval, or of one of its tasks, has changed; ordered for each approval. */
  #publish(approval: SimApproval, task?: SimApprovalTask): void {
    const platform = this.#platform;
    const { definitionCode, instanceCode } = approval;
    const now = this.#world.clock.now();
    for (const appId of this.#subscribers.get(definitionCode) ?? []) {
      const app = platform?.apps.get(appId);
      if (platform === undefined || app === undefined) continue;
      const user = platform.directory.users.get(task?.approver ?? "");
      const shared = { approval_code: definitionCode, instance_code: instanceCode };
      const event: JsonObject =
        task === undefined
          ? { ...shared, status: statusOf(approval), instance_operate_time: String(now) }
          : {
              ...shared,
              task_id: task.taskId,
              status: task.status,
              open_id: task.approver,
              user_id: user?.userId ?? "",
              def_key: "APPROVAL_1",
              custom_key: "",
            };
      const made = legacyEnvelope(app, {
        eventType: task === undefined ? "approval_instance" : "approval_task",
        event: { ...event, operate_time: String(now) },
        createdAt: now,
      });
      void platform.publish({ ...made, order: `approval ${instanceCode}` });
    }
  }

  /** `isOn`: whether the app gets the events of the form from now on. */
  #subscribe(call: ApiCallContext, isOn: boolean): JsonObject {
    const apps = this.#subscribers.get(call.params.approval_code ?? "");
    if (apps === undefined) throw new PlatformError(1390002, "approval code not found");
    const { appId } = call.app;
    if (apps.has(appId) === isOn) throw new PlatformError(1390007, "subscription existed");
    if (isOn) apps.add(appId);
    else apps.delete(appId);
    return success({});
  }

  routes(platform: Platform): ApiRoute[] {
    this.#platform = platform;
    const path = "/open-apis/approval/v4";
    return [
      {
        method: "POST",
        path: `${path}/approvals/:approval_code/subscribe`,
        limits: { perMinute: 100 },
        handle: (call) => this.#subscribe(call, true),
      },
      {
        method: "POST",
        path: `${path}/approvals/:approval_code/unsubscribe`,
        limits: { perMinute: 100 },
        handle: (call) => this.#subscribe(call, false),
      },
      {
        method: "GET",
        path: `${path}/tasks/query`,
        personScopes: ["approval:task:list_by_user", "approval:approval:readonly"],
        handle: (call) => this.#list(platform, call),
      },
      {
        method: "GET",
        path: `${path}/instances/detail`,
        personScopes: reading,
        handle: (call) => this.#detail(call),
      },
      {
        method: "POST",
        path: `${path}/tasks/pass`,
        personScopes: ["approval:task:write"],
        limits: { perMinute: 100 },
        handle: (call) => this.#decide(call, "APPROVED"),
      },
      {
        method: "POST",
        path: `${path}/tasks/refuse`,
        personScopes: ["approval:task:write"],
        limits: { perMinute: 100 },
        handle: (call) => this.#decide(call, "REJECTED"),
      },
    ];
  }

  /** With the token of a person, of that person alone. Topics: 1 to do, 2 done, 3 started by them. */
  #list(platform: Platform, call: ApiCallContext): JsonObject {
    const who = call.query.get("user_id") ?? "";
    if (who !== actorOf(call)) throw new PlatformError(1390013, "no permission", { status: 403 });
    const topic = call.query.get("topic") ?? "";
    const found = [...this.approvals.values()].flatMap((approval) =>
      approval.tasks
        .filter(({ approver, status }) =>
          topic === "3"
            ? approval.initiator === who
            : approver === who && (status === "PENDING") === (topic === "1"),
        )
        .map(({ taskId, status }) => ({
          topic,
          user_id: who,
          title: approval.name,
          urls: { pc: urlOf(approval), mobile: urlOf(approval), helpdesk: "" },
          status: status === "PENDING" ? "1" : "2",
          process_status: statusCodes[statusOf(approval)],
          definition_code: approval.definitionCode,
          definition_name: approval.name,
          initiators: [approval.initiator],
          initiator_names: [platform.directory.users.get(approval.initiator)?.name ?? ""],
          task_id: taskId,
          process_id: approval.instanceCode,
          process_code: approval.instanceCode,
        })),
    );
    const { items: tasks, ...page } = pageOf(found.toReversed(), call.query, 200);
    return success({ ...page, tasks, count: { total: found.length, has_more: page.has_more } });
  }

  /** Those who have asked or decide see it. */
  #seen(call: ApiCallContext, code: string): SimApproval {
    const approval = this.approvals.get(code);
    const who = actorOf(call);
    const sees =
      approval?.initiator === who || approval?.tasks.some(({ approver }) => approver === who);
    if (approval === undefined || sees !== true) {
      throw new PlatformError(1390003, "instance code not found");
    }
    return approval;
  }

  #detail(call: ApiCallContext): JsonObject {
    const approval = this.#seen(call, call.query.get("instance_code") ?? "");
    return success({
      approval_name: approval.name,
      approval_code: approval.definitionCode,
      instance_code: approval.instanceCode,
      open_id: approval.initiator,
      user_id: approval.initiator,
      status: statusOf(approval),
      form: JSON.stringify(approval.form.map((field) => ({ ...field, type: "input" }))),
      task_list: approval.tasks.map(({ taskId, approver, status }) => ({
        id: taskId,
        open_id: approver,
        user_id: approver,
        status,
        start_time: String(approval.createdAt),
      })),
      comment_list: approval.comments.map(({ by, text }) => ({ open_id: by, comment: text })),
    });
  }

  #decide(call: ApiCallContext, status: "APPROVED" | "REJECTED"): JsonObject {
    const approval = this.#seen(call, stringField(call.body, "instance_code"));
    const task = approval.tasks.find(
      ({ taskId, approver }) => taskId === call.body.task_id && approver === actorOf(call),
    );
    if (task?.status !== "PENDING") throw new PlatformError(1390010, "task id not found");
    task.status = status;
    const { comment } = call.body;
    if (typeof comment === "string" && comment !== "") {
      approval.comments.push({ by: actorOf(call), text: comment });
    }
    this.#world.record(call, "approval.decide", `${approval.name} ${status}`);
    this.#publish(approval, task);
    if (statusOf(approval) !== "PENDING") this.#publish(approval);
    return success({});
  }
}

const statusCodes = { PENDING: "1", APPROVED: "2", REJECTED: "3" } as const;

function statusOf({ tasks }: SimApproval): keyof typeof statusCodes {
  if (tasks.some(({ status }) => status === "REJECTED")) return "REJECTED";
  return tasks.every(({ status }) => status === "APPROVED") ? "APPROVED" : "PENDING";
}

function urlOf({ instanceCode }: SimApproval): string {
  return `https://example.feishu.cn/approval/${instanceCode}`;
}
