import type { RateGovernor } from "@larkline/store/platform";
import { openTestStores } from "@larkline/store/testing";
import { followClock, forgetClock } from "@larkline/protocol/clock";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { FeishuApi, FeishuApiOptions } from "../feishu-api.ts";
import { failureOf, replacing, simulatedApi } from "../simulated-api.fixture.ts";
import type { CallOptions } from "./api-call.ts";
import { apiBucket } from "./rate-limiter.ts";

const patient: CallOptions = { maxWaitMs: 20_000 };

/** A world whose limits refuse, and an API that keeps them. */
async function limited(
  governor: RateGovernor = openTestStores().governor,
  attempts = 1,
  otherBot = false,
) {
  const options = { governor, retry: { attempts, minDelayMs: 1 } };
  const world = await simulatedApi({ simulator: { limits: "enforced" }, api: options, otherBot });
  return { ...world, send: sender(world.api), governor };
}

function sender(api: FeishuApi) {
  let sent = 0;
  return async (chatId: string, options: CallOptions = patient): Promise<string> => {
    sent += 1;
    const request = {
      receiveIdType: "chat_id",
      receiveId: chatId,
      text: `t${sent}`,
      uuid: `u-${sent}`,
    } as const;
    return (await api.messages.send(request, options)).messageId;
  };
}

function times<T>(count: number, make: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => make(index)));
}

function sentBy(simulator: Awaited<ReturnType<typeof limited>>["simulator"]): number {
  return simulator.apiCalls.filter(({ path }) => path.endsWith("/messages")).length;
}

function granting(take: RateGovernor["take"]): RateGovernor {
  return replacing(openTestStores().governor, { take });
}

