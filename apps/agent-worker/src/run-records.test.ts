import { newTurn } from "@larkline/agent";
import { countIn, type RunLog, type RunRecord, usageBy } from "@larkline/store/operations";
import { silentLogger } from "@larkline/process/telemetry";
import type { InboundMessage } from "@larkline/protocol";
import { traceIdOf, traceparentOfMessage } from "@larkline/protocol/trace";
import { describe, expect, it, vi } from "vitest";
import { RunRecords, shownKeyOf } from "./run-records.ts";
import {
  append,
  inbound,
  newWorld,
  runTools,
  runWakes,
  servicesOf,
  session,
  type World,
} from "./turn-world.fixture.ts";

const patience = { timeout: 60_000 };

/** The records that workers of this world have written, the newest first. */
async function runsOf({ runLog }: World, count: number): Promise<RunRecord[]> {
  return await vi.waitFor(async () => {
    const { runs } = await runLog.page({ limit: 100 });
    expect(runs).toHaveLength(count);
    return runs;
  }, patience);
}

describe("names and counts", () => {
  it("are written for people and chats of the platform, asked for once where nothing tells them", async () => {
    const world = newWorld();
    const services = servicesOf(world);
    const asked: unknown[] = [];
    const chat = async (id: string) => {
      asked.push(id);
      return { name: "The Team", external: false, active: true, onlyBot: false };
    };
    const userNames = async (ids: readonly string[]) => {
      asked.push(ids);
      return new Map(ids.map((id) => [id, `Name of ${id}`]));
    };
    const apis = new Map([["cli_app", { chat, userNames }]]);
    const ended = async (...messages: InboundMessage[]) => {
      const records = new RunRecords({
        ...services,
        apis,
        timeZone: "UTC",
        logger: silentLogger,
        countMs: 1,
      });
      for (const message of messages) {
        records.began({ message });
        records.ended(
          { turn: newTurn({ seq: 1, message }, 1), model: "m", firstTextMs: undefined, version: 0 },
          "answered",
        );
      }
      return records;
    };
    const inTeam = {
      chatType: "group" as const,
      reply: {
        channel: "feishu" as const,
        app: "cli_app",
        chatId: "oc_team",
        messageId: "om_2",
        inThread: false,
      },
    };
    const first = await ended(
      inbound("om_1", "hi"),
      inbound("om_2", "hi", { ...inTeam, sender: { id: "ou_2", name: "Bob" } }),
    );
    const named = async () =>
      Object.fromEntries(await world.names.of(["ou_1", "ou_2", "oc_team", "oc_1"]));
    const expected = {
      ou_1: "Name of ou_1",
      ou_2: "Bob",
      oc_team: "The Team",
      oc_1: "Name of ou_1",
    };
    await vi.waitFor(async () => expect(await named()).toEqual(expected), patience);
    await first.close();
    expect(asked).toEqual([["ou_1"], "oc_team"]);
    // Another process finds them there.
    const second = await ended(inbound("om_3", "hi", { ...inTeam, sender: { id: "ou_1" } }));
    await vi.waitFor(
      async () => expect(countIn(await world.usage.newest("hour", 2), "answered")).toBe(3),
      patience,
    );
    await second.close();
    expect(asked).toHaveLength(2);
  });

  it("have what a helper has used once, with the run of the person's message", async () => {
    const world = newWorld();
    const records = new RunRecords({
      ...servicesOf(world),
      apis: new Map(),
      timeZone: "UTC",
      logger: silentLogger,
      countMs: 1,
    });
    const ended = (message: InboundMessage, inputTokens: number, tool: string): void => {
      const turn = newTurn({ seq: 1, message }, 1);
      const totals = { ...turn.totals, inputTokens, costUsd: inputTokens / 1_000 };
      const tools = [{ id: "c1", name: tool, state: "done" as const, startedAtMs: 1 }];
      const shown = { ...turn.shown, tools };
      records.ended(
        { turn: { ...turn, totals, shown }, model: "m", firstTextMs: undefined, version: 0 },
        "answered",
      );
    };
    const message = inbound("om_1", "hi");
    const of = {
      session,
      turnId: `${session}-1`,
      callId: "c1",
      as: "dig",
      path: ["default"],
      rootSteps: 1,
    };
    const child = `${session}~${"0".repeat(20)}`;
    ended(
      {
        ...message,
        session: child,
        reply: { channel: "none" },
        task: { ...of, rootTurnId: of.turnId, reply: message.reply },
      },
      10,
      "search",
    );
    ended(message, 30, "dig");
    await records.close();
    const buckets = await world.usage.newest("hour", 2);
    expect(countIn(buckets, "answered")).toBe(2);
    expect(countIn(buckets, "tokens")).toBe(30);
    expect(countIn(buckets, "nano")).toBe(30_000_000);
    // A tool has what all runs have used that called it, of any person.
    expect(usageBy(buckets, "tool").map(({ name, runs, tokens }) => [name, runs, tokens])).toEqual([
      ["dig", 1, 30],
      ["search", 1, 10],
    ]);
  });
});

