import { setTimeout as delay } from "node:timers/promises";
import type { AppProcess } from "../system/app-process.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { plainText } from "./measure.ts";

/** A message that keeps its worker (a slow model) or its runner (a slow tool) busy when it is lost. */
const busyTexts = {
  "agent-worker": "recover pause 600",
  "tool-runner": 'recover\ncall note_pure {"key":"r","ms":600}',
} as const;

type Victim = keyof typeof busyTexts;

function groupOf(system: ProcessSystem, kind: Victim) {
  return kind === "agent-worker" ? system.workers : system.runners;
}

async function untilModelAsked(system: ProcessSystem, requests: number): Promise<void> {
  const until = Date.now() + 5_000;
  while (system.model.requests.length <= requests && Date.now() < until) await delay(5);
  await delay(60); // now the tool runs, or the model is silent
}

/** How a process is lost: killed, or by a network that takes all of its packets and gives none, with its connections open. */
export type Loss = "killed" | "cut off";

async function lose(system: ProcessSystem, victim: AppProcess, loss: Loss): Promise<void> {
  if (loss === "killed") return await victim.kill();
  for (const line of system.linesOf(victim)) line.swallow("both", { andNew: true });
}

/** Loses one of two processes while a message is in work: ms from then to the answer, if the victim had it. */
async function oneLoss(
  system: ProcessSystem,
  kind: Victim,
  loss: Loss,
): Promise<number | undefined> {
  const { openId, chatId } = system.person("recovery");
  const { feishu, appId, model } = system;
  const asked = model.requests.length;
  const { messageId } = await feishu.sendMessage({
    appId,
    chatId,
    from: openId,
    text: busyTexts[kind],
  });
  await untilModelAsked(system, asked);
  const group = groupOf(system, kind);
  // The oldest has waited longest at the queue, so it is the one that got the work.
  const victim = group.shift();
  if (victim === undefined) throw new Error(`there is no ${kind}`);
  const lostAtMs = performance.now();
  await lose(system, victim, loss);
  await feishu.waitForReply(messageId, { timeoutMs: 60_000 });
  const tookMs = performance.now() - lostAtMs;
  await victim.kill();
  group.push(await system.start(kind));
  // Faster than the pause means that the other process had it and nothing had to recover.
  return tookMs > 700 ? tookMs : undefined;
}

/** Times from the loss of a process to the answer, for messages that it was working on. */
export async function measureRecovery(
  kind: Victim,
  samples: number,
  loss: Loss = "killed",
): Promise<number[]> {
  const system = await startProcesses({
    workers: 2,
    runners: 2,
    config: plainText,
    env: { LOG_LEVEL: "error" },
    lines: loss === "cut off",
  });
  try {
    const times: number[] = [];
    for (let attempt = 0; times.length < samples && attempt < samples * 6; attempt += 1) {
      const tookMs = await oneLoss(system, kind, loss);
      if (tookMs !== undefined) times.push(tookMs);
    }
    return times;
  } finally {
    await system.close();
  }
}
