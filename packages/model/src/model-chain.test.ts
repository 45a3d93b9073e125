import { systemClock } from "@larkline/protocol/clock";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  createModelChain,
  findModelInfo,
  modelFailure,
  ModelHealth,
  type LlmBackend,
  type ModelChainOptions,
  messageStop,
  toolCallDelta,
} from "./index.ts";
import { timedStream } from "./backend.ts";

type Step = readonly (ModelChunk | "hang" | "throw")[];

/** A backend whose calls go as written, one list of chunks per call. */
function scripted(...calls: Step[]) {
  const seen: { model: string; signal: AbortSignal | undefined }[] = [];
  const backend: LlmBackend = {
    async *stream(request, signal) {
      seen.push({ model: request.model, signal });
      for (const step of calls[seen.length - 1] ?? []) {
        if (step === "throw") throw new Error("backend bug");
        if (step === "hang") {
          await new Promise((resolve) => signal?.addEventListener("abort", resolve));
        } else yield step;
      }
    },
  };
  return { backend, seen };
}

const text = (words: string): ModelChunk => ({ type: "text_delta", text: words });
const stop = messageStop("end_turn");
const busy = modelFailure("api_overloaded", "busy");
const request = {
  messages: [{ role: "user" as const, content: [{ type: "text" as const, text: "hi" }] }],
};

function chainOf(backends: LlmBackend[], options: Partial<ModelChainOptions> = {}) {
  const waits: number[] = [];
  const models = backends.map((backend, n) => ({
    backend,
    info: findModelInfo("anthropic", `m${n}`),
  }));
  const sleep = async (ms: number) => void waits.push(ms);
  return { chain: createModelChain({ models, sleep, random: () => 1, ...options }), waits };
}

async function collect(chunks: AsyncIterable<ModelChunk>): Promise<ModelChunk[]> {
  const all: ModelChunk[] = [];
  for await (const chunk of chunks) {
    if (chunk.type !== "attempt" && chunk.type !== "retry") all.push(chunk);
  }
  return all;
}

