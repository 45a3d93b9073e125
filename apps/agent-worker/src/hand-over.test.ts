import { messageStop, toolCallDelta, type LlmBackend, type ModelRequest } from "@larkline/model";
import { turnIdOf } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { ClaimRefusedError } from "@larkline/store";
import { describe, expect, it } from "vitest";
import { checkEnds, repliedTo, survives } from "./crash.fixture.ts";
import {
  append,
  checkPairs,
  inbound,
  newWorld,
  outboxOf,
  runWakes,
  session,
  settle,
  type Differences,
  type World,
  instructionsOf,
} from "./turn-world.fixture.ts";

const usage = { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };

function asked({ messages }: ModelRequest): string {
  return textOf(messages.findLast(({ role }) => role === "user") ?? { role: "user", content: [] });
}

/** What the model calls in its first step for a message: `hand to expert`, `look, hand to expert`, ... */
const callNames: Readonly<Record<string, readonly [string, string]>> = {
  look: ["look", "{}"],
  expert: ["transfer_to_expert", '{"reason":"knows wine"}'],
  vault: ["transfer_to_vault", '{"reason":"curious"}'],
  back: ["transfer_to_default", '{"reason":"done"}'],
};

interface Seen {
  agent: string;
  tools: string[];
  text: string;
}

/** Does what the words of the message say, then answers with its own name. */
function obeying(seen: Seen[] = []): LlmBackend {
  return {
    async *stream(request): AsyncIterable<ModelChunk> {
      const { messages, tools = [] } = request;
      const system = instructionsOf(request);
      checkPairs(messages);
      const text = asked(request);
      seen.push({ agent: system, tools: tools.map(({ name }) => name), text });
      const words = text.split(/[^a-z]+/).filter((word) => word in callNames);
      if (messages.at(-1)?.role === "user" && words.length > 0) {
        for (const [index, word] of words.entries()) {
          const [name = "", given = ""] = callNames[word] ?? [];
          yield toolCallDelta(index, { id: "", name, arguments: given });
        }
        yield messageStop("tool_use", usage);
        return;
      }
      yield { type: "text_delta", text: `${system} answers` };
      yield messageStop("end_turn", usage);
    },
  };
}

const agents = {
  default: { handoffs: ["expert", "vault"] },
  expert: { handoffs: ["default"], tools: ["echo"], description: "Knows wine." },
  vault: { people: ["ou_boss"], roles: ["staff"] },
};

function house(seen: Seen[] = [], fields: Partial<Differences> = {}): Differences {
  const configured = { agents, roles: { staff: { groups: ["g_staff"] } } };
  const agent = {
    handoffs: [
      { agent: "expert", context: "all" as const },
      { agent: "vault", context: "all" as const },
    ],
  };
  return {
    backend: obeying(seen),
    configured,
    agent: { ...agent, instructions: "default" },
    ...fields,
  };
}

async function eventsOf({ events }: World): Promise<EngineEvent[]> {
  return (await events.read(session, 0, 10_000)).map(({ event }) => event);
}

async function say(
  world: World,
  text: string,
  differences: Differences,
  fields: object = {},
): Promise<string> {
  const { eventSeq } = await world.store.summary(session);
  await append(world, inbound(`om_${text}_${eventSeq}`, text, fields));
  await settle(world, differences);
  const records = await world.events.read(session, eventSeq, 10_000);
  const end = records.findLast(
    ({ event }) => event.type === "done" || event.type === "error",
  )?.event;
  return end?.type === "done"
    ? (end.reply ?? end.final)
    : end?.type === "error"
      ? `error ${end.code}`
      : "nothing";
}

