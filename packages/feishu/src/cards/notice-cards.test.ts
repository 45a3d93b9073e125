import { describe, expect, it } from "vitest";
import { lateCard, lateDecidedCard, noticeCard, welcomeCard } from "./notice-cards.ts";
import { summaryOf } from "./card.ts";
import { viewOf } from "./streams.fixture.ts";

const late = {
  session: "app.chat",
  message: "om_1",
  ageMs: 3 * 3_600_000,
  text: "deploy\n```\n<at id=all>",
};

describe("cards that are no reply", () => {
  it("ask about a late message, and carry what a click needs", () => {
    expect(lateCard({ ...late, language: "en" })).toMatchSnapshot();
    expect(JSON.stringify(lateCard({ ...late, language: "zh" }))).toContain("3 小时前");
  });

  it("say what was decided, without buttons", () => {
    for (const decision of ["run", "ignore"] as const) {
      const card = JSON.stringify(lateDecidedCard({ ...late, language: "en" }, decision));
      expect(card).not.toContain("button");
      expect(card).toContain(decision === "run" ? "It is being run." : "It is ignored.");
    }
  });

  it("greet with the commands", () => {
    const commands = () => [{ name: "/stop", description: "stops <at id=all></at> `x`" }];
    expect(welcomeCard({ language: "zh", botName: "Larkline", commands })).toMatchSnapshot();
    expect(JSON.stringify(welcomeCard({ language: "en", commands: () => [] }))).not.toContain(
      "Commands",
    );
  });

  it("show a titled text made safe", () => {
    const card = JSON.stringify(
      noticeCard({ title: "状态", text: "one\n<at id=all>".repeat(5_000), tone: "error" }),
    );
    expect(card).not.toMatch(/<at/);
    expect(Buffer.byteLength(card)).toBeLessThan(26_000);
  });
});

describe("a reply", () => {
  it("is summed up in a line without marks", () => {
    const answer =
      "## Title\n\n- **bold** [link](https://x.example)\n\n```js\ncode\n```\n| a |\n|---|\n";
    expect(summaryOf(viewOf(answer, { state: "answered" }))).toBe("Title bold link code a |");
    expect(summaryOf(viewOf("a", { language: "zh" }))).toBe("回答中…");
    expect(summaryOf(viewOf("👩‍👩‍👧‍👦".repeat(100), { state: "answered" }))).toBe(`${"👩‍👩‍👧‍👦".repeat(15)}…`);
  });
});
