import { describeInstanceDirectory } from "./instance-directory.suite.ts";
import { createMemoryInstanceDirectory } from "./memory-instance-directory.ts";

describeInstanceDirectory("memory", async () => {
  const directory = createMemoryInstanceDirectory();
  return { directory, elsewhere: directory, now: Date.now, close: async () => undefined };
});
