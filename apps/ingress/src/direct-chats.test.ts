import { describe, expect, it } from "vitest";
import { replacing } from "./backend.fixture.ts";
import { DirectChats } from "./bot.ts";
import { createTestServices } from "./ingress.fixture.ts";
import { testMemory } from "./redis.fixture.ts";

const dayMs = 24 * 3_600_000;

function world() {
  let nowMs = 1_800_000_000_000;
  const written: string[] = [];
  const shared = testMemory();
  const lookups = replacing(shared.lookups, {
    set: async (key: string, value: string, ttlMs: number) => {
      written.push(value);
      await shared.lookups.set(key, value, ttlMs);
    },
  });
  const services = createTestServices({ ...shared, lookups });
  const chats = new DirectChats(
    { ...services, clock: { ...services.clock, now: () => nowMs } },
    "cli_app",
  );
  return { chats, written, forward: (ms: number) => void (nowMs += ms) };
}

describe("direct chats", () => {
  it("are remembered by person", async () => {
    const { chats } = world();
    await chats.remember("ou_ann", "oc_1");
    await chats.remember("ou_bob", "oc_2");
    expect(await chats.of("ou_ann")).toBe("oc_1");
    expect(await chats.of("ou_bob")).toBe("oc_2");
    expect(await chats.of("ou_eve")).toBeUndefined();
  });

  it("are stored once a day, however many messages name them, and at once when they change", async () => {
    const { chats, written, forward } = world();
    for (let message = 0; message < 3; message += 1) await chats.remember("ou_ann", "oc_1");
    expect(written).toEqual(["oc_1"]);
    await chats.remember("ou_ann", "oc_9");
    expect(written).toEqual(["oc_1", "oc_9"]);
    forward(dayMs);
    await chats.remember("ou_ann", "oc_9");
    expect(written).toEqual(["oc_1", "oc_9", "oc_9"]);
  });
});
