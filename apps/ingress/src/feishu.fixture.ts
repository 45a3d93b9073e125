import { createFeishuApi } from "@larkline/feishu";
import { startFeishuSimulator, type FeishuSimulator } from "@larkline/feishu-simulator";
import type { InboundMessage } from "@larkline/protocol";
import { createMemoryTokenCache } from "@larkline/session";
import { startTestIngress, type TestIngress, type TestOptions } from "./ingress.fixture.ts";

// For tests: a simulated platform with people and chats, and an ingress that it delivers to.

export const testApp = {
  appId: "cli_0123456789abcdef",
  appSecret: "app-secret",
  encryptKey: "encrypt-key",
  verificationToken: "verification-token",
};

export interface FeishuWorld {
  platform: FeishuSimulator;
  ingress: TestIngress;
  ann: string;
  /** Ann's chat with the bot. */
  direct: string;
  group: string;
  /** A group in topic form. */
  topics: string;
  /** What waits first in a session. */
  head(session: string): Promise<InboundMessage | undefined>;
  close(): Promise<void>;
}

export interface WorldOptions extends TestOptions {
  transport?: "webhook" | "websocket" | "both";
  path?: "/feishu/events" | "/feishu/cards";
  retryDelaysMs?: readonly number[];
  /** Before the ingress starts. */
  prepare?: (platform: FeishuSimulator) => void;
}

function environment(platform: FeishuSimulator, { transport = "webhook", env }: WorldOptions): Record<string, string> {
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

/** Starts both and connects them. */
export async function startWorld(options: WorldOptions = {}): Promise<FeishuWorld> {
  const platform = await startFeishuSimulator({
    apps: [testApp],
    retryDelaysMs: options.retryDelaysMs ?? [100, 100, 100, 100],
    limits: "off",
    connection: { reconnectNonceSeconds: 0, reconnectIntervalSeconds: 1 },
  });
  options.prepare?.(platform);
  const api = createFeishuApi({ ...testApp, domain: platform.url, tokenCache: createMemoryTokenCache() });
  const ingress = await startTestIngress({ ...options, env: environment(platform, options), api });
  platform.setWebhookUrl(testApp.appId, `${ingress.url}${options.path ?? "/feishu/events"}`);
  if (options.transport !== undefined && options.transport !== "both") {
    platform.setTransport(testApp.appId, options.transport);
  }
  const { openId: ann } = platform.addUser({ name: "Ann" });
  const members = [ann, testApp.appId];
  return {
    platform,
    ingress,
    ann,
    direct: platform.addChat({ type: "p2p", members }).chatId,
    group: platform.addChat({ type: "group", members }).chatId,
    topics: platform.addChat({ type: "group", topic: true, members }).chatId,
    head: async (session) => {
      const gen = (await ingress.store.summary(session)).gen;
      return (await ingress.store.claim(session, gen, "test"))?.head?.message;
    },
    close: async () => {
      await ingress.close();
      api.close();
      await platform.close();
    },
  };
}