describe("calls through a governor", () => {
  it("are never refused by the platform, where calls without one are", async () => {
    const refusals = async (governor: Partial<FeishuApiOptions>): Promise<number> => {
      const world = await simulatedApi({
        simulator: { limits: "enforced" },
        api: { ...governor, retry: { attempts: 1 } },
      });
      const { simulator, api, chatId, say } = world;
      const people = Array.from(
        { length: 60 },
        (_, index) => simulator.addUser({ name: `P${index}` }).openId,
      );
      const messageId = await say("hi");
      const send = sender(api);
      await Promise.allSettled([
        times(7, () => send(chatId)),
        times(70, () => api.messages.addReaction(messageId, "Typing", patient)),
        api.userNames(people, patient),
      ]);
      return simulator.refusals.length;
    };
    expect(await refusals({ governor: openTestStores().governor })).toBe(0);
    expect(await refusals({})).toBeGreaterThan(0);
  });

  it("on one message, one card and one person keep the limit of each", async () => {
    const { api, simulator, chatId, person } = await limited();
    const shared = { schema: "2.0", config: { update_multi: true } };
    const card = { ...shared, body: { elements: [{ tag: "markdown", content: "x" }] } };
    const target = { receiveIdType: "chat_id", receiveId: chatId } as const;
    const content = JSON.stringify(card);
    const { messageId } = await api.messages.send(
      { ...target, messageType: "interactive", content, uuid: "p" },
      patient,
    );
    const cardId = await api.cards.create(card);
    await api.cards.sendTo({ cardId, ...target, uuid: "c" }, patient);
    const patches = async (): Promise<void> => {
      for (let count = 0; count < 7; count += 1) {
        await api.cards.patchMessage({ messageId, card }, patient);
      }
    };
    const updates = async (): Promise<void> => {
      for (let sequence = 1; sequence <= 14; sequence += 1) {
        await api.cards.update({ cardId, card, sequence, uuid: `s-${sequence}` }, patient);
      }
    };
    const direct = { receiveIdType: "open_id", receiveId: person.openId, text: "x" } as const;
    const sends = times(7, (index) =>
      api.messages.send({ ...direct, uuid: `d-${index}` }, patient),
    );
    await Promise.all([patches(), updates(), sends]);
    expect(simulator.refusals).toEqual([]);
    expect(simulator.card(cardId)?.sequence).toBe(14);
  });

  it("of several processes keep the limits together", async () => {
    const world = await limited();
    const { simulator, chatId, connect, governor } = world;
    const senders = [1, 2].map(() => sender(connect({ governor })));
    const messages = await Promise.all(senders.map((send) => times(3, () => send(chatId))));
    expect(messages.flat()).toHaveLength(6);
    expect(simulator.refusals).toEqual([]);
  });

  it.each([
    { otherBot: true, share: 0.8 },
    { otherBot: false, share: 0.95 },
  ])(
    "into a chat use $share of its limit (another bot is in it: $otherBot)",
    async ({ otherBot, share }) => {
      const { governor: inner } = openTestStores();
      const shares = new Set<number | undefined>();
      const take: RateGovernor["take"] = async (buckets, ...rest) => {
        for (const { key, share: asked } of buckets) if (key.includes(":chat:")) shares.add(asked);
        return await inner.take(buckets, ...rest);
      };
      const { simulator, chatId, send } = await limited(replacing(inner, { take }), 1, otherBot);
      // The first that has to wait has it asked who is in the chat.
      await times(6, () => send(chatId));
      const askedIn = ({ path }: { path: string }): boolean => path.endsWith(`/chats/${chatId}`);
      await vi.waitFor(() => expect(simulator.apiCalls.some(askedIn)).toBe(true), {
        timeout: 60_000,
      });
      const startedMs = performance.now();
      await times(5, () => send(chatId));
      shares.clear();
      await times(10, () => send(chatId));
      const seconds = (performance.now() - startedMs) / 1_000;
      // Two full windows have passed at least, each as long as this share makes it.
      expect(seconds).toBeGreaterThan((2 / share) * 0.95);
      expect([...shares]).toEqual([otherBot ? 0.8 : undefined]); // without one: the governor's own 0.95
      expect(simulator.refusals).toEqual([]);
      expect(simulator.apiCalls.filter(askedIn)).toHaveLength(1);
    },
  );

  it("into one chat leave in the order in which they were made", async () => {
    const { simulator, chatId, send } = await limited();
    await times(5, () => send(chatId));
    expect(simulator.messages(chatId).map(({ text }) => text)).toEqual([
      "t1",
      "t2",
      "t3",
      "t4",
      "t5",
    ]);
  });

  it("ask the governor a few times each, however many wait", async () => {
    const { governor: inner } = openTestStores();
    let asked = 0;
    const counting = granting(async (buckets, priority) => {
      asked += 1;
      return await inner.take(buckets, priority);
    });
    const { api, say } = await limited(counting);
    const messageId = await say("hi");
    await times(40, () => api.messages.addReaction(messageId, "Typing", patient));
    expect(asked).toBeLessThan(40 * 4);
  });

  it("that may not wait are held back: nothing leaves, and the caller knows it", async () => {
    const { simulator, appId, chatId, send, governor } = await limited();
    await send(chatId);
    await governor.pause(`${appId}:chat:${chatId}`, 60_000);
    const before = simulator.apiCalls.length;
    const error = await failureOf(send(chatId, { maxWaitMs: 0 }));
    expect(error).toMatchObject({
      kind: "rate_limit",
      heldBack: true,
      uncertain: false,
      retryable: true,
      httpStatus: 0,
    });
    expect(error.retryAfterMs).toBeGreaterThan(0);
    expect(simulator.apiCalls).toHaveLength(before);
    const other = simulator.addChat({ type: "group", members: [...simulator.users.keys()] });
    await send(other.chatId, { maxWaitMs: 0 });
  });

  it("that wait longer than they may are held back in time", async () => {
    const { chatId, send, governor } = await limited();
    await governor.pause(`cli_0123456789abcdef:chat:${chatId}`, 60_000);
    expect(await failureOf(send(chatId, { maxWaitMs: 5_000 }))).toMatchObject({ heldBack: true });
    // For the governor no time passes: it grants no more however long this process stands still.
    const waiting = await limited(openTestStores({ isClockStill: true }).governor);
    const many = await Promise.allSettled(
      Array.from({ length: 10 }, () => waiting.send(waiting.chatId, { maxWaitMs: 500 })),
    );
    expect(many.filter(({ status }) => status === "rejected").length).toBeGreaterThan(0);
    expect(waiting.simulator.refusals).toEqual([]);
  });

  it("end at the caller's signal while they wait", async () => {
    const { simulator, chatId, send } = await limited();
    await times(5, () => send(chatId));
    const before = sentBy(simulator);
    const abort = new AbortController();
    const waiting = [1, 2, 3].map(() =>
      failureOf(send(chatId, { ...patient, signal: abort.signal })),
    );
    abort.abort();
    for (const error of await Promise.all(waiting)) {
      expect(error).toMatchObject({ kind: "cancelled", uncertain: false });
    }
    expect(sentBy(simulator)).toBe(before);
  });

  it("count for the month when they are about messages or cards", async () => {
    const { api, connect, governor, chatId, person, send } = await limited();
    await send(chatId);
    await api.chat(chatId);
    await api.cards.create({
      schema: "2.0",
      body: { elements: [{ tag: "markdown", content: "x" }] },
    });
    await api.userNames([person.openId]);
    expect(await api.quota.read()).toEqual({ calls: 3, limit: null });
    await send(chatId);
    expect((await api.quota.read()).calls).toBe(3);
    expect(await connect({ governor, monthlyCalls: 10_000 }).quota.read()).toEqual({
      calls: 4,
      limit: 10_000,
    });
    const ungoverned = await simulatedApi({ api: { monthlyCalls: 10_000 } });
    expect(await ungoverned.api.quota.read()).toEqual({ calls: 0, limit: 10_000 });
  });
});

