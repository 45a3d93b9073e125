import { describe, expect, it } from "vitest";
import {
  diagnose,
  refusalOf,
  toneOf,
  traceOutcome,
  type Diagnosis,
  type Standing,
  type TreeRow,
} from "./diagnosis.ts";
import type { MessageTrace } from "./message-trace.ts";
import {
  afterwards,
  appended,
  approval,
  callState,
  entry,
  standing,
  startMs,
  traceOf,
  turnId,
  turnWith,
} from "./trace-samples.fixture.ts";
import { durationText, refusalText, sentenceOf } from "./why-text.ts";

const nowMs = startMs + 41_000;

/** The reason, and what the page says. */
function said(trace: MessageTrace, stands?: Standing): [Diagnosis["is"], string] {
  const diagnosis = diagnose(trace, stands);
  expect(sentenceOf("zh", diagnosis, nowMs)).toMatch(/[。]$/);
  expect(sentenceOf("zh", diagnosis, nowMs)).not.toMatch(/undefined|NaN/);
  return [diagnosis.is, sentenceOf("en", diagnosis, nowMs)];
}

const claimed = entry("turn.claimed", { at: 20, data: { queuedMs: 20, tries: 0 } });
const step = entry("model.step", { at: 1_000, kind: "begin", span: "2", data: { model: "m-1" } });
const stepEnd = entry("model.step", { at: 3_000, kind: "end", span: "2", ms: 2_000 });
const ended = (outcome: string) => entry("turn.ended", { at: 3_100, data: { outcome } });

describe("a message that is in no session", () => {
  it("was not mentioned, or refused for another reason", () => {
    const refused = (reason: string) =>
      traceOf(entry("message.refused", { at: 2, data: { reason } }));
    expect(said(refused("not_mentioned"))).toEqual([
      "refused",
      "Ignored: the bot was not mentioned in this group message.",
    ]);
    expect(said(refused("late"))[1]).toContain("arrived too late");
    expect(said(refused("another_reason"))[1]).toBe("It was not taken: another_reason.");
  });

  it("could not be stored, or its ingress died before that", () => {
    const failed = traceOf(entry("message.refused", { at: 1_000, data: { reason: "failed" } }));
    expect(said(failed)).toEqual([
      "not_stored",
      "It was received 40.0 s ago but not stored. It was not acknowledged, so it is delivered again.",
    ]);
    expect(said(traceOf())[0]).toBe("not_stored");
  });

  it("a repeated delivery of a refused one changes nothing", () => {
    const reasons = ["too_long", "duplicate"].map((reason, at) =>
      entry("message.refused", { at, data: { reason } }),
    );
    expect(diagnose(traceOf(...reasons), undefined)).toEqual({ is: "refused", reason: "too_long" });
  });
});

describe("a message that waits in its session", () => {
  const trace = traceOf(appended);

  it("is behind others of its conversation", () => {
    const { summary, ...rest } = standing("running", { waiting: [3, 4] });
    const head = summary.head === undefined ? {} : { head: { ...summary.head, seq: 2 } };
    expect(said(trace, { ...rest, summary: { ...summary, ...head } })).toEqual([
      "behind",
      "It waits behind 2 messages of this conversation.",
    ]);
  });

  it("has no worker that lives, a queue that is paused, no free worker, or no wake-up", () => {
    const job = { state: "waiting", addedAtMs: startMs + 1_000 };
    expect(said(trace, standing("queued", { job, workers: 0 }))).toEqual([
      "no_worker",
      "Queued for 40.0 s: no worker is alive.",
    ]);
    expect(said(trace, standing("queued", { job, isPaused: true }))[0]).toBe("paused");
    expect(said(trace, standing("queued", { job }))[1]).toBe(
      "Queued for 40.0 s, until one of 2 workers is free.",
    );
    expect(said(trace, standing("queued", { job: undefined }))[0]).toBe("wake_lost");
    expect(said(trace, standing("idle"))[0]).toBe("wake_lost");
  });
});

