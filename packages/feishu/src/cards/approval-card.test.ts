import { maskedArguments } from "@larkline/agent/permissions";
import {
  settledStates,
  type Approval,
  type ApprovalDecision,
  type DecisionWord,
  type FormField,
} from "@larkline/protocol/approval";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { anyApproval, approvalOf, trickyArguments, trickyText } from "./approval.fixture.ts";
import { approvalCard, approvalMark, type ShownApproval } from "./approval-card.ts";
import { jsonBytes, maxCardBytes } from "./card.ts";

type Element = Record<string, unknown>;

function pending(more: Partial<Approval> = {}, decisions: ApprovalDecision[] = []): ShownApproval {
  return { approval: approvalOf(more), state: "pending", decisions };
}

function decided(decision: DecisionWord, more: Partial<ApprovalDecision> = {}): ApprovalDecision {
  return { decision, by: { id: "ou_bob", name: "Bob" }, atMs: 1_700_000_001_000, ...more };
}

/** Every tagged element. */
function elementsOf(value: unknown): Element[] {
  if (Array.isArray(value)) return value.flatMap(elementsOf);
  if (typeof value !== "object" || value === null) return [];
  const own = "tag" in value ? [value as Element] : []; // an object, as was just seen
  return [...own, ...elementsOf(Object.values(value))];
}

function markdownOf(card: unknown): string[] {
  return elementsOf(card).flatMap(({ tag, content }) =>
    tag === "markdown" ? [String(content)] : [],
  );
}

function textsOf(card: unknown): string[] {
  return elementsOf(card).flatMap(({ content }) => (typeof content === "string" ? [content] : []));
}

function valuesOf(card: unknown): unknown[] {
  return elementsOf(card).flatMap(({ tag, behaviors }) =>
    tag === "button" && Array.isArray(behaviors) ? behaviors : [],
  );
}

function bodyOf(card: Element): Element[] {
  return (card["body"] as { elements: Element[] }).elements; // as every card has it
}

const usable = new Set(["button", "form", "input"]);
const isUsable = (card: unknown): boolean =>
  elementsOf(card).some(({ tag }) => usable.has(String(tag)));

/** A character that readers do not see, or that changes the direction of reading. */
const hidden =
  /(?!\ufe0f)(?![\t\n \u3000])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\p{Default_Ignorable_Code_Point}]/u;

