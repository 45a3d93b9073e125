import { messageStop, toolCallDelta, type LlmBackend, type ModelRequest } from "@larkline/model";
import { childSessionOf, turnIdOf } from "@larkline/protocol";
import type { Approval } from "@larkline/protocol/approval";
import { systemClock } from "@larkline/protocol/clock";
import { textOf } from "@larkline/protocol/content";
import type { EngineEvent } from "@larkline/protocol/event";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { SessionRetention } from "@larkline/store";
import { describe, expect, it } from "vitest";
import { sweepDeadlines } from "./background-jobs.ts";
import { checkEnds, repliedTo, runUntilCrash, survives } from "./crash.fixture.ts";
import { KeepingRound } from "./data-keeping.ts";
import { HelperReadiness } from "./agent.ts";
import { startOrders } from "./operator-orders.ts";
import {
  append,
  checkPairs,
  crashing,
  inbound,
  newWorld,
  runnerOf,
  outboxOf,
  runChildren,
  runWakes,
  servicesOf,
  session,
  settle,
  type Differences,
  type World,
  instructionsOf,
} from "./turn-world.fixture.ts";

const usage = { inputTokens: 10, outputTokens: 5, cacheReadTokens: 0, cacheCreationTokens: 0 };

interface Seen {
  agent: string;
  tools: string[];
  texts: string[];
}

/**
 * Calls what the last words of a person or an asker name: `dig(a); dig(b)` are two tasks in one step, `dig(dig(a))` is a
 * task for a helper of a helper, `dig(*9)` a task of nine letters, `look` and `echo` are tools. Answers with its name and its task.
 */
function obeying(seen: Seen[] = []): LlmBackend {
  return {
    async *stream(request: ModelRequest): AsyncIterable<ModelChunk> {
      const { messages, tools = [] } = request;
      const system = instructionsOf(request);
      checkPairs(messages);
      seen.push({
        agent: system,
        tools: tools.map(({ name }) => name),
        texts: messages.map(textOf),
      });
      const text = textOf(
        messages.findLast(({ role }) => role === "user") ?? { role: "user", content: [] },
      );
      const calls = callsIn(text);
      if (messages.at(-1)?.role === "user" && calls.length > 0) {
        for (const [index, call] of calls.entries()) yield toolCallDelta(index, call);
        yield messageStop("tool_use", usage);
        return;
      }
      const results = messages.flatMap(({ content }) =>
        content.flatMap((part) =>
          part.type === "tool_result" ? JSON.stringify(part.content) : [],
        ),
      );
      yield {
        type: "text_delta",
        text: `${system} did ${text}${results.length === 0 ? "" : `: ${results.join(" ")}`}`,
      };
      yield messageStop("end_turn", usage);
    },
  };
}

function callsIn(text: string): { id: string; name: string; arguments: string }[] {
  const calls = text.split("; ").map((one) => /^(dig|vault|look|echo|pay)\((.*)\)$/s.exec(one));
  return calls.flatMap((call) => {
    const [, name = "", task = ""] = call ?? [];
    const words = task.replace(/^\*(\d+)$/, (_all, count: string) => "a".repeat(Number(count)));
    return name === "" ? [] : [{ id: "", name, arguments: JSON.stringify({ task: words }) }];
  });
}

const link = (agent: string, as: string) => ({ agent, as, timeoutMs: 600_000 });

const agents = {
  default: {},
  digger: { tools: ["look", "echo", "pay"], helpers: [link("deeper", "dig")] },
  deeper: { tools: ["look", "echo"], helpers: [link("deepest", "dig")] },
  deepest: { tools: [], helpers: [link("bottom", "dig")] },
  bottom: { tools: [] },
  vault: { people: ["ou_boss"] },
};

function house(seen: Seen[] = [], fields: Partial<Differences> = {}): Differences {
  const agent = {
    instructions: "default",
    helpers: [link("digger", "dig"), link("vault", "vault")],
  };
  return { backend: obeying(seen), configured: { agents }, agent, ...fields };
}

async function eventsOf({ events }: World, of = session): Promise<EngineEvent[]> {
  return (await events.read(of, 0, 10_000)).map(({ event }) => event);
}

