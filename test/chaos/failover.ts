import { setTimeout as delay } from "node:timers/promises";
import { startRedisCluster, startRedisSentinel, type TestRedisNodes } from "@larkline/testkit";
import { visibleAnswers } from "../system/answer.ts";
import { answersTo, repeats, tally, untilAnswered, type Tally } from "../system/answers.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { watchAnswers, type AnswerWatch, type Watched } from "./answer-watch.ts";
import { replaceMaster, type MasterFailure } from "./master-failure.ts";
import { createRandom } from "./random.ts";
import { recoveryOf, timesOf, type Harm, type Recovery, type Times } from "./recovery.ts";

export interface FailoverOptions {
  kind: "cluster" | "sentinel";
  /** How often a master is killed, and comes back as a replica. */
  rounds: number;
  chats: number;
  /** Processes of each app. */
  replicas: number;
  /** Settings of the servers, as `redis-server` takes them. */
  settings: readonly string[];
  failure: MasterFailure;
  /** How long a server is silent before it counts as dead, ms. */
  silenceMs: number;
  /** How long answers may take after the last message. */
  patienceMs: number;
}

/** What was acknowledged, and what became of it. */
export interface FailoverReport extends Tally {
  accepted: number;
  answered: number;
  /** Answers that show what another message asked for. */
  foreign: number;
  onceStarted: number;
  onceRepeated: number;
  /** Chats in which a last message, written when all was over, got no answer. */
  stuck: number;
  /** From the end of a master to the first answer to a message that was accepted after it. */
  flowing: Times;
  recovery: Recovery;
}

interface Scene {
  system: ProcessSystem;
  watch: AnswerWatch;
  options: FailoverOptions;
}

/** A message without an answer for so long is not waited for before the next one is written. */
const givenUpMs = 10_000;
const openAtOnce = 2;
const sendingMs = 12_000;

function textOf(key: string, random: ReturnType<typeof createRandom>): string {
  const call = random.pick(["", "note_once", "note_pure", "note_idempotent"]);
  const name = `m${key} pause ${random.below(200)}`;
  return call === "" ? name : `${name}\ncall ${call} {"key":"${key}","ms":${random.below(300)}}`;
}

function isOpen({ answeredMs, acceptedMs }: Watched): boolean {
  return answeredMs === undefined && performance.now() - acceptedMs < givenUpMs;
}

async function writeChat(
  { system, watch }: Scene,
  chat: number,
  over: AbortSignal,
): Promise<Watched[]> {
  const random = createRandom(chat + 1);
  const person = system.person(`person ${chat}`);
  const written: Watched[] = [];
  for (let position = 0; !over.aborted; position += 1) {
    // Not acknowledged to the end: the person sees that, and it is not counted.
    const message = await watch
      .write(person, textOf(`${chat}-${position}`, random))
      .catch(() => undefined);
    if (message !== undefined) written.push(message);
    do await delay(20 + random.below(100));
    while (!over.aborted && written.filter(isOpen).length >= openAtOnce);
  }
  return written;
}

/** Whether something shows as an answer that was asked for elsewhere. */
function isForeign(system: ProcessSystem, message: Watched): boolean {
  const [asked = ""] = message.text.split("\n");
  return visibleAnswers(system.feishu, message).some(
    ({ text }) => /\[m/.test(text) && !text.includes(`[${asked}]`),
  );
}

function flowingAfter(messages: readonly Watched[], { atMs }: Harm): number[] {
  const after = messages.flatMap(({ acceptedMs, answeredMs }) =>
    acceptedMs > atMs && answeredMs !== undefined ? [answeredMs - atMs] : [],
  );
  return after.length === 0 ? [] : [Math.min(...after)];
}

/** Waits until something that was accepted after that moment is answered, or the patience is over. */
async function untilFlowing({ watch, options }: Scene, atMs: number): Promise<void> {
  const untilMs = performance.now() + options.patienceMs;
  const flows = (): boolean =>
    watch.all().some(({ acceptedMs, answeredMs }) => acceptedMs > atMs && answeredMs !== undefined);
  while (!flows() && performance.now() < untilMs) await delay(50);
}

/** Chats that are dead: a message written now gets no answer. */
async function stuckChats(
  { system, watch, options }: Scene,
  chats: readonly Watched[][],
): Promise<number> {
  const last = await Promise.all(
    chats.flatMap(([first]) => {
      if (first === undefined) return [];
      const { chatId } = first;
      const [openId = ""] = system.feishu.chats.get(chatId)?.members ?? [];
      return [watch.write({ openId, chatId }, `m${chatId} last`)];
    }),
  );
  await untilAnswered(system, last, options.patienceMs);
  return last.filter((message) => answersTo(system, message).length === 0).length;
}

async function run(scene: Scene, nodes: TestRedisNodes): Promise<FailoverReport> {
  const { system, watch, options } = scene;
  const over = new AbortController();
  const writing = Array.from(
    { length: options.chats },
    async (_, chat) => await writeChat(scene, chat, over.signal),
  );
  const harms: Harm[] = [];
  try {
    for (let round = 0; round < options.rounds; round += 1) {
      await delay(2_000);
      const atMs = await replaceMaster(nodes, options.failure);
      harms.push({ label: "failover", atMs, overMs: atMs });
      await untilFlowing(scene, atMs);
    }
    await delay(2_000);
  } finally {
    over.abort();
  }
  const chats = await Promise.all(writing);
  const stuck = await stuckChats(scene, chats);
  // Answers come in order: what has none by now has lost it, unless the answer is just being sent.
  await untilAnswered(system, chats.flat(), sendingMs);
  watch.close();
  const once = repeats(await system.recorded(), "once");
  const messages = chats.flat();
  return {
    accepted: messages.length,
    answered: messages.filter((message) => answersTo(system, message).length > 0).length,
    ...tally(system, chats),
    foreign: messages.filter((message) => isForeign(system, message)).length,
    onceStarted: once.started,
    onceRepeated: once.repeated,
    stuck,
    flowing: timesOf(harms.flatMap((harm) => flowingAfter(messages, harm))),
    recovery: recoveryOf(messages, harms),
  };
}

/** Kills masters of Redis under load, so that replicas take over; then counts what became of the messages. */
export async function runFailover(options: FailoverOptions): Promise<FailoverReport> {
  const { settings, silenceMs } = options;
  const nodes = await (options.kind === "cluster"
    ? startRedisCluster({ settings, silenceMs, replicas: 1 })
    : startRedisSentinel({ settings, silenceMs }));
  try {
    const system = await startProcesses({
      redisUrl: nodes.url,
      workers: options.replicas,
      runners: options.replicas,
      ingresses: options.replicas,
      transport: "both",
      simulator: { retryDelaysMs: [300, 600, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000] },
      // An outcome that is lost with the end of its session is waited for up to the deadline of its call.
      config: { approvals: { unknownOutcome: "tell" }, limits: { toolWaitMs: 5_000 } },
    });
    const watch = watchAnswers(system);
    try {
      return await run({ system, watch, options }, nodes);
    } finally {
      watch.close();
      await system.close();
    }
  } finally {
    await nodes.stop();
  }
}
