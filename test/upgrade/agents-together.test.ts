import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createQueueCatalog, turnsQueue } from "@larkline/store/queues";
import { createClient } from "@larkline/sdk";
import { DeadLetters } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { freePort, type ModelScript } from "@larkline/testkit";
import { afterAll, expect, it, vi } from "vitest";
import { startApp, type AppProcess } from "../system/app-process.ts";
import { answersTo, metricOf, write } from "../system/answers.ts";
import { decide } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { obedientModel } from "../system/model-script.ts";
import { answerTo } from "../system/sending.ts";
import { keysFor, startProcesses, type ProcessSystem } from "../system/system.ts";
import { checkOut, versionOfSingleAgents, type CheckedOut } from "./previous-version.ts";

const folder = await mkdtemp(join(tmpdir(), "larkline-upgrade-"));
const previous = await checkOut(versionOfSingleAgents, folder);
afterAll(async () => await rm(folder, { recursive: true, force: true }));

const patience = { timeout: 60_000, interval: 20 };

const config = {
  agents: {
    default: { instructions: "desk", questions: true },
    writer: { instructions: "writer" },
    critic: { instructions: "critic" },
  },
  teams: { pair: { members: ["writer", "critic"], select: "round_robin", end: { messages: 2 } } },
};

const script: ModelScript = (request) =>
  request.system.startsWith("critic") ? { text: "critic speaks" } : obedientModel(request);

/** A worker of the version before, with a configuration that it can read. */
async function startPrevious({ file }: CheckedOut, { env }: ProcessSystem): Promise<AppProcess> {
  const configFile = join(folder, "previous.config.ts");
  await writeFile(
    configFile,
    'export default { agents: { default: { instructions: "desk" } } };\n',
  );
  return await startApp({
    program: { file: file("apps/agent-worker/src/main.ts") },
    port: await freePort(),
    env: { ...env, LARKLINE_CONFIG: configFile, ...keysFor("agent-worker", "") },
  });
}

/** How much has been given up for good. */
async function givenUp({ redis: { url } }: ProcessSystem): Promise<number> {
  const redis = connectRedis(url);
  try {
    const catalog = createQueueCatalog({ connection: redis, prefix: "{larkline}" });
    const { failed } = await catalog.depth(turnsQueue);
    return failed + (await new DeadLetters({ redis }).count());
  } finally {
    await closeRedis(redis);
  }
}

// Where the history is shallow, the tests of each feature prove that its turns need it.
it.skipIf(previous === undefined)(
  "turns with a team or a question wait for a worker that knows them, and one of the version before beside it leaves them alone",
  async () => {
    if (previous === undefined) throw new Error("unreachable: the test is skipped");
    const tools = fileURLToPath(new URL("../fixtures/holding-tools.ts", import.meta.url));
    const system = await startProcesses({
      config,
      script,
      env: { RUNNER_TOOLS: tools, HOLD_TIMEOUT_MS: "120000" },
    });
    let old: AppProcess | undefined;
    try {
      const [ben, cai] = [system.person("Ben"), system.person("Cai")];
      const asking = await write(
        system,
        ben,
        'asking\ncall ask_person {"question":"Which colour?","choices":["Blue","Green"]}',
      );
      const client = createClient({ url: system.ingresses[0]?.url ?? "" });
      const team = client.run('team\ncall hold_once {"key":"team"}', {
        session: "team",
        agent: "pair",
        detach: true,
      });
      const teamId = await team.id();
      const card = await theQuestion(system, ben.chatId);
      await vi.waitFor(
        async () => expect(await system.recorded()).toEqual(["once team"]),
        patience,
      );

      const previousWorker = await startPrevious(previous, system);
      old = previousWorker;
      await system.workers[0]?.kill();
      await system.release("team");
      await decide(system, card, { openId: ben.openId, wanted: { choice: "Green" } });
      await vi.waitFor(() => {
        const left = previousWorker
          .output()
          .matchAll(/left to newer workers: it needs ([a-z, -]+)/g);
        const lacking = new Set([...left].flatMap(([, features = ""]) => features.split(", ")));
        expect([...lacking]).toEqual(expect.arrayContaining(["question", "team"]));
      }, patience);
      // What it knows it answers meanwhile.
      expect(await system.ask(cai, "plain", 60_000)).toBe("[plain]");
      expect(answersTo(system, asking)).toEqual([]);

      await system.start("agent-worker");
      expect(await answerTo(system, asking)).toBe('[asking] ok:{"answer":"Green","by":"Ben"}');
      const { finalOutput } = await client.attach(teamId).result();
      expect(finalOutput).toBe("critic speaks");

      expect(answersTo(system, asking)).toHaveLength(1);
      const ends = [];
      for await (const { type } of client.attach(teamId).stream()) {
        if (["done", "error"].includes(type)) ends.push(type);
      }
      expect(ends).toEqual(["done"]);
      expect(await system.recorded()).toEqual(["once team"]);
      // It runs no other turn; one that it has lost because it stood still is counted twice.
      const lost = await metricOf(previousWorker, "larkline_turn_runs_total", 'outcome="fenced"');
      expect((await metricOf(previousWorker, "larkline_turn_runs_total")) - lost).toBe(1);
      // The sweeper of cards meets the question, which it cannot read, and leaves its card to others.
      const complaints = previousWorker.output().match(/.*"level":"(?:error|fatal)".*/g) ?? [];
      expect(
        complaints.filter((line) => !line.includes("stored approval is not readable")),
      ).toEqual([]);
      expect(await givenUp(system)).toBe(0);
    } finally {
      await old?.kill();
      await system.close();
    }
  },
);
