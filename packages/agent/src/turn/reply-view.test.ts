import { parserOf } from "@larkline/protocol";
import type { ModelFailure } from "@larkline/protocol/model-stream";
import { ReplyView } from "@larkline/protocol/reply-view";
import { traceIdOf, traceparentOf } from "@larkline/protocol/trace";
import { describe, expect, it } from "vitest";
import { identity } from "../abilities/identity/identity.ts";
import type { LiveStep } from "./facts.ts";
import { noUse } from "./context.ts";
import {
  cancel,
  call,
  environment,
  failed,
  outcome,
  startRun,
  step,
  type Run,
} from "./turn.fixture.ts";
import { afterControl, afterStep } from "./turn.ts";
import {
  finalView,
  runningView,
  timeThinking,
  withAgentTitles,
  withThinking,
  type ViewOptions,
} from "./view.ts";

const everything = {
  thinking: true,
  tools: true,
  model: true,
  tokens: true,
  cost: true,
  seconds: true,
  trace: true,
};
const options: ViewOptions = {
  show: everything,
  language: "en",
  nowMs: 1_004_000,
  model: "Scripted",
  abilities: [],
  stoppable: true,
};
const env = environment();
const { message } = startRun().turn;
const traceId = traceIdOf(traceparentOf(message));
const parseView = parserOf(ReplyView);

function running(run: Run, live?: { text?: string; thinking?: string }): ReplyView {
  const view = runningView(
    run.turn,
    live === undefined ? undefined : { text: "", thinking: "", ...live },
    options,
  );
  expect(parseView(view)).toEqual({ ok: true, value: view });
  return view;
}

function final(run: Run, more: Partial<ViewOptions> = {}): ReplyView {
  if (run.next.do !== "finish") throw new Error("The turn is not over.");
  const { reply = "", reason } = run.next;
  const view = finalView(run.turn, { reply, reason }, { ...options, ...more });
  expect(parseView(view)).toEqual({ ok: true, value: view });
  return view;
}

function looking(calls = [call("c1"), call("c2", "clock")]): Run {
  return startRun().apply((turn) => afterStep(turn, step("Let me look.", { calls }), env));
}

function hear(run: Run, nowMs: number, ...entries: Parameters<typeof afterControl>[1]): Run {
  return run.apply((turn) => afterControl(turn, entries, { ...env, nowMs }));
}

