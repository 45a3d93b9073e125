import { writeFileSync } from "node:fs";
import { Session } from "node:inspector";
import { isMainThread } from "node:worker_threads";

// Loaded into a process of the product before its own code: SIGUSR2 starts a profile of the main thread, and the next one
// writes it into the folder `PROFILE_FOLDER`. It is one of the CPU, or with `PROFILE_KIND=heap` of all that is allocated,
// also of what is collected meanwhile.
if (isMainThread) {
  const session = new Session();
  let isRunning = false;
  const write = (profile: unknown): void =>
    writeFileSync(
      `${process.env["PROFILE_FOLDER"] ?? "."}/${process.pid}.profile`,
      JSON.stringify(profile),
    );
  const cpu = {
    start(): void {
      session.post("Profiler.enable");
      session.post("Profiler.setSamplingInterval", { interval: 500 });
      session.post("Profiler.start");
    },
    stop: (): void => session.post("Profiler.stop", (_error, { profile }) => write(profile)),
  };
  const heap = {
    start(): void {
      session.post("HeapProfiler.startSampling", {
        samplingInterval: 8_192,
        includeObjectsCollectedByMajorGC: true,
        includeObjectsCollectedByMinorGC: true,
      });
    },
    stop: (): void =>
      session.post("HeapProfiler.stopSampling", (_error, { profile }) => write(profile)),
  };
  const kind = process.env["PROFILE_KIND"] === "heap" ? heap : cpu;
  process.on("SIGUSR2", () => {
    if (isRunning) kind.stop();
    else {
      session.connect();
      kind.start();
    }
    isRunning = !isRunning;
  });
}
