import { type ModelRequest, messageStop, toolCallDelta } from "@larkline/model";
import type { InboundMessage } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import type { ModelChunk, ModelFailure } from "@larkline/protocol/model-stream";
import { describe, expect, it } from "vitest";
import {
  append,
  checkPairs,
  inbound,
  newWorld,
  outboxOf,
  runnerOf,
  session,
  settle,
  type Differences,
  type World,
} from "./turn-world.fixture.ts";

async function ask(world: World, differences: Differences, message: InboundMessage): Promise<void> {
  await append(world, message);
  await settle(world, differences);
}

function said({ messages }: ModelRequest): string[] {
  return messages.filter(({ role }) => role === "user").map(textOf);
}

function isSummary({ system }: ModelRequest): boolean {
  return system?.includes("compact conversation records") === true;
}

async function* answer(text: string): AsyncIterable<ModelChunk> {
  yield { type: "text_delta", text };
  yield messageStop("end_turn");
}

function failure(code: string): ModelFailure {
  return { type: "error", code, message: code, suggestion: "", retryable: false, partial: false };
}

/** A model that notes its requests, and gives the answers that the test sets. */
function model(stream: (request: ModelRequest, signal?: AbortSignal) => AsyncIterable<ModelChunk>) {
  const requests: ModelRequest[] = [];
  const backend = {
    stream: (request: ModelRequest, signal?: AbortSignal) => {
      checkPairs(request.messages);
      const { alive: _alive, ...asked } = request;
      requests.push(structuredClone(asked));
      return stream(request, signal);
    },
  };
  return { backend, requests };
}

const withFile = {
  references: {
    attachments: [{ kind: "file" as const, messageId: "om_1", key: "k", name: "a.txt" }],
  },
};

it.each([
  ["please read", "Could not be read: a.pdf, b.xlsx"],
  ["请总结这些文件", "无法读取文件：a.pdf, b.xlsx"],
])(
  "a person who wrote %j reads in their language which files could not be read",
  async (text, told) => {
    const world = newWorld();
    const file = { type: "file", mediaType: "application/pdf", bytes: 97_000 } as const;
    const prepare = async (message: InboundMessage): Promise<InboundMessage> => ({
      ...message,
      parts: [
        ...message.parts,
        { ...file, name: "a.pdf", state: "failed", detail: "Reading the file took too long." },
        { ...file, name: "b.xlsx", state: "too_large" },
        { ...file, name: "c.pdf", state: "ready" },
      ],
    });
    await ask(world, { prepare }, inbound("om_1", text, withFile));
    const [record] = await outboxOf(world);
    expect(record?.text.startsWith(`answer to ${text}<attachment`)).toBe(true);
    expect(record?.text.endsWith(`\n\n${told}`)).toBe(true);
  },
);

describe("a turn that is handed on while its message is prepared", () => {
  it("stores nothing of what was broken off: the next worker fetches again", async () => {
    const world = newWorld();
    const shutdown = new AbortController();
    await append(world, inbound("om_1", "read", withFile));
    const prepare = async (
      message: InboundMessage,
      signal: AbortSignal,
    ): Promise<InboundMessage> => {
      shutdown.abort();
      expect(signal.aborted).toBe(true);
      return { ...message, parts: [{ type: "text", text: "failed" }] };
    };
    const gen = world.wakes.shift() ?? 0;
    const run = runnerOf(world, { prepare });
    expect(await run({ v: 1, session, gen }, shutdown.signal)).toBe("requeue");
    expect(await world.store.history(session)).toEqual([]);
    world.wakes.push(gen);
    await settle(world, {
      prepare: async (message) => ({ ...message, parts: [{ type: "text", text: "fetched" }] }),
    });
    expect((await world.store.history(session)).map(textOf)).toEqual([
      "fetched",
      "answer to fetched",
    ]);
  });

  it("ends as stopped when it is stopped meanwhile, without asking a model", async () => {
    const world = newWorld();
    const { backend, requests } = model(() => answer("never"));
    await ask(
      world,
      {
        backend,
        prepare: async (message) => {
          await world.store.cancel(session, { turnId: `${session}-1`, reason: "stopped" });
          world.running.cancel(session, `${session}-1`);
          return message;
        },
      },
      inbound("om_1", "read", withFile),
    );
    expect(requests).toEqual([]);
    expect((await world.store.history(session)).map(textOf)).toEqual(["read", "Stopped."]);
  });
});