describe("a message that is being answered", () => {
  it("has a model at work, or something else", () => {
    expect(said(traceOf(appended, claimed, step), standing("running"))).toEqual([
      "model",
      "The model m-1 has been answering for 40.0 s.",
    ]);
    expect(said(traceOf(appended, claimed, step, stepEnd), standing("running"))[0]).toBe("working");
  });

  const retried = entry("model.retried", {
    at: 2_000,
    data: {
      model: "m-1",
      code: "api_overloaded",
      attempt: 2,
      waitMs: 900,
      problem: "Overloaded",
      requestId: "req_1",
    },
  });

  it("has a model at work that has failed before in this step", () => {
    const trace = traceOf(appended, claimed, step, retried);
    expect(said(trace, standing("running"))).toEqual([
      "model",
      "The model m-1 has been answering for 40.0 s; this is try 2, after api_overloaded.",
    ]);
    const earlier = entry("model.retried", {
      at: 900,
      data: { model: "m-1", code: "api_overloaded", attempt: 2 },
    });
    expect(said(traceOf(appended, claimed, earlier, step), standing("running"))[1]).not.toContain(
      "try",
    );
  });

  it("waits for its next try, without a worker", () => {
    const used = {
      inputTokens: 0,
      outputTokens: 0,
      cacheReadTokens: 0,
      cacheCreationTokens: 0,
      costUsd: 0,
    };
    const putOffBy = (model: string, code: string) => ({
      atMs: nowMs + 20_000,
      sinceMs: startMs + 1_000,
      rounds: 1,
      askedWaitMs: 0,
      model,
      code,
      used: { ...used, attempts: 2, estimated: false },
    });
    const trace = traceOf(appended, claimed, step, retried);
    const waits = standing("suspended", { calls: [], putOff: putOffBy("m-1", "api_overloaded") });
    expect(said(trace, waits)).toEqual([
      "model_waits",
      "The model m-1 is overloaded (for 40.0 s); try 3 follows at 00:17:41 UTC, in 20.0 s.",
    ]);
    expect(sentenceOf("zh", diagnose(trace, waits), nowMs)).toBe(
      "模型 m-1 过载（已 40.0 秒），第 3 次尝试在 00:17:41 UTC，20.0 秒后。",
    );
    const limited = standing("suspended", { calls: [], putOff: putOffBy("m-1", "api_rate_limit") });
    expect(said(trace, limited)[1]).toContain("The model m-1 takes no more requests now");
    const other = standing("suspended", { calls: [], putOff: putOffBy("", "another_code") });
    expect(said(trace, other)[1]).toContain("The model cannot answer (another_code)");
  });

  it("has lost its worker in the middle of a model step", () => {
    const trace = traceOf(appended, claimed, step);
    for (const job of [undefined, { state: "waiting", addedAtMs: startMs }]) {
      const [is, text] = said(trace, standing("running", { job }));
      expect(is).toBe("worker_died");
      expect(text).toContain("gone in the middle of model.step, begun 40.0 s ago");
    }
  });

  it("waits for people, and for whom", () => {
    const calls = [
      callState({ id: "c0" }),
      callState({ state: "waiting_approval", approvalId: "a1" }),
    ];
    const approvals: Standing["approvals"] = [
      { approval: approval(), state: "pending", decisions: [] },
    ];
    expect(said(traceOf(appended), standing("suspended", { calls, approvals }))).toEqual([
      "approval",
      "The call deploy has waited for the approval of ou_boss, admins for 40.0 s; it expires in 59 min.",
    ]);
    // The wake-up is for another person, or for the decision.
    const job = { state: "waiting", addedAtMs: startMs };
    expect(
      said(traceOf(appended), standing("queued", { job, calls: calls.slice(1), approvals }))[0],
    ).toBe("approval");
    expect(said(traceOf(appended), standing("queued", { job, calls: calls.slice(1) }))[0]).toBe(
      "queued",
    );
  });

  it("waits for its helper, and what that one does", () => {
    const call = callState({
      runner: "(worker)",
      helper: { agent: "researcher", session: "cli_1.oc_1~a" },
    });
    const row = (level: number, session: string, more: Partial<TreeRow> = {}): TreeRow => ({
      level,
      child: {
        session,
        parentRunId: turnId,
        callId: "c1",
        as: "research",
        agent: "researcher",
        beganAtMs: startMs,
      },
      summary: standing("suspended").summary,
      approvals: [],
      below: 0,
      ...more,
    });
    const asks = (kind: "call" | "question"): Standing["approvals"] => [
      { approval: approval({ kind }), state: "pending", decisions: [] },
    ];
    const waits = (...helpers: TreeRow[]) => standing("suspended", { calls: [call], helpers });
    const own = row(1, "cli_1.oc_1~a");
    const text = (...helpers: TreeRow[]) => {
      const [is, words] = said(traceOf(appended), waits(...helpers));
      expect(is).toBe("helper");
      return words;
    };
    expect(text()).toBe("It has waited for its helper researcher for 40.0 s: it is at work.");
    expect(text(row(1, "cli_1.oc_1~b", { approvals: asks("call") }), own)).toContain(
      "it is at work",
    );
    expect(text({ ...own, summary: standing("queued").summary })).toContain(
      "it is in the queue for a worker.",
    );
    expect(text(own, row(2, "cli_1.oc_1~b", { approvals: asks("call") }))).toContain(
      "it waits for a person: approval of deploy.",
    );
    expect(text(own, row(1, "cli_1.oc_1~b", { approvals: asks("call") }))).toContain(
      "it is at work",
    );
    const question = waits({ ...own, approvals: asks("question") });
    expect(said(traceOf(appended), question)[1]).toContain("it waits for a person: a question.");
    expect(sentenceOf("zh", diagnose(traceOf(appended), question), nowMs)).toBe(
      "等待助手 researcher，已 40.0 秒：它在等人回答问题。",
    );
  });

  it("waits for people while others of the group are answered", () => {
    const { summary, ...rest } = standing("running", { waiting: [6] });
    const { head } = summary;
    if (head === undefined) throw new Error("no head");
    const calls = [callState({ state: "waiting_approval", approvalId: "a1" })];
    const other = { ...head, seq: 5 };
    const stands = {
      ...rest,
      summary: { ...summary, head: other, setAside: [{ head, turn: turnWith(calls) }] },
    };
    const approvals: Standing["approvals"] = [
      { approval: approval(), state: "pending", decisions: [] },
    ];
    const asked =
      "The call deploy has waited for the approval of ou_boss, admins for 40.0 s; it expires in 59 min.";
    expect(said(traceOf(appended), { ...stands, approvals })).toEqual([
      "approval",
      `${asked} Others of the group are answered meanwhile.`,
    ]);
    expect(said(traceOf(appended), stands)[0]).toBe("set_aside");
    // A later message of the same person, and of another one.
    expect(said(traceOf(appended), { ...stands, approvals, seq: 6 })).toEqual([
      "behind_own",
      `It waits behind an earlier message of the same person. ${asked}`,
    ]);
    expect(said(traceOf(appended), { ...stands, seq: 6 })[0]).toBe("behind_own");
    const others = { ...traceOf(appended), person: "ou_2" };
    expect(said(others, { ...stands, approvals, seq: 6 })[0]).toBe("behind");
  });

  it("waits for a runner that is not there, one that is busy, or a tool that runs", () => {
    const calls = [callState()];
    const trace = traceOf(appended);
    expect(said(trace, standing("suspended", { calls, runners: new Set() }))).toEqual([
      "no_runner",
      "The call deploy waits for the runner ops, which is not there (for 40.0 s, given up in 20.0 s).",
    ]);
    expect(said(trace, standing("suspended", { calls }))[0]).toBe("call_queued");
    const started = { calls: new Map([["c1", "started"]] as const), unsent: [] };
    expect(said(trace, standing("suspended", { calls, ledger: started }))[0]).toBe("call_running");
    // The ledger gets nothing about the start of a pure call.
    const ran = entry("tool.run", {
      at: 31_000,
      kind: "begin",
      span: "1",
      data: { call: "c1", tool: "deploy" },
    });
    expect(said(traceOf(appended, ran), standing("suspended", { calls }))).toEqual([
      "call_running",
      "The tool deploy has been running in the runner ops for 10.0 s.",
    ]);
  });
});

