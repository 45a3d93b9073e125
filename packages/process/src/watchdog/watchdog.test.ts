import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { Presence } from "@larkline/store/operations";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { StallNotes } from "@larkline/store/stall-notes";
import { expect, inject, it } from "vitest";

const file = fileURLToPath(new URL("./stalled-process.fixture.ts", import.meta.url));

it("a process whose event loop stands still ends, and says what it worked on", async () => {
  const child = spawn(process.execPath, [file], { stdio: ["ignore", "pipe", "inherit"] });
  const [output, [code, signal]] = await Promise.all([text(child.stdout), once(child, "exit")]);
  expect([code, signal]).toEqual([null, "SIGKILL"]);
  expect(JSON.parse(output)).toMatchObject({
    level: "error",
    service: "stalled",
    pid: child.pid,
    atWork: "cli_x.oc_y-7",
    msg: "the event loop stood still for 1 s: this process ends",
  });
});

it("a worker whose event loop stands still counts as alive until it has ended, with a note of why", async () => {
  const redisUrl = inject("redisUrl");
  const [namespace, id] = [`test-${randomUUID()}`, "worker"];
  const redis = connectRedis(redisUrl);
  try {
    // It has never beaten itself.
    const child = spawn(process.execPath, [file, redisUrl, namespace, id], { stdio: "ignore" });
    await once(child, "exit");
    expect(await new Presence({ redis, namespace }).fateOf(id)).toBe("alive");
    expect(await new StallNotes({ redis, namespace }).read(id)).toBe(
      "the event loop stood still for 1 s",
    );
  } finally {
    await closeRedis(redis);
  }
});