it("what a message shows of its waiting is taken back where it has waited; the first of its session shows nothing", async () => {
  const world = newWorld();
  await ask(world, {}, inbound("om_1", "one"));
  expect(world.takenBack).toEqual([["om_1", "typing"]]);
  await append(world, inbound("om_2", "two"));
  await append(world, inbound("om_3", "three"));
  await settle(world);
  expect(world.takenBack.filter(([id]) => id === "om_3")).toEqual([
    ["om_3", "queued"],
    ["om_3", "line"],
    ["om_3", "typing"],
  ]);
});

describe("what a message refers to", () => {
  it("the first message of a thread is fetched for the first message that a model sees, not again", async () => {
    const world = newWorld();
    const asked: unknown[] = [];
    const prepare = async (message: InboundMessage): Promise<InboundMessage> => {
      asked.push(message.references);
      return message;
    };
    const references = { threadRootId: "om_root" };
    await ask(world, { prepare }, inbound("om_1", "one", { references }));
    await ask(
      world,
      { prepare },
      inbound("om_2", "two", { references: { ...references, quotedId: "om_1" } }),
    );
    await ask(world, { prepare }, inbound("om_3", "three", { references }));
    await ask(
      world,
      { prepare },
      inbound("om_4", "/new", { command: { name: "new", argument: "" } }),
    );
    await ask(world, { prepare }, inbound("om_5", "five", { references }));
    expect(asked).toEqual([references, { quotedId: "om_1" }, undefined, references]);
  });

  it("a message joins with the name of its writer, also inside a thread, and is reported once", async () => {
    const world = newWorld();
    const group = { chatType: "group", references: { threadRootId: "om_root" } } as const;
    const { backend, requests } = model(async function* (request) {
      if (request.messages.at(-1)?.role === "tool" || said(request).length > 1) {
        return yield* answer("done");
      }
      await append(world, inbound("om_2", "second", group));
      yield toolCallDelta(0, { id: "c", name: "echo", arguments: "{}" });
      yield messageStop("tool_use");
    });
    const prepare = async (message: InboundMessage): Promise<InboundMessage> => ({
      ...message,
      sender: { ...message.sender, name: "Ann" },
    });
    await ask(
      world,
      { backend, prepare, agent: { busy: "steer" } },
      inbound("om_1", "first", group),
    );
    expect(said(requests.at(-1) ?? { model: "", messages: [] })).toEqual([
      "Ann: first",
      "Ann: second",
    ]);
    expect(world.takenBack.filter(([id]) => id === "om_2")).toEqual([
      ["om_2", "queued"],
      ["om_2", "line"],
      ["om_2", "typing"],
    ]);
  });
});

it("the footer names the model that answered, also when it was a fallback", async () => {
  const world = newWorld();
  const failing = model(async function* () {
    yield failure("api_auth_error");
  });
  await ask(
    world,
    {
      backend: failing.backend,
      fallback: model(() => answer("fine")).backend,
      agent: { reply: "card" },
    },
    inbound("om_1", "hello"),
  );
  expect(world.sent[0]?.view?.footer.model).toBe("Other");
});

