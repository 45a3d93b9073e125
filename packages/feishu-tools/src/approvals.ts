import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { changeOnce } from "./exactly-once.ts";
import {
  checkedId,
  completed,
  isRefusal,
  type Platform,
  quoted,
  type Remedies,
  type Settings,
  type WorkToolSettings,
} from "./platform.ts";
import { workTool } from "./work-tool.ts";

// Approvals that wait for the person, or that the person has started.

const remedies: Remedies = {
  1390002: "There is no such form.",
  1390003: "There is no such approval that the person may see.",
  1390009: "The platform cannot do this now; try again later.",
  1390010: "This approval does not wait for the person any more.",
  1390013: "The person may not do this.",
  1390018: "This approval wants a signature by hand: the person decides it in the client.",
  1395001: "The platform cannot do this now; try again later.",
};

const topics = { waiting: "1", decided: "2", started: "3" } as const;
const statuses: Readonly<Record<string, string>> = {
  "0": "none",
  "1": "open",
  "2": "approved",
  "3": "rejected",
  "4": "withdrawn",
  "5": "ended",
};

function listTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    name: "list_approvals",
    description:
      "Lists approvals that wait for the person's decision, that they have decided, or that they have started, with links to open them.",
    title: { zh: "查看审批", en: "List approvals" },
    input: {
      which: Type.Optional(
        Type.Enum(["waiting", "decided", "started"], { description: "Default waiting." }),
      ),
    },
    effect: "pure",
    scopes: ["approval:task:list_by_user"],
    reach: "reads",
    run: async ({ which = "waiting" }, platform) => {
      const params = {
        user_id: platform.openId ?? "",
        topic: topics[which],
        user_id_type: "open_id" as const,
        page_size: 50,
      };
      const { tasks = [], has_more: more } = await platform.read((client, as) =>
        client.approval.v4.task.query({ params }, as),
      );
      if (tasks.length === 0) return "There are no such approvals.";
      const lines = tasks.map(
        ({ title, initiator_names: names = [], process_status, process_code, task_id, urls }) =>
          `- ${title} (by ${names.join(", ")}; ${statuses[process_status] ?? process_status}; instance ${process_code}, task ${task_id}) ${urls.pc ?? ""}`,
      );
      if (more === true) lines.push("[more are left out]");
      return quoted("approvals", lines.join("\n"));
    },
  });
}

const Instance = Type.String({
  minLength: 1,
  maxLength: 100,
  description: "Instance, as list_approvals gives it.",
});

interface Detail {
  approval_name?: string;
  status?: string;
  form?: string;
  task_list?: { id: string; status: string; open_id?: string }[];
  comment_list?: { comment?: string }[];
}

/** The call takes the token of a person; the SDK's types of its answer are not documented. */
async function detailOf(platform: Platform, instance: string): Promise<Detail> {
  const params = { instance_code: checkedId(instance, "an approval") };
  const url = "/open-apis/approval/v4/instances/detail";
  return await platform.read<Detail>((client, as) =>
    client.request({ method: "GET", url, params }, as),
  );
}

/** What people filled in: a line for each field. */
function formOf({ form = "[]" }: Detail): string {
  let fields: unknown;
  try {
    fields = JSON.parse(form);
  } catch {
    return form;
  }
  if (!Array.isArray(fields)) return form;
  return fields
    .map((field: { name?: unknown; value?: unknown } | null) => {
      const { name = "", value } = field ?? {};
      return `${String(name)}: ${typeof value === "string" ? value : JSON.stringify(value ?? "")}`;
    })
    .join("\n");
}

function readTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    name: "read_approval",
    description: "Reads an approval of list_approvals: its form, who decides, and comments.",
    title: { zh: "查看审批内容", en: "Read an approval" },
    summary: { zh: "查看审批 {instance}", en: "Read the approval {instance}" },
    input: { instance: Instance },
    effect: "pure",
    scopes: ["approval:instance:read"],
    reach: "reads",
    run: async ({ instance }, platform) => {
      const detail = await detailOf(platform, instance);
      const comments = (detail.comment_list ?? []).map(({ comment = "" }) => `- ${comment}`);
      return quoted(
        "approval",
        [
          `${detail.approval_name ?? ""} (${detail.status ?? ""})`,
          "Form:",
          formOf(detail),
          ...(comments.length === 0 ? [] : ["Comments:", ...comments]),
        ].join("\n"),
      );
    },
  });
}

function decideTool(settings: Settings): HandlerTool {
  return workTool(settings, remedies, {
    name: "decide_approval",
    description:
      "Approves or rejects an approval that waits for the person. The person is always asked, and sees its form. Only when they have asked for it themselves. Give the form exactly as read_approval shows it.",
    title: { zh: "处理审批", en: "Decide an approval" },
    summary: { zh: "{decision} 审批：{form}", en: "{decision} the approval: {form}" },
    input: {
      instance: Instance,
      task: Type.String({
        pattern: "^[0-9]{1,30}$",
        description: "Task, as list_approvals gives it.",
      }),
      form: Type.String({ maxLength: 3_000, description: "All lines of its form." }),
      decision: Type.Enum(["approve", "reject"]),
      comment: Type.Optional(Type.String({ maxLength: 500 })),
    },
    effect: "once",
    looks: true,
    scopes: ["approval:task:write", "approval:instance:read"],
    reach: "sends",
    run: async ({ instance, task, form, decision, comment }, platform) => {
      const detail = await detailOf(platform, instance);
      const decided = decision === "approve" ? "Approved." : "Rejected.";
      const stateIn = ({ task_list: tasks = [] }: Detail): string | undefined =>
        tasks.find(({ id }) => id === task)?.status;
      const isDecided = stateIn(detail) === (decision === "approve" ? "APPROVED" : "REJECTED");
      if (platform.beganAtMs !== undefined && isDecided) return decided;
      if (platform.beganAtMs === undefined && stateIn(detail) !== "PENDING") {
        return "This approval does not wait for the person any more.";
      }
      if (formOf(detail).trim() !== form.trim()) {
        throw new Error(`Nothing was decided: its form says ${JSON.stringify(formOf(detail))}.`);
      }
      const data = {
        instance_code: instance,
        task_id: task,
        ...(comment === undefined ? {} : { comment }),
      };
      await changeOnce(platform, {
        run: (client, as) =>
          decision === "approve"
            ? client.approval.v4.task.pass({ data }, as)
            : client.approval.v4.task.refuse({ data }, as),
        isDone: async () =>
          platform.beganAtMs === undefined &&
          stateIn(await detailOf(platform, instance)) !== "PENDING",
        isDuplicate: (error, wasUnanswered) => wasUnanswered && isRefusal(error, 1390010),
        open: "whether the approval was decided",
      });
      return decided;
    },
  });
}

export const approvalTools = [listTool];

/**
 * Tools that read and decide approvals with calls that few companies can grant: a runner offers them where its
 * deployment names them.
 */
export function decisionTools(given: WorkToolSettings = {}): HandlerTool[] {
  const settings = completed(given);
  return [readTool(settings), decideTool(settings)];
}

export default decisionTools();
