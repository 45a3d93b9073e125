import { parserOf, type ControlEntry, type QueuedMessage } from "@larkline/protocol";
import { Approval, settledStates, type SettledState } from "@larkline/protocol/approval";
import type { Message } from "@larkline/protocol/content";
import { isTerminal, type EngineEvent } from "@larkline/protocol/event";
import { stopReasons } from "@larkline/protocol/model-stream";
import type { ToolCall, ToolOutcome } from "@larkline/protocol/tool";
import { teamOfTurn, agentOfTurn, TurnState, type CallState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import { handedOverBy } from "../abilities/handover/handover.ts";
import { readChoice, speakerChosen, type TeamFacts } from "../abilities/team/team.ts";
import { withOtherUse } from "./step.ts";
import {
  compactedTransition,
  compactionPlan,
  conversationFor,
  noUse,
  signedBy,
  isOfTeam,
  authorOf,
} from "./context.ts";
import type { TurnEnvironment } from "./ability.ts";
import type { LiveStep, StepResult, NextAction, Transition } from "./facts.ts";
import { modelMessagesOf } from "./messages.ts";
import { attemptOf } from "./tool-call.ts";
import {
  decision,
  environment,
  passesOf,
  queued,
  step,
  teamOf,
  testModel,
  transfersOf,
  askingEnvironment,
  show,
} from "./turn.fixture.ts";
import {
  absorb,
  newTurn,
  startTurn,
  abandonTurn,
  afterControl,
  resumeTurn,
  afterStep,
} from "./turn.ts";
import { finalView, runningView, type ViewOptions } from "./view.ts";
import * as fc from "fast-check";

/*
 * Random conversations under random crashes. Every transition goes through JSON and the parser of
 * the protocol, as it would through Redis, and every input is frozen, so that a mutation throws.
 */

const parseTurn = parserOf(TurnState);
const parseApproval = parserOf(Approval);
const maxIterations = 3;

function frozen<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  Object.freeze(value);
  for (const inner of Object.values(value)) frozen(inner);
  return value;
}

type Move =
  | { do: "step"; step: StepResult }
  /** Outcomes of the calls at these positions, counted round the open batch; 99 is a stranger. */
  | { do: "deliver"; outcomes: { at: number; outcome: ToolOutcome }[] }
  /** Settles the approvals of the calls at these positions. */
  | { do: "decide"; decisions: { at: number; state: SettledState; genuine: boolean }[] }
  | { do: "crash" }
  /** With what the running step had said by then. */
  | { do: "cancel"; live: LiveStep }
  /** So many messages arrived meanwhile. */
  | { do: "absorb"; messages: number }
  | { do: "compact"; summary: string | undefined }
  /** What the model of a team says about the next speaker. */
  | { do: "choose"; said: string }
  | { do: "abandon" };

const wantedCall: fc.Arbitrary<ToolCall> = fc.record({
  id: fc.constantFrom("", "c1", "c2", "call_1_1_0", "a:b"),
  name: fc.constantFrom(
    "weather",
    "clock",
    "deploy",
    "deploy",
    "deploy",
    "charge",
    "charge",
    "erase",
    "nope",
    "",
    "transfer_to_expert",
    "transfer_to_expert",
    "transfer_to_default",
    "transfer_to_vault",
    "transfer_to_nobody",
    "transfer_to_writer",
    "transfer_to_critic",
    "transfer_to_critic",
    "transfer_to_judge",
    "ask_person",
    "ask_person",
  ),
  arguments: fc.constantFrom(
    '{"question":"?"}',
    "",
    "{}",
    '{"a":1}',
    '{"a":1}',
    "not json",
    "[1]",
    '{"reason":"r"}',
    '{"reason":"r"}',
  ),
});

const someThinking = fc.constantFrom<StepResult["parts"]>(
  [],
  [{ type: "thinking", text: "hm", providerMetadata: { signature: "s" } }],
);

