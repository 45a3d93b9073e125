import { systemClock } from "@larkline/protocol/clock";
import type { CallInput, InputRequired } from "@larkline/protocol/tool";
import { InputRequiredError } from "@larkline/tool-kit";
import { describe, expect, it } from "vitest";
import { Elicitations } from "./elicitation.ts";

function question(message: string, requestedSchema: object = { type: "object", properties: {} }) {
  return { params: { mode: "form", message, requestedSchema } } as Parameters<
    Elicitations["answer"]
  >[0];
}

/** What is asked where an attempt ends. */
function openIn({ open }: Elicitations): InputRequired {
  if (open instanceof InputRequiredError) return open.input;
  throw new Error(`nothing was asked: ${open?.message}`);
}

/** The answer of a person to what an attempt asks, as the next attempt brings it. */
function answered(asked: Elicitations, content: Record<string, string>): CallInput {
  const { requests, state } = openIn(asked);
  const responses = { [requests[0]?.key ?? ""]: { action: "accept" as const, content } };
  return { responses, ...(state === undefined ? {} : { state }) };
}

const cancelled = { action: "cancel" };

describe("what a server asks inside a call", () => {
  it("is cancelled in the first attempt and answered in the next", () => {
    const first = new Elicitations("s", undefined);
    expect(first.answer(question("Where?"))).toEqual(cancelled);
    const second = new Elicitations("s", answered(first, { city: "Rome" }));
    expect(second.answer(question("Where?"))).toEqual({
      action: "accept",
      content: { city: "Rome" },
    });
    expect(second.open).toBeUndefined();
  });

  it("is answered one question after the other; earlier answers stay known, in any order", () => {
    const first = new Elicitations("s", undefined);
    expect([first.answer(question("A?")), first.answer(question("B?"))]).toEqual([
      cancelled,
      cancelled,
    ]);
    expect(openIn(first).requests).toMatchObject([{ message: "A?" }]);
    const second = new Elicitations("s", answered(first, { a: "1" }));
    second.answer(question("A?"));
    second.answer(question("B?"));
    expect(openIn(second).requests).toMatchObject([{ message: "B?" }]);
    const third = new Elicitations("s", answered(second, { b: "2" }));
    expect(third.answer(question("B?"))).toMatchObject({ content: { b: "2" } });
    expect(third.answer(question("A?"))).toMatchObject({ content: { a: "1" } });
    expect(third.open).toBeUndefined();
  });

  it("has no answer that was given to other words, to another form, or to the same question before", () => {
    const first = new Elicitations("s", undefined);
    first.answer(question("Pay 10?"));
    const given = answered(first, { ok: "yes" });
    expect(new Elicitations("s", given).answer(question("Pay 99?"))).toEqual(cancelled);
    const other = { type: "object", properties: { iban: { type: "string" } } };
    expect(new Elicitations("s", given).answer(question("Pay 10?", other))).toEqual(cancelled);
    const again = new Elicitations("s", given);
    expect(again.answer(question("Pay 10?"))).toMatchObject({ action: "accept" });
    expect(again.answer(question("Pay 10?"))).toEqual(cancelled);
  });

  it("gives no further answer in an attempt that has ended", () => {
    const first = new Elicitations("s", undefined);
    first.answer(question("A?"));
    const second = new Elicitations("s", answered(first, { a: "1" }));
    expect(second.answer(question("New?"))).toEqual(cancelled);
    expect(second.answer(question("A?"))).toEqual(cancelled);
  });

  it("fails the call where its form is too large, and aborts a server that asks without end", () => {
    const large = new Elicitations("s", undefined);
    large.answer(
      question("A?", { type: "object", properties: { a: { description: "x".repeat(17_000) } } }),
    );
    expect(large.open?.message).toBe(
      "the server asked for input that it cannot have: its form is too large",
    );
    const endless = new Elicitations("s", undefined);
    for (let i = 0; i < 20; i += 1) endless.answer(question("Again?"));
    expect(endless.signal.aborted).toBe(false);
    endless.answer(question("Again?"));
    expect(endless.signal.aborted).toBe(true);
  });

  it("aborts by the clock a server that does not end the call, and no call that has ended", () => {
    const timers = new Map<() => void, number>();
    const after = (ms: number, work: () => void): (() => void) => {
      timers.set(work, ms);
      return () => timers.delete(work);
    };
    const clock = { ...systemClock, after };
    const ended = new Elicitations("s", undefined, clock);
    ended.answer(question("A?"));
    ended.close();
    expect(timers.size).toBe(0);
    const silent = new Elicitations("s", undefined, clock);
    silent.answer(question("A?"));
    silent.answer(question("B?"));
    expect([...timers.values()]).toEqual([5_000]);
    for (const work of timers.keys()) work();
    expect(silent.signal.reason).toBe(silent.open);
    expect([ended.signal.aborted, silent.signal.aborted]).toEqual([false, true]);
  });

  it("takes a state that it did not write for none", () => {
    const asked = new Elicitations("s", { responses: {}, state: "not ours" });
    expect(asked.answer(question("A?"))).toEqual(cancelled);
    expect(openIn(asked).state).toBeUndefined();
  });
});
