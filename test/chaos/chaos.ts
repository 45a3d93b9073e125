import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { SimMessage } from "@larkline/simulator";
import { DeadLetters, SessionStore } from "@larkline/store";
import { closeRedis, connectRedis } from "@larkline/store/redis";
import { elementOf, isClosed, visibleAnswers } from "../system/answer.ts";
import {
  answersTo,
  repeats,
  tally,
  untilAnswered,
  write,
  type Written,
} from "../system/answers.ts";
import { decide, openQuestions } from "../system/approvals.ts";
import { obedientModel } from "../system/model-script.ts";
import { groupOf } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { watchAnswers, type Watched } from "./answer-watch.ts";
import {
  disasters,
  healedBy,
  startAgain,
  type DisasterName,
  type DisasterScene,
} from "./disasters.ts";
import { createModelWeather, weatherLimits } from "./model-weather.ts";
import { mountDisk } from "./small-disk.ts";
import { createRandom } from "./random.ts";
import { recoveryOf, type Harm, type Recovery } from "./recovery.ts";

export interface ChaosOptions {
  seed: number;
  /** How long people write and disasters happen, at most. */
  durationMs: number;
  /** After so many disasters it is over, too. Default: only time ends it. */
  disasters?: number;
  /** People, each in a chat of their own, with up to two messages without an answer. */
  chats: number;
  /** Groups of three in which one person's calls wait for a decision while the others write. */
  groups: number;
  workers: number;
  runners: number;
  ingresses: number;
  /** What happens, one after the other and again from the start. */
  plan: readonly DisasterName[];
  /** Messages that kill each worker that takes them up, spread over the run. Each ends as a dead letter. */
  poison: number;
  /** Pause between two disasters: half of it to one and a half times. */
  pauseMs: number;
  freezeMs: number;
  /** Pause between two clicks on a stop button, at most. */
  clickPauseMs: number;
  /** How long answers may take after the last message. */
  patienceMs: number;
  /** Where what the processes say is kept, one file for each; default: nowhere. */
  logDirectory?: string;
}

/** The delivery contract, counted. */
export interface ChaosReport {
  /** Acknowledged to the platform. */
  accepted: number;
  answered: number;
  lost: number;
  duplicated: number;
  misordered: number;
  /** Answered with something else than an answer: given up, a model that failed to the end. */
  failed: number;
  /** Messages that kill workers: written, and given up in the end. */
  poison: number;
  givenUp: number;
  /** Cards that were never closed. */
  leftOpen: number;
  /** Answers that were stopped by a click. */
  stopped: number;
  /** Questions in groups that were decided, and answers that others in the group got while one was open. */
  decided: number;
  meanwhile: number;
  onceStarted: number;
  onceRepeated: number;
  onceUnknown: number;
  pureRepeated: number;
  /** What the workers found left lying and took up. */
  healed: number;
  disasters: Record<string, number>;
  modelErrors: number;
  /** How soon answers came, and how soon after each kind of disaster. */
  recovery: Recovery;
  /** Some of those answers. */
  failedTexts: string[];
  /** What is known of messages without an answer. */
  unanswered: string[];
}

function textOf(key: string, random: ReturnType<typeof createRandom>): string {
  const kind = random.below(4);
  const lines = [
    random.pick([
      `m${key}`,
      `m${key} pause ${random.below(300)}`,
      `m${key} type ${random.below(40)}`,
    ]),
  ];
  if (kind === 1) lines.push(`call note_once {"key":"${key}","ms":${random.below(500)}}`);
  if (kind === 2) lines.push(`call note_pure {"key":"${key}","ms":${random.below(500)}}`);
  if (kind === 3) {
    lines.push(
      `call note_once {"key":"${key}a"}`,
      `call note_once {"key":"${key}b","ms":${random.below(200)}}`,
    );
  }
  return lines.join("\n");
}

const openAtOnce = 2;
const approvalTools = fileURLToPath(new URL("../fixtures/approval-tools.ts", import.meta.url));
const plainTools = fileURLToPath(new URL("../fixtures/recording-tools.ts", import.meta.url));
const poisonFixture = fileURLToPath(new URL("../fixtures/poison.mjs", import.meta.url));

