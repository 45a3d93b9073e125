import { FeishuApi, LongConnection, inboundFromEvent, type Envelope } from "@larkline/feishu";

export interface BotOptions {
  appId: string;
  appSecret: string;
  /** Base URL of the platform. */
  domain: string;
  /** The answer to a message, as Markdown. */
  answer: (text: string) => string;
}

export interface TestBot {
  api: FeishuApi;
  /** Message ids in the order of arrival, redeliveries included. */
  received: string[];
  close(): Promise<void>;
}

/** A bot on the official SDK: long connection in, replies over the open API, one per message. */
export async function startBot({ appId, appSecret, domain, answer }: BotOptions): Promise<TestBot> {
  const received: string[] = [];
  const api = new FeishuApi({ appId, appSecret, domain, tokenCache: memoryTokens() });
  const { openId: botOpenId } = await api.botInfo();
  const connected = Promise.withResolvers<void>();
  const onEvent = async (envelope: Envelope): Promise<void> => {
    const parsed = inboundFromEvent(envelope, { botOpenId });
    if (!parsed.ok) return;
    const { messageId, text } = parsed.value;
    received.push(messageId);
    await api.messages.reply({
      messageId,
      inThread: false,
      text: answer(text),
      uuid: messageId,
      format: "post",
    });
  };
  const connection = new LongConnection({
    appId,
    appSecret,
    domain,
    onEvent,
    onState: (state) => state === "connected" && connected.resolve(),
    backOffMs: { min: 50, max: 200 },
  });
  connection.start();
  await connected.promise;
  return {
    api,
    received,
    async close() {
      await connection.close();
      api.close();
    },
  };
}

/** Tokens of one process. */
export function memoryTokens(): ConstructorParameters<typeof FeishuApi>[0]["tokenCache"] {
  const values = new Map<string, string>();
  return {
    async get(key, fetchToken, rejected) {
      const value = values.get(key);
      if (value !== undefined && value !== rejected) return value;
      const fetched = await fetchToken();
      values.set(key, fetched.value);
      return fetched.value;
    },
  };
}
