import { exhaustedText, turnLimits } from "@larkline/agent";
import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import { describe, expect, it, vi } from "vitest";
import { sweepExpiries } from "./background-jobs.ts";
import { calling, eventsOf, resultsIn, typesOf } from "./approval-world.fixture.ts";
import {
  append,
  healedIn,
  servicesOf,
  askPeople,
  Crash,
  inbound,
  newWorld,
  outboxOf,
  policyOf,
  runnerOf,
  runTools,
  runWakes,
  session,
  settle,
  type Differences,
  type World,
} from "./turn-world.fixture.ts";

const patience = { timeout: 60_000 };

/** Lets a message run until nothing moves any more without people. */
async function ask(
  world: World,
  differences: Differences,
  message = inbound("om_1", "please"),
): Promise<void> {
  await append(world, message);
  await goOn(world, differences);
}

async function goOn(world: World, differences: Differences): Promise<void> {
  do {
    await runWakes(world, differences);
    await runTools(world);
  } while (world.wakes.length > 0);
}

function askedOnly(world: World): void {
  world.word = () => undefined;
}

async function lastText(world: World): Promise<string> {
  return textOf((await world.store.history(session)).at(-1) ?? { role: "user", content: [] });
}

describe("a call that needs an approval", () => {
  it("AL-27: is not run before the approval, and nothing is answered", async () => {
    const world = newWorld();
    askedOnly(world);
    const { backend } = calling(["pay"]);
    await ask(world, { backend });
    expect(world.dispatched).toEqual([]);
    expect(world.ran.size).toBe(0);
    expect(await outboxOf(world)).toEqual([]);
    expect(await world.store.summary(session)).toMatchObject({ state: "suspended", waiting: 1 });
    world.word = () => "approve";
    await settle(world, { backend });
    expect(world.ran.size).toBe(1);
    expect(world.sent[0]?.text).toBe([...world.ran.keys()][0]);
  });

  it("AL-28: is stored as a question before its card is sent, and answered with an error when no person can be asked", async () => {
    const world = newWorld();
    askedOnly(world);
    const known: boolean[] = [];
    const { push } = world.carded;
    world.carded.push = (...ids): number => {
      for (const id of ids) {
        void world.approvals.find("cli_app", id).then((found) => known.push(found !== undefined));
      }
      return push.apply(world.carded, ids);
    };
    const { backend } = calling(["pay"]);
    await ask(world, { backend });
    await vi.waitFor(() => expect(known).toEqual([true]), patience);
    const settled = await world.approvals.settle(session, world.carded[0] ?? "", "undeliverable");
    if ("wakeGen" in settled && settled.wakeGen !== undefined) world.wakes.push(settled.wakeGen);
    await settle(world, { backend });
    expect(await resultsIn(world)).toEqual([
      [expect.stringMatching(/^permission_denied: nobody could be asked/), true],
    ]);
    expect(world.ran.size).toBe(0);
  });

  it("AL-35: is never run after a rejection, and says so to the model", async () => {
    const world = newWorld();
    world.word = () => "reject";
    const { backend } = calling(["pay"]);
    await ask(world, { backend });
    await settle(world, { backend });
    expect(await resultsIn(world)).toEqual([["User rejected this action.", true]]);
    expect(world.ran.size).toBe(0);
  });

  it("AL-38: is followed by an answer to the message it began with, in its thread", async () => {
    const world = newWorld();
    const reply = {
      channel: "feishu",
      app: "cli_app",
      chatId: "oc_1",
      messageId: "om_1",
      inThread: true,
    } as const;
    const { backend } = calling(["pay"]);
    await ask(world, { backend }, inbound("om_1", "please", { reply }));
    await settle(world, { backend });
    expect(world.sent.map(({ target }) => target)).toEqual([
      { app: "cli_app", chatId: "oc_1", messageId: "om_1", inThread: true },
    ]);
  });

  it("AL-39: of [plain, approval, plain, approval] each has a question of its own, and the model continues with four results", async () => {
    const world = newWorld();
    askedOnly(world);
    const { backend, requests } = calling(["echo", "pay", "echo", "pay"]);
    await ask(world, { backend });
    expect(new Set(world.carded).size).toBe(2);
    expect(world.ran.size).toBe(2);
    expect(requests).toHaveLength(1);
    const words = { "c1-1": "approve", "c1-3": "reject" } as const;
    for (const [asked, word] of Object.entries(words)) {
      world.word = ({ callId }) => (callId === asked ? word : undefined);
      await askPeople(world);
      await goOn(world, { backend });
    }
    expect(requests).toHaveLength(2);
    const results = requests[1]?.messages.at(-1)?.content ?? [];
    expect(results.map((part) => (part.type === "tool_result" ? part.toolCallId : ""))).toEqual([
      "c1-0",
      "c1-1",
      "c1-2",
      "c1-3",
    ]);
    expect((await resultsIn(world)).map(([, isError]) => isError)).toEqual([
      false,
      false,
      false,
      true,
    ]);
    expect(world.ran.size).toBe(3);
  });

  it("AL-41: that expires is answered with an error, and a late click changes nothing", async () => {
    const world = newWorld();
    askedOnly(world);
    const policy = { ...policyOf(), expiresMs: 5 };
    const { backend } = calling(["pay"]);
    await ask(world, { backend, policy });
    await vi.waitFor(async () => {
      await world.advance(1_000);
      await sweepExpiries(servicesOf(world));
      expect(healedIn(world, "expiry")).toBe(1);
    }, patience);
    expect(world.wakes).toHaveLength(1);
    const late = await world.approvals.decide(session, world.carded[0] ?? "", {
      decision: "approve",
      by: { id: "ou_1" },
    });
    expect(late.result).toBe("closed");
    await settle(world, { backend, policy });
    expect(await resultsIn(world)).toEqual([
      [expect.stringMatching(/^permission_denied: nobody approved/), true],
    ]);
    expect(world.ran.size).toBe(0);
  });

  it("AL-44: messages that come meanwhile wait, and stand behind the results", async () => {
    const world = newWorld();
    askedOnly(world);
    const { backend, requests } = calling(["pay"]);
    await ask(world, { backend });
    await append(world, inbound("om_2", "and then?"));
    await goOn(world, { backend });
    expect(requests).toHaveLength(1);
    world.word = () => "approve";
    await settle(world, { backend });
    const roles = (await world.store.history(session)).map(({ role }) => role).join(" ");
    expect(roles).toBe("user assistant tool assistant user assistant tool assistant");
  });

  it("AL-44: also when they are to join the running turn", async () => {
    const world = newWorld();
    askedOnly(world);
    const { backend } = calling(["pay"]);
    await ask(world, { backend, agent: { busy: "steer" } });
    await append(world, inbound("om_2", "and then?"));
    await goOn(world, { backend, agent: { busy: "steer" } });
    world.word = () => "approve";
    await settle(world, { backend, agent: { busy: "steer" } });
    const roles = (await world.store.history(session)).map(({ role }) => role).join(" ");
    expect(roles).toMatch(/^user assistant tool user assistant/);
  });

  it("is dropped with its turn: a stop in between leaves no question open", async () => {
    const world = newWorld();
    askedOnly(world);
    const { backend } = calling(["pay"]);
    await ask(world, { backend });
    const { wakeGen } = await world.store.cancel(session, {
      turnId: turnIdOf(session, 1),
      reason: "stopped",
    });
    if (wakeGen !== undefined) world.wakes.push(wakeGen);
    await goOn(world, { backend });
    expect(await world.approvals.pending(session)).toEqual([]);
    const [approvalId = ""] = world.carded;
    expect(await world.approvals.find("cli_app", approvalId)).toMatchObject({ state: "cancelled" });
    // Its card is worked on again: the buttons go.
    await vi.waitFor(() => expect(world.carded).toEqual([approvalId, approvalId]), patience);
    expect(world.ran.size).toBe(0);
  });
});