describe("the card of a call that waits for people", () => {
  it("AL-29: has the words, the colour and both buttons of the contract", () => {
    const card = approvalCard(pending());
    expect(card["header"]).toEqual({
      title: { tag: "plain_text", content: "Approve deploy?" },
      template: "orange",
    });
    expect(bodyOf(card)[0]).toEqual({
      tag: "markdown",
      content: 'The agent wants to run **deploy** with:\n```json\n{\n  "target": "prod"\n}\n```',
    });
    const id = approvalOf().id;
    const [approve, reject] = elementsOf(card).filter(({ tag }) => tag === "button");
    expect(approve).toMatchObject({
      text: { content: "Approve" },
      type: "primary",
      behaviors: [{ type: "callback", value: { __approval__: id, decision: "approve" } }],
    });
    expect(reject).toMatchObject({
      text: { content: "Reject" },
      type: "danger",
      behaviors: [{ type: "callback", value: { __approval__: id, decision: "reject" } }],
    });
  });

  it("has them in Chinese, too", () => {
    const card = approvalCard(pending({ language: "zh" }));
    expect(card["header"]).toMatchObject({ title: { content: "批准 deploy？" } });
    const words = textsOf(card).filter((text) => !text.includes("local_datetime"));
    expect(words.join("\n")).not.toMatch(/[a-z]{3,} [a-z]{3,}/);
    expect(JSON.stringify(approvalCard(pending(), { language: "zh" }))).toBe(JSON.stringify(card));
  });

  it("says why, how risky it is, who asked, who may decide and until when", () => {
    const deciders = {
      requester: false,
      people: ["ou_1", "ou_2"],
      roles: ["admins"],
      fourEyes: true,
      count: 1,
    };
    const card = approvalCard(
      pending({ reason: "It touches production.", risk: "high", deciders }),
    );
    expect(card["header"]).toMatchObject({ template: "red" });
    const texts = textsOf(card);
    expect(texts).toContain("Reason: It touches production.");
    expect(texts).toContain("⚠️ Risk: high");
    expect(texts).toContain("Requested by: Ann");
    expect(texts.find((text) => text.startsWith("May decide"))).toContain("admins");
    expect(elementsOf(card)).toContainEqual(
      expect.objectContaining({
        tag: "person_list",
        persons: [{ id: "ou_1" }, { id: "ou_2" }],
        drop_invalid_user_id: true,
      }),
    );
    expect(texts.at(-1) ?? "").not.toContain("undefined");
    expect(texts.some((text) => text.includes("millisecond='1700086400000'"))).toBe(true);
  });

  it("has its buttons in one row, one of which opens the form for the reason of a rejection, at the root", () => {
    const card = approvalCard(pending({ remember: { tool: "deploy", pattern: "prod *" } }));
    const idsIn = (shown: Element): unknown[] =>
      elementsOf(bodyOf(shown).filter(({ tag }) => tag === "column_set")).flatMap(
        ({ tag, element_id: id }) => (tag === "button" ? [id] : []),
      );
    expect(idsIn(card)).toEqual(["approve", "reject", "why", "always"]);
    const why = elementsOf(card).find(({ element_id: id }) => id === "why");
    expect(why).toMatchObject({
      behaviors: [{ value: { __approval__: approvalOf().id, ask: "reason" } }],
    });
    expect(bodyOf(card).some(({ tag }) => tag === "form")).toBe(false);
    const asking = approvalCard(pending(), { asksReason: true });
    expect(idsIn(asking)).toEqual(["approve", "reject"]);
    const form = bodyOf(asking).find(({ tag }) => tag === "form");
    expect(form).toMatchObject({
      elements: [
        { tag: "input", name: "reason", max_length: 500 },
        {
          tag: "button",
          form_action_type: "submit",
          behaviors: [{ value: { __approval__: approvalOf().id, decision: "reject" } }],
        },
      ],
    });
  });

  it("offers a rule only where policy does, asks again, and never a rule that it cannot show whole", () => {
    expect(valuesOf(approvalCard(pending()))).toHaveLength(3);
    const always = elementsOf(
      approvalCard(pending({ remember: { tool: "deploy", pattern: "prod *" } })),
    ).find(({ element_id: id }) => id === "always");
    expect(always).toMatchObject({
      text: { content: "Always allow…" },
      confirm: {
        text: {
          content: expect.stringContaining("in this chat about calls that fit deploy(prod *)"),
        },
      },
      behaviors: [
        { value: { __approval__: approvalOf().id, decision: "approve", remember: true } },
      ],
    });
    const long = { tool: "deploy", pattern: `${"x".repeat(400)} *` };
    expect(valuesOf(approvalCard(pending({ remember: long })))).toHaveLength(3);
    const middle = elementsOf(
      approvalCard(pending({ remember: { tool: "deploy", pattern: `${"x".repeat(150)} *` } })),
    );
    const button = middle.find(({ element_id: id }) => id === "always");
    expect(button).toMatchObject({
      confirm: { text: { content: expect.stringContaining("x".repeat(150)) } },
    });
  });

  it("says whose calls a rule would be about", () => {
    const remember = { tool: "deploy", pattern: "*", person: "ou_ann" };
    const named = textsOf(approvalCard(pending({ remember })));
    expect(named.find((text) => text.includes("/permissions"))).toContain(
      "calls of Ann that fit deploy(*)",
    );
    const unnamed = textsOf(
      approvalCard(pending({ remember, requester: { id: "ou_ann" }, language: "zh" })),
    );
    expect(unnamed.find((text) => text.includes("/permissions"))).toContain(
      "发起人的符合 deploy(*) 的调用不再询问",
    );
    const chinese = textsOf(approvalCard(pending({ remember, language: "zh" })));
    expect(chinese.find((text) => text.includes("/permissions"))).toContain(
      "Ann 的符合 deploy(*) 的调用不再询问",
    );
    expect(textsOf(approvalCard(pending({ kind: "rule", remember })))).toContain(
      "Only for calls of: Ann",
    );
  });

  it("counts the people who have approved, where it takes several", () => {
    const deciders = { requester: true, people: [], roles: [], fourEyes: false, count: 2 };
    expect(textsOf(approvalCard(pending({ deciders })))).toContain("0 of 2 approved");
    const counted = pending({ deciders }, [decided("approve")]);
    expect(textsOf(approvalCard(counted))).toEqual(
      expect.arrayContaining(["1 of 2 approved", "Approved by: Bob"]),
    );
    expect(approvalMark(pending({ deciders }))).toBe("pending");
    expect(approvalMark(counted)).toBe("pending-1");
  });
});

