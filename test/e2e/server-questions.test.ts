import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createClient } from "@larkline/sdk";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { write } from "../system/answers.ts";
import { decide, untilRetired } from "../system/approvals.ts";
import { startAskingServer, type AskingServer } from "../system/asking-server.ts";
import { submit, theQuestion } from "../system/asking.ts";
import { answerTo } from "../system/sending.ts";
import { startSystem, type System } from "../system/system.ts";

// MCP servers of both revisions that ask people before they do anything, and the real processes between.

let system: System;
let server: Server;
let older: AskingServer;

interface Call {
  name: string;
  arguments?: { id?: string };
  requestState?: string;
  inputResponses?: Record<string, { action: string; content?: object }>;
}

/** Calls that the server has got, in their order. */
const calls: Call[] = [];

function callsOf(id: string): Call[] {
  return calls.filter((call) => call.arguments?.id === id);
}

const requestedSchema = {
  type: "object",
  properties: {
    city: { type: "string", title: "City", maxLength: 40 },
    day: { type: "string", format: "date", title: "Day" },
    seats: { type: "integer", minimum: 1, maximum: 9 },
    window: { type: "boolean" },
    fare: { type: "string", enum: ["low", "high"], enumNames: ["Low fare", "High fare"] },
  },
  required: ["city", "day"],
};

function asks(requestState: string, schema: object = requestedSchema): object {
  const params = { mode: "form", message: "Where to, and when?", requestedSchema: schema };
  return {
    resultType: "input_required",
    inputRequests: { trip: { method: "elicitation/create", params } },
    requestState,
  };
}

function textResult(text: string): object {
  return { resultType: "complete", content: [{ type: "text", text }] };
}

/** Undefined where the answer is lost on its way. */
function resultOf(call: Call): object | undefined {
  const { name, inputResponses, requestState } = call;
  const schema = { type: "object", properties: { password: { type: "string" } } };
  if (name === "again") return asks("again");
  if (name === "heavy") return asks("x".repeat(16_385));
  if (name === "secret") return asks("secret", schema);
  if (inputResponses === undefined) return asks(`state of ${call.arguments?.id}`);
  if (name === "lose") return undefined;
  const { action, content = {} } = inputResponses["trip"] ?? { action: "none" };
  return textResult(`${action} ${JSON.stringify(content)} with ${requestState}`);
}

const tools = ["book", "lose", "again", "heavy", "secret"].map((name) => ({
  name,
  description: name,
  inputSchema: { type: "object", properties: { id: { type: "string" } } },
}));

function answerOf(method: string, params: Call): object | undefined {
  const kept = { resultType: "complete", ttlMs: 0, cacheScope: "private" };
  if (method === "server/discover") {
    return { ...kept, supportedVersions: ["2026-07-28"], capabilities: { tools: {} } };
  }
  if (method === "tools/list") return { ...kept, tools };
  if (method !== "tools/call") return { resultType: "complete" };
  calls.push(params);
  return resultOf(params);
}

