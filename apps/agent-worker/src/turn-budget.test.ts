import { startTurn, stepUse, type TurnModel } from "@larkline/agent";
import { createBudgetBook, type Budget } from "@larkline/agent/budgets";
import { type LlmBackend, messageStop } from "@larkline/model";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import { textOf } from "@larkline/protocol/content";
import type { ModelChunk, Usage } from "@larkline/protocol/model-stream";
import type { BudgetStore } from "@larkline/store";
import { openTestStores, replaced } from "@larkline/store/testing";
import { describe, expect, it, vi } from "vitest";
import { TurnBudget, type BudgetedRun } from "./turn-budget.ts";
import {
  append,
  checkHistory,
  checkPairs,
  Crash,
  crashing,
  echoing,
  inbound,
  newWorld,
  outboxOf,
  runnerOf,
  runTools,
  servicesOf,
  session,
  settle,
  type Differences,
  type World,
} from "./turn-world.fixture.ts";

/** 100 tokens and 1 cent a call. */
const usage: Usage = {
  inputTokens: 60,
  outputTokens: 20,
  cacheReadTokens: 15,
  cacheCreationTokens: 5,
};
const perCall = { tokens: 100, usd: 0.01 };
const noon = Date.parse("2096-11-22T04:00:00Z");

/** As `echoing`, but every answer says what it has used. */
const counting: LlmBackend = {
  async *stream(...given): AsyncIterable<ModelChunk> {
    for await (const chunk of echoing.stream(...given)) {
      yield chunk.type === "message_stop" ? { ...chunk, usage } : chunk;
    }
  },
};

function answering(text: string): LlmBackend {
  return {
    async *stream(): AsyncIterable<ModelChunk> {
      yield { type: "text_delta", text };
      yield messageStop("end_turn", usage);
    },
  };
}

const model: TurnModel = {
  info: { id: "m", contextWindow: 9_000, maxOutputTokens: 900 },
  costUsd: () => perCall.usd,
};

interface Budgeted {
  world: World;
  store: BudgetStore;
  /** What the processes do differently; `store` as one of them reaches it. */
  differences(store?: BudgetStore, backend?: LlmBackend): Differences;
  open(run: Omit<BudgetedRun, "signal">): TurnBudget;
  spent(): Promise<{ tokens: number; usd: number }>;
  eventTypes(code: string): Promise<number>;
  clock: { nowMs: number };
  /** Messages so far. */
  said: number;
  /** Model calls that came to their end. */
  calls(): number;
}

function budgeted(...budgets: Budget[]): Budgeted {
  const stores = openTestStores();
  const world = newWorld(stores);
  const clock = { nowMs: noon };
  const store = stores.budgets;
  const book = createBudgetBook({ timeZone: "Asia/Shanghai", budgets });
  let calls = 0;
  const counted = (backend: LlmBackend): LlmBackend => ({
    async *stream(...given) {
      for await (const chunk of backend.stream(...given)) {
        if (chunk.type === "message_stop") calls += 1;
        yield chunk;
      }
    },
  });
  // It waits for no retry.
  const ticking: Clock = {
    ...systemClock,
    now: () => clock.nowMs,
    after: (ms, work) => systemClock.after(ms / 100, work),
  };
  const differing = (seen: BudgetStore, backend: LlmBackend): Differences => ({
    backend: counted(backend),
    model,
    agent: { language: "en" },
    services: { budgetBook: book, budgets: seen, clock: ticking },
  });
  return {
    world,
    store,
    clock,
    said: 0,
    calls: () => calls,
    differences: (seen = store, backend = counting) => differing(seen, backend),
    open: (run) => {
      const services = servicesOf(world, differing(store, counting));
      const agent = services.agents.get("default") ?? expect.fail();
      return new TurnBudget(services, agent, { ...run, signal: new AbortController().signal });
    },
    spent: async () => {
      const [spent] = await store.spent([
        { per: "person", id: "ou_1", bucket: "2096-11-22", endsAtMs: noon },
      ]);
      return spent ?? { tokens: 0, usd: 0 };
    },
    eventTypes: async (code) => {
      const records = await world.events.read(session, 0, 10_000);
      return records.filter(({ event }) => "code" in event && event.code === code).length;
    },
  };
}

async function say(
  here: Budgeted,
  text: string,
  differences = here.differences(),
): Promise<string> {
  here.said += 1;
  await append(here.world, inbound(`om_said_${here.said}`, text));
  await settle(here.world, differences);
  return (await outboxOf(here.world)).at(-1)?.text ?? "";
}

const perPerson: Budget = { per: "person", period: "day", tokens: 1_000 };

