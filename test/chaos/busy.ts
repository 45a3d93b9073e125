import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { ModelScript } from "@larkline/testkit";
import { metricOf, tally, untilAnswered, write, type Written } from "../system/answers.ts";
import { visibleAnswers } from "../system/answer.ts";
import { obedientModel } from "../system/model-script.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

export interface BusyOptions {
  messages: number;
  chats: number;
  /** Busy loops beside the product, each in a session of its own, because the kernel groups by sessions. */
  loops: number;
  /** How long workers are stopped (SIGSTOP), one after the other while people write, ms. */
  stopsMs: readonly number[];
  /** Whether Redis is away once, for a second. */
  isRedisAway: boolean;
  patienceMs: number;
  /** A folder for what the processes say; if absent one that is removed. */
  logDirectory?: string;
}

/** Nothing has died: nothing may be lost or repeated, but what Redis has cut off. */
export interface BusyReport {
  messages: number;
  lost: number;
  duplicated: number;
  misordered: number;
  givenUp: number;
  /** Requests of models beyond the two of each message. */
  repeatedModelCalls: number;
  /** Lines of logs about locks that were lost. */
  lostLocks: number;
  /** Runs of turns whose session another worker had taken. */
  fencedRuns: number;
  seconds: number;
}

/** Every message asks for one call of a tool, and so for two requests of the model. */
const requestsOfMessage = 2;

export async function runBusy(options: BusyOptions): Promise<BusyReport> {
  const logDirectory = options.logDirectory ?? (await mkdtemp(join(tmpdir(), "larkline-busy-")));
  let asked = 0;
  const script: ModelScript = async (request) => {
    asked += 1;
    return await obedientModel(request);
  };
  const system = await startProcesses({
    workers: 3,
    runners: 2,
    ingresses: 2,
    logDirectory,
    script,
  });
  const loops = Array.from({ length: options.loops }, () =>
    // They end with this process, however it ends.
    spawn(process.execPath, ["-e", "for (const of = process.ppid; of === process.ppid; );"], {
      detached: true,
      stdio: "ignore",
    }),
  );
  const startedMs = performance.now();
  try {
    const writing = Promise.all(
      Array.from(
        { length: options.chats },
        async (_, chat) => await writeChat(system, chat, options),
      ),
    );
    await stopInTurns(system, options.stopsMs);
    if (options.isRedisAway) await system.withoutRedis(async () => await delay(1_000));
    const chats = await writing;
    const written = chats.flat();
    await untilAnswered(system, written, options.patienceMs);
    const seconds = Math.round((performance.now() - startedMs) / 1_000);
    const texts = written.flatMap((message) =>
      visibleAnswers(system.feishu, message).map(({ text }) => text),
    );
    const fenced = await Promise.all(
      system.workers.map(
        async (worker) => await metricOf(worker, "larkline_turn_runs_total", 'outcome="fenced"'),
      ),
    );
    return {
      messages: written.length,
      ...tally(system, chats),
      givenUp: texts.filter((text) => text.includes("given up")).length,
      repeatedModelCalls: asked - requestsOfMessage * written.length,
      lostLocks: await linesIn(logDirectory, /Missing lock|Lock mismatch|could not renew lock/i),
      fencedRuns: fenced.reduce((sum, count) => sum + count, 0),
      seconds,
    };
  } finally {
    for (const { pid } of loops) if (pid !== undefined) process.kill(pid, "SIGKILL");
    await system.close();
    if (options.logDirectory === undefined) await rm(logDirectory, { recursive: true });
  }
}

async function writeChat(
  system: ProcessSystem,
  chat: number,
  { messages, chats }: BusyOptions,
): Promise<Written[]> {
  const person = system.person(`person ${chat}`);
  const written: Written[] = [];
  for (let at = 0; at < messages / chats; at += 1) {
    const key = `${chat}-${at}`;
    written.push(await write(system, person, `m${key}\ncall note_pure {"key":"${key}","ms":20}`));
  }
  return written;
}

/** Each stop begins when the one before is over, and meets the next worker. */
async function stopInTurns({ workers }: ProcessSystem, stopsMs: readonly number[]): Promise<void> {
  for (const [at, ms] of stopsMs.entries()) {
    const worker = workers[at % workers.length];
    worker?.signal("SIGSTOP");
    await delay(ms);
    worker?.signal("SIGCONT");
    await delay(500);
  }
}

async function linesIn(folder: string, pattern: RegExp): Promise<number> {
  const texts = await Promise.all(
    (await readdir(folder)).map(async (name) => await readFile(join(folder, name), "utf8")),
  );
  return texts.flatMap((text) => text.split("\n")).filter((line) => pattern.test(line)).length;
}
