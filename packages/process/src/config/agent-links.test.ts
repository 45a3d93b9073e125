import { describe, expect, it } from "vitest";
import { resolveConfig } from "./larkline-config.ts";

function problemsOf(input: object): string {
  const resolved = resolveConfig(input);
  return resolved.ok ? "" : resolved.error;
}

describe("hand-overs in the configuration", () => {
  it("are read by name or with everything, and agents say whom they answer", () => {
    const input = { type: "object", properties: { order: { type: "string" } } };
    const resolved = resolveConfig({
      agents: {
        default: {
          handoffs: ["expert", { agent: "billing", when: "money", context: "last", input }],
        },
        expert: { description: "Knows wine.", people: ["ou_1"], roles: ["staff"], chats: ["oc_1"] },
        billing: {},
      },
      roles: { staff: { people: ["ou_2"] } },
    });
    const { agents, limits } = resolved.ok ? resolved.value : expect.fail(resolved.error);
    expect(agents.default.handoffs).toEqual([
      { agent: "expert", context: "all" },
      { agent: "billing", when: "money", context: "last", input },
    ]);
    expect(agents["expert"]).toMatchObject({
      description: "Knows wine.",
      access: { people: ["ou_1"], roles: ["staff"], chats: ["oc_1"] },
    });
    expect(agents["billing"]?.access).toBeNull();
    expect(limits.handoffsPerTurn).toBe(8);
  });

  it("name every fault", () => {
    const problems = problemsOf({
      agents: {
        default: {
          handoffs: ["expret", "default", "expert", "expert"],
          tools: ["transfer_to_expert"],
          roles: ["staf"],
        },
        expert: {
          handoffs: [
            {
              agent: "default",
              input: { type: "object", properties: { reason: { type: "string" } } },
            },
          ],
        },
        other: { handoffs: [{ agent: "expert", input: { type: "string" } }] },
        wrong: {
          handoffs: [
            { agent: "expert", input: { type: "object", properties: { a: { type: "nope" } } } },
          ],
        },
      },
      roles: { staff: { people: ["ou_2"] } },
    });
    expect(problems).toMatch(/agents\.default\.handoffs names the unknown agent 'expret'.*expert/);
    expect(problems).toContain("agents.default.handoffs names the agent itself");
    expect(problems).toContain("agents.default.handoffs names 'expert' twice");
    expect(problems).toContain(
      "agents.default.handoffs: transfer_to_expert is also the name of one of its tools",
    );
    expect(problems).toMatch(/agents\.default\.roles names the unknown role 'staf'.*staff/);
    expect(problems).toContain(
      "agents.expert.handoffs: the input for 'default' has a property 'reason'",
    );
    expect(problems).toContain(
      "agents.other.handoffs: the input for 'expert' is not of type object",
    );
    expect(problems).toContain("agents.wrong.handoffs: the input for 'expert' is no JSON Schema");
  });

  it("are refused with unknown keys, too many agents, and a limit that is none", () => {
    expect(
      problemsOf({ agents: { default: { handoffs: [{ agent: "default", whne: "x" }] } } }),
    ).toContain("handoffs");
    expect(problemsOf({ limits: { handoffsPerTurn: 0 } })).toContain("limits.handoffsPerTurn");
  });
});

describe("helpers in the configuration", () => {
  const problemsOfNamed = (as: string, more: object = {}): string =>
    problemsOf({
      agents: { default: { helpers: [{ agent: "reader", as }], ...more }, reader: {} },
    });

  it("are refused with the name of a built-in tool, of a hand-over or of another tool", () => {
    for (const as of [
      "ask_person",
      "todo_write",
      "read_file",
      "write_file",
      "remember",
      "forget",
      "read_result",
    ]) {
      expect(problemsOfNamed(as)).toContain(
        `agents.default.helpers: '${as}' is the name of a built-in tool`,
      );
    }
    expect(problemsOfNamed("transfer_to_reader")).toContain("begins like the name of a hand-over");
    expect(problemsOfNamed("look", { tools: ["look"] })).toContain(
      "'look' is also the name of one of its tools",
    );
    expect(problemsOfNamed("research")).toBe("");
  });
});

