import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { expect, it, onTestFinished } from "vitest";
import { createClient, RequestError, RunError, toInputItems, type RunEvent } from "./index.ts";

// What `contracts/agents-together.md` section 2 says of the client, against a server that plays one run. The same over
// the processes of a deployment is in test/e2e/typed-runs.test.ts.

interface Played {
  url: string;
  /** `<method> <path>` of every request. */
  requests: string[];
  /** Bodies of the requests that start a run. */
  started: Record<string, unknown>[];
  /** Tells one more event of the view `engine`. */
  tell(event: object): void;
  /** How many followers are connected. */
  followers(): number;
  /** Cuts all connections of followers. */
  cut(): void;
}

const report = {
  run_id: "api.s-1",
  session_id: "s",
  state: "done",
  agent: "default",
  last_agent: "default",
  final_output: "Hello there",
  usage: {
    requests: 1,
    input_tokens: 1,
    output_tokens: 2,
    total_tokens: 3,
    cache_read_tokens: 0,
    cache_write_tokens: 0,
  },
  cost_usd: 0,
  response_ids: ["msg_1"],
  reason: "",
  error: null,
  interruptions: [],
  children: [],
  created_at: 1,
  ended_at: 2,
  next: null,
};

interface PlayedFields {
  report?: object;
  /** Of reports, by their `after`. */
  pages?: Record<string, object>;
  answers?: Record<string, number>;
}

async function played(fields: PlayedFields = {}): Promise<Played> {
  const requests: string[] = [];
  const started: Record<string, unknown>[] = [];
  const events: object[] = [];
  const open = new Set<{ response: ServerResponse; at: number }>();
  const send = (follower: { response: ServerResponse; at: number }): void => {
    for (; follower.at < events.length; follower.at += 1) {
      const event = events[follower.at];
      const record = { seq: follower.at + 1, runId: "api.s-1", agent: "default", atMs: 1, event };
      follower.response.write(`id: ${follower.at + 1}\ndata: ${JSON.stringify(record)}\n\n`);
      const { type = "" } = event as { type?: string };
      if (type !== "done" && type !== "error") continue;
      follower.response.end("event: end\ndata: {}\n\n");
      open.delete(follower);
    }
  };
  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const url = new URL(request.url ?? "/", "http://server");
    const line = `${request.method} ${url.pathname}`;
    requests.push(line);
    const status = fields.answers?.[line] ?? 200;
    if (status !== 200) {
      return void response.writeHead(status).end('{"error":"refused","code":"no"}');
    }
    if (line === "POST /v1/runs") {
      let body = "";
      for await (const chunk of request) body += String(chunk);
      started.push(JSON.parse(body) as Record<string, unknown>);
      return void response
        .writeHead(202)
        .end('{"run_id":"api.s-1","session_id":"s","trace_id":"t"}');
    }
    if (line === "POST /v1/sessions/s/commands") {
      let body = "";
      for await (const chunk of request) body += String(chunk);
      const { command } = JSON.parse(body) as { command: string };
      return void response.end(
        command === "/status" ? '{"text":"idle"}' : '{"run_id":"api.s-1","session_id":"s"}',
      );
    }
    if (!line.endsWith("/events")) {
      const page = fields.pages?.[url.searchParams.get("after") ?? ""];
      return void response.end(JSON.stringify({ ...report, ...fields.report, ...page }));
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
    if (url.searchParams.get("view") !== "engine") {
      return void response.end("event: end\ndata: {}\n\n");
    }
    const follower = { response, at: Number(url.searchParams.get("after") ?? 0) };
    open.add(follower);
    response.on("close", () => open.delete(follower));
    send(follower);
  };
  const server = createServer((request, response) => void handle(request, response));
  onTestFinished(() => void server.close(() => undefined).closeAllConnections());
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return {
    url: `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`,
    requests,
    started,
    tell: (event) => {
      events.push(event);
      for (const follower of open) send(follower);
    },
    followers: () => open.size,
    cut: () => {
      for (const { response } of open) response.destroy();
    },
  };
}