describe("a message whose turn is over", () => {
  const unsent = (id: string, problem?: string) => ({
    id,
    attempts: 2,
    createdAtMs: startMs + 3_000,
    ...(problem === undefined ? {} : { problem }),
  });
  const ledgerOf = (...replies: ReturnType<typeof unsent>[]) => ({
    calls: new Map(),
    unsent: replies,
    retryAtMs: nowMs + 5_000,
  });

  it("has an answer that the platform refuses, one that waits behind it, or one on its way", () => {
    const trace = traceOf(appended, ended("answered"));
    const refused = unsent(turnId, "target_gone 230011");
    expect(said(trace, afterwards({ ledger: ledgerOf(refused) }))).toEqual([
      "reply_refused",
      "The answer is there, but Feishu refuses it (target_gone 230011, tried 2 times); next try in 5.0 s.",
    ]);
    expect(
      said(
        trace,
        afterwards({ ledger: ledgerOf(unsent("other-3", "forbidden"), unsent(turnId)) }),
      )[1],
    ).toBe(
      "The answer is there and waits behind 1 reply (forbidden) not delivered yet; next try in 5.0 s.",
    );
    expect(said(trace, afterwards({ ledger: ledgerOf(unsent(turnId)) }))[0]).toBe("reply_waiting");
  });

  it("was given up at its delivery, unless it was sent again and arrived", () => {
    const gone = entry("reply.failed", {
      at: 4_000,
      data: { reason: "forbidden 230013", givenUp: true },
    });
    expect(said(traceOf(appended, ended("answered"), gone), afterwards())).toEqual([
      "given_up",
      "The answer is there, but its delivery was given up: forbidden 230013.",
    ]);
    const sent = entry("reply.sent", { at: 9_000 });
    expect(said(traceOf(appended, ended("answered"), gone, sent), afterwards())[0]).toBe(
      "answered",
    );
  });

  it("is answered, has failed, or was ended by a person", () => {
    const sent = entry("reply.sent", { at: 3_200, data: { attempts: 1 } });
    expect(said(traceOf(appended, ended("answered"), sent), afterwards())).toEqual([
      "answered",
      "Answered after 3.2 s.",
    ]);
    expect(said(traceOf(appended, ended("api_overloaded")), afterwards())[1]).toContain(
      "failed after 3.1 s with api_",
    );
    expect(said(traceOf(appended, ended("superseded")), afterwards())[1]).toBe(
      "Over after 3.1 s: a later message took its place.",
    );
  });

  it("says who has paused its agent, and since when, or that it was paused then", () => {
    const over = entry("turn.ended", {
      at: 3_100,
      data: { outcome: "agent_paused", agent: "sales" },
    });
    const pause = {
      what: "agent",
      name: "sales",
      by: "console:Ann",
      sinceMs: startMs - 19_000,
    } as const;
    const tool = { ...pause, what: "tool" } as const;
    expect(said(traceOf(appended, over), afterwards({ pauses: [tool, pause] }))).toEqual([
      "agent_paused",
      "Ann paused the agent sales at 00:16:21 UTC, 1 min ago; the reply says so.",
    ]);
    expect(said(traceOf(appended, over), afterwards({ pauses: [tool] }))).toEqual([
      "ended",
      "Over after 3.1 s: an operator had paused its agent.",
    ]);
    expect(traceOutcome(traceOf(appended, over))).toMatchObject({ is: "ended" });
  });

  it("is known by its events where its trace lost the end, and by nothing after a reset", () => {
    const done = {
      totalInputTokens: 0,
      totalOutputTokens: 0,
      totalCostUsd: 0,
      turnCount: 1,
      final: "",
    };
    const end = { type: "done", reason: "recalled", ...done } as const;
    expect(said(traceOf(appended), afterwards({ end }))[1]).toContain(
      "its sender took the message back",
    );
    expect(said(traceOf(appended), afterwards())[0]).toBe("forgotten");
  });
});

