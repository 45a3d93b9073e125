import { setTimeout as delay } from "node:timers/promises";
import { execFileSync } from "node:child_process";
import { write } from "../system/answers.ts";
import { answerTo } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { residentMb } from "./measure.ts";

/** Memory of the processes at one moment, MB. */
export interface SoakSample {
  minutes: number;
  turns: number;
  megabytes: Record<string, number>;
}

export interface SoakOptions {
  minutes: number;
  turnsPerSecond: number;
  /** People who write at once, five messages in a chat and then on in a new one. */
  people: number;
  /** Between two samples. */
  everyMs: number;
}

function sampleOf({ ingresses, workers, runners, redis }: ProcessSystem): Record<string, number> {
  const named = [
    ...ingresses.map(({ pid }) => ["ingress", pid] as const),
    ...workers.map(({ pid }) => ["agent-worker", pid] as const),
    ...runners.map(({ pid }) => ["tool-runner", pid] as const),
  ];
  const info = execFileSync("redis-cli", ["-p", String(redis.port), "info", "memory"]).toString();
  const redisMb = Number(/used_memory:(\d+)/.exec(info)?.[1] ?? 0) / 1_048_576;
  return Object.fromEntries([
    ...named.map(([name, pid]) => [name, residentMb(pid)] as const),
    ["Redis data", redisMb],
  ]);
}

/** A steady load for a long time: what grows with time and not with what is stored would show. */
export async function soak({
  minutes,
  turnsPerSecond,
  people,
  everyMs,
}: SoakOptions): Promise<SoakSample[]> {
  const system = await startProcesses({
    transport: "webhook",
    config: { agents: { default: { reply: "text" } }, feishu: { rateLimits: false } },
    simulator: { logCapacity: 100 },
    env: { LOG_LEVEL: "error" },
  });
  const samples: SoakSample[] = [];
  try {
    const startMs = performance.now();
    const endMs = startMs + minutes * 60_000;
    let turns = 0;
    const writeOn = async (): Promise<void> => {
      for (let chat = 0; performance.now() < endMs; chat += 1) {
        const person = system.person(`soak ${chat}`);
        for (let position = 0; position < 5 && performance.now() < endMs; position += 1) {
          const key = `${person.chatId.slice(-6)}-${position}`;
          await answerTo(
            system,
            await write(system, person, `s\ncall note_pure {"key":"${key}"}`),
            60_000,
          );
          turns += 1;
          const aheadMs = (turns * 1_000) / turnsPerSecond - (performance.now() - startMs);
          if (aheadMs > 0) await delay(aheadMs);
        }
      }
    };
    const writing = Promise.all(Array.from({ length: people }, writeOn));
    const sampling = (async () => {
      while (performance.now() < endMs) {
        samples.push({
          minutes: (performance.now() - startMs) / 60_000,
          turns,
          megabytes: sampleOf(system),
        });
        await delay(everyMs);
      }
    })();
    await Promise.all([writing, sampling]);
    return samples;
  } finally {
    await system.close();
  }
}
