import { watchEventLoop } from "./watchdog.ts";

// A process whose event loop stands still for good, as soon as it is watched.
watchEventLoop({ service: "stalled", maxMs: 1_000, atWork: () => ["cli_x.oc_y-7"] });
setTimeout(() => {
  for (;;);
}, 600);
