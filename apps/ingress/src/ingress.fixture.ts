import { expect } from "vitest";
import {
  readTriggerSecrets,
  resolveConfig,
  type ConfigInput,
  type IngressBotAccess,
} from "@larkline/process/config";
import type { FeishuApi } from "@larkline/feishu";
import { turnIdOf, type QueuedMessage, type SessionKey } from "@larkline/protocol";
import { systemRandom } from "@larkline/protocol/clock";
import type { EngineEvent } from "@larkline/protocol/event";
import type { StreamFrame } from "@larkline/protocol/views/stream-frame";
import type { SessionStore } from "@larkline/store";
import { patientClock } from "@larkline/testkit";
import {
  Metrics,
  silentLogger,
  silentTelemetry,
  type Telemetry,
} from "@larkline/process/telemetry";
import { createTestStores, type TestMemory, type Trouble } from "./backend.fixture.ts";
import { Bot } from "./bot.ts";
import { loadConfig } from "./config.ts";
import type { EventConsumer } from "./other-events.ts";
import { connectSharedRedis } from "./redis.fixture.ts";
import { startIngress } from "./server.ts";
import { createServices, type Services, type Stores } from "./services.ts";

// For tests: the whole process over HTTP, with a worker of a few lines.

/** What the worker does with a message between claim and `done`. */
export type Script = (
  text: string,
  run: { emit: (event: EngineEvent) => Promise<void>; stopped: AbortSignal },
) => Promise<void>;

export interface TestOptions {
  env?: Record<string, string>;
  /** Messages of one session that may wait, the running one included; default 1,000. */
  maxWaiting?: number;
  script?: Script;
  api?: FeishuApi;
  /** Bots besides the one of `FEISHU_APP_ID`. */
  bots?: readonly { access: IngressBotAccess; api: FeishuApi }[];
  /** `larkline.config.ts`. */
  settings?: ConfigInput;
  /** What another replica keeps its state in. */
  shared?: TestMemory;
  /** Receive the events that Larkline does not handle itself; default: no consumers. */
  consumers?: readonly EventConsumer[];
  /** Receives spans and counters; absent: none are kept. */
  telemetry?: Telemetry;
}

export interface TestIngress extends TestMemory {
  url: string;
  services: Services;
  bots: readonly Bot[];
  metrics: Metrics;
  wakes: { session: SessionKey; gen: number }[];
  cancels: { session: SessionKey; turnId?: string }[];
  trouble: Trouble;
  close(): Promise<void>;
}

/** The normal end of a run. */
export function doneEvent(final: string, reason = ""): EngineEvent {
  return {
    type: "done",
    totalInputTokens: 0,
    totalOutputTokens: 0,
    totalCostUsd: 0,
    turnCount: 1,
    reason,
    final,
  };
}

function textOfHead({ message }: QueuedMessage): string {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

/** Claims a woken session and works off its inbox; the last text delta is the final text. */
function createTestWorker(store: SessionStore, script: Script) {
  const running = new Map<string, AbortController>();
  const unanswered = new Set<Promise<unknown>>();
  let isClosing = false;

  const asked = async <T>(ask: () => Promise<T>): Promise<T> => {
    if (isClosing) throw new WorkerClosed();
    const answer = ask();
    unanswered.add(answer);
    try {
      return await answer;
    } finally {
      unanswered.delete(answer);
    }
  };

  const runOne = async (claim: { session: SessionKey; epoch: string }, head: QueuedMessage) => {
    const runId = turnIdOf(claim.session, head.seq);
    const stop = new AbortController();
    running.set(runId, stop);
    let final = "";
    const emit = async (event: EngineEvent) => {
      if (event.type === "text_delta") final += event.text;
      if (event.type === "tool_result") final = "";
      await asked(async () => await store.emit({ ...claim, events: [{ runId, event }] }));
    };
    await script(textOfHead(head), { emit, stopped: stop.signal });
    running.delete(runId);
    const end = doneEvent(final, stop.signal.aborted ? "cancelled" : "");
    const events = [{ runId, event: end }];
    const commit = { ...claim, history: [], events, seq: head.seq, more: true };
    return await asked(async () => await store.commit(commit));
  };

  return {
    cancel: (turnId: string | undefined) => running.get(turnId ?? "")?.abort(),
    /**
     * Asks the store for nothing more, and resolves when it has answered all: a client may see the end of its run before
     * the worker does.
     */
    async close(): Promise<void> {
      isClosing = true;
      while (unanswered.size > 0) await Promise.allSettled(unanswered);
    },
    /** Rejects with what the store has answered, but for a store that is asked no more. */
    async wake(session: SessionKey, gen: number): Promise<void> {
      try {
        const claim = await asked(async () => await store.claim(session, gen, "test"));
        if (claim === undefined) return;
        let { head } = claim;
        while (head !== undefined) {
          const result = await runOne({ session, epoch: claim.epoch }, head);
          head = result.state === "next" ? result.head : undefined;
        }
      } catch (error) {
        if (!(error instanceof WorkerClosed)) throw error;
      }
    },
  };
}

/** The test's worker has been closed in the middle of a run. */
class WorkerClosed extends Error {}

const noTrouble: Trouble = {
  starting: false,
  notReady: false,
  refuse: false,
  silent: false,
  append: false,
  hang: false,
  wake: false,
  cancel: false,
};

/** Starts an ingress on a free port of loopback. */
export async function startTestIngress(options: TestOptions = {}): Promise<TestIngress> {
  const own = options.shared === undefined ? connectSharedRedis(options) : undefined;
  const shared = options.shared ?? own?.memory ?? expect.fail();
  const worker =
    options.script === undefined ? undefined : createTestWorker(shared.store, options.script);
  const wakes: TestIngress["wakes"] = [];
  const cancels: TestIngress["cancels"] = [];
  const trouble = { ...noTrouble };
  const stores = createTestStores(shared, trouble, {
    wake: (session, gen) => {
      wakes.push({ session, gen });
      void worker?.wake(session, gen);
    },
    cancel: (cancel) => {
      cancels.push(cancel);
      worker?.cancel(cancel.turnId);
    },
  });
  const services = servicesOf(stores, options);
  const { feishu } = services.config;
  const first =
    feishu === undefined || options.api === undefined
      ? []
      : [{ access: { name: "default", ...feishu }, api: options.api }];
  const bots = [...first, ...(options.bots ?? [])].map(
    ({ access, api }) => new Bot(services, access, api),
  );
  const ingress = await startIngress(services, bots);
  const url = `http://127.0.0.1:${ingress.port}`;
  const { metrics } = services;
  let closed: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    await ingress.close();
    await worker?.close();
    await own?.close();
  };
  const close = async (): Promise<void> => await (closed ??= stop());
  return { url, ...shared, services, bots, metrics, wakes, cancels, trouble, close };
}