const modelStep: fc.Arbitrary<StepResult> = fc
  .record({
    text: fc.constantFrom(
      "",
      " ",
      "let me look",
      "let me look",
      "> critic: APPROVED\n\nMe:",
      "APPROVED",
    ),
    calls: fc.array(wantedCall, { maxLength: 5 }),
    stopReason: fc.oneof(
      { weight: 6, arbitrary: fc.constant("tool_use" as const) },
      fc.constantFrom(...stopReasons),
    ),
    thinking: someThinking,
    fails: fc.integer({ min: 0, max: 15 }),
    inputTokens: fc.nat(1_000),
  })
  .map(({ text, calls, stopReason, thinking, fails, inputTokens }) => {
    const usage = { inputTokens, outputTokens: 1, cacheReadTokens: 0, cacheCreationTokens: 0 };
    const plain = step(text, { calls, stopReason, usage });
    const parts =
      inputTokens % 2 === 0 ? [...thinking, ...plain.parts] : [...plain.parts, ...thinking];
    const whole = { ...plain, parts };
    const failure = {
      type: "error",
      code: "api_overloaded",
      message: "m",
      suggestion: "s",
      retryable: true,
      partial: false,
    } as const;
    return fails === 0 ? { ...whole, failure } : whole;
  });

const toolOutcome: fc.Arbitrary<ToolOutcome> = fc.constantFrom<ToolOutcome[]>(
  { ok: true, result: "x".repeat(80) },
  { ok: true, result: { a: ["上海"] } },
  { ok: true, result: undefined },
  { ok: false, error: "boom" },
  { ok: false, error: "lost", unknown: true },
  { ok: false, error: "lost", unknown: true },
);

const move: fc.Arbitrary<Move> = fc.oneof(
  { weight: 8, arbitrary: modelStep.map((value): Move => ({ do: "step", step: value })) },
  {
    weight: 8,
    arbitrary: fc
      .array(fc.record({ at: fc.constantFrom(0, 1, 2, 3, 4, 99), outcome: toolOutcome }), {
        maxLength: 4,
      })
      .map((outcomes): Move => ({ do: "deliver", outcomes })),
  },
  {
    weight: 8,
    arbitrary: fc
      .array(
        fc.record({
          at: fc.constantFrom(0, 1, 2, 3, 4, 99),
          state: fc.constantFrom("approved", "retried", "approved", "retried", ...settledStates),
          genuine: fc.constantFrom(true, true, false),
        }),
        { minLength: 1, maxLength: 4 },
      )
      .map((decisions): Move => ({ do: "decide", decisions })),
  },
  { weight: 6, arbitrary: fc.constant<Move>({ do: "crash" }) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Move[]>(
      { do: "cancel", live: { text: "", thinking: "hm" } },
      { do: "cancel", live: { text: "let me lo", thinking: "" } },
      { do: "abandon" },
    ),
  },
  {
    weight: 5,
    arbitrary: fc
      .constantFrom("critic", "Writer.", "judge", "vault", "writer or critic", "")
      .map((said): Move => ({ do: "choose", said })),
  },
  {
    weight: 2,
    arbitrary: fc.integer({ min: 1, max: 3 }).map((messages): Move => ({ do: "absorb", messages })),
  },
  {
    weight: 2,
    arbitrary: fc
      .constantFrom("They talked.", undefined)
      .map((summary): Move => ({ do: "compact", summary })),
  },
);

interface World {
  env: TurnEnvironment;
  /** Who answers; absent: the agent `default`. */
  team: TeamFacts | undefined;
  /** Answers about the next speaker that were no use, in a row. */
  badChoices: number;
  turn: TurnState;
  /** Everything that was ever stored. */
  history: Message[];
  /** What models get to see. */
  context: Message[];
  events: EngineEvent[];
  next: NextAction;
  /** Attempts that were handed out. */
  handedOut: Set<string>;
  /** The entries of approvals that are settled, by id. */
  settled: Map<string, ControlEntry>;
  /** Ids of approvals by which people let something run. */
  allowed: Set<string>;
  /** Ids of all approvals that were asked for. */
  asked: Set<string>;
  modelSteps: number;
  /** Number of the next message. */
  seq: number;
  /** What the person saw last. */
  answer: string;
}

const viewOptions: ViewOptions = {
  show,
  language: "en",
  nowMs: 1_000_000,
  model: "m",
  abilities: [],
  stoppable: true,
};

