import { writeFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { chat } from "../system/chat-stream.ts";
import { decide, untilAsked } from "../system/approvals.ts";
import { answerTo, send } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import type { CheckedOut } from "./previous-version.ts";
import { addPeople, askingSession, chatOf, recordedApp, unfinishedModel } from "./scenes.ts";
import { takeSnapshot, type Snapshot } from "./snapshot.ts";

const hourMs = 3_600_000;

async function until(fact: () => boolean | Promise<boolean>): Promise<void> {
  const deadlineMs = Date.now() + 30_000;
  while (!(await fact())) {
    if (Date.now() > deadlineMs) throw new Error("the scene does not come");
    await delay(20);
  }
}

/** Brings every conversation into its state, and ends all processes in the middle of it. */
async function play(system: ProcessSystem): Promise<void> {
  const idle = chatOf("idle");
  await answerTo(
    system,
    await send(system, idle, { text: 'first\ncall note_once {"key":"idle"}' }),
  );
  const asked = await send(system, idle, { text: 'second\ncall ask_once {"key":"idle"}' });
  const [card] = await untilAsked(system, idle.chatId);
  if (card === undefined) throw new Error("unreachable: a card was waited for");
  await decide(system, card, {
    openId: idle.openId,
    wanted: { decision: "approve", remember: true },
  });
  await answerTo(system, asked);

  await chat(system.ingresses[0]?.url ?? "", askingSession, 'ask\ncall ask_pure {"key":"asked"}');
  await send(system, chatOf("parked"), { text: "parked", createdAtMs: Date.now() - hourMs });
  await send(system, chatOf("calling"), {
    text: 'calling\ncall note_idempotent {"key":"calling","ms":15000}',
  });
  await send(system, chatOf("running"), { text: 'unfinished\ncall note_pure {"key":"running"}' });
  await until(async () => (await system.recorded()).includes("idempotent calling"));
  await until(
    () =>
      system.model.requests.filter(({ messages }) =>
        messages.some(({ text }) => text.startsWith("unfinished")),
      ).length > 1,
  );
  await delay(500); // what streams is on its card

  system.feishu.faults.add({ action: { kind: "respond", status: 503 } });
  await send(system, chatOf("unsent"), { text: "unsent" });
  await delay(1_500); // the answer is committed, and the first tries have failed
  for (const worker of system.workers) await worker.kill();
  await send(system, chatOf("queued"), { text: "queued" });
}

async function record(previous: CheckedOut, version: string): Promise<Snapshot> {
  const program = (app: string) => ({ file: previous.file(`apps/${app}/src/main.ts`) });
  const tools = ["recording-tools.ts", "approval-tools.ts"].map((name) =>
    previous.file(`test/fixtures/${name}`),
  );
  const system = await startProcesses({
    appId: recordedApp,
    script: unfinishedModel,
    programs: {
      ingress: program("ingress"),
      "agent-worker": program("agent-worker"),
      "tool-runner": program("tool-runner"),
    },
    env: { RUNNER_TOOLS: tools.join(",") },
  });
  try {
    addPeople(system);
    await play(system);
    return await takeSnapshot(system.redis.url, version);
  } finally {
    await system.close();
  }
}

/**
 * Lets a version write sessions in all their states, kills it, and keeps the contents of Redis as
 * stored.json. Resolves to the number of keys. To be done for each release, with the release's commit.
 */
export async function recordStored(previous: CheckedOut, version: string): Promise<number> {
  const { takenAtMs, keys } = await record(previous, version);
  const lines = keys.map((key) => `    ${JSON.stringify(key)}`);
  const head = `  "version": ${JSON.stringify(version)},\n  "takenAtMs": ${takenAtMs},\n`;
  const file = new URL("stored.json", import.meta.url);
  await writeFile(file, `{\n${head}  "keys": [\n${lines.join(",\n")}\n  ]\n}\n`);
  return keys.length;
}
