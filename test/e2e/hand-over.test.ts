import { createClient } from "@larkline/sdk";
import { parseMessage } from "@larkline/protocol/views/chat-messages";
import { problemsOf } from "@larkline/protocol/views/conformance.fixture";
import { parseRunItem } from "@larkline/protocol/views/run-items";
import type { ModelScript, NormalisedRequest } from "@larkline/testkit";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { waitForAnswer } from "../system/answer.ts";
import { repeats, write } from "../system/answers.ts";
import { cardsOf } from "../system/card-watch.ts";
import { answerTo, groupOf, send, type Writer } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

let system: System;

/** Requests for an answer: who was asked, through which vendor's interface, and about which words of the person. */
let asked: { who: string; dialect: string; text: string; all: string[]; tools: string[] }[] = [];

function lastUser({ messages }: NormalisedRequest): string {
  return messages.findLast(({ role, text }) => role === "user" && text !== "")?.text ?? "";
}

/** Hands over to `<agent>` where the person says `hand to <agent>`, with another call for `and note <key>`; else says its name. */
const script: ModelScript = (request) => {
  const { messages, tools, dialect } = request;
  // Its instructions; below them stands the time.
  const [who = ""] = request.system.split("\n", 1);
  const text = lastUser(request);
  const names = tools.map(({ name }) => name);
  asked.push({ who, dialect, text, all: messages.map((message) => message.text), tools: names });
  const [, to = ""] = /hand to (\w+)/.exec(text) ?? [];
  const [, key] = /and note (\S+)/.exec(text) ?? [];
  const call = { name: `transfer_to_${to}`, arguments: '{"reason":"it is asked for"}' };
  if (names.includes(call.name) && (messages.at(-1)?.results.length ?? 0) === 0) {
    const note = { name: "note_once", arguments: JSON.stringify({ key, ms: 100 }) };
    return {
      text: "One moment.",
      calls: key === undefined ? [call] : [call, note],
      firstDelayMs: 150,
    };
  }
  return { text: `${who} answers`, firstDelayMs: 250 };
};

const config = {
  agents: {
    default: {
      instructions: "desk",
      handoffs: ["expert", { agent: "clerk", context: "last" }, "vault"],
    },
    expert: {
      instructions: "expert",
      model: "openai/gpt-5",
      tools: ["note_once"],
      handoffs: ["default"],
    },
    clerk: {
      instructions: "clerk",
      model: "openai-responses/gpt-5",
      handoffs: ["default"],
      description: "Files.",
    },
    vault: { instructions: "vault", people: ["ou_boss"] },
  },
};

beforeAll(async () => {
  system = await startSystem({ ingresses: 2, workers: 3, script, config, lines: true });
});
afterAll(async () => await system.close());

function clientOf(replica: 0 | 1 = 0) {
  return createClient({ url: system.ingresses[replica]?.url ?? "" });
}

async function all<T>(source: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const one of source) list.push(one);
  return list;
}

function askedAbout(text: string): string[] {
  return asked.filter((one) => one.text.startsWith(text)).map(({ who }) => who);
}

describe("a hand-over over HTTP", () => {
  it("is in every view, in the report, and changes who answers from then on", async () => {
    asked = [];
    const run = clientOf().run("hand to expert", { session: "views" });
    const [events, items, messages, result] = await Promise.all([
      all(run.stream()),
      all(run.items()),
      all(run.messages()),
      run.result(),
    ]);
    expect(askedAbout("hand to expert")).toEqual(["desk", "expert"]);
    const change = events.find((event) => event.type === "agent_changed");
    expect(change).toMatchObject({
      agent: "default",
      from: "default",
      to: "expert",
      reason: "handoff",
      context: "all",
    });
    const starts = events.filter((event) => event.type === "turn_start");
    expect(starts.map(({ agent, model }) => [agent, model])).toEqual([
      ["default", "claude-sonnet-4-6"],
      ["expert", "gpt-5"],
    ]);
    expect(events.find((event) => event.type === "done")).toMatchObject({
      final: "expert answers",
      agent: "expert",
    });
    expect(items.map(({ type }) => type)).toEqual([
      "message_output_item",
      "handoff_call_item",
      "handoff_output_item",
      "message_output_item",
    ]);
    for (const item of items) expect(parseRunItem(item)).toMatchObject({ ok: true });
    expect(items[2]).toMatchObject({ sourceAgent: "default", targetAgent: "expert" });
    const handed = messages.find(({ type }) => type === "HandoffMessage");
    expect(handed).toMatchObject({
      source: "default",
      target: "expert",
      content: "it is asked for",
    });
    for (const message of messages) {
      expect(problemsOf(message.type, message)).toEqual([]);
      expect(parseMessage(message)).toEqual({ ok: true, value: message });
    }
    expect(result).toMatchObject({ lastAgent: "expert", finalOutput: "expert answers" });
    const report = await fetch(`${system.ingresses[1]?.url}/v1/runs/${result.runId}`);
    expect(await report.json()).toMatchObject({
      agent: "default",
      last_agent: "expert",
      state: "done",
    });
    expect(await all(clientOf(1).attach(result.runId).items())).toEqual(items);

    expect((await clientOf(1).run("and now?", { session: "views" }).result()).finalOutput).toBe(
      "expert answers",
    );
    expect(new Set(askedAbout("and now?"))).toEqual(new Set(["expert"]));
  });

  it("to an agent that sees the last message alone shows it nothing else, in the requests of each vendor", async () => {
    asked = [];
    const client = clientOf();
    await client.run("a secret", { session: "last" }).result();
    await client.run("hand to clerk", { session: "last" }).result();
    const [clerk] = asked.filter(({ who }) => who === "clerk");
    expect(clerk).toMatchObject({
      dialect: "openai-responses",
      tools: expect.arrayContaining(["transfer_to_default"]),
    });
    expect(JSON.stringify(clerk?.all)).toMatch(
      /hand to clerk.*default has handed this over.*it is asked for/,
    );
    expect(JSON.stringify(clerk?.all)).not.toContain("a secret");
    const back = await client.run("hand to default", { session: "last" }).result();
    expect(back).toMatchObject({ lastAgent: "default", finalOutput: "desk answers" });
    expect(JSON.stringify(asked.at(-1)?.all)).toContain("a secret");
  });

  it("AT-9: to an agent for other people is not offered, and its name opens nothing", async () => {
    asked = [];
    const client = clientOf();
    const kept = await client.run("hand to vault", { session: "closed" }).result();
    expect(kept).toMatchObject({ lastAgent: "default", finalOutput: "desk answers" });
    expect(asked.flatMap(({ tools }) => tools)).not.toContain("transfer_to_vault");
    await expect(
      client.run("hello", { session: "direct", agent: "vault" }).result(),
    ).rejects.toMatchObject({
      code: "permission_denied",
    });
  });
});

