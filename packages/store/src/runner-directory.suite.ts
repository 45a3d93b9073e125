import type { ToolAnnouncement } from "@larkline/protocol/tool";
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
  /** Returns when the clock of the directory has gone on. */
  later(): Promise<void>;
  close(): Promise<void>;
}

const longMs = 3_600_000;
const patience = { timeout: 60_000, interval: 10 };

function tool(name: string, fields: Partial<ToolAnnouncement> = {}): ToolAnnouncement {
  return {
    spec: {
      name,
      description: `${name} 工具`,
      inputSchema: { type: "object", properties: { city: {} } },
    },
    effect: "pure",
    requiresApproval: false,
    timeoutMs: 1_000,
    ...fields,
  };
}

function instanceOf(
  runner: string,
  instance: string,
  ...tools: ToolAnnouncement[]
): RunnerInstance {
  return { runner, instance, tools };
}

/** What every RunnerDirectory promises. Call it at the top level of a test file. */
export function describeRunnerDirectory(
  name: string,
  makeHarness: () => Promise<RunnerDirectoryHarness>,
): void {
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
      const announced = instanceOf(
        "default",
        "i1",
        tool("weather"),
        tool("clock", { effect: "once" }),
      );
      expect(await directory.announce(announced, longMs)).toMatchObject({ ok: true });
      const tools = await elsewhere.tools();
      expect([...tools.keys()].sort()).toEqual(["clock", "weather"]);
      expect(tools.get("clock")).toMatchObject({
        runner: "default",
        announcement: tool("clock", { effect: "once" }),
      });
      const [living, ...others] = await elsewhere.runners();
      const stamps = {
        generation: "",
        beganAtMs: expect.any(Number),
        expiresAtMs: expect.any(Number),
      };
      expect(living).toEqual({ ...announced, ...stamps, isCurrent: true });
      expect(living?.expiresAtMs).toBeGreaterThan(longMs);
      expect(others).toEqual([]);
    });

    it("reads an offer once, however often it is announced", async () => {
      const announced = instanceOf("default", "i1", tool("weather"));
      await directory.announce(announced, longMs);
      const first = (await elsewhere.tools()).get("weather")?.announcement;
      await directory.announce(announced, 2 * longMs);
      expect((await elsewhere.tools()).get("weather")?.announcement).toBe(first);
      await directory.announce(instanceOf("default", "i1", tool("weather"), tool("clock")), longMs);
      expect([...(await elsewhere.tools()).keys()].sort()).toEqual(["clock", "weather"]);
    });

    it("accepts more instances of a runner, also with fewer or more tools", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      const second = instanceOf("default", "i2", tool("weather"), tool("clock"));
      expect(await elsewhere.announce(second, longMs)).toMatchObject({ ok: true });
      expect((await directory.runners()).map(({ instance }) => instance).sort()).toEqual([
        "i1",
        "i2",
      ]);
      expect([...(await directory.tools()).keys()].sort()).toEqual(["clock", "weather"]);
    });

    it.each([
      ["schema", { spec: { name: "weather", description: "", inputSchema: { type: "object" } } }],
      ["effect", { effect: "once" as const }],
      ["approval rule", { requiresApproval: true }],
    ])(
      "refuses a tool announced with another %s by the same generation, and says which",
      async (_what, fields) => {
        await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
        const refused = await elsewhere.announce(
          instanceOf("default", "i2", tool("weather", fields)),
          longMs,
        );
        expect(refused).toMatchObject({
          ok: false,
          tool: "weather",
          conflict: expect.stringContaining("weather"),
        });
        expect(await directory.runners()).toHaveLength(1);
        expect((await directory.tools()).get("weather")?.announcement).toEqual(tool("weather"));
      },
    );

    it("refuses a tool that another runner offers, and says which", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      const refused = await elsewhere.announce(
        instanceOf("other", "i1", tool("clock"), tool("weather")),
        longMs,
      );
      expect(refused).toMatchObject({
        ok: false,
        tool: "weather",
        conflict: expect.stringContaining("weather"),
      });
      expect([...(await directory.tools()).keys()]).toEqual(["weather"]);
    });

    it("a living runner takes over a name that no worker has written down from one that is away", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      await directory.withdraw("default", "i1");
      expect(
        await directory.announce(instanceOf("other", "i1", tool("weather")), longMs),
      ).toMatchObject({ ok: true });
      const taken = {
        runner: "other",
        announcement: tool("weather"),
        livingSinceMs: expect.any(Number) as number,
      };
      expect((await directory.tools()).get("weather")).toEqual(taken);
    });

    it("lets an instance change its own tools", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      const changed = instanceOf(
        "default",
        "i1",
        tool("weather", { effect: "once" }),
        tool("clock"),
      );
      expect(await directory.announce(changed, longMs)).toMatchObject({ ok: true });
      expect(await directory.runners()).toMatchObject([changed]);
    });

    it("forgets an instance that does not renew while others of its runner live", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), harness.ttlMs);
      await directory.announce(instanceOf("default", "i2", tool("clock")), longMs);
      await harness.expire();
      expect([...(await elsewhere.tools()).keys()]).toEqual(["clock"]);
      expect((await elsewhere.runners()).map(({ instance }) => instance)).toEqual(["i2"]);
      expect(await elsewhere.away()).toEqual([]);
    });

    it.each([
      ["that fell silent", async () => await harness.expire()],
      ["that withdrew", async () => void (await directory.withdraw("default", "i1"))],
    ])("keeps offering the tools of a runner %s, and says that it is away", async (_how, go) => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), harness.ttlMs);
      await go();
      expect(await elsewhere.runners()).toEqual([]);
      const offered = (await elsewhere.tools()).get("weather");
      expect(offered).toMatchObject({ runner: "default", announcement: tool("weather") });
      expect(offered?.awayForMs).toBeGreaterThan(500_000);
      expect(offered?.awayForMs).toBeLessThanOrEqual(600_000);
      expect(await elsewhere.away()).toMatchObject([
        { runner: "default", tools: [tool("weather")] },
      ]);
    });

    it("a runner that comes back is no longer away, and lives since then", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      const before = (await elsewhere.tools()).get("weather")?.livingSinceMs ?? Number.NaN;
      await directory.withdraw("default", "i1");
      expect((await elsewhere.tools()).get("weather")?.livingSinceMs).toBeUndefined();
      await harness.later();
      await directory.announce(instanceOf("default", "i2", tool("weather")), longMs);
      expect(await elsewhere.away()).toEqual([]);
      const { livingSinceMs = Number.NaN, ...back } =
        (await elsewhere.tools()).get("weather") ?? {};
      expect(back).toEqual({ runner: "default", announcement: tool("weather") });
      expect(livingSinceMs).toBeGreaterThan(before);
      await harness.later();
      await directory.announce(instanceOf("default", "i3", tool("weather")), longMs);
      expect((await elsewhere.tools()).get("weather")?.livingSinceMs).toBe(livingSinceMs);
    });

    it("forgets a runner that is away when it is asked to, and no living one", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      expect(await elsewhere.forget("default")).toEqual({ forgotten: false, living: 1 });
      await directory.withdraw("default", "i1");
      expect(await elsewhere.forget("default")).toEqual({ forgotten: true, living: 0 });
      expect(await directory.tools()).toEqual(new Map());
      expect(await elsewhere.forget("default")).toEqual({ forgotten: false, living: 0 });
    });

    it("a new generation wins over an old one as soon as it begins, whichever renews last", async () => {
      const older = {
        ...instanceOf("default", "i1", tool("weather"), tool("gone")),
        generation: "a",
      };
      const newer = {
        ...instanceOf("default", "i2", tool("weather", { effect: "once" })),
        generation: "b",
      };
      expect(await directory.announce(older, longMs)).toEqual({ ok: true, isCurrent: true });
      await harness.later();
      expect(await elsewhere.announce(newer, longMs)).toEqual({ ok: true, isCurrent: true });
      expect(await directory.announce(older, longMs)).toEqual({ ok: true, isCurrent: false });
      const tools = await directory.tools();
      expect([...tools.keys()]).toEqual(["weather"]);
      expect(tools.get("weather")?.announcement.effect).toBe("once");
      expect(
        (await directory.runners()).map(({ instance, isCurrent }) => [instance, isCurrent]).sort(),
      ).toEqual([
        ["i1", false],
        ["i2", true],
      ]);
    });

    it("goes back to the old generation when the new one is gone", async () => {
      const older = { ...instanceOf("default", "i1", tool("weather")), generation: "a" };
      const newer = {
        ...instanceOf("default", "i2", tool("weather", { effect: "once" })),
        generation: "b",
      };
      await directory.announce(older, longMs);
      await harness.later();
      await directory.announce(newer, longMs);
      await directory.withdraw("default", "i2");
      expect(await directory.announce(older, longMs)).toEqual({ ok: true, isCurrent: true });
      expect((await directory.tools()).get("weather")?.announcement.effect).toBe("pure");
    });

    it("an instance more of the old generation does not make that one the newest", async () => {
      await directory.announce(
        { ...instanceOf("default", "i1", tool("weather")), generation: "a" },
        longMs,
      );
      await harness.later();
      await directory.announce(
        { ...instanceOf("default", "i2", tool("clock")), generation: "b" },
        longMs,
      );
      await harness.later();
      const more = { ...instanceOf("default", "i3", tool("weather")), generation: "a" };
      expect(await directory.announce(more, longMs)).toEqual({ ok: true, isCurrent: false });
      expect([...(await directory.tools()).keys()]).toEqual(["clock"]);
    });

    it("an expired instance does not stop others", async () => {
      await directory.announce(instanceOf("default", "i1", tool("weather")), harness.ttlMs);
      await harness.expire();
      expect(
        await directory.announce(instanceOf("other", "i1", tool("weather")), longMs),
      ).toMatchObject({ ok: true });
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
      expect([...(await directory.tools()).keys()]).toEqual(["clock", "weather"]);
      expect((await directory.tools()).get("weather")?.awayForMs).toBeGreaterThan(0);
    });

    it("tells watchers of new instances, changed tools and withdrawals", async () => {
      const listener = vi.fn<() => void>();
      await elsewhere.watch(listener, stop.signal);
      listener.mockClear();
      const changes = [
        () => directory.announce(instanceOf("default", "i1", tool("weather")), longMs),
        () =>
          directory.announce(instanceOf("default", "i1", tool("weather"), tool("clock")), longMs),
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
      for (let i = 0; i < 3; i += 1) {
        await directory.announce(instanceOf("default", "i1", tool("weather")), longMs);
      }
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
