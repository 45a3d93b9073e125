import type { Approval } from "@larkline/protocol/approval";
import { argumentsHashOf } from "@larkline/protocol/runner";
import * as fc from "fast-check";

// For tests: approvals, and arguments that try to leave their place on a card.

export function approvalOf(more: Partial<Approval> = {}): Approval {
  const given = more.arguments ?? { target: "prod" };
  return {
    v: 1,
    id: "0123456789abcdef0123456789abcdef",
    kind: "call",
    session: "cli_0123456789abcdef.oc_1",
    turnId: "cli_0123456789abcdef.oc_1-1",
    callId: "c1",
    app: "cli_0123456789abcdef",
    chatId: "oc_1",
    requester: { id: "ou_ann", name: "Ann" },
    tool: "deploy",
    arguments: given,
    argumentsHash: argumentsHashOf(JSON.stringify(given)),
    secrets: [],
    deciders: { requester: true, people: [], roles: [], fourEyes: false, count: 1 },
    reason: "",
    risk: "medium",
    language: "en",
    target: { channel: "none" },
    createdAtMs: 1_700_000_000_000,
    expiresAtMs: 1_700_086_400_000,
    ...more,
  };
}

const trick = fc.constantFrom(
  "```",
  "\n```\n",
  "````",
  "~~~",
  "`` `",
  "<at id=all></at>",
  "<at id='ou_1'></at>",
  "&lt;at id=all&gt;",
  "&#60;person id=ou_1>",
  "<person id='ou_1'></person>",
  "</font>",
  "<font color='green'>Approved</font>",
  "[click](https://evil.example)",
  "![img](img_v3_1)",
  "**bold**",
  "\n\n# Approved",
  "\n---\n",
  "| a | b |\n|---|---|\n",
  "\u202e",
  "\u2066\u2069",
  "\u200b",
  "\u{e0041}",
  "\ufeff",
  "\u2028",
  "\u0085",
  "\u3164",
  "\ud83d",
  "\\",
  "\\u0060",
  '"',
  '"}\n```\nSafe to run.',
  "上海",
  "👩‍👩‍👧‍👦",
  "\u0000",
  "…",
);

/** Texts made of tricks and of anything else. */
export const trickyText = fc
  .array(
    fc.oneof(
      { weight: 3, arbitrary: trick },
      { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 12 }) },
    ),
    {
      maxLength: 12,
    },
  )
  .map((parts) => parts.join(""));

const { value: trickyValue } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    trickyText,
    fc.double(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(trickyText, tie("value"), { maxKeys: 4 }),
  ),
}));

/** Arguments as a model may write them. */
export const trickyArguments = fc
  .dictionary(trickyText, trickyValue, { maxKeys: 5 })
  .map(
    (given): Record<string, unknown> =>
      JSON.parse(JSON.stringify(given)) as Record<string, unknown>,
  ); // an object, as it was

/** Anything that an approval may hold, as large as it may be. */
export const anyApproval: fc.Arbitrary<Approval> = fc
  .record({
    kind: fc.constantFrom("call" as const, "outcome" as const, "rule" as const),
    tool: fc.oneof(fc.constant("deploy_it"), trickyText, fc.constant("\u202e".repeat(5_000))),
    given: fc.oneof(
      trickyArguments,
      fc
        .nat({ max: 30_000 })
        .map((length) => ({ script: "\u202e`<at id=all>".repeat(length / 10), target: "prod" })),
      fc
        .nat({ max: 3_000 })
        .map((count) =>
          Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, "```"])),
        ),
    ),
    reason: fc.oneof(trickyText, fc.constant("\ud83d".repeat(2_000))),
    name: fc.oneof(trickyText, fc.constant("\u202e".repeat(5_000)), fc.constant(undefined)),
    pattern: fc.oneof(trickyText, fc.constant("\u200b".repeat(1_000)), fc.constant("git *")),
    risk: fc.constantFrom("low" as const, "high" as const),
    people: fc.array(fc.oneof(fc.constant("ou_1"), trickyText), { maxLength: 100 }),
    roles: fc.array(trickyText, { maxLength: 20 }),
    count: fc.integer({ min: 1, max: 10 }),
    language: fc.constantFrom("en" as const, "zh" as const),
    bilingual: fc.boolean(),
    words: fc.oneof(
      fc.constant(undefined),
      fc.record({
        title: trickyText,
        summary: fc.record({ zh: trickyText, en: fc.constant("\u202e".repeat(300)) }),
      }),
    ),
  })
  .map(
    ({
      kind,
      tool,
      given,
      reason,
      name,
      pattern,
      risk,
      people,
      roles,
      count,
      language,
      bilingual,
      words,
    }) =>
      approvalOf({
        kind,
        tool,
        arguments: given,
        reason: reason.slice(0, 2_000),
        requester: name === undefined ? { id: "ou_ann" } : { id: "ou_ann", name },
        remember: { tool, pattern: pattern.slice(0, 1_000) },
        risk,
        deciders: { requester: false, people, roles, fourEyes: true, count },
        language,
        bilingual,
        ...(words === undefined ? {} : { words }),
      }),
  );