describe("records of runs", () => {
  it("say how each run has ended, by ids and numbers, without what was said", async () => {
    const world = newWorld();
    const message = inbound("om_1", "the secret word", {
      createdAtMs: Date.now() - 5_000,
      sender: { id: "ou_ann" },
    });
    await append(world, message);
    await runWakes(world);
    const [run] = await runsOf(world, 1);
    expect(run).toEqual({
      turn: `${session}-1`,
      trace: traceIdOf(traceparentOfMessage(message)),
      message: "om_1",
      person: "ou_ann",
      agent: "default",
      model: expect.stringContaining("claude"),
      outcome: "answered",
      endedAtMs: expect.any(Number),
      ms: expect.any(Number),
      queuedMs: expect.any(Number),
      firstMs: expect.any(Number),
      steps: 1,
      input: 3,
      output: 2,
      usd: 0,
    });
    expect(run?.firstMs).toBeGreaterThanOrEqual(5_000);
    expect(run?.ms).toBeGreaterThanOrEqual(run?.firstMs ?? Number.POSITIVE_INFINITY);
    expect(JSON.stringify(run)).not.toContain("secret");
  });

  it("count the calls of a run by tool, and are written by the worker that ends it", async () => {
    const world = newWorld();
    world.outcomeOf = ({ arguments: given }) =>
      given.includes("2") ? { ok: false, error: "no" } : { ok: true, result: "yes" };
    await append(world, inbound("om_1", "tools please"));
    await runWakes(world);
    expect((await world.runLog.page({ limit: 1 })).runs).toEqual([]);
    await runTools(world);
    // Another process: it knows the turn from its checkpoint alone.
    await runWakes(world);
    const [run] = await runsOf(world, 1);
    expect(run).toMatchObject({
      steps: 2,
      tools: { echo: 2 },
      failedTools: { echo: 1 },
      outcome: "answered",
    });
  });

  it("name a run that has failed by its code", async () => {
    const world = newWorld();
    await append(world, inbound("om_1", "hi"));
    await runWakes(world, {
      backend: {
        async *stream() {
          yield {
            type: "error",
            code: "api_auth_error",
            message: "",
            suggestion: "",
            retryable: false,
            partial: false,
            vendor: { message: "no such key: sk-0123456789abcdef0123" },
          };
        },
      },
    });
    expect(await runsOf(world, 1)).toMatchObject([
      { outcome: "api_auth_error", steps: 0, problem: "no such key: [secret]" },
    ]);
  });

  it("have the first words of what was asked and of what failed, where the deployment keeps them", async () => {
    const world = newWorld();
    const records = new RunRecords({
      ...servicesOf(world),
      apis: new Map(),
      timeZone: "UTC",
      keepsQuestions: true,
      logger: silentLogger,
    });
    const message = inbound("om_1", `问题\n${"很".repeat(80)}`);
    const failed = { id: "c1", name: "wiki", state: "failed" as const, startedAtMs: 1 };
    const tools = [{ ...failed, output: "HTTP 503" }];
    const begun = newTurn({ seq: 1, message }, 1);
    const turn = { ...begun, shown: { ...begun.shown, tools } };
    records.ended({ turn, model: "m", firstTextMs: undefined, version: 0 }, "answered");
    await records.close();
    expect(await runsOf(world, 1)).toMatchObject([
      { asked: `问题 ${"很".repeat(57)}`, toolProblem: "HTTP 503" },
    ]);
  });

  it("wait for Redis, the newest of them, and make no turn wait", async () => {
    const { runLog } = newWorld();
    const world = newWorld();
    const services = servicesOf(world);
    let tries = 0;
    const log: Pick<RunLog, "append"> = {
      append: async () => {
        tries += 1;
        throw new Error("away");
      },
    };
    const records = new RunRecords({
      ...services,
      runLog: log,
      apis: new Map(),
      timeZone: "UTC",
      logger: silentLogger,
      flushMs: 1,
    });
    await append(world, inbound("om_1", "hi"));
    services.runs.ended = (run, outcome) => records.ended(run, outcome);
    await runWakes(world, { services: { runs: services.runs } });
    await vi.waitFor(() => expect(tries).toBeGreaterThan(0), patience);
    log.append = async (runs) => await runLog.append(runs);
    await records.close();
    expect((await runLog.page({ limit: 10 })).runs).toHaveLength(1);
  });
});

it("the run whose answer a message shows is known, for quotes", async () => {
  const world = newWorld();
  const records = new RunRecords({
    ...servicesOf(world),
    apis: new Map(),
    timeZone: "UTC",
    logger: silentLogger,
  });
  records.sent(`${session}-1`, ["om_a", "om_b"]);
  await records.close();
  for (const id of ["om_a", "om_b"]) {
    expect(await world.lookups.get(shownKeyOf("cli_app", id))).toBe(`${session}-1`);
  }
});
