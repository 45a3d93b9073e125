import { expect, it } from "vitest";
import type { GuestReport } from "./guest.ts";
import { verdictOf } from "./run.ts";
import { limitsFrom } from "./sandbox.ts";

const limits = limitsFrom({ cpuSeconds: 10 });
const killed: GuestReport = {
  stop: undefined,
  end: { exitCode: undefined, signal: "SIGKILL", spawnError: undefined, isStuck: false },
  stdout: "",
  stderr: "",
  memoryKills: 0,
  hasBegun: true,
  wallMs: 30_000,
  aheadMs: 0,
};

it("a program that was killed after the time of its CPU limit had too little time, unless it was killed for memory", () => {
  const run = { program: { runtime: "node", code: "" }, limits } as const;
  expect(verdictOf(killed, run)).toMatchObject({
    status: "timeout",
    error: expect.stringContaining("CPU time"),
  });
  expect(verdictOf({ ...killed, wallMs: 8_500, aheadMs: 1_500 }, run)).toMatchObject({
    status: "timeout",
  });
  expect(verdictOf({ ...killed, wallMs: 8_500 }, run)).toMatchObject({ status: "crashed" });
  expect(verdictOf({ ...killed, memoryKills: 1 }, run)).toMatchObject({
    status: "oom",
    error: expect.stringContaining("memory"),
  });
});
