import { forgetClock } from "@larkline/protocol";
import { afterAll, vi } from "vitest";

// Files share the process that runs them, since loading every module anew for each file takes longer than its tests.
// What a file may have left changed in that process is put back here.
afterAll(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  forgetClock();
});
