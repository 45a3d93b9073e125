import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  loadConfigFile,
  loadModelModules,
  readModelNames,
  readProviders,
  readTranscription,
  resolveConfig,
} from "./index.ts";

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
    [
      "anthropic/claude",
      "names a provider that writes nothing down; there are openai, openai-responses",
    ],
  ])("is not %s", (model, error) => {
    expect(readTranscription({ model }, providers.value)).toEqual({
      ok: false,
      error: expect.stringContaining(error),
    });
  });

  it("needs the key of its provider", () => {
    const without = readProviders({ ANTHROPIC_API_KEY: "a" }, {});
    expect(
      readTranscription({ model: "openai/whisper-1" }, without.ok ? without.value : {}),
    ).toEqual({
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
    expect(
      readModelNames("local/org/model:free", {
        ...known,
        providers: { ...known.providers, local },
      }),
    ).toEqual({
      ok: true,
      value: [{ provider: "local", id: "org/model:free" }],
    });
  });

  it.each([
    ["claude-sonnet", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["Claude Sonnet", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["claude-sonet", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    [
      "claude-sonnet-4.6",
      "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-4-6'?",
    ],
    ["sonnet", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["claude", "is not <provider>/<model id>, did you mean 'anthropic/claude-sonnet-5-5'?"],
    ["o3", "is not <provider>/<model id>, did you mean 'openai/o3'?"],
    ["gpt 6", "is not <provider>/<model id>, did you mean 'openai/gpt-6.1-sol'?"],
    [
      "anthropic:claude-opus-4-6",
      "is not <provider>/<model id>, did you mean 'anthropic/claude-opus-4-6'?",
    ],
    [
      "Anthropic/claude-opus-4-6",
      "is not <provider>/<model id>, did you mean 'anthropic/claude-opus-4-6'?",
    ],
    ["openai/", "is not <provider>/<model id>, did you mean 'openai/gpt-6.1-sol'?"],
    [
      "house-model",
      "is not <provider>/<model id>; providers are anthropic, openai, openai-responses",
    ],
    ["antropic/claude-opus-4-6", "names an unknown provider, did you mean 'anthropic'?"],
    [
      "anthropic/claude-sonnet",
      "is an unknown model, did you mean 'anthropic/claude-sonnet-5-5'? Describe it in",
    ],
    ["anthropic/gpt-6-sol", "is an unknown model, did you mean 'openai/gpt-6-sol'? Describe it in"],
    ["openai/gpt6-luna", "is an unknown model, did you mean 'openai/gpt-6-luna'? Describe it in"],
    ["openai/o7-colossal", "is an unknown model; describe it in models[] if it is new"],
  ])("that are wrong are answered with what may be meant: %s", (name, error) => {
    expect(readModelNames(name, known)).toEqual({
      ok: false,
      error: expect.stringContaining(`'${name}' ${error}`),
    });
  });

  it("are all named where several are wrong", () => {
    const read = readModelNames("gpt-5,Google/gemini,openai/gpt-5.4,openai/", known);
    expect(read).toHaveProperty(
      "error",
      expect.stringMatching(/^'gpt-5' .*; 'Google\/gemini' .*; 'openai\/' [^;]*$/),
    );
    expect(readModelNames(" , ", known)).toEqual({ ok: false, error: "no model is named" });
  });
});

describe("what the configuration adds to requests", () => {
  const problemOf = (input: object) => {
    const resolved = resolveConfig(input);
    return resolved.ok ? "" : resolved.error;
  };
  const router = { type: "openai", baseUrl: "http://127.0.0.1:1/v1" };

  it("is kept by provider, of the provider and of agents", () => {
    const extra = { body: { provider: { sort: "price" } }, headers: { "x-title": "Larkline" } };
    const hostedTools = {
      "openai-responses": [{ type: "web_search", filters: { allowed_domains: ["a.example"] } }],
    };
    const resolved = resolveConfig({
      providers: { router: { ...router, extra } },
      agents: { default: { extra: { router: { body: { seed: 1 } } }, hostedTools } },
    });
    expect(resolved).toMatchObject({
      ok: true,
      value: {
        providers: { router: { extra } },
        agents: { default: { extra: { router: { body: { seed: 1 } } }, hostedTools } },
      },
    });
  });

  it.each([
    [
      { providers: { router: { ...router, extra: { body: { model: "m" } } } } },
      "providers.router.extra.body.model belongs",
    ],
    [
      { agents: { a: { extra: { anthropic: { headers: { authorization: "x" } } } } } },
      "agents.a.extra.anthropic.headers.",
    ],
    [
      { agents: { a: { extra: { antropic: {} } } } },
      "names the unknown provider 'antropic', did you mean 'anthropic'?",
    ],
    [
      { agents: { a: { extra: { anthropic: { headers: { a: "b\r\nc" } } } } } },
      "must match pattern",
    ],
    [
      { agents: { a: { extra: { anthropic: { header: {} } } } } },
      "must NOT have additional properties 'header'",
    ],
    [
      { agents: { a: { hostedTools: { openai: [{ type: "web_search" }] } } } },
      "agents.a.hostedTools.openai: Chat Comp",
    ],
    [
      { providers: { router }, agents: { a: { hostedTools: { router: [{ type: "x" }] } } } },
      "Chat Completions has no hosted",
    ],
    [
      { agents: { a: { hostedTools: { anthropic: [{ type: "bash_20250124" }] } } } },
      "is run by the client",
    ],
    [
      { agents: { a: { hostedTools: { anthropic: [{ name: "x" }] } } } },
      "a hosted tool needs its `type`",
    ],
    [
      {
        providers: { router },
        agents: { a: { model: "anthropic/x, router/y", storeResponses: true } },
      },
      "agents.a.storeResponses needs a model of openai-responses",
    ],
    [
      { agents: { a: { hostedTools: { nowhere: [{ type: "x" }] } } } },
      "names the unknown provider 'nowhere'",
    ],
  ])("is refused with its place where it cannot be sent: %#", (input, problem) => {
    expect(problemOf(input)).toContain(problem);
  });

  it("may be that answers are stored, where one of the models can do it", () => {
    const resolved = resolveConfig({
      providers: { own: { type: "openai-responses", baseUrl: "http://127.0.0.1:1/v1" } },
      agents: {
        default: { model: "anthropic/x, own/y", storeResponses: true },
        other: { storeResponses: true },
      },
    });
    expect(resolved).toMatchObject({
      ok: true,
      value: { agents: { default: { request: { storeResponses: true } } } },
    });
  });

  it.each([
    [{}, "providers.x needs a type or a module"],
    [{ type: "openai", module: "./x.ts" }, "providers.x has both a type and a module"],
    [{ module: "./x.ts", profile: "vllm" }, "providers.x.profile is for servers"],
  ])("a provider is a server or a module: %j", (provider, problem) => {
    expect(problemOf({ providers: { x: provider } })).toContain(problem);
  });
});

describe("a module in place of a server", () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "larkline-backend-"));
  });
  afterAll(() => rm(folder, { recursive: true }));

  async function loaded(name: string, code: string | undefined, provider: object = {}) {
    if (code !== undefined) await writeFile(join(folder, `${name}.ts`), code);
    const file = join(folder, `${name}.config.ts`);
    await writeFile(
      file,
      `export default ${JSON.stringify({ providers: { mine: { module: `./${name}.ts`, ...provider } } })};`,
    );
    const config = await loadConfigFile(file);
    if (!config.ok) throw new Error(config.error);
    const access = readProviders({ MINE_API_KEY: "k" }, config.value.providers);
    if (!access.ok) throw new Error(access.error);
    return { access: access.value, backends: await loadModelModules(access.value) };
  }

  const answer = "async *stream() { yield { type: 'message_stop', stopReason: 'end_turn' }; }";

  it("is found from the folder of the configuration, and any model may be named", async () => {
    const { access, backends } = await loaded("object", `export default { ${answer} };`);
    expect(backends.ok ? [...backends.value.keys()] : backends.error).toEqual(["mine"]);
    expect(
      readModelNames("mine/some/model, anthropic/claude-opus-4-6", {
        providers: access,
        models: [],
      }),
    ).toMatchObject({
      ok: false,
      error: "anthropic/claude-opus-4-6 needs ANTHROPIC_API_KEY.",
    });
    expect(readModelNames("mine/some/model", { providers: access, models: [] })).toMatchObject({
      ok: true,
    });
  });

  it("may be a function that is given the key, the address and the name", async () => {
    const code = `export default async (options: object) => ({
      async *stream() { yield { type: "text_delta", text: JSON.stringify(options) }; } });`;
    const { backends } = await loaded("maker", code, {
      keyEnv: "MINE_API_KEY",
      baseUrl: "http://127.0.0.1:1",
    });
    const backend = backends.ok ? backends.value.get("mine") : undefined;
    const chunks = [];
    for await (const chunk of backend?.stream({ model: "m", messages: [] }) ?? []) {
      chunks.push(chunk);
    }
    expect(chunks).toEqual([
      { type: "text_delta", text: '{"name":"mine","apiKey":"k","baseUrl":"http://127.0.0.1:1"}' },
    ]);
  });

  it.each([
    ["missing", undefined, "Cannot find module"],
    ["empty", "export const stream = 1;", "it has no default export"],
    [
      "wrong",
      "export default { streams() {} };",
      "neither an object with a method stream nor a function that makes one",
    ],
    ["maker-of-none", "export default () => undefined;", "neither an object with a method stream"],
    ["throwing", "throw new Error('no licence');", "no licence"],
  ])("is refused at the start with its path: %s", async (name, code, problem) => {
    const { backends } = await loaded(name, code);
    const error = backends.ok ? "" : backends.error;
    expect(error).toMatch(/^plugin_load_error: providers\.mine\.module: cannot use /);
    expect(error).toContain(join(folder, `${name}.ts`));
    expect(error).toContain(problem);
  });
});