function entriesOf(
  { turn }: World,
  outcomes: Extract<Move, { do: "deliver" }>["outcomes"],
): ControlEntry[] {
  return outcomes.map(({ at, outcome }) => {
    const known = callAt(turn, at);
    return {
      type: "outcome",
      callId: known === undefined ? "stranger" : attemptOf(known),
      outcome,
    };
  });
}

function callAt({ calls }: TurnState, at: number): CallState | undefined {
  return calls.length > 0 && at !== 99 ? calls[at % calls.length] : undefined;
}

/** As the store delivers them: each approval that was asked for is settled once, and delivered any number of times. */
function decisionsOf(
  world: World,
  decisions: Extract<Move, { do: "decide" }>["decisions"],
): ControlEntry[] {
  return decisions.map(({ at, state, genuine }) => {
    const known = callAt(world.turn, at);
    const settled = world.settled.get(known?.approvalId ?? "");
    if (settled !== undefined) return settled;
    const entry = decision(
      world.turn,
      known?.id ?? "stranger",
      genuine ? { state } : { state, argumentsHash: "0" },
    );
    const lets = known?.state === "waiting_approval" ? "approved" : "retried";
    if (known?.approvalId !== undefined) {
      world.settled.set(known.approvalId, entry);
      if (genuine && state === lets) world.allowed.add(known.approvalId);
    }
    return entry;
  });
}

function arrived({ seq }: World, count: number): QueuedMessage[] {
  return Array.from({ length: count }, (_, index) => frozen(queued("and this", seq + index)));
}

/** A frame of the card: it extends the one before. */
function see(world: World, live?: LiveStep): void {
  const { answer } = runningView(world.turn, live, viewOptions);
  expect(answer.startsWith(world.answer)).toBe(true);
  world.answer = answer;
}

function seeFinal({ turn, next, answer }: World): void {
  if (next.do !== "finish") return;
  const { reply = "", reason } = next;
  const last = finalView(turn, { reply, reason }, viewOptions);
  expect(last.answer.startsWith(answer)).toBe(true);
  // Cards say the fixed words of the step limit in the person's language.
  expect(last.answer.endsWith(reply.replace(/\[(Reached the maximum .*)\]$/, "$1"))).toBe(true);
  expect(last.tools.filter(({ state }) => state === "running" || state === "waiting")).toEqual([]);
  expect(last.tools.length + last.earlierTools).toBe(turn.called.ids.length);
}

/** As a worker has it in this moment. */
function environmentOf({ turn, team, env, context }: World): TurnEnvironment {
  const speaker = agentOfTurn(turn);
  const history = frozen([...context]);
  if (team === undefined) return { ...env, history, known: { handover: transfersOf(speaker) } };
  const transfers = passesOf(team, speaker);
  const limits = {
    ...env.limits,
    maxIterations: (teamOfTurn(turn)?.fromStep ?? 0) + maxIterations,
  };
  return { ...env, history, limits, known: { team, handover: transfers } };
}

/** What a worker would do with the move in this situation; undefined when it makes no sense there. */
function decide(world: World, wanted: Move): Transition | undefined {
  const { turn, team } = world;
  const now = environmentOf(world);
  switch (wanted.do) {
    case "step":
      if (world.next.do !== "model") return undefined;
      world.modelSteps += 1;
      see(world, { text: wanted.step.text.slice(0, 6), thinking: "" });
      see(world, { text: wanted.step.text, thinking: "" });
      return afterStep(turn, frozen(wanted.step), now);
    case "deliver":
      return afterControl(turn, frozen(entriesOf(world, wanted.outcomes)), now);
    case "decide":
      return afterControl(turn, frozen(decisionsOf(world, wanted.decisions)), now);
    case "crash":
      return resumeTurn(turn, now);
    case "cancel":
      if (world.next.do === "model") see(world, wanted.live);
      return afterControl(turn, [{ type: "cancel", reason: "stopped" }], {
        ...now,
        live: wanted.live,
      });
    case "absorb":
      return absorb(turn, arrived(world, wanted.messages), now);
    case "compact": {
      const seen = world.context.some(isOfTeam)
        ? world.context
        : conversationFor(agentOfTurn(turn), world.context);
      const joined = team === undefined ? 0 : turn.absorbed.length;
      const plan = compactionPlan(seen, {
        contextWindow: 1_000,
        maxOutputTokens: 100,
        force: true,
        joined,
      });
      if (world.next.do !== "model" || plan === undefined) return undefined;
      return compactedTransition(turn, plan, wanted.summary);
    }
    case "choose": {
      if (world.next.do !== "choose" || team === undefined) return undefined;
      world.turn = frozen(
        withOtherUse(turn, {
          ...noUse,
          inputTokens: 3,
          outputTokens: 1,
          costUsd: 0.5,
          attempts: 1,
        }),
      );
      const read = readChoice(turn, wanted.said, { team, tries: world.badChoices + 1 });
      world.badChoices += 1;
      if (!read.isFinal) return undefined;
      world.badChoices = 0;
      return speakerChosen(
        world.turn,
        { speaker: read.speaker, why: read.problem },
        { team, history: world.context },
      );
    }
    case "abandon":
      return abandonTurn(turn, now, "crashed");
  }
}

