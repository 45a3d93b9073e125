import { expect, it } from "vitest";
import { languageOfMessage } from "./index.ts";

const quoted = { type: "text", text: "[The quoted message says:\n你好\n]" } as const;
const own = { type: "text", text: "what does it say?" } as const;

it("the language around an answer is the configured one, then that of the person's own words, then that of all parts", () => {
  const parts = [quoted, own];
  expect(languageOfMessage({ parts, language: "en" }, "zh")).toBe("zh");
  expect(languageOfMessage({ parts, language: "en" })).toBe("en");
  expect(languageOfMessage({ parts })).toBe("zh");
  expect(languageOfMessage({ parts: [own] })).toBe("en");
});