/** The footer of the card that answers. */
async function footerOf(writer: Writer, text: string): Promise<string> {
  const written = await write(system, writer, text);
  await waitForAnswer(system.feishu, written.messageId, { timeoutMs: 80_000 });
  return JSON.stringify(cardsOf(system, written).at(-1));
}

describe("a hand-over in a chat", () => {
  it("AT-7: shows the agent that answers, and people choose and begin anew", async () => {
    const person = system.person("Ann");
    const told = async (text: string) => await answerTo(system, await write(system, person, text));
    expect(await footerOf(person, "hello")).not.toMatch(/expert · /);
    expect(await footerOf(person, "hand to expert")).toMatch(/expert · /);
    expect(await told("and now?")).toContain("expert answers");
    expect(await told("/status")).toContain("expert");
    expect(await told("/agent")).toMatch(/`expert`[^]*`default`[^]*`clerk`: Files\./);
    expect(await told("/智能体 clerk")).toContain("clerk");
    expect(await told("who is there")).toContain("clerk answers");
    await told("/new");
    expect(await told("who is there now")).toContain("desk answers");
  });

  it("AT-7: holds for everybody in a group", async () => {
    const { people } = groupOf(system, ["Bob", "Cai"]);
    const [bob, cai] = people;
    if (bob === undefined || cai === undefined) throw new Error("no people");
    const told = async (writer: Writer, text: string) =>
      await answerTo(system, await send(system, writer, { text, mention: true }));
    expect(await told(bob, "hand to expert")).toContain("expert answers");
    expect(await told(cai, "hello")).toContain("expert answers");
  });
});

describe("kill -9 of workers", () => {
  it("AT-6: leaves no trace of a hand-over or the next agent at work, and never makes it twice", async () => {
    asked = [];
    // From before the first request to after the last one of a turn.
    const kills = [0, 60, 120, 180, 240, 300, 360, 450];
    const rounds = kills.map(async (killMs, round) => {
      const keys = [0, 1, 2].map((chat) => `k${round}-${chat}`);
      return { killMs, keys };
    });
    for (const { killMs, keys } of await Promise.all(rounds)) {
      const runs = keys.map((key) =>
        clientOf().run(`hand to expert and note ${key}`, { session: key }),
      );
      const ids = Promise.all(runs.map(async (run) => await run.id()));
      const results = Promise.all(
        runs.map(async (run) => [await all(run.stream()), await run.result()] as const),
      );
      await ids;
      await new Promise((resolve) => setTimeout(resolve, killMs));
      const [doomed] = system.workers.splice(0, 1);
      await doomed?.kill();
      system.workers.push(await system.start("agent-worker"));
      for (const [events, result] of await results) {
        expect(result).toMatchObject({ lastAgent: "expert", finalOutput: "expert answers" });
        expect(events.filter(({ type }) => type === "agent_changed")).toHaveLength(1);
        expect(events.filter(({ type }) => type === "tool_result")).toHaveLength(2);
      }
      for (const key of keys) {
        const speakers = askedAbout(`hand to expert and note ${key}`);
        expect(speakers.join(" ")).toMatch(/^desk( desk)*( expert)+$/);
      }
    }
    expect(repeats(await system.recorded(), "once").repeated).toBe(0);
  });
});
