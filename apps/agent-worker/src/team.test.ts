import { messageStop, toolCallDelta, type LlmBackend, type ModelRequest } from "@larkline/model";
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
  runnerOf,
  session,
  settle,
  type Differences,
  type World,
} from "./turn-world.fixture.ts";

const usage = { inputTokens: 10, outputTokens: 2, cacheReadTokens: 0, cacheCreationTokens: 0 };

/** A request that a model has got: of whom, and what it read. */
interface Asked {
  agent: string;
  text: string;
  messages: string[];
  tools: string[];
  maxTokens: number | undefined;
}

interface Script {
  asked?: Asked[];
  /** What a member says the nth time that it is asked; a call for `call <tool>`. */
  says?: Record<string, string[]>;
  /** What the model that chooses says the nth time. */
  chooses?: string[];
  /** Called before an answer. */
  before?: (agent: string) => Promise<void>;
}

function agentIn({ system = "", systemBlocks = [] }: ModelRequest): string {
  const all = system === "" ? systemBlocks.map(({ text }) => text).join("\n") : system;
  return all.startsWith("You choose who speaks") ? "selector" : (all.split("\n")[0] ?? "");
}

/** Speaks for everybody; says `<agent> <n>` where the script has no words. */
function speaking({ asked = [], says = {}, chooses = [], before }: Script): LlmBackend {
  const counts = new Map<string, number>();
  return {
    async *stream(request): AsyncIterable<ModelChunk> {
      const { messages, tools = [], maxTokens } = request;
      const agent = agentIn(request);
      checkPairs(messages);
      expect(messages.at(-1)?.role).not.toBe("assistant");
      const all = messages.map((message) => textOf(message).trimEnd());
      asked.push({
        agent,
        text: all.at(-1) ?? "",
        messages: all,
        tools: tools.map(({ name }) => name),
        maxTokens,
      });
      await before?.(agent);
      const count = counts.get(agent) ?? 0;
      counts.set(agent, count + 1);
      const words =
        (agent === "selector" ? chooses : says[agent])?.[count] ?? `${agent} ${count + 1}`;
      const [, tool] = /^call (\S+)$/.exec(words) ?? [];
      if (tool !== undefined && messages.at(-1)?.role !== "tool") {
        yield toolCallDelta(0, { id: "", name: tool, arguments: '{"reason":"it is time"}' });
        yield messageStop("tool_use", usage);
        return;
      }
      yield { type: "text_delta", text: words };
      yield messageStop("end_turn", usage);
    },
  };
}

const agents = {
  writer: { description: "Writes.", tools: ["look"] },
  critic: { description: "Reads.", tools: [] },
  judge: { tools: [] },
  vault: { people: ["ou_boss"], tools: [] },
};

function house(team: object, script: Script = {}, fields: Partial<Differences> = {}): Differences {
  const panel = {
    members: ["writer", "critic", "judge"],
    select: "round_robin",
    end: { messages: 3 },
    ...team,
  };
  return { backend: speaking(script), configured: { agents, teams: { panel } }, ...fields };
}

async function eventsOf({ events }: World): Promise<EngineEvent[]> {
  return (await events.read(session, 0, 10_000)).map(({ event }) => event);
}

async function choicesIn(world: World): Promise<string[]> {
  return (await eventsOf(world)).flatMap((event) =>
    event.type === "agent_changed" ? [event.to] : [],
  );
}

async function endIn(world: World) {
  return (await eventsOf(world)).findLast((event) => event.type === "done");
}

async function say(
  world: World,
  text: string,
  differences: Differences,
  fields: object = {},
): Promise<void> {
  await append(world, inbound(`om_${text}`, text, { agent: "panel", ...fields }));
  await settle(world, differences);
}

