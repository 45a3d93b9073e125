import { writeFileSync } from "node:fs";
import { Session } from "node:inspector";
import { isMainThread } from "node:worker_threads";

// Loaded into a process of the product before its own code: SIGUSR2 starts a CPU profile of the main thread, and the
// next one writes it into the folder `PROFILE_FOLDER`.
if (isMainThread) {
  const session = new Session();
  let isRunning = false;
  process.on("SIGUSR2", () => {
    if (isRunning) {
      session.post("Profiler.stop", (_error, { profile }) => {
        writeFileSync(
          `${process.env["PROFILE_FOLDER"] ?? "."}/${process.pid}.cpuprofile`,
          JSON.stringify(profile),
        );
      });
    } else {
      session.connect();
      session.post("Profiler.enable");
      session.post("Profiler.setSamplingInterval", { interval: 500 });
      session.post("Profiler.start");
    }
    isRunning = !isRunning;
  });
}
