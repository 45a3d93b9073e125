import type { Approval, Deciders, DecisionWord } from "@larkline/protocol/approval";
import { describe, expect, it } from "vitest";
import { approval, bossDecides, policy, requesterDecides } from "./permission.fixture.ts";
import { decidersText, mayDecide } from "./policy.ts";

const { roles } = policy();

function may(
  id: string,
  word: DecisionWord,
  deciders: Deciders & { kind?: Approval["kind"] },
): boolean {
  const { kind = "call" } = deciders;
  return mayDecide(approval({ deciders, kind }), { person: { id, groups: [] }, word, roles });
}

const fourEyes: Deciders = { ...bossDecides, requester: true, fourEyes: true };

describe("mayDecide", () => {
  it("AL-42: lets the named people decide, and no others", () => {
    expect(may("ou_boss", "approve", bossDecides)).toBe(true);
    expect(may("ou_boss", "reject", bossDecides)).toBe(true);
    for (const word of ["approve", "reject"] as const) {
      expect(may("ou_stranger", word, bossDecides)).toBe(false);
      expect(may("", word, bossDecides)).toBe(false);
    }
  });

  it("the requester may always reject, and approves only where policy says so", () => {
    expect(may("ou_me", "approve", requesterDecides)).toBe(true);
    expect(may("ou_me", "approve", bossDecides)).toBe(false);
    for (const deciders of [requesterDecides, bossDecides, fourEyes]) {
      expect(may("ou_me", "reject", deciders)).toBe(true);
    }
  });

  it("four eyes: the requester approves in no way, by no role and no list", () => {
    expect(may("ou_me", "approve", fourEyes)).toBe(false);
    expect(may("ou_me", "approve", { ...fourEyes, people: ["ou_me", "ou_boss"] })).toBe(false);
    expect(
      mayDecide(
        approval({ requester: { id: "ou_op" }, deciders: { ...fourEyes, roles: ["ops"] } }),
        {
          person: { id: "ou_op", groups: ["g_ops"] },
          word: "approve",
          roles,
        },
      ),
    ).toBe(false);
    expect(may("ou_boss", "approve", fourEyes)).toBe(true);
  });

  it("roles have people and groups, and a role that is gone has no members", () => {
    const deciders = { ...bossDecides, people: [], roles: ["ops", "gone", "constructor"] };
    const decide = (id: string, groups: string[]): boolean =>
      mayDecide(approval({ deciders }), { person: { id, groups }, word: "approve", roles });
    expect(decide("ou_op", [])).toBe(true);
    expect(decide("ou_x", ["g_ops"])).toBe(true);
    expect(decide("ou_x", ["g_other"])).toBe(false);
    expect(decide("ou_lead", [])).toBe(false);
  });

  it("no person may say the words of another kind of approval", () => {
    for (const word of ["retry", "done", "abort"] as const) {
      expect(may("ou_boss", word, bossDecides)).toBe(false);
      expect(may("ou_boss", word, { ...bossDecides, kind: "outcome" })).toBe(true);
      expect(may("ou_me", word, { ...bossDecides, requester: true, kind: "outcome" })).toBe(true);
    }
    for (const word of ["approve", "reject"] as const) {
      expect(may("ou_boss", word, { ...bossDecides, kind: "outcome" })).toBe(false);
    }
    expect(may("ou_boss", "approve", { ...bossDecides, kind: "rule" })).toBe(true);
  });
});

describe("decidersText", () => {
  it("names who may approve, in both languages", () => {
    const deciders = {
      ...bossDecides,
      requester: true,
      people: ["ou_boss", "ou_x"],
      roles: ["ops"],
    };
    const nameOf = (id: string): string | undefined => (id === "ou_boss" ? "王总" : undefined);
    expect(decidersText(deciders, { language: "zh", nameOf })).toBe(
      "发起人、王总、ou_x、角色“ops”的成员",
    );
    expect(decidersText(deciders, { language: "en", requester: "Li" })).toBe(
      "Li, ou_boss, ou_x, members of “ops”",
    );
    const titled = {
      ...deciders,
      people: [],
      roleTitles: { ops: { zh: "运维", en: "Operations" } },
    };
    expect(decidersText(titled, { language: "zh" })).toBe("发起人、运维");
    expect(decidersText(titled, { language: "en", requester: "Li" })).toBe("Li, Operations");
  });

  it("leaves out the requester whose word does not count, and says when no decider is left", () => {
    expect(decidersText(fourEyes, { language: "en" })).toBe("ou_boss");
    expect(decidersText({ ...fourEyes, people: [] }, { language: "en" })).toBe("nobody");
  });

  it("is short, however many there are", () => {
    const people = Array.from({ length: 100 }, (_, index) => `ou_${index}`);
    expect(decidersText({ ...bossDecides, people }, { language: "en" })).toMatch(
      /^(?:ou_\d, ){9}ou_9…$/,
    );
  });
});
