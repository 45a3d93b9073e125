import { describe, expect, it } from "vitest";
import { replacing } from "./backend.fixture.ts";
import { createTestServices } from "./ingress.fixture.ts";
import { languageOfMessage, languageOfPerson, writtenLanguage, type Written } from "./messages.ts";
import { testMemory } from "./redis.fixture.ts";

const chinese = { defaultLanguage: "zh" } as const;
const english = { defaultLanguage: "en" } as const;

type Agent = Parameters<typeof languageOfMessage>[3];

/** The languages of people as one bot knows them. */
function languages(app = "cli_a", shared = testMemory()) {
  const services = createTestServices(shared);
  const channel = { ...services.apiChannel, app };
  return {
    languageOf: async (person: string, written: Written, agent: Agent) =>
      await languageOfMessage(services, channel, { person, ...written }, agent),
    of: async (person: string, agent: Agent) =>
      await languageOfPerson(services, channel, person, agent),
  };
}

describe("the language that a text is written in", () => {
  it.each([
    ["你好", "zh", true],
    ["hello", "en", true],
    ["/new 今天天气怎么样", "zh", true],
    ["/停止", "zh", true],
    ["/help", "en", false],
    ["看看 https://example.com/some/long/path/with/many/words?and=more", "zh", true],
    ["看看 `const one = two; three` 有什么问题", "zh", true],
    ["[微笑] ok", "en", true],
    ["[the report](https://example.com) please", "en", true],
  ] as const)("%s", (text, language, isSure) => {
    expect(writtenLanguage({ text })).toEqual({ language, isSure });
  });

  it.each([
    "123",
    "👍",
    "",
    "[image]",
    "[微笑]",
    ":THUMBSUP:",
    "https://example.com/a",
    "@小明",
    "？！",
    "```\nls -l\n```",
  ])("none: %j", (text) => {
    expect(writtenLanguage({ text })).toBeUndefined();
  });

  it("is not that of the names of people", () => {
    expect(writtenLanguage({ text: "@Li Lei 123", mentioned: ["Li Lei"] })).toBeUndefined();
  });
});

describe("a person's language", () => {
  it("is that of their last message with words, for each person and app", async () => {
    const shared = testMemory();
    const [here, there] = [languages("cli_a", shared), languages("cli_b", shared)];
    expect(await here.languageOf("ou_1", { text: "hello" }, chinese)).toBe("en");
    expect(await here.languageOf("ou_1", { text: "123" }, chinese)).toBe("en");
    expect(await here.of("ou_1", chinese)).toBe("en");
    expect(await here.languageOf("ou_2", { text: "123" }, chinese)).toBe("zh");
    expect(await there.languageOf("ou_1", { text: "123" }, chinese)).toBe("zh");
    expect(await here.languageOf("ou_1", { text: "你好" }, chinese)).toBe("zh");
    expect(await here.languageOf("ou_1", { text: "/help" }, english)).toBe("zh");
    expect(await there.languageOf("ou_1", { text: "/help" }, chinese)).toBe("en");
    expect(await there.of("ou_1", chinese)).toBe("zh");
  });

  it("is not learned from the words of others, nor kept of people who are not served", async () => {
    const here = languages();
    await here.languageOf("ou_1", { text: "hello", isForeign: true }, chinese);
    await here.languageOf("ou_2", { text: "hello", isStranger: true }, chinese);
    expect([await here.of("ou_1", chinese), await here.of("ou_2", chinese)]).toEqual(["zh", "zh"]);
  });

  it("is the agent's default while what was kept cannot be read", async () => {
    const shared = testMemory();
    const away = () => Promise.reject(new Error("away"));
    const here = languages("cli_a", {
      ...shared,
      lookups: replacing(shared.lookups, { get: away, set: away }),
    });
    expect(await here.languageOf("ou_1", { text: "hello" }, chinese)).toBe("en");
    expect(await here.languageOf("ou_1", { text: "123" }, english)).toBe("en");
  });
});
