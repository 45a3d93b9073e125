import { fileURLToPath } from "node:url";
import { createClient, type RunEvent } from "@larkline/sdk";
import { EventLog } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import type { ModelScript, NormalisedMessage } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { archiveText } from "../fixtures/large-tools.ts";
import { chat } from "../system/chat-stream.ts";
import { startSystem, type System } from "../system/system.ts";

/** Most characters of one result that a model gets here. */
const maxResultChars = 20_000;
/** Above what a runner puts into its answer as a whole, and below: one is kept by the runner, one by the worker. */
const sizes = [300_000, 150_000];
/** The part of a shortened result that tells how to read the rest. */
const hint = /from (\d+) on\. Read them with read_result, handle "([^"]+)"/;

/** What the scripted model has read, by size of the archive. */
interface Read {
  shortened: string;
  handle: string;
  offset: number;
  page: string;
}

let system: System;
const reads = new Map<number, Read>();

function resultsIn(messages: readonly NormalisedMessage[]): string[] {
  return messages.flatMap(({ results }) => results.map(({ content }) => content));
}

/** Reads the archive, then one page of what was left out, and says nothing of either. */
const reader: ModelScript = ({ messages }) => {
  const question =
    messages.findLast(({ role, text }) => role === "user" && text !== "")?.text ?? "";
  const characters = Number(/\d+/.exec(question)?.[0]);
  const [shortened, page] = resultsIn(messages);
  if (shortened === undefined) {
    return { calls: [{ name: "read_archive", arguments: { characters } }] };
  }
  const [, offset = "", handle = ""] = hint.exec(shortened) ?? [];
  if (page === undefined) {
    return { calls: [{ name: "read_result", arguments: { handle, offset: Number(offset) } }] };
  }
  reads.set(characters, { shortened, handle, offset: Number(offset), page });
  return { text: "I have read it." };
};

beforeAll(async () => {
  system = await startSystem({
    script: reader,
    env: {
      RUNNER_TOOLS: fileURLToPath(new URL("../fixtures/large-tools.ts", import.meta.url)),
      LOG_LEVEL: "debug",
    },
    config: { limits: { maxResultChars } },
  });
});
afterAll(async () => await system.close());

function readOf(characters: number): Read {
  const read = reads.get(characters);
  if (read === undefined) throw new Error(`nothing of ${characters} characters was read`);
  return read;
}

/** What processes have said, whole: none of them has said so much that its beginning is forgotten. */
function outputs(): string[] {
  const all = [...system.ingresses, ...system.workers, ...system.runners].map(({ output }) =>
    output(),
  );
  for (const output of all) expect(output.length).toBeLessThan(20_000);
  return all;
}

describe.each(sizes)("a tool result of %d characters", (characters) => {
  const frames: { text: string; types: string[] } = { text: "", types: [] };

  beforeAll(async () => {
    const stream = await chat(
      system.ingresses[0]?.url ?? "",
      `s${characters}`,
      `read ${characters}`,
    );
    frames.types = (await stream.end()).map(({ type }) => type);
    frames.text = stream.text();
  });

  it("EE-40: reaches the model as head, tail and handle, and the model reads on from where the head ends", () => {
    const { shortened, handle, offset, page } = readOf(characters);
    const whole = archiveText(characters);
    expect(shortened.length).toBeLessThan(maxResultChars + 500);
    expect(handle).toMatch(/^res_[\w-]{20,}$/);
    expect(shortened.startsWith(whole.slice(0, offset))).toBe(true);
    expect(offset).toBeGreaterThan(maxResultChars / 2);
    const tail = shortened.slice(shortened.indexOf("]\n", offset) + 2);
    expect(tail.length).toBeGreaterThan(maxResultChars / 10);
    expect(whole.endsWith(tail)).toBe(true);
    const [, text = "", from, to, total] =
      /^([^]*)\n\[Characters (\d+) to (\d+) of (\d+);/.exec(page) ?? [];
    expect(text).toBe(whole.slice(offset, offset + text.length));
    expect(text.length).toBeGreaterThan(maxResultChars / 2);
    expect([from, to, total].map(Number)).toEqual([offset, offset + text.length, characters]);
  });

  it("EE-40: has its place in what is stored, and a handle for those who ask over HTTP", async () => {
    const { handle } = readOf(characters);
    const redis = connectRedis(system.redis.url);
    const stored = await new EventLog({ redis, namespace: "larkline" }).read(
      `api.s${characters}`,
      0,
      1_000,
    );
    await closeRedis(redis);
    const run = createClient({ url: system.ingresses[0]?.url ?? "" }).attach(
      stored[0]?.runId ?? "",
    );
    const shown: RunEvent[] = [];
    for await (const event of run.stream()) shown.push(event);
    const results = [stored.map(({ event }) => event), shown].map((events) =>
      events.flatMap((event) => (event.type === "tool_result" ? [event] : [])),
    );
    const [large, small] = [{ truncated: true }, { truncated: false, storedPath: "" }];
    expect(results).toMatchObject([
      [{ ...large, storedPath: handle }, small],
      [
        { ...large, storedPath: "", handle: expect.stringMatching(/^result_\d+$/) },
        { ...small, handle: "" },
      ],
    ]);
  });

  it("EE-41: is sent without its handle to those who follow the run, and no process logs it", () => {
    const { handle } = readOf(characters);
    const round = ["tool_call", "tool_result"];
    expect(frames.types).toEqual(["user_message", ...round, ...round, "assistant", "done"]);
    expect(frames.text).toContain("line 0 of the arc");
    expect(frames.text).not.toMatch(/storedPath|res_/);
    for (const text of [frames.text, ...outputs()]) expect(text).not.toContain(handle);
  });
});

describe("in a chat", () => {
  it("EE-41: no card says where a large result is stored", async () => {
    reads.clear();
    const [characters = 0] = sizes;
    const person = system.person("Ann");
    expect(await system.ask(person, `read ${characters}`, 30_000)).toBe("I have read it.");
    const { handle } = readOf(characters);
    const shown = JSON.stringify(system.feishu.messages(person.chatId));
    expect(shown).toContain("read_archive");
    for (const text of [shown, JSON.stringify(system.feishu.apiCalls), ...outputs()]) {
      expect(text).not.toContain(handle);
      expect(text).not.toContain("storedPath");
    }
  });

  it("a handle of another conversation finds nothing", async () => {
    const [characters = 0] = sizes;
    const { handle } = readOf(characters);
    let told: string[] = [];
    system.model.setScript(({ messages }) => {
      told = resultsIn(messages);
      return told.length > 0
        ? { text: "no" }
        : { calls: [{ name: "read_result", arguments: { handle } }] };
    });
    await system.ask(system.person("Bob"), "read hers", 30_000);
    system.model.setScript(reader);
    expect(told).toEqual([expect.stringContaining("no stored result of that handle")]);
  });
});
