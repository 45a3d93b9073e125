import { FeishuApi } from "@larkline/feishu";
import {
  startFeishuSimulator,
  type FeishuSimulator,
  type PersonMessage,
  type SimMessage,
} from "@larkline/simulator";
import type { ControlEntry, InboundMessage } from "@larkline/protocol";
import type { Claim } from "@larkline/store";
import { patientClock } from "@larkline/testkit";
import { expect, vi } from "vitest";
import { startTestIngress, type TestIngress, type TestOptions } from "./ingress.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

// For tests: a simulated platform with people and chats, and an ingress that it delivers to.

export const testApp = {
  appId: "cli_0123456789abcdef",
  appSecret: "app-secret",
  encryptKey: "encrypt-key",
  verificationToken: "verification-token",
};

export interface FeishuWorld {
  platform: FeishuSimulator;
  /** Speaks as the bot. */
  api: FeishuApi;
  ingress: TestIngress;
  ann: string;
  bob: string;
  /** Ann's chat with the bot. */
  direct: string;
  /** The group of Ann, Bob and the bot. */
  group: string;
  /** A group in topic form. */
  topics: string;
  /** What waits first in a session. */
  head(session: string): Promise<InboundMessage | undefined>;
  /** A person (Ann by default) writes in a chat (hers by default); resolves when that is acknowledged. */
  say(text: string, written?: Partial<PersonMessage>): Promise<string>;
  /** Takes a session as a worker does: from now on its first message is being answered. */
  begin(session: string): Promise<Claim>;
  /** Ends the turn of a session's first message; the next one is being answered. */
  finish(claim: Claim): Promise<void>;
  /** What a worker would receive about the turn under way. */
  told(session: string): Promise<ControlEntry[]>;
  waiting(session: string): Promise<number>;
  /** What the bot wrote in a chat. */
  said(chatId: string): SimMessage[];
  /** Waits for as many messages of the bot as that. */
  untilSaid(chatId: string, count?: number): Promise<SimMessage>;
  reactions(messageId: string): string[];
  /** Another process of the same deployment; from now on the platform's webhooks go there. */
  replica(): Promise<TestIngress>;
  close(): Promise<void>;
}

export interface WorldOptions extends TestOptions {
  transport?: "webhook" | "websocket" | "both";
  path?: "/feishu/events" | "/feishu/cards";
  retryDelaysMs?: readonly number[];
  /** How long the platform waits for the answer to an event or a click; absent: as long as Feishu does. */
  answerWithinMs?: number;
  /** Called before the ingress starts. */
  prepare?: (platform: FeishuSimulator) => void;
}

function environment(
  platform: FeishuSimulator,
  { transport = "webhook", env }: WorldOptions,
): Record<string, string> {
  return {
    FEISHU_APP_ID: testApp.appId,
    FEISHU_APP_SECRET: testApp.appSecret,
    FEISHU_ENCRYPT_KEY: testApp.encryptKey,
    FEISHU_VERIFICATION_TOKEN: testApp.verificationToken,
    FEISHU_DOMAIN: platform.url,
    FEISHU_TRANSPORT: transport,
    ...env,
  };
}

type Conversations = Pick<
  FeishuWorld,
  "head" | "say" | "begin" | "finish" | "told" | "waiting" | "said" | "untilSaid" | "reactions"
>;

