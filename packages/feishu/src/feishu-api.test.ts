import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text as readText } from "node:stream/consumers";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import { startFeishuSimulator } from "@larkline/simulator";
import { openTestStores } from "@larkline/store/testing";
import { onTestFinished, describe, expect, it } from "vitest";
import { FeishuApi, type FeishuApiOptions } from "./feishu-api.ts";
import { FeishuError } from "./transport/error.ts";

const appId = "cli_0123456789abcdef";
const appSecret = "s3cret-of-the-app";

interface Call {
  url: string;
  authorization: string;
  body: Record<string, unknown>;
}

type Answer = (call: Call, response: ServerResponse, count: number) => void;

interface FakePlatform {
  url: string;
  /** Calls except those for tokens. */
  calls: Call[];
  tokensGiven: number;
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { "content-type": "application/json", "x-tt-logid": "log-1" });
  response.end(JSON.stringify(body));
}

function limited(response: ServerResponse, resetSeconds: number): void {
  response.setHeader("x-ogw-ratelimit-reset", String(resetSeconds));
  json(response, 429, { code: 99991400, msg: "limit" });
}

function good(response: ServerResponse, messageId = "om_sent"): void {
  json(response, 200, { code: 0, msg: "success", data: { message_id: messageId } });
}

async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`; // a TCP server's address has this form
}

/** A platform that hands out tokens `t-1`, `t-2`, ... and answers everything else as the test sets it. */
async function fakePlatform(answer: Answer): Promise<FakePlatform> {
  const platform: FakePlatform = { url: "", calls: [], tokensGiven: 0 };
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const raw = await readText(request);
    const body: Record<string, unknown> = raw === "" ? {} : JSON.parse(raw);
    if (request.url?.includes("tenant_access_token") === true) {
      platform.tokensGiven += 1;
      return json(response, 200, {
        code: 0,
        msg: "ok",
        tenant_access_token: `t-${platform.tokensGiven}`,
        expire: 7200,
      });
    }
    platform.calls.push({
      url: request.url ?? "",
      authorization: request.headers.authorization ?? "",
      body,
    });
    const call = platform.calls.at(-1);
    if (call !== undefined) answer(call, response, platform.calls.length);
  };
  // A connection is not closed between two attempts because the process stood still.
  const server = createServer(
    { keepAliveTimeout: 60_000 },
    (request, response) => void handle(request, response),
  );
  platform.url = await listening(server);
  return platform;
}

function apiOf(domain: string, options: Partial<FeishuApiOptions> = {}): FeishuApi {
  const api = new FeishuApi({
    appId,
    appSecret,
    domain,
    tokenCache: openTestStores().tokens,
    // The process in which the platform is, too, may stand still for seconds.
    timeoutMs: 60_000,
    retry: { minDelayMs: 5, maxDelayMs: 1_500 },
    ...options,
  });
  onTestFinished(() => api.close());
  return api;
}

/** A clock whose timers of so many ms ring when the test says so: by then a call is where it has to be. */
function clockRinging(ringsMs: number): { clock: Clock; ring: () => void } {
  const timers = new Set<() => void>();
  const after: Clock["after"] = (ms, work) => {
    if (ms !== ringsMs) return systemClock.after(ms, work);
    timers.add(work);
    return () => timers.delete(work);
  };
  const ring = (): void => {
    for (const work of timers) work();
  };
  return { clock: { ...systemClock, after }, ring };
}

function reply(api: FeishuApi, text = "hi", signal?: AbortSignal): Promise<{ messageId: string }> {
  return api.messages.reply({ messageId: "om_1", text, uuid: "u-1", inThread: false }, { signal });
}

async function failureOf(promise: Promise<unknown>): Promise<FeishuError> {
  const error: unknown = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof FeishuError)) throw new Error("expected a FeishuError", { cause: error });
  return error;
}

describe("tokens", () => {
  it("fetches one token for many calls at once and sends it", async () => {
    const platform = await fakePlatform((_call, response) => good(response));
    const api = apiOf(`${platform.url}/`);
    await Promise.all(Array.from({ length: 20 }, () => reply(api)));
    expect(platform.tokensGiven).toBe(1);
    expect(new Set(platform.calls.map((call) => call.authorization))).toEqual(
      new Set(["Bearer t-1"]),
    );
  });

  it("shares the token through the cache", async () => {
    const platform = await fakePlatform((_call, response) => good(response));
    const { tokens: tokenCache } = openTestStores();
    await reply(apiOf(platform.url, { tokenCache }));
    await reply(apiOf(platform.url, { tokenCache }));
    expect(platform.tokensGiven).toBe(1);
  });

  it("drops a refused token, fetches another one once and repeats the call", async () => {
    const platform = await fakePlatform((call, response) =>
      call.authorization === "Bearer t-1"
        ? json(response, 400, { code: 99991663, msg: "bad token" })
        : good(response),
    );
    const api = apiOf(platform.url);
    await Promise.all(Array.from({ length: 5 }, () => reply(api)));
    expect(platform.tokensGiven).toBe(2);
  });

  it("gives up when the second token is refused too", async () => {
    const platform = await fakePlatform((_call, response) =>
      json(response, 200, { code: 99991663, msg: "bad token" }),
    );
    const error = await failureOf(reply(apiOf(platform.url)));
    expect(error).toMatchObject({ kind: "token", code: 99991663, httpStatus: 200, logId: "log-1" });
    expect(platform.calls).toHaveLength(2);
  });

  it("a wrong secret is the operator's to fix, and stays out of the error", async () => {
    const url = await listening(
      createServer((_request, response) =>
        json(response, 200, { code: 10014, msg: `app secret ${appSecret} invalid` }),
      ),
    );
    const error = await failureOf(reply(apiOf(url)));
    expect(error).toMatchObject({
      api: "auth.tenantAccessToken",
      kind: "app_setup",
      retryable: false,
      uncertain: false,
    });
    expect(JSON.stringify([error.message, error.stack, error])).not.toContain(appSecret);
  });
});

describe("the token cache", () => {
  it("failing is a passing outage, and nothing was executed", async () => {
    const platform = await fakePlatform((_call, response) => good(response));
    const tokenCache = { get: () => Promise.reject(new Error("redis is down")) };
    const error = await failureOf(reply(apiOf(platform.url, { tokenCache })));
    expect(error).toMatchObject({ kind: "unavailable", retryable: true, uncertain: false });
    expect(platform.calls).toEqual([]);
  });
});

describe("requests", () => {
  it("replies with uuid, type and content", async () => {
    const platform = await fakePlatform((_call, response) => good(response));
    await apiOf(platform.url).messages.reply({
      messageId: "om_1",
      text: "hi",
      uuid: "u-1",
      inThread: true,
    });
    expect(platform.calls[0]).toMatchObject({
      url: "/open-apis/im/v1/messages/om_1/reply",
      body: { msg_type: "text", content: '{"text":"hi"}', uuid: "u-1", reply_in_thread: true },
    });
  });

  it("sends a very long text as several messages in order, each with its own stable uuid", async () => {
    const platform = await fakePlatform((_call, response, count) => good(response, `om_${count}`));
    const text = "一行文字\n".repeat(30_000);
    const api = apiOf(platform.url);
    expect(await reply(api, text)).toEqual({ messageId: "om_1" });
    const parts = platform.calls.map(({ body }) =>
      String(JSON.parse(String(body["content"])).text),
    );
    const uuids = platform.calls.map(({ body }) => body["uuid"]);
    expect(parts.length).toBeGreaterThan(1);
    expect(parts.join("")).toBe(text);
    expect(uuids[0]).toBe("u-1");
    expect(new Set(uuids).size).toBe(uuids.length);
    platform.calls.length = 0;
    await reply(api, text);
    expect(platform.calls.map(({ body }) => body["uuid"])).toEqual(uuids);
  });

  it.each(["../chats/oc_1?x=1#", "om_1/x", "", "om 1", "..", "a".repeat(200)])(
    "refuses the message id %j without a request",
    async (messageId) => {
      const platform = await fakePlatform((_call, response) => good(response));
      const error = await failureOf(
        apiOf(platform.url).messages.reply({ messageId, text: "x", uuid: "u", inThread: false }),
      );
      expect(error.kind).toBe("bad_request");
      expect(platform.calls).toHaveLength(0);
    },
  );

  it("replies outside the thread where a group has none", async () => {
    const platform = await fakePlatform((call, response) =>
      call.body["reply_in_thread"] === true
        ? json(response, 400, { code: 230071, msg: "no threads" })
        : good(response),
    );
    const request = { messageId: "om_1", text: "x", uuid: "u", inThread: true };
    expect(await apiOf(platform.url).messages.reply(request)).toEqual({ messageId: "om_sent" });
  });
});

describe("failures", () => {
  it.each([200, 400])("treats a refusal with HTTP %d alike", async (status) => {
    const platform = await fakePlatform((_call, response) =>
      json(response, status, { code: 230002, msg: "secret words" }),
    );
    const error = await failureOf(reply(apiOf(platform.url), "secret words"));
    expect(error).toMatchObject({
      api: "im.message.reply",
      code: 230002,
      kind: "forbidden",
      retryable: false,
    });
    expect(error.message).not.toContain("secret words");
    expect(platform.calls).toHaveLength(1);
  });

  it("waits as long as a 429 asks, then repeats the same uuid", async () => {
    const at: number[] = [];
    const platform = await fakePlatform((_call, response, count) => {
      at.push(performance.now());
      if (count === 1) limited(response, 1);
      else good(response);
    });
    await reply(apiOf(platform.url));
    expect((at[1] ?? 0) - (at[0] ?? 0)).toBeGreaterThanOrEqual(990);
    expect(platform.calls.map(({ body }) => body["uuid"])).toEqual(["u-1", "u-1"]);
  });

  it("hands a long wait to the caller", async () => {
    const platform = await fakePlatform((_call, response) => limited(response, 40));
    const error = await failureOf(reply(apiOf(platform.url)));
    expect(error).toMatchObject({
      kind: "rate_limit",
      retryable: true,
      retryAfterMs: 40_000,
      uncertain: false,
    });
    expect(platform.calls).toHaveLength(1);
  });

  it("repeats after a 5xx and calls the outcome uncertain when all attempts fail", async () => {
    const platform = await fakePlatform((_call, response) => response.writeHead(503).end("<html>"));
    const error = await failureOf(reply(apiOf(platform.url)));
    expect(error).toMatchObject({
      kind: "unavailable",
      httpStatus: 503,
      retryable: true,
      uncertain: true,
    });
    expect(platform.calls).toHaveLength(3);
  });

  it("does not repeat what a repeat would use up", async () => {
    const platform = await fakePlatform((_call, response) => response.writeHead(503).end());
    const update = apiOf(platform.url).cards.delayedUpdate({ token: "c-1", card: {} });
    expect(await failureOf(update)).toMatchObject({ kind: "unavailable", uncertain: true });
    expect(platform.calls).toHaveLength(1);
  });

  it("stays uncertain when a clear refusal follows an uncertain attempt", async () => {
    const platform = await fakePlatform((_call, response, count) =>
      count === 1
        ? response.writeHead(500).end()
        : json(response, 400, { code: 230001, msg: "bad" }),
    );
    expect(await failureOf(reply(apiOf(platform.url)))).toMatchObject({
      code: 230001,
      uncertain: true,
    });
  });

  it("a hung platform is given up at the deadline, uncertain", async () => {
    const { clock, ring } = clockRinging(500);
    const platform = await fakePlatform(ring);
    const error = await failureOf(
      reply(apiOf(platform.url, { clock, timeoutMs: 500, retry: { attempts: 2, minDelayMs: 1 } })),
    );
    expect(error).toMatchObject({ kind: "unavailable", code: 0, retryable: true, uncertain: true });
    expect(platform.calls).toHaveLength(2);
  });

  it("an answer that trickles does not outlive the deadline", async () => {
    const { clock, ring } = clockRinging(50);
    const platform = await fakePlatform((_call, response) => {
      response.writeHead(200).write("{");
      setImmediate(ring);
    });
    const error = await failureOf(
      reply(apiOf(platform.url, { clock, timeoutMs: 50, retry: { attempts: 1 } })),
    );
    expect(error.uncertain).toBe(true);
  });

  it("a cut connection is repeated", async () => {
    const platform = await fakePlatform((_call, response, count) =>
      count === 1 ? response.socket?.destroy() : good(response),
    );
    expect(await reply(apiOf(platform.url))).toEqual({ messageId: "om_sent" });
  });

  it("a refused connection is certain: nothing was executed", async () => {
    const server = createServer();
    const url = await listening(server);
    await new Promise((resolve) => server.close(resolve));
    const error = await failureOf(reply(apiOf(url)));
    expect(error).toMatchObject({ kind: "unavailable", retryable: true, uncertain: false });
  });

  it("the caller's signal and close() end a call at once", async () => {
    const platform = await fakePlatform(() => undefined);
    const api = apiOf(platform.url);
    const abort = new AbortController();
    const first = failureOf(reply(api, "x", abort.signal));
    await expect.poll(() => platform.calls.length).toBe(1);
    abort.abort();
    expect(await first).toMatchObject({ kind: "cancelled", uncertain: true });
    const second = failureOf(reply(api));
    await expect.poll(() => platform.calls.length).toBe(2);
    api.close();
    expect(await second).toMatchObject({ kind: "cancelled" });
    expect(await failureOf(reply(api))).toMatchObject({ kind: "cancelled" });
  });

  it("writes neither secret nor text nor token to the log", async () => {
    const lines: string[] = [];
    const write = (fields: object, text: string): void =>
      void lines.push(JSON.stringify([fields, text]));
    const logger = { debug: write, info: write, warn: write, error: write };
    const platform = await fakePlatform((_call, response) =>
      json(response, 400, { code: 230001, msg: "secret words" }),
    );
    await failureOf(reply(apiOf(platform.url, { logger }), "secret words"));
    const log = lines.join("\n");
    for (const secret of [appSecret, "secret words", "t-1", platform.url]) {
      expect(log).not.toContain(secret);
    }
  });

  it("refuses a malformed domain at once", () => {
    expect(() => apiOf("ftp://x")).toThrow(/FEISHU_DOMAIN/);
    expect(() => apiOf("not a url")).toThrow(/FEISHU_DOMAIN/);
  });
});

async function simulated() {
  const simulator = await startFeishuSimulator({
    apps: [{ appId, appSecret, name: "Larkline" }],
    limits: "off",
  });
  onTestFinished(() => simulator.close());
  const user = simulator.addUser({ name: "Ann" });
  const chat = simulator.addChat({ type: "group", members: [user.openId] });
  const say = async (text: string): Promise<string> =>
    (await simulator.sendMessage({ appId, chatId: chat.chatId, from: user.openId, text }))
      .messageId;
  return { simulator, chatId: chat.chatId, say, api: apiOf(simulator.url) };
}

describe("against the simulated platform", () => {
  it("knows who the bot is", async () => {
    const { simulator, api } = await simulated();
    expect(await api.botInfo()).toEqual({ openId: simulator.apps[0]?.openId, name: "Larkline" });
  });

  it("replies as text and as post, and the same uuid sends once", async () => {
    const { simulator, chatId, say, api } = await simulated();
    const messageId = await say("hi");
    const request = { messageId, text: "# Title\n\n- one", uuid: "u-1", inThread: false };
    const first = await api.messages.reply(request);
    expect(await api.messages.reply(request)).toEqual(first);
    await api.messages.reply({ ...request, text: 'plain <at user_id="all"></at>', uuid: "u-2" });
    const sent = simulator.messages(chatId).filter(({ senderType }) => senderType === "app");
    expect(sent.map(({ messageType }) => messageType)).toEqual(["post", "text"]);
    expect(sent[1]).toMatchObject({ parentId: messageId, mentions: [] });
  });

  it("replies again after all tokens were revoked, and when an answer got lost", async () => {
    const { simulator, chatId, say, api } = await simulated();
    const messageId = await say("hi");
    await api.messages.reply({ messageId, text: "one", uuid: "u-1", inThread: false });
    simulator.expireTokens();
    simulator.faults.add({
      match: { path: /\/reply$/ },
      times: 1,
      action: { kind: "lose_response" },
    });
    await api.messages.reply({ messageId, text: "two", uuid: "u-2", inThread: false });
    const texts = simulator.messages(chatId).map(({ text }) => text);
    expect(texts).toEqual(["hi", "one", "two"]);
  });

  it("a recalled message is a gone target", async () => {
    const { simulator, say, api } = await simulated();
    const messageId = await say("hi");
    await simulator.recall(messageId);
    expect(
      (await failureOf(api.messages.reply({ messageId, text: "x", uuid: "u", inThread: false })))
        .kind,
    ).toBe("target_gone");
  });

  it("finds its own answer in the chat and in a thread, and only there", async () => {
    const { chatId, say, api } = await simulated();
    const messageId = await say("hi");
    const other = await say("other");
    const sinceMs = Date.now() - 60_000;
    expect(await api.history.findReply({ chatId, messageId, sinceMs })).toBeUndefined();
    const sent = await api.messages.reply({ messageId, text: "x", uuid: "u-1", inThread: false });
    expect(await api.history.findReply({ chatId, messageId, sinceMs })).toBe(sent.messageId);
    expect(await api.history.findReply({ chatId, messageId: other, sinceMs })).toBeUndefined();
    const inThread = await api.messages.reply({
      messageId: other,
      text: "x",
      uuid: "u-2",
      inThread: true,
    });
    expect(await api.history.findReply({ chatId, messageId: other, sinceMs })).toBe(
      inThread.messageId,
    );
  });

  it("finds its answer to a later message of a thread by what it says", async () => {
    const { simulator, chatId, say, api } = await simulated();
    const rootId = await say("root");
    await api.messages.reply({
      messageId: rootId,
      text: "first answer",
      uuid: "u-1",
      inThread: true,
    });
    const from = [...simulator.users.keys()][0] ?? "";
    const { messageId } = await simulator.sendMessage({
      appId,
      chatId,
      from,
      text: "more",
      rootId,
    });
    const search = {
      chatId,
      messageId,
      sinceMs: Date.now() - 60_000,
      text: "# Second\n\n- **answer** with `code`",
    };
    expect(await api.history.findReply(search)).toBeUndefined();
    const { messageId: sentId } = await api.messages.reply({
      messageId,
      text: search.text,
      uuid: "u-2",
      inThread: true,
    });
    expect(await api.history.findReply(search)).toBe(sentId);
    expect(await api.history.findReply({ ...search, text: "another answer" })).toBeUndefined();
  });

  it("has not found a split answer before all its messages are there", async () => {
    const { simulator, chatId, say, api } = await simulated();
    const messageId = await say("hi");
    const text = "一行文字\n".repeat(20_000);
    const search = { chatId, messageId, sinceMs: Date.now() - 60_000, text };
    const stopAfterFirst = simulator.on("message", () => {
      simulator.faults.add({
        match: { path: /\/reply$/ },
        action: { kind: "respond", status: 400 },
      });
    });
    await failureOf(api.messages.reply({ messageId, text, uuid: "u-1", inThread: false }));
    stopAfterFirst();
    simulator.faults.clear();
    expect(simulator.messages(chatId)).toHaveLength(2);
    expect(await api.history.findReply(search)).toBeUndefined();
    await api.messages.reply({ messageId, text, uuid: "u-1", inThread: false });
    expect(simulator.messages(chatId)).toHaveLength(3);
    expect(await api.history.findReply(search)).toBeDefined();
  });
});