describe("messages that come one after the other, each to stop the one before", () => {
  const group = (id: string): Partial<InboundMessage> => ({ chatType: "group", sender: { id } });

  it("of one person: only the last is answered, and the model knows them all", async () => {
    const world = newWorld();
    const { backend, requests } = model(() => answer("fine"));
    for (const number of [1, 2, 3]) await append(world, inbound(`om_${number}`, `say ${number}`));
    await settle(world, { backend, agent: { busy: "interrupt" } });
    expect(requests.map(said)).toEqual([["say 1", "say 2", "say 3"]]);
    const history = (await world.store.history(session)).map(textOf);
    expect(history[1]).toContain("A newer message arrived");
    expect(history.at(-1)).toBe("fine");
  });

  it("but a late message, which was written before, stops nothing", async () => {
    const world = newWorld();
    const { backend, requests } = model(() => answer("fine"));
    await append(world, inbound("om_1", "now", { createdAtMs: 2_000 }));
    await append(world, inbound("om_2", "late", { createdAtMs: 1_000 }));
    await settle(world, { backend, agent: { busy: "interrupt" } });
    expect(requests.map((request) => said(request).at(-1))).toEqual(["now", "late"]);
  });

  it("of several people in a group: each is answered, the last one of each", async () => {
    const world = newWorld();
    const { backend, requests } = model(() => answer("fine"));
    await append(world, inbound("om_1", "one", group("ou_1")));
    await append(world, inbound("om_2", "two", group("ou_2")));
    await append(world, inbound("om_3", "three", group("ou_1")));
    await settle(world, { backend, agent: { busy: "interrupt" } });
    expect(requests.map((request) => said(request).at(-1))).toEqual(["ou_2: two", "ou_1: three"]);
  });
});

const small = { contextWindow: 2_000, maxOutputTokens: 500 };
const long = "long words ".repeat(80);