describe("the view of a running turn", () => {
  it("is empty and stoppable before the model says anything", () => {
    expect(running(startRun())).toEqual({
      v: 1,
      language: "en",
      state: "running",
      thinking: "",
      tools: [],
      earlierTools: 0,
      answer: "",
      footer: {},
      stop: { session: "cli_app.oc_1", turnId: "cli_app.oc_1-7" },
    });
  });

  it("shows the step that streams behind the finished ones", () => {
    const run = hear(looking([call("c1")]), 1_000_000, outcome("c1"));
    expect(running(run).answer).toBe("Let me look.");
    expect(running(run, { text: " \n" }).answer).toBe("Let me look.");
    expect(running(run, { text: "It rains." }).answer).toBe("Let me look.\n\nIt rains.");
  });

  it("shows calls with state and elapsed time, in the order of the model", () => {
    const run = hear(looking(), 1_002_500, outcome("c2", { time: "12:00" }));
    expect(running(run).tools).toEqual([
      { id: "c1", name: "weather", state: "running", startedAtMs: 1_000_000 },
      {
        id: "c2",
        name: "clock",
        state: "done",
        startedAtMs: 1_000_000,
        elapsedMs: 2_500,
        output: '{"time":"12:00"}',
      },
    ]);
    hear(run, 1_003_000, failed("c1", "boom"));
    expect(
      running(run).tools.map(({ id, state, elapsedMs }) => ({ id, state, elapsedMs })),
    ).toEqual([
      { id: "c2", state: "done", elapsedMs: 2_500 },
      { id: "c1", state: "failed", elapsedMs: 3_000 },
    ]);
  });

  it("cuts outputs and thinking to size between characters", () => {
    const run = hear(looking([call("c1")]), 1_000_000, outcome("c1", `${"x".repeat(499)}😀`));
    expect(running(run).tools[0]?.output).toBe("x".repeat(499));
    const thinking = running(run, { thinking: `😀${"y".repeat(1_999)}` }).thinking;
    expect(thinking).toBe("y".repeat(1_999));
  });

  it("times the thinking of all steps, without what else the model says in between", () => {
    const live: LiveStep = { text: "", thinking: "hm" };
    const events = [
      ["thinking_delta", 1_000],
      ["thinking_delta", 3_000],
      ["text_delta", 4_000],
      ["text_delta", 9_000],
      ["thinking_delta", 10_000],
      ["tool_use", 12_500],
      ["tool_use", 20_000],
    ] as const;
    for (const [type, atMs] of events) timeThinking(live, { type }, atMs);
    expect(live.thinkingMs).toBe(5_500);
    const run = startRun();
    expect(runningView(run.turn, live, options).thinkingMs).toBe(5_500);
    const thought = withThinking(withThinking(run.turn, { parts: [], ...live }), { parts: [] });
    expect(runningView(thought, live, options).thinkingMs).toBe(11_000);
  });

  it("keeps the thinking of finished steps", () => {
    const thinking = { type: "thinking" as const, text: "hm" };
    const run = startRun().apply((turn) =>
      afterStep(turn, { ...step("", { calls: [call("c1")] }), parts: [thinking] }, env),
    );
    hear(run, 1_000_000, outcome("c1"));
    expect(running(run, { thinking: "so" }).thinking).toBe("hm\n\nso");
  });

  it("keeps the latest twenty finished calls and counts the earlier ones", () => {
    const calls = Array.from({ length: 23 }, (_, index) => call(`c${index}`));
    const run = looking(calls);
    expect(running(run).tools).toHaveLength(23);
    hear(run, 1_000_000, ...calls.map(({ id }) => outcome(id)));
    expect(running(run)).toMatchObject({ earlierTools: 3 });
    expect(running(run).tools.map(({ id }) => id)).toEqual(calls.slice(3).map(({ id }) => id));
  });

  it("says that the model is busy, when it is asked again, and which one is asked instead", () => {
    const note = (run: Run, live?: Partial<LiveStep>, more: Partial<ViewOptions> = {}) =>
      runningView(run.turn, live === undefined ? undefined : { text: "", thinking: "", ...live }, {
        ...options,
        ...more,
      }).footer.note;
    const retry = { code: "api_overloaded", tries: 1, atMs: options.nowMs + 3_600 };
    expect(note(startRun(), { retry })).toBe("The model is busy: try 2, again in about 4 s");
    expect(note(startRun(), { retry, text: "Half a" })).toBe(
      "The model is busy: try 2, again in about 4 s",
    );
    expect(note(startRun(), { retry: { ...retry, atMs: options.nowMs } })).toBe(
      "The model is busy: try 2",
    );
    expect(note(startRun(), { retry: { ...retry, next: "Other" } })).toBe(
      "The model is busy: Other is asked instead",
    );
    expect(note(startRun(), { retry: { ...retry, code: "stream_truncated" } })).toMatch(
      /^The model does not answer: /,
    );
    expect(note(startRun(), {})).toBeUndefined();
    const failure: ModelFailure = {
      type: "error",
      code: "api_rate_limit",
      message: "no",
      suggestion: "",
      retryable: true,
      partial: false,
      retryInMs: 9_000,
    };
    const use = { ...noUse, attempts: 3 };
    const late = startRun().apply((turn) => afterStep(turn, { ...step(""), failure, use }, env));
    expect(late.next).toEqual({ do: "wait" });
    expect(note(late)).toBe("The model is busy: try 4, again in about 5 s");
    expect(note(late, undefined, { language: "zh" })).toBe("模型繁忙：约 5 秒后进行第 4 次尝试");
    expect(note(late, { retry })).toBe("The model is busy: try 5, again in about 4 s");
    expect(note(late, { text: "It rains." })).toBeUndefined();
  });

  it("calls agents by their titles, wherever it names one", () => {
    const title = { zh: "评审", en: "Critic" };
    const base = running(looking([call("c1")]));
    const [shownTool] = base.tools;
    if (shownTool === undefined) throw new Error("no call is shown");
    const view: ReplyView = {
      ...base,
      tools: [
        { ...shownTool, helper: { agent: "critic", task: "read" } },
        { ...shownTool, helper: { agent: "other", task: "read" } },
      ],
      footer: { agent: "critic" },
      contributions: { list: [{ agent: "critic", text: "x" }], earlier: 0, speaker: "critic" },
    };
    const titled = withAgentTitles(view, (name) => (name === "critic" ? title : name));
    expect(titled).toEqual({
      ...view,
      tools: [
        { ...shownTool, helper: { agent: title, task: "read" } },
        { ...shownTool, helper: { agent: "other", task: "read" } },
      ],
      footer: { agent: title },
      contributions: { list: [{ agent: title, text: "x" }], earlier: 0, speaker: title },
    });
    expect(withAgentTitles(base, () => title)).toEqual(base);
  });

  it("leaves out what is switched off", () => {
    const show = {
      thinking: false,
      tools: false,
      model: false,
      tokens: false,
      cost: false,
      seconds: false,
      trace: false,
    };
    const run = looking();
    const quiet = runningView(
      run.turn,
      { text: "x", thinking: "hm" },
      { ...options, show, abilities: [], stoppable: false },
    );
    expect(quiet).toEqual({
      v: 1,
      language: "en",
      state: "running",
      thinking: "",
      tools: [],
      earlierTools: 0,
      answer: "Let me look.\n\nx",
      footer: {},
    });
  });
});

