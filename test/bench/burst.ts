import { setTimeout as delay } from "node:timers/promises";
import { freshChat, talk, webhookOf, type Talk } from "./driver.ts";
import {
  median,
  partsOfTrip,
  spread,
  startSubject,
  warmUp,
  type Running,
  type Spread,
  type Subject,
} from "./measure.ts";
import type { BenchVendors } from "./vendors.ts";

/** What becomes of messages that come faster than they can be answered. */
export interface BurstNumbers {
  name: string;
  sent: number;
  /** Really handed to the network, messages a second. */
  perSecond: number;
  /** From the first request to the acknowledgement; the platform waits 3 s and repeats. */
  ackMs: Spread;
  /** The same for the first burst of new processes. */
  coldAckMs: Spread;
  /** Not acknowledged at the first try, cold and warm. */
  repeated: { cold: number; warm: number };
  /** From the first message to the last answer. */
  answeredSeconds: number;
  lost: number;
}

export interface BurstOptions {
  perSecond: number;
  seconds: number;
  /** Chats that the messages are spread over. */
  chats: number;
  /** Bursts of warm processes; medians are shown. */
  rounds: number;
  /** Turns of each subject between its first burst and the others. */
  warm: number;
}

const tickMs = 5;
/** How long the last answer may take. */
const patienceMs = 180_000;

interface Burst {
  perSecond: number;
  ackMs: Spread;
  repeated: number;
  answeredSeconds: number;
  lost: number;
}

/** Sends messages at a fixed rate, whatever becomes of those before them. */
async function burst(
  vendors: BenchVendors,
  { sender, recipient }: Running,
  { perSecond, seconds, chats }: BurstOptions,
): Promise<Burst> {
  const total = perSecond * seconds;
  const people = Array.from({ length: chats }, freshChat);
  const webhooks = Array.from({ length: total }, (_, index) =>
    webhookOf(recipient, people[index % chats] ?? freshChat(), "nothing"),
  );
  const talks: Talk[] = [];
  const startMs = performance.now();
  while (talks.length < total) {
    const due = Math.floor(((performance.now() - startMs) / 1_000) * perSecond);
    for (const webhook of webhooks.slice(talks.length, due)) {
      talks.push(talk(vendors, sender, webhook));
    }
    await delay(tickMs);
  }
  const sentMs = performance.now() - startMs;
  const all = Promise.all(talks.flatMap(({ acknowledged, replied }) => [acknowledged, replied]));
  await Promise.race([all, delay(patienceMs, undefined, { ref: false })]);
  const trips = talks.map(({ trip }) => trip);
  const answered = trips.filter(({ repliedMs }) => repliedMs > 0);
  for (const trip of trips) vendors.forget(trip);
  return {
    perSecond: (total * 1_000) / sentMs,
    ackMs: spread(trips.filter(({ ackedMs }) => ackedMs > 0).map(partsOfTrip.ack)),
    repeated: trips.filter(({ tries }) => tries > 1).length,
    answeredSeconds:
      (answered.reduce((last, { repliedMs }) => Math.max(last, repliedMs), startMs) - startMs) /
      1_000,
    lost: total - answered.length,
  };
}

/** The first burst of new processes, then bursts of warm ones, in which the subjects take turns. */
export async function measureBursts(
  vendors: BenchVendors,
  subjects: readonly Subject[],
  options: BurstOptions,
): Promise<BurstNumbers[]> {
  const each: { running: Running; cold: Burst; warm: Burst[] }[] = [];
  try {
    for (const subject of subjects) {
      const running = await startSubject(vendors, subject);
      each.push({ running, cold: await burst(vendors, running, options), warm: [] });
      await warmUp(running, options.warm);
    }
    for (let round = 0; round < options.rounds; round += 1) {
      for (const { running, warm } of each) warm.push(await burst(vendors, running, options));
    }
    return each.map(({ running, cold, warm }) => ({
      name: running.name,
      sent: options.perSecond * options.seconds,
      perSecond: median(warm.map(({ perSecond }) => perSecond)),
      ackMs: {
        p50: median(warm.map(({ ackMs }) => ackMs.p50)),
        p99: median(warm.map(({ ackMs }) => ackMs.p99)),
      },
      coldAckMs: cold.ackMs,
      repeated: { cold: cold.repeated, warm: median(warm.map((one) => one.repeated)) },
      answeredSeconds: median(warm.map(({ answeredSeconds }) => answeredSeconds)),
      lost: [cold, ...warm].reduce((lost, one) => lost + one.lost, 0),
    }));
  } finally {
    for (const { running } of each) await running.close();
  }
}
