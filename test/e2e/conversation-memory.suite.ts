import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { untilAsked } from "../system/approvals.ts";
import { write } from "../system/answers.ts";
import { answerTo, lastRequest, send, type Writer } from "../system/sending.ts";
import type { System } from "../system/system.ts";
import { system } from "./conversation-deployment.ts";

const patienceMs = 60_000;
const remember = (text: string, about = "me"): string =>
  `call remember ${JSON.stringify({ text, about })}`;

/** Notes that are stored, by text: how often. */
async function stored(redis: Redis): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  for (const key of await redis.keys("{larkline:memory:*}:of:*")) {
    const text = (await redis.hget(key, "text")) ?? "";
    found.set(text, (found.get(text) ?? 0) + 1);
  }
  return found;
}

/** What is in the keys of memories, names included. */
async function memoryKeys(redis: Redis): Promise<string> {
  const keys = await redis.keys("{larkline:memory:*");
  const values = keys
    .filter((key) => key.includes(":of:"))
    .map(async (key) => await redis.hgetall(key));
  return JSON.stringify([keys, await Promise.all(values)]);
}

describe("what is remembered", () => {
  let bot: System;
  let redis: Redis;
  beforeAll(() => {
    bot = system.botNamed("remembering");
    redis = new Redis(system.redis.url);
  });
  afterAll(() => redis.disconnect());

  const told = async (person: Writer, text: string) =>
    await answerTo(bot, await write(bot, person, text), patienceMs);

  it("AT-24: outlives the conversation, stands on the card, and is taken back by its button once", async () => {
    const ann = bot.person("Ann");
    const asked = await write(bot, ann, `remember my tea\n${remember("Ann drinks oolong")}`);
    expect(await answerTo(bot, asked, patienceMs)).toContain("Ann drinks oolong");
    await told(ann, "/new");
    await bot.ask(ann, "hello again");
    expect(lastRequest(bot).system).toContain('"Ann drinks oolong"');
    expect(JSON.stringify(lastRequest(bot).messages)).not.toContain("oolong");
    const { messageId, card: shown } = await bot.feishu.waitForReply(asked.messageId, {
      timeoutMs: patienceMs,
    });
    const card = JSON.stringify(shown?.json);
    const [, memory = ""] = /"larkline":"memory"[^}]*"memory":"([0-9a-f]+)"/.exec(card) ?? [];
    expect(card).toContain("🧠");
    const value = {
      larkline: "memory",
      session: `${bot.appId}.${ann.chatId}`,
      memory,
      about: "me",
    };
    const click = async () =>
      JSON.stringify(await bot.feishu.click({ messageId, openId: ann.openId, value }));
    expect(await click()).toContain("Taken back");
    expect(await click()).toContain("taken back already");
    await bot.ask(ann, "and now");
    expect(lastRequest(bot).system).not.toContain("oolong");
  });

  it("AT-22, AT-23: is not shown in a group, nor to another person", async () => {
    const [ann, ben] = [bot.person("Ann"), bot.person("Ben")];
    await bot.ask(ann, `keep it\n${remember("Ann likes jasmine")}`);
    await bot.ask(ben, 'what does Ann like?\ncall recall {"query":"Ann jasmine"}');
    expect(JSON.stringify(lastRequest(bot).body)).not.toContain("likes jasmine");
    const members = [ann.openId, ben.openId, bot.appId];
    const group = bot.feishu.addChat({ type: "group", name: "Team", members }).chatId;
    for (const one of [ann, ben]) {
      const text = `tell us my notes\ncall recall {"query":"jasmine"}\n${remember("seen in the group", "me")}`;
      const asked = await send(bot, { ...one, chatId: group }, { text, mention: true });
      expect(await answerTo(bot, asked, patienceMs)).not.toContain("likes jasmine");
      expect(JSON.stringify(lastRequest(bot).body)).not.toContain("likes jasmine");
    }
    expect((await stored(redis)).has("seen in the group")).toBe(false);
  });

  it("AT-27: is asked about once a tool has spoken, and written when the person agrees", async () => {
    const ann = bot.person("Ann");
    await bot.ask(ann, 'look\ncall note_pure {"key":"remember that Ann owes Ben"}');
    // The model is to use a word that the person has not written.
    await write(bot, ann, `go on\n${remember("Ann owes Ben").replace("owes", "\\u006fwes")}`);
    await untilAsked(bot, ann.chatId, 1);
    expect((await stored(redis)).has("Ann owes Ben")).toBe(false);
  });

  it("AT-24: is stored once, although all workers are killed while the turn runs", async () => {
    const { length } = system.workers;
    for (let round = 0; round < 3; round += 1) {
      const ann = bot.person("Ann");
      const key = `memory-${round}`;
      const text = `keep ${round}\n${remember(`Ann's fact ${round}`)}\ncall hold_pure {"key":"${key}"}`;
      const asked = await write(bot, ann, text);
      await vi.waitFor(
        async () => expect((await stored(redis)).has(`Ann's fact ${round}`)).toBe(true),
        patienceMs,
      );
      for (const worker of system.workers.splice(0)) await worker.kill();
      for (let at = 0; at < length; at += 1) {
        system.workers.push(await system.start("agent-worker"));
      }
      await system.release(key);
      expect(await answerTo(bot, asked, patienceMs)).toContain(`Ann's fact ${round}`);
      expect((await stored(redis)).get(`Ann's fact ${round}`)).toBe(1);
    }
  });

  it("AT-25: is gone after /memory forget and /memory off, and no log has a word of it", async () => {
    const ann = bot.person("Ann");
    await bot.ask(ann, `keep\n${remember("Ann has a parrot")}\n${remember("Ann has a turtle")}`);
    const list = await told(ann, "/memory");
    const [, number = ""] = /(\d)\. Ann has a parrot/.exec(list) ?? [];
    expect(await told(ann, `/memory forget ${number}`)).toBe("Forgotten.");
    expect(await memoryKeys(redis)).not.toContain("parrot");
    expect(await told(ann, "/memory off")).toContain("Forgotten: 1");
    expect(await memoryKeys(redis)).not.toContain("turtle");
    await bot.ask(ann, `again\n${remember("Ann has a snail")}`);
    expect(await memoryKeys(redis)).not.toContain("snail");
    const logs = [...system.workers, ...system.ingresses, ...system.runners]
      .map((app) => app.output())
      .join("");
    for (const word of ["oolong", "jasmine", "parrot", "turtle", "snail", "Ann's fact"]) {
      expect(logs).not.toContain(word);
    }
  });
});