/** One person writes until the run stops it. */
async function writeChat(
  { system, watch }: DisasterScene,
  chat: number,
  over: AbortSignal,
): Promise<Watched[]> {
  const random = createRandom(chat + 1);
  const person = system.person(`person ${chat}`);
  const written: Watched[] = [];
  for (let position = 0; !over.aborted; position += 1) {
    written.push(await watch.write(person, textOf(`${chat}-${position}`, random)));
    do await delay(random.below(200));
    while (
      !over.aborted &&
      written.filter(({ answeredMs }) => answeredMs === undefined).length >= openAtOnce
    );
  }
  return written;
}

/** What became of the questions in groups. */
interface Questions {
  decided: number;
  meanwhile: number;
}

/** How long a question stays open for the others to be answered meanwhile, at most. */
const longestQuestionMs = 10_000;

/** One person's calls need a decision; it is taken when another person has been answered meanwhile. */
async function decideIn(
  { system, watch }: DisasterScene,
  { chatId, asker, questions }: { chatId: string; asker: string; questions: Questions },
  closing: AbortSignal,
): Promise<void> {
  const answered = (): number =>
    watch
      .all()
      .filter(
        (message) =>
          message.chatId === chatId && message.openId !== asker && message.answeredMs !== undefined,
      ).length;
  while (!closing.aborted) {
    await delay(100, undefined, { signal: closing }).catch(() => undefined); // it is over
    const [card] = openQuestions(system, chatId);
    if (card === undefined) continue;
    const before = answered();
    const untilMs = performance.now() + longestQuestionMs;
    while (!closing.aborted && answered() === before && performance.now() < untilMs) {
      await delay(50);
    }
    // Clicked again as long as the card has its buttons.
    const click = decide(system, card, { openId: asker, wanted: { decision: "approve" } });
    const { toast } = await click.catch(() => ({ toast: undefined }));
    if (toast?.type !== "success") continue;
    questions.decided += 1;
    questions.meanwhile += answered() - before;
  }
}

/** Writes until the run stops it, one message after the other. */
async function writeInGroup(
  { watch }: DisasterScene,
  {
    person,
    textAt,
  }: { person: { openId: string; chatId: string }; textAt: (position: number) => string },
  over: AbortSignal,
): Promise<Watched[]> {
  const written: Watched[] = [];
  for (let position = 0; !over.aborted; position += 1) {
    const message = await watch.write({ ...person, mention: true }, textAt(position));
    written.push(message);
    do await delay(200);
    while (!over.aborted && message.answeredMs === undefined);
  }
  return written;
}

function startGroup(
  scene: DisasterScene,
  group: number,
  over: AbortSignal,
): { chatId: string; asker: string; written: Promise<Watched[]> } {
  const { chatId, people } = groupOf(scene.system, ["Ann", "Bob", "Cai"]);
  const random = createRandom(1_000 + group);
  const writing = people.map(async (person, at) => {
    const textAt = (position: number): string => {
      const key = `${group}${["a", "b", "c"][at] ?? ""}-${position}`;
      return at === 0 ? `m${key}\ncall ask_once {"key":"${key}"}` : textOf(key, random);
    };
    return await writeInGroup(scene, { person, textAt }, over);
  });
  const written = Promise.all(writing).then((each) => each.flat());
  return { chatId, asker: people[0]?.openId ?? "", written };
}

/** A person writes what kills every worker, each time in a chat of its own. */
async function writePoison(
  { system }: DisasterScene,
  options: ChaosOptions,
  over: AbortSignal,
): Promise<Written[]> {
  const written: Written[] = [];
  const pauseMs = options.durationMs / (options.poison + 1);
  while (written.length < options.poison && !over.aborted) {
    await delay(written.length === 0 ? Math.min(pauseMs, 3_000) : pauseMs, undefined, {
      signal: over,
    }).catch(
      () => undefined, // it is over
    );
    if (!over.aborted) {
      written.push(await write(system, system.person(`villain ${written.length}`), "poison-pill"));
    }
  }
  return written;
}

/** As a supervisor does: another worker takes the place of one that a message has killed. */
async function superviseWorkers(
  { system, expected }: DisasterScene,
  closing: AbortSignal,
): Promise<void> {
  while (!closing.aborted) {
    await delay(200, undefined, { signal: closing }).catch(() => undefined); // it is over
    for (const [at, worker] of system.workers.entries()) {
      const ended = await Promise.race([worker.exited, delay(0, undefined)]);
      if (closing.aborted || ended === undefined || expected.has(worker)) continue;
      expected.add(worker);
      system.workers[at] = await startAgain(system, "agent-worker");
    }
  }
}