it("calls of processes whose machines disagree about the date count for one month", async () => {
  const { api, appId, governor, chatId, send } = await limited();
  followClock(Date.UTC(2031, 0, 15), performance.now());
  onTestFinished(forgetClock);
  await send(chatId);
  expect(await governor.callsOf(appId, "2031-01")).toBe(1);
  expect((await api.quota.read()).calls).toBe(1);
});

describe("frames", () => {
  const streaming = { schema: "2.0", config: { streaming_mode: true } };
  const card = {
    ...streaming,
    body: { elements: [{ tag: "markdown", element_id: "e", content: "x" }] },
  };

  it("leave room for the last one, which goes out at once", async () => {
    // However long this process stands still, all of them are asked for within the same second.
    const { api, chatId, simulator } = await limited(
      openTestStores({ isClockStill: true }).governor,
    );
    const cardId = await api.cards.create(card);
    await api.cards.sendTo({ cardId, receiveIdType: "chat_id", receiveId: chatId, uuid: "u" });
    const write = (sequence: number, options: CallOptions): Promise<void> =>
      api.cards.content(
        {
          cardId,
          elementId: "e",
          content: "x".repeat(sequence + 1),
          sequence,
          uuid: `c-${sequence}`,
        },
        options,
      );
    const frames = await Promise.allSettled(
      Array.from({ length: 12 }, (_, index) => write(index + 1, { priority: "frame" })),
    );
    expect(frames.filter(({ status }) => status === "fulfilled").length).toBe(9);
    await write(13, { maxWaitMs: 0 });
    expect(simulator.card(cardId)?.frames.at(-1)?.text).toHaveLength(14);
    expect(simulator.refusals).toEqual([]);
  });

  it("are tried once", async () => {
    const { api, simulator } = await limited(undefined, 5);
    const cardId = await api.cards.create(card);
    const body = { code: 230020, msg: "limit" };
    simulator.faults.add({
      match: { path: /content$/ },
      action: { kind: "respond", status: 400, body },
    });
    const before = simulator.apiCalls.length;
    const frame = { cardId, elementId: "e", content: "xy", sequence: 1, uuid: "c" };
    const error = await failureOf(api.cards.content(frame, { priority: "frame" }));
    expect(error).toMatchObject({ kind: "rate_limit", heldBack: false, code: 230020 });
    expect(simulator.apiCalls).toHaveLength(before + 1);
  });

  it("stand back while a caller that a person waits for needs the same limit", async () => {
    let isOpen = false;
    const asked: string[] = [];
    const governor = granting(async (buckets, priority) => {
      const chat = buckets.find(({ key }) => key.includes(":chat:"));
      if (chat !== undefined) asked.push(priority);
      return chat === undefined || isOpen
        ? { granted: true, ticket: "t" }
        : { granted: false, key: chat.key, waitMs: 20 };
    });
    const { api, chatId, send } = await limited(governor);
    const waiting = send(chatId);
    await vi.waitFor(() => expect(asked).toContain("final"), { timeout: 60_000 });
    const frame = { receiveIdType: "chat_id", receiveId: chatId, text: "f", uuid: "f" } as const;
    expect(
      await failureOf(api.messages.send(frame, { priority: "frame", maxWaitMs: 60_000 })),
    ).toMatchObject({
      heldBack: true,
    });
    expect(asked).not.toContain("frame");
    isOpen = true;
    await waiting;
  });
});