describe("what a vendor said", () => {
  const words = { problem: "Your credit balance is too low", requestId: "req_7" };
  const failedStep = entry("model.step", {
    at: 3_000,
    kind: "end",
    span: "2",
    ms: 2_000,
    failed: "api_auth_error",
    data: { model: "m-1", outcome: "api_auth_error", ...words },
  });
  const retry = (data: Record<string, string>) =>
    entry("model.retried", {
      at: 3_000,
      data: { model: "m-1", code: "api_overloaded", attempt: 1, ...data },
    });

  function refusal(trace: MessageTrace, stands: Standing) {
    return refusalOf(trace, diagnose(trace, stands));
  }

  it("stands beside a turn that has failed by it, with the id of the request", () => {
    const found = refusal(
      traceOf(appended, claimed, step, failedStep, ended("api_auth_error")),
      afterwards(),
    );
    expect(found).toEqual({ model: "m-1", ...words });
    if (found === undefined) return;
    expect(refusalText("en", found)).toBe(
      "The last call of the model m-1 failed: “Your credit balance is too low” (request id req_7).",
    );
    expect(refusalText("zh", found)).toBe(
      "模型 m-1 的最近一次调用失败：“Your credit balance is too low”（请求 ID：req_7）。",
    );
    expect(refusalText("en", { ...found, requestId: "" })).not.toContain("request id");
  });

  it("stands beside one that is asked again, now or later", () => {
    const again = retry({ problem: "Overloaded", requestId: "req_8" });
    expect(refusal(traceOf(appended, claimed, step, again), standing("running"))).toMatchObject({
      problem: "Overloaded",
      requestId: "req_8",
    });
  });

  it("is left out where a turn has failed by something else, or is answered", () => {
    const trace = traceOf(appended, claimed, step, failedStep, ended("internal_error"));
    expect(refusal(trace, afterwards())).toBeUndefined();
    const answered = traceOf(
      appended,
      claimed,
      step,
      retry({ problem: "Overloaded" }),
      stepEnd,
      ended("answered"),
    );
    expect(refusal(answered, afterwards())).toBeUndefined();
    expect(
      refusal(traceOf(appended, claimed, step, retry({})), standing("running")),
    ).toBeUndefined();
  });
});

it("a list says what became of a message as far as its trace knows", () => {
  expect(traceOutcome(traceOf(appended, claimed))).toBeUndefined();
  expect(traceOutcome(traceOf(appended, ended("answered")))).toEqual({ is: "answered", ms: 3_100 });
  const refused = traceOf(entry("message.refused", { at: 2, data: { reason: "empty" } }));
  expect(traceOutcome(refused)).toEqual({ is: "refused", reason: "empty" });
});

it("durations name no part that is nothing", () => {
  const texts = [3_540_000, 3_600_000, 7_500_000].map((ms) => durationText("en", ms));
  expect(texts).toEqual(["59 min", "1 h", "2 h 5 min"]);
  expect(durationText("zh", 7_200_000)).toBe("2 小时");
});

it("every reason has a tone", () => {
  expect(toneOf({ is: "answered", ms: 1 })).toBe("fine");
  expect(toneOf({ is: "behind", ahead: 1 })).toBe("waits");
  expect(toneOf({ is: "no_worker", sinceMs: 1 })).toBe("wrong");
});