function save(world: World, transition: Transition, again = false): void {
  const stored: unknown = JSON.parse(JSON.stringify(transition.turn));
  const parsed = parseTurn(stored);
  expect(parsed).toEqual({ ok: true, value: transition.turn });
  if (!parsed.ok) throw new Error(parsed.error);
  if (teamOfTurn(parsed.value)?.said !== teamOfTurn(world.turn)?.said) world.answer = ""; // the answer is another contribution
  const said = signedBy(transition.history, {
    agent: agentOfTurn(world.turn),
    team: teamOfTurn(world.turn)?.name,
  });
  world.turn = frozen(parsed.value);
  world.history.push(...frozen(said));
  world.context.push(...said);
  cut(world, transition);
  world.events.push(...transition.events);
  world.next = transition.next;
  world.seq += transition.absorbed?.length ?? 0;
  checkQuestions(world, transition.asked ?? []);
  checkDispatch(world, again);
  if (world.next.do === "model" || world.next.do === "finish") {
    for (const messages of [world.history, world.context]) {
      checkHistory(messages);
      expect(modelMessagesOf(messages)).toBe(messages);
      for (const agent of new Set([agentOfTurn(world.turn), "critic"])) {
        const seen = conversationFor(agent, messages, teamOfTurn(world.turn)?.name);
        checkHistory(seen);
        expect(modelMessagesOf(seen)).toBe(seen);
        expect(seen[0]?.role).toBe("user");
        const isAsked = world.next.do === "model" && agent === agentOfTurn(world.turn);
        if (isAsked) expect(seen.at(-1)?.role).not.toBe("assistant");
      }
    }
  }
  if (world.next.do === "finish") seeFinal(world);
  else see(world);
}

/** Every message of the running turn survives a cut. */
function cut(world: World, { context }: Transition): void {
  if (context === undefined) return;
  const question = world.context.findLastIndex(({ content }) => isQuestion(content));
  expect(context.keep).toBeGreaterThanOrEqual(world.context.length - question);
  const { summary } = context;
  world.context = [
    ...(summary === undefined ? [] : [summary]),
    ...world.context.slice(-context.keep),
  ];
}

function isQuestion(content: Message["content"]): boolean {
  return content.some((part) => part.type === "text" && part.text === "hello");
}

/** Every call that waits has been asked about, once. */
function checkQuestions({ asked, turn }: World, approvals: readonly Approval[]): void {
  for (const approval of approvals) {
    expect(parseApproval(JSON.parse(JSON.stringify(approval)))).toEqual({
      ok: true,
      value: approval,
    });
    expect(asked.has(approval.id)).toBe(false);
    asked.add(approval.id);
  }
  for (const { state, approvalId = "" } of turn.calls) {
    expect(state.startsWith("waiting"), state).toBe(approvalId !== "");
    if (approvalId !== "") expect(asked.has(approvalId)).toBe(true);
  }
}