describe("a refusal of the platform all the same", () => {
  it("with 429 holds every call of that API back for as long as it asks", async () => {
    const { api, simulator, chatId, send } = await limited(
      openTestStores({ isClockStill: true }).governor,
    );
    const action = {
      kind: "respond",
      status: 429,
      headers: { "x-ogw-ratelimit-reset": "7" },
      body: { code: 99991400, msg: "limit" },
    } as const;
    simulator.faults.add({ times: 1, match: { path: /messages$/ }, action });
    expect(await failureOf(send(chatId))).toMatchObject({
      kind: "rate_limit",
      heldBack: false,
      retryAfterMs: 7_000,
    });
    const other = simulator.addChat({ type: "group", members: [...simulator.users.keys()] });
    const held = await failureOf(send(other.chatId, { maxWaitMs: 0 }));
    expect(held.heldBack).toBe(true);
    expect(held.retryAfterMs).toBeGreaterThan(6_000);
    await api.chat(chatId, { maxWaitMs: 0 });
  });

  it("that names a lower limit lowers ours", async () => {
    const { api, simulator, chatId, governor } = await limited();
    const headers = { "x-ogw-ratelimit-reset": "1", "x-ogw-ratelimit-limit": "3" };
    const action = {
      kind: "respond",
      status: 429,
      headers,
      body: { code: 99991400, msg: "limit" },
    } as const;
    simulator.faults.add({ times: 1, match: { path: /chats\// }, action });
    await failureOf(api.chat(chatId, { maxWaitMs: 0 }));
    const [bucket] = await governor.look([apiBucket("cli_0123456789abcdef", "im.chat.get")]);
    expect(bucket).toMatchObject({ most: 3 });
  });

  it("with 230020 holds that chat back for a second, and no other", async () => {
    const { governor, advance } = openTestStores({ isClockStill: true });
    const { simulator, chatId, send } = await limited(governor);
    const body = { code: 230020, msg: "limit" };
    simulator.faults.add({
      times: 1,
      match: { path: /messages$/ },
      action: { kind: "respond", status: 400, body },
    });
    expect(await failureOf(send(chatId))).toMatchObject({ kind: "rate_limit", code: 230020 });
    const held = await failureOf(send(chatId, { maxWaitMs: 0 }));
    expect(held).toMatchObject({ heldBack: true });
    expect(held.retryAfterMs).toBeGreaterThan(500);
    const other = simulator.addChat({ type: "group", members: [...simulator.users.keys()] });
    await send(other.chatId, { maxWaitMs: 0 });
    await advance(1_001);
    await send(chatId, { maxWaitMs: 0 });
  });
});

describe("a governor that fails", () => {
  it.each([
    ["rejects", async () => Promise.reject(new Error("redis is down"))],
    ["does not answer", async () => new Promise<never>(() => undefined)],
  ])("because it %s lets nothing out, as an outage that passes", async (_name, take) => {
    const { simulator, chatId, send } = await limited(granting(take));
    const error = await failureOf(send(chatId));
    expect(error).toMatchObject({
      kind: "unavailable",
      retryable: true,
      heldBack: true,
      uncertain: false,
    });
    expect(simulator.apiCalls.filter(({ path }) => path.endsWith("/messages"))).toEqual([]);
  });

  it("after an attempt that may have got through leaves the doubt, and is not called held back", async () => {
    let takes = 0;
    const once = granting(async () => {
      takes += 1;
      return takes === 1
        ? { granted: true, ticket: "t" }
        : { granted: false, key: "x", waitMs: 60_000 };
    });
    const { simulator, chatId, send } = await limited(once, 3);
    simulator.faults.add({ match: { path: /messages$/ }, action: { kind: "lose_response" } });
    expect(await failureOf(send(chatId))).toMatchObject({
      kind: "rate_limit",
      uncertain: true,
      heldBack: false,
    });
    expect(simulator.messages(chatId)).toHaveLength(1);
  });

  it("cannot be asked for the quota", async () => {
    const broken = replacing(openTestStores().governor, {
      callsOf: async () => Promise.reject(new Error("redis is down")),
    });
    const { api } = await limited(broken);
    expect(await failureOf(api.quota.read())).toMatchObject({ kind: "unavailable" });
  });
});
