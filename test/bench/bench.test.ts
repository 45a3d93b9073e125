import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { medianBetween } from "./allocation.ts";
import {
  checkpointBytes,
  larkline,
  measureTurns,
  naiveBullmq,
  processNames,
  rawLoop,
  startSubject,
} from "./measure.ts";
import { measureTogether, togetherTable } from "./together.ts";
import { BenchVendors } from "./vendors.ts";

describe("a median of ratios", () => {
  it("is proved by six values at least, and lies between values that a coin would not pass", () => {
    expect(medianBetween([5, 1, 3, 2, 4])).toEqual({ median: 3, low: 0, high: Infinity });
    const nine = [9, 1, 8, 2, 7, 3, 6, 4, 5];
    expect(medianBetween(nine)).toEqual({ median: 5, low: 2, high: 8 });
    expect(medianBetween(nine.slice(0, 6))).toMatchObject({ low: 1, high: 9 });
  });
});

// What the bench shows is true only while its small servers and its sender are understood by what they measure.
describe("the bench", () => {
  let vendors: BenchVendors;
  beforeAll(async () => {
    vendors = await BenchVendors.start();
  });
  afterAll(async () => {
    await vendors.close();
  });

  it.each([
    { subject: rawLoop, processes: ["ingress"], redis: false },
    { subject: naiveBullmq, processes: processNames, redis: true },
    { subject: larkline, processes: processNames, redis: true },
  ])(
    "sends messages to $subject.name and follows them to the reply",
    async ({ subject, processes, redis }) => {
      const running = await startSubject(vendors, subject);
      try {
        const { trips } = await running.load({ inFlight: 4, messages: 12, perChat: 3 });
        expect(trips).toHaveLength(12);
        for (const { sentMs, ackedMs, modelMs, repliedMs, requestBytes } of trips) {
          expect(ackedMs).toBeGreaterThan(sentMs);
          const [first, second] = modelMs;
          const inOrder = [sentMs, first?.in, first?.out, second?.in, second?.out, repliedMs];
          expect(inOrder.toSorted((left, right) => Number(left) - Number(right))).toEqual(inOrder);
          expect(requestBytes).toBeGreaterThan(200);
        }
        const withoutTool = await running.load({
          inFlight: 1,
          messages: 1,
          perChat: 1,
          before: "nothing",
        });
        // Two requests for each turn with a tool, and one for the one without.
        expect(trips.map(({ modelMs }) => modelMs.length)).toEqual(trips.map(() => 2));
        expect(withoutTool.trips.map(({ modelMs }) => modelMs.length)).toEqual([1]);

        const numbers = await measureTurns(running, { inFlight: 4, messages: 100, perChat: 5 });
        expect(processNames.filter((name) => name !== "Redis" && numbers.cpuMs[name] > 0)).toEqual(
          processes.filter((name) => name !== "Redis"),
        );
        expect(numbers.harnessMs).toBeGreaterThan(0);
        expect(numbers.redisScripts >= 5).toBe(redis);
        expect(numbers.redisCommands > 20).toBe(redis);
        expect((await checkpointBytes(running, "tool")) > 0).toBe(subject === larkline);
        expect(await checkpointBytes(running, "nothing")).toBe(0);
      } finally {
        await running.close();
      }
    },
  );

  it("AT-28: measures hand-overs, helpers, teams, memory and followers, each beside its base in the same run", async () => {
    const numbers = await measureTogether(vendors, { turns: 10, warm: 20, finds: 20, events: 20 });
    const {
      handOver,
      toolCall,
      recall,
      firstRecall,
      ping,
      recallScripts,
      memoryBytes,
      textBytes,
      follows,
    } = numbers;
    const { helperBegin, helperEnd, perSecond, sizes } = numbers;
    for (const { p50 } of [
      handOver,
      toolCall,
      helperBegin,
      helperEnd,
      recall,
      firstRecall,
      ping,
      ...follows.map(({ ms }) => ms),
    ]) {
      expect(p50).toBeGreaterThan(0);
    }
    expect({
      recallScripts,
      textBytes,
      followers: follows.map(({ followers }) => followers),
    }).toEqual({
      recallScripts: 1,
      textBytes: 200,
      followers: [1, 100],
    });
    expect(memoryBytes).toBeLessThan(1_024);
    expect(Math.min(perSecond.tool, perSecond.helper)).toBeGreaterThan(0);
    const { checkpoint, child, root } = sizes;
    expect(Math.max(checkpoint.helpers, checkpoint.team)).toBeLessThan(64 * 1_024);
    expect(checkpoint.helpers).toBeGreaterThan(checkpoint.tool);
    expect(Math.min(checkpoint.tool, checkpoint.team, root.rest)).toBeGreaterThan(0);
    expect(child.rest).toBeLessThan(6 * 1_024);
    expect(togetherTable(numbers).split("\n")).toHaveLength(14);
  });

  it("tells when an answer is not the model's", async () => {
    const { promise, resolve } = Promise.withResolvers<Error | undefined>();
    const times = { sentMs: 0, ackedMs: 0, tries: 0, modelMs: [], repliedMs: 0 };
    vendors.follow({ messageId: "om_wrong", ...times, requestBytes: 0, ended: resolve });
    const body = JSON.stringify({
      msg_type: "text",
      content: JSON.stringify({ text: "Something went wrong." }),
    });
    await fetch(`${vendors.url}/open-apis/im/v1/messages/om_wrong/reply`, { method: "POST", body });
    expect(await promise).toBeInstanceOf(Error);
  });
});
