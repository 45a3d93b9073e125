import { describe, expect, it } from "vitest";
import { createOutcomeDelivery } from "./outcome-delivery.ts";

const outcome = { ok: true, result: "precious" } as const;
const job = { session: "s", callId: "c", attempt: 1, deadlineMs: 0 };

function deliveryThatFails(times: number) {
  const seen: string[] = [];
  let failuresLeft = times;
  const failing = (): void => {
    failuresLeft -= 1;
    if (failuresLeft >= 0) throw new Error("Redis is away");
  };
  const deliver = createOutcomeDelivery({
    store: {
      deliver: async (session, callId) => {
        failing();
        seen.push(`deliver ${session} ${callId}`);
        return await Promise.resolve({ accepted: true, wakeGen: 3 });
      },
    },
    turns: { wake: async (session, gen) => void seen.push(await Promise.resolve(`wake ${session} ${gen}`)) },
    onRetry: () => void seen.push("retry"),
    runner: "r",
    backoffMs: [1, 1],
  });
  return { deliver, seen };
}

describe("outcome delivery", () => {
  it("keeps a result through an outage and wakes the session after storing it", async () => {
    const { deliver, seen } = deliveryThatFails(2);
    await deliver(job, outcome);
    expect(seen).toEqual(["retry", "retry", "deliver s c", "wake s 3"]);
  });

  it("tries up to the deadline of the call: until then its result is worth something", async () => {
    const { deliver, seen } = deliveryThatFails(20);
    await deliver({ ...job, deadlineMs: Date.now() + 60_000 }, outcome);
    expect(seen.slice(-2)).toEqual(["deliver s c", "wake s 3"]);
  });

  it("rejects when the outage lasts longer than that, so that the job is not taken for done", async () => {
    const { deliver } = deliveryThatFails(3);
    await expect(deliver(job, outcome)).rejects.toThrow("Redis is away");
  });
});
