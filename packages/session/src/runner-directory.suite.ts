import type { ToolAnnouncement } from "@larkline/protocol";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { RunnerDirectory, RunnerInstance } from "./runner-directory.ts";

/** A directory under test with storage of its own. */
export interface RunnerDirectoryHarness {
  directory: RunnerDirectory;
  /** The same directory as another process sees it. */
  elsewhere: RunnerDirectory;
  /** A time to live that `expire` can wait for, ms. */
  ttlMs: number;
  /** Returns when announcements for `ttlMs` have run out. */
  expire(): Promise<void>;
  close(): Promise<void>;
}

const longMs = 3_600_000;
const patience = { timeout: 10_000, interval: 10 };

function tool(name: string, fields: Partial<ToolAnnouncement> = {}): ToolAnnouncement {
  return {
    spec: { name, description: `${name} 工具`, inputSchema: { type: "object", properties: { city: {} } } },
    effect: "pure",
    requiresApproval: false,
    timeoutMs: 1_000,
    ...fields,
  };
}

function instanceOf(runner: string, instance: string, ...tools: ToolAnnouncement[]): RunnerInstance {
  return { runner, instance, tools };
}

/** What every RunnerDirectory promises. Call it at the top level of a test file. */
export function describeRunnerDirectory(name: string, makeHarness: () => Promise<RunnerDirectoryHarness>): void {
  describe(`${name}: runner directory`, () => {
    let harness: RunnerDirectoryHarness;
    let directory: RunnerDirectory;
    let elsewhere: RunnerDirectory;
    let stop: AbortController;

    beforeEach(async () => {
      harness = await makeHarness();
      ({ directory, elsewhere } = harness);
      stop = new AbortController();
    });
    afterEach(async () => {
      stop.abort();
      await harness.close();
    });

    it("knows nothing at first", async () => {
      expect(await directory.tools()).toEqual(new Map());
      expect(await directory.runners()).toEqual([]);
    });

    it("shows announced tools to every process", async () => {
      const announced = instanceOf("default", "i1", tool("weather"), tool("clock", { effect: "once" }));
      expect(await directory.announce(announced, longMs)).toEqual({ ok: true });
      const tools = await elsewhere.tools();
      expect([...tools.keys()].sort()).toEqual(["clock", "weather"]);
      expect(tools.get("clock")).toEqual({ runner: "default", announcement: tool("clock", { effect: "once" }) });
      const [living, ...others] = await elsewhere.runners();
      expect(living).toEqual({ ...announced, expiresAtMs: expect.any(Number) });
      expect(living?.expiresAtMs).toBeGreaterThan(longMs);
      expect(others).toEqual([]);
    });

    it("accepts more instances of a runner, also with fewer or more tools", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      const second = instanceOf("default", "i2", tool("weather"), tool("clock"));
      expect(await elsewhere.announce(second, longMs)).toEqual({ ok: true });
      expect((await directory.runners()).map(({ instance }) => instance).sort()).toEqual(["i1", "i2"]);
      expect([...(await directory.tools()).keys()].sort()).toEqual(["clock", "weather"]);
    });

    it.each([
      ["schema", { spec: { name: "weather", description: "", inputSchema: { type: "object" } } }],
      ["effect", { effect: "once" as const }],
      ["approval rule", { requiresApproval: true }],
    ])("refuses a tool announced with another %s, and says which", async (_what, fields) => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      const refused = await elsewhere.announce(instanceOf("default", "i2", tool("weather", fields)), longMs);
      expect(refused).toMatchObject({ ok: false, tool: "weather", conflict: expect.stringContaining("weather") });
      expect(await directory.runners()).toHaveLength(1);
      expect((await directory.tools()).get("weather")?.announcement).toEqual(tool("weather"));
    });

    it("refuses a tool that another runner offers, and says which", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      const refused = await elsewhere.announce(instanceOf("other", "i1", tool("clock"), tool("weather")), longMs);
      expect(refused).toMatchObject({ ok: false, tool: "weather", conflict: expect.stringContaining("weather") });
      expect([...(await directory.tools()).keys()]).toEqual(["weather"]);
    });

    it("accepts a conflicting tool once the other instance is gone", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      await directory.withdraw("default", "i1");
      expect(await directory.announce(instanceOf("other", "i1", tool("weather")), longMs)).toEqual({ ok: true });
      expect((await directory.tools()).get("weather")?.runner).toBe("other");
    });

    it("lets an instance change its own tools", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      const changed = instanceOf("default", "i1", tool("weather", { effect: "once" }), tool("clock"));
      expect(await directory.announce(changed, longMs)).toEqual({ ok: true });
      expect(await directory.runners()).toMatchObject([changed]);
    });

    it("forgets an instance that does not renew", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), harness.ttlMs);
      await directory.announce(instanceOf("default", "i2", tool("clock")), longMs);
      await harness.expire();
      expect([...(await elsewhere.tools()).keys()]).toEqual(["clock"]);
      expect((await elsewhere.runners()).map(({ instance }) => instance)).toEqual(["i2"]);
    });

    it("an instance that ran out is in nobody's way", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), harness.ttlMs);
      await harness.expire();
      expect(await directory.announce(instanceOf("other", "i1", tool("weather")), longMs)).toEqual({ ok: true });
    });

    it("a renewal keeps an instance alive", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), harness.ttlMs);
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      await harness.expire();
      expect([...(await directory.tools()).keys()]).toEqual(["weather"]);
    });

    it("a withdrawal tells whether it was the runner's last instance", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      await directory.announce(instanceOf("default", "i2", tool("weather")), longMs);
      await directory.announce(instanceOf("other", "i1", tool("clock")), longMs);
      expect(await elsewhere.withdraw("default", "i1")).toEqual({ last: false });
      expect([...(await directory.tools()).keys()].sort()).toEqual(["clock", "weather"]);
      expect(await elsewhere.withdraw("default", "i2")).toEqual({ last: true });
      expect([...(await directory.tools()).keys()]).toEqual(["clock"]);
    });

    it("tells watchers of new instances, changed tools and withdrawals", async () => {
      const listener = vi.fn<() => void>();
      await elsewhere.watch(listener, stop.signal);
      listener.mockClear();
      const changes = [
        () => directory.announce(instanceOf("default", "i1", tool("weather")), longMs),
        () => directory.announce(instanceOf("default", "i1", tool("weather"), tool("clock")), longMs),
        () => directory.announce(instanceOf("default", "i2", tool("weather")), longMs),
        () => directory.withdraw("default", "i1"),
      ];
      for (const [i, change] of changes.entries()) {
        await change();
        await vi.waitFor(() => expect(listener).toHaveBeenCalledTimes(i + 1), patience);
      }
    });

    it("does not trouble watchers with renewals, nor after they stopped", async () => {
      const stopped = vi.fn<() => void>();
      const listener = vi.fn<() => void>();
      const gone = new AbortController();
      await elsewhere.watch(stopped, gone.signal);
      await elsewhere.watch(listener, stop.signal);
      stopped.mockClear();
      listener.mockClear();
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      await vi.waitFor(() => expect(listener).toHaveBeenCalledTimes(1), patience);
      await vi.waitFor(() => expect(stopped).toHaveBeenCalledTimes(1), patience);
      gone.abort();
      for (let i = 0; i < 3; i += 1) await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      await directory.withdraw("default", "i1");
      await vi.waitFor(() => expect(listener).toHaveBeenCalledTimes(2), patience);
      expect(stopped).toHaveBeenCalledTimes(1);
    });

    it("holds copies", async () => {
      const announced = instanceOf("default", "i1", tool("weather"));
      await directory.announce(announced, longMs);
      announced.tools.pop();
      (await directory.runners())[0]?.tools.pop();
      expect([...(await directory.tools()).keys()]).toEqual(["weather"]);
    });
  });
}
