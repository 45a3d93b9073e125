import { execFileSync } from "node:child_process";
import { load, type Trip } from "./driver.ts";
import { percentile, startSubject, type Subject } from "./measure.ts";

export interface LengthNumbers {
  turns: number;
  /** Webhook sent to model request, and last model byte to reply, p50 ms. */
  beforeMs: number;
  afterMs: number;
  /** Bytes that Redis sent out per turn; 0 without Redis. */
  redisBytes: number;
}

function redisBytesOut(port: number): number {
  const info = execFileSync("redis-cli", ["-p", String(port), "info", "stats"]).toString();
  return Number(/total_net_output_bytes:(\d+)/.exec(info)?.[1] ?? 0);
}

const mostSamples = 30;

/** Lets one chat grow and measures its newest turns when it has reached each of the lengths. */
export async function measureLengths(subject: Subject, lengths: readonly number[]): Promise<LengthNumbers[]> {
  const system = await startSubject(subject);
  try {
    const person = system.person("long");
    const one = { feishu: system.feishu, appId: system.appId, person: () => person };
    const run = async (messages: number): Promise<Trip[]> =>
      (await load({ system: one, inFlight: 1, messages, perChat: Number.MAX_SAFE_INTEGER, text: (key) => key })).trips;
    const numbers: LengthNumbers[] = [];
    let done = 0;
    for (const turns of lengths) {
      const sample = Math.min(mostSamples, Math.floor(turns / 2));
      await run(Math.max(1, turns - done - sample));
      const before = redisBytesOut(system.redis.port);
      const trips = await run(sample);
      const bytes = redisBytesOut(system.redis.port) - before;
      done = turns;
      numbers.push({
        turns,
        beforeMs: percentile(
          trips.map(({ sentMs, modelMs: [first] }) => (first?.in ?? 0) - sentMs),
          0.5,
        ),
        afterMs: percentile(
          trips.map(({ repliedMs, modelMs: [first] }) => repliedMs - (first?.out ?? 0)),
          0.5,
        ),
        redisBytes: subject.options.workers === 0 ? 0 : bytes / sample,
      });
    }
    return numbers;
  } finally {
    await system.close();
  }
}