describe("the card of a call whose tool has words for people", () => {
  const words = {
    title: { zh: "记笔记", en: "Add a note" },
    summary: { zh: "记一条笔记：浇花", en: "Add a note: water the plants" },
  };

  it("asks in one sentence, with the arguments folded", () => {
    const card = approvalCard(pending({ words }));
    expect(card["header"]).toMatchObject({ title: { content: "Approve “Add a note”?" } });
    expect(bodyOf(card)).toMatchObject([
      { tag: "div", text: { tag: "plain_text", content: "Add a note: water the plants" } },
      { tag: "collapsible_panel", expanded: false },
      ...bodyOf(card).slice(2),
    ]);
    const settled = approvalCard({ ...pending({ words, language: "zh" }), state: "approved" });
    expect(settled["header"]).toMatchObject({ title: { content: "“记笔记”已批准" } });
    expect(textsOf(settled)).toContain("记一条笔记：浇花");
  });

  it("asks a second time, with the risk and the sentence, before a call of high risk is approved", () => {
    const twice = (more: Partial<Approval>) =>
      elementsOf(approvalCard(pending(more))).find(({ element_id: id }) => id === "approve")?.[
        "confirm"
      ];
    const pay = { summary: { zh: "付 100 元给小明", en: "Pay 100 to Ming" } };
    expect(twice({ risk: "high", words: pay })).toEqual({
      title: { tag: "plain_text", content: "⚠️ Risk: high" },
      text: { tag: "plain_text", content: "Pay 100 to Ming" },
    });
    expect(twice({ risk: "high", words: pay, language: "zh" })).toMatchObject({
      text: { content: "付 100 元给小明" },
    });
    expect(twice({ risk: "high" })).toMatchObject({ text: { content: "Approve deploy?" } });
    expect(twice({ risk: "medium", words: pay })).toBeUndefined();
  });

  it("shows the arguments unfolded where the sentence is cut, and where the risk is high", () => {
    const isOpen = (more: Partial<Approval>) =>
      elementsOf(approvalCard(pending({ words, ...more }))).find(
        ({ tag }) => tag === "collapsible_panel",
      )?.["expanded"];
    expect(isOpen({})).toBe(false);
    expect(isOpen({ risk: "high" })).toBe(true);
    expect(isOpen({ words: { summary: "Run x…" } })).toBe(true);
  });

  it("has no markup and nothing hidden of what a model wrote into the sentence", () => {
    const [first] = bodyOf(
      approvalCard(pending({ words: { summary: "Pay **1** <at id=all></at>\u202e2" } })),
    );
    expect(first).toMatchObject({
      text: { tag: "plain_text", content: String.raw`Pay **1** <at id=all></at>\u202e2` },
    });
  });
});

