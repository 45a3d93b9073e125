import { parserOf } from "@larkline/protocol";
import { textOf, type Message } from "@larkline/protocol/content";
import { TurnState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import { conversationFor } from "../../turn/context.ts";
import type { SchemaFacts } from "../../turn/ability.ts";
import type { TurnEnvironment } from "../../turn/ability.ts";
import { modelMessagesOf } from "../../turn/messages.ts";
import {
  call,
  cancel,
  environment,
  eventsOf,
  expertModel,
  outcome,
  queued,
  startRun,
  step,
  transfersOf,
  type Run,
} from "../../turn/turn.fixture.ts";
import { afterControl, offeredSpecs, resumeTurn, afterStep } from "../../turn/turn.ts";
import { transferTool } from "./handover.ts";

const toExpert = call("t1", "transfer_to_expert", '{"reason":"knows wine"}');

function envOf(speaker = "default", fields: Parameters<typeof environment>[0] = {}) {
  return environment({ known: { handover: transfersOf(speaker) }, ...fields });
}

function offeredTransferNames(turn: TurnState, env: TurnEnvironment): string[] {
  return offeredSpecs(turn, env).flatMap(({ name }) =>
    name.startsWith("transfer_to_") ? [name] : [],
  );
}

/** What the model reads of a call. */
function resultOf(
  { history }: Run,
  id: string,
): { content: unknown; isError: boolean } | undefined {
  const results = history.flatMap((message) => (message.role === "tool" ? message.content : []));
  return results.find(({ toolCallId }) => toolCallId === id);
}

describe("a hand-over", () => {
  it("AT-6: is one decision: call, result, agent_changed and the next speaker", () => {
    const run = startRun().apply((turn) =>
      afterStep(turn, step("I ask.", { calls: [toExpert] }), envOf()),
    );
    const made = afterStep(startRun().turn, step("I ask.", { calls: [toExpert] }), envOf());
    expect(made).toMatchObject({ handedOver: true, next: { do: "model" } });
    // People read no name of a tool.
    expect(made.turn.shown?.tools).toMatchObject([
      { words: { title: { zh: "转交", en: "Hand over" } } },
    ]);
    expect(run.history.slice(1)).toEqual([
      {
        role: "assistant",
        content: [
          { type: "text", text: "I ask." },
          {
            type: "tool_use",
            id: "t1",
            name: "transfer_to_expert",
            arguments: { reason: "knows wine" },
          },
        ],
      },
      {
        role: "tool",
        content: [
          {
            type: "tool_result",
            toolCallId: "t1",
            content: "Transferred to expert.",
            isError: false,
          },
        ],
        handoff: { callId: "t1", from: "default", to: "expert", context: "all" },
      },
    ]);
    expect(run.events.map(({ type }) => type)).toEqual([
      "turn_start",
      "text",
      "tool_use",
      "tool_result",
      "tool_summary",
      "turn_end",
      "agent_changed",
      "turn_start",
    ]);
    expect(eventsOf(run, "tool_use")).toMatchObject([{ handoff: "expert" }]);
    expect(eventsOf(run, "agent_changed")).toEqual([
      {
        type: "agent_changed",
        from: "default",
        to: "expert",
        reason: "handoff",
        callId: "t1",
        context: "all",
      },
    ]);
    expect(eventsOf(run, "turn_start").at(-1)).toMatchObject({
      turnNumber: 2,
      model: expertModel.info.id,
    });
    expect(run.turn).toMatchObject({
      agent: "expert",
      abilities: { handover: ["default"] },
      needs: ["hand-over"],
      calls: [],
    });
  });

  it("comes after the other calls of its step, and survives the JSON of a checkpoint in between", () => {
    const calls = [toExpert, call("c1")];
    const run = startRun().apply((turn) => afterStep(turn, step("", { calls }), envOf()));
    expect(run.next).toMatchObject({ do: "tools", calls: [{ id: "c1" }] });
    expect(run.turn.needs).toEqual(["hand-over", "held-step"]);
    expect(eventsOf(run, "agent_changed")).toEqual([]);
    run.turn = parsed(run.turn);
    const again = resumeTurn(run.turn, envOf());
    expect(again.next).toMatchObject({ do: "tools", calls: [{ id: "c1" }] });
    run.apply((turn) => afterControl(turn, [outcome("c1")], envOf()));
    expect(
      run.history
        .at(-1)
        ?.content.map((part) => (part.type === "tool_result" ? part.toolCallId : "")),
    ).toEqual(["t1", "c1"]);
    expect(run.turn.agent).toBe("expert");
    expect(eventsOf(run, "agent_changed")).toHaveLength(1);
  });

  it("of a turn that is stopped meanwhile is not made", () => {
    const run = startRun()
      .apply((turn) => afterStep(turn, step("", { calls: [toExpert, call("c1")] }), envOf()))
      .apply((turn) => afterControl(turn, [cancel], envOf()));
    expect(resultOf(run, "t1")).toMatchObject({
      isError: true,
      content: expect.stringContaining("was not run"),
    });
    expect(eventsOf(run, "agent_changed")).toEqual([]);
    expect(run.turn.agent).toBeUndefined();
    expect(modelMessagesOf(run.history)).toBe(run.history);
  });

  it("AT-8: a second one, an unknown, a forbidden and a removed target, itself and unfit arguments are error results", () => {
    const refused = (name: string, text = '{"reason":"r"}', env = envOf()) => {
      const run = startRun().apply((turn) =>
        afterStep(turn, step("", { calls: [call("t9", name, text)] }), env),
      );
      expect(run.next).toEqual({ do: "model" });
      expect(run.turn.agent).toBeUndefined();
      expect(eventsOf(run, "agent_changed")).toEqual([]);
      return resultOf(run, "t9");
    };
    expect(refused("transfer_to_nobody")).toMatchObject({
      isError: true,
      content: expect.stringMatching(/there is no agent/),
    });
    expect(refused("transfer_to_vault")).toMatchObject({
      isError: true,
      content: expect.stringMatching(/permission_denied: this person/),
    });
    expect(refused("transfer_to_default")).toMatchObject({
      isError: true,
      content: expect.stringMatching(/You are the active agent already/),
    });
    expect(refused("transfer_to_expert", "{}")).toMatchObject({
      isError: true,
      content: expect.stringMatching(/do not fit.*reason/),
    });
    expect(refused("transfer_to_expert", "no")).toMatchObject({
      isError: true,
      content: expect.stringMatching(/not valid JSON/),
    });
    expect(refused("transfer_to_expert", "{}", environment())).toMatchObject({
      isError: true,
      content: expect.stringMatching(/no tool named/),
    });

    const twice = [toExpert, call("t2", "transfer_to_expert", '{"reason":"again"}')];
    const run = startRun().apply((turn) => afterStep(turn, step("", { calls: twice }), envOf()));
    expect(resultOf(run, "t1")).toMatchObject({ isError: false });
    expect(resultOf(run, "t2")).toMatchObject({
      isError: true,
      content: expect.stringMatching(/Another call of this step/),
    });
    expect(eventsOf(run, "agent_changed")).toHaveLength(1);

    const waiting = startRun().apply((turn) =>
      afterStep(turn, step("", { calls: [toExpert, call("c1")] }), envOf()),
    );
    const removed = envOf("default", { known: { handover: new Map() } });
    waiting.apply((turn) => afterControl(turn, [outcome("c1")], removed));
    expect(resultOf(waiting, "t1")).toMatchObject({
      isError: true,
      content: expect.stringMatching(/there is no agent/),
    });
    expect(waiting.next).toEqual({ do: "model" });
  });

  it("AT-8: the 9th of a turn is an error result, and is not offered", () => {
    const run = startRun();
    for (let count = 0; count < 9; count += 1) {
      const [speaker, other] = count % 2 === 0 ? ["default", "expert"] : ["expert", "default"];
      const offered = offeredTransferNames(run.turn, envOf(speaker));
      expect(offered).toEqual(count < 8 ? [`transfer_to_${other}`] : []);
      const next = call(`h${count}`, `transfer_to_${other}`, '{"reason":"r"}');
      run.apply((turn) => afterStep(turn, step("", { calls: [next] }), envOf(speaker)));
    }
    expect(eventsOf(run, "agent_changed")).toHaveLength(8);
    expect(resultOf(run, "h8")).toMatchObject({
      isError: true,
      content: expect.stringMatching(/8 hand-overs at most/),
    });
    expect(run.next).toEqual({ do: "model" });
  });

  it("is not made with the last step of a turn", () => {
    const run = startRun().apply((turn) => {
      return afterStep(
        turn,
        step("", { calls: [toExpert] }),
        envOf("default", { maxIterations: 1 }),
      );
    });
    expect(run.next).toMatchObject({ do: "finish", reason: "max_turns_reached" });
    expect(eventsOf(run, "agent_changed")).toEqual([]);
    expect(run.turn.agent).toBeUndefined();
  });
});

describe("what is offered", () => {
  it("AT-9: only what the person may use", () => {
    const { turn } = startRun(queued());
    expect(offeredTransferNames(turn, envOf())).toEqual(["transfer_to_expert"]);
    expect(offeredTransferNames(turn, environment())).toEqual([]);
  });

  it("names agent, description, case and arguments", () => {
    const input = {
      type: "object",
      properties: { order: { type: "string" } },
      required: ["order"],
    };
    const tool = transferTool(
      { agent: "wine-expert", context: "all", when: "the question is about wine", input },
      "Knows wine.",
    );
    expect(tool.spec).toMatchObject({
      name: "transfer_to_wine_expert",
      description:
        "Hands this conversation over to the agent wine-expert, who answers from then on. Knows wine. " +
        "Use it: the question is about wine",
      inputSchema: { type: "object", required: ["reason", "order"] },
    });
  });

  it("is made with the arguments that the deployer asks for, which the decision does not check itself", () => {
    const input = {
      type: "object",
      properties: { order: { type: "string" } },
      required: ["order"],
    };
    const asked: unknown[] = [];
    const schemas: SchemaFacts = {
      check: (schema, value) => (
        asked.push([schema, value]),
        { ok: false, error: "order is missing" }
      ),
    };
    const [target] = transfersOf("default").values();
    const tool = transferTool({ agent: "expert", context: "all", input }, undefined);
    const transfers = new Map(target === undefined ? [] : [[tool.spec.name, { ...target, tool }]]);
    const facts = envOf("default", { known: { handover: transfers }, schemas });
    const run = startRun().apply((turn) => afterStep(turn, step("", { calls: [toExpert] }), facts));
    expect(asked).toEqual([[tool.spec.inputSchema, { reason: "knows wine" }]]);
    expect(resultOf(run, "t1")).toMatchObject({
      isError: true,
      content: expect.stringContaining("order is missing"),
    });
  });
});

describe("what the next agent sees", () => {
  const history: Message[] = [
    { role: "user", content: [{ type: "text", text: "a secret of before" }] },
    { role: "assistant", content: [{ type: "text", text: "noted" }] },
    { role: "user", content: [{ type: "text", text: "which wine?" }] },
    {
      role: "assistant",
      content: [
        {
          type: "tool_use",
          id: "t1",
          name: "transfer_to_expert",
          arguments: { reason: "wine", order: 7 },
        },
      ],
    },
    {
      role: "tool",
      content: [
        {
          type: "tool_result",
          toolCallId: "t1",
          content: "Transferred to expert.",
          isError: false,
        },
      ],
      handoff: { callId: "t1", from: "default", to: "expert", context: "last" },
    },
    { role: "assistant", content: [{ type: "text", text: "Riesling." }] },
  ];

  it("with `last` is the person's last message and the reason, and what follows", () => {
    const seen = conversationFor("expert", history);
    expect(seen.map(textOf)).toEqual([
      'which wine?\n[default has handed this over to you. Reason: wine {"order":7}]',
      "Riesling.",
    ]);
    expect(modelMessagesOf(seen)).toBe(seen);
  });

  it("is everything for the agent that handed over, and with `all`", () => {
    expect(conversationFor("default", history)).toBe(history);
    const all = history.map((message) =>
      message.role === "tool" && message.handoff !== undefined
        ? { ...message, handoff: { ...message.handoff, context: "all" as const } }
        : message,
    );
    expect(conversationFor("expert", all)).toBe(all);
  });
});

const parseTurn = parserOf(TurnState);

function parsed(turn: TurnState): TurnState {
  const read = parseTurn(JSON.parse(JSON.stringify(turn)));
  return read.ok ? read.value : expect.fail(read.error);
}
