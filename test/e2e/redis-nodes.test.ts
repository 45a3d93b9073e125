import { fileURLToPath } from "node:url";
import {
  freePort,
  startRedisCluster,
  startRedisSentinel,
  type TestRedisNodes,
} from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { runApp, startApp, type AppProcess } from "../system/app-process.ts";
import { repeats, write } from "../system/answers.ts";
import { decide } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { chat, resume } from "../system/chat-stream.ts";
import { writeRedisUsers, type RedisUsers } from "../system/redis-users.ts";
import { answerTo } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

const fixture = (name: string): string =>
  fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));
/** For an answer, on a machine that is busy with other tests. */
const patienceMs = 60_000;

// The whole way of a message, with a user of Redis for each app on every node.
describe.each([
  { name: "a Cluster of three masters", start: startRedisCluster, masters: 3 },
  { name: "a master with two replicas under Sentinel", start: startRedisSentinel, masters: 1 },
])("Larkline on $name", ({ start, masters }) => {
  let users: RedisUsers;
  let nodes: TestRedisNodes;
  let system: ProcessSystem;
  let operators: AppProcess;

  beforeAll(async () => {
    users = await writeRedisUsers(["recording"]);
    nodes = await start({ users });
    system = await startProcesses({
      redisUrl: nodes.url,
      redisUsers: users,
      workers: 2,
      runners: 2,
      simulator: { limits: "enforced" },
      config: { approvals: { unknownOutcome: "tell" } },
      env: { RUNNER_TOOLS: `${fixture("recording-tools.ts")},${fixture("approval-tools.ts")}` },
    });
    operators = await startApp({
      program: { file: "apps/console/src/main.ts" },
      port: await freePort(),
      env: { REDIS_URL: users.urlFor(nodes.url, "console", ""), FEISHU_APP_ID: system.appId },
    });
  }, 240_000);
  afterAll(async () => {
    await operators?.kill();
    await system?.close();
    await nodes?.stop();
    await users?.remove();
  });

  async function page(path: string): Promise<string> {
    return await (await fetch(`${operators.url}${path}`)).text();
  }

  it(
    "answers with tools, asks before a tool runs, obeys a stop, and keeps the platform's limits",
    { timeout: 240_000 },
    async () => {
      expect(await nodes.masters()).toHaveLength(masters);
      const ann = system.person("Ann");
      const both = 'tools\ncall note_pure {"key":"a"}\ncall note_once {"key":"b"}';
      expect(await system.ask(ann, both, patienceMs)).toBe('[tools] ok:{"key":"a"} ok:{"key":"b"}');
      const asking = await write(system, ann, 'ask\ncall ask_once {"key":"c"}');
      const card = await theQuestion(system, ann.chatId);
      await decide(system, card, {
        openId: ann.openId,
        wanted: { decision: "approve", remember: true },
      });
      expect(await answerTo(system, asking, patienceMs)).toBe('[ask] ok:{"key":"c"}');
      const long = await write(system, ann, 'long\ncall note_idempotent {"key":"d","ms":15000}');
      await vi.waitUntil(async () => (await system.recorded()).includes("idempotent d"), {
        timeout: patienceMs,
        interval: 20,
      });
      await write(system, ann, "/stop");
      expect(await answerTo(system, long, patienceMs)).not.toContain("ok:");
      const people = Array.from({ length: 12 }, (_, at) => system.person(`person ${at}`));
      const asked = people.map(
        async (person, at) => await system.ask(person, `m${at} type 20`, patienceMs),
      );
      for (const [at, answer] of (await Promise.all(asked)).entries()) {
        expect(answer).toContain(`[m${at} type 20]`);
      }
      expect(system.feishu.refusals).toEqual([]);
    },
  );

  it(
    "resumes a stream of the HTTP API after the frame that a client has seen",
    { timeout: 60_000 },
    async () => {
      const [ingress] = system.ingresses;
      const stream = await chat(ingress?.url ?? "", "streamed", "words type 60");
      await stream.until((frames) => frames.some(({ type }) => type === "assistant"));
      // Not the last one: on a busy machine all may have come by now.
      const seen = stream.frames().find(({ type }) => type === "assistant")?.seq ?? 0;
      const rest = await (await resume(ingress?.url ?? "", "streamed", seen)).end();
      expect(rest[0]?.seq).toBe(seen + 1);
      expect(rest.at(-1)).toMatchObject({
        type: "done",
        final: expect.stringContaining("word59") as string,
      });
      expect((await stream.end()).at(-1)).toEqual(rest.at(-1));
    },
  );

  it(
    "continues when a worker and a runner are killed and a worker is replaced, and repeats no `once` call",
    { timeout: 240_000 },
    async () => {
      const people = Array.from({ length: 6 }, (_, at) => system.person(`writer ${at}`));
      const texts = people.map((_, at) => {
        const tool = at % 2 === 0 ? "once" : "pure";
        return `k${at} pause 1500\ncall note_${tool} {"key":"k${at}","ms":1500}`;
      });
      const written = await Promise.all(
        people.map(async (person, at) => await write(system, person, texts[at] ?? "")),
      );
      await vi.waitUntil(async () => (await system.recorded()).some((line) => /k\d/.test(line)), {
        timeout: patienceMs,
        interval: 20,
      });
      const [worker, other] = system.workers;
      await Promise.all([worker?.kill(), system.runners[0]?.kill()]);
      const next = await system.start("agent-worker");
      expect(await other?.stop()).toBe(0);
      system.workers.splice(0, 2, next);
      system.runners.splice(0, 1, await system.start("tool-runner"));
      const answers = await Promise.all(
        written.map(async (message) => await answerTo(system, message, patienceMs)),
      );
      for (const [at, answer] of answers.entries()) expect(answer).toContain(`[k${at} pause 1500]`);
      expect(repeats(await system.recorded(), "once").repeated).toBe(0);
    },
  );

  it(
    "shows operators its queues, runners and sessions, wherever their keys are",
    { timeout: 60_000 },
    async () => {
      await vi.waitFor(
        async () => {
          const queues = await page("/");
          for (const queue of ["turns", "tools-recording"]) expect(queues).toContain(queue);
        },
        { timeout: 60_000, interval: 100 },
      );
      expect(await page("/runners")).toContain("note_once");
      const person = system.person("Ida");
      const { chatId } = await write(system, person, "shown");
      await vi.waitFor(
        async () => expect(await page(`/sessions/${system.appId}.${chatId}`)).toContain("idle"),
        {
          timeout: 60_000,
          interval: 50,
        },
      );
      const env = { REDIS_URL: users.urlFor(nodes.url, "admin", "") };
      const audit = await runApp({ file: "apps/cli/src/main.ts", args: ["audit"] }, env, 120_000);
      expect(audit.output).toContain("call_started");
      expect(audit.code).toBe(0);
    },
  );

  it("is refused nothing by any node", { timeout: 120_000 }, async () => {
    const ports = [...nodes.url.matchAll(/:(\d+)/g)].map(([, port]) => Number(port));
    const asked = masters === 3 ? ports : await nodes.masters();
    for (const port of asked) expect(await nodes.ask(port, "acl", "log", "100")).toBe("\n");
  });
});
