import { setTimeout as delay } from "node:timers/promises";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { plainText } from "./measure.ts";

/** A message that keeps its worker (a slow model) or its runner (a slow tool) busy when the kill comes. */
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

/** Kills one of two processes while a message is in work: ms from the kill to the answer, if the victim had it. */
async function oneKill(system: ProcessSystem, kind: Victim): Promise<number | undefined> {
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
  const killedAtMs = performance.now();
  // The oldest has waited longest at the queue, so it is the one that got the work.
  await group.shift()?.kill();
  await feishu.waitForReply(messageId, { timeoutMs: 60_000 });
  const tookMs = performance.now() - killedAtMs;
  group.push(await system.start(kind));
  // Faster than the pause means that the other process had it and nothing had to recover.
  return tookMs > 700 ? tookMs : undefined;
}

/** Times from kill -9 to the answer, for messages that the killed process was working on. */
export async function measureRecovery(kind: Victim, samples: number): Promise<number[]> {
  const system = await startProcesses({
    workers: 2,
    runners: 2,
    config: plainText,
    env: { LOG_LEVEL: "error" },
  });
  try {
    const times: number[] = [];
    for (let attempt = 0; times.length < samples && attempt < samples * 6; attempt += 1) {
      const tookMs = await oneKill(system, kind);
      if (tookMs !== undefined) times.push(tookMs);
    }
    return times;
  } finally {
    await system.close();
  }
}
