import { forgetClock } from "@larkline/protocol";
import * as fc from "fast-check";
import { afterAll, vi } from "vitest";

// A test of a change must not depend on dice: properties see the same examples in every run, unless new ones are wanted.
if (process.env["PROPERTY_SEED"] !== "random") {
  fc.configureGlobal({ seed: Number(process.env["PROPERTY_SEED"] ?? 1) });
}

// Files share the process that runs them, since loading every module anew for each file takes longer than its tests.
// What a file may have left changed in that process is put back here.
afterAll(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  forgetClock();
});