describe("waiting for people", () => {
  it("AL-36: a failure after the approval is reported in the chat", async () => {
    const world = newWorld();
    const asking = calling(["pay"]);
    await ask(world, { backend: asking.backend });
    await askPeople(world);
    const failing = {
      async *stream() {
        const failure = { type: "error", code: "api_auth_error", message: "refused" } as const;
        yield { ...failure, suggestion: "", retryable: false, partial: false };
      },
    };
    await settle(world, { backend: failing });
    expect(world.ran.size).toBe(1);
    expect(world.sent).toHaveLength(1);
    expect(world.sent[0]?.text).not.toBe("");
    expect((await eventsOf(world)).at(-2)).toMatchObject({ type: "error", code: "api_auth_error" });
  });

  it("AL-43: steps count over the whole turn, whatever people decide in between", async () => {
    const world = newWorld();
    const { maxIterations } = turnLimits();
    const { backend, requests } = calling(
      ...Array.from({ length: maxIterations + 5 }, () => ["pay"]),
    );
    await ask(world, { backend });
    await settle(world, { backend });
    expect(requests).toHaveLength(maxIterations);
    expect((await eventsOf(world)).at(-2)).toMatchObject({
      type: "done",
      reason: "max_turns_reached",
    });
  });

  it.each([
    ["please", "Reached the maximum number of steps without completing the request."],
    ["请付款", "已达到最大步数，请求没有完成。"],
  ])(
    "a limit is said in the language of the person, without a card, too: %s",
    async (words, said) => {
      const world = newWorld();
      const { backend } = calling(
        ...Array.from({ length: turnLimits().maxIterations }, () => ["pay"]),
      );
      await ask(world, { backend }, inbound("om_1", words));
      await settle(world, { backend });
      expect(world.sent.map(({ text }) => text)).toEqual([said]);
      // The conversation and the HTTP API have it in one form.
      expect(await lastText(world)).toBe(exhaustedText);
    },
  );

  it("EE-37: `checkpoint` holds the call up until a person has decided", async () => {
    const world = newWorld();
    askedOnly(world);
    const { backend } = calling(["pay"]);
    await ask(world, { backend });
    const before = typesOf(await eventsOf(world));
    expect(before.slice(before.indexOf("tool_use"))).toEqual([
      "tool_use",
      "checkpoint",
      "permission_request",
    ]);
    world.word = () => "approve";
    await settle(world, { backend });
    const after = typesOf(await eventsOf(world));
    expect(after.indexOf("tool_result")).toBeGreaterThan(after.indexOf("permission_request"));
  });

  it("EE-37: `checkpoint_suggested` holds nothing up", async () => {
    const world = newWorld();
    const { backend } = calling([{ name: "echo", arguments: { command: "rm -rf /tmp/x" } }]);
    await ask(world, { backend });
    expect(world.carded).toEqual([]);
    expect(world.ran.size).toBe(1);
    const suggested = (await eventsOf(world)).find(({ type }) => type === "checkpoint_suggested");
    expect(suggested).toMatchObject({ toolName: "echo", riskPattern: "rm -rf" });
  });

  it("EE-39: a refused permission is an error result, and the run continues", async () => {
    const world = newWorld();
    const policy = policyOf({
      permissions: [{ tools: ["echo"], do: "refuse", reason: "Not on Fridays" }],
    });
    const { backend, requests } = calling(["echo"]);
    await ask(world, { backend, policy });
    expect(await resultsIn(world)).toEqual([
      ["permission_denied: Not on Fridays. The call was not run.", true],
    ]);
    expect(requests).toHaveLength(2);
    expect(world.ran.size).toBe(0);
  });

  it("a decision also hands out what a worker has left lying that died before it could", async () => {
    const world = newWorld();
    const { backend } = calling(["echo", "pay"]);
    await append(world, inbound("om_1", "please"));
    const dying = { dispatch: async () => await Promise.reject(new Crash()) };
    const job = { v: 1, session, gen: world.wakes.shift() ?? 0 } as const;
    const run = runnerOf(world, { backend }, { ...world, queues: dying });
    await expect(run(job, new AbortController().signal)).rejects.toThrow(Crash);
    await askPeople(world);
    await runWakes(world, { backend });
    expect(world.dispatched.map(({ callId }) => callId)).toEqual(["c1-0", "c1-1"]);
  });

  it("is counted and measured, by how it ended", async () => {
    const world = newWorld();
    world.word = ({ callId }) => (callId === "c1-0" ? "approve" : "reject");
    const { backend } = calling(["pay", "pay"]);
    await ask(world, { backend });
    await settle(world, { backend });
    const text = await world.scrape();
    expect(text).toContain('larkline_approvals_asked_total{kind="call",service="test"} 2');
    for (const state of ["approved", "rejected"]) {
      expect(text).toContain(
        `larkline_approvals_settled_total{kind="call",state="${state}",service="test"} 1`,
      );
      expect(text).toMatch(
        new RegExp(`larkline_approval_wait_seconds_count\\{.*state="${state}".*\\} 1`),
      );
    }
  });

  it("what people decided is in the signed job", async () => {
    const world = newWorld();
    askedOnly(world);
    const { backend } = calling(["pay"]);
    await ask(world, { backend });
    world.word = () => "approve";
    await askPeople(world);
    await runWakes(world, { backend });
    const claims: unknown = JSON.parse(
      Buffer.from(world.dispatched[0]?.envelope.split(".")[0] ?? "", "base64url").toString("utf8"),
    );
    expect(claims).toMatchObject({
      authority: { by: "approval", id: world.carded[0], people: ["ou_1"] },
    });
  });
});

