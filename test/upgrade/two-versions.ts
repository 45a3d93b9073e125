import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { freePort } from "@larkline/testkit";
import { startApp, type AppProcess } from "../system/app-process.ts";
import {
  answersTo,
  metricOf,
  repeats,
  tally,
  untilAnswered,
  write,
  type Tally,
  type Written,
} from "../system/answers.ts";
import { decide, openQuestions } from "../system/approvals.ts";
import { keysFor, startProcesses, type AppKind, type ProcessSystem } from "../system/system.ts";
import type { CheckedOut } from "./previous-version.ts";

export interface TwoVersionsOptions {
  previous: CheckedOut;
  chats: number;
  /** How long the previous version works alone, and then this one. */
  eachMs: number;
  patienceMs: number;
}

/** What became of messages while one version took over from the other. */
export interface TwoVersionsReport extends Tally {
  accepted: number;
  /** Answers that are none, such as notes that a message was given up. */
  failed: number;
  approved: number;
  onceRepeated: number;
  /** How often each version has taken up a turn. */
  takenUpBy: { previous: number; current: number };
  /** Lines in which a process of either version complains. */
  complaints: string[];
}

const kinds: readonly AppKind[] = ["tool-runner", "agent-worker", "ingress"];
const toolFiles = ["test/fixtures/recording-tools.ts", "test/fixtures/approval-tools.ts"];
const currentTools = toolFiles.map((name) =>
  fileURLToPath(new URL(`../../${name}`, import.meta.url)),
);

function textOf(chat: number, position: number): string {
  const key = `${chat}-${position}`;
  const tool = ["", "note_pure", "ask_once", "note_idempotent"][(chat + position) % 4] ?? "";
  const name = `m${key} pause ${50 + (((chat * 7 + position) * 53) % 250)}`;
  return tool === "" ? name : `${name}\ncall ${tool} ${JSON.stringify({ key })}`;
}

async function keepWriting(
  system: ProcessSystem,
  chat: number,
  stop: AbortSignal,
): Promise<Written[]> {
  const person = system.person(`person ${chat}`);
  const written: Written[] = [];
  const waiting = (): number =>
    written.filter((message) => answersTo(system, message).length === 0).length;
  for (let position = 0; !stop.aborted; position += 1) {
    written.push(await write(system, person, textOf(chat, position)));
    do await delay(20);
    while (!stop.aborted && waiting() >= 3);
  }
  return written;
}

/** Approves whatever is asked until it is over; a turn that the previous version started is finished by this one. */
async function approveAll(system: ProcessSystem, over: AbortSignal): Promise<number> {
  let approved = 0;
  while (!over.aborted) {
    await delay(50);
    for (const [chatId, { members }] of system.feishu.chats) {
      const [openId = ""] = members;
      for (const card of openQuestions(system, chatId)) {
        const { toast } = await decide(system, card, { openId, wanted: { decision: "approve" } });
        if (toast?.content === "Approved") approved += 1;
      }
    }
  }
  return approved;
}

/** A process of this version in place of one of the previous one. */
async function startCurrent(system: ProcessSystem, kind: AppKind): Promise<AppProcess> {
  const { RUNNER_NAME = "", ...env } = system.env;
  return await startApp({
    program: { file: `apps/${kind}/src/main.ts` },
    port: await freePort(),
    env: {
      ...env,
      RUNNER_NAME,
      RUNNER_TOOLS: currentTools.join(","),
      ...keysFor(kind, RUNNER_NAME),
    },
  });
}

function complaintsOf(processes: readonly AppProcess[]): string[] {
  const lines = processes.flatMap((each) => each.output().split("\n"));
  return lines.filter((line) => /"level":"(?:error|fatal)"|not readable|newer version/.test(line));
}

async function turnsOf(processes: readonly AppProcess[]): Promise<number> {
  const counts = await Promise.all(
    processes.map(async (each) => await metricOf(each, "larkline_turn_runs_total")),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

async function run(system: ProcessSystem, options: TwoVersionsOptions): Promise<TwoVersionsReport> {
  const { eachMs, patienceMs } = options;
  const old = [...system.ingresses, ...system.workers, ...system.runners];
  const current: AppProcess[] = [];
  const stop = new AbortController();
  const over = new AbortController();
  try {
    const approving = approveAll(system, over.signal);
    const writing = Array.from({ length: options.chats }, async (_, chat) =>
      keepWriting(system, chat, stop.signal),
    );
    let takenUpBefore = 0;
    try {
      await delay(eachMs);
      do {
        await delay(50);
        takenUpBefore = await turnsOf(system.workers);
      } while (takenUpBefore === 0);
      // All of them, in the middle of their turns, before the first new one begins; people go on writing. The new ones
      // start at once, and wait until those that were killed count as gone.
      await Promise.all(old.map(async (each) => await each.kill()));
      current.push(
        ...(await Promise.all(kinds.map(async (kind) => await startCurrent(system, kind)))),
      );
      await delay(eachMs);
    } finally {
      stop.abort();
    }
    const chats = await Promise.all(writing);
    await untilAnswered(system, chats.flat(), patienceMs);
    over.abort();
    const answers = chats.flat().flatMap((message) => answersTo(system, message));
    const workers = current.filter(({ name }) => name.includes("agent-worker"));
    return {
      accepted: chats.flat().length,
      ...tally(system, chats),
      failed: answers.filter(({ text }) => !text.startsWith("[m")).length,
      approved: await approving,
      onceRepeated: repeats(await system.recorded(), "once").repeated,
      takenUpBy: { previous: takenUpBefore, current: await turnsOf(workers) },
      complaints: complaintsOf([...old, ...current]),
    };
  } finally {
    over.abort();
    await Promise.all(current.map(async (each) => await each.kill()));
  }
}

/**
 * One process of each app of the previous version under load; all of them are killed, and those of this version begin
 * where they have ended, on the same Redis.
 */
export async function runTwoVersions(options: TwoVersionsOptions): Promise<TwoVersionsReport> {
  const { file } = options.previous;
  const program = (kind: AppKind) => ({ file: file(`apps/${kind}/src/main.ts`) });
  const system = await startProcesses({
    programs: {
      ingress: program("ingress"),
      "agent-worker": program("agent-worker"),
      "tool-runner": program("tool-runner"),
    },
    env: { RUNNER_TOOLS: toolFiles.map(file).join(",") },
    config: { approvals: { unknownOutcome: "tell", learnAfter: 0 } },
    // Feishu delivers an event again for hours; here for longer than the new processes wait for the killed ones.
    simulator: { retryDelaysMs: Array.from({ length: 180 }, () => 500) },
  });
  try {
    return await run(system, options);
  } finally {
    await system.close();
  }
}
