import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { larklineSuspending, startSubject } from "./measure.ts";
import { profileIn, profiledNames } from "./profile.ts";
import { table } from "./report.ts";
import type { BenchVendors } from "./vendors.ts";

/** How long the longest rounds of an event loop take, in CPU of its thread: other programs of the machine do not count. */
export interface LoopNumbers {
  work: string;
  longestMs: Record<(typeof profiledNames)[number], number>;
}

/** What new processes go through: the first message, with which a worker reads its first checkpoint, and those that follow. */
const works = [
  { work: "the first message", inFlight: 1, messages: 1 },
  { work: "100 more", inFlight: 8, messages: 100 },
  { work: "50 more, one by one", inFlight: 1, messages: 50 },
];

/** Every turn is suspended for its call, and so read again. */
export async function measureLoop(vendors: BenchVendors): Promise<LoopNumbers[]> {
  const folder = await mkdtemp(join(tmpdir(), "loop-"));
  const { name, options } = larklineSuspending;
  const env = {
    ...options.env,
    PROFILE_FOLDER: folder,
    PROFILE_KIND: "loop",
    NODE_OPTIONS: `--import ${fileURLToPath(new URL("profiler.ts", import.meta.url))}`,
  };
  const running = await startSubject(vendors, { name, options: { ...options, env } });
  const { ingresses, workers, runners } = running.system;
  const apps = { "agent-worker": workers, ingress: ingresses, "tool-runner": runners };
  const signalAll = (): void => {
    for (const app of Object.values(apps).flat()) app.signal("SIGUSR2");
  };
  try {
    const measured: LoopNumbers[] = [];
    for (const { work, ...load } of works) {
      signalAll();
      await running.load({ ...load, perChat: 5 });
      signalAll();
      const longestMs = { "agent-worker": 0, ingress: 0, "tool-runner": 0 };
      for (const app of profiledNames) {
        for (const { pid } of apps[app]) {
          const file = join(folder, `${pid}.profile`);
          longestMs[app] = Math.max(longestMs[app], await profileIn<number>(file));
          await rm(file);
        }
      }
      measured.push({ work, longestMs });
    }
    return measured;
  } finally {
    await running.close();
    await rm(folder, { recursive: true });
  }
}

export function loopTable(measured: readonly LoopNumbers[]): string {
  return table(
    ["longest round of the event loop of new processes, ms of CPU", ...profiledNames],
    measured.map(({ work, longestMs }) => [
      work,
      ...profiledNames.map((app) => longestMs[app].toFixed(1)),
    ]),
  );
}
