import type { FeishuSimulator, SimCard, SimMessage } from "@larkline/simulator";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { ReplyView } from "@larkline/protocol/reply-view";
import type { CardLedger } from "@larkline/store";
import { openTestStores, type TestStores } from "@larkline/store/testing";
import { patientClock } from "@larkline/testkit";
import { onTestFinished } from "vitest";
import type { FeishuApi } from "../feishu-api.ts";
import { replacing, simulatedApi, type SimulatedApiOptions } from "../simulated-api.fixture.ts";
import type { FeishuLogger } from "../transport/sdk.ts";
import { LiveReplies, type LiveReply, type ReplyStart } from "./live-reply.ts";
import { OutboxSender, type OutboxSenderOptions } from "./outbox-sender.ts";
import { beginTurn, type Turn } from "./reply-turn.fixture.ts";

// For tests: turns whose replies are typed and delivered on the simulated platform, over HTTP.

export const hourMs = 3_600_000;
export const waitMs = 60_000;

/** A view with nothing but its answer. */
export function viewOf(answer: string, more: Partial<ReplyView> = {}): ReplyView {
  return {
    v: 1,
    language: "en",
    state: "running",
    thinking: "",
    tools: [],
    earlierTools: 0,
    answer,
    footer: {},
    ...more,
  };
}

export function answered(answer: string, more: Partial<ReplyView> = {}): ReplyView {
  return viewOf(answer, { state: "answered", footer: { model: "m-1" }, ...more });
}

/** Paragraphs that tell their number, about so many bytes of them. */
export function longAnswer(bytes: number, word = "Lorem ipsum dolor sit amet consectetur"): string {
  const paragraphs: string[] = [];
  for (let size = 0; size < bytes;) {
    const paragraph = `Paragraph ${paragraphs.length}: ${`${word} `.repeat(6).trim()}.`;
    paragraphs.push(paragraph);
    size += Buffer.byteLength(paragraph) + 2;
  }
  return paragraphs.join("\n\n");
}

export interface Line {
  level: string;
  fields: Record<string, unknown>;
  text: string;
}

/** What a test may put between the writers and the rest. */
export interface Parts {
  api: FeishuApi;
  ledger: CardLedger;
  outbox: OutboxSenderOptions["outbox"];
}

export interface ReplyWorldOptions extends SimulatedApiOptions {
  inThread?: boolean;
  chat?: { type: "p2p" | "group"; topic?: boolean };
}

/** What a person reads of a card: its answer, and nothing around it. */
function answerOn(json: unknown): string {
  const elements = json as {
    body?: {
      elements?: {
        element_id?: string;
        tag?: string;
        content?: string;
        text?: { content?: string };
      }[];
    };
  }; // what the simulator shows was checked by it
  const shown = elements.body?.elements ?? [];
  const answer =
    shown.find(({ element_id: id }) => id === "answer") ??
    shown.find(({ tag }) => tag === "div") ??
    shown[0];
  return answer?.content ?? answer?.text?.content ?? "";
}

export interface Shown {
  message: SimMessage;
  answer: string;
  card: SimCard | undefined;
}

function shownIn(simulator: FeishuSimulator, chatId: string): Shown[] {
  return simulator
    .messages(chatId)
    .filter(({ senderType, recalled }) => senderType === "app" && !recalled)
    .map((message) => ({
      message,
      answer: message.card === undefined ? message.text : answerOn(message.card.json),
      card: message.card?.cardId === undefined ? undefined : simulator.card(message.card.cardId),
    }));
}

function recordingLogger(lines: Line[]): FeishuLogger {
  const write = (level: string) => (fields: Record<string, unknown>, text: string) =>
    void lines.push({ level, fields, text });
  return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
}

function startOf(of: Turn, view: () => ReplyView): ReplyStart {
  const { session, replyId, target, uuid } = of;
  return { session, replyId, target, uuid, epoch: of.epoch(), view };
}

