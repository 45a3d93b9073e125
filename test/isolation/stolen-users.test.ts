import { expect, it } from "vitest";
import { attackWithStolenUsers } from "./stolen-users.ts";

it(
  "the Redis users of a runner, the console and ingress forge nothing that a worker believes",
  { timeout: 60_000 },
  async () => {
    const stolen = await attackWithStolenUsers();
    expect(stolen.map(({ user }) => user)).toEqual(["runner-recording", "console", "ingress"]);
    for (const { forged, tried } of stolen) {
      expect(tried).toBeGreaterThan(15);
      expect(forged).toEqual([]);
    }
  },
);
