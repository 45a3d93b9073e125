import { watchEventLoop } from "./watchdog.ts";

// A process whose event loop stands still for good, as soon as it is watched.
const [redisUrl, namespace = "", id = ""] = process.argv.slice(2);
watchEventLoop({
  service: "stalled",
  maxMs: 1_000,
  atWork: () => ["cli_x.oc_y-7"],
  note: redisUrl === undefined ? undefined : { redisUrl, namespace, id },
});
setTimeout(() => {
  for (;;);
}, 600);
