import { expect, it } from "vitest";
import { languageOf, languageOfMessage } from "./messages.ts";

const quoted = {
  type: "text",
  text: "[The quoted message says:\n你好，请问这个项目什么时候完成？\n]",
} as const;
const own = { type: "text", text: "what does it say?" } as const;

it("the language around an answer is the configured one, then that of the person's own words, then that of all parts", () => {
  const parts = [quoted, own];
  expect(languageOfMessage({ parts, language: "en" }, "zh")).toBe("zh");
  expect(languageOfMessage({ parts, language: "en" })).toBe("en");
  expect(languageOfMessage({ parts })).toBe("zh");
  expect(languageOfMessage({ parts: [own] })).toBe("en");
});

it.each([
  ["What does 你好 mean in English?", "en"],
  ["Who is 王小明 in the team list?", "en"],
  ["请看 README.md", "zh"],
  ["把 deploy 的日志发给我", "zh"],
  ["继续", "zh"],
  ["go on", "en"],
  ["東京はどこですか", "en"],
  ["где находится 上海 город", "en"],
] as const)("%s is written in %s, whatever single words of it are", (text, language) => {
  expect(languageOf(text)).toBe(language);
});
