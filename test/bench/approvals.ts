import { fileURLToPath } from "node:url";
import { write } from "../system/answers.ts";
import { decide, openQuestions, untilAsked } from "../system/approvals.ts";
import { answerTo } from "../system/sending.ts";
import { startProcesses, type ProcessSystem } from "../system/system.ts";
import { spread, type Spread } from "./measure.ts";

/** What it costs to ask a person. */
export interface ApprovalNumbers {
  name: string;
  turnsPerSecond: number;
  /** From the click to the answer of the callback; absent where no person is asked. */
  clickMs?: Spread;
  /** From the click to the answer of the turn. */
  resumedMs?: Spread;
}

const tools = ["recording-tools.ts", "approval-tools.ts"]
  .map((name) => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url)))
  .join(",");
const clicksAtOnce = 16;

interface Person {
  openId: string;
  chatId: string;
}

function peopleOf(system: ProcessSystem, count: number, prefix: string): Person[] {
  return Array.from({ length: count }, (_, index) => system.person(`${prefix} ${index}`));
}

async function plain(system: ProcessSystem, turns: number): Promise<ApprovalNumbers> {
  const people = peopleOf(system, turns, "plain");
  const startMs = performance.now();
  await Promise.all(
    people.map(async (person, index) => {
      await answerTo(
        system,
        await write(system, person, `p\ncall note_pure {"key":"p${index}"}`),
        120_000,
      );
    }),
  );
  return {
    name: "no person is asked",
    turnsPerSecond: (turns * 1_000) / (performance.now() - startMs),
  };
}

async function approved(system: ProcessSystem, turns: number): Promise<ApprovalNumbers> {
  const people = peopleOf(system, turns, "asked");
  const written = await Promise.all(
    people.map(
      async (person, index) => await write(system, person, `a\ncall ask_pure {"key":"a${index}"}`),
    ),
  );
  for (const { chatId } of people) await untilAsked(system, chatId);
  const clicks: number[] = [];
  const resumed: number[] = [];
  const queue = people.map((person, index) => ({ person, message: written[index] }));
  const startMs = performance.now();
  const lane = async (): Promise<void> => {
    for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
      const { person, message } = next;
      const [card] = openQuestions(system, person.chatId);
      if (card === undefined || message === undefined) throw new Error("nothing is asked");
      const clickMs = performance.now();
      await decide(system, card, { openId: person.openId, wanted: { decision: "approve" } });
      clicks.push(performance.now() - clickMs);
      await answerTo(system, message, 120_000);
      resumed.push(performance.now() - clickMs);
    }
  };
  await Promise.all(Array.from({ length: clicksAtOnce }, lane));
  return {
    name: `approved by click, ${clicksAtOnce} at once`,
    turnsPerSecond: (turns * 1_000) / (performance.now() - startMs),
    clickMs: spread(clicks),
    resumedMs: spread(resumed),
  };
}

/** The same turns with and without a person in between. */
export async function measureApprovals(turns: number): Promise<ApprovalNumbers[]> {
  const system = await startProcesses({
    env: { LOG_LEVEL: "error", RUNNER_TOOLS: tools },
    config: {
      agents: { default: { reply: "text" } },
      feishu: { rateLimits: false },
      approvals: { learnAfter: 0 },
    },
  });
  try {
    await plain(system, turns); // every process runs compiled code from then on
    return [await plain(system, turns), await approved(system, turns)];
  } finally {
    await system.close();
  }
}
