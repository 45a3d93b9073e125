import { describe, expect, it } from "vitest";
import { resolveConfig } from "./larkline-config.ts";
import type { LarklineConfig } from "./resolved-config.ts";
import type { PermissionsInput } from "./permission-config.ts";

function policyOf(input: PermissionsInput): LarklineConfig["permissions"] {
  const resolved = resolveConfig(input);
  if (!resolved.ok) throw new Error(resolved.error);
  return resolved.value.permissions;
}

function problemsOf(input: unknown): string {
  const resolved = resolveConfig(input);
  return resolved.ok ? "" : resolved.error;
}

const requester = { requester: true, people: [], roles: [], fourEyes: false, count: 1 };

describe("permissions of a configuration", () => {
  it("nothing means: the requester approves within a day, rules hold 90 days, risks are only pointed out", () => {
    expect(policyOf({})).toEqual({
      roles: {},
      entries: [],
      approvers: requester,
      expiresMs: 86_400_000,
      rulesExpireMs: 7_776_000_000,
      remember: true,
      risky: "suggest",
      unknownOutcome: "ask_feishu",
      learnAfter: 3,
      maxDenials: 3,
    });
  });

  it("titles of roles go with those who decide, and reasons may be in both languages", () => {
    const title = { zh: "运维", en: "Operations" };
    const reason = { zh: "会改动生产环境。", en: "It changes production." };
    const { entries, approvers } = policyOf({
      roles: { ops: { title, people: ["ou_1"] }, leads: { people: ["ou_2"] } },
      approvals: { approvers: { roles: ["leads"] } },
      permissions: [
        { tools: ["deploy"], do: "ask", approvers: { roles: ["ops", "leads"] }, reason },
      ],
    });
    expect(approvers).not.toHaveProperty("roleTitles");
    expect(entries).toMatchObject([{ reason, approvers: { roleTitles: { ops: title } } }]);
    expect(
      problemsOf({ permissions: [{ tools: ["a"], do: "ask", reason: { en: "a" } }] }),
    ).not.toBe("");
  });

  it("entries keep their order and get the deployment's approvers and times unless they have their own", () => {
    const { entries, approvers } = policyOf({
      roles: { ops: { people: ["ou_1"] } },
      approvals: { approvers: { roles: ["ops"] }, expiresMs: 60_000 },
      permissions: [
        { tools: ["shell"], subject: "git *", do: "allow" },
        { tools: ["shell"], chats: ["oc_1"], do: "ask", remember: true, reason: "Careful." },
        {
          tools: ["deploy"],
          do: "ask",
          approvers: { people: ["ou_2"], requester: true, count: 2 },
          expiresMs: 70_000,
        },
      ],
    });
    const ops = { ...requester, requester: false, roles: ["ops"] };
    expect(approvers).toEqual(ops);
    expect(entries).toEqual([
      {
        tools: ["shell"],
        subject: "git *",
        do: "allow",
        approvers: ops,
        remember: false,
        reason: "",
        expiresMs: 60_000,
      },
      {
        tools: ["shell"],
        chats: ["oc_1"],
        do: "ask",
        approvers: ops,
        remember: true,
        reason: "Careful.",
        expiresMs: 60_000,
      },
      {
        tools: ["deploy"],
        do: "ask",
        approvers: { ...requester, people: ["ou_2"], count: 2 },
        remember: false,
        reason: "",
        expiresMs: 70_000,
      },
    ]);
  });

  it.each([
    [
      "an unknown role of an entry",
      { permissions: [{ tools: ["shell"], roles: ["ops"], do: "allow" }] },
      "permissions.0 (shell) names the unknown role 'ops'",
    ],
    [
      "an unknown role of approvers",
      { permissions: [{ tools: ["a", "b"], do: "ask", approvers: { roles: ["toString"] } }] },
      "permissions.0 (a, b).approvers names the unknown role 'toString'",
    ],
    [
      "four eyes with the requester alone",
      { permissions: [{ tools: ["x"], do: "ask", approvers: { fourEyes: true } }] },
      "permissions.0 (x) can never be approved",
    ],
    [
      "nobody",
      { permissions: [{ tools: ["x"], do: "ask", approvers: { requester: false } }] },
      "permissions.0 (x) can never be approved",
    ],
    [
      "no person by default",
      { approvals: { approvers: { fourEyes: true } } },
      "approvals can never be approved",
    ],
    [
      "operators whose names are not checked",
      { approvals: { approvers: { operators: true, people: ["ou_a"], fourEyes: true } } },
      "approvals: 'operators' and 'fourEyes' exclude each other, because the names of operators are not checked",
    ],
    [
      "operators as more than one person",
      { approvals: { approvers: { operators: true, count: 2 } } },
      "approvals can never be approved: 2 people have to, but only 1 may",
    ],
    [
      "more approvals than approvers",
      {
        roles: { ops: { people: ["ou_1", "ou_2"] } },
        permissions: [
          { tools: ["x"], do: "ask", approvers: { roles: ["ops"], people: ["ou_2"], count: 3 } },
        ],
      },
      "permissions.0 (x) can never be approved: 3 people have to, but only 2 may",
    ],
    ["an empty role", { roles: { ops: {} } }, "roles.ops has neither people nor groups"],
    [
      "approvers where no person is asked",
      { permissions: [{ tools: ["x"], do: "refuse", approvers: { people: ["ou_1"] } }] },
      "permissions.0 (x) asks no person, so 'approvers' has no meaning there",
    ],
    [
      "a typing error",
      { permissions: [{ tool: "x", do: "ask" }] },
      "permissions.0 must NOT have additional properties 'tool'",
    ],
    [
      "no tools",
      { permissions: [{ tools: [], do: "ask" }] },
      "permissions.0.tools must NOT have fewer than 1 items",
    ],
  ])("finds at start: %s", (_, input, problem) => {
    expect(problemsOf(input)).toContain(problem);
  });

  it("members of a group are not known, so they are enough", () => {
    const input: PermissionsInput = {
      roles: { ops: { groups: ["g_1"] } },
      permissions: [{ tools: ["x"], do: "ask", approvers: { roles: ["ops"], count: 5 } }],
    };
    expect(problemsOf(input)).toBe("");
  });

  it("lists all problems at once", () => {
    const problems = problemsOf({
      roles: { a: {} },
      permissions: [{ tools: ["x"], do: "ask", approvers: { roles: ["b"] } }],
      mcp: { servers: { c: { url: "ftp://x" } } },
    });
    for (const problem of ["roles.a", "'b'", "mcp.servers.c"]) expect(problems).toContain(problem);
  });
});
