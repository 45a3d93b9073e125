import { expect, it } from "vitest";
import { apiTools } from "./api.ts";
import { feishuTools } from "./index.ts";
import { toolWorld } from "./world.fixture.ts";

it("is no tool of the usual ones, and asks loudly for all but reading", () => {
  const names = feishuTools().map(({ name }) => name);
  expect(names.filter((name) => name.startsWith("feishu_api"))).toEqual([]);
  expect(
    apiTools().map(({ name, effect, requiresApproval, risk }) => ({
      name,
      effect,
      requiresApproval,
      risk,
    })),
  ).toEqual([
    { name: "feishu_api_read", effect: "pure", requiresApproval: false, risk: "low" },
    { name: "feishu_api", effect: "once", requiresApproval: true, risk: "high" },
  ]);
});

it("makes documented calls as the person", async () => {
  const { platform, textOf, ann } = await toolWorld();
  platform.work.tasks.addTask({ creator: ann, summary: "Plan", assignees: [ann] });
  const read = { path: "/open-apis/task/v2/tasks", query: { type: "my_tasks" } };
  expect(await textOf("feishu_api_read", read)).toContain('"summary": "Plan"');
  const body = { summary: "Ship" };
  await textOf("feishu_api", { method: "POST", path: "/open-apis/task/v2/tasks", body });
  expect(platform.work.changes).toMatchObject([{ kind: "task.create", by: ann, content: "Ship" }]);
});

it("asks the person where an answer was lost, because the effect cannot be looked for", async () => {
  const { platform, call } = await toolWorld();
  platform.faults.add({
    match: { path: "/open-apis/task" },
    times: 1,
    action: { kind: "lose_response" },
  });
  const outcome = await call("feishu_api", {
    method: "POST",
    path: "/open-apis/task/v2/tasks",
    body: { summary: "Ship" },
  });
  expect(outcome).toMatchObject({ ok: false, unknown: true });
  expect(platform.work.changes).toHaveLength(1);
});

it("goes nowhere else, and not to tokens, apps or the company's administration", async () => {
  const { platform, call } = await toolWorld();
  const before = platform.apiCalls.length;
  const paths = [
    "https://evil.example/open-apis/task/v2/tasks",
    "//evil.example/open-apis/task/v2/tasks",
    "/open-apis/task/v2/../../authen/v1/user_info",
    "/open-apis/task/v2/..",
    "/open-apis/task/v2/tasks?type=my_tasks",
    "/open-apis/task/v2/tasks#x",
    "/open-apis/task/v2/%2e%2e/x",
    "/open-apis/task/v2//tasks",
    "/open-apis/task/v2/@evil.example/..",
    "/oauth/v1/device_authorization",
    "/open-apis/authen/v2/oauth/token",
    "/open-apis/auth/v3/tenant_access_token/internal",
    "/open-apis/application/v6/applications",
    "/open-apis/tenant/v2/tenant/query",
    "task/v2/tasks",
  ];
  for (const path of paths) {
    expect(await call("feishu_api_read", { path }), path).toMatchObject({ ok: false });
    const input = { method: "POST", path, body: {} };
    expect(await call("feishu_api", input), path).toMatchObject({ ok: false });
  }
  expect(platform.apiCalls.length).toBe(before);
});