describe("AL-63: arguments on a card", () => {
  it("draws the people whom they name by id, and shows a text of 2,000 characters whole", () => {
    const text = "夜".repeat(2_000);
    const card = approvalCard(
      pending({ risk: "high", arguments: { to: "ou_bob", cc: ["ou_eve", "ou_bob"], text } }),
    );
    expect(elementsOf(card)).toContainEqual(
      expect.objectContaining({
        tag: "person_list",
        persons: [{ id: "ou_bob" }, { id: "ou_eve" }],
      }),
    );
    expect(JSON.stringify(card)).toContain(text);
  });

  const blockOf = (given: Record<string, unknown>, secrets: string[] = []): string =>
    markdownOf(approvalCard(pending({ arguments: given, secrets })))[0] ?? "";

  it("keep their non-ASCII readable, and show what would be hidden", () => {
    expect(blockOf({ 城市: "上海 🇨🇳 ❤️" })).toContain('"城市": "上海 🇨🇳 ❤️"');
    expect(blockOf({ command: "rm\u202e-rf\u200b /\u00a0" })).toContain(
      String.raw`"rm\u202e-rf\u200b /\u00a0"`,
    );
  });

  it("have their secrets masked, at any depth", () => {
    const shown = JSON.stringify(
      approvalCard(
        pending({ arguments: { pin: "s3cr3t-a", of: [{ pin: "s3cr3t-b" }] }, secrets: ["pin"] }),
      ),
    );
    expect(shown).not.toMatch(/s3cr3t/);
  });

  it("cannot close their block, begin a tag, or hide anything: the block is their JSON, and nothing else changes", () => {
    const around = (card: Element): string => {
      const shown = structuredClone(card);
      const [first] = bodyOf(shown);
      if (first !== undefined) {
        first["content"] = String(first["content"]).replace(/```json\n[\s\S]*\n```$/, "");
      }
      return JSON.stringify({
        ...shown,
        body: bodyOf(shown).filter(({ tag }) => tag !== "collapsible_panel"),
      });
    };
    const without = around(approvalCard(pending({ arguments: {} })));
    fc.assert(
      fc.property(trickyArguments, (given) => {
        const card = approvalCard(pending({ arguments: given }));
        expect(around(card)).toBe(without);
        for (const content of markdownOf(card).filter((text) => text.includes("```"))) {
          const [, inside = "", ...rest] = content.split("```");
          expect(rest).toEqual([""]);
          expect(inside).not.toMatch(/(?:<|&lt|&#0*60|&#x0*3c)[^a-z]{0,10}(?:at|person|all)\b/i);
          expect(inside).not.toMatch(hidden);
          if (!inside.endsWith("…\n")) {
            expect(JSON.parse(inside.replace(/^json\n/, ""))).toEqual(
              JSON.parse(JSON.stringify(maskedArguments(given, []))),
            );
          }
        }
      }),
      { numRuns: 500 },
    );
  });

  it("that are long begin on the card, go on in a folded panel, and what is left out is said", () => {
    const long = approvalCard(
      pending({ arguments: { script: "line\n".repeat(300), target: "prod" } }),
    );
    expect(markdownOf(long)[0]).toMatch(/…\n```$/);
    const panel = elementsOf(long).find(({ tag }) => tag === "collapsible_panel");
    expect(panel).toMatchObject({ expanded: false });
    expect(markdownOf(panel).join("")).toContain('"target": "prod"');
    expect(textsOf(long).filter((text) => text.includes("not shown"))).toEqual([]);
    const tooLong = approvalCard(
      pending({ arguments: { script: "x".repeat(50_000), target: "prod" } }),
    );
    expect(
      textsOf(tooLong).filter((text) =>
        /⚠️ 4\d,\d{3} more characters of the arguments are not shown/.test(text),
      ),
    ).toHaveLength(1);
    const many = Object.fromEntries(
      Array.from({ length: 3_000 }, (_, at) => [`k${at}`, "some words"]),
    );
    expect(
      textsOf(approvalCard(pending({ arguments: many }))).some((text) =>
        text.includes("not shown"),
      ),
    ).toBe(true);
  });
});

it("a card stays within its size and its number of elements whatever the approval holds, and has nothing hidden", () => {
  const decisions = fc.array(
    fc.record({
      word: fc.constantFrom("approve" as const, "reject" as const),
      note: trickyText,
      name: trickyText,
      id: trickyText,
    }),
    { maxLength: 12 },
  );
  fc.assert(
    fc.property(
      anyApproval,
      fc.constantFrom("pending" as const, ...settledStates),
      decisions,
      (approval, state, given) => {
        const taken = given.map(({ word, note, name, id }) =>
          decided(word, { note, by: { id, name } }),
        );
        const card = approvalCard({ approval, state, decisions: taken });
        expect(jsonBytes(card)).toBeLessThan(maxCardBytes);
        expect(elementsOf(card).length).toBeLessThan(100);
        for (const text of textsOf(card)) expect(text.replaceAll("\u200b", "")).not.toMatch(hidden);
        for (const { text } of elementsOf(card).filter(({ tag }) => tag === "button")) {
          expect((text as { content: string }).content.length).toBeLessThanOrEqual(100); // as all buttons have it
        }
        for (const markdown of markdownOf(card)) {
          const outside = markdown
            .replaceAll(/(`{3,})[\s\S]*?\n\1/g, "")
            .replaceAll(/<\/?local_datetime[^>]*>/g, "");
          expect(outside).not.toMatch(/<(?!\u200b)|\]\(/);
        }
        expect(isUsable(card)).toBe(state === "pending");
      },
    ),
    { numRuns: 200 },
  );
});