describe("a context that gets too long", () => {
  it("keeps working while no summary can be made, and asks for one only once in a turn", async () => {
    const world = newWorld();
    const { backend, requests } = model(async function* (request) {
      if (isSummary(request)) return yield failure("api_bad_request");
      if (request.messages.at(-1)?.role === "tool" || !said(request).at(-1)?.startsWith("tools")) {
        return yield* answer("fine");
      }
      yield toolCallDelta(0, { id: `c${requests.length}`, name: "echo", arguments: "{}" });
      yield messageStop("tool_use");
    });
    for (const number of [1, 2, 3, 4]) {
      await ask(world, { backend, info: small }, inbound(`om_${number}`, long));
    }
    requests.length = 0;
    await ask(world, { backend, info: small }, inbound("om_5", `tools ${long}`));
    expect(requests.filter(isSummary)).toHaveLength(1);
    expect(requests.map(({ messages }) => messages.length).slice(1)).toEqual([9, 11]);
    expect((await world.store.history(session)).map(textOf).at(-1)).toBe("fine");
  });

  it("is shortened when the vendor says so, even without a summary, and the full history stays", async () => {
    const world = newWorld();
    const { backend, requests } = model(async function* (request) {
      if (isSummary(request)) return yield failure("api_bad_request");
      if (request.messages.length > 5) return yield failure("context_overflow");
      yield* answer("fine");
    });
    for (const number of [1, 2, 3, 4]) {
      await ask(world, { backend }, inbound(`om_${number}`, `${number} ${long}`));
    }
    const last = requests.at(-1);
    expect(textOf(last?.messages[0] ?? { role: "user", content: [] })).toContain(
      "Older messages were removed",
    );
    expect(said(last ?? { model: "", messages: [] }).at(-1)).toMatch(/^4 /);
    expect(await world.store.history(session)).toHaveLength(8);
  });

  it("ends the turn with a notice when even the latest message does not fit", async () => {
    const world = newWorld();
    const { backend, requests } = model(() =>
      (async function* () {
        yield failure("context_overflow");
      })(),
    );
    await ask(world, { backend }, inbound("om_1", long));
    expect(requests).toHaveLength(1);
    expect(
      textOf((await world.store.history(session)).at(-1) ?? { role: "user", content: [] }),
    ).toContain("too long");
  });

  it("a shutdown while it is shortened hands the turn on, it does not fail", async () => {
    const world = newWorld();
    const shutdown = new AbortController();
    const { backend } = model(async function* (request) {
      if (isSummary(request)) {
        shutdown.abort();
        return;
      }
      if (request.messages.length > 3 && !shutdown.signal.aborted) {
        return yield failure("context_overflow");
      }
      yield* answer("fine");
    });
    for (const number of [1, 2]) await ask(world, { backend }, inbound(`om_${number}`, long));
    await append(world, inbound("om_3", long));
    const gen = world.wakes.shift() ?? 0;
    expect(await runnerOf(world, { backend })({ v: 1, session, gen }, shutdown.signal)).toBe(
      "requeue",
    );
    world.wakes.push(gen);
    await settle(world, { backend });
    expect((await world.store.history(session)).map(textOf).at(-1)).toBe("fine");
  });

  it("an order to shorten it can be stopped, and is carried out by the next worker after a shutdown", async () => {
    for (const reason of ["stopped", "shutdown"]) {
      const world = newWorld();
      const shutdown = new AbortController();
      let summaries = 0;
      const { backend } = model(async function* (request, signal) {
        if (!isSummary(request)) return yield* answer("fine");
        summaries += 1;
        if (summaries > 1) return yield* answer("SUMMARY");
        if (reason === "shutdown") return shutdown.abort();
        await world.store.cancel(session, { turnId: `${session}-3`, reason });
        world.running.cancel(session, `${session}-3`);
        expect(signal?.aborted).toBe(true);
      });
      for (const number of [1, 2]) {
        await ask(world, { backend }, inbound(`om_${number}`, `${number} ${long}`));
      }
      const command = { name: "compact" as const, argument: "" };
      await append(world, inbound("om_3", "/compact", { command }));
      const gen = world.wakes.shift() ?? 0;
      await runnerOf(world, { backend })({ v: 1, session, gen }, shutdown.signal);
      if (reason === "shutdown") world.wakes.push(gen);
      await settle(world, { backend });
      const text = [...(await outboxOf(world))].at(-1)?.text ?? world.sent.at(-1)?.text;
      expect(text).toMatch(
        reason === "shutdown" ? /^The conversation was compacted/ : /^Stopped\.$/,
      );
      expect(await world.store.history(session)).toHaveLength(4);
    }
  });

  it("a message that joins right after a cut is kept with what was cut", async () => {
    const world = newWorld();
    let overflowed = false;
    const { backend, requests } = model(async function* (request) {
      if (isSummary(request)) return yield* answer("SUMMARY");
      const last = request.messages.at(-1);
      if (last?.role === "user" && said(request).at(-1)?.startsWith("tools")) {
        yield toolCallDelta(0, { id: "c1", name: "echo", arguments: "{}" });
        return yield messageStop("tool_use");
      }
      if (last?.role === "tool" && !overflowed) {
        overflowed = true;
        await append(world, inbound("om_4", "joining"));
        return yield failure("context_overflow");
      }
      yield* answer("fine");
    });
    const steered = { backend, agent: { busy: "steer" as const } };
    await ask(world, steered, inbound("om_1", `1 ${long}`));
    await ask(world, steered, inbound("om_2", `2 ${long}`));
    await ask(world, steered, inbound("om_3", `tools ${long}`));
    const seen = requests.at(-1)?.messages ?? [];
    expect(seen.map(textOf).at(-1)).toBe("joining");
    const { wakeGen } = await world.store.append(inbound("om_probe", "probe"));
    const claim = await world.store.claim(session, wakeGen ?? 0, "worker-2");
    // What the next turn begins with is what this one saw, and its answer.
    expect(claim?.history.map(textOf)).toEqual([...seen.map(textOf), "fine"]);
    checkPairs(claim?.history ?? []);
  });
});

