import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { freePort } from "@larkline/testkit";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startApp, type AppProcess } from "../system/app-process.ts";
import { answerTo, lastRequest, send } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

/** The launcher is plain JavaScript, without types. */
const { bundledApps }: { bundledApps(life: object): Promise<string | undefined> } = await import(
  new URL("../../infra/dev/launcher/bundles.mjs", import.meta.url).href
);

let system: ProcessSystem;
let operators: AppProcess;
beforeAll(async () => {
  const said: string[] = [];
  const folder = await bundledApps({ signal: new AbortController().signal, say: (line: string) => said.push(line) });
  if (folder === undefined) throw new Error(said.join("\n"));
  const bundle = (name: string) => ({ file: join(folder, `${name}.mjs`) });
  const programs = {
    ingress: bundle("ingress"),
    "agent-worker": bundle("agent-worker"),
    "tool-runner": bundle("tool-runner"),
  };
  system = await startProcesses({ programs });
  const env = { REDIS_URL: system.redis.url, FEISHU_APP_ID: system.appId };
  operators = await startApp({ program: bundle("console"), port: await freePort(), env });
});
afterAll(async () => {
  await operators?.kill();
  await system?.close();
});

// What runs from other files than the rest of a process is found from a bundle, too: threads, children, pages, scripts.
it("a bundle of each app does what its sources do", async () => {
  const person = system.person("Ann");
  expect(await system.ask(person, 'note\ncall note_pure {"key":"one"}')).toContain('ok:{"key":"one"}');
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
