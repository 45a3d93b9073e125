import { setTimeout as delay } from "node:timers/promises";
import type { ModelScript } from "@larkline/testkit";
import { killUntil, type Kills } from "../chaos/attacks.ts";
import { createRandom, type SeededRandom } from "../chaos/random.ts";
import { answersTo, write, type Written } from "../system/answers.ts";
import type { Writer } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";

// Many people at one bot, each with documents and tasks that only they may see. Processes die, people take their grants
// back, tokens end early and are refreshed by several processes at once: every call must run as the person who asked.

export interface PeopleOptions {
  seed: number;
  people: number;
  workers: number;
  runners: number;
  /** How long people write. */
  durationMs: number;
  /** Pause between two kills, and between two endings of grants or tokens: half of it to one and a half times. */
  killPauseMs: number;
  endPauseMs: number;
  /** How long answers may take after the last message. */
  patienceMs: number;
}

export interface PeopleReport {
  asked: number;
  answered: number;
  /** Answers that say something else than what their person has, or what was done for them. */
  wrong: number;
  /** Answers with, and changes by, another person or the bot. */
  foreign: number;
  /** Calls with a person's token, and calls of work tools as the bot. */
  callsAsPeople: number;
  callsAsBot: number;
  /** Links that people got, agreed to, and whose calls were answered. */
  consents: number;
  /** Of them those for what the person still grants the app: a grant was lost. */
  consentsAgain: number;
  revoked: number;
  expired: number;
  /** Requests for tokens: polls of consents among them. */
  refreshes: number;
  /** Calls that were cut off, and said to be. */
  unknown: number;
  /** Tasks that are there more than once. */
  doubled: number;
  kills: Kills;
  /** Some of the answers that were wrong, and of the messages that have none, or several. */
  wrongTexts: string[];
  notOnce: string[];
}

/** A person, and what only they have. */
interface Person extends Writer {
  name: string;
  title: string;
  /** Links that they have agreed to. */
  agreed: Set<string>;
  /** Links for what they had granted already. */
  again: number;
  /** They have agreed, and the platform is still asked for the tokens. */
  isAgreeing: boolean;
  /** Messages that were answered, and how many of them when their token was ended last. */
  done: number;
  endedAt: number;
  written: Written[];
}

/** Does what the last message says, and repeats the result. */
const script: ModelScript = ({ messages }) => {
  const at = messages.findLastIndex(({ role, results }) => role === "user" && results.length === 0);
  const results = messages.slice(at + 1).flatMap((message) => message.results);
  if (results.length > 0) {
    return { text: `done: ${results.map(({ content }) => content).join(" ")}` };
  }
  const [, tool = "", value = ""] = /(find|task) (\S+)/.exec(messages[at]?.text ?? "") ?? [];
  return tool === "task"
    ? { calls: [{ name: "create_task", arguments: { summary: value } }] }
    : { calls: [{ name: "find_documents", arguments: { query: "Launch" } }] };
};

/** The platform knows no person behind such a call. */
const refusedTokens = [99991668, 99991677];

/** Below the age at which a worker refreshes: 30 minutes before the end. */
const accessSeconds = 1_830;

export async function runPeople(options: PeopleOptions): Promise<PeopleReport> {
  const random = createRandom(options.seed);
  const system = await startProcesses({
    workers: options.workers,
    runners: options.runners,
    ingresses: 2,
    script,
    env: {
      GRANT_KEY: "a1".repeat(32),
      RUNNER_NAME: "feishu",
      RUNNER_TOOLS: "@larkline/feishu-tools",
    },
    config: {
      permissions: [{ tools: ["create_task"], do: "allow" }],
      approvals: { unknownOutcome: "tell" },
    },
  });
  try {
    system.feishu.grants.setAccessSeconds(accessSeconds);
    const people = Array.from({ length: options.people }, (_, at) => personOf(system, at));
    const calls = countCalls(system);
    const over = new AbortController();
    const ended = { revoked: 0, expired: 0 };
    const killing = killUntil(
      system,
      { kinds: ["agent-worker", "tool-runner", "ingress"], pauseMs: options.killPauseMs, random },
      over.signal,
    );
    const ending = endGrants(system, people, { ...options, random, ended }, over.signal);
    const stop = AbortSignal.timeout(options.durationMs);
    const living = people.map(async (person, at) => {
      await liveAs(system, person, { random: createRandom(options.seed + at), stop, options });
    });
    await Promise.all(living).finally(() => over.abort());
    await ending;
    return { ...judge(system, people), ...calls, ...ended, kills: await killing };
  } finally {
    await system.close();
  }
}

