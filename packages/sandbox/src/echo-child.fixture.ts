import { execFileSync, spawn } from "node:child_process";
import { writeSync } from "node:fs";
import { env } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { serveCalls, type CallContext } from "./child-host.ts";

let calls = 0;
const kept: Uint8Array[] = [];

/** What the tests ask a child to do, by name. */
const deeds: Record<string, (value: unknown, context: CallContext) => unknown> = {
  echo: (value) => value,
  facts: () => ({ pid: process.pid, calls, environment: env }),
  throw: () => {
    throw new Error("no such city");
  },
  notJson: () => 1n,
  exit: () => process.exit(7),
  abort: () => process.abort(),
  loop: () => {
    for (;;);
  },
  wait: async (_, { signal }) => await delay(60_000, undefined, { signal }),
  ignoreCancel: async () => await delay(60_000),
  blockInProgram: () => execFileSync("/bin/sleep", ["3600"]),
  startAndWait: async (_, { emit }) => {
    emit(spawn("/bin/sleep", ["3600"], { stdio: "ignore" }).pid);
    await delay(60_000);
  },
  heap: () => {
    const all: unknown[] = [];
    for (;;) all.push({ a: 1, b: [1, 2, 3] });
  },
  // Takes far more than it may have, but not all there is, and waits for its end: its parent may look late.
  buffers: async () => {
    while (kept.length < 32) {
      kept.push(new Uint8Array(16 << 20).fill(1));
      await delay(5);
    }
    await delay(60_000);
  },
  garbage: () => writeSync(3, "not a frame at all"),
  strangeFrame: () => writeSync(3, Buffer.from("\u0002\0\0\0{}")),
  events: (value, { emit }) => {
    for (let i = 0; i < Number(value); i += 1) emit({ i });
    return "done";
  },
  ask: async (value, { request }) => ({ answered: await request(value) }),
  lateEvent: (_, { emit }) => {
    setTimeout(() => emit("late"), 20);
    return null;
  },
  waitAWhile: async () => await delay(50),
  log: () => {
    process.stdout.write("one\ntwo\n");
    process.stderr.write("three 城\n");
    return null;
  },
};

serveCalls(async (body, context) => {
  calls += 1;
  const { deed, value } = body as { deed: string; value?: unknown }; // the tests write it
  return await deeds[deed]?.(value, context);
});