describe("an unknown outcome of a call that must run once", () => {
  async function unknownPay(
    word: "retry" | "done" | "abort",
    message: Partial<InboundMessage> = {},
  ) {
    const world = newWorld();
    const attempts: number[] = [];
    world.outcomeOf = ({ attempt }) => {
      attempts.push(attempt);
      return attempt === 1
        ? { ok: false, error: "outcome unknown", unknown: true }
        : { ok: true, result: "paid" };
    };
    world.word = ({ kind }) => (kind === "outcome" ? word : "approve");
    const { backend } = calling(["echo"]);
    await ask(world, { backend }, inbound("om_1", "please", message));
    await settle(world, { backend });
    return { world, attempts, results: await resultsIn(world) };
  }

  it("is tried again when a person says so, under an id of its own", async () => {
    const { world, attempts, results } = await unknownPay("retry");
    expect(attempts).toEqual([1, 2]);
    expect([...world.ran]).toEqual([
      ["c1-0", 1],
      ["c1-0.2", 1],
    ]);
    expect(results).toEqual([["paid", false]]);
  });

  it("is a result when a person marks it as done", async () => {
    const { attempts, results } = await unknownPay("done");
    expect(attempts).toEqual([1]);
    expect(results).toEqual([[expect.stringContaining("it took effect"), false]]);
  });

  it("is an error that says so when a person aborts", async () => {
    const { attempts, results } = await unknownPay("abort");
    expect(attempts).toEqual([1]);
    expect(results).toEqual([[expect.stringContaining("decided not to try it again"), true]]);
  });

  it("is reported to the model where no person can be asked", async () => {
    const { world, results } = await unknownPay("retry", {
      chatType: "api",
      reply: { channel: "none" },
    });
    expect(world.carded).toEqual([]);
    expect(results).toEqual([[expect.stringContaining("Do not repeat it"), true]]);
  });

  it("expires into what the model would have read", async () => {
    const world = newWorld();
    world.outcomeOf = () => ({ ok: false, error: "outcome unknown", unknown: true });
    askedOnly(world);
    const policy = { ...policyOf(), expiresMs: 5 };
    const { backend } = calling(["echo"]);
    await ask(world, { backend, policy });
    await world.advance(60_000);
    await vi.waitFor(async () => {
      await sweepExpiries(servicesOf(world));
      expect(await world.approvals.pending(session)).toEqual([]);
    }, patience);
    await settle(world, { backend, policy });
    expect(await resultsIn(world)).toEqual([[expect.stringContaining("Do not repeat it"), true]]);
    expect(await lastText(world)).toContain("outcome unknown");
  });
});
