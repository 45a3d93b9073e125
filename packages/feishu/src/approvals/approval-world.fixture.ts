import type { FeishuSimulator, SimMessage } from "@larkline/simulator";
import type { Approval, ApprovalDecision } from "@larkline/protocol/approval";
import { systemClock } from "@larkline/protocol/clock";
import { rememberedRule } from "@larkline/agent/permissions";
import type { ApprovalStatus, ApprovalStore } from "@larkline/store";
import { openTestStores, type TestStores } from "@larkline/store/testing";
import { onTestFinished } from "vitest";
import type { FeishuApi } from "../feishu-api.ts";
import { simulatedApi, type SimulatedApiOptions } from "../simulated-api.fixture.ts";
import type { FeishuLogger } from "../transport/sdk.ts";
import { ApprovalCards, type ApprovalCardsOptions } from "./approval-cards.ts";
import { askQuestion, type Question } from "./approval-question.fixture.ts";

// For tests: approvals, and the cards by which people are asked, on the simulated platform over HTTP.

export const minuteMs = 60_000;
export const hourMs = 3_600_000;
export const dayMs = 24 * hourMs;

export interface ApprovalWorldOptions extends SimulatedApiOptions {
  /** People who are named as deciders besides the one who writes. */
  deciders?: number;
}

/** What a test may put between the cards and the rest. */
export interface ApprovalParts {
  api: FeishuApi;
  approvals: ApprovalStore;
  keepRule: ApprovalCardsOptions["keepRule"];
  wake: ApprovalCardsOptions["wake"];
}

export interface Line {
  fields: Record<string, unknown>;
  text: string;
}

/** Every tagged element of a card. */
export function elementsOf(value: unknown): Record<string, unknown>[] {
  if (Array.isArray(value)) return value.flatMap(elementsOf);
  if (typeof value !== "object" || value === null) return [];
  const own = "tag" in value ? [value as Record<string, unknown>] : []; // an object, as was just seen
  return [...own, ...elementsOf(Object.values(value))];
}

export function titleOf(message: SimMessage | undefined): string {
  return message?.text.split("\n")[0] ?? "";
}

/** Whether anything on the card can be used. */
export function hasButtons(message: SimMessage): boolean {
  return elementsOf(message.card?.json).some(
    ({ tag }) => tag === "button" || tag === "form" || tag === "input",
  );
}

/** The messages of the app in these chats. */
function sentIn(simulator: FeishuSimulator, chatIds: readonly string[]): SimMessage[] {
  return chatIds
    .flatMap((id) => simulator.messages(id))
    .filter(({ senderType }) => senderType === "app");
}

function directChats(simulator: FeishuSimulator, openId: string): string[] {
  const chats = [...simulator.chats.values()].filter(
    ({ type, members }) => type === "p2p" && members.has(openId),
  );
  return chats.map(({ chatId }) => chatId);
}

interface Timeline {
  approvals: ApprovalStore;
  now: () => number;
  forward: (ms: number) => void;
}

/** Looks after the cards as they become due, as the sweeper does, until nothing is due for that long. */
async function workUntilDone(
  { approvals, now, forward }: Timeline,
  cards: ApprovalCards,
  withinMs = 2 * hourMs,
): Promise<void> {
  for (let rounds = 0; rounds < 500; rounds += 1) {
    const [first] = await approvals.dueCards(now() + withinMs, 1);
    if (first === undefined) return;
    while ((await approvals.dueCards(now(), 1)).length === 0) forward(5_000);
    await cards.work(first.session, first.approvalId);
  }
  throw new Error("cards are due for ever");
}

async function platformAt({ now, tokens }: TestStores, options: ApprovalWorldOptions) {
  const platform = await simulatedApi({
    simulator: { clock: { ...systemClock, now }, ...options.simulator },
    api: {
      timeoutMs: 10_000,
      tokenCache: tokens,
      retry: { attempts: 2, minDelayMs: 1, maxDelayMs: 10 },
      ...options.api,
    },
  });
  const { simulator } = platform;
  const names = Array.from({ length: options.deciders ?? 0 }, (_, index) => `D${index}`);
  return { ...platform, people: names.map((name) => simulator.addUser({ name }).openId) };
}

/** A logger, and its lines. */
function recorded(): { lines: Line[]; logger: FeishuLogger } {
  const lines: Line[] = [];
  const note = (fields: Record<string, unknown>, text: string): void =>
    void lines.push({ fields, text });
  return { lines, logger: { debug: note, info: note, warn: note, error: note } };
}

export async function approvalWorld(options: ApprovalWorldOptions = {}) {
  const stores = openTestStores();
  const { now, advance } = stores;
  const forward = (ms: number): void => void advance(ms);
  const platform = await platformAt(stores, options);
  const { simulator, api, appId, person, people, chatId, say } = platform;
  const { store, approvals, rules, letters } = stores;
  const { lines, logger } = recorded();
  const woken: string[] = [];
  const keepRule = async ({ approval, decisions }: ApprovalStatus): Promise<void> => {
    const rule = rememberedRule(approval, decisions, dayMs);
    if (rule !== undefined) await rules.add(rule);
  };
  const parts: ApprovalParts = {
    api,
    approvals,
    keepRule,
    wake: async (session) => void woken.push(session),
  };

  const cardsOver = (more: Partial<ApprovalParts & ApprovalCardsOptions> = {}): ApprovalCards => {
    const { api: client, ...rest } = { ...parts, ...more };
    const apis = new Map([[appId, client]]);
    const made = new ApprovalCards({
      apis,
      letters,
      roles: {},
      logger,
      clock: { ...systemClock, now },
      ...rest,
    });
    onTestFinished(() => made.close());
    return made;
  };
  const cards = cardsOver();
  let questions = 0;

  async function ask(more: Partial<Approval> = {}): Promise<Question> {
    questions += 1;
    const target = {
      channel: "feishu" as const,
      app: appId,
      chatId,
      messageId: await say("do it"),
      inThread: false,
    };
    const session = `${appId}.${chatId}.q${questions}`;
    return await askQuestion(
      { store, now, session, sender: person.openId, target, deciders: people },
      more,
    );
  }

  async function decide(
    { session, id }: Question,
    decision: ApprovalDecision["decision"],
    more: Partial<ApprovalDecision> = {},
  ) {
    return await approvals.decide(session, id, { decision, by: { id: person.openId }, ...more });
  }

  return {
    ...platform,
    ...stores,
    parts,
    woken,
    lines,
    now,
    forward,
    cardsOver,
    cards,
    ask,
    decide,
    settleCards: async (by = cards) => await workUntilDone({ approvals, now, forward }, by),
    inChat: () => sentIn(simulator, [chatId]),
    sentTo: (openId: string) => sentIn(simulator, directChats(simulator, openId)),
    /** All cards that people have received. */
    allSent: () =>
      sentIn(simulator, [chatId, ...people.flatMap((openId) => directChats(simulator, openId))]),
    stateOf: async ({ id }: Question) => (await approvals.find(appId, id))?.state,
  };
}

export type ApprovalWorld = Awaited<ReturnType<typeof approvalWorld>>;
