import { execFileSync, spawn } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { request } from "node:http";
import { connect, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it, onTestFinished, vi } from "vitest";
import { turnIdOf } from "@larkline/protocol";
import { pause } from "@larkline/protocol/clock";
import { noteKeptResponse } from "@larkline/store";
import { patientClock } from "@larkline/testkit";
import { replacing } from "./backend.fixture.ts";
import { drainMs } from "./bot.ts";
import {
  doneEvent,
  openStream,
  postChat,
  startTestIngress,
  type Script,
  type TestIngress,
  type TestOptions,
} from "./ingress.fixture.ts";

const open: TestIngress[] = [];

async function start(options: TestOptions = {}): Promise<TestIngress> {
  const ingress = await startTestIngress(options);
  open.push(ingress);
  return ingress;
}

afterEach(async () => {
  await Promise.all(open.splice(0).map(async (ingress) => await ingress.close()));
});

const hello: Script = async (text, { emit }) => {
  for (const piece of ["你", "好，", text]) await emit({ type: "text_delta", text: piece });
};

const weather: Script = async (_text, { emit }) => {
  await emit({ type: "turn_start", turnNumber: 1, model: "m", contextWindowTokens: 1 });
  await emit({ type: "text_delta", text: "我查一下" });
  await emit({ type: "tool_use", id: "c1", toolName: "get_weather", input: { city: "北京" } });
  await emit({
    type: "tool_result",
    id: "c1",
    toolName: "get_weather",
    output: '{"weather":"晴"}',
    isError: false,
    truncated: false,
    storedPath: "",
    result: { weather: "晴" },
  });
  await emit({ type: "text_delta", text: "晴天" });
};

/** Holds the run until it is cancelled. */
const endless: Script = async (_text, { emit, stopped }) => {
  await emit({ type: "text_delta", text: "…" });
  if (!stopped.aborted) {
    await new Promise((resolve) => stopped.addEventListener("abort", resolve, { once: true }));
  }
};

/** Holds the run until `release` is called. */
function gated() {
  const gate = Promise.withResolvers<void>();
  const script: Script = async (text, { emit }) => {
    await emit({ type: "text_delta", text: "first " });
    await gate.promise;
    await emit({ type: "text_delta", text });
  };
  return { script, release: gate.resolve };
}

