import { describe, expect, it } from "vitest";
import { createMemorySessionStore } from "./memory-stores.ts";
import { describeSessionStore, type SessionStoreDemands, type SessionStoreHarness } from "./session-store.suite.ts";
import { approvalIdOf, approvalOf, decisionOf } from "./suite-samples.ts";

async function makeHarness({ maxWaiting, maxApprovals }: SessionStoreDemands): Promise<SessionStoreHarness> {
  let nowMs = 1_700_000_000_000;
  const dedupTtlMs = 24 * 60 * 60 * 1_000;
  const stores = createMemorySessionStore({
    now: () => nowMs,
    limits: { ...(maxWaiting !== undefined && { maxWaiting }) },
    dedupTtlMs,
    ...(maxApprovals !== undefined && { maxApprovals }),
  });
  return {
    ...stores,
    elsewhere: stores,
    leaseMs: 30_000,
    cardsLeaseMs: 15_000,
    dedupTtlMs,
    now: () => nowMs,
    async advance(ms) {
      nowMs += ms;
    },
    async close() {},
  };
}

describeSessionStore("memory", makeHarness, 300);

describe("memory", () => {
  it("forgets an approval a week after its expiry, and none that is pending", async () => {
    let nowMs = 1_700_000_000_000;
    const { approvals } = createMemorySessionStore({ now: () => nowMs });
    const expiresAtMs = nowMs + 1_000;
    for (const number of [1, 2]) {
      await approvals.add(approvalOf("cli_app.oc_chat", number, { kind: "rule", expiresAtMs }));
    }
    await approvals.decide("cli_app.oc_chat", approvalIdOf(1), decisionOf("approve"));
    nowMs = expiresAtMs + 7 * 86_400_000 - 1;
    expect(await approvals.find("cli_app", approvalIdOf(1))).toMatchObject({ state: "approved" });
    nowMs += 1;
    expect(await approvals.find("cli_app", approvalIdOf(1))).toBeUndefined();
    expect(await approvals.settle("cli_app.oc_chat", approvalIdOf(2), "expired")).toMatchObject({ result: "settled" });
  });
});
