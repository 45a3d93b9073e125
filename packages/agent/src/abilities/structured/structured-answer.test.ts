import type { OutputForm } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import { describe, expect, it } from "vitest";
import { exhaustedText, noticeText } from "../../texts/index.ts";
import { isWhole } from "../../turn/context.ts";
import {
  call,
  cancel,
  environment,
  eventsOf,
  outcome,
  queued,
  startRun,
  step,
  type Run,
} from "../../turn/turn.fixture.ts";
import { absorb, afterControl, afterStep } from "../../turn/turn.ts";
import { runningView, type ViewOptions } from "../../turn/view.ts";

const schema = {
  type: "object",
  properties: { n: { type: "integer" }, list: {} },
  required: ["n"],
};

function formed(fields: Partial<OutputForm> = {}, maxIterations = 25) {
  return environment({
    known: { structured: { name: "count", schema, ...fields } },
    maxIterations,
  });
}

const env = formed();

function answered(
  run: Run,
  text: string,
  facts = env,
  stopReason: "end_turn" | "max_tokens" | "other" = "end_turn",
): Run {
  return run.apply((turn) => afterStep(turn, step(text, { stopReason }), facts));
}

function replyOf({ next }: Run): string | undefined {
  return next.do === "finish" ? next.reply : undefined;
}

describe("AT-21: an answer in a form of its own", () => {
  it.each([
    ["as it is", '{"n":1}'],
    ["in a code fence", '```json\n{"n":1}\n```'],
  ])("is the output of done when it fits, %s; the text stays what the model said", (_how, text) => {
    const run = answered(startRun(), text);
    const [done] = eventsOf(run, "done");
    expect(done).toMatchObject({ reason: "", final: text, output: { n: 1 }, outputName: "count" });
    expect(done).not.toHaveProperty("outputFormat");
    expect(replyOf(run)).toBe("- **n**: 1");
  });

  it.each([
    ["no JSON", "one", "not valid JSON"],
    ["another value", '{"n":"one"}', "n must be integer"],
    ["a fence that does not end", "```\n{", "not valid JSON"],
  ])("is reported to the model when it is %s, twice, and never in done", (_what, text, problem) => {
    const run = startRun();
    for (const asked of [1, 2]) {
      answered(run, text);
      expect(run.next).toEqual({ do: "model" });
      const told = run.history.at(-1);
      expect(told?.role === "user" && textOf(told)).toContain(problem);
      expect(isWhole(run.history.slice(0, 1), run.turn)).toBe(isWhole(run.history, run.turn));
      expect(run.turn.abilities).toEqual({ structured: asked });
    }
    answered(run, text);
    const [done] = eventsOf(run, "done");
    expect(done).toMatchObject({ reason: "output_invalid", final: text, turnCount: 3 });
    expect(done).not.toHaveProperty("output");
    expect(eventsOf(run, "warning").map(({ code }) => code)).toEqual(
      Array(3).fill("output_invalid"),
    );
    expect(run.events.map(({ type }) => type)).toEqual([
      ...[1, 2, 3].flatMap(() => ["turn_start", "text", "warning", "turn_end"]),
      "done",
    ]);
    expect(replyOf(run)).not.toContain("{");
    expect(replyOf(run)).toContain(noticeText("outputInvalid", "en"));
  });

  it("counts when its second try fits", () => {
    const run = answered(answered(startRun(), "one"), '{"n":2}');
    expect(eventsOf(run, "done")).toMatchObject([{ reason: "", output: { n: 2 }, turnCount: 2 }]);
    expect(run.history.map(({ role }) => role)).toEqual(["user", "assistant", "user", "assistant"]);
  });

  it("is asked for in the name of who wrote the message, in a group: both are deleted together", () => {
    const { seq, message } = queued();
    const run = answered(startRun({ seq, message: { ...message, chatType: "group" } }), "one");
    const [asked, , told] = run.history;
    expect(told).toMatchObject({ role: "user", sender: message.sender.id });
    expect(asked).toMatchObject({ sender: message.sender.id });
  });

  it("is not asked for again when it could not be checked: that says nothing about the answer", () => {
    const schemas = {
      check: () => ({ ok: false, error: "its check took longer than 1000 ms", isUnchecked: true }),
    };
    const run = answered(startRun(), '{"n":1}', { ...env, schemas } as typeof env);
    expect(eventsOf(run, "done")).toMatchObject([{ reason: "output_invalid", turnCount: 1 }]);
    expect(eventsOf(run, "warning")).toMatchObject([
      { message: expect.stringContaining("took longer than 1000 ms") },
    ]);
  });

  it("is not asked for again beyond the limit of steps", () => {
    const run = answered(startRun(), "one", formed({}, 1));
    expect(eventsOf(run, "done")).toMatchObject([{ reason: "output_invalid", turnCount: 1 }]);
  });

  it("is not looked for in an answer that was cut off, and not beside calls; people see no JSON of either", () => {
    const run = startRun().apply((turn) =>
      afterStep(turn, step('{"n"', { calls: [call("c1")] }), env),
    );
    expect(run.turn.shown?.text).toBe("");
    run.apply((turn) => afterControl(turn, [outcome("c1")], env));
    answered(run, '{"n":', env, "max_tokens");
    expect(eventsOf(run, "done")).toMatchObject([{ reason: "max_tokens" }]);
    expect(eventsOf(run, "warning")).toEqual([]);
    expect(replyOf(run)).toBe(noticeText("truncated", "en"));
  });

  it("is read where the model's stop says nothing", () => {
    const run = answered(startRun(), '{"n":3}', env, "other");
    expect(eventsOf(run, "done")).toMatchObject([{ reason: "", output: { n: 3 } }]);
  });
});