const delta = (text: string) => ({ type: "text_delta", text });
const done = { type: "done", reason: "", final: "" };

async function typesOf(events: AsyncIterable<RunEvent>): Promise<string[]> {
  const types: string[] = [];
  for await (const event of events) {
    types.push(event.type === "text_delta" ? event.text : event.type);
  }
  return types;
}

/** Reads one event and leaves. */
async function first(events: AsyncIterable<RunEvent>): Promise<string | undefined> {
  for await (const { type } of events) return type;
  return undefined;
}

it("iterators of one run see everything from the beginning, at once and after the end, over one connection", async () => {
  const server = await played();
  const run = createClient({ url: server.url }).run("a");
  const early = typesOf(run.stream());
  server.tell(delta("a"));
  const second = typesOf(run.stream());
  server.tell(delta("b"));
  server.tell(done);
  expect(await early).toEqual(["a", "b", "done"]);
  expect(await second).toEqual(["a", "b", "done"]);
  expect(await typesOf(run.stream())).toEqual(["a", "b", "done"]);
  expect(server.requests.filter((line) => line.endsWith("/events"))).toHaveLength(1);
});

it("a connection that breaks is opened again after the last event, and cancels nothing", async () => {
  const server = await played();
  const run = createClient({ url: server.url }).run("a");
  const seen: string[] = [];
  server.tell(delta("0"));
  for await (const event of run.stream()) {
    if (event.type !== "text_delta") continue;
    seen.push(event.text);
    server.cut();
    server.tell(seen.length < 4 ? delta(String(seen.length)) : done);
  }
  expect(seen).toEqual(["0", "1", "2", "3"]);
  expect(server.requests.some((line) => line.endsWith("/cancel"))).toBe(false);
});

it("more than is kept is read from the server again by an iterator that begins late", async () => {
  const server = await played();
  const text = "x".repeat(1_000);
  const run = createClient({ url: server.url, keepCharacters: 10_000 }).run("a");
  const events = run.stream()[Symbol.asyncIterator]();
  for (let at = 0; at < 100; at += 1) server.tell(delta(`${at} ${text}`));
  for (let at = 0; at < 100; at += 1) {
    const { value } = (await events.next()) as { value: RunEvent };
    expect(value.seq).toBe(at + 1);
  }
  const late = typesOf(run.stream());
  server.tell(done);
  expect((await late).map((one) => one.split(" ")[0])).toEqual([
    ...Array.from({ length: 100 }, (_, at) => `${at}`),
    "done",
  ]);
  expect((await events.next()).value).toMatchObject({ type: "done" });
  expect(server.requests.filter((line) => line.endsWith("/events"))).toHaveLength(2);
});

it("an iterator that falls behind gets the rest once more, each event once", async () => {
  const server = await played();
  const text = "x".repeat(1_000);
  const run = createClient({ url: server.url, keepCharacters: 5_000 }).run("a");
  const slow = run.stream()[Symbol.asyncIterator]();
  for (let at = 0; at < 50; at += 1) server.tell(delta(`${at} ${text}`));
  const seen = [((await slow.next()).value as RunEvent).seq];
  server.tell(done);
  await typesOf(run.stream());
  for (let next = await slow.next(); next.done !== true; next = await slow.next()) {
    seen.push(next.value.seq);
  }
  expect(seen).toEqual(Array.from({ length: 51 }, (_, at) => at + 1));
});

it("the last iterator that is left early cancels the run", async () => {
  const server = await played();
  const run = createClient({ url: server.url }).run("a");
  server.tell(delta("a"));
  const other = run.stream()[Symbol.asyncIterator]();
  await other.next();
  await first(run.stream());
  expect(server.requests).not.toContain("POST /v1/runs/api.s-1/cancel");
  await other.return?.();
  await expect.poll(() => server.requests).toContain("POST /v1/runs/api.s-1/cancel");
  await expect.poll(() => server.followers()).toBe(0);
});

