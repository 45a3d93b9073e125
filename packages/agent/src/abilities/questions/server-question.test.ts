import type { ControlEntry } from "@larkline/protocol";
import type { Approval, SettledState } from "@larkline/protocol/approval";
import type { InputRequired } from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import { describe, expect, it } from "vitest";
import type { Transition } from "../../turn/facts.ts";
import {
  call,
  cancel,
  decision,
  environment,
  failed,
  outcome,
  startRun,
  step,
  type Run,
} from "../../turn/turn.fixture.ts";
import { afterControl, resumeTurn, afterStep } from "../../turn/turn.ts";
import { answerToStore, callInputOf, formOf, readFormAnswer } from "./question.ts";

function asking(properties: Record<string, unknown>, required: string[] = []): InputRequired {
  return {
    server: "travel",
    requests: [{ key: "k", message: "Where?", schema: { type: "object", properties, required } }],
  };
}

function form(properties: Record<string, unknown>, required: string[] = []) {
  const made = formOf(asking(properties, required), "k");
  if (!made.ok) throw new Error(made.error);
  return made.value;
}

function many(count: number): string[] {
  return Array.from({ length: count }, (_, at) => `choice ${at}`);
}

describe("the form of what a server asks", () => {
  it("has a field for each property, of its kind and with its bounds", () => {
    const properties = {
      name: {
        type: "string",
        title: "Your\nname",
        minLength: 2,
        maxLength: 5,
        description: "As in the passport",
      },
      mail: { type: "string", format: "email" },
      at: { type: "string", format: "date-time" },
      count: { type: "integer", minimum: 1, maximum: 3 },
      ok: { type: "boolean" },
      fare: { type: "string", oneOf: [{ const: "l", title: "Low" }, { const: "h" }] },
    };
    expect(form(properties, ["name"]).fields).toEqual([
      {
        name: "name",
        label: "Your name",
        hint: "As in the passport",
        kind: "text",
        required: true,
        min: 2,
        max: 5,
      },
      { name: "mail", label: "mail", kind: "email", required: false },
      { name: "at", label: "at", kind: "date-time", required: false },
      { name: "count", label: "count", kind: "integer", required: false, min: 1, max: 3 },
      { name: "ok", label: "ok", kind: "boolean", required: false },
      {
        name: "fare",
        label: "fare",
        kind: "choice",
        required: false,
        options: [
          { value: "l", label: "Low" },
          { value: "h", label: "h" },
        ],
      },
    ]);
  });

  it.each([
    [
      "a nested object",
      { a: { type: "object", properties: {} } },
      "is no text, number, choice or yes and no",
    ],
    [
      "a list",
      { a: { type: "array", items: { type: "string" } } },
      "is no text, number, choice or yes and no",
    ],
    ["a token by its name", { accessToken: { type: "string" } }, "asks for a secret"],
    ["an API key by its name", { api_key: { type: "string" } }, "asks for a secret"],
    ["a password by its title", { a: { type: "string", title: "你的密码" } }, "asks for a secret"],
    [
      "sixty-one choices in two fields",
      Object.fromEntries(
        ["a", "b"].map((name, at) => [name, { type: "string", enum: many(30 + at) }]),
      ),
      "its form is too large for a card",
    ],
    [
      "hints of five thousand bytes",
      Object.fromEntries(
        Array.from({ length: 9 }, (_, at) => [
          `f${at}`,
          { type: "string", description: "字".repeat(200) },
        ]),
      ),
      "its form is too large for a card",
    ],
    [
      "choices of no text",
      { a: { type: "string", enum: [1, 2] } },
      "has choices that cannot be shown",
    ],
    [
      "eleven fields",
      Object.fromEntries(Array.from({ length: 11 }, (_, at) => [`f${at}`, { type: "string" }])),
      "it asks for more than 10 fields",
    ],
  ])("refuses %s", (_, properties, why) => {
    expect(formOf(asking(properties), "k")).toEqual({
      ok: false,
      error: expect.stringContaining(why) as string,
    });
  });
});

it("a field whose words only look like a secret is one of the form", () => {
  expect(form({ secretary: { type: "string" }, pinned: { type: "boolean" } }).fields).toHaveLength(
    2,
  );
});