describe("what is counted", () => {
  it("every step of a turn counts once, for everybody who shares a budget", async () => {
    const here = budgeted(perPerson, { per: "deployment", period: "month", usd: 9 });
    await say(here, "tools please");
    await say(here, "hello");
    expect(await here.spent()).toEqual({ tokens: 300, usd: 0.03 });
    const [all] = await here.store.biggest({ per: "deployment", bucket: "2096-11" }, "usd", 5);
    expect(all).toEqual({ id: "all", tokens: 300, usd: 0.03 });
  });

  it("asks the store once at the beginning and once for each step while steps follow quickly, later again", async () => {
    const here = budgeted(perPerson);
    const [spent, charge] = [vi.spyOn(here.store, "spent"), vi.spyOn(here.store, "charge")];
    await say(here, "hello");
    expect([spent.mock.calls.length, charge.mock.calls.length]).toEqual([1, 1]);
    await say(here, "tools please");
    // One question more: the tools' outcomes came to a run that knew nothing.
    expect([spent.mock.calls.length, charge.mock.calls.length]).toEqual([3, 3]);
  });

  it("no store is asked and nothing is counted where no budget is for the person", async () => {
    const here = budgeted({ ...perPerson, of: ["ou_other"] });
    const [spent, charge] = [vi.spyOn(here.store, "spent"), vi.spyOn(here.store, "charge")];
    expect(await say(here, "hello")).toBe("answer to hello");
    expect([spent.mock.calls.length, charge.mock.calls.length]).toEqual([0, 0]);
  });

  it("a crash anywhere loses no call that was counted, and counts each that came to its end", async () => {
    for (const when of ["before", "after"] as const) {
      for (let at = 1; at <= 9; at += 1) {
        const here = budgeted({ ...perPerson, tokens: 100_000 });
        const { world } = here;
        await append(world, inbound("om_1", "tools first"), inbound("om_2", "second"));
        const doomed = runnerOf(world, here.differences(), crashing(world, at, when));
        for (let gen = world.wakes.shift(); gen !== undefined; gen = world.wakes.shift()) {
          const died = await doomed({ v: 1, session, gen }, new AbortController().signal).then(
            () => false,
            (error: unknown) => error instanceof Crash,
          );
          if (died) break;
          await runTools(world);
        }
        await settle(world, here.differences());
        checkHistory(await world.store.history(session), ["tools first", "second"]);
        // A step that is asked for again was paid for twice.
        expect(await here.spent()).toMatchObject({ tokens: here.calls() * perCall.tokens });
      }
    }
  });

  it("a charge whose answer is lost is repeated, and counts once", async () => {
    const here = budgeted(perPerson);
    let losses = 2;
    const shaky = replaced(here.store, {
      charge: async (...given) => {
        const reply = await here.store.charge(...given);
        losses -= 1;
        if (losses >= 0) throw new Error("the connection broke");
        return reply;
      },
    });
    expect(await say(here, "hello", here.differences(shaky))).toBe("answer to hello");
    expect([await here.spent(), here.calls()]).toEqual([perCall, 1]);
  });

  it("a step that cannot be counted is no answer: the turn fails, and is run again when counting works", async () => {
    const here = budgeted(perPerson);
    const { world } = here;
    const dead = replaced(here.store, {
      charge: async () => await Promise.reject(new Error("no Redis")),
    });
    await append(world, inbound("om_1", "hello"));
    const gen = world.wakes.shift() ?? 0;
    const run = runnerOf(world, here.differences(dead));
    await expect(run({ v: 1, session, gen }, new AbortController().signal)).rejects.toThrow(
      "no Redis",
    );
    expect([world.sent, await here.spent()]).toEqual([[], { tokens: 0, usd: 0 }]);
    await settle(world, here.differences());
    checkHistory(await world.store.history(session), ["hello"]);
    expect(world.sent).toHaveLength(1);
  });

  it("a question that fails is asked again: no crash counts while Redis restarts", async () => {
    const here = budgeted(perPerson);
    let asked = 0;
    const shaky = replaced(here.store, {
      spent: async (accounts) => {
        asked += 1;
        return asked < 4
          ? await Promise.reject(new Error("no Redis"))
          : await here.store.spent(accounts);
      },
    });
    expect(await say(here, "hello", here.differences(shaky))).toBe("answer to hello");
    expect([here.calls(), asked]).toEqual([1, 4]);
  });

  it("a question that cannot be asked is no permission", async () => {
    const here = budgeted(perPerson);
    const deaf = replaced(here.store, {
      spent: async () => await Promise.reject(new Error("no Redis")),
    });
    await append(here.world, inbound("om_1", "hello"));
    const run = runnerOf(here.world, here.differences(deaf));
    const job = { v: 1, session, gen: here.world.wakes.shift() ?? 0 } as const;
    await expect(run(job, new AbortController().signal)).rejects.toThrow("no Redis");
    expect(here.calls()).toBe(0);
  });

  it("a step that is stopped in the middle counts by estimate", async () => {
    const here = budgeted(perPerson);
    const { world } = here;
    const stopped: LlmBackend = {
      async *stream(): AsyncIterable<ModelChunk> {
        yield { type: "text_delta", text: "many words ".repeat(40) };
        await world.store.cancel(session, { turnId: `${session}-1`, reason: "stopped" });
        world.running.cancel(session, `${session}-1`);
        yield { type: "text_delta", text: "never read" };
      },
    };
    await say(here, "hello", here.differences(here.store, stopped));
    expect(await here.eventTypes("budget_exceeded")).toBe(0);
    expect((await here.spent()).tokens).toBeGreaterThan(100);
  });

  it("summaries are counted, those that are made by themselves as well as those asked for", async () => {
    const here = budgeted({ ...perPerson, tokens: 100_000 });
    const summaries = answering("SUMMARY");
    const small = {
      ...here.differences(here.store, summaries),
      info: { contextWindow: 4_000, maxOutputTokens: 500 },
    };
    for (const number of [1, 2, 3]) await say(here, `${number} ${"long ".repeat(900)}`, small);
    const byItself = here.calls();
    expect(byItself).toBeGreaterThan(3);
    expect((await here.spent()).tokens).toBe(byItself * perCall.tokens);
    for (const text of ["four", "five"]) await say(here, text, small);
    const before = here.calls();
    await append(
      here.world,
      inbound("om_6", "/compact", { command: { name: "compact", argument: "" } }),
    );
    await settle(here.world, small);
    expect(here.calls()).toBe(before + 1);
    expect((await here.spent()).tokens).toBe(here.calls() * perCall.tokens);
  });
});