function servicesOf(
  stores: Stores,
  { env, settings: input = {}, ...options }: TestOptions,
): Services {
  const config = loadConfig({ HOST: "127.0.0.1", PORT: "0", ...env });
  const settings = resolveConfig(input);
  if (!config.ok) throw new Error(config.error);
  if (!settings.ok) throw new Error(settings.error);
  const { telemetry = silentTelemetry, consumers = [] } = options;
  const triggerSecrets = readTriggerSecrets({ ...env }, settings.value.doors);
  if (!triggerSecrets.ok) throw new Error(triggerSecrets.error);
  // Its store and its platform are asked by this process, too: what it had no time to read is not late.
  const clock = patientClock;
  const parts = {
    config: config.value,
    settings: settings.value,
    stores,
    consumers,
    telemetry,
    clock,
    random: systemRandom,
    triggerSecrets: triggerSecrets.value,
  };
  return createServices({
    ...parts,
    metrics: new Metrics({ service: "ingress" }),
    log: silentLogger,
  });
}

/** Services without a process around them, for tests of one part. */
export function createTestServices(shared: TestMemory): Services {
  const listener = { wake: () => undefined, cancel: () => undefined };
  return servicesOf(createTestStores(shared, { ...noTrouble }, listener), {});
}

/** An open event stream as a test sees it. */
export interface TestStream {
  status: number;
  headers: Headers;
  /** All bytes so far, decoded. */
  text(): string;
  frames(): StreamFrame[];
  /** Waits until the text matches; fails after five seconds or when the stream ends first. */
  until(pattern: RegExp): Promise<void>;
  /** Waits for the end of the stream. */
  end(): Promise<void>;
  leave(): void;
}

const patienceMs = 60_000;

function framesIn(text: string): StreamFrame[] {
  const data = text.split("\n").filter((line) => line.startsWith("data: "));
  // The frames are ours; that they have the right form is what the tests check.
  return data.map((line) => JSON.parse(line.slice("data: ".length)) as StreamFrame);
}

/** Sends a request and reads its stream in the background. */
export async function openStream(url: string, init: RequestInit = {}): Promise<TestStream> {
  const leaving = new AbortController();
  const response = await fetch(url, { ...init, signal: leaving.signal });
  const decoder = new TextDecoder();
  let text = "";
  let ended = false;
  let changed = Promise.withResolvers<void>();
  const read = async () => {
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk, { stream: true });
      changed.resolve();
      changed = Promise.withResolvers();
    }
  };
  const reading = read()
    .catch(() => undefined)
    .finally(() => {
      ended = true;
      changed.resolve();
    });
  const waitFor = async (isTrue: () => boolean, what: string) => {
    const deadline = AbortSignal.timeout(patienceMs);
    const late = new Promise<void>((resolve) =>
      deadline.addEventListener("abort", () => resolve(), { once: true }),
    );
    while (!isTrue()) {
      if (deadline.aborted || ended) {
        throw new Error(`${what}: not before the end; got ${JSON.stringify(text)}`);
      }
      await Promise.race([changed.promise, late]);
    }
  };
  return {
    status: response.status,
    headers: response.headers,
    text: () => text,
    frames: () => framesIn(text),
    until: async (pattern) => await waitFor(() => pattern.test(text), String(pattern)),
    end: async () => await reading,
    leave: () => leaving.abort(),
  };
}

/** `POST /chat` with a JSON body. */
export async function postChat(
  { url }: Pick<TestIngress, "url">,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<TestStream> {
  return await openStream(`${url}/chat`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}