type CallCounts = Pick<PeopleReport, "callsAsPeople" | "callsAsBot" | "refreshes">;

/** Counts as the platform is called: it keeps the latest calls alone. */
function countCalls({ feishu }: ProcessSystem): CallCounts {
  const work = /^\/open-apis\/(?:task|suite|search|docx|wiki|bitable|calendar)\//;
  const counts: CallCounts = { callsAsPeople: 0, callsAsBot: 0, refreshes: 0 };
  feishu.on("apiCall", ({ path, person, code }) => {
    if (person !== undefined) counts.callsAsPeople += 1;
    else if (work.test(path) && !refusedTokens.includes(code)) counts.callsAsBot += 1;
    if (path.endsWith("/oauth/token")) counts.refreshes += 1;
  });
  return counts;
}

function personOf(system: ProcessSystem, at: number): Person {
  const name = `person-${at}-`;
  const title = `Launch ${name}`;
  const writer = system.person(name);
  system.feishu.work.docs.addDocument({ owner: writer.openId, title, markdown: "soon" });
  return {
    ...writer,
    name,
    title,
    agreed: new Set(),
    again: 0,
    isAgreeing: false,
    done: 0,
    endedAt: -2,
    written: [],
  };
}

/** Writes one message after the other, and agrees to what the platform asks meanwhile. */
async function liveAs(
  system: ProcessSystem,
  person: Person,
  { random, stop, options }: { random: SeededRandom; stop: AbortSignal; options: PeopleOptions },
): Promise<void> {
  await delay(random.below(3_000));
  for (let number = 0; !stop.aborted; number += 1) {
    const text = random.below(2) === 0 ? "find it" : `task ${person.name}t${number}.`;
    const written = await write(system, person, text);
    person.written.push(written);
    const untilMs = performance.now() + options.patienceMs;
    while (answersTo(system, written).length === 0 && performance.now() < untilMs) {
      agree(system, person);
      await delay(250);
    }
    person.isAgreeing = false;
    person.done += 1;
    await delay(random.below(4_000));
  }
}

/** Opens the newest links of the person's cards, as far as the platform still waits for an answer there. */
function agree(system: ProcessSystem, person: Person): void {
  for (const { link, isKnown } of agreeToLinks(system, person)) {
    person.agreed.add(link);
    person.isAgreeing = true;
    if (isKnown) person.again += 1;
  }
}

/** The links to which the person agrees now; `isKnown`: for what they grant the app already. */
export function agreeToLinks(
  { feishu }: ProcessSystem,
  { openId, chatId }: Writer,
): { link: string; isKnown: boolean }[] {
  const cards = feishu.messages(chatId).filter(({ senderType }) => senderType === "app");
  return cards.slice(-4).flatMap(({ card }) => {
    const link = /https?:[^"\\]*user_code=[^"\\]*/.exec(JSON.stringify(card?.json ?? ""))?.[0];
    const asked = feishu.grants.waiting.find((waiting) => waiting.link === link);
    if (link === undefined || asked === undefined) return [];
    const granted = feishu.grants.grantedTo(asked.appId, openId);
    feishu.grants.consent(link, openId);
    return [{ link, isKnown: asked.scopes.every((scope) => granted.includes(scope)) }];
  });
}

