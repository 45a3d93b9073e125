import { setTimeout as delay } from "node:timers/promises";
import type { FaultAction, SimMessage } from "@larkline/feishu-simulator";
import { elementOf, isClosed } from "../system/answer.ts";
import { answersTo, repeats, tally, untilAnswered, write, type Written } from "../system/answers.ts";
import { startSystem, type System } from "../system/system.ts";
import { groupOf, killOne, type Kind } from "./attacks.ts";
import { createRandom } from "./random.ts";

export interface ChaosOptions {
  seed: number;
  chats: number;
  messagesPerChat: number;
  /** Processes killed with SIGKILL while messages are written. */
  kills: number;
  /** Workers stopped with SIGSTOP for longer than their heartbeat and lock live. */
  freezes: number;
  freezeMs: number;
  /** Pause between two attacks, at most. */
  pauseMs: number;
  /** Pause between two clicks on a stop button, at most. */
  clickPauseMs: number;
  /** How long answers may take after the last message. */
  patienceMs: number;
}

/** The delivery contract, counted. */
export interface ChaosReport {
  accepted: number;
  answered: number;
  lost: number;
  duplicated: number;
  misordered: number;
  /** Given up after too many crashes. */
  abandoned: number;
  /** Cards that were never closed. */
  leftOpen: number;
  /** Answers that were stopped by a click, and clicks that said so. */
  stopped: number;
  stopClicks: number;
  onceStarted: number;
  onceRepeated: number;
  onceUnknown: number;
  pureRepeated: number;
  kills: Record<string, number>;
  freezes: number;
  /** Calls to Feishu that failed in some way. */
  apiFaults: number;
}

function textOf(chat: number, position: number, seed: ReturnType<typeof createRandom>): string {
  const key = `${chat}-${position}`;
  const kind = seed.below(4);
  const lines = [seed.pick([`m${key}`, `m${key} pause ${seed.below(300)}`, `m${key} type ${seed.below(40)}`])];
  if (kind === 1) lines.push(`call note_once {"key":"${key}","ms":${seed.below(500)}}`);
  if (kind === 2) lines.push(`call note_pure {"key":"${key}","ms":${seed.below(500)}}`);
  if (kind === 3)
    lines.push(`call note_once {"key":"${key}a"}`, `call note_once {"key":"${key}b","ms":${seed.below(200)}}`);
  return lines.join("\n");
}

async function writeChat(system: System, chat: number, options: ChaosOptions): Promise<Written[]> {
  const random = createRandom(options.seed * 1_000 + chat);
  const person = system.person(`person ${chat}`);
  const written: Written[] = [];
  for (let position = 0; position < options.messagesPerChat; position += 1) {
    written.push(await write(system, person, textOf(chat, position, random)));
    await delay(random.below(150));
  }
  return written;
}

interface Attacks {
  kills: Record<string, number>;
  freezes: number;
  apiFaults: number;
}

const apiFaults: FaultAction[] = [
  { kind: "respond", status: 503 },
  { kind: "drop" },
  { kind: "lose_response" },
  { kind: "delay", delayMs: 700 },
];
const faultsAtOnce = 5;

/** The next calls to some part of the Feishu API fail, applied or not. */
function breakApi({ feishu }: System, random: ReturnType<typeof createRandom>): number {
  const path = random.pick([/\/messages/, /\/cardkit\/v1\/cards$/, /\/content$/, /\/cards\/[^/]+$/, /\/cardkit\//]);
  feishu.faults.add({ match: { path }, times: faultsAtOnce, action: random.pick(apiFaults) });
  return faultsAtOnce;
}

async function attack(system: System, options: ChaosOptions): Promise<Attacks> {
  const random = createRandom(options.seed);
  const kinds: Kind[] = ["agent-worker", "tool-runner", "ingress"];
  const done: Attacks = { kills: {}, freezes: 0, apiFaults: 0 };
  const thaws: Promise<void>[] = [];
  for (let round = 0; round < options.kills; round += 1) {
    await delay(200 + random.below(options.pauseMs));
    if (done.freezes < options.freezes && round % 3 === 1) {
      const frozen = random.pick(system.workers);
      frozen.signal("SIGSTOP");
      done.freezes += 1;
      thaws.push(delay(options.freezeMs).then(() => frozen.signal("SIGCONT")));
    }
    done.apiFaults += breakApi(system, random);
    const kind = kinds[round % kinds.length] ?? "agent-worker";
    await killOne(system, kind, random.below(groupOf(system, kind).length));
    done.kills[kind] = (done.kills[kind] ?? 0) + 1;
  }
  await Promise.all(thaws);
  system.feishu.faults.clear();
  return done;
}

function botMessages({ feishu }: System): SimMessage[] {
  return [...feishu.chats.keys()].flatMap((chatId) =>
    feishu.messages(chatId).filter(({ senderType }) => senderType === "app"),
  );
}

/** Somebody clicks on the stop button of some open card now and then; returns how many clicks stopped a turn. */
async function clickStops(system: System, options: ChaosOptions, over: AbortSignal): Promise<number> {
  const random = createRandom(options.seed + 1);
  let clicks = 0;
  while (!over.aborted) {
    await delay(100 + random.below(options.clickPauseMs));
    const open = botMessages(system).filter((message) => elementOf(message, "stop") !== undefined);
    if (open.length === 0) continue;
    const { messageId, chatId } = random.pick(open);
    const [openId = ""] = system.feishu.chats.get(chatId)?.members ?? [];
    const { toast } = await system.feishu.click({ messageId, openId, elementId: "stop" });
    if (toast?.type === "success") clicks += 1;
  }
  return clicks;
}

/** Writes messages while processes are killed and stopped, then counts. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  const system = await startSystem({ workers: 3, runners: 2, ingresses: 2, simulator: { limits: "enforced" } });
  system.feishu.setDeliveryNoise({ duplicates: true, lostAcks: 2 * options.chats });
  try {
    const chats = Array.from({ length: options.chats }, async (_, chat) => await writeChat(system, chat, options));
    const over = new AbortController();
    const clicking = clickStops(system, options, over.signal);
    const [attacks, written] = await Promise.all([attack(system, options), Promise.all(chats)]).finally(() =>
      over.abort(),
    );
    const stopClicks = await clicking;
    const all = written.flat();
    await untilAnswered(system, all, options.patienceMs);
    const answers = all.map((message) => answersTo(system, message));
    const recorded = await system.recorded();
    const once = repeats(recorded, "once");
    return {
      accepted: all.length,
      answered: answers.filter(({ length }) => length > 0).length,
      ...tally(system, written),
      abandoned: answers.flat().filter(({ text }) => /gave (?:it )?up|given up/i.test(text)).length,
      leftOpen: botMessages(system).filter((message) => !isClosed(message)).length,
      stopped: answers.flat().filter(({ text }) => /^Stopped\.$/m.test(text)).length,
      stopClicks,
      onceStarted: once.started,
      onceRepeated: once.repeated,
      onceUnknown: answers.flat().filter(({ text }) => /unknown/i.test(text)).length,
      pureRepeated: repeats(recorded, "pure").repeated,
      ...attacks,
    };
  } finally {
    await system.close();
  }
}
