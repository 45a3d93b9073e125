import { setTimeout as delay } from "node:timers/promises";
import { SessionStore } from "@larkline/store";
import { closeRedis, connectRedis, type RedisConnection } from "@larkline/store/redis";
import {
  answersTo,
  repeats,
  tally,
  untilAnswered,
  write,
  type Written,
} from "../system/answers.ts";
import { decide, openQuestions, type AskedCard } from "../system/approvals.ts";
import { takeBack } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { groupOf, killUntil, type Kills, type Kind } from "./attacks.ts";
import { createRandom } from "./random.ts";

// Agents that work together while processes and Redis die and sleep: helpers three deep, some stopped and some with their
// message taken back, hand-overs, teams, questions, memories.

export interface TogetherOptions {
  seed: number;
  /** How long people write, unless `workerKills` is given. */
  durationMs: number;
  /** People only ask for helpers, and only workers die: so many, then it is over. */
  workerKills?: number;
  /** People for each kind of conversation. */
  chats: number;
  /** Pause between two kills: half of it to one and a half times. */
  pauseMs: number;
  freezeMs: number;
  /** How long answers, and what is below them, may take after the last message. */
  patienceMs: number;
}

/** What must never happen, counted. */
export interface TogetherFaults {
  lost: number;
  /** Messages with two answers, and questions that took two. */
  answeredTwice: number;
  childrenTwice: number;
  /** Children that have no root, or that still work when all roots have ended. */
  orphans: number;
  transfersRepeated: number;
  memoriesDoubled: number;
  onceRepeated: number;
}

export interface TogetherReport {
  faults: TogetherFaults;
  /** What has happened: without it the faults say nothing. */
  counts: Record<
    "messages" | "stops" | "recalls" | "children" | "transfers" | "questions" | "memories" | "once",
    number
  >;
  kills: Kills;
  freezes: number;
  /** What is known of messages without an answer and of children that still work. */
  evidence: string[];
}

const members = ["writer", "critic"];
const config = {
  agents: {
    default: {
      instructions: "desk",
      helpers: [{ agent: "researcher", as: "research" }],
      handoffs: ["expert"],
      questions: true,
    },
    expert: { instructions: "expert", handoffs: ["default"] },
    researcher: { instructions: "researcher", helpers: [{ agent: "reader", as: "read" }] },
    reader: { instructions: "reader", helpers: [{ agent: "checker", as: "check" }] },
    checker: { instructions: "checker" },
    writer: { instructions: "writer" },
    critic: { instructions: "critic" },
    remembering: { instructions: "remembering", memory: { person: "direct" } },
  },
  teams: { round: { members, select: "round_robin", end: { messages: 4 } } },
  // No person is there to decide about unknown outcomes.
  approvals: { unknownOutcome: "tell", learnAfter: 0 },
};

function call(tool: string, given: object): string {
  return `call ${tool} ${JSON.stringify(given)}`;
}

/** Two helpers, of which one has a helper that has a helper; that one's tool takes `ms`. */
function deepWork(key: string, ms: number): string {
  const note = call("note_once", { key, ms });
  const deep = call("read", {
    task: `${key} read\n${call("check", { task: `${key} check\n${note}` })}`,
  });
  const tasks = [`${key} deep\n${deep}`, `${key} other\n${call("note_once", { key: `${key}o` })}`];
  return [`m${key}`, ...tasks.map((task) => call("research", { task }))].join("\n");
}

/** What a person of each kind writes; `key` names the message. */
const texts = {
  helpers: (key: string) => deepWork(key, 50),
  stops: (key: string) => deepWork(key, 1_000),
  recalls: (key: string) => deepWork(key, 1_000),
  transfers: (key: string, position: number) =>
    `m${key}\n${call(`transfer_to_${position % 2 === 0 ? "expert" : "default"}`, { reason: "asked for" })}`,
  questions: (key: string) =>
    `m${key}\n${call("ask_person", { question: `${key}?`, choices: ["Blue", "Green"] })}`,
  teams: (key: string) => `m${key} pause 30`,
  memories: (key: string) =>
    `m${key}\n${call("remember", { text: `the fact ${key}`, about: "me" })}`,
} satisfies Record<string, (key: string, position: number) => string>;

type Conversation = keyof typeof texts;

const botOf: Partial<Record<Conversation, string>> = { teams: "team", memories: "remembering" };

interface Chat {
  bot: ProcessSystem;
  kind: Conversation;
  person: { openId: string; chatId: string };
  written: Written[];
  /** Messages that were taken back: no answer is due. */
  recalled: Written[];
}