describe("createModelChain", () => {
  it("hands on a good stream and fills in the model", async () => {
    const { backend, seen } = scripted([text("a"), toolCallDelta(0), stop]);
    const { chain } = chainOf([backend]);
    expect(await collect(chain.stream(request))).toEqual([
      text("a"),
      toolCallDelta(0),
      { ...stop, model: "m0" },
    ]);
    expect(seen).toMatchObject([{ model: "m0" }]);
    expect(chain.primary.id).toBe("m0");
  });

  it("AL-3: any object with a stream function is a backend, whatever it is made of", async () => {
    class Own {
      readonly #words = "own";
      async *stream(): AsyncGenerator<ModelChunk> {
        yield text(this.#words);
        yield stop;
      }
    }
    const literal = {
      stream: () => ReadableStream.from<ModelChunk>([text("own"), stop]),
      more: 1,
    };
    const inherited: LlmBackend = Object.create({ stream: () => new Own().stream() });
    for (const backend of [new Own(), literal, inherited]) {
      expect(await collect(chainOf([backend]).chain.stream(request))).toEqual([
        text("own"),
        { ...stop, model: "m0" },
      ]);
    }
  });

  it("repeats with growing waits, then asks to be put off for longer and longer, until it gives up", async () => {
    const { backend, seen } = scripted([busy], [busy], [busy], [busy], [busy], [busy]);
    const { chain, waits } = chainOf([backend]);
    expect(await collect(chain.stream(request))).toEqual([
      { ...busy, retryInMs: 2_000, askedWaitMs: 0 },
    ]);
    expect(seen).toHaveLength(3);
    expect(waits).toEqual([500, 1_000]);
    const past = { rounds: 2, elapsedMs: 20_000, askedWaitMs: 0 };
    expect(await collect(chain.stream(request, undefined, past))).toMatchObject([
      { retryInMs: 8_000 },
    ]);
    expect(seen).toHaveLength(4);
    const late = { rounds: 8, elapsedMs: 260_000, askedWaitMs: 0 };
    expect((await collect(chain.stream(request, undefined, late)))[0]).toEqual(busy);
  });

  it("asks only models whose vendor keeps answers to continue one, and fails where there is none", async () => {
    const plain = scripted([text("no"), stop]);
    const storing = scripted([busy], [text("yes"), stop]);
    const continues = { ...request, previousResponseId: "resp_1" };
    const { chain } = chainOf([
      plain.backend,
      { ...storing.backend, storesResponses: true },
      plain.backend,
    ]);
    expect((await collect(chain.stream(continues))).at(-1)).toEqual({ ...stop, model: "m1" });
    expect(storing.seen).toHaveLength(2);
    expect(await collect(chainOf([plain.backend]).chain.stream(continues))).toMatchObject([
      { type: "error", code: "api_bad_request", retryable: false },
    ]);
    expect(plain.seen).toHaveLength(0);
  });

  const asks = (retryAfterMs: number) => modelFailure("api_rate_limit", "slow", { retryAfterMs });

  it("EE-50: waits in place as long as the vendor asks when that is short", async () => {
    const { chain, waits } = chainOf([
      scripted([asks(2_000)], [text("ok"), stop]).backend,
      scripted([text("ok"), stop]).backend,
    ]);
    expect((await collect(chain.stream(request))).at(-1)).toEqual({ ...stop, model: "m0" });
    expect(waits).toEqual([2_000]);
  });

  it("EE-50: is put off for up to a minute that the vendor asks for, before the fallback is asked", async () => {
    const { chain, waits } = chainOf([
      scripted([asks(40_000)], [asks(40_000)]).backend,
      scripted([text("ok"), stop]).backend,
    ]);
    expect(await collect(chain.stream(request))).toMatchObject([
      { retryInMs: 40_000, askedWaitMs: 40_000 },
    ]);
    const past = { rounds: 1, elapsedMs: 40_000, askedWaitMs: 40_000 };
    expect((await collect(chain.stream(request, undefined, past))).at(-1)).toEqual({
      ...stop,
      model: "m1",
    });
    expect(waits).toEqual([]);
  });

  it("EE-50: goes to the fallback at once when the vendor asks for more; without one it waits within bounds", async () => {
    const { chain, waits } = chainOf([
      scripted([asks(300_000)]).backend,
      scripted([text("ok"), stop]).backend,
    ]);
    expect(await collect(chain.stream(request))).toEqual([text("ok"), { ...stop, model: "m1" }]);
    expect(waits).toEqual([]);
    const alone = chainOf([scripted([asks(120_000)]).backend]).chain;
    expect(await collect(alone.stream(request))).toMatchObject([{ retryInMs: 120_000 }]);
    const hopeless = chainOf([scripted([asks(3_600_000)]).backend]).chain;
    expect((await collect(hopeless.stream(request)))[0]).not.toHaveProperty("retryInMs");
  });

  it("tells of each repeat", async () => {
    const vendor = { message: "too many", requestId: "req_1" };
    const { chain } = chainOf([
      scripted([busy], [{ ...asks(300_000), vendor }]).backend,
      scripted([text("ok"), stop]).backend,
    ]);
    const retry = { type: "retry", model: "m0" };
    const all: ModelChunk[] = [];
    for await (const chunk of chain.stream(request)) if (chunk.type === "retry") all.push(chunk);
    expect(all).toEqual([
      { ...retry, code: "api_overloaded", waitMs: 500, attempt: 1, problem: "busy" },
      {
        ...retry,
        code: "api_rate_limit",
        waitMs: 0,
        attempt: 2,
        problem: "too many",
        requestId: "req_1",
        next: "m1",
      },
    ]);
  });

  it("cuts an endless step at its limit, says so and stops the vendor", async () => {
    const seen: (AbortSignal | undefined)[] = [];
    const backend: LlmBackend = {
      async *stream(_request, signal) {
        seen.push(signal);
        for (let n = 0; n < 1_000_000; n += 1) {
          yield n % 2 === 0 ? text("想一想") : { ...toolCallDelta(n), name: "x" };
        }
      },
    };
    const chunks = await collect(chainOf([backend], { maxStepBytes: 1_000 }).chain.stream(request));
    const bytes = chunks.map((chunk) =>
      chunk.type === "text_delta" ? Buffer.byteLength(chunk.text) : 0,
    );
    expect(bytes.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(1_000);
    expect(JSON.stringify(chunks)).not.toContain("\uFFFD");
    expect(chunks.length).toBeLessThan(60);
    expect(chunks.slice(-2)).toMatchObject([
      {
        type: "warning",
        code: "step_too_long",
        message: expect.stringContaining("limits.stepBytes"),
      },
      { type: "message_stop", stopReason: "max_tokens", usage: null },
    ]);
    expect(seen[0]?.aborted).toBe(true);
  });

  it.each([9, 10, 11, 12])("cuts a step of %i bytes between characters", async (maxStepBytes) => {
    const { backend } = scripted([text("想一想吧"), text("好"), stop]);
    const [first] = await collect(chainOf([backend], { maxStepBytes }).chain.stream(request));
    expect(first).toEqual(text("想一想吧".slice(0, Math.floor(maxStepBytes / 3))));
  });

  it.each(["blocks", "calls"])(
    "cuts a step of endless %s, however short they are, and says so",
    async (kind) => {
      const backend: LlmBackend = {
        async *stream() {
          for (let index = 0; index < 1_000_000; index += 1) {
            yield kind === "calls"
              ? toolCallDelta(index)
              : { type: "thinking_delta", index, text: "" };
          }
        },
      };
      const chunks = await collect(chainOf([backend]).chain.stream(request));
      expect(chunks).toHaveLength(2_002);
      expect(chunks.slice(-2)).toMatchObject([
        { type: "warning", code: "step_too_long", message: expect.stringContaining("2000 pieces") },
        { type: "message_stop", stopReason: "max_tokens", usage: null },
      ]);
    },
  );

  it("puts a restart between a broken call that had delivered something and the next one", async () => {
    const broken = modelFailure("stream_truncated", "cut");
    const { chain } = chainOf([scripted([text("hal"), broken], [text("half"), stop]).backend]);
    expect(await collect(chain.stream(request))).toEqual([
      text("hal"),
      { type: "restart", model: "m0", reason: "stream_truncated" },
      text("half"),
      { ...stop, model: "m0" },
    ]);
  });

  it("puts no restart when nothing had been delivered", async () => {
    const { chain } = chainOf([scripted([busy], [text("a"), stop]).backend]);
    expect((await collect(chain.stream(request))).map((chunk) => chunk.type)).toEqual([
      "text_delta",
      "message_stop",
    ]);
  });

  for (const code of ["api_bad_request", "context_overflow", "api_auth_error"] as const) {
    it(`does not repeat ${code} on the same model, but tries the next one`, async () => {
      const first = scripted([modelFailure(code, "no")], [text("ok"), stop]);
      const second = scripted([text("b"), stop]);
      const { chain, waits } = chainOf([first.backend, second.backend]);
      expect((await collect(chain.stream(request))).at(-1)).toEqual({ ...stop, model: "m1" });
      expect(first.seen).toHaveLength(1);
      expect(waits).toEqual([]);
      const alone = chainOf([scripted([modelFailure(code, "no")], [text("ok"), stop]).backend]);
      expect(await collect(alone.chain.stream(request))).toMatchObject([
        { type: "error", code, partial: false },
      ]);
    });
  }

  it("falls back after the repeats of an overloaded model and names the new one in the restart", async () => {
    const first = scripted([busy], [busy], [text("x"), busy]);
    const { chain } = chainOf([first.backend, scripted([text("ok"), stop]).backend]);
    expect(await collect(chain.stream(request))).toEqual([
      text("x"),
      { type: "restart", model: "m1", reason: "api_overloaded" },
      text("ok"),
      { ...stop, model: "m1" },
    ]);
  });

  it("marks the last failure partial when its call had delivered something", async () => {
    const { chain } = chainOf([scripted([text("x"), busy]).backend], { retry: { attempts: 1 } });
    expect((await collect(chain.stream(request))).at(-1)).toMatchObject({
      type: "error",
      partial: true,
    });
  });

  it("turns a backend that stops without an end, or throws, into a failure", async () => {
    const options = { retry: { attempts: 1 } };
    const silent = chainOf([scripted([text("x")]).backend], options);
    expect((await collect(silent.chain.stream(request))).at(-1)).toMatchObject({
      code: "stream_truncated",
    });
    const faulty = chainOf([scripted(["throw"]).backend], options);
    expect(await collect(faulty.chain.stream(request))).toMatchObject([
      { type: "error", code: "internal_error" },
    ]);
  });

  const thought: ModelChunk = { type: "thinking_delta", index: 0, text: "hm" };
  const blank = text(" \n");

  it.each<[string, Step]>([
    ["nothing", [stop]],
    ["blanks", [blank, stop]],
    ["thoughts alone", [thought, stop]],
    ["a text with an unknown end", [text("half"), messageStop("other")]],
    ["the end of calls without a call", [messageStop("tool_use")]],
  ])(
    "asks once more for an answer that is %s, then the fallback, and takes it as it is at last",
    async (_what, odd) => {
      const restarts = odd.length > 1;
      const restart = (model: string) =>
        restarts ? [{ type: "restart", model, reason: "stream_truncated" }] : [];
      const first = scripted(odd, odd);
      const good = scripted([text("ok"), stop]);
      expect(await collect(chainOf([first.backend, good.backend]).chain.stream(request))).toEqual([
        ...odd.slice(0, -1),
        ...restart("m0"),
        ...odd.slice(0, -1),
        ...restart("m1"),
        text("ok"),
        { ...stop, model: "m1" },
      ]);
      const alone = scripted(odd, odd);
      const { chain, waits } = chainOf([alone.backend]);
      expect((await collect(chain.stream(request))).at(-1)).toMatchObject({
        type: "message_stop",
        model: "m0",
      });
      expect([alone.seen.length, first.seen.length, good.seen.length, waits]).toEqual([
        2,
        2,
        1,
        [],
      ]);
    },
  );

  it.each<[string, Step]>([
    ["calls under an unknown end", [toolCallDelta(0), messageStop("other")]],
    ["cut off before its text", [messageStop("max_tokens")]],
    ["refused without a word", [messageStop("refusal")]],
    [
      "a block of the vendor alone",
      [{ ...thought, text: "", providerMetadata: { opaque: "x" } }, stop],
    ],
  ])("asks once for an answer that is %s", async (_what, step) => {
    const { backend, seen } = scripted(step);
    expect((await collect(chainOf([backend]).chain.stream(request))).at(-1)).toMatchObject({
      type: "message_stop",
    });
    expect(seen.length).toBe(1);
  });

  it("needs a model", () => {
    expect(() => createModelChain({ models: [] })).toThrow("at least one model");
  });
});

describe("deadlines and cancellation", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  const timeouts = { headersMs: 100, thinkingMs: 400, gapMs: 50, callMs: 1_000 };
  const once = { timeouts, retry: { attempts: 1 } };

  it("gives up a call that does not begin, and stops it", async () => {
    const { backend, seen } = scripted(["hang"]);
    const result = collect(chainOf([backend], once).chain.stream(request));
    await vi.advanceTimersByTimeAsync(99);
    expect(seen[0]?.signal?.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(await result).toMatchObject([
      { type: "error", code: "api_overloaded", retryable: true },
    ]);
    expect(seen[0]?.signal?.aborted).toBe(true);
  });

  it("takes each byte as a sign that the model works, and asks the fallback of a silent model at once", async () => {
    const pinging: LlmBackend = {
      async *stream({ alive }, signal) {
        const timer = setInterval(() => alive?.(), 40);
        await vi.advanceTimersByTimeAsync(0);
        setTimeout(() => clearInterval(timer), 400);
        await new Promise((resolve) => signal?.addEventListener("abort", resolve));
        yield busy;
      },
    };
    const { chain, waits } = chainOf([pinging, scripted([text("ok"), stop]).backend], { timeouts });
    let over = false;
    const result = collect(chain.stream(request)).finally(() => (over = true));
    await vi.advanceTimersByTimeAsync(450);
    expect(over).toBe(false);
    await vi.advanceTimersByTimeAsync(60);
    expect(await result).toEqual([text("ok"), { ...stop, model: "m1" }]);
    expect(waits).toEqual([]);
  });

  it("leaves a model that thinks without a word more time for its first one", async () => {
    const { backend } = scripted(["hang"]);
    const silent = { ...backend, thinksSilently: true };
    let over = false;
    const thinking = { ...request, needsThinking: true };
    const result = collect(chainOf([silent], once).chain.stream(thinking)).finally(
      () => (over = true),
    );
    await vi.advanceTimersByTimeAsync(399);
    expect(over).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(await result).toMatchObject([{ code: "api_overloaded", silent: true }]);
  });

  it("gives up a stream that stands still", async () => {
    const result = collect(
      chainOf([scripted([text("a"), "hang"]).backend], once).chain.stream(request),
    );
    await vi.advanceTimersByTimeAsync(50);
    expect((await result).at(-1)).toMatchObject({
      code: "stream_truncated",
      retryable: true,
      partial: true,
    });
  });

  it("gives up a call that takes too long in all", async () => {
    const result = collect(
      chainOf([scripted(["hang"]).backend], {
        ...once,
        timeouts: { ...timeouts, callMs: 20 },
      }).chain.stream(request),
    );
    await vi.advanceTimersByTimeAsync(20);
    expect((await result).at(-1)).toMatchObject({ type: "error", retryable: true });
  });

  it("does not take a slow consumer for a slow vendor", async () => {
    const { chain } = chainOf([scripted([text("a"), text("b"), stop]).backend], {
      ...once,
      timeouts: { ...timeouts, callMs: 5_000 },
    });
    const types: string[] = [];
    const consumer = (async () => {
      for await (const chunk of chain.stream(request)) {
        if (chunk.type !== "attempt") types.push(chunk.type);
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
    })();
    await vi.advanceTimersByTimeAsync(3_000);
    await consumer;
    expect(types).toEqual(["text_delta", "text_delta", "message_stop"]);
  });

  it("EE-43: abort ends the stream at once without a terminal chunk and stops the vendor call", async () => {
    const { backend, seen } = scripted([text("a"), "hang"]);
    const controller = new AbortController();
    const result = collect(chainOf([backend]).chain.stream(request, controller.signal));
    await vi.advanceTimersByTimeAsync(1);
    controller.abort();
    expect(await result).toEqual([text("a")]);
    expect(seen[0]?.signal?.aborted).toBe(true);
  });

  it("EE-43: a chunk that comes with the abort is not shown", async () => {
    const controller = new AbortController();
    const late: AsyncIterable<ModelChunk> = {
      [Symbol.asyncIterator]: () => ({
        next: async () => {
          queueMicrotask(() => controller.abort());
          return await Promise.resolve({ done: false, value: text("late") });
        },
      }),
    };
    const patience = { headersMs: 1_000, thinkingMs: 1_000, gapMs: 1_000, callMs: 1_000 };
    const { signal } = controller;
    const options = {
      clock: systemClock,
      timeouts: patience,
      thinksSilently: false,
      onAlive: () => undefined,
      signal,
    };
    expect(await collect(timedStream(() => late, options))).toEqual([]);
  });

  it("EE-43: abort during a wait ends the stream, nothing more is asked", async () => {
    const { backend, seen } = scripted([busy], [text("ok"), stop]);
    const controller = new AbortController();
    const options = { sleep: (_ms: number, signal: AbortSignal | undefined) => rejectOn(signal) };
    const result = collect(chainOf([backend], options).chain.stream(request, controller.signal));
    await vi.advanceTimersByTimeAsync(1);
    controller.abort();
    expect(await result).toEqual([]);
    expect(seen).toHaveLength(1);
  });

  it("EE-43: leaving the iteration stops the vendor call", async () => {
    const { backend, seen } = scripted([text("a"), "hang"]);
    for await (const chunk of chainOf([backend]).chain.stream(request)) {
      if (chunk.type === "text_delta") break;
    }
    expect(seen[0]?.signal?.aborted).toBe(true);
  });

  it("puts a silent call off whose slot is needed, and shows nothing of it to the person", async () => {
    const { backend, seen } = scripted(["hang"], ["hang"]);
    const health = new ModelHealth({ slots: 2, clock: systemClock });
    const model = { backend, health, info: findModelInfo("anthropic", "m0") };
    const chain = createModelChain({ models: [model], random: () => 1 });
    const controller = new AbortController();
    const first = collect(chain.stream(request, controller.signal));
    const second = collect(chain.stream(request));
    await vi.advanceTimersByTimeAsync(4_000);
    expect(await second).toMatchObject([
      { type: "error", code: "api_overloaded", retryInMs: 2_000, partial: false },
    ]);
    expect(seen.map(({ signal }) => signal?.aborted)).toEqual([false, true]);
    controller.abort();
    expect(await first).toEqual([]);
  });
});

async function rejectOn(signal: AbortSignal | undefined): Promise<void> {
  await new Promise((_, reject) =>
    signal?.addEventListener("abort", () => reject(new Error("aborted"))),
  );
}