it.each([
  ["detached", async (url: string) => createClient({ url }).run("a", { detach: true })],
  ["attached", async (url: string) => createClient({ url }).attach("api.s-1")],
])("a run that is %s continues when it is left", async (_how, start) => {
  const server = await played();
  const run = await start(server.url);
  server.tell(delta("a"));
  await first(run.stream());
  await expect.poll(() => server.followers()).toBe(0);
  await run.report(); // what was sent before it has arrived
  expect(server.requests).not.toContain("POST /v1/runs/api.s-1/cancel");
});

it("a run whose end has been seen, or whose result is awaited, is not cancelled", async () => {
  const server = await played();
  const run = createClient({ url: server.url }).run("a");
  const result = run.result();
  server.tell(delta("a"));
  await first(run.stream());
  server.tell(done);
  expect(await result).toMatchObject({
    finalOutput: "Hello there",
    responseIds: ["msg_1"],
    lastAgent: "default",
  });
  for await (const event of run.stream()) if (event.type === "done") break;
  await run.report();
  expect(server.requests).not.toContain("POST /v1/runs/api.s-1/cancel");
});

it("RI-11, RI-12: a result has what the model produced in each step, as input of another run", async () => {
  const server = await played();
  const run = createClient({ url: server.url }).run("a");
  const used = {
    inputTokens: 3,
    outputTokens: 2,
    cacheReadTokens: 1,
    cacheCreationTokens: 0,
    costUsd: 0,
    model: "m",
  };
  const ended = { ...used, type: "turn_end", attempts: 1, estimated: false };
  const call = { type: "tool_use", id: "c1", toolName: "add", input: { a: 1 } };
  const result = { type: "tool_result", id: "c1", toolName: "add", output: "2", isError: false };
  const start = { type: "turn_start", model: "m", contextWindowTokens: 1 };
  for (const event of [
    { ...start, turnNumber: 1 },
    { type: "thinking", text: "hm", vendorItem: { type: "reasoning", id: "rs_1", summary: [] } },
    call,
    { ...result, truncated: false, storedPath: "", code: "" },
    { ...ended, turnNumber: 1, responseId: null },
    { ...start, turnNumber: 2 },
    { type: "text", text: "Two." },
    { ...ended, turnNumber: 2, responseId: "resp_2" },
    { ...done, final: "Two." },
  ]) {
    server.tell(event);
  }
  const { rawResponses } = await run.result();
  expect(rawResponses).toMatchObject([
    {
      output: [
        { type: "reasoning", id: "rs_1" },
        { type: "function_call", call_id: "c1" },
      ],
      responseId: null,
    },
    {
      output: [{ type: "message" }],
      responseId: "resp_2",
      usage: { input_tokens: 3, total_tokens: 5 },
    },
  ]);
  for (const response of rawResponses) expect(toInputItems(response)).toEqual(response.output);
});

it("an aborted signal ends iterators and requests with its reason, and leaves the run alone", async () => {
  const server = await played();
  const controller = new AbortController();
  const run = createClient({ url: server.url }).run("a", { signal: controller.signal });
  server.tell(delta("a"));
  const reason = new Error("enough");
  const reading = async () => {
    for await (const { type } of run.stream()) {
      controller.abort(type === "text_delta" ? reason : undefined);
    }
  };
  await expect(reading()).rejects.toBe(reason);
  await expect(run.report()).rejects.toBe(reason);
  expect(server.requests).not.toContain("POST /v1/runs/api.s-1/cancel");
});

it("a report has all pages of its lists", async () => {
  const server = await played({
    pages: {
      "": { response_ids: ["a"], children: ["h1"], next: "1" },
      "1": { response_ids: ["b"], children: ["h2"], next: "2 3" },
      "2 3": { response_ids: ["c"], next: null },
    },
  });
  const run = createClient({ url: server.url }).attach("api.s-1");
  expect(await run.report()).toMatchObject({
    response_ids: ["a", "b", "c"],
    children: ["h1", "h2"],
    next: null,
  });
  expect(server.requests).toHaveLength(3);
});