interface Havoc {
  harms: Harm[];
  counts: Record<string, number>;
  healed: number;
}

/** One disaster after the other until it is over; those that last some time go on beside the next. */
async function wreak(
  scene: DisasterScene,
  options: ChaosOptions,
  over: AbortSignal,
): Promise<Havoc> {
  const { plan, pauseMs, disasters: most = Number.POSITIVE_INFINITY } = options;
  const havoc: Havoc = { harms: [], counts: {}, healed: 0 };
  const lasting: Promise<void>[] = [];
  const strike = async (name: DisasterName): Promise<void> => {
    const atMs = performance.now();
    const { what, healed = 0, overMs = performance.now() } = await disasters[name](scene);
    const label = what === undefined ? name : `${name} ${what}`;
    havoc.harms.push({ label, atMs, overMs });
    havoc.counts[label] = (havoc.counts[label] ?? 0) + 1;
    havoc.healed += healed;
  };
  for (let round = 0; round < most && !over.aborted; round += 1) {
    await delay(pauseMs / 2 + scene.random.below(pauseMs), undefined, { signal: over }).catch(
      () => undefined,
    );
    const name = plan[round % plan.length];
    if (over.aborted || name === undefined) break;
    // Only one thing at a time happens to Redis and to a whole side; what sleeps, sleeps beside the rest.
    if (name === "freeze") lasting.push(strike(name));
    else await strike(name);
  }
  await Promise.all(lasting);
  scene.system.feishu.faults.clear();
  return havoc;
}

function botMessages({ feishu }: ProcessSystem): SimMessage[] {
  return [...feishu.chats.keys()].flatMap((chatId) =>
    feishu.messages(chatId).filter(({ senderType }) => senderType === "app"),
  );
}

