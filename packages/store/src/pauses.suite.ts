import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { AuditLog } from "./audit-log.ts";
import type { Pauses } from "./pauses.ts";

export interface PausesHarness {
  /** At most two may be paused. */
  pauses: Pauses;
  /** The same as another process sees them. */
  elsewhere: Pauses;
  audit: AuditLog;
  close(): Promise<void>;
}

/** What Pauses promise. Call it at the top level of a test file. */
export function describePauses(name: string, makeHarness: () => Promise<PausesHarness>): void {
  describe(`${name}: pauses`, () => {
    let harness: PausesHarness;
    let pauses: Pauses;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ pauses } = harness);
    });
    afterEach(async () => await harness.close());

    it("pause once and resume once, with a record of each in the same step", async () => {
      const agent = { what: "agent", name: "sales" } as const;
      expect(await pauses.set(agent, true, "console:Ann")).toBe("done");
      expect(await pauses.set(agent, true, "console:Bo")).toBe("nothing");
      expect(await harness.elsewhere.list()).toMatchObject([{ ...agent, by: "console:Ann" }]);
      expect(await pauses.set(agent, false, 'console:"Bo"')).toBe("done");
      expect(await pauses.set(agent, false, "console:Bo")).toBe("nothing");
      expect(await pauses.list()).toEqual([]);
      const records = [];
      for await (const record of harness.audit.export(0, Number.MAX_SAFE_INTEGER)) {
        records.push(record);
      }
      expect(records).toMatchObject([
        { kind: "agent_paused", agent: "sales", userId: "console:Ann" },
        { kind: "agent_resumed", agent: "sales", userId: 'console:"Bo"' },
      ]);
    });

    it("are bounded in number, and an agent is not the tool of its name", async () => {
      await pauses.set({ what: "agent", name: "deploy" }, true, "console");
      await pauses.set({ what: "tool", name: "deploy" }, true, "console");
      expect(await pauses.set({ what: "tool", name: "pay" }, true, "console")).toBe("full");
      await pauses.set({ what: "agent", name: "deploy" }, false, "console");
      await pauses.refresh();
      expect([pauses.of("agent", "deploy"), pauses.of("tool", "deploy")?.by]).toEqual([
        undefined,
        "console",
      ]);
    });

    it("reach a process that watches, which keeps them until it reads them again", async () => {
      const { elsewhere } = harness;
      const watching = new AbortController();
      await elsewhere.watch(() => void elsewhere.refresh(), watching.signal);
      await pauses.set({ what: "tool", name: "pay" }, true, "console");
      await vi.waitFor(() => expect(elsewhere.of("tool", "pay")).toMatchObject({ by: "console" }), {
        timeout: 60_000,
      });
      watching.abort();
      await pauses.set({ what: "tool", name: "pay" }, false, "console");
      expect(elsewhere.of("tool", "pay")).toBeDefined();
      await elsewhere.refresh();
      expect(elsewhere.of("tool", "pay")).toBeUndefined();
    });
  });
}
