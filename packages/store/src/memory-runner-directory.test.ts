import { createMemoryRunnerDirectory } from "./memory-runner-directory.ts";
import { describeRunnerDirectory } from "./runner-directory.suite.ts";

describeRunnerDirectory("memory", async () => {
  let nowMs = 1_700_000_000_000;
  const directory = createMemoryRunnerDirectory({ now: () => nowMs });
  return {
    directory,
    elsewhere: directory,
    ttlMs: 10_000,
    async expire() {
      nowMs += 10_000;
    },
    async later() {
      nowMs += 1;
    },
    async close() {},
  };
});
