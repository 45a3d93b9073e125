import { createRandom, type SeededRandom } from "../chaos/random.ts";
import { openQuestions } from "../system/approvals.ts";
import { startCaller, type Requested } from "./callers.ts";
import { pause, sayingOf, type Said } from "./sayings.ts";
import { time } from "./time.ts";
import type { World } from "./world.ts";

/** A message that a person has written. */
export interface Written extends Said {
  chatId: string;
  openId: string;
  isGroup: boolean;
  /** Absent: the platform has not handed it over. */
  messageId?: string;
}

/** A click on a question. */
export interface Decision {
  atMs: number;
  chatId: string;
  openId: string;
  /** What the button says: `approve`, `reject`, `abort`. */
  word: string;
  /** The kind of toast that the person saw. */
  toast: string | undefined;
}

/** Everything that people did. */
export interface Actions {
  written: Written[];
  decisions: Decision[];
  /** What a program has asked for over HTTP. */
  requested: Requested[];
  /** Whether all have written all that they had to say. */
  isOver(): boolean;
}

interface Person {
  name: string;
  openId: string;
  chatId: string;
  isGroup: boolean;
}

/** People write to the bot, and decide what they are asked; a program may have runs of its own. */
export function startPeople(world: World, random: SeededRandom): Actions {
  const written: Written[] = [];
  const decisions: Decision[] = [];
  const requested: Requested[] = [];
  const { people: everyone, hasCaller } = peopleOf(world, random);
  let writing = everyone.length;
  if (hasCaller) {
    writing += 1;
    const own = createRandom(random.below(2 ** 31));
    void startCaller({ world, requested, at: everyone.length, random: own }).finally(
      () => (writing -= 1),
    );
  }
  for (const [at, person] of everyone.entries()) {
    const own = createRandom(random.below(2 ** 31));
    void write({ world, written, person, at, random: own }).finally(() => (writing -= 1));
  }
  const chats = [...new Set(everyone.map(({ chatId }) => chatId))];
  for (const chatId of chats) {
    const own = createRandom(random.below(2 ** 31));
    const people = everyone.filter((person) => person.chatId === chatId);
    void decideIn({ world, chatId, people, decisions, random: own });
  }
  return { written, decisions, requested, isOver: () => writing === 0 };
}

function peopleOf(
  { feishu, appId }: World,
  random: SeededRandom,
): { people: Person[]; hasCaller: boolean } {
  const alone = (name: string): Person => {
    const { openId } = feishu.addUser({ name });
    return {
      name,
      openId,
      isGroup: false,
      chatId: feishu.addChat({ type: "p2p", members: [openId, appId] }).chatId,
    };
  };
  const group = (names: readonly string[]): Person[] => {
    const people = names.map((name) => ({ name, openId: feishu.addUser({ name }).openId }));
    const { chatId } = feishu.addChat({
      type: "group",
      members: [...people.map(({ openId }) => openId), appId],
    });
    return people.map((person) => ({ ...person, chatId, isGroup: true }));
  };
  switch (random.below(4)) {
    case 0:
      return { people: [alone("Ann"), ...group(["Bob", "Cai"])], hasCaller: false };
    case 1:
      return { people: group(["Bob", "Cai"]), hasCaller: true };
    case 2:
      return { people: [alone("Ann"), alone("Dan")], hasCaller: false };
    default:
      return { people: [alone("Ann")], hasCaller: true };
  }
}

interface Writing {
  world: World;
  written: Written[];
  person: Person;
  at: number;
  random: SeededRandom;
}

/** The order that counts is that of acceptance: a person waits for it before the next message. */
async function write({ world, written, person, at, random }: Writing): Promise<void> {
  const count = 1 + random.below(person.isGroup ? 2 : 3);
  for (let position = 0; position < count; position += 1) {
    await pause(random.below(position === 0 ? 200 : 2_500));
    const { openId, chatId, isGroup } = person;
    const said = sayingOf(`${at}${position}`, random);
    const message: Written = { ...said, chatId, openId, isGroup };
    const { text } = said;
    written.push(message);
    const sent = await world.feishu.sendMessage({
      appId: world.appId,
      chatId,
      from: openId,
      text,
      mention: isGroup,
    });
    message.messageId = sent.messageId;
    message.isAccepted = (await sent.delivery).outcome === "acknowledged";
  }
}

interface Deciding {
  world: World;
  chatId: string;
  people: readonly Person[];
  decisions: Decision[];
  random: SeededRandom;
}

/** Now and then someone clicks on a question of the chat, not always the one who may. */
async function decideIn({ world, chatId, people, decisions, random }: Deciding): Promise<void> {
  for (;;) {
    await pause(300 + random.below(1_000));
    const open = openQuestions(
      { feishu: world.feishu } as Parameters<typeof openQuestions>[0],
      chatId,
    );
    if (open.length === 0) continue;
    const card = random.pick(open);
    const { openId } = random.pick(people);
    const words = card.values.map((value) => wordOf(value));
    // A call of unknown outcome is never run again here, so that every second run is a fault.
    const word = words.includes("abort") ? "abort" : random.pick(["approve", "approve", "reject"]);
    const value = card.values.find((each) => wordOf(each) === word);
    if (value === undefined) continue;
    const clicked = await world.feishu
      .click({ messageId: card.message.messageId, openId, value })
      .catch(() => ({ toast: undefined }));
    decisions.push({ atMs: time.now(), chatId, openId, word, toast: clicked.toast?.type });
  }
}

function wordOf({ decision, action }: Record<string, unknown>): string {
  return typeof decision === "string" ? decision : String(action);
}
