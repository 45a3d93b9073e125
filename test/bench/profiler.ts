import { writeFileSync } from "node:fs";
import { Session } from "node:inspector";
import { isMainThread } from "node:worker_threads";

// Loaded into a process of the product before its own code: SIGUSR2 starts a profile of the main thread, and the next one
// writes it into the folder `PROFILE_FOLDER`. It is one of the CPU, or with `PROFILE_KIND=heap` of all that is allocated,
// also of what is collected meanwhile, or with `PROFILE_KIND=loop` how long the longest round of the event loop has taken,
// in CPU of the thread.
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
      session.connect();
      session.post("Profiler.enable");
      session.post("Profiler.setSamplingInterval", { interval: 500 });
      session.post("Profiler.start");
    },
    stop: (): void => session.post("Profiler.stop", (_error, { profile }) => write(profile)),
  };
  const heap = {
    start(): void {
      session.connect();
      session.post("HeapProfiler.startSampling", {
        samplingInterval: 8_192,
        includeObjectsCollectedByMajorGC: true,
        includeObjectsCollectedByMinorGC: true,
      });
    },
    stop: (): void =>
      session.post("HeapProfiler.stopSampling", (_error, { profile }) => write(profile)),
  };
  const loop = {
    longestMs: 0,
    start(): void {
      loop.longestMs = 0;
      watch(threadCpuMs());
    },
    stop: (): void => write(loop.longestMs),
  };
  const watch = (sinceMs: number): void => {
    setImmediate(() => {
      if (!isRunning) return;
      const nowMs = threadCpuMs();
      loop.longestMs = Math.max(loop.longestMs, nowMs - sinceMs);
      watch(nowMs);
    });
  };
  const kinds: Readonly<Record<string, typeof cpu>> = { heap, loop };
  const kind = kinds[process.env["PROFILE_KIND"] ?? ""] ?? cpu;
  process.on("SIGUSR2", () => {
    isRunning = !isRunning;
    if (isRunning) kind.start();
    else kind.stop();
  });
}

function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}
