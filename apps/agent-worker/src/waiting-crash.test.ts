import { type LlmBackend, messageStop, toolCallDelta } from "@larkline/model";
import { turnIdOf, type InboundMessage } from "@larkline/protocol";
import { textOf } from "@larkline/protocol/content";
import { readResultName } from "@larkline/protocol/tool";
import { describe, expect, it } from "vitest";
import { calling, eventsOf, resultsIn } from "./approval-world.fixture.ts";
import { checkEnds, repliedTo, survives } from "./crash.fixture.ts";
import { holding, inbound, newWorld, policyOf, session, type World } from "./turn-world.fixture.ts";

describe.each([
  ["slots being given back", (): World => newWorld()],
  ["slots being kept", (): World => holding(newWorld(), "at once")],
  ["slots being kept for too short", (): World => holding(newWorld(), "late")],
])("with %s", (_how, makeWorld) => {
  it("AL-39: a crash anywhere in [plain, approval, plain, approval] leaves one question and one result per call", async () => {
    const policy = policyOf({ approvals: { learnAfter: 1 } });
    await survives({
      makeWorld,
      differences: (world) => {
        world.word = ({ kind, callId }) =>
          kind === "rule" ? undefined : callId === "c1-3" ? "reject" : "approve";
        return { backend: calling(["echo", "pay", "echo", "pay"]).backend, policy };
      },
      messages: [inbound("om_1", "please")],
      check: async (world) => {
        expect((await resultsIn(world)).map(([text]) => text)).toEqual([
          "c1-0",
          "c1-1",
          "c1-2",
          "User rejected this action.",
        ]);
        expect(world.ran.size).toBe(3);
        await checkEnds(world, [1]);
        expect(await repliedTo(world)).toEqual(["om_1"]);
        const events = await eventsOf(world);
        expect(events.filter(({ type }) => type === "permission_request")).toHaveLength(2);
        expect(events.filter(({ type }) => type === "permission_learn")).toHaveLength(1);
        // Nothing but the rule that was proposed waits for people, and that once.
        const pending = await world.approvals.pending(session);
        expect(pending.map(({ approval }) => [approval.kind, approval.callId])).toEqual([
          ["rule", "c1-1"],
        ]);
      },
    });
  });

  it("a crash anywhere starts a call with an unknown outcome once more, when a person says so, and not twice", async () => {
    await survives({
      makeWorld,
      differences: (world) => {
        world.word = () => "retry";
        world.outcomeOf = ({ attempt }) =>
          attempt === 1
            ? { ok: false, error: "unknown", unknown: true }
            : { ok: true, result: "paid" };
        return { backend: calling(["echo"]).backend };
      },
      messages: [inbound("om_1", "please")],
      check: async (world) => {
        expect(await resultsIn(world)).toEqual([["paid", false]]);
        expect([...world.ran.keys()]).toEqual(["c1-0", "c1-0.2"]);
        await checkEnds(world, [1]);
      },
    });
  });

  it("a crash anywhere repeats nothing of a turn with several rounds of calls", async () => {
    await survives({
      makeWorld,
      differences: () => ({ backend: calling(["echo"], ["look", "echo"], ["look"]).backend }),
      messages: [inbound("om_1", "please")],
      check: async (world) => {
        const ids = ["c1-0", "c2-0", "c2-1", "c3-0"];
        expect((await resultsIn(world)).map(([text]) => text)).toEqual(ids);
        const told = (await eventsOf(world)).flatMap((event) =>
          event.type === "tool_result" ? [event.id] : [],
        );
        expect(told.toSorted()).toEqual(ids);
        await checkEnds(world, [1]);
        expect(await repliedTo(world)).toEqual(["om_1"]);
      },
    });
  });

  it("a crash anywhere leaves a call of a built-in tool with one answer, beside those of runners", async () => {
    const wanted = { name: readResultName, arguments: { handle: "res_0123456789abcdef" } };
    await survives({
      makeWorld,
      differences: () => ({ backend: calling(["echo", wanted]).backend }),
      messages: [inbound("om_1", "please")],
      check: async (world) => {
        expect(await resultsIn(world)).toEqual([
          ["c1-0", false],
          [expect.stringContaining("no stored result"), true],
        ]);
        await checkEnds(world, [1]);
        expect(await repliedTo(world)).toEqual(["om_1"]);
      },
    });
  });

  /** What a person of a group writes. Ann is the one who decides in these worlds. */
  function said(person: "ann" | "bob", id: string, text: string): InboundMessage {
    return inbound(id, text, {
      chatType: "group",
      sender: { id: person === "ann" ? "ou_1" : "ou_2" },
    });
  }

  /** A model that pays when a message asks for it, and answers everything else; it calls `onAnswer` before that. */
  function paying(onAnswer: (text: string) => Promise<void> | void): LlmBackend {
    return {
      async *stream({ messages }) {
        const last = messages.at(-1);
        const text = last === undefined ? "" : textOf(last);
        if (last?.role === "user" && text.includes("pay")) {
          yield toolCallDelta(0, { id: "c1", name: "pay", arguments: "{}" });
          return yield messageStop("tool_use");
        }
        if (last?.role === "user") await onAnswer(text);
        yield { type: "text_delta", text: last?.role === "user" ? `to ${text}` : "paid" };
        yield messageStop("end_turn");
      },
    };
  }

  it("AL-45: a crash anywhere leaves a turn that is set aside with one answer, after that of another person", async () => {
    await survives({
      makeWorld,
      differences: (world) => {
        // Decided once the other person's turn runs, so that the decision finds the first one set aside.
        let isSetAside = false;
        world.word = () => (isSetAside ? "approve" : undefined);
        const backend = paying((text) => {
          isSetAside ||= text.includes("hello");
        });
        return { backend };
      },
      messages: [
        said("ann", "om_1", "please pay"),
        said("ann", "om_2", "and then"),
        said("bob", "om_3", "hello"),
      ],
      check: async (world) => {
        expect(await repliedTo(world)).toEqual(["om_3", "om_1", "om_2"]);
        expect(await resultsIn(world)).toEqual([["c1", false]]);
        await checkEnds(world, [1, 2, 3]);
        expect(await world.approvals.pending(session)).toEqual([]);
        expect(await world.store.summary(session)).toMatchObject({
          state: "idle",
          waiting: 0,
          setAside: [],
        });
      },
    });
  });

  it("a crash anywhere leaves a turn stopped that its person has stopped while it was set aside", async () => {
    await survives({
      makeWorld,
      differences: (world) => {
        world.word = () => undefined;
        const backend = paying(async (text) => {
          if (!text.includes("hello")) return;
          const cancel = { turnId: turnIdOf(session, 1), reason: "stopped" };
          const { accepted, wakeGen } = await world.store.cancel(session, cancel);
          expect(accepted).toBe(true);
          if (wakeGen !== undefined) world.wakes.push(wakeGen);
        });
        return { backend };
      },
      messages: [said("ann", "om_1", "please pay"), said("bob", "om_2", "hello")],
      check: async (world) => {
        expect(await repliedTo(world)).toEqual(["om_2", "om_1"]);
        expect(world.ran.size).toBe(0);
        expect(
          (await world.store.history(session))
            .map(textOf)
            .some((text) => text.includes("Stopped.")),
        ).toBe(true);
        await checkEnds(world, [1, 2]);
        expect(await world.approvals.pending(session)).toEqual([]);
      },
    });
  });
});