describe("teams as helpers in the configuration", () => {
  const teams = { panel: { members: ["writer", "critic"], select: "round_robin" as const } };
  const problemsOfHelper = (helper: object, agents: object = {}): string =>
    problemsOf({
      agents: {
        default: { helpers: [{ as: "discuss", ...helper }] },
        writer: {},
        critic: {},
        ...agents,
      },
      teams,
    });

  it("are given by team, or by agent as everywhere", () => {
    for (const helper of [{ team: "panel" }, { agent: "panel" }]) {
      expect(problemsOfHelper(helper)).toBe("");
      const resolved = resolveConfig({
        agents: { default: { helpers: [{ as: "discuss", ...helper }] }, writer: {}, critic: {} },
        teams,
      });
      const { agents } = resolved.ok ? resolved.value : expect.fail(resolved.error);
      expect(agents["default"]?.helpers).toEqual([
        { agent: "panel", as: "discuss", timeoutMs: 600_000 },
      ]);
    }
  });

  it("are refused when there is no such team, none, or both", () => {
    expect(problemsOfHelper({ team: "panle" })).toBe(
      "agents.default.helpers names the unknown team 'panle', did you mean 'panel'?",
    );
    expect(problemsOfHelper({ team: "writer" })).toContain("names the unknown team 'writer'");
    const either = "agents.default.helpers: 'discuss' needs either an agent or a team";
    expect(problemsOfHelper({})).toBe(either);
    expect(problemsOfHelper({ agent: "writer", team: "panel" })).toBe(either);
  });

  it("are refused when a member leads back to them", () => {
    const back = { as: "ask", team: "panel" };
    expect(problemsOfHelper({ team: "panel" }, { critic: { helpers: [back] } })).toBe(
      "agents: helpers call each other without end: panel > critic > panel",
    );
    expect(
      problemsOfHelper(
        { team: "panel" },
        { writer: { helpers: [{ as: "ask", agent: "default" }] } },
      ),
    ).toBe("agents: helpers call each other without end: default > panel > writer > default");
  });
});

describe("teams in the configuration", () => {
  const agents = {
    default: { busy: "steer" as const, reply: "text" as const },
    writer: {},
    critic: {},
  };

  it("are agents with members, and behave in chats as the first of them", () => {
    const resolved = resolveConfig({
      agents,
      teams: {
        panel: { members: ["default", "writer"], select: "round_robin" },
        jury: {
          members: ["writer", "critic"],
          select: "model",
          selector: { model: "openai/gpt-5", prompt: "Be fair.", repeat: true },
          end: { messages: 4, mention: "APPROVED", from: ["critic"], tokens: 1_000 },
          reply: "transcript",
          description: "Judges texts.",
        },
      },
      bots: { default: { agent: "panel" } },
    });
    const { agents: all } = resolved.ok ? resolved.value : expect.fail(resolved.error);
    expect(all["panel"]).toMatchObject({
      busy: "steer",
      reply: "text",
      model: null,
      tools: [],
      description: "A team: default, writer.",
      team: {
        members: ["default", "writer"],
        select: "round_robin",
        repeat: false,
        end: { messages: 12 },
        reply: "last",
      },
    });
    expect(all["jury"]).toMatchObject({
      model: "openai/gpt-5",
      description: "Judges texts.",
      team: {
        prompt: "Be fair.",
        repeat: true,
        end: { messages: 4, mention: "APPROVED", from: ["critic"], tokens: 1_000 },
      },
    });
    expect(all["writer"]?.team).toBeNull();
  });

  it("name every fault", () => {
    const problems = problemsOf({
      agents,
      teams: {
        writer: { members: ["default", "critic"], select: "round_robin" },
        panel: {
          members: ["panel", "jury", "critik", "critic", "critic"],
          select: "handoff",
          selector: { repeat: true },
        },
        jury: { members: ["writer", "critic"], select: "model", end: { from: ["writr"] } },
        default: { members: ["writer", "critic"], select: "model" },
      },
    });
    expect(problems).toContain("teams.writer has the name of an agent");
    expect(problems).toContain("teams.default has the name of an agent");
    expect(problems).toContain("teams.panel.members names the team itself");
    expect(problems).toContain("teams.panel.members names the team 'jury': members are agents");
    expect(problems).toMatch(/teams\.panel\.members names the unknown agent 'critik'.*critic/);
    expect(problems).toContain("teams.panel.members names 'critic' twice");
    expect(problems).toContain('teams.panel.selector is for select: "model" alone');
    expect(problems).toMatch(/teams\.jury\.end\.from names 'writr', who is no member.*writer/);
    expect(problems).toContain(
      "teams.jury.end.from says whose `mention` counts, and there is none",
    );
    const many = Array.from({ length: 9 }, (_, at) => `a${at}`);
    for (const members of [["writer"], many]) {
      expect(problemsOf({ agents, teams: { panel: { members, select: "model" } } })).toContain(
        "teams.panel.members",
      );
    }
    expect(
      problemsOf({ agents, teams: { panel: { members: ["writer", "critic"], select: "dice" } } }),
    ).toContain("select");
  });
});