describe("the card of a settled approval", () => {
  it.each([
    { state: "approved", template: "green" },
    { state: "rejected", template: "grey" },
  ] as const)(
    "AL-33: $state has the words and the colour of the contract, and no button",
    ({ state, template }) => {
      const decision = decided(state === "approved" ? "approve" : "reject");
      const card = approvalCard({ approval: approvalOf(), state, decisions: [decision] });
      expect(card["header"]).toEqual({
        title: { tag: "plain_text", content: `deploy ${state}` },
        template,
      });
      expect(bodyOf(card)[0]).toEqual({
        tag: "markdown",
        content: `Action **deploy** was ${state}.`,
      });
      expect(isUsable(card)).toBe(false);
    },
  );

  it("says who decided, when and why, in nothing but plain text", () => {
    const note = "no **way** <at id=all></at>\u202e";
    const card = approvalCard({
      approval: approvalOf(),
      state: "rejected",
      decisions: [decided("reject", { note })],
    });
    expect(textsOf(card)).toEqual(
      expect.arrayContaining([
        "Rejected by: Bob",
        String.raw`Reason: no **way** <at id=all></at>\u202e`,
      ]),
    );
    expect(markdownOf(card).join("")).not.toContain("way");
    expect(markdownOf(card).join("")).toContain("millisecond='1700000001000'");
    const unnamed = approvalCard({
      approval: approvalOf(),
      state: "rejected",
      decisions: [decided("reject", { by: { id: "ou_bob" } })],
    });
    expect(elementsOf(unnamed)).toContainEqual(
      expect.objectContaining({ tag: "person_list", persons: [{ id: "ou_bob" }] }),
    );
  });

  it("tells every end of every kind apart from a waiting one, in both languages", () => {
    for (const kind of ["call", "outcome", "rule"] as const) {
      for (const language of ["en", "zh"] as const) {
        const approval = approvalOf({ kind, language, remember: { tool: "deploy", pattern: "*" } });
        const title = (state: ShownApproval["state"]): unknown =>
          approvalCard({ approval, state, decisions: [] })["header"];
        for (const state of settledStates) expect(title(state)).not.toEqual(title("pending"));
        expect(title("approved")).not.toEqual(title(kind === "outcome" ? "done" : "rejected"));
      }
    }
  });

  it("can leave out whatever models and people wrote", () => {
    const approval = approvalOf({ arguments: { words: "forbidden" }, reason: "forbidden" });
    const card = approvalCard(
      { approval, state: "rejected", decisions: [decided("reject", { note: "forbidden" })] },
      { bare: true },
    );
    expect(JSON.stringify(card)).not.toContain("forbidden");
    expect(bodyOf(card)).toEqual([{ tag: "markdown", content: "Action **deploy** was rejected." }]);
  });
});

