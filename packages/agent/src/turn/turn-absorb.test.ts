import type { InboundMessage, QueuedMessage } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import { describe, expect, it } from "vitest";
import { modelMessagesOf } from "./messages.ts";
import { call, environment, outcome, queued, startRun, step, type Run } from "./turn.fixture.ts";
import { absorb, afterControl, afterStep } from "./turn.ts";

const env = environment({ bounds: { maxAbsorbed: 3 } });

function waiting(seq: number, fields: Partial<InboundMessage> = {}): QueuedMessage {
  const { message } = queued(`message ${seq}`, seq);
  return { seq, message: { ...message, ...fields } };
}

function absorbedBy(run: Run, ...messages: QueuedMessage[]): number[] {
  const transition = absorb(run.turn, messages, env);
  run.apply(() => transition);
  return (transition.absorbed ?? []).map(({ seq }) => seq);
}

describe("messages that arrive while a turn runs", () => {
  it("become user messages of the turn before its next model step, in order", () => {
    const run = startRun();
    const transition = absorb(run.turn, [waiting(8), waiting(9)], env);
    expect(transition.absorbed).toMatchObject([
      { seq: 8, runId: "cli_app.oc_1-8", person: { parts: [{ type: "text", text: "message 8" }] } },
      { seq: 9, runId: "cli_app.oc_1-9" },
    ]);
    expect(transition.history.map(textOf)).toEqual(["message 8", "message 9"]);
    expect(transition.next).toEqual({ do: "model" });
  });

  it("AL-44: wait while a call is open and follow its result afterwards", () => {
    const run = startRun().apply((turn) =>
      afterStep(turn, step("", { calls: [call("c1"), call("c2")] }), env),
    );
    run.apply((turn) => afterControl(turn, [outcome("c1")], env));
    expect(absorb(run.turn, [waiting(8)], env)).toEqual({
      turn: run.turn,
      history: [],
      events: [],
      next: { do: "wait" },
    });
    run.apply((turn) => afterControl(turn, [outcome("c2")], env));
    expect(absorbedBy(run, waiting(8))).toEqual([8]);
    expect(run.history.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "user"]);
    expect(modelMessagesOf(run.history)).toBe(run.history);
  });

  it("change nothing when there are none", () => {
    const run = startRun();
    expect(absorb(run.turn, [], env)).toEqual({
      turn: run.turn,
      history: [],
      events: [],
      next: { do: "model" },
    });
  });

  it.each([
    ["a command", { command: { name: "new" as const, argument: "" } }],
    ["for another agent", { agent: "other" }],
    ["not complete", { references: { quotedId: "om_1" } }],
    ["one that continues a stored answer", { previousResponseId: "resp_1" }],
    ["of another person", { sender: { id: "ou_2" } }],
    [
      "answered elsewhere",
      {
        reply: {
          channel: "feishu" as const,
          app: "a",
          chatId: "c",
          messageId: "m",
          inThread: false,
        },
      },
    ],
  ])("wait for a turn of their own when one is %s, and so does what came after it", (_, fields) => {
    expect(absorbedBy(startRun(), waiting(8), waiting(9, fields), waiting(10))).toEqual([8]);
  });

  it("are taken up to the limit of the turn, however often it asks", () => {
    const run = startRun();
    expect(absorbedBy(run, waiting(8), waiting(9))).toEqual([8, 9]);
    expect(absorbedBy(run, waiting(10), waiting(11))).toEqual([10]);
    expect(absorbedBy(run, waiting(11))).toEqual([]);
  });

  it("carry the sender's name in a group", () => {
    const group = { chatType: "group" as const, sender: { id: "ou_1", name: "Tom" } };
    const { seq, message } = queued();
    const run = startRun({ seq, message: { ...message, ...group } });
    absorbedBy(run, waiting(8, group));
    expect(run.history.map(textOf)).toEqual(["Tom: hello", "Tom: message 8"]);
  });

  it("end the turn when one of them is recalled", () => {
    const run = startRun();
    absorbedBy(run, waiting(8));
    run.apply((turn) =>
      afterControl(turn, [{ type: "cancel", turnId: "cli_app.oc_1-9", reason: "recalled" }], env),
    );
    expect(run.next.do).toBe("model");
    run.apply((turn) =>
      afterControl(turn, [{ type: "cancel", turnId: "cli_app.oc_1-8", reason: "recalled" }], env),
    );
    expect(run.next).toMatchObject({ do: "finish", reason: "cancelled" });
  });
});
