import type { FeishuApi } from "@larkline/feishu";
import { afterEach, describe, expect, it } from "vitest";
import { replacing } from "./backend.fixture.ts";
import { Bot } from "./bot.ts";
import { startWorld, testApp } from "./feishu.fixture.ts";

const { appId } = testApp;
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

/** Asks a bot for names whose platform answers such questions as the test says. */
async function namesWith(userNames: FeishuApi["userNames"]): Promise<Bot["namesOf"]> {
  const { api, ingress, close } = await startWorld();
  closing.push(close);
  const [{ access } = expect.fail("no bot")] = ingress.bots;
  const bot = new Bot(ingress.services, access, replacing(api, { userNames }));
  closing.push(async () => await bot.close());
  await ingress.services.lookups.set(`name:${appId}:ou_ann`, "Ann", 60_000);
  return async (openIds) => await bot.namesOf(openIds);
}

describe("names of people", () => {
  it("are those that are remembered, and those that the platform knows", async () => {
    const asked: (readonly string[])[] = [];
    const namesOf = await namesWith(async (openIds) => {
      asked.push(openIds);
      return new Map([["ou_bob", "Bob"]]);
    });
    expect([...(await namesOf(["ou_ann", "ou_bob", "ou_bob", "ou_cai"]))]).toEqual([
      ["ou_ann", "Ann"],
      ["ou_bob", "Bob"],
    ]);
    expect(asked).toEqual([["ou_bob", "ou_cai"]]);
  });

  it.each([
    ["does not answer", async () => await new Promise<never>(() => undefined)],
    ["fails", async () => await Promise.reject(new Error("no connection"))],
  ])("are at least those that are remembered when the platform %s", async (_, userNames) => {
    const namesOf = await namesWith(userNames);
    expect([...(await namesOf(["ou_ann", "ou_bob"]))]).toEqual([["ou_ann", "Ann"]]);
  });
});
