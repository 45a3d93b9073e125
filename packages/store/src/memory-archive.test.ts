import { describeArchive } from "./archive.suite.ts";
import { createMemoryArchive } from "./memory-archive.ts";

describeArchive("memory", async () => {
  const archive = createMemoryArchive();
  return { archive, elsewhere: archive, close: async () => await archive.close() };
});