function conversations(
  { store }: Pick<TestIngress, "store">,
  platform: FeishuSimulator,
  ann: { openId: string; chatId: string },
): Conversations {
  const claim = async (session: string): Promise<Claim | undefined> =>
    await store.claim(session, (await store.summary(session)).gen, "test");
  const said = (chatId: string) =>
    platform.messages(chatId).filter(({ senderType }) => senderType === "app");
  return {
    head: async (session) => (await claim(session))?.head?.message,
    async say(text, written = {}) {
      const { appId } = testApp;
      const message = { appId, chatId: ann.chatId, from: ann.openId, ...written };
      const sent = await platform.sendMessage(text === "" ? message : { ...message, text });
      expect(await sent.delivery).toMatchObject({ outcome: "acknowledged" });
      return sent.messageId;
    },
    async begin(session) {
      const taken = await claim(session);
      if (taken === undefined) throw new Error(`nothing to do in ${session}`);
      return taken;
    },
    async finish({ session, epoch, head }) {
      const write = { session, epoch, history: [], events: [], seq: head?.seq ?? 0, more: true };
      expect(await store.commit(write)).not.toMatchObject({ state: "fenced" });
    },
    told: async (session) => (await claim(session))?.control ?? [],
    waiting: async (session) => (await store.summary(session)).waiting,
    said,
    untilSaid: async (chatId, count = 1) =>
      await vi.waitFor(
        () => {
          const message = said(chatId)[count - 1];
          if (message === undefined) {
            throw new Error(`${said(chatId).length} messages of the bot instead of ${count}`);
          }
          return message;
        },
        { timeout: 60_000, interval: 10 },
      ),
    reactions: (messageId) => {
      const messages = [...platform.chats.keys()].flatMap((chatId) => platform.messages(chatId));
      const message = messages.find((one) => one.messageId === messageId);
      return (message?.reactions ?? []).map(({ emojiType }) => emojiType);
    },
  };
}

/** Begins a storm of one person. The result says how many of it may pass until now: twenty, and one each three seconds. */
export function mostOfStorm(): () => number {
  const startedMs = performance.now();
  return () => 20 + Math.floor((performance.now() - startedMs) / 3_000);
}

/** Starts both and connects them. */
export async function startWorld(options: WorldOptions = {}): Promise<FeishuWorld> {
  const platform = await startFeishuSimulator({
    apps: [testApp],
    retryDelaysMs: options.retryDelaysMs ?? [100, 100, 100, 100],
    limits: "off",
    clock: patientClock, // this process is the platform and the ingress
    ...(options.answerWithinMs === undefined
      ? {}
      : { webhookTimeouts: { totalTimeoutMs: options.answerWithinMs } }),
    connection: { reconnectNonceSeconds: 0, reconnectIntervalSeconds: 1 },
  });
  options.prepare?.(platform);
  const own = options.shared === undefined ? connectSharedRedis(options) : undefined;
  const shared = options.shared ?? own?.memory ?? expect.fail();
  const api = new FeishuApi({ ...testApp, domain: platform.url, tokenCache: shared.tokenCache });
  const start = async () =>
    await startTestIngress({ ...options, shared, env: environment(platform, options), api });
  const ingress = await start();
  const others: TestIngress[] = [];
  platform.setWebhookUrl(testApp.appId, `${ingress.url}${options.path ?? "/feishu/events"}`);
  if (options.transport !== undefined && options.transport !== "both") {
    platform.setTransport(testApp.appId, options.transport);
  }
  const { openId: ann } = platform.addUser({ name: "Ann" });
  const { openId: bob } = platform.addUser({ name: "Bob" });
  const members = [ann, testApp.appId];
  const direct = platform.addChat({ type: "p2p", members }).chatId;
  return {
    platform,
    api,
    ingress,
    ann,
    bob,
    direct,
    group: platform.addChat({ type: "group", members: [...members, bob] }).chatId,
    topics: platform.addChat({ type: "group", topic: true, members: [...members, bob] }).chatId,
    ...conversations(ingress, platform, { openId: ann, chatId: direct }),
    replica: async () => {
      const other = await start();
      others.push(other);
      platform.setWebhookUrl(testApp.appId, `${other.url}${options.path ?? "/feishu/events"}`);
      return other;
    },
    close: async () => {
      await Promise.all([ingress, ...others].map(async (one) => await one.close()));
      api.close();
      await platform.close();
      await own?.close();
    },
  };
}
