import { answersTo, repeats, untilAnswered, write, type Written } from "../system/answers.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { killUntil, type Kills } from "./attacks.ts";
import { createRandom } from "./random.ts";

export interface CallChaosOptions {
  seed: number;
  /** At least; more until a worker and a runner have been killed. */
  calls: number;
  chats: number;
  callsPerMessage: number;
  /** Pause between two kills: half of it to one and a half times. */
  pauseMs: number;
  /** How long answers may take after the last message. */
  patienceMs: number;
}

/** What became of the calls. */
export interface CallChaosReport {
  calls: number;
  /** Results that the answers show; one for each call. */
  results: number;
  /** Calls whose message has no answer. */
  stranded: number;
  onceStarted: number;
  onceRepeated: number;
  /** Reported as unknown to the model: started, and their runner died. */
  onceUnknown: number;
  idempotentRepeated: number;
  pureRepeated: number;
  kills: Kills;
  seconds: number;
}

const effects = ["pure", "idempotent", "once"] as const;

function textOf(key: string, count: number, random: ReturnType<typeof createRandom>): string {
  const calls = Array.from({ length: count }, (_, index) => {
    const effect = random.pick(effects);
    return `call note_${effect} {"key":"${key}-${index}","ms":${random.below(60)}}`;
  });
  return [`m${key}`, ...calls].join("\n");
}

const kinds = ["agent-worker", "tool-runner"] as const;

async function writeChat(
  system: ProcessSystem,
  { chat, kills }: { chat: number; kills: Kills },
  options: CallChaosOptions,
): Promise<Written[]> {
  const random = createRandom(options.seed * 1_000 + chat);
  const person = system.person(`person ${chat}`);
  const messages = Math.ceil(options.calls / options.chats / options.callsPerMessage);
  const written: Written[] = [];
  const untilMs = performance.now() + options.patienceMs;
  const goesOn = (): boolean =>
    kinds.some((kind) => kills[kind] === undefined) && performance.now() < untilMs;
  for (let position = 0; position < messages || goesOn(); position += 1) {
    const message = await write(
      system,
      person,
      textOf(`${chat}-${position}`, options.callsPerMessage, random),
    );
    written.push(message);
    await untilAnswered(system, [message], options.patienceMs);
  }
  return written;
}

/** Runs many calls while workers and runners are killed, then counts. The model reads unknown outcomes. */
export async function runCallChaos(options: CallChaosOptions): Promise<CallChaosReport> {
  const system = await startProcesses({
    workers: 2,
    runners: 3,
    env: { RUNNER_CONCURRENCY: "8" },
    config: { approvals: { unknownOutcome: "tell" } },
  });
  const startedMs = performance.now();
  try {
    const over = new AbortController();
    const kills: Kills = {};
    const killing = killUntil(
      system,
      { kinds, pauseMs: options.pauseMs, random: createRandom(options.seed), kills },
      over.signal,
    );
    const chats = Array.from(
      { length: options.chats },
      async (_, chat) => await writeChat(system, { chat, kills }, options),
    );
    const written = (await Promise.all(chats).finally(() => over.abort())).flat();
    await killing;
    await untilAnswered(system, written, options.patienceMs);
    const answers = written.map((message) => answersTo(system, message));
    const texts = answers.flat().map(({ text }) => text);
    const recorded = await system.recorded();
    const once = repeats(recorded, "once");
    return {
      calls: written.length * options.callsPerMessage,
      results: texts.reduce((sum, text) => sum + (text.match(/\b(?:ok|failed):/g)?.length ?? 0), 0),
      stranded: answers.filter(({ length }) => length === 0).length * options.callsPerMessage,
      onceStarted: once.started,
      onceRepeated: once.repeated,
      onceUnknown: texts.reduce(
        (sum, text) => sum + (text.match(/outcome unknown|is unknown/gi)?.length ?? 0),
        0,
      ),
      idempotentRepeated: repeats(recorded, "idempotent").repeated,
      pureRepeated: repeats(recorded, "pure").repeated,
      kills,
      seconds: Math.round((performance.now() - startedMs) / 1_000),
    };
  } finally {
    await system.close();
  }
}