describe("what people see of an answer with fields", () => {
  const value = {
    n: 1,
    name: "Ann",
    ok: true,
    none: null,
    list: ["a", 2],
    rows: [{ a: 1 }, "b"],
    more: { deep: {} },
  };

  it("is a list of them, in the person's language, without a format", () => {
    const open = { schema: { type: "object" } };
    const text = JSON.stringify(value);
    expect(replyOf(answered(startRun(), text, formed(open)))).toBe(
      [
        "- **n**: 1",
        "- **name**: Ann",
        "- **ok**: yes",
        "- **none**: –",
        "- **list**: a, 2",
        "- **rows**:",
        "  - **a**: 1",
        "  - b",
        "- **more**:",
        "  - **deep**: –",
      ].join("\n"),
    );
    const chinese = answered(startRun(), '{"ok":false}', { ...formed(open), texts: "zh" });
    expect(replyOf(chinese)).toBe("- **ok**：否");
  });

  it("is the format where there is one, with its braces", () => {
    const facts = formed({
      schema: { type: "object" },
      format: "{{{name}}}: {list}, {rows}, {ok} {none}",
    });
    expect(replyOf(answered(startRun(), JSON.stringify(value), facts))).toBe(
      "{Ann}: a, 2, a: 1, b, yes –",
    );
  });

  it("is a list of what came, with a notice, where the answer does not fit to the end", () => {
    const run = startRun();
    for (let tries = 0; tries < 3; tries += 1) answered(run, '{"n":"one"}');
    expect(replyOf(run)).toBe(`- **n**: one\n\n${noticeText("outputInvalid", "en")}`);
  });

  it("is no JSON at the limit of steps, nor when it is stopped", () => {
    const bounded = formed({}, 1);
    const run = startRun().apply((turn) =>
      afterStep(turn, step('{"n":1}', { calls: [call("c1", "none")] }), bounded),
    );
    expect(replyOf(run)).toBe(exhaustedText);
    const live = { text: '{"n":', thinking: "" };
    const stopped = startRun().apply((turn) => afterControl(turn, [cancel], { ...env, live }));
    const options = {
      show: {},
      language: "en",
      nowMs: 1,
      model: "m",
      abilities: [],
      stoppable: false,
    } as unknown as ViewOptions;
    expect(runningView(stopped.turn, undefined, options).answer).toBe("");
  });
});

describe("a message with options of its own", () => {
  const { seq, message } = queued();
  const own = { ...message, needs: ["run-options"], output: { name: "count", schema } };

  it("makes a turn that only processes continue which know them, at each of its steps", () => {
    const run = startRun({ seq, message: own });
    expect(run.turn.needs).toEqual(["run-options"]);
    run.apply((turn) => afterStep(turn, step("", { calls: [call("c1")] }), env));
    expect(run.turn.needs).toEqual(["run-options", "held-step"]);
    run.apply((turn) => afterControl(turn, [outcome("c1")], env));
    expect(run.turn.needs).toEqual(["run-options"]);
    answered(run, "one");
    expect(run.turn).toMatchObject({ needs: ["run-options"], message: { output: own.output } });
  });

  it("neither joins a turn nor is joined", () => {
    const waiting = [{ seq: seq + 1, message: { ...own, id: "om_8" } }];
    const plain = startRun();
    expect(absorb(plain.turn, waiting, env).absorbed).toBeUndefined();
    const other = [{ seq: seq + 1, message: { ...message, id: "om_8" } }];
    expect(absorb(startRun({ seq, message: own }).turn, other, env).absorbed).toBeUndefined();
    expect(absorb(plain.turn, other, env).absorbed).toHaveLength(1);
  });
});