describe("the view of a finished turn", () => {
  it("ends with the reply after the texts of the earlier steps, and sums the turn up", () => {
    const run = hear(looking([call("c1")]), 1_000_000, outcome("c1"));
    run.apply((turn) => afterStep(turn, step("It rains."), env));
    expect(final(run)).toMatchObject({
      state: "answered",
      answer: "Let me look.\n\nIt rains.",
      tools: [{ id: "c1", state: "done" }],
      footer: {
        model: "Scripted",
        inputTokens: 200,
        outputTokens: 20,
        costUsd: 60,
        seconds: 4,
        traceId,
      },
    });
    expect(final(run).stop).toBeUndefined();
  });

  it("has no cost when prices are unknown and no figures that are switched off", () => {
    const free = environment({ model: { ...env.model, costUsd: () => 0 } });
    const run = startRun().apply((turn) => afterStep(turn, step("hi"), free));
    expect(final(run).footer).not.toHaveProperty("costUsd");
    const show = { ...everything, tokens: false, seconds: false };
    expect(final(run, { show }).footer).toEqual({ model: "Scripted", traceId });
  });

  it("tells what the deployment adds, and where the console is only beside a trace", () => {
    const run = startRun().apply((turn) => afterStep(turn, step("hi"), env));
    const currency = { code: "CNY", perUsd: 7 };
    const footer = { line: "generated by AI", consoleUrl: "https://console.example", currency };
    expect(final(run, { footer }).footer).toMatchObject(footer);
    const show = { ...everything, trace: false, cost: false };
    expect(final(run, { footer, show }).footer).toEqual(
      expect.not.objectContaining({ consoleUrl: expect.anything(), currency: expect.anything() }),
    );
  });

  it("offers another try of what has failed, more of what a limit has ended, and nothing else", () => {
    const head = startRun().turn;
    const reply = {
      channel: "feishu",
      app: "cli_app",
      chatId: "oc_1",
      messageId: "om_7",
      inThread: false,
    } as const;
    const turn = { ...head, message: { ...head.message, reply } };
    const offered = (reason: string) => finalView(turn, { reply: "x", reason }, options).again;
    expect(offered("rate_limited")).toEqual({
      wish: "retry",
      session: "cli_app.oc_1",
      turnId: "cli_app.oc_1-7",
      person: "ou_1",
      messageId: "om_7",
      chatId: "oc_1",
      chatType: "p2p",
      inThread: false,
    });
    for (const reason of ["max_tokens", "max_turns_reached"]) {
      expect(offered(reason)?.wish).toBe("continue");
    }
    const ended = ["", "refusal", "cancelled", "budget_exceeded"];
    const hopeless = ["api_auth_error", "api_bad_request", "context_overflow"];
    for (const reason of [...ended, ...hopeless]) expect(offered(reason)).toBeUndefined();
    expect(finalView(head, { reply: "x", reason: "rate_limited" }, options).again).toBeUndefined();
  });

  it("shows the last words before the step limit once", () => {
    const short = environment({ maxIterations: 2 });
    const run = startRun();
    for (const id of ["c1", "c2"]) {
      run.apply((turn) =>
        afterStep(turn, step(`Looking for ${id}.`, { calls: [call(id)] }), short),
      );
      run.apply((turn) => afterControl(turn, [outcome(id)], short));
    }
    expect(final(run)).toMatchObject({
      state: "answered",
      answer:
        "Looking for c1.\n\nLooking for c2.\n\nReached the maximum number of steps without completing the request.",
    });
    expect(final(run, { language: "zh" }).answer).toContain("已达到最大步数");
  });

  it("keeps what a failed step had said before the notice", () => {
    const failure: ModelFailure = {
      type: "error",
      code: "api_overloaded",
      message: "m",
      suggestion: "s",
      retryable: true,
      partial: true,
    };
    const run = startRun().apply((turn) => afterStep(turn, step("It ra", { failure }), env));
    expect(final(run).state).toBe("failed");
    expect(final(run).answer).toMatch(/^It ra\n\nSorry, /);
  });

  it("of a cancelled turn keeps the live text and marks broken-off calls", () => {
    const run = looking();
    hear(run, 1_001_000, outcome("c1"), cancel);
    expect(final(run)).toMatchObject({
      state: "stopped",
      tools: [
        { id: "c1", state: "done" },
        { id: "c2", state: "stopped", elapsedMs: 1_000 },
      ],
    });
    const live = { text: "It rai", thinking: "hm" };
    const broken = startRun().apply((turn) => afterControl(turn, [cancel], { ...env, live }));
    expect(final(broken)).toMatchObject({
      state: "stopped",
      answer: "It rai\n\nStopped.",
      thinking: "hm",
    });
  });
});

it("a group's card names the person whose permission a call waits for", () => {
  const wanting = looking([call("c1")]);
  const [waiting] = wanting.turn.calls;
  const views = (["group", "p2p"] as const).map((chatType) => {
    const inside = { ...wanting.turn.message, chatType, sender: { id: "ou_1", name: "Ann" } };
    const calls = [{ ...(waiting ?? call("c1")), state: "waiting_approval", askedBy: "identity" }];
    const turn = { ...wanting.turn, message: inside, calls } as Run["turn"];
    return runningView(turn, undefined, { ...options, abilities: [identity] }).tools;
  });
  expect(views.map(([shown]) => [shown?.state, shown?.permissionOf])).toEqual([
    ["waiting", "Ann"],
    ["waiting", undefined],
  ]);
});