beforeAll(async () => {
  // A client may use a connection again that was idle for seconds.
  server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    let text = "";
    request.on("data", (piece: Buffer) => (text += piece.toString()));
    request.on("end", () => {
      if (request.method !== "POST") return void response.writeHead(405).end();
      const asked = JSON.parse(text) as { id?: number; method: string; params: Call }; // the client of our own runner writes it
      if (asked.id === undefined) return void response.writeHead(202).end();
      const result = answerOf(asked.method, asked.params);
      if (result === undefined) return void response.destroy();
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ jsonrpc: "2.0", id: asked.id, result }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // a TCP server has one
  const travel = {
    url: `http://127.0.0.1:${port}/mcp`,
    allowPrivate: true,
    runner: "recording",
    tools: { "*": { effect: "once", requiresApproval: false } },
  };
  older = await startAskingServer();
  const old = {
    ...travel,
    url: older.url,
    elicitation: true,
    tools: { "*": { effect: "once", requiresApproval: false }, trip: { effect: "idempotent" } },
  };
  system = await startSystem({ config: { mcp: { servers: { travel, old } } }, lines: true });
  await vi.waitFor(
    async () => {
      const { finalOutput } = await clientOf()
        .run('look\ncall travel_heavy {"id":"first"}')
        .result();
      expect(finalOutput).toContain("its state is too long");
    },
    { timeout: 60_000, interval: 500 },
  );
});
afterAll(async () => {
  await system.close();
  older.close();
  server.closeAllConnections();
  server.close();
});

function clientOf() {
  return createClient({ url: system.ingresses[0]?.url ?? "" });
}

/** Each leaves a session that its servers still have. */
let killedRunners = 0;

/** Kills the runner and the worker, and starts others. */
async function replaceRunnerAndWorker(): Promise<void> {
  killedRunners += 1;
  const { workers, runners } = system;
  await Promise.all([...workers, ...runners].map(async (app) => await app.kill()));
  workers.splice(0, workers.length, await system.start("agent-worker"));
  runners.splice(0, runners.length, await system.start("tool-runner"));
}

describe("AT-20: what an MCP server asks is a question to the person", () => {
  it("as a form, answered after runner and worker were killed; the next attempt brings answer and state", async () => {
    const person = system.person("Ann");
    const written = await write(system, person, 'go\ncall travel_book {"id":"a"}');
    const card = await theQuestion(system, person.chatId);
    expect(card.title).toBe("A question for you");
    const shown = JSON.stringify(card.message);
    for (const part of [
      "The MCP server “travel” asks",
      "Where to, and when?",
      "date_picker",
      "High fare",
    ]) {
      expect(shown).toContain(part);
    }
    await replaceRunnerAndWorker();
    const button = "form_submit";
    const early = await submit(system, card, {
      openId: person.openId,
      button,
      form: { field_0: "Rome" },
    });
    expect(early.toast).toMatchObject({
      type: "warning",
      content: "Please check: Day: is missing.",
    });
    const form = {
      field_0: "Rome",
      field_1: "2026-12-01 +0800",
      field_2: "2",
      field_3: "true",
      field_4: "low",
    };
    const given = await submit(system, card, { openId: person.openId, button, form });
    expect(given).toMatchObject({
      toast: { type: "success", content: "Answered" },
      cardChanged: true,
    });
    const content = { city: "Rome", day: "2026-12-01", seats: 2, window: true, fare: "low" };
    expect(await answerTo(system, written)).toContain(
      `accept ${JSON.stringify(content)} with state of a`,
    );
    const [first, second, ...more] = callsOf("a");
    expect(JSON.stringify(first)).toContain('clientCapabilities":{"elicitation":{"form":{}}}');
    expect(first?.inputResponses).toBeUndefined();
    expect(second).toMatchObject({
      inputResponses: { trip: { action: "accept", content } },
      requestState: "state of a",
    });
    expect(more).toEqual([]);
    await untilRetired(system, person.chatId);
  });

  it("which can be declined, and answered in words that fit no other way", async () => {
    const person = system.person("Ben");
    const written = await write(system, person, 'go\ncall travel_book {"id":"b"}');
    const card = await theQuestion(system, person.chatId);
    const choice = '{"action":"decline"}';
    expect(await decide(system, card, { openId: person.openId, wanted: { choice } })).toMatchObject(
      {
        toast: { content: "Answered" },
      },
    );
    expect(await answerTo(system, written)).toContain("decline {} with state of b");
  });

  it("answered over HTTP, where an answer that does not fit changes nothing", async () => {
    const run = clientOf().run('go\ncall travel_book {"id":"c"}');
    let refused: unknown;
    for await (const event of run.stream()) {
      if (event.type !== "input_requested") continue;
      expect(event.question).toMatch(/^The MCP server "travel" asks/);
      expect((await run.report()).interruptions).toMatchObject([
        { kind: "question", form: { server: "travel" } },
      ]);
      const wrong = { city: "Rome", day: "tomorrow" };
      refused = await run.answer(event.requestId, wrong).catch((error: unknown) => error);
      await run.answer(event.requestId, { city: "Rome", day: "2026-12-24" });
    }
    expect(refused).toMatchObject({ status: 400 });
    expect((await run.result()).finalOutput).toContain(
      'accept {"city":"Rome","day":"2026-12-24"} with state of c',
    );
    expect(callsOf("c")).toHaveLength(2);
  });

  it("and closed by /stop: the server is not called again", async () => {
    const person = system.person("Cid");
    const written = await write(system, person, 'go\ncall travel_book {"id":"d"}');
    await theQuestion(system, person.chatId);
    await write(system, person, "/stop");
    await answerTo(system, written);
    expect((await untilRetired(system, person.chatId)).map(({ title }) => title)).toEqual([
      "No answer is needed any more",
    ]);
    expect(callsOf("d")).toHaveLength(1);
  });

  it("five times for one call, and then its call fails", async () => {
    const run = clientOf().run('go\ncall travel_again {"id":"e"}');
    let asked = 0;
    for await (const event of run.stream()) {
      if (event.type !== "input_requested") continue;
      asked += 1;
      await run.answer(event.requestId, { city: "Rome", day: "2026-12-24" });
    }
    expect(asked).toBe(5);
    expect((await run.result()).finalOutput).toContain("it has asked 5 times");
  });

  it("but not for a secret", async () => {
    const { finalOutput } = await clientOf().run('go\ncall travel_secret {"id":"f"}').result();
    expect(finalOutput).toContain("asks for a secret");
  });

  it("and a lost answer to the repeat of a once call is unknown: it is not repeated", async () => {
    const run = clientOf().run('go\ncall travel_lose {"id":"g"}');
    for await (const event of run.stream()) {
      if (event.type === "input_requested") {
        await run.answer(event.requestId, { city: "Rome", day: "2026-12-24" });
      }
    }
    expect((await run.result()).finalOutput).toContain(
      "It is not known whether this call took effect",
    );
    expect(callsOf("g")).toHaveLength(2);
  });
});

/** The actions that the older server got, call by call. */
function toldIn(id: string): string[][] {
  return older.calls
    .filter((call) => call.id === id)
    .map(({ told }) => told.map(({ action }) => action));
}

describe("AT-20: what an MCP server of an older revision asks inside a call is a question to the person", () => {
  it("whose answer goes along with a repeat of the call, after runner and worker were killed", async () => {
    const person = system.person("Dan");
    const written = await write(system, person, 'go\ncall old_trip {"id":"k"}');
    const city = await theQuestion(system, person.chatId);
    const shown = JSON.stringify(city.message);
    for (const part of ["The MCP server “old” asks", "Where to?"]) expect(shown).toContain(part);
    await replaceRunnerAndWorker();
    const button = "form_submit";
    const given = await submit(system, city, {
      openId: person.openId,
      button,
      form: { field_0: "Rome" },
    });
    expect(given).toMatchObject({ toast: { type: "success", content: "Answered" } });
    const seat = await vi.waitUntil(
      async () => {
        const card = await theQuestion(system, person.chatId);
        return JSON.stringify(card.message).includes("Which seat?") ? card : undefined;
      },
      { timeout: 60_000, interval: 50 },
    );
    await replaceRunnerAndWorker();
    await submit(system, seat, { openId: person.openId, button, form: { field_0: "aisle" } });
    expect(await answerTo(system, written)).toContain("k: accept Rome, accept aisle");
    // A call that may be repeated is, where its runner stands still: it then gets the same answers.
    const told = new Set(toldIn("k").map((actions) => actions.join(", ")));
    expect([...told]).toEqual(["cancel", "accept, cancel", "accept, accept"]);
    await untilRetired(system, person.chatId);
  });

  it("each in its own call, where several calls ask at the same time, and which can be declined", async () => {
    const runs = ["l", "m", "n"].map(async (id) => {
      const run = clientOf().run(`go\ncall old_trip {"id":"${id}"}`);
      for await (const event of run.stream()) {
        if (event.type !== "input_requested") continue;
        await run.answer(
          event.requestId,
          event.question.includes("seat") ? { action: "decline" } : { city: `for ${id}` },
        );
      }
      return (await run.result()).finalOutput;
    });
    const answers = await Promise.all(runs);
    for (const [at, id] of ["l", "m", "n"].entries()) {
      expect(answers[at]).toContain(`${id}: accept for ${id}, decline`);
    }
    // The connection that lists the tools is left; those of the calls are closed.
    await vi.waitUntil(() => older.sessions() <= 1 + killedRunners, {
      timeout: 60_000,
      interval: 20,
    });
  });

  it("and is closed by /stop: the server is not called again", async () => {
    const person = system.person("Eva");
    const written = await write(system, person, 'go\ncall old_trip {"id":"o"}');
    await theQuestion(system, person.chatId);
    const asked = toldIn("o");
    await write(system, person, "/stop");
    await answerTo(system, written);
    await untilRetired(system, person.chatId);
    expect(new Set(asked.map(String))).toEqual(new Set(["cancel"]));
    expect(toldIn("o")).toEqual(asked);
  });

  it("but not where the call may not be repeated: the server learns it, and the model", async () => {
    const { finalOutput } = await clientOf().run('go\ncall old_pay {"id":"p"}').result();
    expect(finalOutput).toContain(
      "nobody was asked: people are asked only inside calls that may be repeated",
    );
    expect(toldIn("p")).toEqual([[]]);
  });
});