/** Only calls that may run and have no outcome are ever handed out, and an attempt twice only after a crash. */
function checkDispatch({ next, turn, handedOut, allowed }: World, again: boolean): void {
  if (next.do !== "tools") return;
  expect(next.calls.length).toBeGreaterThan(0);
  for (const handed of next.calls) {
    expect(handed).toEqual(turn.calls.find(({ id }) => id === handed.id));
    expect(handed).toMatchObject({ state: "running", deadlineMs: expect.any(Number) });
    expect(handed.outcome).toBeUndefined();
    const { authority, name, attempt = 1 } = handed;
    if (name === "deploy" || attempt > 1) {
      expect(authority?.by === "approval" && allowed.has(authority.id)).toBe(true);
    }
    expect(name).not.toBe("erase");
    expect(handedOut.has(attemptOf(handed)) && !again).toBe(false);
    handedOut.add(attemptOf(handed));
  }
}

/** The vendors' rules, written down once more, apart from the code under test. */
function checkHistory(history: readonly Message[]): void {
  const seen: string[] = [];
  for (const [index, message] of history.entries()) {
    expect(message.content.length).toBeGreaterThan(0);
    for (const part of message.content) {
      if (part.type === "text") expect(part.text.trim()).not.toBe("");
    }
    expect(message.content.at(-1)?.type).not.toBe("thinking");
    const uses = message.content.flatMap((part) => (part.type === "tool_use" ? [part.id] : []));
    const following = history[index + 1];
    const answers =
      following?.role === "tool" ? following.content.map(({ toolCallId }) => toolCallId) : [];
    if (message.role !== "tool") expect(answers.toSorted()).toEqual(uses.toSorted());
    if (message.role === "tool") expect(history[index - 1]?.role).toBe("assistant");
    seen.push(...uses);
  }
  expect(new Set(seen).size).toBe(seen.length);
}

/** One agent at a time answers: that agent makes each hand-over, whose result reports it. */
function checkSpeakers({ events, turn }: World): void {
  let speaker = "default";
  const told = new Map(
    events.flatMap((event) => (event.type === "tool_result" ? [[event.id, event]] : [])),
  );
  const changes = events.filter((event) => event.type === "agent_changed");
  for (const { from, to, callId } of changes) {
    expect(from).toBe(speaker);
    expect(["expert", "default"]).toContain(to);
    expect(told.get(callId)).toMatchObject({ isError: false, output: `Transferred to ${to}.` });
    speaker = to;
  }
  expect(agentOfTurn(turn)).toBe(speaker);
  expect(handedOverBy(turn)).toEqual(changes.map(({ from }) => from));
  expect(changes.length).toBeLessThanOrEqual(2);
  const made = [...told.values()].filter(({ output }) => output.startsWith("Transferred to"));
  expect(made).toHaveLength(changes.length);
}

/** Each choice is reported before its contribution, and the member that answers is the one that was chosen last. */
function checkTeam({ events, turn, team, context }: World): void {
  if (team === undefined) return;
  const known = team.members.flatMap(({ name, isAllowed }) => (isAllowed ? [name] : []));
  let speaker = "default";
  let hasBegun = false;
  for (const event of events) {
    if (event.type === "agent_changed") {
      expect(event).toMatchObject({ from: speaker, reason: "selected" });
      expect(known).toContain(event.to);
      expect(event.to).not.toBe(speaker);
      speaker = event.to;
    }
    hasBegun ||= event.type === "turn_start";
    if (hasBegun) expect(known).toContain(speaker);
  }
  expect(agentOfTurn(turn)).toBe(speaker);
  const choices = events.filter(({ type }) => type === "agent_changed").length;
  const said = teamOfTurn(turn)?.said ?? 0;
  expect([said, said + 1]).toContain(choices);
  expect(said).toBeLessThan(team.end.messages);
  for (const message of context) {
    if (isOfTeam(message)) expect([...known, "default"]).toContain(authorOf(message));
  }
}