describe("a team in a session", () => {
  it("AT-17: survives a crash at every write: no choice and no contribution twice", async () => {
    await survives({
      differences: () => house({}, { says: { critic: ["call look", "critic 1"] } }),
      messages: [inbound("om_1", "hello", { agent: "panel" })],
      check: async (world) => {
        expect(await choicesIn(world)).toEqual(["writer", "critic", "judge"]);
        const history = await world.store.history(session);
        const authors = history.flatMap((message) =>
          message.role === "user" ? [] : [message.agent],
        );
        expect(authors.filter((name) => name === "writer")).toHaveLength(1);
        expect(authors.at(-1)).toBe("judge");
        expect(await endIn(world)).toMatchObject({ reason: "team_limit", agent: "judge" });
        await checkEnds(world, [1]);
        expect(await repliedTo(world)).toEqual(["om_1"]);
      },
    });
  });

  it("AT-17: survives a crash at every write where a model chooses", async () => {
    await survives({
      differences: () => house({ select: "model" }, { chooses: ["judge", "writer"] }),
      messages: [inbound("om_1", "hello", { agent: "panel" })],
      check: async (world) => {
        const choices = await choicesIn(world);
        expect(choices).toHaveLength(3);
        const starts = (await eventsOf(world)).filter(({ type }) => type === "turn_start");
        expect(starts).toHaveLength(3);
        const history = await world.store.history(session);
        const said = history.flatMap((message) =>
          message.role === "assistant" ? [message.agent] : [],
        );
        expect(said).toEqual(choices);
        await checkEnds(world, [1]);
      },
    });
  });

  it("AT-17: a chosen speaker is stored before it is asked, and costs one write; a turn without a team costs none more", async () => {
    const savesOf = async (fields: object, text = "hello"): Promise<number> => {
      const world = newWorld();
      let saves = 0;
      const save = world.store.save.bind(world.store);
      world.store.save = async (request) => {
        saves += 1;
        return await save(request);
      };
      await say(world, text, house({}), fields);
      return saves;
    };
    expect(await savesOf({})).toBe(3);
    expect(await savesOf({ agent: "writer" })).toBe(0);
  });

  it("AT-19: shows each member the others' words as quotes, with its instructions and tools", async () => {
    const asked: Asked[] = [];
    const world = newWorld();
    const script = {
      asked,
      says: { writer: ["Hello\ncritic: APPROVED"], critic: ["call look", "Hm."] },
    };
    await say(world, "hello", house({ end: { messages: 3, mention: "APPROVED" } }, script));
    expect(asked.map(({ agent }) => agent)).toEqual(["writer", "critic", "critic", "judge"]);
    expect(asked[0]?.tools).toEqual(["look", "read_result"]);
    expect(asked[3]?.messages).toEqual([
      "hello",
      "writer:\n> Hello\n> critic: APPROVED",
      "critic:\n> Hm.",
    ]);
    expect(await endIn(world)).toMatchObject({
      reason: "team_limit",
      final: "judge 1",
      totalInputTokens: 40,
    });
    const [reply] = await outboxOf(world);
    expect(reply?.text).toContain("judge 1\n\nThe team has reached its limit");
  });

  it("AT-17: asks again what was no choice, three times in all, and then takes the next in order", async () => {
    const asked: Asked[] = [];
    const world = newWorld();
    const chooses = [
      "somebody",
      "writer and critic",
      "x".repeat(5_000),
      "Writer",
      "writer",
      "CRITIC.",
      "writer",
    ];
    await say(
      world,
      "hello",
      house({ select: "model", selector: { prompt: "Be fair." } }, { asked, chooses }),
    );
    expect(await choicesIn(world)).toEqual(["writer", "critic", "writer"]);
    const choices = asked.filter(({ agent }) => agent === "selector");
    expect(choices[1]?.text).toContain('You have answered "somebody". That names no candidate.');
    expect(choices[2]?.text).toContain("That names several candidates: writer, critic. Name one.");
    expect(choices.every(({ maxTokens, tools }) => maxTokens === 1_024 && tools.length === 0)).toBe(
      true,
    );
    const events = await eventsOf(world);
    expect(events.filter(({ type }) => type === "warning")).toMatchObject([
      { code: "speaker_not_chosen" },
    ]);
    // What choices have used counts with the step that follows.
    const ends = events.filter((event) => event.type === "turn_end");
    expect(ends[0]).toMatchObject({ inputTokens: 40, outputTokens: 8, attempts: 4 });
    expect(await endIn(world)).toMatchObject({ totalInputTokens: 10 * asked.length });
  });

  it("AT-17: a model that cannot choose does not stop a team", async () => {
    const world = newWorld();
    const failing: LlmBackend = {
      async *stream(request): AsyncIterable<ModelChunk> {
        if (agentIn(request) !== "selector") {
          return yield* speaking({}).stream(request, new AbortController().signal);
        }
        yield {
          type: "error",
          code: "api_auth_error",
          message: "no",
          suggestion: "",
          retryable: false,
          partial: false,
        };
      },
    };
    await say(
      world,
      "hello",
      house({ select: "model", end: { messages: 2 } }, {}, { backend: failing }),
    );
    expect(await choicesIn(world)).toEqual(["writer", "critic"]);
  });

  it("AT-17: hands over among its members alone, and ends without a hand-over", async () => {
    const asked: Asked[] = [];
    const world = newWorld();
    const says = { writer: ["call transfer_to_judge"] };
    await say(world, "hello", house({ select: "handoff", end: {} }, { asked, says }));
    expect(asked[0]?.tools).toEqual([
      "look",
      "read_result",
      "transfer_to_critic",
      "transfer_to_judge",
    ]);
    expect(await choicesIn(world)).toEqual(["writer", "judge"]);
    expect(await endIn(world)).toMatchObject({ reason: "", final: "judge 1", agent: "judge" });
    expect((await world.store.summary(session)).settings).toEqual({});
  });

  it("AT-18: ends where a member says the words, and at /stop while a model chooses", async () => {
    const world = newWorld();
    const end = { messages: 9, mention: "APPROVED", from: ["critic"] };
    await say(
      world,
      "hello",
      house({ end }, { says: { writer: ["APPROVED"], critic: ["Good. APPROVED"] } }),
    );
    expect(await endIn(world)).toMatchObject({
      reason: "",
      mention: "APPROVED",
      final: "Good. APPROVED",
    });

    const stopped = newWorld();
    const before = async (agent: string): Promise<void> => {
      if (agent !== "selector") return;
      await stopped.store.cancel(session, { reason: "stopped" });
      stopped.running.cancel(session, undefined);
    };
    await say(stopped, "hello", house({ select: "model" }, { before }));
    expect(await endIn(stopped)).toMatchObject({ reason: "cancelled" });
    expect(await choicesIn(stopped)).toEqual([]);
  });

  it("AT-9: what a person may not use is no candidate, and a team of such agents does not answer", async () => {
    const asked: Asked[] = [];
    const world = newWorld();
    const differences = house(
      { members: ["vault", "writer", "critic"], select: "model" },
      { asked, chooses: ["vault", "writer"] },
    );
    await say(world, "hello", differences);
    expect(await choicesIn(world)).toEqual(["writer", "critic", "writer"]);
    expect(asked.find(({ agent }) => agent === "selector")?.text).not.toContain("- vault");
    const boss = newWorld();
    await say(boss, "hello", house({ members: ["vault", "writer"], end: { messages: 1 } }), {
      sender: { id: "ou_boss" },
    });
    expect(await choicesIn(boss)).toEqual(["vault"]);
    const closed = newWorld();
    const others = { ...agents, safe: { people: ["ou_boss"] } };
    const shut = house({ members: ["vault", "safe"] });
    await say(closed, "hello", {
      ...shut,
      configured: {
        agents: others,
        teams: { panel: { members: ["vault", "safe"], select: "round_robin" } },
      },
    });
    expect((await eventsOf(closed)).find(({ type }) => type === "error")).toMatchObject({
      code: "permission_denied",
    });
  });

  it("is handed over to like an agent, and has the next messages", async () => {
    const world = newWorld();
    const differences = house(
      { end: { messages: 2 } },
      { says: { desk: ["call transfer_to_panel"] } },
      {
        agent: { instructions: "desk", handoffs: [{ agent: "panel", context: "last" }] },
      },
    );
    await say(world, "hello", differences, { agent: "default" });
    expect(await choicesIn(world)).toEqual(["panel", "writer", "critic"]);
    expect((await world.store.summary(session)).settings).toEqual({
      agent: { from: "default", to: "panel" },
    });
    const { wakeGen = 0 } = await world.store.append(
      inbound("om_2", "again", { agent: "default" }),
    );
    const former = ["held-step", "put-off-step", "given-history", "run-options", "hand-over"];
    await expect(
      world.store.claim(session, wakeGen, "worker-0", { features: former }),
    ).rejects.toThrow(ClaimRefusedError);
    world.wakes.push(wakeGen);
    await settle(world, differences);
    expect((await choicesIn(world)).slice(3)).toEqual(["writer", "critic"]);
  });

  it("continues with another member where one is not configured any more, and alone where the team is gone", async () => {
    for (const gone of ["member", "team"]) {
      const world = newWorld();
      const handsOff = new AbortController();
      const before = async (agent: string): Promise<void> => {
        if (agent === "critic") handsOff.abort();
      };
      await append(world, inbound("om_1", "hello", { agent: "panel" }));
      const gen = world.wakes.shift() ?? 0;
      await runnerOf(world, house({}, { before }))({ v: 1, session, gen }, handsOff.signal);
      const { critic, ...others } = agents;
      const panel = { members: ["writer", "judge"], select: "round_robin", end: { messages: 3 } };
      const configured =
        gone === "member"
          ? { agents: others, teams: { panel } }
          : { agents: { ...others, critic } };
      world.wakes.push(gen);
      await settle(world, { ...house({}), configured });
      expect(await choicesIn(world)).toEqual(
        gone === "member" ? ["writer", "critic", "writer", "judge"] : ["writer", "critic"],
      );
      await checkEnds(world, [1]);
    }
  });
});
