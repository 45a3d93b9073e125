import { messageStop, toolCallDelta, type LlmBackend, type ModelRequest } from "@larkline/model";
import { childSessionOf, textOf, turnIdOf, type Message, type ModelChunk } from "@larkline/protocol";
import { expect, it } from "vitest";
import { checkEnds, repliedTo, runUntilCrash } from "./crash.fixture.ts";
import { append, checkPairs, crashing, inbound, newWorld, session, settle, type World } from "./turn-world.fixture.ts";

/*
 * Random runs of agents that work together: helpers in helpers, hand-overs, tools, questions whether a call may run, stops,
 * and processes that die at any write.
 */

const usage = { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };

/** What an agent is to call; its message is a list of these. */
interface Wanted {
  name: string;
  below?: Wanted[];
}

type Dice = (below: number) => number;

/** The same numbers for the same seed ("mulberry32"). */
function diceOf(seed: number): Dice {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

function someCalls(dice: Dice, depth: number): Wanted[] {
  return Array.from({ length: dice(3) + (depth === 0 ? 1 : 0) }, () => {
    const names = ["dig", "dig", "echo", "look", "pay", ...(depth === 0 ? ["transfer_to_expert"] : [])];
    const name = names[dice(names.length)] ?? "dig";
    return name === "dig" ? { name, below: someCalls(dice, depth + 1) } : { name };
  });
}

const obeying: LlmBackend = {
  async *stream({ messages }: ModelRequest): AsyncIterable<ModelChunk> {
    checkPairs(messages);
    const last = messages.at(-1);
    const asked = last?.role === "user" ? (JSON.parse(textOf(last)) as Wanted[]) : []; // written below
    if (asked.length === 0) {
      yield { type: "text_delta", text: "done" };
      return yield messageStop("end_turn", usage);
    }
    for (const [index, { name, below = [] }] of asked.entries()) {
      const given = name.startsWith("transfer") ? { reason: "r" } : { task: JSON.stringify(below) };
      yield toolCallDelta(index, { id: "", name, arguments: JSON.stringify(given) });
    }
    yield messageStop("tool_use", usage);
  },
};

const link = (agent: string) => ({ agent, as: "dig", timeoutMs: 600_000 });
const handoffs = [{ agent: "expert", context: "all" }];
const differences = {
  backend: obeying,
  configured: {
    agents: {
      default: { handoffs },
      expert: { tools: ["look"], handoffs: [{ agent: "default", context: "all" }] },
      digger: { tools: ["look", "echo", "pay"], helpers: [link("deeper")] },
      deeper: { tools: ["look", "echo", "pay"], helpers: [link("deepest")] },
      deepest: { tools: ["echo"] },
    },
  },
  agent: { instructions: "default", helpers: [link("digger")] },
};

async function play(world: World, dice: Dice, messages: number): Promise<void> {
  world.word = ({ kind }) => (kind === "outcome" ? "abort" : dice(3) === 0 ? "reject" : "approve");
  for (let at = 1; at <= messages; at += 1) {
    await append(world, inbound(`om_${at}`, JSON.stringify(someCalls(dice, 0))));
    for (let crashes = dice(3); crashes > 0; crashes -= 1) {
      const when = dice(2) === 0 ? "before" : "after";
      await runUntilCrash(world, differences, crashing(world, 1 + dice(40), when));
      if (dice(4) === 0) {
        const stop = { turnId: turnIdOf(session, at), reason: "stopped" };
        const { wakeGen } = await world.store.cancel(session, stop);
        if (wakeGen !== undefined) world.wakes.push(wakeGen);
      }
    }
    await settle(world, differences);
  }
}

function answersIn(history: readonly Message[]): string[] {
  return history.flatMap(({ content }) =>
    content.flatMap((part) => (part.type === "tool_result" ? part.toolCallId : [])),
  );
}

/** Who had the word, record by record: it changes by a hand-over only. */
async function checkSpeakers({ events }: World): Promise<void> {
  let speaker: string | undefined;
  for (const { event, agent } of await events.read(session, 0, 10_000)) {
    if (event.type === "agent_changed") speaker = event.to;
    else if (event.type === "turn_start") {
      speaker ??= agent;
      expect(agent).toBe(speaker);
    }
  }
}

const first = process.env["PROPERTY_SEED"] === "random" ? Date.now() % 1_000_000 : 1;

it.each(Array.from({ length: 12 }, (_, at) => first + at))(
  "AT-11: whatever agents do together and whenever processes die, every call is answered once and every helper has one asker (%i)",
  async (seed) => {
    const dice = diceOf(seed);
    const world = newWorld();
    const messages = 1 + dice(3);
    const ran: string[] = [];
    const { outcomeOf } = world;
    world.outcomeOf = (job) => {
      ran.push(`${job.turnId} ${job.callId} ${job.attempt}`);
      return outcomeOf(job);
    };
    await play(world, dice, messages);
    const numbers = Array.from({ length: messages }, (_, at) => at + 1);
    await checkEnds(world, numbers);
    expect(await repliedTo(world)).toEqual(numbers.map((at) => `om_${at}`));
    expect(new Set(ran).size).toBe(ran.length);
    await checkSpeakers(world);
    expect(await world.store.childrenAtWork(session)).toEqual([]);
    const children = await world.store.children(session);
    const runs = new Set([
      ...numbers.map((at) => turnIdOf(session, at)),
      ...children.map((child) => turnIdOf(child.session, 1)),
    ]);
    expect(new Set(children.map((child) => child.session)).size).toBe(children.length);
    for (const child of children) {
      expect(runs).toContain(child.parentRunId);
      expect(child.session).toBe(childSessionOf(session, child.parentRunId, child.callId));
      const events = await world.events.read(child.session, 0, 10_000);
      expect(events.filter(({ event }) => event.type === "done" || event.type === "error")).toHaveLength(1);
      expect(new Set(events.map(({ agent }) => agent)).size).toBe(1);
    }
    for (const of of [session, ...children.map((child) => child.session)]) {
      const history = await world.store.history(of);
      checkPairs(history);
      const answers = answersIn(history);
      expect(new Set(answers).size).toBe(answers.length);
    }
  },
);
