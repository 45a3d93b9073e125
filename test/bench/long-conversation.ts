import { freshChat, type Chat } from "./driver.ts";
import {
  median,
  partsOfTrip,
  redisUse,
  startSubject,
  warmUp,
  type Running,
  type Subject,
} from "./measure.ts";
import type { BenchVendors, Trip } from "./vendors.ts";

/** The parts of a turn with one tool call, p50 ms. */
export interface TurnParts {
  before: number;
  tool: number;
  after: number;
}

/** One subject with a chat of this many turns, and with fresh chats in the same minute. */
export interface LengthNumbers {
  name: string;
  turns: number;
  long: TurnParts;
  fresh: TurnParts;
  /** Bytes of the model requests of the long chats, the larger of the turn's two; p50. */
  requestBytes: number;
  /** Bytes that Redis sent out per turn of the long chats; 0 without Redis. */
  redisBytes: number;
}

const samples = 100;
/** Turns that are measured before the other kind of chat has its turn. */
const slice = 5;
const growAtOnce = 8;

/** Lets chats grow to the length; more than one where few turns would already change the length. */
async function grown(running: Running, turns: number): Promise<Chat[]> {
  const perChat = Math.max(slice, Math.floor(turns / 10));
  const chats = Array.from({ length: Math.ceil(samples / perChat) }, freshChat);
  const waiting = [...chats];
  const lane = async (): Promise<void> => {
    for (let chat = waiting.pop(); chat !== undefined; chat = waiting.pop()) {
      for (let left = turns; left > 0; left -= 100) {
        await running.load({
          inFlight: 1,
          messages: Math.min(left, 100),
          perChat: 100,
          before: "nothing",
          nextChat: () => chat,
        });
      }
    }
  };
  await Promise.all(Array.from({ length: growAtOnce }, lane));
  return chats;
}

interface Samples {
  running: Running;
  chats: Chat[];
  long: Trip[];
  fresh: Trip[];
  redisBytes: number;
}

async function takeSlice({ running, chats, long, fresh, ...rest }: Samples): Promise<Samples> {
  const chat = chats[Math.floor((long.length * chats.length) / samples)];
  if (chat === undefined) throw new Error("no chat is left");
  const work = { inFlight: 1, messages: slice, perChat: slice };
  const before = redisUse(running.system).bytesOut;
  const { trips } = await running.load({ ...work, nextChat: () => chat });
  const redisBytes = rest.redisBytes + redisUse(running.system).bytesOut - before;
  const control = await running.load({ ...work, perChat: 1 });
  return {
    running,
    chats,
    long: [...long, ...trips],
    fresh: [...fresh, ...control.trips],
    redisBytes,
  };
}

function partsOf(trips: readonly Trip[]): TurnParts {
  const p50 = (of: (trip: Trip) => number): number => median(trips.map(of));
  return {
    before: p50(partsOfTrip.before),
    tool: p50(partsOfTrip.tool),
    after: p50(partsOfTrip.after),
  };
}

/** Measures turns of chats of these lengths in warm processes; subjects, long and fresh chats take turns. */
export async function measureLengths(
  vendors: BenchVendors,
  subjects: readonly Subject[],
  { lengths, warm }: { lengths: readonly number[]; warm: number },
): Promise<LengthNumbers[]> {
  const all: Running[] = [];
  try {
    for (const subject of subjects) {
      const running = await startSubject(vendors, subject);
      all.push(running);
      await warmUp(running, warm);
    }
    const numbers: LengthNumbers[] = [];
    for (const turns of lengths) {
      let each: Samples[] = [];
      for (const running of all) {
        each.push({
          running,
          chats: await grown(running, turns),
          long: [],
          fresh: [],
          redisBytes: 0,
        });
      }
      for (let taken = 0; taken < samples; taken += slice) {
        const next: Samples[] = [];
        for (const one of each) next.push(await takeSlice(one));
        each = next;
      }
      for (const { running, long, fresh, redisBytes } of each) {
        numbers.push({
          name: running.name,
          turns,
          long: partsOf(long),
          fresh: partsOf(fresh),
          requestBytes: median(long.map((trip) => trip.requestBytes)),
          redisBytes: running.system.workers.length === 0 ? 0 : redisBytes / long.length,
        });
      }
    }
    return numbers;
  } finally {
    for (const running of all) await running.close();
  }
}