function checkRun({ events, modelSteps, next, team, turn }: World): void {
  expect(events.filter(isTerminal)).toHaveLength(1);
  const last = events.at(-1);
  expect(last !== undefined && isTerminal(last)).toBe(true);
  expect(events.filter(({ type }) => type === "usage")).toEqual([]);
  expect(modelSteps).toBeLessThanOrEqual(
    maxIterations * (team === undefined ? 1 : team.end.messages),
  );
  const uses = events.flatMap((event) => (event.type === "tool_use" ? [event.id] : []));
  const outcomes = events.flatMap((event) => (event.type === "tool_result" ? [event.id] : []));
  expect(outcomes.toSorted()).toEqual(uses.toSorted());
  const starts = events.flatMap((event) => (event.type === "turn_start" ? [event.turnNumber] : []));
  expect(starts).toEqual(starts.map((_, index) => index + 1));
  const ends = events.filter((event) => event.type === "turn_end");
  expect(ends.map(({ turnNumber }) => turnNumber)).toEqual(starts.slice(0, ends.length));
  if (last !== undefined && isTerminal(last)) {
    expect(last.totalCacheReadTokens).toBe(
      ends.reduce((sum, end) => sum + (end.cacheReadTokens ?? 0), 0),
    );
    expect(last.totalCacheCreationTokens).toBe(
      ends.reduce((sum, end) => sum + (end.cacheCreationTokens ?? 0), 0),
    );
  }
  if (last?.type === "done") {
    const isCounted = teamOfTurn(turn)?.choosing !== true; // what a choice has used that led to nothing is in the totals alone
    if (isCounted) {
      expect(last.totalInputTokens).toBe(ends.reduce((sum, end) => sum + end.inputTokens, 0));
    }
    if (isCounted) expect(last.totalCostUsd).toBe(ends.reduce((sum, end) => sum + end.costUsd, 0));
    expect(next).toMatchObject({ reason: last.reason });
  }
  if (next.do === "finish") expect(next.reply?.trim()).not.toBe("");
}

function play(world: World, wanted: Move): void {
  if (world.next.do === "finish") return;
  const transition = decide(world, wanted);
  if (transition !== undefined) save(world, transition, wanted.do === "crash");
}

/** Brings the turn to its end: every call is answered, no person decides any more, the model says something. */
function drain(world: World): void {
  for (let guard = 0; world.next.do !== "finish" && guard < 60; guard++) {
    if (world.next.do === "model") {
      play(world, { do: "step", step: step("done") });
      continue;
    }
    if (world.next.do === "choose") {
      play(world, { do: "choose", said: "critic" });
      continue;
    }
    const places = world.turn.calls.map((_, at) => at);
    play(world, {
      do: "deliver",
      outcomes: places.map((at) => ({ at, outcome: { ok: true, result: 1 } })),
    });
    play(world, {
      do: "decide",
      decisions: places.map((at) => ({ at, state: "expired", genuine: true })),
    });
  }
  expect(world.next.do).toBe("finish");
}

/** A session between two turns. */
interface Session {
  seq: number;
  history: Message[];
  context: Message[];
}

function newSession(): Session {
  return { seq: 1, history: [], context: [] };
}

function playTurn(session: Session, moves: readonly Move[], team?: TeamFacts): void {
  const plain = environment({
    maxIterations,
    bounds: {
      maxCallsPerStep: 4,
      maxResultChars: 50,
      maxStepResultChars: 120,
      maxAbsorbed: 4,
      maxTransfers: 2,
    },
  });
  const env = frozen(askingEnvironment(plain));
  const head = frozen(queued("hello", session.seq));
  const start = startTurn({
    head,
    nowMs: env.nowMs,
    model: testModel,
    known: { team },
    abilities: env.abilities,
    texts: "en",
  });
  const { next } = start;
  const nothing = {
    handedOut: new Set<string>(),
    settled: new Map<string, ControlEntry>(),
    allowed: new Set<string>(),
    asked: new Set<string>(),
  };
  const world: World = {
    ...session,
    ...nothing,
    env,
    team,
    badChoices: 0,
    events: [],
    turn: newTurn(head, env.nowMs),
    next,
    modelSteps: 0,
    answer: "",
  };
  world.seq += 1;
  save(world, start);
  for (const wanted of moves) play(world, wanted);
  drain(world);
  checkRun(world);
  if (team === undefined) checkSpeakers(world);
  checkTeam(world);
  Object.assign(session, { seq: world.seq, history: world.history, context: world.context });
}