async function answerTo(
  world: World,
  text: string,
  differences: Differences,
  fields = {},
): Promise<string> {
  await append(world, inbound(`om_${text}`, text, fields));
  await settle(world, differences);
  const end = (await eventsOf(world)).findLast(({ type }) => type === "done" || type === "error");
  return end?.type === "done"
    ? (end.reply ?? end.final)
    : end?.type === "error"
      ? `error ${end.code}`
      : "nothing";
}

/** Every child was created once, has ended, and its asker has one outcome of it. */
async function checkChildren(world: World, count: number): Promise<void> {
  const children = await world.store.children(session);
  expect(children).toHaveLength(count);
  for (const child of children) {
    expect(child.session).toBe(childSessionOf(session, child.parentRunId, child.callId));
    expect(child).toMatchObject({ isOk: true, endedAtMs: expect.any(Number) });
    const events = await eventsOf(world, child.session);
    expect(events.filter(({ type }) => type === "done" || type === "error")).toHaveLength(1);
    expect((await world.store.summary(child.session)).state).toBe("idle");
    const history = await world.store.history(child.session);
    checkPairs(history);
    expect(history.filter(({ role }) => role === "user")).toHaveLength(1);
  }
}

describe("a helper", () => {
  it("works on its task in a session of its own, knows nothing else, and answers its asker", async () => {
    const world = newWorld();
    const seen: Seen[] = [];
    await answerTo(world, "a secret", house(seen));
    const answer = await answerTo(world, "dig(a); dig(b)", house(seen));
    expect(answer).toMatch(/digger did a.*digger did b/);
    await checkChildren(world, 2);
    const helpers = seen.filter(({ agent }) => agent === "digger");
    expect(helpers.map(({ texts }) => texts)).toEqual([["a"], ["b"]]);
    const [first] = await world.store.children(session);
    const records = await world.events.read(first?.session ?? "", 0, 100);
    expect(
      records.every(
        ({ parentRunId, agent }) => parentRunId === turnIdOf(session, 2) && agent === "digger",
      ),
    ).toBe(true);
    expect(records.map(({ event }) => event)).toContainEqual(
      expect.objectContaining({
        type: "teammate_message_received",
        from: "default",
        to: "digger",
        messageType: "task_assignment",
      }),
    );
    const asked = await eventsOf(world);
    expect(asked.filter(({ type }) => type === "tool_use")).toMatchObject([
      { helper: "digger" },
      { helper: "digger" },
    ]);
    expect(asked.filter(({ type }) => type === "teammate_message_received")).toMatchObject([
      { from: "digger", to: "default", messageType: "task_result" },
      { from: "digger", to: "default", messageType: "task_result" },
    ]);
  });

  it("AT-14: has its tokens and cost counted with those of its asker", async () => {
    const world = newWorld();
    await answerTo(world, "dig(dig(a))", house());
    const done = (await eventsOf(world)).find(({ type }) => type === "done");
    expect(done).toMatchObject({ totalInputTokens: 50, totalOutputTokens: 25, turnCount: 2 });
    await checkChildren(world, 2);
  });

  it("AT-11: survives a crash at every write: each child exists once, each asker gets one outcome", async () => {
    await survives({
      differences: () => house(),
      messages: [inbound("om_1", "dig(echo(a)); dig(b)")],
      check: async (world) => {
        await checkChildren(world, 2);
        await checkEnds(world, [1]);
        expect(await repliedTo(world)).toEqual(["om_1"]);
        const [reply] = await outboxOf(world);
        expect(reply).toBeUndefined();
      },
    });
  });

  describe("that is a team", () => {
    const members = ["writer", "critic"];
    const teamWorld = (end: object): Differences => {
      const teams = { panel: { members, select: "round_robin", end } };
      const helpers = [link("panel", "dig")];
      return {
        backend: obeying(),
        configured: { agents: { ...agents, writer: { tools: [] }, critic: { tools: [] } }, teams },
        agent: { instructions: "default", helpers },
      };
    };

    it("has its members speak in the helper's session, and its last contribution is the answer", async () => {
      const world = newWorld();
      const answer = await answerTo(
        world,
        "dig(a)",
        teamWorld({ mention: "did", from: ["critic"] }),
      );
      expect(answer).toContain("critic");
      await checkChildren(world, 1);
      const [child] = await world.store.children(session);
      expect(child).toMatchObject({ as: "dig", agent: "panel" });
      const events = await eventsOf(world, child?.session);
      const speakers = events.flatMap((event) =>
        event.type === "agent_changed" ? [event.to] : [],
      );
      expect(speakers.at(-1)).toBe("critic");
      expect(events.findLast(({ type }) => type === "done")).toMatchObject({ reason: "" });
      expect(events).toContainEqual(
        expect.objectContaining({ type: "teammate_message_received", from: "default" }),
      );
      const asked = await eventsOf(world);
      expect(asked.find(({ type }) => type === "tool_use")).toMatchObject({ helper: "panel" });
    });

    it("answers with what it has when it reaches its limit, and says so", async () => {
      const answer = await answerTo(newWorld(), "dig(a)", teamWorld({ messages: 2 }));
      expect(answer).toContain("The team has reached its limit");
      expect(answer).not.toContain("cancelled");
    });

    it("survives a crash at every write", async () => {
      await survives({
        differences: () => teamWorld({ mention: "did", from: ["critic"] }),
        messages: [inbound("om_1", "dig(a)")],
        check: async (world) => {
          await checkChildren(world, 1);
          await checkEnds(world, [1]);
          expect(await repliedTo(world)).toEqual(["om_1"]);
        },
      });
    });
  });

  it("AT-13: has people asked in the chat of its root, with the agents that it works for", async () => {
    const world = newWorld();
    const asked: Approval[] = [];
    world.word = (approval) => {
      asked.push(approval);
      return "approve";
    };
    expect(await answerTo(world, "dig(pay(a))", house())).toContain("digger did pay(a)");
    const [child] = await world.store.children(session);
    expect(asked).toMatchObject([
      {
        session: child?.session,
        tool: "pay",
        chatId: "oc_1",
        requester: { id: "ou_1" },
        target: { channel: "feishu", chatId: "oc_1", messageId: "om_dig(pay(a))" },
        reason: expect.stringMatching(/^default > digger/),
      },
    ]);
    await checkChildren(world, 1);
  });

  describe("that waits for a person", () => {
    /** A helper of a helper pays, and people are asked about that. */
    const payers = { ...agents, deeper: { tools: ["pay"], helpers: [] } };
    const idle = (events: readonly EngineEvent[]) =>
      events.flatMap((event) =>
        event.type === "teammate_message_received" && event.messageType === "idle_notification"
          ? [event]
          : [],
      );

    it("reports to its asker what it waits for, and to the one above that, once each", async () => {
      const world = newWorld();
      const asked: Approval[] = [];
      world.word = (approval) => {
        asked.push(approval);
        return "approve";
      };
      await answerTo(world, "dig(dig(pay(a)))", house([], { configured: { agents: payers } }));
      const published = {
        messageType: "idle_notification",
        messageId: asked[0]?.id,
        payloadSize: 3,
      };
      expect(idle(await eventsOf(world))).toMatchObject([
        { from: "digger", to: "default", ...published },
      ]);
      const children = await world.store.children(session);
      const events = await Promise.all(
        children.map(async (child) => await eventsOf(world, child.session)),
      );
      expect(events.flatMap(idle)).toMatchObject([{ from: "deeper", to: "digger", ...published }]);
      await checkChildren(world, 2);
    });

    it("reports it once, whatever crashes", async () => {
      const asking = (): World => Object.assign(newWorld(), { word: () => "approve" as const });
      await survives({
        makeWorld: asking,
        differences: () => house(),
        messages: [inbound("om_1", "dig(pay(a)); dig(b)")],
        check: async (world) => {
          expect(idle(await eventsOf(world))).toHaveLength(1);
          await checkChildren(world, 2);
          await checkEnds(world, [1]);
        },
      });
    });

    it("has its asker woken when people have answered, before a model takes its time", async () => {
      const world = newWorld();
      world.word = () => "reject";
      const { backend = obeying(), ...rest } = house();
      const wakesBefore: number[] = [];
      const watched: LlmBackend = {
        async *stream(request) {
          const isAfter =
            instructionsOf(request) === "digger" && request.messages.at(-1)?.role === "tool";
          if (isAfter) wakesBefore.push(world.wakes.length);
          yield* backend.stream(request);
        },
      };
      await answerTo(world, "dig(pay(a))", { ...rest, backend: watched });
      expect(wakesBefore).toEqual([1]);
    });

    it("tells nothing while a worker of the version before may read it", async () => {
      const world = newWorld();
      world.word = () => "approve";
      const helperReadiness = Object.assign(new HelperReadiness(), { isReady: true });
      expect(
        await answerTo(world, "dig(pay(a))", house([], { services: { helperReadiness } })),
      ).toContain("did pay(a)");
      expect(idle(await eventsOf(world))).toEqual([]);
    });
  });

  it("AT-16: leaves nothing behind when its root is removed", async () => {
    const world = newWorld();
    const { redis, namespace } = world;
    const keysOfChildren = async (): Promise<string[]> =>
      await redis.keys(`{${namespace}:*}:*${session}~*`);
    await answerTo(world, "dig(echo(a)); dig(dig(b))", house());
    expect(await keysOfChildren()).not.toEqual([]);
    const retention = new SessionRetention({ redis, namespace });
    const { messages } = await world.store.summary(session);
    expect(await retention.erase(session, messages)).toBe("removed");
    expect(await keysOfChildren()).toEqual([]);
    expect(await redis.keys(`{${namespace}:*}:children:*`)).toEqual([]);
    expect(await retention.sessionsOf("cli_app", "ou_1")).toEqual([]);
  });

  it("leaves the sessions that its root keeps count of when it has ended, and Redis a day later", async () => {
    const world = newWorld();
    const { redis, namespace, store } = world;
    const keysOfChildren = async (): Promise<string[]> =>
      await redis.keys(`{${namespace}:*}:*${session}~*`);
    await answerTo(world, "dig(pay(a)); dig(dig(b))", house());
    expect(await redis.keys(`{${namespace}:*}:children:*`)).toEqual([]);
    expect(await store.childrenAtWork(session)).toEqual([]);
    await checkChildren(world, 3);
    // As the version before has left them.
    const [old] = await store.children(session);
    const { session: name = "", ...facts } = old ?? {};
    const [index = ""] = await redis.keys(`{${namespace}:*}:ended-children:*`);
    await redis.zrem(index, name);
    await redis.hset(index.replace(":ended-children:", ":children:"), name, JSON.stringify(facts));
    await checkChildren(world, 3);
    expect(await store.childrenAtWork(session)).toEqual([]);
    const keepers = async (laterMs: number): Promise<void> => {
      const services = servicesOf(world);
      const clock = { ...systemClock, now: () => systemClock.now() + laterMs };
      await new KeepingRound({ ...services, clock }, new AbortController().signal).expireHelpers();
    };
    const hourMs = 3_600_000;
    await keepers(23 * hourMs);
    await checkChildren(world, 3);
    await keepers(25 * hourMs);
    await keepers(25 * hourMs);
    expect(await store.children(session)).toEqual([]);
    expect(await keysOfChildren()).toEqual([]);
    expect(await redis.keys(`{${namespace}:*}:*child*`)).toEqual([]);
    expect(await new SessionRetention({ redis, namespace }).sessionsOf("cli_app", "ou_1")).toEqual([
      session,
    ]);
    // Its root is as it was.
    expect(await answerTo(world, "dig(c)", house())).toContain("digger did c");
  });

  it("makes room for others: a root keeps the latest five hundred that have ended", async () => {
    const world = newWorld();
    const { redis, namespace, store } = world;
    await answerTo(world, "dig(a)", house());
    const [first] = await store.children(session);
    const [index = ""] = await redis.keys(`{${namespace}:*}:ended-children:*`);
    const justAfter = `${await redis.zscore(index, first?.session ?? "")}.5`;
    const many = Array.from({ length: 501 }, (_, at) => [
      justAfter,
      `${session}~${at.toString(16)}`,
    ]).flat();
    await redis.zadd(index, ...many);
    await answerTo(world, "dig(b)", house());
    expect(await redis.zcard(index)).toBe(501);
    expect(await redis.keys(`{${namespace}:*}:*${first?.session}*`)).toEqual([]);
    expect(await store.children(session)).toHaveLength(1);
  });

  it("is not opened for a task of more than 200 KB", async () => {
    const world = newWorld();
    const answer = await answerTo(world, "dig(*200000)", house());
    expect(answer).toContain("too large");
    expect(await world.store.children(session)).toEqual([]);
  });

  it("does not answer the call of a later turn that has the same id", async () => {
    const { world } = await waitingBelow("dig(echo(a))");
    const { store } = world;
    const [child] = await store.childrenAtWork(session);
    const { session: of, ...facts } = child ?? expect.fail("no helper works");
    const gen = (await store.cancel(of, { reason: "stopped" })).wakeGen ?? 0;
    const { epoch = "" } = (await store.claim(of, gen, "worker-1")) ?? {};
    const used = {
      steps: 1,
      inputTokens: 0,
      outputTokens: 0,
      cacheReadTokens: 0,
      cacheCreationTokens: 0,
      costUsd: 0,
    };
    const outcome = { ok: false, error: "cancelled" } as const;
    const asker = {
      session,
      turnId: turnIdOf(session, 7),
      callId: facts.callId,
      outcome,
      used,
      facts,
    };
    const write = { epoch, seq: 1, history: [], events: [], more: false };
    expect(await store.commit({ session: of, ...write, asker })).toEqual({ state: "idle" });
    expect(await store.childrenAtWork(session)).toEqual([]);
    // Its own asker would have got it.
    expect((await store.summary(session)).state).toBe("suspended");
    expect(await store.deliver(session, facts.callId, outcome)).toMatchObject({ accepted: true });
  });

  it("AT-9: for other people is not offered, and refused when it is called", async () => {
    const seen: Seen[] = [];
    const answer = await answerTo(newWorld(), "vault(a)", house(seen));
    expect(answer).toContain("permission_denied");
    expect(seen[0]?.tools).not.toContain("vault");
    const boss: Seen[] = [];
    expect(
      await answerTo(newWorld(), "vault(a)", house(boss), { sender: { id: "ou_boss" } }),
    ).toContain("vault did a");
    expect(boss[0]?.tools).toContain("vault");
  });

  it("AT-15: is refused four deep, and the asker reads why", async () => {
    const world = newWorld();
    const answer = await answerTo(world, "dig(dig(dig(dig(a))))", house());
    expect(answer).toContain("Helpers may have helpers 3 deep at most");
    expect(await world.store.children(session)).toHaveLength(3);
  });

  it("AT-15: is refused as the seventeenth of a turn", async () => {
    const world = newWorld();
    const text = Array.from({ length: 17 }, (_, at) => `dig(${at})`).join("; ");
    const answer = await answerTo(world, text, house());
    expect(answer).toContain("16 helpers at most");
    expect(await world.store.children(session)).toHaveLength(16);
  });

  it("AT-15: has no further step when the message has none left, and the run ends with an honest answer", async () => {
    const world = newWorld();
    const configured = { agents, limits: { stepsPerTurn: 3 } };
    const answer = await answerTo(world, "dig(look(1)); dig(look(2))", house([], { configured }));
    expect(answer).toContain("maximum number of steps");
    const ends = await Promise.all(
      (await world.store.children(session)).map(async (child) =>
        (await eventsOf(world, child.session)).at(-2),
      ),
    );
    expect(ends).toContainEqual(
      expect.objectContaining({ type: "done", reason: "max_turns_reached" }),
    );
  });

  it("AT-12: is stopped with all below it before its asker says so", async () => {
    const world = newWorld();
    world.queues = { dispatch: async (_runner, jobs) => void world.dispatched.push(...jobs) };
    await append(world, inbound("om_1", "dig(dig(echo(a)))"));
    await runWakes(world, house());
    await runChildren(world, house());
    expect(world.dispatched).toHaveLength(1);
    const { wakeGen } = await world.store.cancel(session, {
      turnId: turnIdOf(session, 1),
      reason: "stopped",
    });
    if (wakeGen !== undefined) world.wakes.push(wakeGen);
    await settle(world, house());
    const [done] = (await eventsOf(world)).filter(({ type }) => type === "done");
    expect(done).toMatchObject({ reason: "cancelled", reply: expect.stringContaining("`dig`") });
    expect(world.stopped).toHaveLength(1);
    const children = await world.store.children(session);
    expect(children.map(({ isOk }) => isOk)).toEqual([false, false]);
  });

  it.each(["before", "after"] as const)(
    "AT-12: is stopped by a worker that dies %s any write of it",
    async (when) => {
      for (let at = 1, died = true; died; at += 1) {
        const world = newWorld();
        world.queues = { dispatch: async () => {} }; // the tool is never answered
        await append(world, inbound("om_1", "dig(dig(echo(a)))"));
        await runWakes(world, house());
        await runChildren(world, house());
        const { wakeGen } = await world.store.cancel(session, {
          turnId: turnIdOf(session, 1),
          reason: "stopped",
        });
        if (wakeGen !== undefined) world.wakes.push(wakeGen);
        died = await runUntilCrash(world, house(), crashing(world, at, when));
        await settle(world, house());
        await checkEnds(world, [1]);
        const children = await world.store.children(session);
        expect(children.map(({ isOk }) => isOk)).toEqual([false, false]);
      }
    },
  );

  it("is stopped when its asker is given up or reset", async () => {
    const world = newWorld();
    await append(world, inbound("om_1", "dig(echo(a))"));
    await runWakes(world, house());
    const { wakeGen } = await world.store.reset(session, {
      by: "ops",
      replyOf: async () => undefined,
    });
    if (wakeGen !== undefined) world.wakes.push(wakeGen);
    await settle(world, house());
    const [child] = await world.store.children(session);
    expect(child).toMatchObject({ isOk: false });
    expect((await eventsOf(world, child?.session)).at(-2)).toMatchObject({
      type: "done",
      reason: "cancelled",
    });
  });

  /** Two helpers, one below the other, wait for a tool; what is published to them from now on is in `published`. */
  async function waitingBelow(
    text: string,
  ): Promise<{ world: World; published: string[]; differences: Differences }> {
    const world = newWorld();
    world.queues = { dispatch: async () => {} }; // the tool is never answered
    const published: string[] = [];
    const cancels = {
      publish: async ({ session: of }: { session: string }) => void published.push(of),
      subscribe: async () => {},
    };
    const differences = house([], { services: { cancels } });
    await append(world, inbound("om_1", text));
    await runWakes(world, differences);
    await runChildren(world, differences);
    return { world, published, differences };
  }

  it("AT-12: stops at once at a reset of its root, and so do those below it", async () => {
    const { world, published, differences } = await waitingBelow("dig(dig(echo(a)))");
    const services = servicesOf(world, differences);
    const orders = startOrders(services);
    const act = { do: "reset", session } as const;
    expect(await services.orders.handIn({ v: 1, by: "ops", act }, 60_000)).toMatchObject({
      state: "done",
    });
    await orders.close();
    await runChildren(world, differences);
    expect(await world.store.childrenAtWork(session)).toEqual([]);
    const children = await world.store.children(session);
    expect(published).toEqual(expect.arrayContaining(children.map((child) => child.session)));
    expect(children.map(({ isOk }) => isOk)).toEqual([false, false]);
  });

  it("AT-12: stops at once when a turn is given up whose checkpoint cannot be read, and so do those below it", async () => {
    const { world, published, differences } = await waitingBelow("dig(a); dig(dig(echo(b)))");
    const [key = ""] = await world.redis.keys(`{${world.namespace}:*}:state:${session}`);
    expect(await world.redis.hset(key, "turn", "{{{")).toBe(0);
    const [gen = 0] = world.wakes.splice(0);
    const run = runnerOf(world, { ...differences, maxFailures: 1 });
    const job = { v: 1, session, gen } as const;
    await expect(run(job, new AbortController().signal)).rejects.toThrow("cannot be read");
    await run(job, new AbortController().signal);
    expect((await eventsOf(world)).some(({ type }) => type === "error")).toBe(true);
    await runChildren(world, differences);
    expect(await world.store.childrenAtWork(session)).toEqual([]);
    const dropped = (await world.store.children(session)).filter(({ isOk }) => isOk === false);
    expect(dropped).toHaveLength(2);
    expect(published).toEqual(expect.arrayContaining(dropped.map((child) => child.session)));
  });

  // 10 tokens each: two steps of the root, one of the helper that is reset, one of its sibling or its own helper.
  it.each([
    ["dig(echo(a)); dig(b)", 40],
    ["dig(dig(echo(a)))", 40],
  ])(
    "answers its asker with an error when an operator resets it (%s), and what it has used counts",
    async (text, inputTokens) => {
      const { world, published, differences } = await waitingBelow(text);
      const atWork = await world.store.childrenAtWork(session);
      const child =
        atWork.find(({ parentRunId }) => parentRunId === turnIdOf(session, 1))?.session ?? "";
      const services = servicesOf(world, differences);
      const orders = startOrders(services);
      const act = { do: "reset", session: child } as const;
      expect(await services.orders.handIn({ v: 1, by: "ops", act }, 60_000)).toMatchObject({
        state: "done",
      });
      expect(await services.orders.handIn({ v: 1, by: "ops", act }, 60_000)).toMatchObject({
        state: "done",
      });
      await orders.close();
      expect(published).toContain(child);
      await runWakes(world, differences);
      await settle(world, differences);
      await checkEnds(world, [1]);
      const results = (await eventsOf(world)).filter((event) => event.type === "tool_result");
      expect(results.filter(({ isError }) => isError)).toMatchObject([
        {
          output: expect.stringContaining(
            "an operator has reset the helper before it had an answer",
          ),
        },
      ]);
      const children = await world.store.children(session);
      expect(children.find((one) => one.session === child)).toMatchObject({
        isOk: false,
        endedAtMs: expect.any(Number),
      });
      const end = (await eventsOf(world)).findLast(({ type }) => type === "done");
      expect(end).toMatchObject({ reason: "", totalInputTokens: inputTokens });
    },
  );

  it("AT-12: stops at once when its asker is given up, and so do those below it", async () => {
    const { world, published, differences } = await waitingBelow("dig(a); dig(dig(echo(b)))");
    const [gen = 0] = world.wakes.splice(0);
    const claim = await world.store.claim(session, gen, "worker-1");
    await world.store.fail(session, claim?.epoch ?? "", "TypeError");
    world.wakes.push(gen);
    await runWakes(world, { ...differences, maxFailures: 1 });
    expect((await eventsOf(world)).some(({ type }) => type === "error")).toBe(true);
    await runChildren(world, differences);
    expect(await world.store.childrenAtWork(session)).toEqual([]);
    const dropped = (await world.store.children(session)).filter(({ isOk }) => isOk === false);
    expect(dropped).toHaveLength(2);
    expect(published).toEqual(expect.arrayContaining(dropped.map((child) => child.session)));
  });

  it("is cancelled once at its deadline, however often its asker is looked at", async () => {
    const { world, published, differences } = await waitingBelow("dig(echo(a))");
    let laterMs = 3_600_000;
    const clock = { ...systemClock, now: () => systemClock.now() + laterMs };
    const services = servicesOf(world, {
      ...differences,
      services: { ...differences.services, clock },
    });
    await sweepDeadlines(services);
    expect(published).toHaveLength(1);
    // No worker has had time for it.
    const wakes = world.childWakes.splice(0);
    await sweepDeadlines(services);
    laterMs += 60_000;
    await sweepDeadlines(services);
    expect(published).toHaveLength(1);
    world.childWakes.push(...wakes);
    await settle(world, differences);
    const [done] = (await eventsOf(world)).filter(({ type }) => type === "done");
    expect(done).toMatchObject({ final: expect.stringContaining("the helper was stopped") });
  });

  it("whose worker was replaced has none of its steps counted", async () => {
    const { world } = await waitingBelow("dig(echo(a))");
    const [child] = await world.store.childrenAtWork(session);
    const of = child?.session ?? "";
    const { epoch } = await world.store.summary(of);
    const [turnId, rootTurnId] = [turnIdOf(of, 1), turnIdOf(session, 1)];
    const step = { session: of, turnId, rootTurnId, step: 7 };
    expect(await world.store.countStep({ ...step, epoch: `${Number(epoch) - 1}` })).toBeUndefined();
    expect(await world.store.countStep({ ...step, step: 2, epoch })).toBe(2);
  });
});
