import { FeishuApi, LiveReplies } from "@larkline/feishu";
import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import type { ReplyView } from "@larkline/protocol/reply-view";
import { startFeishuSimulator, type FeishuSimulator } from "@larkline/simulator";
import type { Claim } from "@larkline/store";
import { openTestStores, type TestStores } from "@larkline/store/testing";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { sweepCards } from "./background-jobs.ts";
import { Bot } from "./bot.ts";
import { healedIn, newWorld, servicesOf } from "./turn-world.fixture.ts";

const appId = "cli_0123456789abcdef";
const untouchedMs = 15 * 60_000;
let simulator: FeishuSimulator;
let api: FeishuApi;
let stores: TestStores;
const healed: number[] = [];

beforeEach(async () => {
  stores = openTestStores();
  healed.length = 0;
  simulator = await startFeishuSimulator({ apps: [{ appId, appSecret: "secret" }], limits: "off" });
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

async function sweep(signal = new AbortController().signal): Promise<void> {
  await stores.advance(untouchedMs + 1_000);
  const world = newWorld(stores);
  const { settings, lookups, clock, log } = servicesOf(world);
  const bots = new Map([[appId, new Bot(settings, api, { lookups, clock }, log)]]);
  await sweepCards(servicesOf(world, { services: { bots } }), signal);
  const healedNow = healedIn(world, "card");
  if (healedNow > 0) healed.push(healedNow);
}

interface Typing {
  claim: Claim;
  messageId: string;
  replyId: string;
  session: string;
}

/** A turn whose card is on the person's screen and still types. */
async function typing(): Promise<Typing> {
  const { openId } = simulator.addUser({ name: "Ann" });
  const { chatId } = simulator.addChat({ type: "p2p", members: [openId] });
  const { messageId } = await simulator.sendMessage({ appId, chatId, from: openId, text: "hi" });
  const session = `${appId}.${chatId}`;
  const target = { app: appId, chatId, messageId, inThread: false };
  const message: InboundMessage = {
    v: 1,
    session,
    id: messageId,
    app: appId,
    sender: { id: openId },
    chatType: "p2p",
    parts: [{ type: "text", text: "hi" }],
    createdAtMs: Date.now(),
    reply: { channel: "feishu", ...target },
  };
  const { wakeGen = 0 } = await stores.store.append(message);
  const claim = await stores.store.claim(session, wakeGen, "worker-1");
  if (claim === undefined) throw new Error("not claimed");
  const replyId = turnIdOf(session, 1);
  const view: ReplyView = {
    v: 1,
    language: "en",
    state: "running",
    thinking: "",
    tools: [],
    earlierTools: 0,
    answer: "The beginning of",
    footer: {},
    stop: { session, turnId: replyId },
  };
  const replies = new LiveReplies({ apis: new Map([[appId, api]]), ledger: stores.cards });
  const start = {
    session,
    replyId,
    epoch: claim.epoch,
    target,
    uuid: `u-${messageId}`,
    view: () => view,
  };
  const live = replies.open(start);
  live?.changed();
  await simulator.waitUntil(
    messageId,
    ({ card }) => JSON.stringify(card?.json).includes("The beginning of"),
    {
      timeoutMs: 60_000,
    },
  );
  await live?.release();
  return { claim, messageId, replyId, session };
}

async function commit({ claim: { session, epoch } }: Typing): Promise<void> {
  await stores.store.commit({ session, epoch, seq: 1, history: [], events: [], more: false });
}

describe("sweeping cards", () => {
  it("a card whose turn is gone stops claiming to be generated, with an honest line and without its button", async () => {
    const lost = await typing();
    await commit(lost);
    await sweep();
    const { card, text } = await simulator.waitForCard(lost.messageId, { timeoutMs: 60_000 });
    expect(card?.streaming).toBe(false);
    expect(text).toContain("The beginning of");
    expect(text).toContain("This reply was interrupted");
    expect(JSON.stringify(card?.json)).not.toContain('"button"');
    expect(healed).toEqual([1]);
    expect(await stores.cards.load(lost.session, lost.replyId)).toBeUndefined();
  });

  it("ending it a second time, after a crash in between, adds nothing", async () => {
    const lost = await typing();
    await commit(lost);
    const { cards: ledger } = stores;
    const forget = ledger.forget.bind(ledger);
    ledger.forget = async () => await Promise.reject(new Error("died"));
    await expect(sweep()).rejects.toThrow("died");
    ledger.forget = forget;
    await ledger.touch(lost.session, lost.replyId);
    await sweep();
    const { text } = await simulator.waitForCard(lost.messageId, { timeoutMs: 60_000 });
    expect(text.match(/was interrupted/g)).toHaveLength(1);
    expect(await ledger.load(lost.session, lost.replyId)).toBeUndefined();
  });

  it("one that fails keeps none of the others from being ended", async () => {
    const [broken, lost] = [await typing(), await typing()];
    await commit(broken);
    await commit(lost);
    const { cards: ledger } = stores;
    const load = ledger.load.bind(ledger);
    ledger.load = async (session, replyId) =>
      session === broken.session
        ? await Promise.reject(new Error("damaged"))
        : await load(session, replyId);
    await expect(sweep()).rejects.toThrow("damaged");
    ledger.load = load;
    expect(await load(broken.session, broken.replyId)).toBeDefined();
    expect(await load(lost.session, lost.replyId)).toBeUndefined();
  });

  it("a stop in the middle neither waits for the platform nor forgets the card", async () => {
    const lost = await typing();
    await commit(lost);
    simulator.faults.add({ match: { path: /batch_update$/ }, action: { kind: "hang" } });
    const stopping = new AbortController();
    const sweeping = sweep(stopping.signal);
    await vi.waitFor(
      () => expect(simulator.apiCalls.some(({ path }) => path.endsWith("batch_update"))).toBe(true),
      {
        timeout: 60_000,
      },
    );
    stopping.abort();
    await sweeping.catch(() => undefined);
    expect(await stores.cards.load(lost.session, lost.replyId)).toBeDefined();
    expect(healed).toEqual([]);
  });

  it("the card of a running turn is left alone, and looked at again only after another while", async () => {
    const running = await typing();
    const callsBefore = simulator.apiCalls.length;
    await sweep();
    expect(simulator.apiCalls).toHaveLength(callsBefore);
    expect(healed).toEqual([]);
    expect(await stores.cards.untouched(stores.now() - untouchedMs, 10)).toEqual([]);
    expect(await stores.cards.load(running.session, running.replyId)).toBeDefined();
  });

  it("the card of an answer that is still to be delivered is left alone", async () => {
    const answered = await typing();
    const { session, replyId, messageId } = answered;
    await stores.store.commit({
      session,
      epoch: answered.claim.epoch,
      seq: 1,
      history: [],
      events: [],
      more: false,
      outbox: {
        v: 1,
        id: replyId,
        uuid: "u",
        session,
        target: { app: appId, chatId: "oc_1", messageId, inThread: false },
        text: "answer",
        createdAtMs: Date.now(),
        attempts: 0,
        uncertainSinceMs: 0,
      },
    });
    await sweep();
    expect(healed).toEqual([]);
    expect(await stores.cards.load(session, replyId)).toBeDefined();
  });
});
