import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, expect, it } from "vitest";
import {
  appId,
  openWorld,
  startTestConsole,
  type TestConsole,
  type World,
} from "./console.fixture.ts";

const desk = "cli_dddddddddddddddd";

let world: World;
let tested: TestConsole;

beforeAll(async () => {
  world = openWorld();
  tested = await startTestConsole(world, null, { bots: { desk: { appId: desk } } });
});
afterAll(async () => {
  await tested.close();
  await world.close();
});

it("the rules of every bot are shown under its own app", async () => {
  const nowMs = Date.now();
  for (const app of [appId, desk]) {
    await world.rules.add({
      v: 1,
      id: randomBytes(16).toString("hex"),
      app,
      chatId: "oc_1",
      tool: "shell",
      pattern: `git status ${app} *`,
      author: { id: "ou_1" },
      createdAtMs: nowMs,
      expiresAtMs: nowMs + 3_600_000,
    });
  }
  const page = await (await fetch(`${tested.url}/rules`)).text();
  for (const app of [appId, desk]) expect(page).toContain(`git status ${app} *`);
});