describe("the answer to a form", () => {
  const trip = form({ city: { type: "string" }, day: { type: "string", format: "date" } }, [
    "city",
  ]);

  it("is JSON, with or without its action; texts become what the field has", () => {
    const mixed = form({
      n: { type: "integer", maximum: 9 },
      ok: { type: "boolean" },
      at: { type: "string", format: "date-time" },
    });
    const given = { n: "7", ok: "是", at: "2026-12-01 10:30 +0800" };
    const content = { n: 7, ok: true, at: "2026-12-01T10:30:00+08:00" };
    for (const text of [
      JSON.stringify(given),
      JSON.stringify({ action: "accept", content: given }),
    ]) {
      expect(readFormAnswer(mixed, text)).toEqual({
        ok: true,
        value: { action: "accept", content },
      });
    }
  });

  it("is plain words where there is one field, and a refusal where they say so", () => {
    const one = form({ fare: { type: "string", enum: ["low", "decline"] } });
    expect(readFormAnswer(one, "low")).toEqual({
      ok: true,
      value: { action: "accept", content: { fare: "low" } },
    });
    expect(readFormAnswer(one, "decline")).toMatchObject({
      value: { action: "accept", content: { fare: "decline" } },
    });
    expect(readFormAnswer(trip, "拒绝")).toEqual({ ok: true, value: { action: "decline" } });
    expect(readFormAnswer(trip, '{"action":"cancel"}')).toEqual({
      ok: true,
      value: { action: "decline" },
    });
  });

  it.each([
    ["words for several fields", "Rome"],
    ["a field that is missing", '{"day":"2026-12-01"}'],
    ["a field that was not asked for", '{"city":"Rome","more":1}'],
    ["a month that is none", '{"city":"Rome","day":"2026-13-01"}'],
    ["a day that is none", '{"city":"Rome","day":"2026-02-30"}'],
    ["a value of another type", '{"city":7}'],
  ])("does not fit with %s", (_, text) => {
    expect(readFormAnswer(trip, text).ok).toBe(false);
  });
});

describe("the answer to a question for a date", () => {
  it.each([
    ["date", "2026-12-01", "2026-12-01"],
    ["date", " 2026-12-01 +0800 ", "2026-12-01"],
    ["date", "2026/2/9", "2026-02-09"],
    ["date", "2026年12月1日", "2026-12-01"],
    ["date", '{"action":"accept","content":{"answer":"2026-12-01 +0800"}}', "2026-12-01"],
    ["date-time", "2026-12-01 09:30 +0800", "2026-12-01T09:30:00+08:00"],
    ["date", "Decline", '{"action":"decline"}'],
    ["date-time", "拒绝", '{"action":"decline"}'],
  ] as const)("a %s: %j is kept as %j", (format, words, value) => {
    expect(answerToStore({ format }, words)).toEqual({ ok: true, value });
  });

  it.each([
    ["date", "tomorrow"],
    ["date", "2026-02-30"],
    ["date", "2026-13-01"],
    ["date", "2026-12-01 to 2026-12-03"],
    ["date", '{"action":"accept","content":{}}'],
    ["date-time", "2026-12-01"],
    ["date-time", "2026-02-30 10:00 +0800"],
    ["date-time", "2026-12-01 25:00 +0800"],
    ["date-time", "2026-12-01 09:30"],
  ] as const)("a %s: %j does not fit, and the error shows what does", (format, words) => {
    expect(answerToStore({ format }, words)).toMatchObject({
      ok: false,
      error: expect.stringContaining("2026-12-24"),
    });
  });

  it("other answers are kept as they are", () => {
    expect(answerToStore({}, " the blue one ")).toEqual({ ok: true, value: " the blue one " });
  });
});

const env = environment();

interface AskedRun extends Run {
  asked: Approval[];
}

function moved(run: AskedRun, decide: (turn: TurnState) => Transition): AskedRun {
  run.apply((turn) => {
    const transition = decide(turn);
    run.asked.push(...(transition.asked ?? []));
    return transition;
  });
  return run;
}

