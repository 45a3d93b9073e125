import type { InboundMessage } from "@larkline/protocol";
import type { ToolAnnouncement } from "@larkline/protocol/tool";
import type { TurnState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import type { AbilityClients } from "../../turn/ability.ts";
import { afterStep } from "../../turn/turn.ts";
import {
  announcement,
  call,
  environment,
  eventsOf,
  queued,
  startRun,
  step,
  type Run,
} from "../../turn/turn.fixture.ts";
import { approvals } from "../approvals/approvals.ts";
import { groupReads, privateReads, type PrivateMessage } from "./group-reads.ts";

const reply = {
  channel: "feishu",
  app: "cli_a",
  chatId: "oc_group",
  messageId: "om_1",
  inThread: false,
} as const;
const inGroup: Partial<InboundMessage> = {
  tenant: "t1",
  sender: { id: "ou_ann", name: "Ann" },
  chatType: "group",
  language: "en",
  reply,
};
const person: NonNullable<ToolAnnouncement["identity"]> = {
  as: "person",
  scopes: ["task:task:read"],
};
const people = { roles: [], answerMs: 60_000 };

function messageOf(fields: Partial<InboundMessage>) {
  const head = queued("what do I have to do? See https://acme.example/plan", 1);
  return { ...head, message: { ...head.message, ...inGroup, ...fields } };
}

/** The model has called a tool for a message of Ann in a group. */
function called(
  name: string,
  setting: string | undefined,
  fields: Partial<InboundMessage> = {},
): Run {
  const tools = [
    announcement("weather"),
    announcement("tasks", { identity: person }),
    announcement("add_task", { identity: person, effect: "once" }),
    announcement("status", { identity: { as: "bot", scopes: [] } }),
  ].map((one) => [one.spec.name, { runner: "main", announcement: one }] as const);
  const settings = setting === undefined ? {} : { groupReads: setting };
  const env = environment({
    abilities: [approvals, privateReads, groupReads],
    tools: new Map(tools),
    place: { settings, people },
  });
  const run = startRun(messageOf(fields));
  const next = afterStep(run.turn, step("", { calls: [call("c1", name)] }), env);
  return { ...run, ...next, events: [...run.events, ...next.events] };
}

const resultsOf = (run: Run): unknown[] => eventsOf(run, "tool_result").map(({ output }) => output);

describe("a call that acts as the person who asks in a group", () => {
  it("is asked about where it reads, and no setting says otherwise", () => {
    for (const setting of [undefined, "ask"]) {
      expect(called("tasks", setting).turn.calls).toMatchObject([{ state: "waiting_approval" }]);
      expect(called("add_task", setting).next).toMatchObject({ do: "tools" });
    }
    expect(called("tasks", "off").next).toMatchObject({ do: "tools" });
  });

  it("is never run with `private`, whatever it does, and its model is given a way", () => {
    for (const name of ["tasks", "add_task"]) {
      const run = called(name, "private");
      expect(run.turn.calls).toEqual([]);
      expect(resultsOf(run)).toEqual([expect.stringContaining("Call answer_privately")]);
    }
    for (const name of ["weather", "status"]) {
      expect(called(name, "private").next).toMatchObject({ do: "tools" });
    }
    expect(called("tasks", "private", { chatType: "p2p" }).next).toMatchObject({ do: "tools" });
  });

  it("is not run for a helper either, which has no way: it works for the group", () => {
    const task = { task: { reply } as NonNullable<InboundMessage["task"]> }; // as much as is read
    const run = called("tasks", "private", { ...task, reply: { channel: "none" } });
    expect(resultsOf(run)).toEqual([expect.stringContaining("where they talk to you alone")]);
  });
});

describe("the tool that answers a person alone", () => {
  const offered = (setting: string, fields: Partial<InboundMessage> = {}): string[] =>
    (
      privateReads.tools?.(
        { settings: { groupReads: setting }, people },
        messageOf(fields).message,
      ) ?? []
    ).map(({ spec }) => spec.name);

  it("is offered in groups, of agents with `private` alone", () => {
    expect(offered("private")).toEqual(["answer_privately"]);
    expect(offered("ask")).toEqual([]);
    expect(offered("private", { chatType: "p2p" })).toEqual([]);
    expect(offered("private", { reply: { channel: "none" } })).toEqual([]);
  });

  const { turn } = startRun(messageOf({}));

  async function runWith(
    given: object,
    answer: "begun" | "full" | undefined,
    of: TurnState = turn,
  ) {
    const asked: { message: PrivateMessage; opening: string }[] = [];
    const privateChats: AbilityClients["privateChats"] = {
      answer: async (message, opening) => {
        asked.push({ message, opening });
        return await Promise.resolve(answer);
      },
    };
    const outcome = await privateReads.run?.(
      { id: "c1", name: "answer_privately", arguments: { ...given }, state: "running" } as never, // as much as is read
      {
        turn: of,
        place: { settings: {}, people },
        maxResultChars: 1_000,
        clients: { privateChats } as AbilityClients, // it uses no other
      },
    );
    return { outcome, asked };
  }

  it("has the person's own message answered there, with what the model adds as text of others", async () => {
    const { outcome, asked } = await runWith(
      { context: "It is about https://evil.example" },
      "begun",
    );
    expect(outcome).toMatchObject({ ok: true });
    const [{ message, opening } = expect.fail("nothing was moved")] = asked;
    expect(message).toMatchObject({
      id: expect.stringMatching(/^private-/),
      tenant: "t1",
      sender: { id: "ou_ann", name: "Ann" },
      chatType: "p2p",
      foreign: true,
      addresses: ["//acme.example/plan"],
      parts: [
        { text: "what do I have to do? See https://acme.example/plan" },
        { text: "[From the conversation in the group, by you:]\nIt is about https://evil.example" },
      ],
    });
    expect(message).not.toHaveProperty("task");
    expect(opening).toContain("“what do I have to do? See https://acme.example/plan”");
  });

  it("is the same for a call that runs again, and another one in the next turn", async () => {
    const [first, again] = [await runWith({}, "begun"), await runWith({}, "begun")];
    const next = await runWith({}, "begun", { ...turn, turnId: `${turn.turnId}0` });
    const [one, other, third] = [first, again, next].map(({ asked }) => asked[0]?.message.id);
    expect(one).toBe(other);
    expect(third).not.toBe(one);
  });

  it("says why where the person cannot be answered", async () => {
    const results = [await runWith({}, "full"), await runWith({}, undefined)];
    expect(results.map(({ outcome }) => outcome)).toMatchObject([
      { ok: false, error: expect.stringContaining("too many of their messages wait") },
      { ok: false, error: expect.stringContaining("cannot be reached") },
    ]);
    const { outcome, asked } = await runWith({ other: 1 }, "begun");
    expect(outcome).toMatchObject({ ok: false });
    expect(asked).toEqual([]);
  });

  it("leaves a line on the card of the group", () => {
    const panels = privateReads.panels?.({ moved: true }, turn);
    expect(JSON.stringify(panels)).toContain("answered in their own chat with me");
  });
});
