import { messageStop, toolCallDelta, type LlmBackend, type ModelRequest } from "@larkline/model";
import { childSessionOf, turnIdOf } from "@larkline/protocol";
import { textOf, type Message } from "@larkline/protocol/content";
import type { ModelChunk } from "@larkline/protocol/model-stream";
import { expect, it } from "vitest";
import { checkEnds, repliedTo, runUntilCrash } from "./crash.fixture.ts";
import {
  append,
  checkPairs,
  crashing,
  inbound,
  newWorld,
  session,
  settle,
  type Differences,
  type World,
} from "./turn-world.fixture.ts";

/*
 * Random runs of agents that work together: helpers in helpers, hand-overs, teams with their choices, also as helpers,
 * tools, questions to people and whether a call may run, stops, and processes that die at any write.
 */

const usage = { inputTokens: 1, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };

/** What an agent is to call; its message is a list of these. Each member of a team does all of them. */
interface Wanted {
  name: string;
  below?: Wanted[];
}

/** Agents that do what they are asked to, and a model that chooses who speaks, or rambles. */
type Script = (dice: Dice, refused: unknown[]) => LlmBackend;

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

const helperTools = ["dig", "confer"];

function someCalls(dice: Dice, depth: number): Wanted[] {
  return Array.from({ length: dice(3) + (depth === 0 ? 1 : 0) }, () => {
    const first = depth === 0 ? ["transfer_to_expert", "transfer_to_critic", "confer"] : [];
    const names = ["dig", "dig", "echo", "look", "pay", "ask_person", ...first];
    const name = names[dice(names.length)] ?? "dig";
    return helperTools.includes(name) ? { name, below: someCalls(dice, depth + 1) } : { name };
  });
}

function argumentsOf({ name, below = [] }: Wanted): object {
  if (name.startsWith("transfer")) return { reason: "r" };
  return name === "ask_person" ? { question: "Which?" } : { task: JSON.stringify(below) };
}

const members = ["writer", "critic", "judge"];

const obeying: Script = (dice, refused) => ({
  async *stream({
    messages,
    system = "",
    systemBlocks = [],
  }: ModelRequest): AsyncIterable<ModelChunk> {
    try {
      checkRequest(messages);
    } catch (error) {
      refused.push(error); // thrown here it would be a failure of the vendor, which a turn survives
    }
    const last = messages.at(-1);
    const chooses = [system, ...systemBlocks.map(({ text }) => text)]
      .join("\n")
      .includes("You choose who speaks");
    const task = messages.findLast(
      (message) => message.role === "user" && textOf(message).startsWith("["),
    );
    const asked =
      chooses || last?.role !== "user" || task === undefined ? [] : wantedIn(textOf(task));
    if (asked.length === 0) {
      yield { type: "text_delta", text: chooses ? (members[dice(5)] ?? "let me think") : "done" };
      return yield messageStop("end_turn", usage);
    }
    for (const [index, wanted] of asked.entries()) {
      yield toolCallDelta(index, {
        id: "",
        name: wanted.name,
        arguments: JSON.stringify(argumentsOf(wanted)),
      });
    }
    yield messageStop("tool_use", usage);
  },
});

/** What each of the three vendors asks of a request: the strictest rule of them. */
function checkRequest(messages: readonly Message[]): void {
  checkPairs(messages);
  expect(messages[0]?.role).toBe("user");
  expect(messages.at(-1)?.role).not.toBe("assistant");
  for (const [at, { role, content }] of messages.entries()) {
    if (role === "tool") expect(messages[at - 1]?.role).toBe("assistant");
    expect(content.length).toBeGreaterThan(0);
    for (const part of content) if (part.type === "text") expect(part.text.trim()).not.toBe("");
    expect(content.at(-1)?.type).not.toBe("thinking");
  }
  const uses = messages.flatMap(({ content }) =>
    content.flatMap((part) => (part.type === "tool_use" ? [part.id] : [])),
  );
  expect(new Set(uses).size).toBe(uses.length);
}

/** The list that a message begins with: what others have said may follow. */
function wantedIn(text: string): Wanted[] {
  return JSON.parse(text.split("\n", 1)[0] ?? "[]") as Wanted[]; // written below
}

