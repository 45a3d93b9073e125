import { ApprovalCards, FeishuApi, LiveReplies, OutboxSender } from "@larkline/feishu";
import { messageStop, toolCallDelta, type LlmBackend } from "@larkline/model";
import { turnIdOf } from "@larkline/protocol";
import { systemClock } from "@larkline/protocol/clock";
import { startFeishuSimulator, type FeishuSimulator } from "@larkline/simulator";
import { openTestStores, type TestStores } from "@larkline/store/testing";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { calling } from "./approval-world.fixture.ts";
import { sweepApprovalCards, sweepCards } from "./background-jobs.ts";
import { Bot } from "./bot.ts";
import {
  append,
  askPeople,
  healedIn,
  inbound,
  newWorld,
  servicesOf,
  runChildren,
  runTools,
  runWakes,
  session,
  type Differences,
  instructionsOf,
} from "./turn-world.fixture.ts";

const appId = "cli_0123456789abcdef";
const minuteMs = 60_000;
const patience = { timeout: 60_000 };
let stores: TestStores;
let simulator: FeishuSimulator;
let api: FeishuApi;

function now(): number {
  return stores.now();
}

const storeClock = { ...systemClock, now };

beforeEach(async () => {
  stores = openTestStores();
  simulator = await startFeishuSimulator({
    apps: [{ appId, appSecret: "secret" }],
    limits: "off",
    clock: { ...systemClock, now },
  });
  api = new FeishuApi({
    appId,
    appSecret: "secret",
    domain: simulator.url,
    tokenCache: stores.tokens,
  });
});

afterEach(async () => {
  api.close();
  await simulator.close();
});

/** A person's message to a bot whose replies are cards, and whose worker can be started anew. */
async function scene() {
  const { openId } = simulator.addUser({ name: "Ann" });
  const { chatId } = simulator.addChat({ type: "p2p", members: [openId] });
  const { messageId } = await simulator.sendMessage({
    appId,
    chatId,
    from: openId,
    text: "please",
  });
  const { store, cards: ledger, approvals } = stores;
  const apis = new Map([[appId, api]]);
  const world = newWorld(stores);
  const wake = async (_session: string, gen: number): Promise<void> => void world.wakes.push(gen);
  const cards = new ApprovalCards({
    apis,
    approvals,
    keepRule: async () => {},
    roles: {},
    wake,
    clock: storeClock,
  });
  const target = { app: appId, chatId, messageId, inThread: false };
  await append(
    world,
    inbound(messageId, "please", { app: appId, reply: { channel: "feishu", ...target } }),
  );
  const { backend } = calling(["pay"]);
  /** A worker that has just started: it knows no card. */
  const worker = (): Differences => {
    const liveReplies = new LiveReplies({ apis, ledger, clock: storeClock });
    return { backend, agent: { reply: "card", card: show }, services: { liveReplies } };
  };
  const sender = new OutboxSender({ outbox: store.outbox, ledger, apis, clock: storeClock });
  return { world, worker, chatId, messageId, cards, ledger, sender };
}

const timeoutMs = 600_000;

/** Gives a helper a task, which calls `pay` for it. */
const digging: LlmBackend = {
  async *stream(request) {
    const name = instructionsOf(request) === "digger" ? "pay" : "dig";
    yield toolCallDelta(0, { id: "", name, arguments: JSON.stringify({ task: "a" }) });
    const usage = { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };
    yield messageStop("tool_use", usage);
  },
};

const show = {
  thinking: true,
  tools: true,
  model: true,
  tokens: true,
  cost: true,
  seconds: true,
  trace: true,
};

function cardsIn(chatId: string) {
  return simulator.messages(chatId).filter(({ card }) => card !== undefined);
}