/** One message after the other until it is over. */
async function writeChat(
  { bot, kind, person, written, recalled }: Chat,
  { name, seed, patienceMs }: { name: string; seed: number; patienceMs: number },
  over: AbortSignal,
): Promise<void> {
  const random = createRandom(seed);
  for (let position = 0; !over.aborted; position += 1) {
    const key = `${name}-${position}`;
    let message = await write(bot, person, texts[kind](key, position));
    if (kind === "stops" || kind === "recalls") await delay(random.below(1_200));
    if (kind === "stops") await write(bot, person, "/stop");
    if (kind === "recalls") {
      await takeBack(bot, message);
      recalled.push(message);
      message = await write(bot, person, `m${key} after it`);
    }
    written.push(message);
    await untilAnswered(bot, [message], patienceMs);
  }
}

/**
 * Answers every question with two clicks at once; returns how many clicks each card took, by message id: none where the
 * answer to the click was lost with the ingress that took it.
 */
async function answerQuestions(
  chats: readonly Chat[],
  over: AbortSignal,
): Promise<Map<string, number>> {
  const taken = new Map<string, number>();
  const answer = async ({ bot, person }: Chat, card: AskedCard): Promise<void> => {
    const { messageId } = card.message;
    const click = async () =>
      await decide(bot, card, { openId: person.openId, wanted: { choice: "Green" } });
    for (const { toast } of await Promise.all([click(), click()])) {
      taken.set(messageId, (taken.get(messageId) ?? 0) + (toast?.content === "Answered" ? 1 : 0));
    }
  };
  while (!over.aborted) {
    await delay(100);
    for (const chat of chats) {
      for (const card of openQuestions(chat.bot, chat.person.chatId)) await answer(chat, card);
    }
  }
  return taken;
}

const kinds: readonly Kind[] = ["agent-worker", "tool-runner", "ingress"];
const killed = [...kinds, "redis"] as const;

/** Processes stop where they are, and continue later; returns how many. */
async function freezeUntil(
  system: ProcessSystem,
  options: TogetherOptions,
  over: AbortSignal,
): Promise<number> {
  const random = createRandom(options.seed + 1);
  for (let count = 0; ; count += 1) {
    await delay(options.pauseMs + random.below(options.pauseMs), undefined, { signal: over }).catch(
      () => undefined,
    );
    if (over.aborted) return count;
    const victim = random.pick(groupOf(system, random.pick(kinds)));
    victim.signal("SIGSTOP");
    await delay(options.freezeMs);
    victim.signal("SIGCONT");
  }
}

/** Of equal things all but the first. */
function surplus(things: readonly string[]): number {
  return things.length - new Set(things).size;
}

/** What is below the roots, and what their histories say. */
async function lookBelow(redis: RedisConnection, chats: readonly Chat[], patienceMs: number) {
  const store = new SessionStore({ redis, namespace: "larkline" });
  const roots = chats.map(({ bot, person, kind }) => ({
    kind,
    session: `${bot.appId}.${person.chatId}`,
  }));
  const children = (
    await Promise.all(roots.map(async ({ session }) => await store.children(session)))
  ).flat();
  const known = new Set(children.map(({ session }) => session));
  const untilMs = performance.now() + patienceMs;
  const working = async (): Promise<string[]> => {
    const each = children.map(
      async ({ session }) => [session, await store.summary(session)] as const,
    );
    return (await Promise.all(each)).flatMap(([session, summary]) =>
      summary.state === "idle" ? [] : [JSON.stringify({ session, summary })],
    );
  };
  let left = await working();
  while (left.length > 0 && performance.now() < untilMs) {
    await delay(200);
    left = await working();
  }
  const strays = (await redis.keys("*:s:*~*")).filter(
    (key) => !known.has(key.slice(key.indexOf(":s:") + 3)),
  );
  // Tasks are all different: two children with the same one are one that was created twice. One that was stopped before
  // its first step has no history.
  const tasks = children.map(async ({ session }) =>
    (await store.history(session)).slice(0, 1).map(({ content }) => JSON.stringify(content)),
  );
  const transfers = roots.filter(({ kind }) => kind === "transfers");
  const made = transfers.map(async ({ session }) => {
    const history = await store.history(session);
    return history.flatMap((message, at) => {
      if (message.role !== "tool" || !JSON.stringify(message.content).includes("Transferred to")) {
        return [];
      }
      const asked = history.slice(0, at).findLast(({ role }) => role === "user");
      return [`${session} ${JSON.stringify(asked?.content)}`];
    });
  });
  return {
    children: children.length,
    tasks: (await Promise.all(tasks)).flat(),
    orphans: [...left, ...strays],
    transfers: (await Promise.all(made)).flat(),
  };
}