/** fetch does not let a test choose Host or Origin. */
async function statusWith(ingress: TestIngress, headers: Record<string, string>): Promise<number> {
  return await new Promise((resolve, reject) => {
    const sent = request(`${ingress.url}/chat`, { method: "POST", headers }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    sent.on("error", reject);
    sent.end("{}");
  });
}

describe("POST /chat", () => {
  it("SA-1, SA-2, SA-4: streams the echo, the fragments and one end, then closes", async () => {
    const ingress = await start({ script: hello });
    const stream = await postChat(ingress, { message: "  小明 " });
    await stream.end();
    expect(stream.frames()).toEqual([
      { type: "user_message", content: "  小明 ", run_id: expect.any(String) },
      { type: "assistant", content: "你", run_id: expect.any(String), seq: 1 },
      { type: "assistant", content: "好，", run_id: expect.any(String), seq: 2 },
      { type: "assistant", content: "  小明 ", run_id: expect.any(String), seq: 3 },
      { type: "done", final: "你好，  小明 ", run_id: expect.any(String), seq: 4 },
    ]);
  });

  it("SA-5: with a tool round the end carries the text of the last round only", async () => {
    const ingress = await start({ script: weather });
    const stream = await postChat(ingress, { message: "天气" });
    await stream.end();
    expect(stream.frames().map((frame) => frame.type)).toEqual([
      "user_message",
      "assistant",
      "tool_call",
      "tool_result",
      "assistant",
      "done",
    ]);
    expect(stream.frames()[2]).toMatchObject({
      name: "get_weather",
      args: { city: "北京" },
      id: "c1",
    });
    expect(stream.frames()[3]).toMatchObject({
      name: "get_weather",
      result: { weather: "晴" },
      id: "c1",
    });
    expect(stream.frames()[5]).toMatchObject({ final: "晴天" });
  });

  it.each([
    [{ background: true }, { background: true }],
    [{ background: false }, {}],
    [{}, {}],
  ])("with %j marks the message as %j", async (asked, stored) => {
    const ingress = await start();
    const stream = await postChat(ingress, { message: "later", session_id: "s", ...asked });
    const { head } = await ingress.store.summary("api.s");
    const { background } = head?.message ?? {};
    expect(background === undefined ? {} : { background }).toEqual(stored);
    stream.leave();
  });

  it("SA-40: while a call waits for an approval heartbeats keep the stream alive, and it continues after the decision", async () => {
    const decided = Promise.withResolvers<void>();
    const call = { id: "c1", toolName: "deploy", input: { to: "prod" } };
    const asking: Script = async (_text, { emit }) => {
      await emit({ type: "tool_use", ...call });
      await emit({ type: "permission_request", ...call, message: "may I?" });
      await decided.promise;
      const output = "User rejected this action.";
      await emit({
        type: "tool_result",
        ...call,
        output,
        isError: true,
        truncated: false,
        storedPath: "",
      });
      await emit({ type: "text_delta", text: "all right" });
    };
    const ingress = await start({ script: asking, env: { API_HEARTBEAT_MS: "20" } });
    const stream = await postChat(ingress, { message: "deploy" });
    await stream.until(/"approval_request"[^]*(: ping\n\n){3}/);
    expect(stream.frames().slice(1)).toMatchObject([
      { type: "tool_call" },
      {
        type: "approval_request",
        approval_id: "c1",
        name: "deploy",
        args: { to: "prod" },
        message: "may I?",
      },
    ]);
    decided.resolve();
    await stream.end();
    expect(stream.frames().slice(3)).toMatchObject([
      { type: "tool_error", name: "deploy", error: "User rejected this action.", id: "c1" },
      { type: "assistant", content: "all right" },
      { type: "done" },
    ]);
  });

  it("EE-41: no frame says where a large result is stored", async () => {
    const call = {
      id: "c1",
      toolName: "read",
      isError: false,
      truncated: true,
      storedPath: "res_0123456789abcdef",
    };
    const large: Script = async (_text, { emit }) => {
      await emit({ type: "tool_use", id: "c1", toolName: "read", input: {} });
      await emit({ type: "tool_result", ...call, output: "head and tail" });
    };
    const stream = await postChat(await start({ script: large }), { message: "read it" });
    await stream.end();
    expect(stream.frames()).toContainEqual(
      expect.objectContaining({ type: "tool_result", result: "head and tail" }),
    );
    expect(stream.text()).not.toMatch(/storedPath|res_0123456789abcdef/);
  });

  it("SA-22, SA-23: the bytes of a stream are exactly these", async () => {
    const ingress = await start({ script: hello });
    const stream = await postChat(ingress, { message: "a\nb", session_id: "s1" });
    await stream.end();
    const run = `"run_id":"api.s1-1"`;
    expect(stream.text()).toBe(
      [
        `data: {"type":"user_message","content":"a\\nb",${run}}`,
        `id: 1\ndata: {"type":"assistant","content":"你",${run},"seq":1}`,
        `id: 2\ndata: {"type":"assistant","content":"好，",${run},"seq":2}`,
        `id: 3\ndata: {"type":"assistant","content":"a\\nb",${run},"seq":3}`,
        `id: 4\ndata: {"type":"done","final":"你好，a\\nb",${run},"seq":4}`,
        "",
      ].join("\n\n"),
    );
  });

  it("SA-24: the headers keep proxies from holding the stream back", async () => {
    const ingress = await start({ script: hello });
    const stream = await postChat(ingress, { message: "hi" });
    await stream.end();
    expect(stream.status).toBe(200);
    expect(stream.headers.get("content-type")).toMatch(/^text\/event-stream/);
    expect(stream.headers.get("cache-control")).toBe("no-cache");
    expect(stream.headers.get("x-accel-buffering")).toBe("no");
  });

  it("SA-25: an empty message is answered with one error frame; nothing is stored", async () => {
    const ingress = await start({ script: hello });
    for (const body of [{}, { message: "" }, { message: null }, { message: " \n\t" }]) {
      const stream = await postChat(ingress, body);
      await stream.end();
      expect(stream.status).toBe(200);
      expect(stream.headers.get("content-type")).toMatch(/^text\/event-stream/);
      expect(stream.text()).toBe('data: {"type":"error","message":"消息不能为空"}\n\n');
    }
    expect(ingress.wakes).toEqual([]);
  });

  it("SA-26: malformed JSON, a body that is no object and a message that is no text are refused", async () => {
    const ingress = await start({ script: hello });
    const bad = [
      "",
      "{",
      "[1]",
      '"hi"',
      "null",
      '{"message":0}',
      '{"message":false}',
      '{"message":["a"]}',
    ];
    const badIds = [
      '{"message":"a","session_id":"a.b"}',
      '{"message":"a","session_id":7}',
      '{"message":"a","session_id":""}',
    ];
    for (const body of [...bad, ...badIds, `{"message":"a","session_id":"${"x".repeat(65)}"}`]) {
      const stream = await postChat(ingress, body);
      await stream.end();
      expect([body, stream.status]).toEqual([body, 400]);
      expect(JSON.parse(stream.text())).toEqual({ error: expect.any(String) });
    }
    expect(ingress.wakes).toEqual([]);
  });

  it.each([
    ["a length", `Content-Length: 6000000\r\n\r\n`, "x".repeat(6_000_000)],
    [
      "chunks",
      "Transfer-Encoding: chunked\r\n\r\n",
      `${"186a0\r\n".concat("x".repeat(100_000), "\r\n").repeat(60)}0\r\n\r\n`,
    ],
  ])(
    "a client that sends a body with %s to its end reads that it is too large",
    async (_how, head, body) => {
      const { url } = await start({ script: hello });
      const { hostname, port } = new URL(url);
      const socket = connect(Number(port), hostname);
      // As clients do that read nothing before they have sent everything.
      socket.pause();
      let failed: unknown;
      socket.on("error", (error) => (failed = error));
      const closed = new Promise((resolve) => socket.once("close", resolve));
      await new Promise<void>((resolve) => {
        socket.write(`POST /chat HTTP/1.1\r\nHost: ${hostname}:${port}\r\n${head}${body}`, () =>
          resolve(),
        );
      });
      let answer = "";
      socket.on("data", (data: Buffer) => (answer += data.toString()));
      socket.resume();
      await closed;
      expect([failed, answer.slice(0, 12)]).toEqual([undefined, "HTTP/1.1 413"]);
    },
  );

  it("refuses bodies over the limit and bytes that are no UTF-8", async () => {
    const ingress = await start({ script: hello });
    const large = await postChat(ingress, { message: "x".repeat(1_100_000) });
    expect(large.status).toBe(413);
    const broken = await fetch(`${ingress.url}/chat`, {
      method: "POST",
      body: new Uint8Array([0x7b, 0xff, 0x7d]),
    });
    expect(broken.status).toBe(400);
  });

  it("SA-27: while the process starts there is one error frame and nothing is stored; later it answers", async () => {
    const ingress = await start({ script: hello });
    ingress.trouble.starting = true;
    const requests = [
      async () => await postChat(ingress, { message: "hi", session_id: "s", message_id: "m" }),
      async () => await postChat(ingress, { message: "/help", session_id: "s" }),
      async () => await openStream(`${ingress.url}/chat/s/events`),
      async () => await postChat(ingress, { session_id: "s" }, { "last-event-id": "1" }),
    ];
    for (const send of requests) {
      const stream = await send();
      await stream.end();
      expect(stream.status).toBe(200);
      expect(stream.text()).toBe('data: {"type":"error","message":"Agent 未初始化"}\n\n');
    }
    expect(await ingress.store.summary("api.s")).toMatchObject({ state: "idle", waiting: 0 });
    ingress.trouble.starting = false;
    const stream = await postChat(ingress, { message: "hi", session_id: "s", message_id: "m" });
    await stream.end();
    expect(stream.frames().at(-1)).toMatchObject({ type: "done", final: "你好，hi" });
  });

  it.each([{ notReady: true }, { refuse: true }])(
    "SA-27: with %j, later, the answer is 503 and nothing was stored",
    async (trouble) => {
      const ingress = await start({ script: hello });
      Object.assign(ingress.trouble, trouble);
      const refused = await postChat(ingress, { message: "hi", session_id: "s" });
      await refused.end();
      expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
      expect(refused.text()).not.toContain("未初始化");
      expect(await ingress.store.summary("api.s")).toMatchObject({ state: "idle", waiting: 0 });
    },
  );

  it.each([
    ["was stored", { silent: true }],
    ["was not stored", { append: true }],
  ])(
    "a message that %s, but whose answer did not come, is uncertain and can be repeated",
    async (_what, trouble) => {
      const ingress = await start({ script: hello });
      Object.assign(ingress.trouble, trouble);
      const uncertain = await postChat(ingress, { message: "hi" });
      await uncertain.end();
      const [told] = uncertain.frames();
      expect(uncertain.frames()).toEqual([
        {
          type: "error",
          message: expect.stringContaining("may be stored"),
          code: "uncertain",
          session_id: uncertain.headers.get("x-session-id"),
          message_id: expect.stringMatching(/^[\w-]{22}$/),
        },
      ]);
      Object.assign(ingress.trouble, { silent: false, append: false });
      const { session_id, message_id } = told?.type === "error" ? told : {};
      const again = { message: "hi", session_id, message_id };
      for (let repeated = 0; repeated < 2; repeated += 1) {
        const stream = await postChat(ingress, again);
        await stream.end();
        expect(stream.frames().at(-1)).toMatchObject({
          type: "done",
          final: "你好，hi",
          run_id: `api.${session_id}-1`,
        });
      }
      const runs = (await ingress.log.read(`api.${session_id}`, 0, 100)).map(({ runId }) => runId);
      expect(new Set(runs).size).toBe(1);
    },
  );

  it("an uncertain message keeps the id that its client gave it", async () => {
    const ingress = await start({ script: hello });
    ingress.trouble.append = true;
    const stream = await postChat(ingress, { message: "hi", session_id: "s", message_id: "m-7" });
    await stream.end();
    expect(stream.frames()).toMatchObject([
      { code: "uncertain", session_id: "s", message_id: "m-7" },
    ]);
  });

  it("a message over limits.messageChars is refused with 413, one of that length is taken", async () => {
    const ingress = await start({ script: hello, settings: { limits: { messageChars: 10 } } });
    const long = await postChat(ingress, { message: "x".repeat(11), session_id: "s" });
    await long.end();
    expect(long.status).toBe(413);
    expect(JSON.parse(long.text())).toEqual({ error: expect.stringContaining("10 characters") });
    expect(ingress.wakes).toEqual([]);
    expect((await postChat(ingress, { message: "x".repeat(10) })).status).toBe(200);
  });

  it("a run may continue an answer that the vendor keeps, where its agent has it keep them", async () => {
    const agents = {
      default: { model: "openai-responses/m", storeResponses: true },
      forgetful: {},
    };
    const ingress = await start({ settings: { agents } });
    const run = async (fields: object) => {
      const body = JSON.stringify({
        input: "and?",
        session_id: "s",
        previous_response_id: "resp_1",
        ...fields,
      });
      const response = await fetch(`${ingress.url}/v1/runs`, { method: "POST", body });
      return [response.status, ((await response.json()) as { error?: string }).error];
    };
    const input = ["user", "assistant", "user"].map((role) => ({ role, content: "a" }));
    expect(await run({ agent: "forgetful" })).toEqual([
      400,
      "previous_response_id: agent 'forgetful' does not store its responses (agents.forgetful.storeResponses)",
    ]);
    expect(await run({ input })).toEqual([
      400,
      "input: with previous_response_id it is one user message",
    ]);
    expect(await run({ previous_response_id: "a b" })).toEqual([
      400,
      expect.stringContaining("previous_response_id"),
    ]);
    const unknown = [404, "previous_response_id: nothing is known of this answer"];
    expect(await run({})).toEqual(unknown);
    const kept = { responseId: "resp_1", session: "api.other", atMs: 1, conversationMs: 60_000 };
    await noteKeptResponse(ingress.lookups, { ...kept, caller: "another caller" });
    expect(await run({})).toEqual(unknown);
    expect(ingress.wakes).toEqual([]);
    await noteKeptResponse(ingress.lookups, { ...kept, caller: "api" });
    expect(await run({})).toEqual([202, undefined]);
    const claim = await ingress.store.claim("api.s", 1, "test");
    expect(claim?.head?.message).toMatchObject({
      needs: ["stored-response"],
      previousResponseId: "resp_1",
    });
  });

  it("takes 60 large schemas of answers without compiling one, and refuses patterns that RE2 does not have", async () => {
    const ingress = await start({ script: hello });
    let threads = 0;
    const count = (): void => void (threads += 1);
    process.on("worker", count);
    onTestFinished(() => void process.off("worker", count));
    const run = async (schema: object): Promise<[number, unknown]> => {
      const body = JSON.stringify({ input: "a", background: true, output: { name: "n", schema } });
      const response = await fetch(`${ingress.url}/v1/runs`, { method: "POST", body });
      return [response.status, await response.json()];
    };
    const field = (pattern: string) => ({ type: "object", properties: { a: { pattern } } });
    const large = (at: number) => {
      const names = Array.from({ length: 1_900 }, (_, name) => [`${at}_${name}`, {}]);
      return { type: "object", properties: Object.fromEntries(names) };
    };
    const taken = await Promise.all(
      Array.from({ length: 60 }, async (_, at) => await run(large(at))),
    );
    expect(taken.map(([status]) => status)).toEqual(Array(60).fill(202));
    expect(threads).toBe(0);
    expect(await run({ ...large(1), properties: { a: large(1), b: large(2) } })).toEqual([
      400,
      { error: expect.stringMatching(/^output\.schema is too large/) },
    ]);
    expect(await run(field("^(?!x)"))).toEqual([
      400,
      { error: expect.stringMatching(/^output\.the pattern "\^/) },
    ]);
    expect(await run(field("^(a+)+$"))).toMatchObject([202, {}]);
    expect(threads).toBe(1);
  });

  it("SA-30: each request without a session id gets a session of its own, named in the headers", async () => {
    const ingress = await start({ script: hello });
    const streams = [
      await postChat(ingress, { message: "a" }),
      await postChat(ingress, { message: "b" }),
    ];
    await Promise.all(streams.map(async (stream) => await stream.end()));
    const ids = streams.map((stream) => stream.headers.get("x-session-id"));
    expect(new Set(ids).size).toBe(2);
    for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{22}$/);
    expect(ingress.wakes.map(({ session }) => session).sort()).toEqual(
      ids.map((id) => `api.${id}`).sort(),
    );
  });

  it("SA-30: two requests of one session are answered one after the other, each with its own run", async () => {
    const { script, release } = gated();
    const ingress = await start({ script });
    const one = await postChat(ingress, { message: "one", session_id: "s" });
    await one.until(/first/);
    const two = await postChat(ingress, { message: "two", session_id: "s" });
    await two.until(/user_message/);
    expect(two.frames()).toHaveLength(1);
    release();
    await Promise.all([one.end(), two.end()]);
    expect(one.frames().at(-1)).toMatchObject({
      type: "done",
      final: "first one",
      run_id: "api.s-1",
    });
    expect(two.frames().at(-1)).toMatchObject({
      type: "done",
      final: "first two",
      run_id: "api.s-2",
    });
    expect(two.frames().filter((frame) => frame.run_id !== "api.s-2")).toEqual([]);
  });

  it("SA-31: each later fragment arrives before the next one is made", async () => {
    const pieces = Array.from({ length: 6 }, (_, index) => `piece${index} `);
    const gates = pieces.map(() => Promise.withResolvers<void>());
    const script: Script = async (_text, { emit }) => {
      for (const [index, text] of pieces.entries()) {
        await emit({ type: "text_delta", text });
        await gates[index]?.promise;
      }
    };
    const stream = await postChat(await start({ script }), { message: "go" });
    for (const [index, piece] of pieces.entries()) {
      await stream.until(new RegExp(`"content":"${piece}"`));
      expect(stream.frames()).toHaveLength(index + 2);
      gates[index]?.resolve();
    }
    await stream.end();
    expect(stream.frames().at(-1)).toMatchObject({ type: "done", final: pieces.join("") });
  });

  it("SA-31: fragments arrive while the run is still going on", async () => {
    const { script, release } = gated();
    const ingress = await start({ script });
    const stream = await postChat(ingress, { message: "rest" });
    await stream.until(/"content":"first "/);
    expect(stream.text()).not.toContain("done");
    release();
    await stream.end();
    expect(stream.frames().at(-1)).toMatchObject({ type: "done" });
  });

  it("SA-34: heartbeats keep a silent stream alive and are no frames", async () => {
    const { script, release } = gated();
    const ingress = await start({ script, env: { API_HEARTBEAT_MS: "20" } });
    const stream = await postChat(ingress, { message: "rest" });
    await stream.until(/(: ping\n\n){3}/);
    release();
    await stream.end();
    const plain = stream.frames().map((frame) => frame.type);
    expect(plain).toEqual(["user_message", "assistant", "assistant", "done"]);
  });

  it("a full inbox is answered with an error frame", async () => {
    const ingress = await start({ maxWaiting: 1 });
    const first = await postChat(ingress, { message: "a", session_id: "s" });
    await first.until(/user_message/);
    const second = await postChat(ingress, { message: "b", session_id: "s" });
    await second.end();
    expect(second.frames()).toEqual([
      { type: "error", message: expect.stringContaining("too many"), code: "full" },
    ]);
    first.leave();
  });

  it("a lost wake-up does not take the stream away: the workers' sweeper finds the message", async () => {
    const ingress = await start();
    ingress.trouble.wake = true;
    const stream = await postChat(ingress, { message: "a", session_id: "s" });
    await stream.until(/user_message/);
    expect((await ingress.store.summary("api.s")).state).toBe("queued");
    stream.leave();
  });
});

describe("a client that leaves", () => {
  it.each([
    [{}, { on_disconnect: "cancel" }],
    [{ API_ON_DISCONNECT: "cancel" }, {}],
  ])("SA-32, EE-43: with %j and %j its run is cancelled within a second", async (env, body) => {
    const ingress = await start({ script: endless, env });
    const stream = await postChat(ingress, { message: "a", session_id: "s", ...body });
    await stream.until(/…/);
    stream.leave();
    await vi.waitFor(
      () => expect(ingress.cancels).toEqual([{ session: "api.s", turnId: "api.s-1" }]),
      {
        timeout: 60_000,
      },
    );
    await vi.waitFor(
      async () => expect((await ingress.store.summary("api.s")).state).toBe("idle"),
      {
        timeout: 60_000,
      },
    );
    expect((await ingress.log.read("api.s", 0, 10)).at(-1)?.event).toMatchObject({
      type: "done",
      reason: "cancelled",
    });
  });

  /** Waits for the report of a run; `leave` resolves when the ingress knows that its client has left. */
  async function waitForReport({ url, services }: TestIngress, body: Record<string, string>) {
    const reserve = vi.spyOn(services.streams, "reserve");
    const leaving = new AbortController();
    const run = JSON.stringify({ input: "on", session_id: "s", ...body });
    const init = {
      method: "POST",
      body: run,
      headers: { prefer: "wait=300" },
      signal: leaving.signal,
    };
    const answer = fetch(`${url}/v1/runs`, init).then(
      async (response) => await response.text(),
      () => "left",
    );
    await vi.waitFor(() => expect(reserve).toHaveBeenCalledTimes(1), { timeout: 60_000 });
    const [response] = reserve.mock.calls[0] ?? expect.fail();
    reserve.mockRestore();
    const leave = async () => {
      leaving.abort();
      await vi.waitFor(() => expect(response.closed).toBe(true), { timeout: 60_000 });
    };
    return { answer, leave };
  }

  it("before it has the ids of its run has it cancelled", async () => {
    const ingress = await start({ script: endless });
    const { store } = ingress.services;
    const [storing, left] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const append: typeof store.append = async (...appending) => {
      storing.resolve();
      await left.promise;
      return await store.append(...appending);
    };
    Object.assign(ingress.services, { store: replacing(store, { append }) });
    const closing: Promise<unknown>[] = [];
    const watch = (message: unknown): void => {
      const { socket } = message as { socket: Socket }; // as Node says what begins
      closing.push(once(socket, "close"));
    };
    subscribe("http.server.request.start", watch);
    onTestFinished(() => void unsubscribe("http.server.request.start", watch));
    const leaving = new AbortController();
    const body = JSON.stringify({ input: "on", session_id: "s", on_disconnect: "cancel" });
    const answer = fetch(`${ingress.url}/v1/runs`, {
      method: "POST",
      body,
      signal: leaving.signal,
    });
    answer.catch(() => undefined); // it leaves
    await storing.promise;
    leaving.abort();
    await Promise.all(closing);
    left.resolve();
    await vi.waitFor(
      () => expect(ingress.cancels).toEqual([{ session: "api.s", turnId: "api.s-1" }]),
      {
        timeout: 60_000,
      },
    );
  });

  it.each(["while it runs", "before it is stored"])(
    "before it has the report that it waits for has its run cancelled, %s",
    async (when) => {
      const ingress = await start({ script: endless });
      const { store } = ingress.services;
      const [storing, left] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const append: typeof store.append = async (...appending) => {
        storing.resolve();
        if (when === "before it is stored") await left.promise;
        return await store.append(...appending);
      };
      Object.assign(ingress.services, { store: replacing(store, { append }) });
      const { answer, leave } = await waitForReport(ingress, { on_disconnect: "cancel" });
      await storing.promise;
      if (when === "while it runs") {
        await vi.waitFor(() => expect(ingress.wakes).toHaveLength(1), { timeout: 60_000 });
      }
      await leave();
      left.resolve();
      expect(await answer).toBe("left");
      await vi.waitFor(
        () => expect(ingress.cancels).toEqual([{ session: "api.s", turnId: "api.s-1" }]),
        {
          timeout: 60_000,
        },
      );
    },
  );

  it("before it has the report does not end a run that is to continue, or that another request started", async () => {
    const { script, release } = gated();
    const ingress = await start({ script });
    for (const body of [{}, { on_disconnect: "cancel" }]) {
      const { leave } = await waitForReport(ingress, { message_id: "m", ...body });
      await vi.waitFor(() => expect(ingress.wakes).toHaveLength(1), { timeout: 60_000 });
      await leave();
    }
    const { answer } = await waitForReport(ingress, { message_id: "m" });
    release();
    expect(JSON.parse(await answer)).toMatchObject({ run_id: "api.s-1", state: "done" });
    expect(ingress.cancels).toEqual([]);
  });

  it("SA-32, EE-43: its run continues, unless the request or the configuration says otherwise", async () => {
    for (const [env, body] of [
      [{}, {}],
      [{ API_ON_DISCONNECT: "detach" }, {}],
      [{ API_ON_DISCONNECT: "cancel" }, { on_disconnect: "detach" }],
      [{ API_ON_DISCONNECT: "cancel" }, { on_disconnect: "continue" }],
    ] as const) {
      const { script, release } = gated();
      const ingress = await start({ script, env });
      const stream = await postChat(ingress, { message: "on", session_id: "s", ...body });
      await stream.until(/first/);
      stream.leave();
      await vi.waitFor(
        async () => expect(await ingress.metrics.text()).toMatch(/larkline_ingress_streams\S* 0/),
        {
          timeout: 60_000,
        },
      );
      release();
      await vi.waitFor(
        async () =>
          expect((await ingress.log.read("api.s", 0, 10)).at(-1)?.event).toMatchObject({
            reason: "",
          }),
        { timeout: 60_000 },
      );
      expect(ingress.cancels).toEqual([]);
    }
  });

  it("a client that does not read holds nothing but its own stream", async () => {
    const big = "x".repeat(100_000);
    const script: Script = async (text, { emit }) => {
      const pieces = text === "big" ? Array<string>(100).fill(big) : [];
      for (const piece of pieces) await emit({ type: "text_delta", text: piece });
      await emit({ type: "text_delta", text: "end" });
    };
    const ingress = await start({ script });
    const socket = connect(Number(new URL(ingress.url).port), "127.0.0.1");
    socket.pause();
    const body = '{"message":"big"}';
    socket.write(
      `POST /chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    );
    await vi.waitFor(
      async () => expect(await ingress.metrics.text()).toMatch(/larkline_ingress_streams\S* 1/),
      {
        timeout: 60_000,
      },
    );
    const other = await postChat(ingress, { message: "small" });
    await other.end();
    expect(other.frames().at(-1)).toMatchObject({ type: "done", final: "end" });
    let received = 0;
    const closed = new Promise((resolve) => socket.once("close", resolve));
    socket.on("data", (data) => {
      received += data.length;
    });
    socket.resume();
    await closed;
    expect(received).toBeGreaterThan(10_000_000);
  });
});

describe("POST /v1/runs/:id/cancel", () => {
  const cancel = async ({ url }: TestIngress, runId: string) => {
    const response = await fetch(`${url}/v1/runs/${runId}/cancel`, { method: "POST" });
    return [response.status, ((await response.json()) as { state?: string }).state];
  };

  it("stops the run under way, and says when it has ended", async () => {
    const ingress = await start({ script: endless });
    const stream = await postChat(ingress, { message: "a", session_id: "s-1" });
    await stream.until(/…/);
    expect(await cancel(ingress, stream.headers.get("x-run-id") ?? "")).toEqual([
      202,
      "cancelling",
    ]);
    await stream.end();
    expect(stream.frames().at(-1)).toMatchObject({
      type: "error",
      message: expect.stringContaining("cancelled"),
    });
    expect(await cancel(ingress, "api.s-1-1")).toEqual([409, "ended"]);
    expect(ingress.cancels).toEqual([{ session: "api.s-1", turnId: "api.s-1-1" }]);
  });

  it("takes a waiting message out and leaves the running one alone", async () => {
    const { script, release } = gated();
    const ingress = await start({ script });
    const one = await postChat(ingress, { message: "one", session_id: "s" });
    await one.until(/first/);
    const two = await postChat(ingress, { message: "two", session_id: "s" });
    await two.until(/user_message/);
    expect(await cancel(ingress, "api.s-2")).toEqual([202, "cancelling"]);
    await two.end();
    expect(two.frames().at(-1)).toMatchObject({ type: "error" });
    release();
    await one.end();
    expect(one.frames().at(-1)).toMatchObject({ type: "done", final: "first one" });
  });

  it("knows nothing of other runs, and says when it does not know", async () => {
    const guarded = await start({ script: endless, env: { API_TOKEN: "a-token-of-the-api" } });
    expect((await fetch(`${guarded.url}/v1/runs/api.s-1/cancel`, { method: "POST" })).status).toBe(
      401,
    );
    const ingress = await start({ script: endless });
    for (const runId of ["api.nobody-1", "cli_app.oc_1-1", "api.s", "nonsense"]) {
      expect(await cancel(ingress, runId)).toEqual([404, undefined]);
    }
    const stream = await postChat(ingress, { message: "a", session_id: "s" });
    await stream.until(/…/);
    ingress.trouble.cancel = true;
    expect(await cancel(ingress, "api.s-1")).toEqual([503, undefined]);
    stream.leave();
  });
});

describe("commands", () => {
  const said = async (ingress: TestIngress, message: string, more: object = {}) => {
    const stream = await postChat(ingress, { message, session_id: "s", ...more });
    await stream.end();
    const [echo, answer, end, ...rest] = stream.frames();
    expect(echo).toEqual({ type: "user_message", content: message });
    expect(rest).toEqual([]);
    expect(end).toMatchObject({
      type: "done",
      final: answer?.type === "assistant" ? answer.content : "none",
    });
    return end?.type === "done" ? end.final : "";
  };

  it.each([
    ["/help", "/stop"],
    ["/帮助", "/停止"],
    ["/status", "Model"],
    ["/whoami", "api.s"],
    ["/usage", ""],
    ["/permissions", ""],
    ["/stop", "Nothing"],
  ])("%s is answered with text and starts no run", async (command, part) => {
    const ingress = await start({ script: hello });
    const text = await said(ingress, command);
    expect(text).toContain(part);
    expect(text.trim()).not.toBe("");
    expect(ingress.wakes).toEqual([]);
    expect(await ingress.metrics.text()).toMatch(/channel="api",outcome="command"[^}]*\} 1/);
  });

  it("/stop ends the run of the session, and no later one when it is repeated", async () => {
    const ingress = await start({ script: endless });
    const first = await postChat(ingress, { message: "one", session_id: "s" });
    await first.until(/…/);
    expect(await said(ingress, "/stop", { message_id: "order" })).not.toContain("Nothing");
    await first.end();
    expect(first.frames().at(-1)).toMatchObject({ type: "error" });
    const second = await postChat(ingress, { message: "two", session_id: "s" });
    await second.until(/…/);
    await said(ingress, "/stop", { message_id: "order" });
    expect(ingress.cancels).toEqual([{ session: "api.s", turnId: "api.s-1" }]);
    second.leave();
  });

  it("/permissions shows and takes back what was remembered in the session", async () => {
    const ingress = await start({ script: hello });
    const rule = {
      v: 1,
      app: "api",
      chatId: "api.s",
      tool: "deploy",
      pattern: "prod",
      author: { id: "api" },
    } as const;
    await ingress.rules.add({
      ...rule,
      id: "1".repeat(32),
      createdAtMs: Date.now(),
      expiresAtMs: Date.now() + 60_000,
    });
    expect(await said(ingress, "/permissions")).toContain("deploy");
    await said(ingress, "/permissions revoke 1");
    expect(await ingress.rules.inForce("api", "api.s")).toEqual([]);
  });

  it("one that cannot be obeyed at the moment is answered with 503", async () => {
    const ingress = await start({ script: endless });
    const stream = await postChat(ingress, { message: "one", session_id: "s" });
    await stream.until(/…/);
    ingress.trouble.cancel = true;
    expect((await postChat(ingress, { message: "/stop", session_id: "s" })).status).toBe(503);
    stream.leave();
  });
});

describe("a message that comes while the session is at work", () => {
  it("is refused where the agent's policy says so; orders are not", async () => {
    const ingress = await start({
      script: endless,
      settings: { agents: { default: { busy: "reject" } } },
    });
    const first = await postChat(ingress, { message: "one", session_id: "s" });
    await first.until(/…/);
    const second = await postChat(ingress, { message: "two", session_id: "s" });
    await second.end();
    expect(second.frames()).toEqual([{ type: "error", message: expect.any(String), code: "busy" }]);
    const order = await postChat(ingress, { message: "/new", session_id: "s" });
    await order.until(/user_message/);
    expect((await ingress.store.summary("api.s")).waiting).toBe(2);
    for (const stream of [first, order]) stream.leave();
  });

  it("ends the run under way where the policy is to interrupt", async () => {
    const script: Script = async (text, run) => await (text === "one" ? endless : hello)(text, run);
    const ingress = await start({
      script,
      settings: { agents: { default: { busy: "interrupt" } } },
    });
    const first = await postChat(ingress, { message: "one", session_id: "s" });
    await first.until(/…/);
    const second = await postChat(ingress, { message: "two", session_id: "s" });
    await Promise.all([first.end(), second.end()]);
    expect(first.frames().at(-1)).toMatchObject({ type: "error" });
    expect(second.frames().at(-1)).toMatchObject({ type: "done", final: "你好，two" });
  });
});

describe("coming back", () => {
  it("a follower gets the rest of the run after Last-Event-ID, and only that", async () => {
    const { script, release } = gated();
    const ingress = await start({ script });
    const first = await postChat(ingress, { message: "rest", session_id: "s" });
    await first.until(/first/);
    first.leave();
    const events = `${ingress.url}/chat/s/events`;
    const second = await openStream(events, { headers: { "last-event-id": "1" } });
    release();
    await second.end();
    expect(second.frames()).toEqual([
      { type: "assistant", content: "rest", run_id: "api.s-1", seq: 2 },
      { type: "done", final: "first rest", run_id: "api.s-1", seq: 3 },
    ]);
    const again = await openStream(`${events}?after=2&run=api.s-1`);
    await again.end();
    expect(again.frames().map((frame) => frame.type)).toEqual(["done"]);
    const whole = await openStream(events);
    await whole.end();
    expect(whole.frames().map((frame) => frame.seq)).toEqual([1, 2, 3]);
  });

  it("POST with Last-Event-ID and a session resumes and never repeats the message", async () => {
    const { script, release } = gated();
    const ingress = await start({ script });
    const first = await postChat(ingress, { message: "rest", session_id: "s" });
    await first.until(/first/);
    first.leave();
    const second = await postChat(
      ingress,
      { message: "rest" },
      { "last-event-id": "1", "x-session-id": "s" },
    );
    release();
    await second.end();
    expect(second.frames().map((frame) => frame.type)).toEqual(["assistant", "done"]);
    expect(ingress.wakes).toHaveLength(1);
  });

  it("a repeated message id joins the run of the first request", async () => {
    const { script, release } = gated();
    const ingress = await start({ script });
    const ask = { message: "rest", session_id: "s", message_id: "m-1" };
    const first = await postChat(ingress, ask);
    await first.until(/first/);
    const second = await postChat(
      ingress,
      { message: "rest", session_id: "s" },
      { "idempotency-key": "m-1" },
    );
    await second.until(/first/);
    const third = await postChat(ingress, ask, { "last-event-id": "1" });
    release();
    await Promise.all([first.end(), second.end(), third.end()]);
    expect(first.text()).toBe(second.text());
    expect(third.frames().map((frame) => frame.type)).toEqual(["assistant", "done"]);
    const after = await postChat(ingress, ask);
    await after.end();
    expect(after.text()).toBe(first.text());
    expect((await ingress.log.read("api.s", 0, 10)).map(({ runId }) => runId)).toEqual(
      Array(3).fill("api.s-1"),
    );
  });

  it("the same message id in another session is another message", async () => {
    const ingress = await start({ script: hello });
    for (const sessionId of ["s1", "s2"]) {
      const stream = await postChat(ingress, {
        message: "a",
        session_id: sessionId,
        message_id: "1",
      });
      await stream.end();
      expect(stream.frames().at(-1)).toMatchObject({ type: "done", run_id: `api.${sessionId}-1` });
    }
  });

  it("says when there is nothing to follow, and refuses what names nothing", async () => {
    const ingress = await start({ script: hello });
    const stream = await postChat(ingress, { message: "a", session_id: "s" });
    await stream.end();
    const statusOf = async (path: string) => (await fetch(`${ingress.url}/chat/${path}`)).status;
    expect(await statusOf("s/events?after=4")).toBe(204);
    expect(await statusOf("s/events?after=99")).toBe(204);
    expect(await statusOf("nobody/events")).toBe(404);
    expect(await statusOf("a.b/events")).toBe(400);
    expect(await statusOf("s/events?run=api.other-1")).toBe(400);
    expect((await postChat(ingress, { message: "a", message_id: "1" })).status).toBe(400);
    expect((await postChat(ingress, { message: "a" }, { "last-event-id": "3" })).status).toBe(400);
  });

  it("a Last-Event-ID from the future ends at once, also while the session is at work", async () => {
    const ingress = await start({ script: endless });
    const ask = { message: "a", session_id: "s", message_id: "m" };
    const stream = await postChat(ingress, ask);
    await stream.until(/…/);
    const ahead = { "last-event-id": "99" };
    expect((await fetch(`${ingress.url}/chat/s/events`, { headers: ahead })).status).toBe(204);
    expect((await postChat(ingress, { session_id: "s" }, ahead)).status).toBe(204);
    const repeated = await postChat(ingress, ask, ahead);
    await repeated.end();
    expect(repeated.frames()).toEqual([
      { type: "error", message: expect.stringContaining("Last-Event-ID") },
    ]);
    const fresh = await postChat(ingress, { ...ask, message_id: "n" }, ahead);
    await fresh.until(/user_message/);
    for (const each of [stream, fresh]) each.leave();
  });

  it("a follower of a session with a waiting message gets the run that comes next", async () => {
    const ingress = await start();
    const post = await postChat(ingress, { message: "a", session_id: "s" });
    await post.until(/user_message/);
    post.leave();
    const stream = await openStream(`${ingress.url}/chat/s/events`);
    const claim = await ingress.store.claim("api.s", 1, "test");
    const runId = turnIdOf("api.s", 1);
    const events = [{ runId, event: doneEvent("late") }];
    const held = { session: "api.s", epoch: claim?.epoch ?? "", history: [], events };
    await ingress.store.commit({ ...held, seq: 1, more: false });
    await stream.end();
    expect(stream.frames()).toEqual([{ type: "done", final: "late", run_id: runId, seq: 1 }]);
  });

  it("the end of a cancelled waiting message does not end the stream of the running one", async () => {
    const { script, release } = gated();
    const ingress = await start({ script });
    const one = await postChat(ingress, { message: "one", session_id: "s" });
    await one.until(/first/);
    const two = await postChat(ingress, {
      message: "two",
      session_id: "s",
      on_disconnect: "cancel",
    });
    await two.until(/user_message/);
    two.leave();
    await vi.waitFor(
      () => expect(ingress.cancels).toEqual([{ session: "api.s", turnId: "api.s-2" }]),
      {
        timeout: 60_000,
      },
    );
    const follower = await openStream(`${ingress.url}/chat/s/events`, {
      headers: { "last-event-id": "1" },
    });
    release();
    await Promise.all([one.end(), follower.end()]);
    expect(one.frames().at(-1)).toMatchObject({ type: "done", final: "first one" });
    expect(follower.frames().at(-1)).toMatchObject({ type: "done", final: "first one" });
  });
});

describe("the process", () => {
  it("SA-28: /health answers while ten chats are streaming", async () => {
    const ingress = await start({ script: endless });
    const streams = await Promise.all(
      Array.from({ length: 10 }, async () => await postChat(ingress, { message: "a" })),
    );
    await Promise.all(streams.map(async (stream) => await stream.until(/…/)));
    const health = await fetch(`${ingress.url}/health`, { signal: AbortSignal.timeout(60_000) });
    expect(await health.json()).toEqual({ status: "ok" });
    expect(await ingress.metrics.text()).toMatch(/larkline_ingress_streams\S* 10/);
    for (const stream of streams) stream.leave();
  });

  it("closes without waiting for a connection on which no request has come", async () => {
    const ingress = await start();
    const { port } = new URL(ingress.url);
    const client = connect(Number(port), "127.0.0.1");
    await once(client, "connect");
    await (await fetch(`${ingress.url}/health`)).text(); // the server has seen both connections
    // The ingress waits for what is under way by the same clock, from a moment later on.
    const drained = pause(patientClock, drainMs).then(() => "drained");
    const closed = Promise.all([once(client, "close"), ingress.close()]).then(() => "closed");
    expect(await Promise.race([closed, drained])).toBe("closed");
  });

  it("refuses streams over the limit", async () => {
    const ingress = await start({ script: endless, env: { API_MAX_STREAMS: "1" } });
    const first = await postChat(ingress, { message: "a" });
    await first.until(/…/);
    const second = await postChat(ingress, { message: "a" });
    expect([second.status, second.headers.get("retry-after")]).toEqual([503, "5"]);
    first.leave();
  });

  it("API_MAX_STREAMS holds when many streams come at once, and places become free again", async () => {
    const ingress = await start({ script: endless, env: { API_MAX_STREAMS: "10" } });
    const streams = await Promise.all(
      Array.from(
        { length: 250 },
        async () => await postChat(ingress, { message: "a", on_disconnect: "cancel" }),
      ),
    );
    const taken = streams.filter(({ status }) => status === 200);
    expect(taken).toHaveLength(10);
    expect(streams.filter(({ status }) => status === 503)).toHaveLength(240);
    expect(ingress.wakes).toHaveLength(10);
    for (const stream of taken) stream.leave();
    await vi.waitFor(
      async () => {
        const again = await postChat(ingress, { message: "a" });
        expect(again.status).toBe(200);
        again.leave();
      },
      { timeout: 60_000 },
    );
  });

  it("API_MAX_STREAMS holds with 2,500 connections of another process at once", async () => {
    // Each stream is a file in either process; where fewer may be open, as many as that in the same ratio.
    const files =
      Number(execFileSync("sh", ["-c", "ulimit -n"], { encoding: "utf8" })) || 1_000_000;
    const all = Math.min(2_500, Math.floor((files - 400) / 100) * 50);
    const most = all * 0.4;
    // Without a worker: the streams of runs that nothing begins stay open as well.
    const ingress = await start({ env: { API_MAX_STREAMS: String(most) } });
    const program = fileURLToPath(new URL("./stream-flood.fixture.ts", import.meta.url));
    const flood = spawn(process.execPath, [program, ingress.url, String(all)], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    try {
      const [line] = (await once(flood.stdout, "data", {
        signal: AbortSignal.timeout(150_000),
      })) as [Buffer];
      expect(JSON.parse(line.toString())).toEqual({ "200": most, "503 5": all - most });
      const late = await postChat(ingress, { message: "a" });
      expect([late.status, late.headers.get("retry-after")]).toEqual([503, "5"]);
      expect((await fetch(`${ingress.url}/health`)).status).toBe(200);
      flood.stdin.end();
      await vi.waitFor(
        async () => {
          const again = await postChat(ingress, { message: "a" });
          again.leave();
          expect(again.status).toBe(200);
        },
        { timeout: 60_000, interval: 100 },
      );
    } finally {
      flood.kill("SIGKILL");
    }
  });

  it("requests that take too long to send headers or a body are ended after ten seconds", async () => {
    const ingress = await start();
    const headers = "POST /chat HTTP/1.1\r\nHost: localhost\r\n";
    const begun = [headers, `${headers}Content-Length: 100\r\n\r\n{"message":`];
    const startedMs = performance.now();
    const endedMs = await Promise.all(
      begun.map(async (bytes) => {
        const socket = connect(Number(new URL(ingress.url).port), "127.0.0.1");
        socket.resume().write(bytes);
        await once(socket, "close");
        return performance.now() - startedMs;
      }),
    );
    for (const ms of endedMs) {
      expect(ms).toBeGreaterThan(9_000);
      expect(ms).toBeLessThan(40_000);
    }
  });

  it("closing ends the streams with a comment and leaves their runs alone", async () => {
    const ingress = await start({ script: endless });
    const stream = await postChat(ingress, { message: "a" });
    await stream.until(/…/);
    const startedMs = performance.now();
    await ingress.close();
    expect(performance.now() - startedMs).toBeLessThan(15_000);
    await stream.end();
    expect(stream.text()).toMatch(/: shutdown\n\n$/);
    expect(ingress.cancels).toEqual([]);
    await expect(fetch(`${ingress.url}/health`)).rejects.toThrow();
  });

  it("readiness follows the backend", async () => {
    const ingress = await start();
    expect((await fetch(`${ingress.url}/ready`)).status).toBe(200);
    ingress.trouble.notReady = true;
    expect((await fetch(`${ingress.url}/ready`)).status).toBe(503);
  });

  it("counts messages", async () => {
    const ingress = await start({ script: hello });
    const ask = { message: "a", session_id: "s", message_id: "1" };
    for (let i = 0; i < 2; i += 1) await (await postChat(ingress, ask)).end();
    const text = await ingress.metrics.text();
    expect(text).toMatch(
      /larkline_ingress_messages_total\{[^}]*channel="api",outcome="accepted"[^}]*\} 1/,
    );
    expect(text).toMatch(
      /larkline_ingress_messages_total\{[^}]*channel="api",outcome="duplicate"[^}]*\} 1/,
    );
  });
});

describe("access", () => {
  it("with API_TOKEN only its bearer is served, from any origin", async () => {
    const ingress = await start({ env: { API_TOKEN: "right-token-of-the-api" } });
    for (const authorization of [
      "",
      "Bearer",
      "Bearer wrong",
      "Bearer right-token-of-the-apix",
      "Basic right-token-of-the-api",
      "right-token-of-the-api",
    ]) {
      expect([authorization, await statusWith(ingress, { authorization })]).toEqual([
        authorization,
        401,
      ]);
    }
    expect(await statusWith(ingress, { authorization: "Bearer right-token-of-the-api" })).toBe(200);
    expect(
      await statusWith(ingress, {
        authorization: "bearer right-token-of-the-api",
        origin: "https://x.example",
      }),
    ).toBe(200);
    expect((await fetch(`${ingress.url}/chat/s/events`)).status).toBe(401);
    expect((await fetch(`${ingress.url}/health`)).status).toBe(200);
  });

  it("any number of refused requests fills no log", async () => {
    const ingress = await start({ env: { API_TOKEN: "right-token-of-the-api" } });
    const warn = vi.spyOn(ingress.services.log, "warn");
    const sinceMs = performance.now();
    for (const path of [
      "/chat/s/events",
      "/v1/runs/api.s-1",
      "/v1/sessions/s",
      "/v1/approvals",
      "/chat/s/events",
    ]) {
      expect((await fetch(`${ingress.url}${path}`)).status).toBe(401);
    }
    const most = 1 + Math.floor((performance.now() - sinceMs) / 10_000); // one in ten seconds
    const logged = warn.mock.calls.filter(([, line]) => line === "API request refused").length;
    expect(logged).toBeGreaterThan(0);
    expect(logged).toBeLessThanOrEqual(most);
    warn.mockRestore();
  });

  it("without it, pages of other origins and rebound names are refused", async () => {
    const ingress = await start();
    for (const headers of [
      { origin: "https://evil.example" },
      { origin: "null" },
      { host: "evil.example" },
      { host: "evil.example:8000" },
      { host: "127.0.0.1.evil.example" },
      { host: "localhost@evil.example" },
      { "sec-fetch-site": "cross-site" },
      { "sec-fetch-site": "cross-site", origin: "http://localhost:8004" },
    ]) {
      expect([headers, await statusWith(ingress, headers)]).toEqual([headers, 403]);
    }
    expect(
      await statusWith(ingress, { host: "localhost:8000", origin: "http://localhost:8004" }),
    ).toBe(200);
    expect(await statusWith(ingress, { host: "[::1]:8000", "sec-fetch-site": "same-origin" })).toBe(
      200,
    );
  });

  it("without it, requests through a proxy are refused; with it, the token alone counts", async () => {
    const ingress = await start();
    const guarded = await start({ env: { API_TOKEN: "right-token-of-the-api" } });
    for (const name of [
      "forwarded",
      "x-forwarded-for",
      "x-forwarded-host",
      "X-Forwarded-Proto",
      "via",
      "x-real-ip",
    ]) {
      const headers = { [name]: "127.0.0.1" };
      expect([name, await statusWith(ingress, headers)]).toEqual([name, 403]);
      expect((await fetch(`${ingress.url}/chat/s/events`, { headers })).status).toBe(403);
      expect((await fetch(`${ingress.url}/v1/approvals?session_id=s`, { headers })).status).toBe(
        403,
      );
      expect(
        (await fetch(`${ingress.url}/v1/runs/api.s-1/cancel`, { method: "POST", headers })).status,
      ).toBe(403);
      const authorization = "Bearer right-token-of-the-api";
      expect([name, await statusWith(guarded, { ...headers, authorization })]).toEqual([name, 200]);
    }
  });

  it("named origins may call without a token", async () => {
    const ingress = await start({ env: { API_CORS_ORIGINS: "https://ok.example" } });
    const headers = { origin: "https://ok.example", "sec-fetch-site": "cross-site" };
    expect(await statusWith(ingress, headers)).toBe(200);
    expect(await statusWith(ingress, { origin: "https://no.example" })).toBe(403);
  });

  it.each([{}, { API_TOKEN: "a-token-of-the-api" }])(
    "SA-29: a preflight from a foreign origin succeeds with %j, without credentials",
    async (env) => {
      const ingress = await start({ env });
      const preflight = await fetch(`${ingress.url}/chat`, {
        method: "OPTIONS",
        headers: {
          origin: "https://anywhere.example",
          "access-control-request-method": "POST",
          "access-control-request-headers": "content-type,authorization,last-event-id",
        },
      });
      expect(preflight.status).toBe(204);
      expect(preflight.headers.get("access-control-allow-origin")).toBe("*");
      expect(preflight.headers.get("access-control-allow-methods")).toContain("POST");
      expect(preflight.headers.get("access-control-allow-headers")).toContain("authorization");
      expect(preflight.headers.get("access-control-allow-credentials")).toBeNull();
    },
  );
});
