import {
  jsonParserOf,
  type Clock,
  type Random,
  deadline,
  withDeadline,
  canaryMessage,
  canarySessionId,
  StreamFrame,
} from "@larkline/protocol";
import type { Presence } from "@larkline/store/operations";
import type { LookupCache } from "@larkline/store/platform";
import type { Logger, Metrics } from "@larkline/process/telemetry";
import { Type, type Static } from "@larkline/protocol/type";

/** Where ingress is, and the word that its HTTP API asks for. */
interface CanaryTarget {
  url: string;
  token: string | undefined;
}

interface CanaryDeps extends CanaryTarget {
  clock: Clock;
  random: Random;
  intervalMs: number;
  presence: Pick<Presence, "takeDuty">;
  lookups: Pick<LookupCache, "get" | "set">;
  metrics: Metrics;
  logger: Logger;
}

/** Sends a message through the whole system now and then. */
export interface Canary {
  /** False when the last three messages did not come through, whichever console sent them. Rejects without Redis. */
  isAlive(): Promise<boolean>;
  close(): Promise<void>;
}

/**
 * Starts to send messages, at once and then one per interval. Of several consoles one sends; the others know
 * what became of it from Redis.
 */
export function startCanary(deps: CanaryDeps): Canary {
  const { clock, random, intervalMs, presence, lookups, metrics, logger } = deps;
  const owner = random.uuid();
  const { seconds, failures, aliveAt } = createCanaryMetrics(metrics);
  const closing = new AbortController();
  let cancelNext: (() => void) | undefined;

  const report = async (): Promise<Report> => {
    const parsed = parseReport((await lookups.get(reportKey)) ?? "");
    return parsed.ok ? parsed.value : nothingKnown;
  };
  const keep = async (news: Report): Promise<void> =>
    await lookups.set(reportKey, JSON.stringify(news), reportTtlMs);

  const comesThrough = async (): Promise<boolean> => {
    const startedMs = clock.monotonic();
    const signal = deadline(clock, deadlineOf(intervalMs), closing.signal);
    try {
      await takeCanaryPath(deps, signal);
      seconds.record((clock.monotonic() - startedMs) / 1_000);
      return true;
    } catch (error) {
      if (closing.signal.aborted) return false;
      failures.add(1);
      logger.warn({ error }, "the canary's message did not come through");
      return false;
    }
  };

  const send = async (): Promise<void> => {
    if (await comesThrough()) return await keep({ aliveAtMs: clock.now(), missed: 0 });
    if (closing.signal.aborted) return;
    const { aliveAtMs, missed } = await report();
    await keep({ aliveAtMs, missed: missed + 1 });
  };

  const round = async (): Promise<void> => {
    const startedMs = clock.monotonic();
    try {
      // Shorter than the pause, so that the sender of this one can send the next one as well.
      if (await presence.takeDuty("canary", owner, Math.ceil(intervalMs * 0.9))) await send();
    } catch (error) {
      // Redis is away, which has a check of its own.
      logger.debug({ error }, "no message of the canary was sent");
    }
    const pauseMs = Math.max(0, intervalMs - (clock.monotonic() - startedMs));
    if (!closing.signal.aborted) cancelNext = clock.after(pauseMs, start);
  };
  let running = Promise.resolve();
  const start = (): void => {
    running = round();
  };
  start();

  aliveAt.addCallback(async (result) => {
    const { aliveAtMs } = await withDeadline(clock, report(), scrapeDeadlineMs).catch(
      () => nothingKnown,
    );
    if (aliveAtMs > 0) result.observe(aliveAtMs / 1_000);
  });
  return {
    isAlive: async () => (await report()).missed < maxMissed,
    close: async () => {
      closing.abort();
      cancelNext?.();
      await running;
    },
  };
}

/** What all consoles know of it. */
const Report = Type.Object({
  /** Epoch ms of the last message that came through; 0: none so far. */
  aliveAtMs: Type.Integer({ minimum: 0 }),
  /** Messages since then that did not. */
  missed: Type.Integer({ minimum: 0 }),
});

type Report = Static<typeof Report>;

const parseReport = jsonParserOf(Report);

const reportKey = "canary";

const reportTtlMs = 7 * 24 * 3_600_000;

const nothingKnown: Report = { aliveAtMs: 0, missed: 0 };

const maxMissed = 3;

const scrapeDeadlineMs = 1_000;

/** How long a message may take: with short intervals no longer than one of them. */
function deadlineOf(intervalMs: number): number {
  return Math.min(10_000, intervalMs);
}

function createCanaryMetrics(metrics: Metrics) {
  return {
    seconds: metrics.createHistogram("larkline_canary_seconds"),
    failures: metrics.createCounter("larkline_canary_failures_total"),
    aliveAt: metrics.createObservableGauge("larkline_canary_success_timestamp_seconds"),
  };
}

/** Why a message did not come through. */
class CanaryMissedError extends Error {}

const parseFrame = jsonParserOf(StreamFrame);

/** A run of the canary has a few hundred bytes. */
const maxBytes = 65_536;

async function textOf(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > maxBytes) throw new CanaryMissedError("the answer is no run");
  }
  return text;
}

/** The last frame says how the run has ended. */
function lastFrame(stream: string): StreamFrame | undefined {
  const line = stream.split("\n").findLast((one) => one.startsWith("data:"));
  const frame = line === undefined ? undefined : parseFrame(line.slice("data:".length));
  return frame?.ok === true ? frame.value : undefined;
}

/**
 * Sends the canary's message and waits until its run is over: appended, woken, claimed, committed and
 * streamed. Rejects when it is not done until `signal` aborts; a message that still waits then is taken back
 * by ingress, because its client has left.
 */
async function takeCanaryPath({ url, token }: CanaryTarget, signal: AbortSignal): Promise<void> {
  const response = await fetch(`${url.replace(/\/$/, "")}/chat`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({
      message: canaryMessage,
      session_id: canarySessionId,
      on_disconnect: "cancel",
    }),
    signal,
  });
  const text = await textOf(response);
  if (!response.ok) throw new CanaryMissedError(`ingress answered with status ${response.status}`);
  const frame = lastFrame(text);
  if (frame?.type === "error") throw new CanaryMissedError(`the run failed: ${frame.message}`);
  if (frame?.type !== "done") throw new CanaryMissedError("the run has no end");
}