/** Makes the writers of a process; a test may put something of its own in between. */
function writersWith(
  parts: Parts,
  { appId, logger, clock }: { appId: string; logger: FeishuLogger; clock: Clock },
) {
  function live(of: Turn, view: () => ReplyView, more: Partial<Parts> = {}) {
    const replies = liveReplies(more);
    return opened(replies.open(startOf(of, view)));
  }

  function liveReplies(more: Partial<Parts & Pick<CardLedger, "mayAppear">> = {}): LiveReplies {
    const { api: client, ledger: cards, mayAppear } = { ...parts, ...more };
    const ledger = mayAppear === undefined ? cards : replacing(cards, { mayAppear });
    return new LiveReplies({ apis: new Map([[appId, client]]), ledger, logger, clock });
  }

  function sender(more: Partial<OutboxSenderOptions & Parts> = {}): OutboxSender {
    const { api: client, ...rest } = { ...parts, ...more };
    const apis = new Map([[appId, client]]);
    // Its lease alone bounds a delivery: a process that stands still for seconds cuts none off.
    const bounds = { retryDelaysMs: [1_000, 60_000], deadlineMs: 60_000 };
    const made = new OutboxSender({ apis, logger, clock, ...bounds, ...rest });
    onTestFinished(() => made.close());
    return made;
  }

  return { live, liveReplies, startOf, sender };
}

async function platformAt({ now, tokens }: TestStores, options: ReplyWorldOptions) {
  return await simulatedApi({
    simulator: { clock: { ...systemClock, now }, ...options.simulator },
    api: {
      tokenCache: tokens,
      retry: { attempts: 2, minDelayMs: 1, maxDelayMs: 10 },
      ...options.api,
    },
  });
}

export async function replyWorld(options: ReplyWorldOptions = {}) {
  const stores = openTestStores();
  const { store, cards: ledger, letters, now, advance } = stores;
  // A reply waits for its calls for 2 s at most when it is released: a stall of this process cuts none off.
  const clock = { ...patientClock, now };
  const platform = await platformAt(stores, options);
  const { simulator, api, appId, person } = platform;
  const parts: Parts = { api, ledger, outbox: store.outbox };
  const chatId =
    options.chat === undefined
      ? platform.chatId
      : simulator.addChat({ ...options.chat, members: [person.openId] }).chatId;
  const lines: Line[] = [];
  const logger = recordingLogger(lines);
  let turns = 0;

  const say = async (text = "hi"): Promise<string> =>
    (await simulator.sendMessage({ appId, chatId, from: person.openId, text })).messageId;

  async function turn(of: { messageId?: string; inThread?: boolean } = {}): Promise<Turn> {
    turns += 1;
    const messageId = of.messageId ?? (await say());
    const target = {
      app: appId,
      chatId,
      messageId,
      inThread: of.inThread ?? options.inThread ?? false,
    };
    return await beginTurn({ store, now, session: `s${turns}`, sender: person.openId, target });
  }

  return {
    ...platform,
    parts,
    store,
    ledger,
    letters,
    chatId,
    say,
    turn,
    ...writersWith(parts, { appId, logger, clock }),
    lines,
    now,
    clock,
    forward: (ms: number): void => void advance(ms),
    shown: () => shownIn(simulator, chatId),
    /** The cards of the app's messages, in order. */
    cards: () => shownIn(simulator, chatId).flatMap(({ card }) => card ?? []),
    unsent: async (of: Turn) => (await store.summary(of.session)).unsent,
  };
}

/** Tries the reply again and again as time goes by, as the sweeper does; tells how often. */
export async function deliverUntilSent(
  world: ReplyWorld,
  of: Turn,
  by = world.sender(),
): Promise<number> {
  const { store, forward } = world;
  for (let deliveries = 0; deliveries <= 12; deliveries += 1) {
    if ((await store.summary(of.session)).unsent === 0) return deliveries;
    forward(120_000);
    const lease = await store.outbox.lease(of.session);
    if (lease !== undefined) await by.deliver(lease);
  }
  throw new Error("still not sent");
}

export type ReplyWorld = Awaited<ReturnType<typeof replyWorld>>;

export function opened(reply: LiveReply | undefined): LiveReply {
  if (reply === undefined) throw new Error("nobody has credentials for the app");
  return reply;
}

/** Waits for a fact that no event tells. */
export async function until(fact: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = Date.now() + waitMs;
  while (!(await fact())) {
    if (Date.now() > endMs) throw new Error("it did not happen in time");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** What a card must never have seen: two operations with one number, or one that is not higher. */
export function sequencesOf(card: SimCard): number[] {
  return card.operations.flatMap(({ sequence, code }) =>
    sequence === undefined || code !== 0 ? [] : [sequence],
  );
}

/** Letters and digits only: what rendering neither adds nor loses. */
export function lettersOf(text: string): string {
  return text.replaceAll(/[^\p{L}\p{N}]/gu, "");
}
