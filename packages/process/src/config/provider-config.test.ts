import { describe, expect, it } from "vitest";
import { readModelNames, readProviders, readTranscription } from "./index.ts";

const providers = readProviders({ ANTHROPIC_API_KEY: "a", OPENAI_API_KEY: "o" }, {});
if (!providers.ok) throw new Error(providers.error);
const known = { providers: providers.value, models: [] };

describe("the model that writes voice messages down", () => {
  it("has the address and the key of its provider; none by default", () => {
    const local = { name: "local", type: "openai", baseUrl: "http://127.0.0.1:1/v1" } as const;
    expect(readTranscription(undefined, providers.value)).toEqual({ ok: true, value: undefined });
    expect(readTranscription({ model: "openai/whisper-1" }, providers.value)).toEqual({
      ok: true,
      value: { model: "whisper-1", apiKey: "o", maxBytes: 10_000_000 },
    });
    expect(readTranscription({ model: "local/org/asr", maxBytes: 5 }, { local })).toEqual({
      ok: true,
      value: { model: "org/asr", baseUrl: local.baseUrl, maxBytes: 5 },
    });
  });

  it.each([
    ["opnai/whisper-1", "transcription.model names an unknown provider, did you mean 'openai'?"],
    ["anthropic/claude", "names a provider that writes nothing down; there are openai, openai-responses"],
  ])("is not %s", (model, error) => {
    expect(readTranscription({ model }, providers.value)).toEqual({ ok: false, error: expect.stringContaining(error) });
  });

  it("needs the key of its provider", () => {
    const without = readProviders({ ANTHROPIC_API_KEY: "a" }, {});
    expect(readTranscription({ model: "openai/whisper-1" }, without.ok ? without.value : {})).toEqual({
      ok: false,
      error: "transcription.model openai/whisper-1 needs OPENAI_API_KEY.",
    });
  });
});

describe("the names of models", () => {
  it("are one or several, in order, whatever the spaces", () => {
    expect(readModelNames(" anthropic/claude-opus-5-5 , openai-responses/gpt-5.4", known)).toEqual({
      ok: true,
      value: [
        { provider: "anthropic", id: "claude-opus-5-5" },
        { provider: "openai-responses", id: "gpt-5.4" },
      ],
    });
  });

  it("may hold further slashes where another server has models of its own", () => {
    const local = { name: "local", type: "openai", baseUrl: "http://127.0.0.1:1/v1" } as const;
    expect(readModelNames("local/org/model:free", { ...known, providers: { ...known.providers, local } })).toEqual({
      ok: true,
      value: [{ provider: "local", id: "org/model:free" }],
    });
  });

  it.each([
    ["claude-sonnet", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["Claude Sonnet", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["claude-sonet", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["claude-sonnet-4.6", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-4-6'?"],
    ["sonnet", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["claude", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["o3", "is not <provider>/<model id>, did you mean 'openai/o3'?"],
    ["gpt 6", "is not <provider>/<model id>, did you mean 'openai/gpt-6.1-sol'?"],
    ["anthropic:claude-opus-4-6", "is not <provider>/<model id>, did you mean 'anthropic/claude-opus-4-6'?"],
    ["Anthropic/claude-opus-4-6", "is not <provider>/<model id>, did you mean 'anthropic/claude-opus-4-6'?"],
    ["openai/", "is not <provider>/<model id>, did you mean 'openai/gpt-6.1-sol'?"],
    ["house-model", "is not <provider>/<model id>; providers are anthropic, openai, openai-responses"],
    ["antropic/claude-opus-4-6", "names an unknown provider, did you mean 'anthropic'?"],
    ["anthropic/claude-sonnet", "is an unknown model, did you mean 'anthropic/claude-sonnet-5-5'? Describe it in"],
    ["anthropic/gpt-6-sol", "is an unknown model, did you mean 'openai/gpt-6-sol'? Describe it in"],
    ["openai/gpt6-luna", "is an unknown model, did you mean 'openai/gpt-6-luna'? Describe it in"],
    ["openai/o7-colossal", "is an unknown model; describe it in models[] if it is new"],
  ])("that are wrong are answered with what may be meant: %s", (name, error) => {
    expect(readModelNames(name, known)).toEqual({ ok: false, error: expect.stringContaining(`'${name}' ${error}`) });
  });

  it("are all named where several are wrong", () => {
    const read = readModelNames("gpt-5,Google/gemini,openai/gpt-5.4,openai/", known);
    expect(read).toHaveProperty("error", expect.stringMatching(/^'gpt-5' .*; 'Google\/gemini' .*; 'openai\/' [^;]*$/));
    expect(readModelNames(" , ", known)).toEqual({ ok: false, error: "no model is named" });
  });
});
