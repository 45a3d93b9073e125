import { afterEach, beforeEach, describe, expect, inject, it } from "vitest";
import type { ToolAnnouncement } from "@larkline/protocol/tool";
import type { RunnerInstance } from "@larkline/store/runners";
import { AnnouncementRefusedError, startAnnouncement } from "./runner.ts";
import { createTestBed, until } from "./test-bed.fixture.ts";

let bed: ReturnType<typeof createTestBed>;
beforeEach(() => {
  bed = createTestBed(inject("redisUrl"));
});
afterEach(async () => {
  await bed.close();
});

function toolNamed(name: string): ToolAnnouncement {
  const spec = { name, description: "d", inputSchema: { type: "object" } };
  return { spec, effect: "pure", requiresApproval: false, timeoutMs: 1_000 };
}

function instanceOf(runner: string, instance: string): RunnerInstance {
  return { runner, instance, tools: [toolNamed("tool")] };
}

const onCurrent = (): void => undefined;

describe("an announcement", () => {
  it("tells when a newer generation takes over, and when that is gone", async () => {
    const { directory } = bed;
    const told: boolean[] = [];
    const announcement = await startAnnouncement({
      directory,
      instance: { runner: "a", instance: "1", generation: "old" },
      tools: () => [toolNamed("tool")],
      intervalMs: 20,
      onError: () => {},
      onCurrent: (isCurrent) => void told.push(isCurrent),
      onRefused: () => {},
    });
    // The generation whose instance began later, by the store's clock, wins: begin until it is later.
    const newer: RunnerInstance = { ...instanceOf("a", "2"), generation: "new" };
    await until("the newer one leads", async () => {
      const { isCurrent } = { isCurrent: false, ...(await directory.announce(newer, 60_000)) };
      if (!isCurrent) await directory.announce({ ...newer, generation: "" }, 60_000);
      return isCurrent ? true : undefined;
    });
    await until("it was told", () => (told.length > 0 ? true : undefined));
    expect(told).toEqual([false]);
    await directory.withdraw("a", "2");
    await until("it was told again", () => (told.length > 1 ? true : undefined));
    expect(told).toEqual([false, true]);
    await announcement.withdraw();
  });

  it("outlives its time to live by renewal, and ends with the withdrawal", async () => {
    const { directory } = bed;
    const instance = instanceOf("a", "1");
    const refused: string[] = [];
    const onRefused = (conflict: string): unknown => refused.push(conflict);
    let renewals = 0;
    const counting = {
      announce: async (given: RunnerInstance, ttlMs: number) => {
        renewals += 1;
        return await directory.announce(given, ttlMs);
      },
      withdraw: directory.withdraw.bind(directory),
    };
    const announcement = await startAnnouncement({
      directory: counting,
      instance,
      tools: () => instance.tools,
      intervalMs: 50,
      ttlMs: 500,
      onError: () => {},
      onCurrent,
      onRefused,
    });
    await until("many renewals", () => (renewals > 15 ? true : undefined));
    expect((await directory.tools()).get("tool")?.runner).toBe("a");
    expect(await announcement.withdraw()).toEqual({ last: true });
    expect(await announcement.withdraw()).toEqual({ last: true });
    expect(await directory.runners()).toEqual([]);
    expect(refused).toEqual([]);
  });

  it("reports when another runner took the name while this one was silent", async () => {
    const { directory } = bed;
    const refused = Promise.withResolvers<string>();
    const tools = () => [toolNamed("tool")];
    const options = {
      directory,
      tools,
      intervalMs: 20,
      ttlMs: 60_000,
      onError: () => {},
      onCurrent,
      onRefused: refused.resolve,
    };
    const first = await startAnnouncement({ ...options, instance: instanceOf("a", "1") });
    await expect(startAnnouncement({ ...options, instance: instanceOf("b", "2") })).rejects.toThrow(
      AnnouncementRefusedError,
    );
    // As if `a` had been stalled past its time to live: it is gone, and `b` announces.
    await until("the takeover", async () => {
      await directory.withdraw("a", "1");
      return (await directory.announce(instanceOf("b", "2"), 60_000)).ok ? true : undefined;
    });
    expect(await refused.promise).toContain("a tool named 'tool' belongs to runner 'b'");
    await first.withdraw();
  });

  it("tells at once when the tools are others now, also while a renewal is on its way", async () => {
    const { directory } = bed;
    let names = ["one"];
    const announcement = await startAnnouncement({
      directory,
      instance: { runner: "a", instance: "1" },
      tools: () => names.map(toolNamed),
      intervalMs: 60_000,
      onError: () => {},
      onCurrent,
      onRefused: () => {},
    });
    names = ["one", "two"];
    announcement.changed();
    names = ["two", "three"];
    announcement.changed();
    await until("the last list", async () => {
      const tools = await directory.tools();
      return tools.has("three") && !tools.has("one") ? true : undefined;
    });
    await announcement.withdraw();
    announcement.changed();
    expect(await directory.runners()).toEqual([]);
  });

  it("names the tool because of which it is refused", async () => {
    const { directory } = bed;
    await directory.announce({ runner: "b", instance: "2", tools: [toolNamed("shared")] }, 60_000);
    let names = ["own"];
    const refused = Promise.withResolvers<string>();
    const announcement = await startAnnouncement({
      directory,
      instance: { runner: "a", instance: "1" },
      tools: () => names.map(toolNamed),
      onError: () => {},
      onCurrent,
      onRefused: (_conflict, tool) => refused.resolve(tool),
    });
    names = ["own", "shared"];
    announcement.changed();
    expect(await refused.promise).toBe("shared");
    await announcement.withdraw();
  });
});