const link = (agent: string, as = "dig") => ({ agent, as, timeoutMs: 600_000 });
const handoffs = [{ agent: "expert", context: "all" }];
const tools = ["look", "echo", "pay"];
const team = { members, end: { messages: 3 } };
const teams = {
  ordered: { ...team, select: "round_robin" },
  chosen: { ...team, select: "model" },
  handed: { ...team, select: "handoff" },
};
const houses = [undefined, ...Object.keys(teams)];

function housed(dice: Dice, refused: unknown[]): Differences {
  return {
    backend: obeying(dice, refused),
    configured: {
      agents: {
        default: { handoffs, questions: true },
        expert: { tools: ["look"], handoffs: [{ agent: "default", context: "all" }] },
        digger: { tools, questions: true, helpers: [link("deeper")] },
        deeper: { tools, helpers: [link("deepest")] },
        deepest: { tools: ["echo"], questions: true },
        writer: { tools: ["look"], questions: true, helpers: [link("deepest")] },
        critic: { tools: ["echo", "pay"] },
        judge: { tools: [] },
      },
      teams,
    },
    agent: { instructions: "default", helpers: [link("digger"), link("chosen", "confer")] },
  };
}

/** Returns the runs that a team had. */
async function play(world: World, dice: Dice, messages: number): Promise<Set<string>> {
  const ofTeams = new Set<string>();
  const refused: unknown[] = [];
  const differences = housed(dice, refused);
  world.word = ({ kind }) => {
    if (kind === "question") return dice(3) === 0 ? undefined : "answer";
    return kind === "outcome" ? "abort" : dice(3) === 0 ? "reject" : "approve";
  };
  for (let at = 1; at <= messages; at += 1) {
    const agent = houses[dice(houses.length)];
    const fields = agent === undefined ? {} : { agent };
    if (agent !== undefined) ofTeams.add(turnIdOf(session, at));
    await append(world, inbound(`om_${at}`, JSON.stringify(someCalls(dice, 0)), fields));
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
  expect(refused).toEqual([]);
  return ofTeams;
}

function answersIn(history: readonly Message[]): string[] {
  return history.flatMap(({ content }) =>
    content.flatMap((part) => (part.type === "tool_result" ? part.toolCallId : [])),
  );
}

/**
 * The agent that answered, record by record: it changes by a hand-over, or in a team by a choice, for one contribution each.
 * A
 * team leaves the session to whom it belonged.
 */
async function checkSpeakers(
  { events }: World,
  of: string,
  ofTeams: ReadonlySet<string>,
): Promise<void> {
  let holder: string | undefined;
  for (const [run, records] of Map.groupBy(
    await events.read(of, 0, 10_000),
    ({ runId }) => runId,
  )) {
    const isTeam = ofTeams.has(run);
    let speaker = isTeam ? undefined : holder;
    for (const { event, agent } of records) {
      if (event.type === "agent_changed") {
        if (isTeam) expect(members).toContain(event.to);
        if (speaker !== undefined) expect(event.from).toBe(speaker);
        speaker = event.to;
      } else if (event.type === "turn_start") {
        speaker ??= agent;
        expect(agent).toBe(speaker);
      }
    }
    if (!isTeam) holder = speaker;
    const choices = records.filter(({ event }) => event.type === "agent_changed").length;
    expect(choices).toBeLessThanOrEqual(isTeam ? 3 : 8);
  }
}

const first = process.env["PROPERTY_SEED"] === "random" ? Date.now() % 1_000_000 : 1;

it.each(Array.from({ length: 20 }, (_, at) => first + at))(
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
    const ofTeams = await play(world, dice, messages);
    const numbers = Array.from({ length: messages }, (_, at) => at + 1);
    await checkEnds(world, numbers);
    expect(await repliedTo(world)).toEqual(numbers.map((at) => `om_${at}`));
    expect(new Set(ran).size).toBe(ran.length);

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
      expect(
        events.filter(({ event }) => event.type === "done" || event.type === "error"),
      ).toHaveLength(1);
      if (child.agent === "chosen") ofTeams.add(turnIdOf(child.session, 1));
      else expect(new Set(events.map(({ agent }) => agent)).size).toBe(1);
    }
    for (const of of [session, ...children.map((child) => child.session)]) {
      await checkSpeakers(world, of, ofTeams);
      const history = await world.store.history(of);
      checkPairs(history);
      const answers = answersIn(history);
      expect(new Set(answers).size).toBe(answers.length);
    }
  },
);