/** A person clicks on the stop button of some open card now and then; returns how many clicks stopped a turn. */
async function clickStops(
  system: ProcessSystem,
  options: ChaosOptions,
  over: AbortSignal,
): Promise<number> {
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

/** The states of conversations whose messages have no answer, to find the cause. */
async function storiesOf(
  { system }: DisasterScene,
  written: readonly Watched[],
): Promise<string[]> {
  const redis = connectRedis(system.redis.url);
  const store = new SessionStore({ redis, namespace: "larkline" });
  const letters = await new DeadLetters({ redis, namespace: "larkline" }).list(1_000);
  try {
    return await Promise.all(
      written.map(async (message) => {
        const session = `${system.appId}.${message.chatId}`;
        const summary = await store.summary(session);
        const shown = visibleAnswers(system.feishu, message).map(({ text, finished }) => ({
          text,
          finished,
        }));
        const unsent = (await store.outbox.lease(session))?.record;
        const cell = (await redis.keys(`*:h:${session}`))[0] ?? "";
        const history = await redis.lrange(cell, -6, -1);
        const seen = await redis.mget(
          ...(await redis.keys(`*:seen:${session}:*:${message.messageId}`)),
          "none",
        );
        return JSON.stringify({
          message,
          shown,
          summary,
          unsent,
          seen,
          letters: letters.filter((letter) => letter.session === session),
          history: history.map((one) => one.slice(0, 200)),
        });
      }),
    );
  } finally {
    await closeRedis(redis);
  }
}

/** Looked at while the system still stands. */
async function count(
  scene: DisasterScene,
  {
    written,
    poison,
    questions,
  }: { written: readonly Watched[][]; poison: readonly Written[]; questions: Questions },
  havoc: Havoc,
): Promise<ChaosReport> {
  const { system, watch, weather } = scene;
  const answers = written.flat().map((message) => answersTo(system, message));
  const texts = answers.flat().map(({ text }) => text);
  const recorded = await system.recorded();
  const once = repeats(recorded, "once");
  const unanswered = written.flat().filter((_, at) => answers[at]?.length === 0);
  const healed = await Promise.all(system.workers.map(async ({ url }) => await healedBy(url)));
  // In a group the name of the person comes first; the scripted model repeats what a resumed turn reads, too.
  const failed = texts.filter(
    (text) => !/^\[(?:\w+: )?m|^\[\[People have answered|^Stopped\.$/m.test(text),
  );
  return {
    accepted: answers.length,
    answered: answers.filter(({ length }) => length > 0).length,
    ...tally(system, written),
    failed: failed.length,
    failedTexts: failed.slice(0, 20),
    poison: poison.length,
    givenUp: poison.filter((message) =>
      answersTo(system, message).some(({ text }) => text.includes("given up")),
    ).length,
    leftOpen: botMessages(system).filter((message) => !isClosed(message)).length,
    stopped: texts.filter((text) => /^Stopped\.$/m.test(text)).length,
    ...questions,
    onceStarted: once.started,
    onceRepeated: once.repeated,
    onceUnknown: texts.filter((text) => /unknown/i.test(text)).length,
    pureRepeated: repeats(recorded, "pure").repeated,
    healed: healed.reduce((sum, each) => sum + each, havoc.healed),
    disasters: havoc.counts,
    modelErrors: weather.failed(),
    recovery: recoveryOf(watch.all(), havoc.harms),
    unanswered: await storiesOf(scene, unanswered),
  };
}

async function run(
  scene: DisasterScene,
  options: ChaosOptions,
): Promise<ChaosReport & { stopClicks: number }> {
  const { system, watch } = scene;
  const over = new AbortController();
  const ending = setTimeout(() => over.abort(), options.durationMs);
  const chats = Array.from(
    { length: options.chats },
    async (_, chat) => await writeChat(scene, chat, over.signal),
  );
  const groups = Array.from({ length: options.groups }, (_, group) =>
    startGroup(scene, group, over.signal),
  );
  const parts = [
    wreak(scene, options, over.signal).finally(() => over.abort()),
    Promise.all([...chats, ...groups.map(async ({ written }) => await written)]),
    clickStops(system, options, over.signal),
    writePoison(scene, options, over.signal),
  ] as const;
  const counted = new AbortController();
  const supervising = superviseWorkers(scene, counted.signal);
  const questions: Questions = { decided: 0, meanwhile: 0 };
  const deciding = groups.map(
    async (group) => await decideIn(scene, { ...group, questions }, counted.signal),
  );
  try {
    const [havoc, written, stopClicks, poison] = await Promise.all(parts).finally(() => {
      over.abort();
      clearTimeout(ending);
    });
    await untilAnswered(system, [...written.flat(), ...poison], options.patienceMs);
    watch.close();
    return { ...(await count(scene, { written, poison, questions }, havoc)), stopClicks };
  } finally {
    counted.abort();
    await Promise.all([supervising, ...deciding]);
  }
}

/** Messages are written while everything breaks; then it is counted what became of them. */
export async function runChaos(
  options: ChaosOptions,
): Promise<ChaosReport & { stopClicks: number }> {
  const random = createRandom(options.seed);
  const weather = createModelWeather(obedientModel, random);
  const { workers, runners, ingresses, freezeMs } = options;
  const disk = options.plan.includes("disk_full") ? await mountDisk() : undefined;
  const { logDirectory } = options;
  const system = await startProcesses({
    lines: true,
    ...(logDirectory === undefined ? {} : { logDirectory }),
    ...(disk === undefined ? {} : { redisDirectory: disk.path }),
    env: {
      NODE_OPTIONS: `--import=${poisonFixture}`,
      RUNNER_TOOLS: `${plainTools},${approvalTools}`,
    },
    workers,
    runners,
    ingresses,
    transport: "both",
    script: weather.script,
    // No person is there to decide about unknown outcomes.
    config: { approvals: { unknownOutcome: "tell", learnAfter: 0 }, limits: weatherLimits },
    // Delivered again for as long as anything here can last.
    simulator: {
      limits: "enforced",
      retryDelaysMs: [300, 600, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000],
    },
  });
  system.feishu.setDeliveryNoise({ duplicates: true, lostAcks: 2 * options.chats });
  const watch = watchAnswers(system);
  try {
    return await run(
      { system, watch, weather, random, freezeMs, disk, expected: new WeakSet() },
      options,
    );
  } finally {
    watch.close();
    await system.close();
    await disk?.remove();
  }
}