/** Texts of all memories that are stored. */
async function storedMemories(redis: RedisConnection): Promise<string[]> {
  const keys = await redis.keys("{larkline:memory:*}:of:*");
  return await Promise.all(keys.map(async (key) => (await redis.hget(key, "text")) ?? ""));
}

/** Conversations of every kind while processes are killed and stopped; then it is counted what became of them. */
export async function runTogetherChaos(options: TogetherOptions): Promise<TogetherReport> {
  const system = await startProcesses({
    workers: 3,
    runners: 2,
    ingresses: 2,
    config,
    bots: { team: { agent: "round" }, remembering: { agent: "remembering" } },
    // Delivered again for as long as anything here can last.
    simulator: { retryDelaysMs: [300, 600, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000] },
  });
  try {
    const { seed, workerKills, patienceMs } = options;
    const chats = (workerKills === undefined ? Object.keys(texts) : ["helpers"]).flatMap((name) =>
      Array.from({ length: options.chats }, (_, at): Chat => {
        const kind = name as Conversation; // a key of texts
        const bot = botOf[kind] === undefined ? system : system.botNamed(botOf[kind]);
        return { bot, kind, person: bot.person(`${name} ${at}`), written: [], recalled: [] };
      }),
    );
    const over = new AbortController();
    const counted = new AbortController();
    const victims =
      workerKills === undefined
        ? { kinds: killed }
        : { kinds: ["agent-worker"] as const, most: workerKills };
    const killing = killUntil(
      system,
      { ...victims, pauseMs: options.pauseMs, random: createRandom(seed) },
      over.signal,
    );
    const havoc = [killing, freezeUntil(system, options, over.signal)] as const;
    const asked = chats.filter(({ kind }) => kind === "questions");
    const answering = answerQuestions(asked, counted.signal);
    const time =
      workerKills === undefined ? delay(options.durationMs, undefined, { ref: false }) : killing;
    void time.catch(() => undefined).then(() => over.abort()); // who awaits `havoc` gets the error
    const writing = chats.map(async (chat, at) => {
      await writeChat(
        chat,
        { name: `${chat.kind}${at}`, seed: seed + at, patienceMs },
        over.signal,
      );
    });
    await Promise.all(writing).finally(() => {
      over.abort();
      counted.abort();
    });
    const [kills, freezes] = await Promise.all(havoc);
    const clicks = await answering;
    const redis = connectRedis(system.redis.url);
    try {
      const below = await lookBelow(redis, chats, patienceMs);
      const memories = await storedMemories(redis);
      const once = repeats(await system.recorded(), "once");
      const tallies = chats.map(({ bot, written }) => tally(bot, [written]));
      const takenBack = chats.map(({ bot, recalled }) => tally(bot, [recalled]));
      const sum = (values: readonly number[]): number =>
        values.reduce((all, value) => all + value, 0);
      const silent = chats.flatMap(({ bot, kind, written }) =>
        written
          .filter((one) => answersTo(bot, one).length === 0)
          .map((one) => JSON.stringify({ kind, ...one })),
      );
      return {
        faults: {
          lost: sum(tallies.map(({ lost }) => lost)),
          answeredTwice:
            sum([...tallies, ...takenBack].map(({ duplicated }) => duplicated)) +
            sum([...clicks.values()].map((count) => Math.max(0, count - 1))),
          childrenTwice: surplus(below.tasks),
          orphans: below.orphans.length,
          transfersRepeated: surplus(below.transfers),
          memoriesDoubled: surplus(memories),
          onceRepeated: once.repeated,
        },
        counts: {
          messages: sum(chats.map(({ written }) => written.length)),
          stops: sum(chats.map(({ kind, written }) => (kind === "stops" ? written.length : 0))),
          recalls: sum(chats.map(({ recalled }) => recalled.length)),
          children: below.children,
          transfers: below.transfers.length,
          questions: clicks.size,
          memories: memories.length,
          once: once.started,
        },
        kills,
        freezes,
        evidence: [...silent, ...below.orphans].slice(0, 20),
      };
    } finally {
      await closeRedis(redis);
    }
  } finally {
    await system.close();
  }
}

/** One line for each count. */
export function togetherTable({ faults, counts }: TogetherReport): string {
  const lines = Object.entries({ ...counts, ...faults }).map(
    ([name, count]) => `| ${name} | ${count} |`,
  );
  return ["| agents together | count |", "| --- | --- |", ...lines].join("\n");
}