describe("at 80 %", () => {
  it("an answer has no warning when it is unknown whether the person got it before", async () => {
    const here = budgeted(perPerson);
    for (let call = 0; call < 8; call += 1) await say(here, "hello");
    const mute = replaced(here.store, {
      warnOnce: async () => await Promise.reject(new Error("no Redis")),
    });
    expect(await say(here, "hi", here.differences(mute))).toBe("answer to hi");
    expect(await say(here, "hi")).toBe("answer to hi\n\nYour budget for today is 90% used");
  });

  it("each turn's events warn once, and the person reads it once a period, below the answer", async () => {
    const here = budgeted({ ...perPerson, tokens: 500 });
    for (const text of ["a", "b", "c", "d"]) {
      expect(await say(here, text)).toBe(`answer to ${text}`);
    }
    expect(await here.eventTypes("budget_near_limit")).toBe(0);
    expect(await say(here, "hi")).toBe("answer to hi\n\nYour budget for today is 80% used");
    expect(await here.eventTypes("budget_near_limit")).toBe(1);
    expect(await here.world.scrape()).toContain(
      'larkline_budget_warnings_total{per="person",period="day",service="test"} 1',
    );
  });

  it("the report of an order to summarise has it, too", async () => {
    const here = budgeted({ ...perPerson, tokens: 500 });
    for (const number of [1, 2, 3, 4]) await say(here, `${number} ${"long ".repeat(100)}`);
    await append(
      here.world,
      inbound("om_compact", "/compact", { command: { name: "compact", argument: "" } }),
    );
    await settle(here.world, here.differences(here.store, answering("SUMMARY")));
    expect((await outboxOf(here.world)).at(-1)?.text).toMatch(/80% used$/);
  });

  it("in the middle of a turn as well", async () => {
    const here = budgeted({ ...perPerson, tokens: 124 });
    expect(await say(here, "tools please")).toMatch(/answer to tools please[^]*80% used$/);
  });

  it("once for all steps of a turn; the turns after it are warned without the line", async () => {
    const here = budgeted({ ...perPerson, tokens: 10_000 });
    const account = { per: "person", id: "ou_1", bucket: "2096-11-22", endsAtMs: noon };
    await here.store.charge([account], { id: "before", tokens: 8_000, usd: 0 });
    expect(await say(here, "tools please")).toMatch(/80% used$/);
    expect(await here.eventTypes("budget_near_limit")).toBe(1);
    expect(await say(here, "hi")).toBe("answer to hi");
    expect(await here.eventTypes("budget_near_limit")).toBe(2);
  });

  it("no answer says what a whole company has spent", async () => {
    const here = budgeted({ per: "tenant", period: "month", tokens: 125 });
    await say(here, "hi");
    expect(await say(here, "hi")).toBe("answer to hi");
    expect(await here.eventTypes("budget_near_limit")).toBe(1);
  });
});