const city = {
  type: "object",
  properties: { city: { type: "string", maxLength: 5 } },
  required: ["city"],
};
const twice: InputRequired = {
  server: "travel",
  requests: ["from", "to"].map((key) => ({ key, message: `${key}?`, schema: city })),
  state: "opaque",
};

function asks(callId: string, input: InputRequired): ControlEntry {
  return { type: "outcome", callId, outcome: { ok: false, error: "asks", input } };
}

/** A turn whose call of `charge`, which must not run twice, is answered with what its server asks. */
function askedBy(input: InputRequired, facts = env): AskedRun {
  const run: AskedRun = Object.assign(startRun(), { asked: [] });
  moved(run, (turn) => afterStep(turn, step("", { calls: [call("c1", "charge")] }), facts));
  return moved(run, (turn) => afterControl(turn, [asks("c1", input)], facts));
}

function settled(run: AskedRun, state: SettledState, note?: string): AskedRun {
  const decisions =
    note === undefined ? [] : [{ decision: "answer", by: { id: "ou_1" }, atMs: 1, note }];
  const entry = (turn: TurnState) =>
    ({ ...decision(turn, "c1", { state }), decisions }) as ControlEntry;
  return moved(run, (turn) => afterControl(turn, [entry(turn)], env));
}

function resultOf({ history }: Run): unknown {
  return history.flatMap((message) => (message.role === "tool" ? message.content : []))[0]?.content;
}

function startedIn({ next }: Run): CallState[] {
  return next.do === "tools" ? next.calls : [];
}

describe("a call whose server asks", () => {
  it("waits for one answer after the other; its next attempt has them, and the state", () => {
    const run = askedBy(twice);
    expect(run.next).toEqual({ do: "wait" });
    expect(run.turn.needs).toContain("server-question");
    expect(resumeTurn(run.turn, env).next).toEqual({ do: "wait" });
    settled(run, "answered", '{"city":"Rome"}');
    expect(run.next).toEqual({ do: "wait" });
    settled(run, "answered", "Bern");
    const [first, second] = run.asked;
    expect(run.asked).toHaveLength(2);
    expect(first?.id).not.toBe(second?.id);
    expect(second).toMatchObject({
      kind: "question",
      question: { form: { server: "travel", message: "to?" } },
    });
    const [next] = startedIn(run);
    expect(next).toMatchObject({ id: "c1", attempt: 2, state: "running" });
    expect(callInputOf(next ?? {})).toEqual({
      responses: {
        from: { action: "accept", content: { city: "Rome" } },
        to: { action: "accept", content: { city: "Bern" } },
      },
      state: "opaque",
    });
    moved(run, (turn) => afterControl(turn, [outcome("c1.2", "gone")], env));
    expect(resultOf(run)).toBe("gone");
    expect(run.turn.needs ?? []).not.toContain("server-question");
  });

  it.each([
    ["expired", undefined, "Nobody answered"],
    ["undeliverable", undefined, "reached no person"],
    ["cancelled", undefined, "was withdrawn"],
    ["approved", undefined, "was withdrawn"],
    ["answered", "a city too long", "did not fit"],
  ] as const)("ends with a question that is %s (%s)", (state, note, text) => {
    const run = settled(askedBy(twice), state, note);
    expect(resultOf(run)).toContain(text);
    expect(run.next).toEqual({ do: "model" });
  });

  it("is unknown when the answer to the repeat is lost", () => {
    const run = settled(settled(askedBy(twice), "answered", "Rome"), "answered", "Bern");
    moved(run, (turn) => afterControl(turn, [failed("c1.2", "lost", true)], env));
    expect(run.turn.calls[0]?.state ?? "done").not.toBe("running");
    expect(run.asked.at(-1)?.kind).toBe("outcome");
  });

  it("ends with its turn, and where people cannot be asked", () => {
    const unasked = environment({ place: { settings: {}, people: { roles: [], answerMs: 0 } } });
    const run = moved(askedBy(twice), (turn) => afterControl(turn, [cancel], env));
    expect(run.next).toMatchObject({ do: "finish", reason: "cancelled" });
    expect(resultOf(askedBy(twice, unasked))).toContain("nobody was asked");
  });
});
