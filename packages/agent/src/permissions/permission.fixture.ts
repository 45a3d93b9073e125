import type {
  Approval,
  ApprovalDecision,
  Deciders,
  PermissionRule,
} from "@larkline/protocol/approval";
import type { ToolAnnouncement } from "@larkline/protocol/tool";
import type { PolicyCall, PermissionPolicy, PolicyEntry } from "./policy.ts";

export const requesterDecides: Deciders = {
  requester: true,
  people: [],
  roles: [],
  fourEyes: false,
  count: 1,
};
export const bossDecides: Deciders = { ...requesterDecides, requester: false, people: ["ou_boss"] };

export function policy(fields: Partial<PermissionPolicy> = {}): PermissionPolicy {
  return {
    roles: {
      ops: { people: ["ou_op"], groups: ["g_ops"] },
      leads: { people: ["ou_lead"], groups: [] },
    },
    entries: [],
    approvers: requesterDecides,
    expiresMs: 1_000,
    rulesExpireMs: 10_000,
    remember: true,
    risky: "suggest",
    unknownOutcome: "ask_feishu",
    learnAfter: 3,
    maxDenials: 3,
    ...fields,
  };
}

export function entry(fields: Partial<PolicyEntry> = {}): PolicyEntry {
  return {
    tools: ["*"],
    do: "ask",
    approvers: bossDecides,
    remember: false,
    reason: "",
    expiresMs: 500,
    ...fields,
  };
}

export function tool(name: string, fields: Partial<ToolAnnouncement> = {}): ToolAnnouncement {
  const spec = { name, description: name, inputSchema: { type: "object" } };
  return { spec, effect: "once", requiresApproval: false, timeoutMs: 1_000, ...fields };
}

export const shell = tool("shell", { requiresApproval: true, subject: "command" });

export function policyCall(fields: Partial<PolicyCall> = {}): PolicyCall {
  return {
    tool: tool("mail"),
    arguments: {},
    person: { id: "ou_me", groups: [] },
    chatId: "oc_1",
    chatType: "group",
    rules: [],
    nowMs: 100,
    ...fields,
  };
}

export function shellCall(command: unknown, fields: Partial<PolicyCall> = {}): PolicyCall {
  return policyCall({ tool: shell, arguments: { command }, ...fields });
}

export function rule(fields: Partial<PermissionRule> = {}): PermissionRule {
  return {
    v: 1,
    id: "a".repeat(32),
    app: "cli_app",
    chatId: "oc_1",
    tool: "shell",
    pattern: "git status *",
    author: { id: "ou_boss" },
    createdAtMs: 1,
    expiresAtMs: 1_000,
    ...fields,
  };
}

export function approval(fields: Partial<Approval> = {}): Approval {
  return {
    v: 1,
    id: "b".repeat(32),
    kind: "call",
    session: "cli_app.oc_1",
    turnId: "cli_app.oc_1-1",
    callId: "c1",
    app: "cli_app",
    chatId: "oc_1",
    requester: { id: "ou_me" },
    tool: "shell",
    arguments: { command: "git status -s" },
    argumentsHash: "h",
    secrets: [],
    deciders: bossDecides,
    reason: "It changes things.",
    risk: "medium",
    remember: { tool: "shell", pattern: "git status *" },
    language: "en",
    target: { channel: "none" },
    createdAtMs: 1,
    expiresAtMs: 2,
    ...fields,
  };
}

export function said(fields: Partial<ApprovalDecision> = {}): ApprovalDecision {
  return { decision: "approve", by: { id: "ou_boss" }, atMs: 50, ...fields };
}