describe("a session under random steps, outcomes, decisions, duplicates, cancels, crashes, joining messages and compaction", () => {
  it("AL-27, AL-34, AL-39, AL-43, AL-44, AL-47, EE-2, EE-6, EE-9, EE-10, EE-11, SA-19: history stays valid, every call has one result, every run one terminal event and its limit of model steps, every answer only grows, one agent at a time answers", () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(move, { maxLength: 20 }), { minLength: 1, maxLength: 3 }),
        (turns) => {
          const session = newSession();
          for (const moves of turns) playTurn(session, moves);
        },
      ),
      { numRuns: 600 },
    );
  });

  it("a crash after every transition changes nothing but what is commanded again", () => {
    fc.assert(
      fc.property(fc.array(move, { maxLength: 20 }), (moves) => {
        const calm = moves.filter((wanted) => wanted.do !== "crash");
        const stormy = calm.flatMap((wanted): Move[] => [
          { do: "crash" },
          wanted,
          { do: "crash" },
          { do: "crash" },
        ]);
        const [quiet, loud] = [newSession(), newSession()];
        playTurn(quiet, calm);
        playTurn(loud, stormy);
        expect(loud).toEqual(quiet);
      }),
      { numRuns: 300 },
    );
  });
});

describe("a session in which a team and an agent answer in turn", () => {
  const team: fc.Arbitrary<TeamFacts | undefined> = fc.option(
    fc
      .record({
        select: fc.constantFrom("round_robin", "model", "handoff"),
        messages: fc.integer({ min: 1, max: 5 }),
        mention: fc.boolean(),
      })
      .map(({ select, messages, mention }) =>
        teamOf({
          select,
          end: { messages, ...(mention ? { mention: "APPROVED", from: ["critic"] } : {}) },
        }),
      ),
    { nil: undefined, freq: 5 },
  );
  const turns = fc.array(fc.tuple(team, fc.array(move, { maxLength: 25 })), {
    minLength: 1,
    maxLength: 3,
  });

  it("AT-17, AT-18: has one speaker at a time, answers each call once, and keeps a history that every member can be shown", () => {
    fc.assert(
      fc.property(turns, (all) => {
        const session = newSession();
        for (const [together, moves] of all) playTurn(session, moves, together);
      }),
      { numRuns: 150 },
    );
  });

  it("AT-17: repeats neither a choice nor a contribution when it crashes at every write", () => {
    fc.assert(
      fc.property(team, fc.array(move, { maxLength: 25 }), (together, moves) => {
        const calm = moves.filter((wanted) => wanted.do !== "crash");
        const stormy = calm.flatMap((wanted): Move[] => [{ do: "crash" }, wanted, { do: "crash" }]);
        const [quiet, loud] = [newSession(), newSession()];
        playTurn(quiet, calm, together);
        playTurn(loud, stormy, together);
        expect(loud).toEqual(quiet);
      }),
      { numRuns: 80 },
    );
  });
});

describe("any stored history", () => {
  const anyMessage: fc.Arbitrary<Message> = fc.oneof(
    fc.constant<Message>({ role: "user", content: [{ type: "text", text: "hello" }] }),
    fc
      .array(fc.constantFrom("c1", "c2", "c3", "text", "blank", "thinking"), { maxLength: 4 })
      .map((kinds): Message => ({ role: "assistant", content: kinds.map(assistantPart) })),
    fc.array(fc.constantFrom("c1", "c2", "c3"), { maxLength: 4 }).map((ids): Message => ({
      role: "tool",
      content: ids.map((toolCallId) => ({
        type: "tool_result",
        toolCallId,
        content: "r",
        isError: false,
      })),
    })),
  );

  it("is sent in a form that vendors take, and sending it again changes nothing", () => {
    fc.assert(
      fc.property(fc.array(anyMessage, { maxLength: 12 }), (history) => {
        const sent = modelMessagesOf(frozen(history));
        checkHistory(sent);
        expect(modelMessagesOf(sent)).toBe(sent);
      }),
      { numRuns: 1_000 },
    );
  });
});

function assistantPart(kind: string): Extract<Message, { role: "assistant" }>["content"][number] {
  if (kind === "text") return { type: "text", text: "t" };
  if (kind === "blank") return { type: "text", text: " " };
  if (kind === "thinking") return { type: "thinking", text: "hm" };
  return { type: "tool_use", id: kind, name: "weather", arguments: {} };
}
