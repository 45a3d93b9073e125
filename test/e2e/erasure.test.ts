import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DeadLetters, SessionStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { untilAsked } from "../system/approvals.ts";
import { runApp } from "../system/app-process.ts";
import { writeConfig } from "../system/config-file.ts";
import { obedientModel } from "../system/model-script.ts";
import { answerTo, send, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

/** In everything that the person writes, and nowhere else. */
const marker = "zebrafinch7";
/** As a call's result it is kept beside the conversation. */
const large = `${marker} ${"and more ".repeat(40)}`;
const patienceMs = 60_000;

const config = {
  console: { questions: true },
  limits: { maxResultChars: 200 },
  agents: {
    default: {
      model: "anthropic/small",
      memory: { person: "everywhere", chat: true },
      files: true,
      questions: true,
      groupContext: 3,
    },
  },
  models: [{ provider: "anthropic", id: "small", contextWindow: 3_600, maxOutputTokens: 1_000 }],
  budgets: { limits: [{ per: "person", period: "month", tokens: 10_000_000 }] },
};

let system: System;
let file: Awaited<ReturnType<typeof writeConfig>>;
let blobs: string;
let redis: Redis;
beforeAll(async () => {
  file = await writeConfig(config);
  blobs = await mkdtemp(join(tmpdir(), "larkline-blobs-"));
  system = await startSystem({
    workers: 2,
    tools: ["recording", "approval"],
    env: { LARKLINE_CONFIG: file.path, BLOB_DIR: blobs },
    script: (request) => {
      if (request.system.includes("compact conversation records")) {
        return { text: `They spoke of ${marker}.` };
      }
      const asked =
        request.messages.findLast(({ role, text }) => role === "user" && text !== "")?.text ?? "";
      const reply = obedientModel(request);
      // What is said in groups stays, since it is the group's: it repeats nothing here.
      if (!asked.includes("in the group") || "calls" in reply) return reply;
      return {
        text: "Fine.",
        ...(asked.includes(marker) ? { thinking: { text: `Of ${marker}.` } } : {}),
      };
    },
  });
  redis = new Redis(system.redis.url);
});
afterAll(async () => {
  redis.disconnect();
  await system.close();
  await file.remove();
  await rm(blobs, { recursive: true, force: true });
});

/** Everything that a key holds, as text. */
async function contentOf(key: string): Promise<string> {
  const type = await redis.type(key);
  if (type === "string") return (await redis.get(key)) ?? "";
  if (type === "hash") return JSON.stringify(await redis.hgetall(key));
  if (type === "list") return JSON.stringify(await redis.lrange(key, 0, -1));
  if (type === "set") return JSON.stringify(await redis.smembers(key));
  if (type === "zset") return JSON.stringify(await redis.zrange(key, "0", "-1"));
  if (type === "stream") return JSON.stringify(await redis.xrange(key, "-", "+"));
  if (type === "none") return ""; // it has expired
  throw new Error(`${key} is of a type that is not read: ${type}`);
}

/** The keys whose names or contents hold the word, each with what stands around it. */
async function findsOf(word: string): Promise<Map<string, string>> {
  const finds = new Map<string, string>();
  for (let cursor = "0", first = true; first || cursor !== "0"; first = false) {
    const [next, keys] = await redis.scan(cursor, "COUNT", 1_000);
    cursor = next;
    for (const key of keys) {
      const text = `${key} ${await contentOf(key)}`;
      const at = text.indexOf(word);
      if (at >= 0) finds.set(key, text.slice(Math.max(0, at - 100), at + 100));
    }
  }
  return finds;
}

async function filesWith(word: string): Promise<string[]> {
  const names = await readdir(blobs, { recursive: true, withFileTypes: true });
  const files = names
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
  const texts = await Promise.all(
    files.map(async (path) => `${path} ${await readFile(path, "utf8")}`),
  );
  return texts.filter((text) => text.includes(word)).map((text) => text.slice(0, 300));
}

/** Where the words of the person are before the deletion: keys without numbers of cells and ids. */
const withText = [
  "cell:approval:*.*:*",
  "cell:cards:*.*",
  "cell:ev:*.*",
  "cell:files:*.*",
  "cell:h:*.*",
  "cell:in:*.*",
  "cell:letters",
  "cell:ob:*.*",
  "cell:parked:*.*:*",
  "cell:said:*.*:*",
  "cell:state:*.*",
  "larkline:look:worker:name:*:*",
  "{larkline:memory:*}:of:*",
  "{larkline:runs:*}:list",
  "{larkline}:names",
];

/** The record of the deletion itself. */
const ofDeletion = "{larkline}:audit";
/** Where docs/data.md says that ids of the person stay after it. What `ends` goes by itself, key by key. */
const withIds = new Map<string, "ends" | "is trimmed">([
  ["cell:audit", "is trimmed"],
  [ofDeletion, "is trimmed"],
  ["cell:names", "ends"],
  ["cell:record:*", "ends"],
  ["larkline:look:worker:shown:*:*", "ends"],
  ["cell:seen:*.*:*:*", "ends"],
  ["cell:seen:*.*:*:unsent", "ends"],
  ["cell:seen:*.*:*:queued-*", "ends"],
  ["{larkline:budget}:charge:*", "ends"],
  ["{larkline:budget}:tokens:person:month", "ends"],
  ["{larkline:rate:*}:bucket:chat:*:second", "ends"],
]);

/** What a key is of: its name without numbers of cells, ids and names of people and chats. */
function familyOf(key: string): string {
  return key
    .replace(/\{?larkline:(?:trace:)?\d+\}/, "cell")
    .replaceAll(/(?:cli|ou|oc|om|on)_[\w-]+/g, "*")
    .replace(/(?<=:(?:charge|record|of):).*/, "*")
    .replace(/(?<=runs:)\d+/, "*")
    .replace(/\d{4}-\d\d$/, "month")
    .replaceAll(/[0-9a-f]{16,}/g, "*");
}

async function keptFamilies(words: readonly string[]): Promise<string[]> {
  const finds = await Promise.all(words.map(findsOf));
  return [...new Set(finds.flatMap((found) => [...found.keys()].map(familyOf)))].toSorted();
}

it(
  "AT-16: nothing that a person has written is anywhere after a deletion, and of their ids what the docs say",
  { timeout: 240_000 },
  async () => {
    const { feishu, appId } = system;
    const { openId, unionId } = feishu.addUser({ name: `Ann ${marker}` });
    const ann: Writer = {
      openId,
      chatId: feishu.addChat({ type: "p2p", members: [openId] }).chatId,
    };
    const ben = feishu.addUser({ name: "Ben" }).openId;
    const team = feishu.addChat({ type: "group", name: "Team", members: [openId, ben] }).chatId;
    const inTeam = (of: string): Writer => ({ openId: of, chatId: team });
    const direct = `${appId}.${ann.chatId}`;
    const ids = [openId, ann.chatId];

    const remember = (about: string): string =>
      `call remember ${JSON.stringify({ text: `${marker} is for ${about}`, about })}`;
    const writeFile = `call write_file ${JSON.stringify({ path: "notes.md", content: marker })}`;
    // Notes, files of the working folder, answered turns, a call, a file, settings, a summary of older messages.
    await system.ask(
      ann,
      `${marker} notes\n${remember("me")}\n${remember("chat")}\n${writeFile}`,
      patienceMs,
    );
    // A question to the person, and their answer.
    const asking = await send(system, ann, {
      text: `ask\ncall ask_person {"question":"${marker}?"}`,
    });
    await untilAsked(system, ann.chatId);
    await send(system, ann, { text: `${marker} is my answer` });
    expect(await answerTo(system, asking, patienceMs)).toContain(`${marker} is my answer`);
    await system.ask(ann, `${marker}\ncall note_once {"key":"${marker} ${large}"}`, patienceMs);
    await answerTo(
      system,
      await send(system, ann, {
        file: { name: `${marker}.txt`, bytes: Buffer.from(`the file ${marker}`) },
      }),
      patienceMs,
    );
    await system.ask(ann, "/model anthropic/small", patienceMs);
    for (let number = 1; number <= 5; number += 1) {
      await system.ask(
        ann,
        `${marker} ${number}\n${"many words that nobody reads ".repeat(70)}`,
        patienceMs,
      );
    }
    expect(
      system.model.requests.some(({ messages }) =>
        messages[0]?.text.includes(`They spoke of ${marker}`),
      ),
    ).toBe(true);
    // In a group with another person.
    await answerTo(
      system,
      await send(system, inTeam(openId), {
        text: `${marker} in the group\n${remember("chat")}\n${writeFile}`,
        mention: true,
      }),
      patienceMs,
    );
    // Not for the bot, which reads along.
    await send(system, inTeam(openId), { text: `${marker} is overheard` });
    await answerTo(
      system,
      await send(system, inTeam(ben), { text: "Ben in the group", mention: true }),
      patienceMs,
    );
    expect(JSON.stringify(system.model.requests.at(-1)?.messages)).toContain(
      `${marker} is overheard`,
    );
    // Messages that wait behind a question whether to run them.
    const createdAtMs = Date.now() - 3_600_000;
    await send(system, ann, { text: `late ${marker}`, createdAtMs });
    await send(system, inTeam(openId), {
      text: `late ${marker} in the group`,
      mention: true,
      createdAtMs,
    });
    // Approvals that wait, and a message behind one.
    await send(system, ann, { text: `ask ${marker}\ncall ask_once {"key":"${marker}"}` });
    await untilAsked(system, ann.chatId, 2);
    await send(system, inTeam(openId), {
      text: `ask ${marker} in the group\ncall ask_once {"key":"${marker}"}`,
      mention: true,
    });
    await untilAsked(system, team, 2);
    await send(system, ann, { text: `waiting ${marker}` });
    // What was given up; jobs that failed; a reply that cannot be sent.
    const own = connectRedis(system.redis.url);
    const letters = new DeadLetters({ redis: own });
    const store = new SessionStore({ redis: own });
    const [queued] = await store.waiting(direct, 1);
    if (queued === undefined) throw new Error("nothing waits");
    const { message } = queued;
    for (const session of [direct, `${appId}.${team}`]) {
      const about = {
        id: `turn:${session}`,
        session,
        app: appId,
        messageId: message.id,
        reason: "its runs crashed",
        atMs: 1,
      };
      await letters.add({ v: 1, kind: "message", ...about, message: { ...message, session } });
    }
    const queue = new Queue("turns", { connection: own as never, prefix: "{larkline}" });
    await queue.add("turn", { v: 1, session: direct, gen: "no number" }, { jobId: `${direct}-99` });
    await vi.waitUntil(async () => (await queue.getFailedCount()) > 0, { timeout: patienceMs });
    await queue.close();
    const endOutage = feishu.faults.add({
      match: { method: "POST", path: /im\/v1\/messages/ },
      times: 10_000,
      action: { kind: "respond", status: 503 },
    });
    await store.outbox.push(
      {
        v: 1,
        id: "unsent",
        uuid: "unsent",
        session: direct,
        target: { app: appId, chatId: ann.chatId, messageId: message.id, inThread: false },
        text: `unsent ${marker}`,
        createdAtMs: Date.now(),
        attempts: 0,
        uncertainSinceMs: 0,
      },
      "unsent",
    );

    // All of it is there, or what follows would find nothing in any case.
    expect(await keptFamilies([marker])).toEqual(withText);
    // The place that a message took in its rate lasts a second or so; it is taken again with each try to send.
    const before = [...withIds.keys()].filter((family) => family !== ofDeletion);
    await vi.waitFor(
      async () => expect(await keptFamilies(ids)).toEqual(expect.arrayContaining(before)),
      patienceMs,
    );
    expect((await filesWith(marker)).length).toBeGreaterThanOrEqual(2);

    const env = { REDIS_URL: system.redis.url, BLOB_DIR: blobs };
    const args = ["people", "delete", openId, "--app", appId, "--yes", "--lang", "en"];
    const deleted = await runApp({ file: "apps/cli/src/main.ts", args }, env, patienceMs);
    expect(deleted).toMatchObject({
      code: 0,
      output: expect.stringContaining("Deleted: 1 ") as string,
    });

    expect([...(await findsOf(marker))]).toEqual([]);
    expect(await filesWith(marker)).toEqual([]);
    expect([...(await findsOf(unionId))]).toEqual([]);
    for (const word of ids) {
      for (const [key, text] of await findsOf(word)) {
        const family = familyOf(key);
        expect([...withIds.keys()], text).toContain(family);
        // -1: it never ends. The place in a rate, which lasts a second, may have ended since it was found (-2).
        if (withIds.get(family) === "ends") expect(await redis.pttl(key), key).not.toBe(-1);
      }
    }
    endOutage();
    await closeRedis(own);
    // The person is new to the bot, and Ben is not.
    expect(await system.ask(ann, "again", patienceMs)).toContain("[again]");
    expect(JSON.stringify(system.model.requests.at(-1)?.messages)).not.toContain(marker);
    const bens = await send(system, inTeam(ben), {
      text: "Ben in the group, again",
      mention: true,
    });
    expect(await answerTo(system, bens, patienceMs)).toBe("Fine.");
    const { messages } = system.model.requests.at(-1) ?? {};
    expect(JSON.stringify(messages)).toContain("Ben in the group");
    expect(JSON.stringify(messages)).not.toContain(marker);
  },
);
