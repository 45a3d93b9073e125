import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { answersTo, repeats, untilAnswered, write, type Written } from "../system/answers.ts";
import { decide, openQuestions } from "../system/approvals.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { killUntil } from "./attacks.ts";
import { createRandom } from "./random.ts";

export interface ApprovalChaosOptions {
  seed: number;
  chats: number;
  batchesPerChat: number;
  /** Pause between two kills: half of it to one and a half times. */
  pauseMs: number;
  /** How long answers may take after the last message. */
  patienceMs: number;
}

/** What became of batches of [plain, approval, plain, approval]. */
export interface ApprovalChaosReport {
  batches: number;
  answered: number;
  /** Answers that do not show exactly one result for each of the four calls. */
  incomplete: number;
  approved: number;
  rejected: number;
  /** Clicks that came second, among those sent twice at the same moment. */
  clicksRefused: number;
  /** Calls that ran although no person approved them, or more than once. */
  wrongRuns: number;
  /** Cards that still have buttons in the end. */
  buttonsLeft: number;
  /** Approved calls whose runner died while they ran. */
  unknown: number;
  kills: Record<string, number>;
}

const tools = fileURLToPath(new URL("../fixtures/approval-tools.ts", import.meta.url));
const plainTools = fileURLToPath(new URL("../fixtures/recording-tools.ts", import.meta.url));

interface Person {
  openId: string;
  chatId: string;
}

/** Which keys people have approved and rejected, as the toasts said. */
interface Decisions {
  approved: Set<string>;
  rejected: Set<string>;
  refused: number;
}

function batchText(key: string): string {
  return [
    `b${key}`,
    `call note_pure {"key":"${key}p"}`,
    `call ask_once {"key":"${key}a","ms":50}`,
    `call note_once {"key":"${key}q"}`,
    `call ask_once {"key":"${key}b"}`,
  ].join("\n");
}

function keyOn(card: unknown): string {
  return /\\?"key\\?":\s*\\?"([^"\\]+)/.exec(JSON.stringify(card))?.[1] ?? "";
}

/** Decides whatever is asked in a chat, mostly with two clicks at the same moment. */
async function decideAll(
  system: ProcessSystem,
  { openId, chatId }: Person,
  {
    random,
    decisions,
    over,
  }: { random: ReturnType<typeof createRandom>; decisions: Decisions; over: AbortSignal },
): Promise<void> {
  while (!over.aborted) {
    await delay(30 + random.below(300));
    for (const card of openQuestions(system, chatId)) {
      const word = random.pick(["approve", "reject"] as const);
      const key = keyOn(card.shown);
      const click = async () => await decide(system, card, { openId, wanted: { decision: word } });
      const clicks = await Promise.all(random.below(3) > 0 ? [click(), click()] : [click()]);
      for (const { toast } of clicks) {
        if (toast?.content === "Approved") decisions.approved.add(key);
        else if (toast?.content === "Rejected") decisions.rejected.add(key);
        else decisions.refused += 1;
      }
    }
  }
}

async function writeChat(
  system: ProcessSystem,
  person: Person & { chat: number },
  options: ApprovalChaosOptions,
): Promise<Written[]> {
  const written: Written[] = [];
  for (let batch = 0; batch < options.batchesPerChat; batch += 1) {
    const message = await write(system, person, batchText(`${person.chat}-${batch}-`));
    written.push(message);
    await untilAnswered(system, [message], options.patienceMs);
  }
  return written;
}

function resultsIn(text: string): number {
  return text.match(/\b(?:ok|failed):/g)?.length ?? 0;
}

/** Sends batches, decides and kills at random moments, then counts. */
export async function runApprovalChaos(
  options: ApprovalChaosOptions,
): Promise<ApprovalChaosReport> {
  const system = await startProcesses({
    workers: 2,
    runners: 2,
    ingresses: 2,
    env: { RUNNER_TOOLS: `${plainTools},${tools}` },
    config: { approvals: { unknownOutcome: "tell", maxDenials: 100, learnAfter: 0 } },
  });
  try {
    const over = new AbortController();
    const decisions: Decisions = { approved: new Set(), rejected: new Set(), refused: 0 };
    const people = Array.from({ length: options.chats }, (_, chat) =>
      system.person(`person ${chat}`),
    );
    const deciding = people.map(async (person, chat) => {
      await decideAll(system, person, {
        random: createRandom(options.seed + chat),
        decisions,
        over: over.signal,
      });
    });
    const killing = killUntil(
      system,
      {
        kinds: ["agent-worker", "tool-runner", "ingress"],
        pauseMs: options.pauseMs,
        random: createRandom(options.seed),
      },
      over.signal,
    );
    const chats = people.map(
      async (person, chat) => await writeChat(system, { ...person, chat }, options),
    );
    const written = (await Promise.all(chats).finally(() => over.abort())).flat();
    const [kills] = await Promise.all([killing, ...deciding]);
    const answers = written.map((message) => answersTo(system, message));
    const until = Date.now() + 60_000;
    const left = (): number =>
      people.reduce((sum, { chatId }) => sum + openQuestions(system, chatId).length, 0);
    while (left() > 0 && Date.now() < until) await delay(50);
    const recorded = await system.recorded();
    const asked = recorded
      .filter((line) => /^once .*[ab]$/.test(line))
      .map((line) => line.slice("once ".length));
    return {
      batches: written.length,
      answered: answers.filter(({ length }) => length === 1).length,
      incomplete: answers.filter(([answer]) => answer === undefined || resultsIn(answer.text) !== 4)
        .length,
      approved: decisions.approved.size,
      rejected: decisions.rejected.size,
      clicksRefused: decisions.refused,
      wrongRuns:
        repeats(recorded, "once").repeated +
        asked.filter((key) => decisions.rejected.has(key)).length,
      buttonsLeft: left(),
      unknown: answers.flat().filter(({ text }) => /outcome unknown|is unknown/i.test(text)).length,
      kills,
    };
  } finally {
    await system.close();
  }
}
