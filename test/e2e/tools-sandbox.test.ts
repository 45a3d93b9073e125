import { realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { openSandbox } from "@larkline/sandbox";
import { createClient, type RunMessage } from "@larkline/sdk";
import { freePort } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { runApp } from "../system/app-process.ts";
import { write } from "../system/answers.ts";
import { askedCards, decide } from "../system/approvals.ts";
import { theQuestion } from "../system/asking.ts";
import { createPromptedModel, obedientModel } from "../system/model-script.ts";
import { answerTo } from "../system/sending.ts";
import { keysFor, startProcesses, type ProcessSystem } from "../system/system.ts";

const repository = new URL("../../", import.meta.url);
const codeTools = fileURLToPath(new URL("packages/example-tools/src/code/index.ts", repository));
const runnerPackage = createRequire(new URL("packages/runner/package.json", repository));
const everything = realpathSync(
  runnerPackage.resolve("@modelcontextprotocol/server-everything/dist/index.js"),
);
const dependencies = realpathSync(fileURLToPath(new URL("node_modules/.pnpm", repository)));

/** Whether this machine can contain programs at all; where it cannot, the runner has to say so. */
const opening = await openSandbox({ slots: 1, warm: 0 });
if (opening.ok) await opening.sandbox.close();

let system: ProcessSystem;
beforeAll(async () => {
  system = await startProcesses({
    runners: 0,
    config: {
      mcp: {
        servers: {
          all: {
            command: process.execPath,
            args: [everything, "stdio"],
            readable: [dependencies],
            tools: {
              "*": { effect: "pure", requiresApproval: false },
              "get-sum": { effect: "once", requiresApproval: true },
            },
          },
        },
      },
    },
  });
});
afterAll(async () => await system.close());

const code = { RUNNER_NAME: "default", RUNNER_TOOLS: codeTools };

async function untilOffered(...tools: string[]): Promise<void> {
  const person = system.person("Tom");
  await vi.waitFor(
    async () => {
      await system.ask(person, "which tools");
      const offered = system.model.requests.at(-1)?.tools.map(({ name }) => name) ?? [];
      expect(offered).toEqual(expect.arrayContaining(tools));
    },
    { timeout: 60_000, interval: 250 }, // every look is a turn
  );
}

/** How a question begins: with the sentence of the call, which may be cut, or else with the title of the tool. */
const questions: Record<string, (given: { command?: string }) => string> = {
  run_shell: ({ command = "" }) => `Run ${command.slice(0, 40)}`,
  run_javascript: () => "Approve “Run JavaScript”?",
  "all_get-sum": () => "Approve “Get Sum Tool”?",
};

/** Has a tool called, approves the call, and gives the answer. */
async function approved(
  tool: string,
  given: { command?: string } & Record<string, unknown>,
): Promise<string> {
  const person = system.person("Ann");
  const written = await write(system, person, `do\ncall ${tool} ${JSON.stringify(given)}`);
  const card = await theQuestion(system, person.chatId);
  expect(card.title).toContain(questions[tool]?.(given));
  const { toast } = await decide(system, card, {
    openId: person.openId,
    wanted: { decision: "approve" },
  });
  expect(toast?.content).toBe("Approved");
  return await answerTo(system, written);
}

describe.runIf(!opening.ok)("on a machine without a sandbox that holds", () => {
  it("a runner with tools for code refuses to start and says what is missing", async () => {
    const env = {
      ...system.env,
      ...keysFor("tool-runner", "default"),
      ...code,
      PORT: String(await freePort()),
    };
    const { code: exit, output } = await runApp(
      { file: "apps/tool-runner/src/main.ts" },
      env,
      60_000,
    );
    expect(exit).toBe(1);
    expect(output).toMatch(/The tools are refused: .*sandbox/s);
  });
});

describe.runIf(opening.ok)("code that a model wrote", () => {
  beforeAll(async () => {
    await system.start("tool-runner", code);
    await untilOffered("run_shell", "run_javascript", "all_echo");
  });

  it("runs in a shell once a person has read and approved it, and its output comes back", async () => {
    const answer = await approved("run_shell", {
      command: "echo $((6 * 7)) && cat /etc/hostname; id -u",
    });
    expect(answer).toContain("ok:");
    expect(answer).toContain("42");
  });

  it("runs as JavaScript, and what it returns comes back", async () => {
    const answer = await approved("run_javascript", {
      code: "console.log('said'); return { six: 2 * 3 };",
    });
    expect(answer).toContain('"six":6');
    expect(answer).toContain("said");
  });

  it("AT-26: that exits with 3 twice, then with 0, tells its exit codes and its attempts in every language", async () => {
    const { script, promptSteps } = createPromptedModel();
    system.model.setScript(script);
    const attempts = [
      { name: "run_javascript", arguments: { code: "console.error('first'); process.exit(3);" } },
      { name: "run_shell", arguments: { command: "seq 1 40000; echo second >&2; exit 3" } },
      { name: "run_python", arguments: { code: "result = 'third'" } },
    ];
    promptSteps(
      "try until it works",
      ...attempts.map((call) => ({
        calls: [{ ...call, arguments: JSON.stringify(call.arguments) }],
      })),
    );
    const run = createClient({ url: system.ingresses[0]?.url ?? "" }).run("try until it works");
    for await (const event of run.stream()) {
      if (event.type === "permission_request") await run.approve(event.id, "approve");
    }
    const messages: RunMessage[] = [];
    for await (const message of run.messages()) messages.push(message);
    const written = messages.flatMap((message) =>
      message.type === "CodeGenerationEvent" ? [[message.retry_attempt, message.code_blocks]] : [],
    );
    expect(written).toEqual([
      [0, [{ code: attempts[0]?.arguments.code, language: "javascript" }]],
      [1, [{ code: attempts[1]?.arguments.command, language: "shell" }]],
      [2, [{ code: attempts[2]?.arguments.code, language: "python" }]],
    ]);
    const ran = messages.flatMap((message) =>
      message.type === "CodeExecutionEvent"
        ? [{ attempt: message.retry_attempt, ...message.result }]
        : [],
    );
    expect(ran).toEqual([
      { attempt: 0, exit_code: 3, output: '{"exitCode":3,"stderr":"first\\n"}' },
      {
        attempt: 1,
        exit_code: 3,
        output: expect.stringMatching(/^\{"exitCode":3,"stdout":"1\\n2[^]*second/),
      },
      { attempt: 2, exit_code: 0, output: '{"exitCode":0,"result":"third"}' },
    ]);
    system.model.setScript(obedientModel);
  });

  it("sees nothing of the runner: neither its environment, nor its network, nor what another call has left", async () => {
    await approved("run_shell", { command: "echo left > /tmp/left.txt; echo left > left.txt" });
    const command = [
      "env | grep -c -e RUNNER_KEY -e REDIS_URL",
      "ls /tmp/left.txt left.txt 2>&1 | grep -c '^/tmp/left.txt$\\|^left.txt$'",
      `(exec 3<>/dev/tcp/127.0.0.1/${new URL(system.redis.url).port}) 2>/dev/null && echo reached || echo unreachable`,
    ].join("; ");
    const answer = await approved("run_shell", { command });
    expect(answer).toMatch(/0\\n0\\nunreachable|0\n0\nunreachable/);
  });

  it("is rejected without a trace", async () => {
    const person = system.person("Bob");
    const written = await write(system, person, 'do\ncall run_shell {"command":"rm -rf /"}');
    const card = await theQuestion(system, person.chatId);
    expect(JSON.stringify(card.message.card?.json)).toContain("rm -rf /");
    await decide(system, card, { openId: person.openId, wanted: { decision: "reject" } });
    expect(await answerTo(system, written)).toBe("[do] failed:User rejected this action.");
  });

  it("tools of an MCP server in a sandbox are called like any other", async () => {
    const person = system.person("Cai");
    const written = await write(
      system,
      person,
      'say\ncall all_echo {"message":"through the whole system"}',
    );
    expect(await answerTo(system, written)).toMatch(/^\[say\] ok:.*through the whole system/s);
    expect(askedCards(system, person.chatId)).toEqual([]);
  });

  it("and the policy decides which of them are asked about, whatever the server says", async () => {
    expect(await approved("all_get-sum", { a: 20, b: 22 })).toMatch(/ok:.*42/s);
  });
});
