import { mkdtemp, readFile, rm } from "node:fs/promises";
import type { Profiler } from "node:inspector";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { measureTurns, startSubject, warmUp, type Subject } from "./measure.ts";
import type { BenchVendors } from "./vendors.ts";

/** The cause of a sample is that of the nearest caller whose file fits one of these. */
const causes: readonly (readonly [string, RegExp])[] = [
  [
    "telemetry: spans, events, metrics, trace log, log",
    /process\/src\/telemetry|prom-client|\/pino|@opentelemetry|store\/src\/trace-log/,
  ],
  [
    "model client: chain, SDK, HTTP, event stream",
    /packages\/model\/|@anthropic-ai|node_modules\/openai/,
  ],
  // connection.ts writes what a round has gathered: the system calls of ioredis.
  [
    "Redis client",
    /ioredis|redis-parser|redis-errors|standard-as-callback|@ioredis|store\/src\/connection/,
  ],
  ["queue: BullMQ and its scripts", /bullmq|msgpackr|store\/src\/queues\//],
  ["store: arguments of scripts, stored JSON, history", /packages\/store\/|protocol\/src\/lua/],
  ["turn machine", /packages\/agent\//],
  ["platform: events, replies, SDK", /packages\/feishu\/|larksuiteoapi|axios/],
  ["schemas", /typebox|ajv|protocol\/src\/schema/],
  ["HTTP server", /fastify|find-my-way|light-my-request|avvio/],
  ["runner: calls and tools", /packages\/(?:runner|sandbox|tool-kit)\//],
  [
    "the apps' own code, ids, signatures, clocks",
    /apps\/|packages\/protocol\/|packages\/process\//,
  ],
];
export const nodeItself = "Node: sockets, HTTP, ticks";
const collection = "garbage collection";

/** Processes that run our JavaScript. */
export const profiledNames = ["agent-worker", "ingress", "tool-runner"] as const;
type ProfiledName = (typeof profiledNames)[number];

/** What a turn costs by cause: CPU in ms, or KB that are allocated. */
export type CauseNumbers = ReadonlyMap<string, Record<ProfiledName, number>>;

/** The cause that the code of a file stands for, if it is one. */
export function causeOf(url: string): string | undefined {
  return causes.find(([, files]) => files.test(url))?.[0];
}

/**
 * Profiles the processes of a subject while it answers messages, 32 in flight. Samples are taken by the wall clock, also
 * while other programs have the core: the share of a cause is that of its samples, of the CPU that the process took.
 */
export async function measureCauses(
  vendors: BenchVendors,
  subject: Subject,
  { turns, warm }: { turns: number; warm: number },
): Promise<CauseNumbers> {
  const folder = await mkdtemp(join(tmpdir(), "profile-"));
  const env = {
    ...subject.options.env,
    PROFILE_FOLDER: folder,
    NODE_OPTIONS: `--import ${fileURLToPath(new URL("profiler.ts", import.meta.url))}`,
  };
  const running = await startSubject(vendors, { ...subject, options: { ...subject.options, env } });
  const { ingresses, workers, runners } = running.system;
  const apps = { "agent-worker": workers, ingress: ingresses, "tool-runner": runners };
  const signalAll = (): void => {
    for (const app of Object.values(apps).flat()) app.signal("SIGUSR2");
  };
  try {
    await warmUp(running, warm);
    signalAll();
    const { cpuMs } = await measureTurns(running, { inFlight: 32, messages: turns, perChat: 5 });
    signalAll();
    const found = new Map<string, Record<ProfiledName, number>>();
    for (const name of profiledNames) {
      for (const { pid } of apps[name]) {
        const shares = sharesIn(await profileIn<Profiler.Profile>(join(folder, `${pid}.profile`)));
        for (const [cause, share] of shares) {
          const numbers = found.get(cause) ?? { "agent-worker": 0, ingress: 0, "tool-runner": 0 };
          numbers[name] += (share * cpuMs[name]) / apps[name].length;
          found.set(cause, numbers);
        }
      }
    }
    return found;
  } finally {
    await running.close();
    await rm(folder, { recursive: true });
  }
}

/** What `profiler.ts` writes. */
export async function profileIn<Profile>(file: string): Promise<Profile> {
  for (let tries = 0; ; tries += 1) {
    try {
      return JSON.parse(await readFile(file, "utf8")) as Profile; // written by profiler.ts
    } catch (error) {
      if (tries === 100) throw error;
      await delay(100); // it is being written
    }
  }
}

/** The part of each cause in the time that the process was busy. */
function sharesIn({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile): Map<string, number> {
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  const callers = new Map(
    nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)),
  );
  const causeOfNode = (id: number): string | undefined => {
    const name = frames.get(id)?.functionName;
    if (name === "(idle)") return undefined;
    if (name === "(garbage collector)") return collection;
    for (let at: number | undefined = id; at !== undefined; at = callers.get(at)) {
      const url = frames.get(at)?.url ?? "";
      if (url === "node:inspector") return undefined; // the profile itself
      const cause = causeOf(url);
      if (cause !== undefined) return cause;
    }
    return nodeItself;
  };
  const known = new Map(nodes.map(({ id }) => [id, causeOfNode(id)]));
  const times = new Map<string, number>();
  let total = 0;
  for (const [at, id] of samples.entries()) {
    const cause = known.get(id);
    const time = timeDeltas[at] ?? 0;
    if (cause === undefined) continue;
    times.set(cause, (times.get(cause) ?? 0) + time);
    total += time;
  }
  return new Map([...times].map(([cause, time]) => [cause, time / total]));
}