/** People take their grants back, and tokens end before their time. */
async function endGrants(
  { feishu, appId }: ProcessSystem,
  people: readonly Person[],
  {
    endPauseMs,
    random,
    ended,
  }: PeopleOptions & { random: SeededRandom; ended: { revoked: number; expired: number } },
  over: AbortSignal,
): Promise<void> {
  while (!over.aborted) {
    await delay(endPauseMs / 2 + random.below(endPauseMs), undefined, { signal: over }).catch(
      () => undefined, // it is over
    );
    const person = random.pick(people);
    if (over.aborted || feishu.grants.grantedTo(appId, person.openId).length === 0) continue;
    // What the platform does with a consent that is taken back before its tokens were fetched is not known.
    if (random.below(3) === 0 && !person.isAgreeing) {
      ended.revoked += 1;
      await feishu.grants.revoke(appId, person.openId, "user");
    } else if (person.done >= person.endedAt + 2) {
      // Not twice under one call: its second attempt is its last.
      person.endedAt = person.done;
      ended.expired += 1;
      feishu.grants.expireAccess(person.openId);
    }
  }
}

function judge(
  system: ProcessSystem,
  people: readonly Person[],
): Omit<PeopleReport, "revoked" | "expired" | "kills" | keyof CallCounts> {
  const { changes } = system.feishu.work;
  const tasks = changes.filter(({ kind }) => kind === "task.create");
  const nameIn = (text: string): string[] => text.match(/person-\d+-/g) ?? [];
  const answers = people.flatMap((person) =>
    person.written.map((written) => ({ person, written, answers: answersTo(system, written) })),
  );
  const texts = answers.flatMap((one) => one.answers.map(({ text }) => ({ ...one, text })));
  const isForeign = ({ person, text }: { person: Person; text: string }): boolean =>
    nameIn(text).some((name) => name !== person.name);
  const isUnknown = ({ text }: { text: string }): boolean => /unknown/.test(text);
  const made = new Set(tasks.map(({ content }) => /person-\d+-t\d+\./.exec(content)?.[0]));
  const isWrong = ({ person, written, text }: (typeof texts)[number]): boolean => {
    const task = /person-\d+-t\d+\./.exec(written.text)?.[0];
    if (task === undefined) return !text.includes(person.name);
    return !isUnknown({ text }) && !(text.includes("Created the task") && made.has(task));
  };
  const titles = tasks.map(({ content }) => /person-\d+-t\d+\./.exec(content)?.[0] ?? content);
  const byName = new Map(people.map((person) => [person.name, person]));
  const foreignTasks = tasks.filter(
    ({ by, content }) => byName.get(nameIn(content)[0] ?? "")?.openId !== by,
  );
  const sum = (count: (person: Person) => number): number =>
    people.reduce((all, person) => all + count(person), 0);
  return {
    asked: answers.length,
    answered: answers.filter((one) => one.answers.length === 1).length,
    wrong: texts.filter(isWrong).length,
    foreign: texts.filter(isForeign).length + foreignTasks.length,
    consents: sum(({ agreed }) => agreed.size),
    consentsAgain: sum(({ again }) => again),
    unknown: texts.filter(isUnknown).length,
    doubled: titles.length - new Set(titles).size,
    notOnce: answers
      .filter((one) => one.answers.length !== 1)
      .slice(0, 5)
      .map((one) => notOnceOf(system, one)),
    wrongTexts: texts
      .filter((one) => isWrong(one) || isForeign(one))
      .slice(0, 5)
      .map(({ text }) => text),
  };
}

/** A message that does not have one answer, and what the bot has written since. */
function notOnceOf(
  { feishu }: ProcessSystem,
  { written, answers }: { written: Written; answers: readonly { text: string }[] },
): string {
  const shown = feishu.messages(written.chatId);
  const at = shown.findIndex(({ messageId }) => messageId === written.messageId);
  const since = shown.slice(at).map(({ createdAt, senderType, text, parentId }) => {
    const when = new Date(createdAt).toISOString();
    return `${when} ${senderType} ${parentId === written.messageId ? "answers" : ""} ${text.slice(0, 200)}`;
  });
  return [`${written.messageId} ${written.text}: ${answers.length}`, ...since].join("\n  ");
}