describe("at 100 %", () => {
  it("no model is called, the person reads why, and the next day they are answered again", async () => {
    const here = budgeted({ ...perPerson, tokens: 100 });
    await say(here, "first");
    const refusal = await say(here, "second");
    expect(refusal).toBe(
      "Your budget for today is used up (100 tokens). It renews on 2096-11-23 00:00 (Asia/Shanghai). " +
        "Ask your administrator if you need more.",
    );
    expect([here.calls(), await here.eventTypes("budget_exceeded")]).toEqual([1, 1]);
    checkHistory(await here.world.store.history(session), ["first", "second"]);
    here.clock.nowMs = Date.parse("2096-11-22T16:00:00Z") - 1;
    expect(await say(here, "third")).toContain("used up");
    here.clock.nowMs += 1;
    expect(await say(here, "fourth")).toBe("answer to fourth");
    expect(await here.world.scrape()).toContain(
      'larkline_budget_refusals_total{per="person",period="day",service="test"} 2',
    );
  });

  it("in the middle of a turn its calls are answered, and the history stays valid", async () => {
    const here = budgeted({ ...perPerson, tokens: 100 });
    expect(await say(here, "tools please")).toContain("used up");
    const history = await here.world.store.history(session);
    checkPairs(history);
    expect(history.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
    expect([...here.world.ran.values()]).toEqual([1, 1]);
    here.clock.nowMs += 86_400_000;
    expect(await say(here, "again")).toBe("answer to again");
  });

  it("a person who is named is judged by their own budget, and money counts like tokens", async () => {
    const here = budgeted(
      { per: "person", period: "month", usd: 0.01 },
      { per: "person", period: "month", of: ["ou_1"], usd: 0.02 },
    );
    expect(await say(here, "one")).toBe("answer to one");
    expect(await say(here, "two")).toBe("answer to two");
    expect(await say(here, "three")).toContain("Your budget for this month is used up ($0.0200).");
  });

  it("runs at once overdraw a budget by what they have under way, and a run's last word is good for 5 s", async () => {
    const here = budgeted({ ...perPerson, tokens: 150 });
    const open = (turnId: string) =>
      here.open({ message: inbound("om_1", "hi"), turnId, epoch: "1" });
    const turn = startTurn({
      head: { seq: 1, message: inbound("om_1", "hi") },
      nowMs: noon,
      model,
    }).turn;
    const step = {
      text: "hi",
      toolCalls: [],
      parts: [],
      stopReason: "end_turn" as const,
      usage,
      warnings: [],
    };
    const request = { system: "", history: [], tools: [] };
    const [one, other] = [open("one"), open("other")];
    expect([await one.before(turn), await other.before(turn)]).toEqual([undefined, undefined]);
    const used = stepUse(step, request, model);
    await Promise.all([one.charge(used), other.charge(used)]);
    expect((await here.spent()).tokens).toBe(200);
    expect((await open("next").before(turn))?.next).toMatchObject({
      do: "finish",
      reason: "budget_exceeded",
    });

    const later = budgeted({ ...perPerson, tokens: 150 });
    const asked = later.open({ message: inbound("om_1", "hi"), turnId: "asked", epoch: "1" });
    expect(await asked.before(turn)).toBeUndefined();
    const account = { per: "person", id: "ou_1", bucket: "2096-11-22", endsAtMs: noon };
    await later.store.charge([account], { id: "elsewhere", tokens: 150, usd: 0 });
    later.clock.nowMs += 4_999;
    expect(await asked.before(turn)).toBeUndefined();
    later.clock.nowMs += 1;
    expect((await asked.before(turn))?.next).toMatchObject({ do: "finish" });
  });

  it("an order to summarise is refused, too, and leaves the history alone", async () => {
    const here = budgeted({ ...perPerson, tokens: 200 });
    for (const number of [1, 2]) await say(here, `${number} ${"long ".repeat(100)}`);
    const before = await here.world.store.history(session);
    await append(
      here.world,
      inbound("om_3", "/compact", { command: { name: "compact", argument: "" } }),
    );
    await settle(here.world, here.differences());
    expect((await outboxOf(here.world)).at(-1)?.text).toContain("used up");
    expect(await here.world.store.history(session)).toEqual(before);
    expect(here.calls()).toBe(2);
  });

  it("messages that wait to join a turn are not lost by its refusal", async () => {
    const here = budgeted({ ...perPerson, tokens: 100 });
    const joining = { ...here.differences(), agent: { busy: "steer" as const } };
    await append(here.world, inbound("om_1", "tools please"), inbound("om_2", "and this"));
    await settle(here.world, joining);
    const history = await here.world.store.history(session);
    checkPairs(history);
    expect(history.filter(({ role }) => role === "user").map(textOf)).toEqual([
      "tools please",
      "and this",
    ]);
    const replies = await outboxOf(here.world);
    expect(replies.map(({ target }) => target.messageId)).toEqual(["om_1", "om_2"]);
  });
});