it("a run may continue an answer that the vendor keeps", async () => {
  const server = await played();
  await createClient({ url: server.url })
    .run("and?", { session: "s", messageId: "m", previousResponseId: "r" })
    .id();
  expect(server.started).toEqual([
    { input: "and?", session_id: "s", message_id: "m", previous_response_id: "r" },
  ]);
});

it("ids are parts of paths, whatever they hold", async () => {
  const server = await played();
  const client = createClient({ url: server.url });
  for (const id of ["a/../b", "a%2Fb", "?a#b", "\ud800"]) await client.attach(id).report();
  expect(server.requests).toEqual([
    "GET /v1/runs/a%2F..%2Fb",
    "GET /v1/runs/a%252Fb",
    "GET /v1/runs/%3Fa%23b",
    "GET /v1/runs/%EF%BF%BD",
  ]);
  for (const id of ["..", ".", ""]) {
    const run = client.attach(id);
    const refused = [
      run.report(),
      run.cancel(),
      run.approve(id, "approve"),
      run.answer(id, "yes"),
      typesOf(run.stream()),
    ];
    for (const work of [...refused, client.command("/new", { session: id })]) {
      await expect(work).rejects.toBeInstanceOf(RequestError);
    }
  }
  expect(server.requests).toHaveLength(4);
});

it("what happens in a run is an event; the result rejects with what a program needs of it", async () => {
  const error = {
    code: "api_overloaded",
    message: "too busy",
    suggestion: "Try later.",
    retryable: true,
  };
  const server = await played({ report: { state: "error", error } });
  const run = createClient({ url: server.url }).run("a");
  server.tell({ type: "error", ...error });
  expect(await typesOf(run.stream())).toEqual(["error"]);
  const failure: unknown = await run.result().catch((reason: unknown) => reason);
  expect(failure).toBeInstanceOf(RunError);
  expect(failure).toMatchObject({ ...error, runId: "api.s-1", name: "RunError" });
});

it.each([401, 400])(
  "a request that is refused with %d throws, once, without being repeated",
  async (status) => {
    const server = await played({ answers: { "POST /v1/runs": status } });
    const run = createClient({ url: server.url }).run("a");
    const failures = await Promise.allSettled([typesOf(run.stream()), run.result()]);
    for (const failure of failures) {
      expect(failure).toMatchObject({
        status: "rejected",
        reason: { status, code: "no", message: "refused" },
      });
      expect((failure as PromiseRejectedResult).reason).toBeInstanceOf(RequestError);
    }
    expect(server.requests).toEqual(["POST /v1/runs"]);
  },
);

it("cancelling a run that has ended is no error", async () => {
  const server = await played({ answers: { "POST /v1/runs/api.s-1/cancel": 409 } });
  await createClient({ url: server.url }).attach("api.s-1").cancel();
  expect(server.requests).toEqual(["POST /v1/runs/api.s-1/cancel"]);
});

it("an order is answered with text, or by a run; what is none is refused", async () => {
  const server = await played();
  const client = createClient({ url: server.url });
  expect(await client.command("/status", { session: "s" })).toBe("idle");
  const run = await client.command("/new", { session: "s" });
  server.tell(done);
  expect(typeof run === "string" ? run : await typesOf(run.stream())).toEqual(["done"]);
  const refusing = await played({ answers: { "POST /v1/sessions/s/commands": 400 } });
  const refused = createClient({ url: refusing.url }).command("hello", { session: "s" });
  await expect(refused).rejects.toMatchObject({ status: 400, code: "no" });
});

it("a start that is repeated is the same run: session and message have ids", async () => {
  const server = await played();
  const client = createClient({ url: server.url });
  await client.run("a").id();
  await client.run("a", { session: "mine", messageId: "m1" }).id();
  expect(server.started[0]).toMatchObject({
    session_id: expect.stringMatching(/^[0-9a-f]{32}$/),
    message_id: expect.stringMatching(/^[0-9a-f]{32}$/),
  });
  expect(server.started[1]).toMatchObject({ session_id: "mine", message_id: "m1" });
});
