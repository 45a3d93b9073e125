import { messageStop, toolCallDelta, type ModelChunk } from "@larkline/protocol";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createModelChain, findModelInfo, modelFailure, type LlmBackend, type ModelChainOptions } from "./index.ts";

type Step = readonly (ModelChunk | "hang" | "throw")[];

/** A backend whose calls go as written, one list of chunks per call. */
function scripted(...calls: Step[]) {
  const seen: { model: string; signal: AbortSignal | undefined }[] = [];
  const backend: LlmBackend = {
    async *stream(request, signal) {
      seen.push({ model: request.model, signal });
      for (const step of calls[seen.length - 1] ?? []) {
        if (step === "throw") throw new Error("backend bug");
        if (step === "hang") await new Promise((resolve) => signal?.addEventListener("abort", resolve));
        else yield step;
      }
    },
  };
  return { backend, seen };
}

const text = (words: string): ModelChunk => ({ type: "text_delta", text: words });
const stop = messageStop("end_turn");
const busy = modelFailure("api_overloaded", "busy");
const request = { messages: [{ role: "user" as const, content: [{ type: "text" as const, text: "hi" }] }] };

function chainOf(backends: LlmBackend[], options: Partial<ModelChainOptions> = {}) {
  const waits: number[] = [];
  const models = backends.map((backend, n) => ({ backend, info: findModelInfo("anthropic", `m${n}`) }));
  const sleep = async (ms: number) => void waits.push(ms);
  return { chain: createModelChain({ models, sleep, random: () => 1, ...options }), waits };
}

async function collect(chunks: AsyncIterable<ModelChunk>): Promise<ModelChunk[]> {
  const all: ModelChunk[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return all;
}

describe("createModelChain", () => {
  it("hands on a good stream and fills in the model", async () => {
    const { backend, seen } = scripted([text("a"), toolCallDelta(0), stop]);
    const { chain } = chainOf([backend]);
    expect(await collect(chain.stream(request))).toEqual([text("a"), toolCallDelta(0), { ...stop, model: "m0" }]);
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
      expect(await collect(chainOf([backend]).chain.stream(request))).toEqual([text("own"), { ...stop, model: "m0" }]);
    }
  });

  it("repeats with growing waits, then gives the last failure", async () => {
    const { backend, seen } = scripted([busy], [busy], [busy], [stop]);
    const { chain, waits } = chainOf([backend]);
    expect(await collect(chain.stream(request))).toEqual([busy]);
    expect(seen).toHaveLength(3);
    expect(waits).toEqual([500, 1_000]);
  });

  it("waits as long as the vendor asks, up to a cap beyond which it does not wait at all", async () => {
    const asks = (retryAfterMs: number) => modelFailure("api_rate_limit", "slow", { retryAfterMs });
    const patient = scripted([asks(20_000)], [stop]);
    const first = chainOf([patient.backend]);
    expect((await collect(first.chain.stream(request))).at(-1)).toMatchObject({ type: "message_stop" });
    expect(first.waits).toEqual([20_000]);
    const hopeless = scripted([asks(3_600_000)], [stop]);
    const second = chainOf([hopeless.backend]);
    expect(await collect(second.chain.stream(request))).toMatchObject([{ type: "error", retryAfterMs: 3_600_000 }]);
    expect(second.waits).toEqual([]);
  });

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
    expect((await collect(chain.stream(request))).map((chunk) => chunk.type)).toEqual(["text_delta", "message_stop"]);
  });

  for (const code of ["api_bad_request", "context_overflow", "api_auth_error"] as const) {
    it(`does not repeat ${code} on the same model, but tries the next one`, async () => {
      const first = scripted([modelFailure(code, "no")], [stop]);
      const second = scripted([text("b"), stop]);
      const { chain, waits } = chainOf([first.backend, second.backend]);
      expect((await collect(chain.stream(request))).at(-1)).toEqual({ ...stop, model: "m1" });
      expect(first.seen).toHaveLength(1);
      expect(waits).toEqual([]);
      const alone = chainOf([scripted([modelFailure(code, "no")], [stop]).backend]);
      expect(await collect(alone.chain.stream(request))).toMatchObject([{ type: "error", code, partial: false }]);
    });
  }

  it("falls back after the repeats of an overloaded model and names the new one in the restart", async () => {
    const first = scripted([busy], [busy], [text("x"), busy]);
    const { chain } = chainOf([first.backend, scripted([stop]).backend]);
    expect(await collect(chain.stream(request))).toEqual([
      text("x"),
      { type: "restart", model: "m1", reason: "api_overloaded" },
      { ...stop, model: "m1" },
    ]);
  });

  it("marks the last failure partial when its call had delivered something", async () => {
    const { chain } = chainOf([scripted([text("x"), busy]).backend], { retry: { attempts: 1 } });
    expect((await collect(chain.stream(request))).at(-1)).toMatchObject({ type: "error", partial: true });
  });

  it("turns a backend that stops without an end, or throws, into a failure", async () => {
    const options = { retry: { attempts: 1 } };
    const silent = chainOf([scripted([text("x")]).backend], options);
    expect((await collect(silent.chain.stream(request))).at(-1)).toMatchObject({ code: "stream_truncated" });
    const faulty = chainOf([scripted(["throw"]).backend], options);
    expect(await collect(faulty.chain.stream(request))).toMatchObject([{ type: "error", code: "internal_error" }]);
  });

  it("needs a model", () => {
    expect(() => createModelChain({ models: [] })).toThrow("at least one model");
  });
});

describe("deadlines and cancellation", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  const timeouts = { firstChunkMs: 100, gapMs: 50, callMs: 1_000 };
  const once = { timeouts, retry: { attempts: 1 } };

  it("gives up a call that does not begin, and stops it", async () => {
    const { backend, seen } = scripted(["hang"]);
    const result = collect(chainOf([backend], once).chain.stream(request));
    await vi.advanceTimersByTimeAsync(99);
    expect(seen[0]?.signal?.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(await result).toMatchObject([{ type: "error", code: "api_overloaded", retryable: true }]);
    expect(seen[0]?.signal?.aborted).toBe(true);
  });

  it("gives up a stream that stands still", async () => {
    const result = collect(chainOf([scripted([text("a"), "hang"]).backend], once).chain.stream(request));
    await vi.advanceTimersByTimeAsync(50);
    expect((await result).at(-1)).toMatchObject({ code: "stream_truncated", retryable: true, partial: true });
  });

  it("gives up a call that takes too long in all", async () => {
    const result = collect(
      chainOf([scripted(["hang"]).backend], { ...once, timeouts: { ...timeouts, callMs: 20 } }).chain.stream(request),
    );
    await vi.advanceTimersByTimeAsync(20);
    expect((await result).at(-1)).toMatchObject({ type: "error", retryable: true });
  });

  it("does not take a slow consumer for a slow vendor", async () => {
    const { chain } = chainOf([scripted([text("a"), text("b"), stop]).backend], once);
    const types: string[] = [];
    const consumer = (async () => {
      for await (const chunk of chain.stream(request)) {
        types.push(chunk.type);
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
    })();
    await vi.advanceTimersByTimeAsync(2_000);
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

  it("EE-43: abort during a wait ends the stream, nothing more is asked", async () => {
    const { backend, seen } = scripted([busy], [stop]);
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
    for await (const _ of chainOf([backend]).chain.stream(request)) break;
    expect(seen[0]?.signal?.aborted).toBe(true);
  });
});

async function rejectOn(signal: AbortSignal | undefined): Promise<void> {
  await new Promise((_, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted"))));
}
