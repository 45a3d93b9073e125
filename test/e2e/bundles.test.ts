import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it } from "vitest";
import { textOf } from "../docs/document.ts";
import { startApp, type AppProcess } from "../system/app-process.ts";
import { chat } from "../system/chat-stream.ts";
import { answerTo, lastRequest, send } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

/** The launcher is plain JavaScript, without types. */
const { bundledApps }: { bundledApps(life: object): Promise<string | undefined> } = await import(
  new URL("../../infra/dev/launcher/bundles.mjs", import.meta.url).href
);

let system: ProcessSystem;
let operators: AppProcess;
let modules: string;
let bundles: string;
beforeAll(async () => {
  modules = await mkdtemp(join(tmpdir(), "larkline-modules-"));
  const [, backend = ""] =
    /^```ts\n(\/\/ my-backend\.ts\n[^]*?)^```$/m.exec(textOf("docs/configuration.md")) ?? [];
  await writeFile(join(modules, "my-backend.ts"), backend);
  const said: string[] = [];
  const folder = await bundledApps({
    signal: new AbortController().signal,
    say: (line: string) => said.push(line),
  });
  if (folder === undefined) throw new Error(said.join("\n"));
  bundles = folder;
  const bundle = (name: string) => ({ file: join(folder, `${name}.mjs`) });
  const programs = {
    ingress: bundle("ingress"),
    "agent-worker": bundle("agent-worker"),
    "tool-runner": bundle("tool-runner"),
  };
  const config = {
    providers: {
      mine: { module: join(modules, "my-backend.ts") },
      down: { type: "openai", baseUrl: "http://127.0.0.1:1/v1" },
    },
    agents: { own: { model: "mine/echo" }, fallback: { model: "down/model, mine/echo" } },
    limits: { modelRetryMs: 1_000 },
  };
  system = await startProcesses({ programs, config });
  const env = { REDIS_URL: system.redis.url, FEISHU_APP_ID: system.appId };
  operators = await startApp({ program: bundle("console"), port: await freePort(), env });
});
afterAll(async () => {
  await operators?.kill();
  await system?.close();
  await rm(modules, { recursive: true });
});

it("bundles are texts of one byte a character, and load no client of Node's that they do not use", () => {
  const scripts = readdirSync(bundles).filter((name) => /\.[cm]js$/.test(name));
  const isWide = (name: string) => /[^\0-\xff]/.test(readFileSync(join(bundles, name), "utf8"));
  expect(scripts.filter(isWide)).toEqual([]);

  const servers = scripts.filter((name) => name.startsWith("fastify-"));
  const parts = [...servers, "node-sdk.cjs"].map((name) => JSON.stringify(join(bundles, name)));
  const program = `for (const part of [${parts.join()}]) await import(part); console.log(process.moduleLoadList.join());`;
  const loaded = execFileSync(process.execPath, ["--input-type=module", "-e", program], {
    encoding: "utf8",
  });
  expect(loaded).toContain("NativeModule _http_server");
  expect(loaded).not.toMatch(/undici|http2/);
});

// What runs from other files than the rest of a process is found from a bundle, too: threads, children, pages, scripts.
it("a bundle of each app does what its sources do", async () => {
  const person = system.person("Ann");
  expect(await system.ask(person, 'note\ncall note_pure {"key":"one"}')).toContain(
    'ok:{"key":"one"}',
  );
  expect(await system.recorded()).toEqual(["pure one"]);

  const bytes = await readFile(new URL("../fixtures/documents/contract.pdf", import.meta.url));
  await answerTo(system, await send(system, person, { file: { bytes, name: "contract.pdf" } }));
  expect(lastRequest(system).asked).toContain("Contract number 4711");

  const page = await fetch(operators.url);
  expect(page.status).toBe(200);
  expect(await page.text()).toMatch(/Workers alive<\/dt>\s*<dd>1</);
  const board = await (await fetch(`${operators.url}/queues`)).text();
  const [, script = ""] = /src="([^"]+\.js)"/.exec(board) ?? [];
  expect((await fetch(new URL(script, `${operators.url}/queues/`))).status, script).toBe(200);
  const queues = await fetch(`${operators.url}/queues/api/queues`);
  expect(JSON.stringify(await queues.json())).toContain('"name":"turns"');
});

it("AL-3: a model backend of the deployment answers, alone and as a fallback: the example of the documents", async () => {
  for (const agent of ["own", "fallback"]) {
    const stream = await chat(system.ingresses[0]?.url ?? "", agent, { agent, message: "hello" });
    expect((await stream.end()).at(-1)).toMatchObject({
      type: "done",
      final: "echo has read: hello",
    });
  }
});