describe("a message with options of its own", () => {
  const output = {
    name: "count",
    schema: { type: "object", properties: { n: { type: "integer" } }, required: ["n"] },
    format: "{n} of them",
  };

  it("AT-21: gets an answer of its form, checked and asked for again, with the options of its requests", async () => {
    const world = newWorld();
    let asked = 0;
    const { backend, requests } = model(() => answer((asked += 1) === 1 ? "many" : '{"n":3}'));
    const options = {
      thinking: true,
      effort: "low",
      temperature: 0,
      topP: 0.5,
      maxOutputTokens: 77,
    } as const;
    const own = { needs: ["run-options"], output, model: options, metadata: { ticket: "T-1" } };
    await ask(world, { backend }, inbound("om_own", "how many?", own));
    expect(requests).toHaveLength(2);
    for (const request of requests) {
      expect(request).toMatchObject({
        needsThinking: true,
        effort: "low",
        temperature: 0,
        topP: 0.5,
        maxTokens: 77,
        responseFormat: { type: "json_schema", name: "count", jsonSchema: output.schema },
      });
    }
    expect(world.sent.map(({ text }) => text)).toEqual(["3 of them"]);
    const events = (await world.events.read(session, 0, 1_000)).map(({ event }) => event);
    const formed = {
      reason: "",
      output: { n: 3 },
      outputName: "count",
      outputFormat: "{n} of them",
      final: '{"n":3}',
    };
    expect(events.find(({ type }) => type === "done")).toMatchObject({
      ...formed,
      agent: "default",
    });
  });

  it("is not checked by a pattern that needs more than linear time, and not asked for again", async () => {
    const world = newWorld();
    const pattern = {
      ...output,
      schema: { type: "object", properties: { n: { pattern: "^(?!x)" } } },
    };
    const { backend, requests } = model(() => answer('{"n":"3"}'));
    await ask(
      world,
      { backend },
      inbound("om_own", "how many?", { needs: ["run-options"], output: pattern }),
    );
    const events = (await world.events.read(session, 0, 1_000)).map(({ event }) => event);
    expect(events.filter(({ type }) => type === "warning" || type === "done")).toMatchObject([
      {
        code: "output_invalid",
        message: expect.stringContaining('the pattern "^(?!x)" cannot be used (RE2 syntax)'),
      },
      { type: "done", reason: "output_invalid" },
    ]);
    expect(requests).toHaveLength(1);
  });

  it("continues an answer that the vendor keeps: each of its requests has the id, and the messages of its turn", async () => {
    const world = newWorld();
    let asked = 0;
    const { backend, requests } = model(() => answer((asked += 1) === 2 ? "many" : '{"n":3}'));
    const storing = {
      backend: { ...backend, storesResponses: true },
      agent: { request: { storeResponses: true } },
    };
    await ask(world, storing, inbound("om_before", "before"));
    const own = { needs: ["run-options", "stored-response"], output, previousResponseId: "resp_1" };
    await ask(world, storing, inbound("om_own", "how many?", own));
    await ask(world, storing, inbound("om_after", "and now?"));
    expect(
      requests.map(({ storeResponses, previousResponseId }) => [
        storeResponses,
        previousResponseId,
      ]),
    ).toEqual([
      [true, undefined],
      [true, "resp_1"],
      [true, "resp_1"],
      [true, undefined],
    ]);
    expect(requests.map(({ messages }) => messages.length)).toEqual([1, 1, 3, 7]);
    expect(requests.slice(1, 3).map((request) => said(request)[0])).toEqual([
      "how many?",
      "how many?",
    ]);
  });

  it("that continues an answer has the whole conversation for an agent that has its vendor keep none", async () => {
    const world = newWorld();
    const { backend, requests } = model(() => answer("free text"));
    await ask(world, { backend }, inbound("om_before", "before"));
    const own = { needs: ["stored-response"], previousResponseId: "resp_1" };
    await ask(world, { backend }, inbound("om_own", "and now?", own));
    expect(requests.map(({ previousResponseId }) => previousResponseId)).toEqual([
      undefined,
      undefined,
    ]);
    expect(requests.map(said)).toEqual([["before"], ["before", "and now?"]]);
  });

  it("leaves the next message alone, and is left alone by a process that does not know such options", async () => {
    const world = newWorld();
    const { backend, requests } = model(() => answer("free text"));
    await append(world, inbound("om_own", "how many?", { needs: ["run-options"], output }));
    const features = ["held-step", "put-off-step", "given-history"];
    await expect(world.store.claim(session, 1, "w", { features })).rejects.toMatchObject({
      reason: "needs",
    });
    await settle(world, { backend });
    await ask(world, { backend }, inbound("om_free", "and now?"));
    expect(requests.map((request) => request.responseFormat?.type)).toEqual([
      ...Array(3).fill("json_schema"),
      undefined,
    ]);
    const notice = "The answer did not come in the form that it should have.";
    expect(world.sent[0]?.text).toBe(`free text\n\n${notice}`);
  });
});