describe("the cards of other questions", () => {
  it("about an unknown outcome offer another try, the end, and a note of what came of it", () => {
    const card = approvalCard(pending({ kind: "outcome" }));
    const approval = approvalOf().id;
    expect(card["header"]).toMatchObject({ title: { content: "Did deploy take effect?" } });
    expect(valuesOf(card)).toEqual(
      ["retry", "abort", "done"].map((action) => ({
        type: "callback",
        value: { larkline: "outcome", approval, action },
      })),
    );
    const form = bodyOf(card).find(({ tag }) => tag === "form");
    expect(form).toMatchObject({ elements: [{ name: "note" }, { form_action_type: "submit" }] });
    const retry = elementsOf(card).find(({ element_id: id }) => id === "retry");
    expect(retry).toHaveProperty("confirm");
  });

  it("about an unknown outcome tell who has said what, where several people have to agree", () => {
    const deciders = { requester: true, people: [], roles: [], fourEyes: false, count: 2 };
    const card = approvalCard(
      pending({ kind: "outcome", deciders }, [
        decided("retry"),
        decided("done", { by: { id: "ou_eve", name: "Eve" } }),
      ]),
    );
    expect(textsOf(card)).toEqual(
      expect.arrayContaining([
        "2 people have to decide the same",
        "Run again by: Bob",
        "Marked as done by: Eve",
      ]),
    );
  });

  it("about a rule show the rule, and are answered like a call", () => {
    const card = approvalCard(
      pending({ kind: "rule", remember: { tool: "shell", pattern: "git *" } }),
    );
    expect(markdownOf(card)[0]).toContain("```\nshell(git *)\n```");
    expect(valuesOf(card)).toHaveLength(2);
  });

  it("about a rule that is too long to be shown whole can be rejected only", () => {
    const card = approvalCard(
      pending({ kind: "rule", remember: { tool: "x".repeat(3_000), pattern: "*" } }),
    );
    expect(valuesOf(card)).toMatchObject([{ value: { decision: "reject" } }]);
  });

  it("hold no name of a tool that is markup", () => {
    for (const tool of ["**x**", "[a](https://x.example)", "<at id=all></at>", "a`b"]) {
      const [first = ""] = markdownOf(approvalCard(pending({ tool })));
      expect(first.split("\n")[0]).not.toMatch(/\*\*\*|\]\(|<at|a`b/);
    }
    expect(markdownOf(approvalCard(pending({ tool: "read_the_file-2" })))[0]).toContain(
      "**read_the_file-2**",
    );
  });
});

describe("the card of a question", () => {
  const asked = (choices: string[] = [], more: Partial<Approval> = {}): Partial<Approval> => ({
    kind: "question",
    tool: "ask_person",
    question: { text: "Which **room**?\n<at id=all></at>", choices },
    ...more,
  });

  it("has the question as plain text, a button for each choice, and a field for any other answer", () => {
    const card = approvalCard(pending(asked(["Blue", "Green"])));
    expect(card["header"]).toMatchObject({ title: { content: "A question for you" } });
    expect(textsOf(card)).toContain("Which **room**?\n<at id=all></at>");
    expect(markdownOf(card).join("\n")).not.toContain("room");
    const { id } = approvalOf();
    expect(valuesOf(card)).toMatchObject([
      { value: { larkline: "answer", approval: id, choice: "Blue" } },
      { value: { larkline: "answer", approval: id, choice: "Green" } },
      { value: { larkline: "answer", approval: id } },
    ]);
    expect(elementsOf(card).find(({ tag }) => tag === "input")).toMatchObject({
      name: "answer",
      max_length: 1_000,
    });
    expect(textsOf(card).join("\n")).not.toContain("Asked by");
  });

  it("names the agents for which a helper asks", () => {
    const path = "front-desk > researcher";
    expect(textsOf(approvalCard(pending(asked(["Blue"], { reason: path }))))).toContain(
      `Asked by: ${path}`,
    );
  });

  it("has no buttons once it is settled, says how, and shows the answer unless it is refused", () => {
    const answer = "the <b>green</b> one";
    const status: ShownApproval = {
      approval: approvalOf(asked(["Blue"])),
      state: "answered",
      decisions: [decided("answer", { note: answer })],
    };
    const card = approvalCard(status);
    expect(isUsable(card)).toBe(false);
    expect(card["header"]).toMatchObject({ title: { content: "Answered" }, template: "green" });
    expect(textsOf(card)).toContain(`Answer: ${answer}`);
    expect(JSON.stringify(approvalCard(status, { bare: true }))).not.toContain("green</b>");
    for (const [state, title] of [
      ["expired", "Nobody answered in time"],
      ["cancelled", "No answer is needed any more"],
      ["undeliverable", "Nobody could be asked"],
    ] as const) {
      const over = approvalCard({ ...status, state, decisions: [] });
      expect(isUsable(over)).toBe(false);
      expect(over["header"]).toMatchObject({ title: { content: title } });
    }
  });

  it("stays below the size of a card in both languages, whatever was asked and answered", () => {
    const long = '好\u0000<"'.repeat(250);
    const choices = Array.from({ length: 6 }, (_, at) => `${at}${"\u202e".repeat(58)}`);
    const approval = approvalOf(
      asked(choices, { question: { text: long, choices }, bilingual: true }),
    );
    expect(jsonBytes(approvalCard({ approval, state: "pending", decisions: [] }))).toBeLessThan(
      maxCardBytes,
    );
    const decisions = [decided("answer", { note: long.repeat(4) })];
    expect(jsonBytes(approvalCard({ approval, state: "answered", decisions }))).toBeLessThan(
      maxCardBytes,
    );
  });
});

describe("the card of a question for a date", () => {
  it.each([
    ["date", "date_picker"],
    ["date-time", "picker_datetime"],
  ] as const)("has a picker for a %s, and a button to decline", (format, tag) => {
    const card = approvalCard(
      pending({ kind: "question", question: { text: "When?", choices: [], format } }),
    );
    expect(textsOf(card)).toEqual(expect.arrayContaining(["When?", "Send", "Decline"]));
    expect(elementsOf(card).filter(({ name }) => name === "field_0")).toMatchObject([{ tag }]);
    const id = approvalOf().id;
    expect(valuesOf(card)).toEqual([
      { type: "callback", value: { larkline: "answer", approval: id, fields: ["answer"] } },
      {
        type: "callback",
        value: { larkline: "answer", approval: id, choice: '{"action":"decline"}' },
      },
    ]);
    expect(JSON.stringify(card)).not.toContain("answer_form");
  });

  it("shows the day, or that the person declined", () => {
    const { approval } = pending({
      kind: "question",
      question: { text: "When?", choices: [], format: "date" },
    });
    const shown = (note: string): string[] => {
      return textsOf(
        approvalCard({ approval, state: "answered", decisions: [decided("answer", { note })] }),
      );
    };
    expect(shown("2026-12-24")).toContain("Answer: 2026-12-24");
    expect(shown('{"action":"decline"}')).toContain("Answer: Declined");
  });
});

describe("the card of what an MCP server asks", () => {
  const form = (fields: FormField[], message = "Where to?"): Partial<Approval> => ({
    kind: "question",
    question: { text: "in words", choices: [], form: { server: "travel", message, fields } },
  });
  const field = (kind: FormField["kind"], at: number, more: Partial<FormField> = {}): FormField => {
    return { name: `name ${at}`, label: `Label ${at}`, kind, required: at === 0, ...more };
  };

  it("names the server, has a control for each field, and a button to decline", () => {
    const kinds = ["text", "choice", "boolean", "date", "date-time", "integer"] as const;
    const options = [{ value: "l", label: "Low" }];
    const fields = kinds.map((kind, at) => field(kind, at, kind === "choice" ? { options } : {}));
    const card = approvalCard(pending(form(fields)));
    expect(textsOf(card)).toContain(
      "The MCP server “travel” asks this, not the bot. Never enter passwords here.",
    );
    expect(textsOf(card)).toEqual(
      expect.arrayContaining(["Where to?", "Label 0 *", "Label 1", "Low", "Yes", "Decline"]),
    );
    const controls = elementsOf(card).filter(
      ({ name }) => typeof name === "string" && name.startsWith("field_"),
    );
    expect(controls.map(({ tag }) => tag)).toEqual([
      "input",
      "select_static",
      "select_static",
      "date_picker",
      "picker_datetime",
      "input",
    ]);
    const id = approvalOf().id;
    expect(valuesOf(card)).toEqual([
      {
        type: "callback",
        value: { larkline: "answer", approval: id, fields: fields.map(({ name }) => name) },
      },
      {
        type: "callback",
        value: { larkline: "answer", approval: id, choice: '{"action":"decline"}' },
      },
    ]);
    expect(textsOf(approvalCard(pending({ ...form(fields), language: "zh" })))).toContain(
      "拒绝回答",
    );
  });

  it("shows the answer by the labels, or that it was declined", () => {
    const shown = (note: string): string[] => {
      const { approval } = pending(form([field("text", 0), field("date", 1)]));
      const decisions = [decided("answer", { note })];
      return textsOf(approvalCard({ approval, state: "answered", decisions }));
    };
    const content = { "name 0": "Rome", "name 1": "2026-12-01" };
    expect(shown(JSON.stringify({ action: "accept", content }))).toContain(
      "Answer: Label 0: Rome; Label 1: 2026-12-01",
    );
    expect(shown('{"action":"decline"}')).toContain("Answer: Declined");
    expect(shown("words of an earlier version")).toContain("Answer: words of an earlier version");
  });

  it.each([
    [
      "sixty options",
      [
        field("choice", 0, {
          options: Array.from({ length: 60 }, (_, at) => ({
            value: `${at}`,
            label: "\u200b".repeat(5),
          })),
        }),
      ],
    ],
    [
      "ten hints",
      Array.from({ length: 10 }, (_, at) => field("text", at, { hint: "\u202e".repeat(90) })),
    ],
    [
      "ten long names",
      Array.from({ length: 10 }, (_, at) => field("text", at, { name: `${at}${"字".repeat(80)}` })),
    ],
  ])("is below its size with %s, in both languages too", (_, fields) => {
    const card = approvalCard(pending({ ...form(fields, "\u200b".repeat(700)), bilingual: true }));
    expect(jsonBytes(card)).toBeLessThanOrEqual(maxCardBytes);
  });
});
