import type { ControlEntry } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import { describe, expect, it } from "vitest";
import {
  announcement,
  call,
  environment,
  eventsOf,
  failed,
  outcome,
  queued,
  startRun,
  step,
  type Run,
} from "./turn.fixture.ts";
import { afterControl, afterStep } from "./turn.ts";

const announcements = [
  announcement("weather"),
  announcement("mail", { effect: "once" }),
  announcement("label", { effect: "idempotent" }),
];
const tools = new Map(
  announcements.map((tool) => [tool.spec.name, { runner: "main", announcement: tool }]),
);
const { texts: _texts, ...env } = environment({ tools });

function cancelled(run: Run, reason = "stopped", before: ControlEntry[] = []): string {
  run.apply((turn) => afterControl(turn, [...before, { type: "cancel", reason }], env));
  if (run.next.do !== "finish") throw new Error("The turn is not over.");
  expect(run.next.reason).toBe("cancelled");
  return run.next.reply ?? "";
}

function busy(...names: string[]): Run {
  const calls = names.map((name, index) => call(`c${index}`, name));
  return startRun().apply((turn) => afterStep(turn, step("Working.", { calls }), env));
}

describe("a cancelled turn", () => {
  it.each([
    ["stopped", "Stopped.", "已停止。"],
    [
      "recalled",
      "The message was recalled, so I stopped working on it.",
      "消息已被撤回，处理已停止。",
    ],
    [
      "superseded",
      "A newer message arrived, so I stopped here and go on with that one.",
      "收到了新的消息，这一条已停止，接着处理新的消息。",
    ],
    ["cancelled", "Cancelled.", "已取消。"],
    ["whatever", "Stopped.", "已停止。"],
  ])("says why: %s", (reason, english, chinese) => {
    expect(cancelled(startRun(queued("hello")), reason)).toBe(english);
    expect(cancelled(startRun(queued("你好")), reason)).toBe(chinese);
  });

  it("says what had finished and what was broken off, by whether it can have taken effect", () => {
    const run = busy("weather", "weather", "mail", "weather", "label", "mail");
    expect(cancelled(run, "stopped", [outcome("c0"), outcome("c1"), failed("c2")])).toBe(
      [
        "Stopped.",
        "- Already finished: `weather` ×2",
        "- Ended in an error: `mail`",
        "- Broken off, may have taken effect, please check: `label`, `mail`",
        "- Broken off, without effect: `weather`",
      ].join("\n"),
    );
  });

  it("counts finished calls that are too long ago to be named", () => {
    const names = Array.from({ length: 22 }, () => "weather");
    const run = busy(...names, "mail");
    const done = names.map((_, index) => outcome(`c${index}`));
    expect(cancelled(run, "stopped", done)).toContain(
      "- Already finished: 2 earlier calls, `weather` ×20\n",
    );
  });

  it("keeps in history what the broken-off step had said, and the notice to the person", () => {
    const run = startRun().apply((turn) =>
      afterControl(turn, [{ type: "cancel", reason: "stopped" }], {
        ...env,
        live: { text: "It rai", thinking: "hm" },
      }),
    );
    expect(run.history.map(({ role }) => role)).toEqual(["user", "assistant"]);
    expect(run.history.map(textOf)).toEqual(["hello", "It rai\n\nStopped."]);
    expect(eventsOf(run, "done")[0]).toMatchObject({ reason: "cancelled", final: "It rai" });
  });

  it("ignores live text while calls are open: no step streams then", () => {
    const run = busy("mail").apply((turn) =>
      afterControl(turn, [{ type: "cancel", reason: "stopped" }], {
        ...env,
        live: { text: "stale", thinking: "" },
      }),
    );
    expect(run.history.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant"]);
    expect(JSON.stringify(run.history)).not.toContain("stale");
  });

  it("tells the model in each open call's result why it ended", () => {
    const run = busy("mail");
    cancelled(run, "recalled");
    expect(eventsOf(run, "tool_result").map(({ output }) => output)).toEqual([
      "tool_execution_error: cancelled: the user took the message back. If the call had started, it may have taken effect.",
    ]);
  });
});