describe("a hand-over in a session", () => {
  it("AT-6: survives a crash at every write: no trace, or the next agent answers, once", async () => {
    await survives({
      differences: () => house(),
      messages: [inbound("om_1", "hand to expert"), inbound("om_2", "and now?")],
      check: async (world) => {
        const changes = (await eventsOf(world)).filter(({ type }) => type === "agent_changed");
        expect(changes).toMatchObject([{ from: "default", to: "expert", reason: "handoff" }]);
        const history = await world.store.history(session);
        const made = history.filter(
          (message) => message.role === "tool" && message.handoff !== undefined,
        );
        expect(made).toHaveLength(1);
        expect(history.filter(({ role }) => role === "assistant").map(textOf)).toEqual([
          "",
          "expert answers",
          "expert answers",
        ]);
        expect((await world.store.summary(session)).settings).toEqual({
          agent: { from: "default", to: "expert" },
        });
        await checkEnds(world, [1, 2]);
        expect(await repliedTo(world)).toEqual(["om_1", "om_2"]);
      },
    });
  });

  it("AT-6: survives a crash at every write with another call in its step", async () => {
    await survives({
      differences: () => house(),
      messages: [inbound("om_1", "look, hand to expert")],
      check: async (world) => {
        const events = await eventsOf(world);
        expect(events.filter(({ type }) => type === "agent_changed")).toHaveLength(1);
        const results = events.flatMap((event) =>
          event.type === "tool_result" ? [event.toolName] : [],
        );
        expect(results).toEqual(["look", "transfer_to_expert"]);
        await checkEnds(world, [1]);
      },
    });
  });

  it("AT-7: the next messages go to the active agent, with its own instructions and tools, until it hands back", async () => {
    const world = newWorld();
    const seen: Seen[] = [];
    const differences = house(seen);
    expect(await say(world, "hand to expert", differences)).toBe("expert answers");
    expect(await say(world, "hello", differences)).toBe("expert answers");
    expect(seen.map(({ agent }) => agent)).toEqual(["default", "expert", "expert"]);
    expect(seen[0]?.tools).toEqual(["echo", "pay", "look", "read_result", "transfer_to_expert"]);
    expect(seen[1]?.tools).toEqual(["echo", "read_result", "transfer_to_default"]);
    const speakers = (await world.events.read(session, 0, 1_000)).filter(
      ({ event }) => event.type === "turn_start",
    );
    expect(speakers.map(({ agent }) => agent)).toEqual(["default", "expert", "expert"]);
    expect(await say(world, "back", differences)).toBe("default answers");
    expect((await world.store.summary(session)).settings).toEqual({});
    expect(await say(world, "hello", differences)).toBe("default answers");
    expect((await outboxOf(world)).map(({ text }) => text)).toEqual([
      "expert answers",
      "expert answers",
      "default answers",
      "default answers",
    ]);
  });

  it("AT-7: /agent lists and changes who answers, /new returns to the first agent", async () => {
    const world = newWorld();
    const differences = house();
    const order = async (name: "agent" | "new" | "model", argument = "", fields: object = {}) =>
      await say(world, `/${name}`, differences, {
        command: { name, argument },
        language: "en",
        ...fields,
      });
    expect(await order("agent")).toMatch(
      /^Who answers: `default`\n\n.*\n- `default`\n- `expert`: Knows wine\.$/,
    );
    expect(await order("agent", "vault")).toContain("There is no agent “vault” to choose here.");
    expect(await order("agent", "expert")).toBe("The agent expert answers from now on.");
    expect(await say(world, "hello", differences)).toBe("expert answers");
    expect(await order("model")).toContain("test/model");
    expect(await order("agent", "default")).toBe("The agent default answers from now on.");
    expect(await say(world, "hello", differences)).toBe("default answers");
    await order("agent", "expert");
    await order("new");
    expect((await world.store.summary(session)).settings).toEqual({});
    expect(await say(world, "hello", differences)).toBe("default answers");
    const changes = (await eventsOf(world)).filter((event) => event.type === "agent_changed");
    expect(changes.map(({ from, to, reason }) => [from, to, reason])).toEqual([
      ["default", "expert", "person"],
      ["expert", "default", "person"],
      ["default", "expert", "person"],
    ]);
    expect(await order("agent", "", { language: "zh" })).toContain("当前智能体");
  });

  it("AT-9: an agent for some people is neither offered to others, nor reached, nor chosen, nor inherited", async () => {
    const seen: Seen[] = [];
    const differences = house(seen);
    const stranger = newWorld();
    expect(await say(stranger, "open the vault", differences)).toBe("default answers");
    expect(seen[0]?.tools).not.toContain("transfer_to_vault");
    const refused = (await eventsOf(stranger)).find((event) => event.type === "tool_result");
    expect(refused).toMatchObject({ isError: true, code: "permission_denied" });
    expect(await say(stranger, "hello", differences, { agent: "vault" })).toBe(
      "error permission_denied",
    );
    expect(await stranger.store.history(session)).toHaveLength(4);

    const boss = newWorld();
    const sender = { id: "ou_boss" };
    expect(await say(boss, "open the vault", differences, { sender })).toBe("vault answers");
    expect(await say(boss, "hello", differences)).toBe("default answers");
    expect((await outboxOf(boss)).at(-1)?.text).toContain(
      "The agent vault does not answer you here, so default does.",
    );
    expect(await say(boss, "hello", differences, { sender })).toBe("vault answers");
  });

  it("AT-9: groups of the platform count, and a look-up that fails does not open anything", async () => {
    const member = house([], { groupsOf: async () => ["g_staff"] });
    expect(await say(newWorld(), "open the vault", member)).toBe("vault answers");
    const away = house([], { groupsOf: async () => await Promise.reject(new Error("away")) });
    expect(await say(newWorld(), "open the vault", away)).toBe("default answers");
  });

  it("AT-8: an agent that is gone returns the conversation, and the person gets a notice", async () => {
    const world = newWorld();
    await say(world, "hand to expert", house());
    const without = house([], {
      configured: { agents: { vault: {} } },
      agent: { handoffs: [], instructions: "default" },
    });
    expect(await say(world, "hello", without)).toBe("default answers");
    expect((await outboxOf(world)).at(-1)?.text).toContain(
      "The agent expert is not configured any more",
    );
    expect((await world.store.summary(session)).settings).toEqual({});
  });

  it("a message for another agent goes there", async () => {
    const world = newWorld();
    const differences = house();
    await say(world, "hand to expert", differences);
    const sender = { id: "ou_boss" };
    expect(await say(world, "hello", differences, { agent: "vault", sender })).toBe(
      "vault answers",
    );
    expect(await say(world, "hello", differences)).toBe("expert answers");
  });

  it("a session that was handed over is left to processes that know what that is", async () => {
    const world = newWorld();
    await say(world, "hand to expert", house());
    const { wakeGen = 0 } = await world.store.append(inbound("om_9", "hello"));
    const former = ["held-step", "put-off-step", "given-history", "run-options"];
    const claim = world.store.claim(session, wakeGen, "worker-0", { features: former });
    await expect(claim).rejects.toThrow(ClaimRefusedError);
    world.wakes.push(wakeGen);
    await runWakes(world, house());
    const [last] = (await world.events.read(session, 0, 1_000)).filter(
      ({ runId }) => runId === turnIdOf(session, 2),
    );
    expect(last?.agent).toBe("expert");
  });

  it("costs one write, and a turn without one costs none", async () => {
    const savesOf = async (text: string): Promise<number> => {
      const world = newWorld();
      let saves = 0;
      const save = world.store.save.bind(world.store);
      world.store.save = async (request) => {
        saves += 1;
        return await save(request);
      };
      await say(world, text, house());
      return saves;
    };
    expect(await savesOf("hello")).toBe(0);
    expect(await savesOf("hand to expert")).toBe(1);
  });
});