describe("the card of a reply whose turn waits for people", () => {
  const shownBy = (chatId: string, text: string) =>
    vi.waitFor(() => {
      const [card, ...more] = cardsIn(chatId);
      expect(more).toEqual([]);
      expect(JSON.stringify(card?.card?.json)).toContain(text);
      return card;
    }, patience);

  it("says so, outlives its streaming mode and its worker, and is the one that gets the answer", async () => {
    const { world, worker, chatId, cards, ledger, sender } = await scene();
    await runWakes(world, worker());
    const waiting = await shownBy(chatId, "waiting for a person");
    await stores.advance(30 * minuteMs);
    await askPeople(world);
    await runWakes(world, worker());
    const running = await shownBy(chatId, "⏳ pay");
    expect(running).toMatchObject({ messageId: waiting?.messageId, card: { streaming: true } });
    await runTools(world);
    await runWakes(world, worker());
    const [record] = await vi.waitUntil(
      () => (world.sent.length > 0 ? world.sent : undefined),
      patience,
    );
    await stores.advance(minuteMs); // the lease of the run's own sender, which does nothing in this world
    const lease = await world.store.outbox.lease(session);
    expect(lease?.record.id).toBe(record?.id);
    if (lease !== undefined) await sender.deliver(lease);
    const answered = await shownBy(chatId, "c1-0");
    expect(answered).toMatchObject({ messageId: waiting?.messageId, card: { streaming: false } });
    expect(await ledger.load(session, turnIdOf(session, 1))).toBeUndefined();
    await cards.close();
  });

  it("says on the line of a helper what people are asked, and that it works again", async () => {
    const { world, worker, chatId } = await scene();
    const agent = {
      ...worker().agent,
      instructions: "default",
      helpers: [{ agent: "digger", as: "dig", timeoutMs }],
    };
    const agents = { default: {}, digger: { tools: ["pay"] } };
    const differences = (): Differences => ({
      ...worker(),
      backend: digging,
      agent,
      configured: { agents },
    });
    await runWakes(world, differences());
    await shownBy(chatId, "⏳ digger: a");
    await runChildren(world, differences());
    await runWakes(world, differences());
    await shownBy(chatId, "✋ digger: a · waiting for a person: approval of pay");
    await askPeople(world);
    await runChildren(world, differences());
    await runWakes(world, differences());
    const card = await shownBy(chatId, "⏳ digger: a");
    expect(JSON.stringify(card?.card?.json)).not.toContain("waiting for a person");
  });

  it("is not taken for abandoned, however long it takes", async () => {
    const { world, worker, chatId, ledger } = await scene();
    await runWakes(world, worker());
    await shownBy(chatId, "waiting for a person");
    const later = (): number => Date.now() + 60 * minuteMs;
    expect(await ledger.untouched(later(), 10)).toHaveLength(1);
    const clock = { ...systemClock, now: later };
    const plain = servicesOf(world);
    const bots = new Map([[appId, new Bot(plain.settings, api, plain, plain.log)]]);
    await sweepCards({ ...plain, bots, clock }, new AbortController().signal);
    expect(healedIn(world, "card")).toBe(0);
    await vi.waitFor(() => expect(cardsIn(chatId)[0]?.card?.streaming).toBe(false), patience);
    expect(JSON.stringify(cardsIn(chatId)[0]?.card?.json)).not.toContain("interrupted");
  });
});

describe("the question of a turn that waits for people", () => {
  it("AL-39: stands on the card of the reply right after it was saved, and nowhere else", async () => {
    const { world, worker, chatId, cards } = await scene();
    world.workCards = async (where, id) => await cards.work(where, id);
    await runWakes(world, worker());
    await vi.waitFor(
      () => expect(JSON.stringify(cardsIn(chatId))).toContain("__approval__"),
      patience,
    );
    await stores.advance(60_000);
    await sweepApprovalCards(
      { ...servicesOf(world), approvalCards: cards },
      new AbortController().signal,
    );
    expect(cardsIn(chatId)).toHaveLength(1);
    await cards.close();
  });

  it("has a card of its own right after it was saved where the answer is text", async () => {
    const { world, worker, chatId, cards } = await scene();
    world.workCards = async (where, id) => await cards.work(where, id);
    await runWakes(world, { ...worker(), agent: { reply: "text" } });
    await vi.waitFor(
      () => expect(JSON.stringify(cardsIn(chatId))).toContain("__approval__"),
      patience,
    );
    expect(cardsIn(chatId)[0]?.card?.json).toHaveProperty("header");
    await cards.close();
  });

  it("AL-28: gets its card from the sweeper when its worker died before it sent one", async () => {
    const { world, worker, chatId, cards } = await scene();
    await runWakes(world, worker());
    expect(JSON.stringify(cardsIn(chatId))).not.toContain("__approval__");
    await stores.advance(10_000); // in which the card of the reply could have shown it
    await sweepApprovalCards(
      { ...servicesOf(world), approvalCards: cards },
      new AbortController().signal,
    );
    expect(JSON.stringify(cardsIn(chatId))).toContain("__approval__");
    await cards.close();
  });
});
