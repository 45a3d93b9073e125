import { randomUUID } from "node:crypto";
import { feishuTools } from "@larkline/feishu-tools";
import { startFeishuSimulator } from "@larkline/simulator";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { RunnerLocks } from "@larkline/store/runners";
import { runTool, type Exclusive } from "@larkline/tool-kit";
import { expect, inject, onTestFinished, test } from "vitest";

const app = { appId: "cli_0123456789abcdef", appSecret: "secret" };

/** The tools with the locks of a process of the runner; both processes know each other through Redis alone. */
function processOf(namespace: string) {
  const redis = connectRedis(inject("redisUrl"));
  onTestFinished(async () => await closeRedis(redis));
  const locks = new RunnerLocks({ redis, namespace, runner: "feishu" });
  return {
    tools: feishuTools(),
    exclusiveOf:
      (person: string): Exclusive =>
      async (object, options, work) =>
        await locks.run(object, { ...options, person }, work),
  };
}

test("two processes of the work tools write to a table one after the other, and people take turns", async () => {
  const simulator = await startFeishuSimulator({ apps: [app], limits: "off" });
  onTestFinished(async () => await simulator.close());
  const answer = await fetch(`${simulator.url}/open-apis/auth/v3/tenant_access_token/internal`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ app_id: app.appId, app_secret: app.appSecret }),
  });
  const { tenant_access_token: token } = (await answer.json()) as { tenant_access_token: string };
  const { tables } = simulator.work;
  const { appToken } = tables.addBase({ owner: app.appId, name: "Launch" });
  const table = tables.addTable(appToken, { name: "Tasks", fields: [{ name: "Task", type: 1 }] });
  const { promise: everyoneWaits, resolve: letGo } = Promise.withResolvers<undefined>();
  const match = { method: "POST", path: /batch_create/ };
  simulator.faults.add({ match, times: 1, action: { kind: "hold", until: everyoneWaits } });
  simulator.faults.add({ match, action: { kind: "delay", delayMs: 20 } });
  const namespace = `locks-${randomUUID()}`;
  const processes = [processOf(namespace), processOf(namespace)];
  const add = async (task: string, at: number) => {
    const { tools, exclusiveOf } = processes[at % 2] ?? processOf(namespace);
    const tool = tools.find(({ name }) => name === "add_records");
    if (tool === undefined) throw new Error("there is no such tool");
    const [person = ""] = task.split(" ");
    return await runTool(tool, {
      argumentsText: JSON.stringify({
        base: appToken,
        table: table.tableId,
        rows: [{ Task: task }],
      }),
      context: {
        callId: task,
        identity: { as: "bot", token, apiOrigin: simulator.url },
        exclusive: exclusiveOf(person),
      },
    });
  };
  const waiting = connectRedis(inject("redisUrl"));
  onTestFinished(async () => await closeRedis(waiting));
  const line = `{${namespace}}:locks:feishu:table ${appToken} ${table.tableId}:waiting`;
  const waits = async (count: number) =>
    await expect.poll(async () => await waiting.zcard(line)).toBe(count);
  // Ann imports ten rows, the first of which is being written; then Bob comes.
  const imports = Array.from({ length: 10 }, async (_, at) => await add(`ann ${at}`, at));
  await waits(9);
  const last = add("bob", 1);
  await waits(10);
  letGo(undefined);
  const outcomes = await Promise.all([...imports, last]);
  expect(outcomes.map(({ ok }) => ok)).toEqual(outcomes.map(() => true));
  const rows = table.records.map(({ fields }) => String(fields["Task"]));
  expect(rows.toSorted()).toEqual([...Array.from({ length: 10 }, (_, at) => `ann ${at}`), "bob"]);
  // Bob waited for the row that was being written and the next one, and not for Ann's import.
  expect(rows.indexOf("bob")).toBe(2);
  const writes = simulator.apiCalls.filter(({ path }) => path.endsWith("/batch_create"));
  const overlaps = writes.filter(
    ({ at, durationMs }, index) => at + durationMs > (writes[index + 1]?.at ?? Infinity),
  );
  expect({ writes: writes.length, overlaps }).toEqual({ writes: 11, overlaps: [] });
});
