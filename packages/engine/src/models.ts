import {
  completeModelInfo,
  createModelChain,
  builtinModels,
  extraProblem,
  findModelInfo,
  modelFailure,
  ModelHealth,
  type HostedTool,
  type LlmBackend,
  type ModelInfo,
  type ModelRequest,
  type RequestExtra,
  type RetryPolicy,
  messageStop,
  toolCallDelta,
} from "@larkline/model";
import { chosenModel, type ChosenModel } from "@larkline/agent/drive";
import type { Clock } from "@larkline/protocol/clock";
import type { ErrorCode } from "@larkline/protocol/error";
import type { ModelChunk, Usage } from "@larkline/protocol/model-stream";

// Where the models of an engine come from: a vendor, something of one's own with `stream`, or a script.

/** A vendor of models. Any object with `stream` is one; what it knows of its models is for limits and prices. */
export interface ModelProvider extends LlmBackend {
  readonly name?: string;
  /** Facts and prices; they win over the built-in table. */
  models?(): readonly ModelInfo[];
}

/** How a vendor is reached. */
export interface VendorOptions {
  apiKey: string;
  /** The vendor's own address by default; any compatible server works. */
  baseUrl?: string;
  /** Facts of models that the built-in table does not have. */
  models?: readonly (Partial<ModelInfo> &
    Pick<ModelInfo, "id" | "contextWindow" | "maxOutputTokens">)[];
}

/** Anthropic's Messages interface. Its SDK is loaded with the first request. */
export function anthropic(options: VendorOptions): ModelProvider {
  return vendor("anthropic", options, async (reached) => {
    const { createAnthropicBackend } = await import("@larkline/model/anthropic");
    return createAnthropicBackend(reached);
  });
}

/** OpenAI's Responses interface, or with `api: "chat"` Chat Completions, which most other servers speak. */
export function openai({
  api = "responses",
  ...options
}: VendorOptions & { api?: "responses" | "chat" }): ModelProvider {
  const provider = vendor("openai", options, async (reached) => {
    const { createOpenAiChatBackend, createOpenAiResponsesBackend } =
      await import("@larkline/model/openai");
    return api === "chat"
      ? createOpenAiChatBackend(reached)
      : createOpenAiResponsesBackend(reached);
  });
  return api === "chat"
    ? { ...provider, thinksSilently: true }
    : { ...provider, storesResponses: true };
}

type Reached = Pick<VendorOptions, "apiKey" | "baseUrl">;

function vendor(
  name: string,
  { models = [], ...reached }: VendorOptions,
  load: (reached: Reached) => Promise<LlmBackend>,
): ModelProvider {
  let backend: Promise<LlmBackend> | undefined;
  const added = models.map((info) => completeModelInfo({ provider: name, ...info }));
  return {
    name,
    models: () => [...added, ...builtinModels.filter(({ provider }) => provider === name)],
    stream: async function* (request, signal) {
      backend ??= load(reached);
      yield* (await backend).stream(request, signal);
    },
  };
}

/** One answer of a scripted model: its text, or what is more of it. */
export type ScriptedStep =
  | string
  | {
      text?: string;
      thinking?: string;
      /** With calls the step ends with `tool_use`. */
      calls?: readonly { name: string; input?: Record<string, unknown>; id?: string }[];
      usage?: Partial<Usage>;
      stopReason?: "end_turn" | "max_tokens" | "refusal";
      /** The model fails with this code, after what stands beside it. */
      failure?: ErrorCode;
    };

/** A model that says what a test wants. */
export interface ScriptedModels extends ModelProvider {
  /** What it was asked, in order. */
  readonly requests: readonly ModelRequest[];
}

/**
 * A model that answers with these steps, one a request, or with what a function makes of each request. A request too
 * many fails with `api_bad_request`. It is reached as any other: `models: { script: scripted([...]) }`.
 */
export function scripted(
  steps:
    | readonly ScriptedStep[]
    | ((request: ModelRequest, index: number) => ScriptedStep | Promise<ScriptedStep>),
): ScriptedModels {
  const requests: ModelRequest[] = [];
  return {
    name: "script",
    storesResponses: true,
    requests,
    stream: async function* (request) {
      const index = requests.push(request) - 1;
      const step = typeof steps === "function" ? await steps(request, index) : steps[index];
      if (step === undefined) {
        yield modelFailure("api_bad_request", `The script has no step ${index + 1}.`);
      } else yield* chunksOf(typeof step === "string" ? { text: step } : step, index);
    },
  };
}

const noUsage: Usage = {
  inputTokens: 0,
  outputTokens: 0,
  cacheReadTokens: 0,
  cacheCreationTokens: 0,
};

function* chunksOf(step: Exclude<ScriptedStep, string>, request: number): Generator<ModelChunk> {
  const {
    text = "",
    thinking = "",
    calls = [],
    usage = {},
    failure,
    stopReason = "end_turn",
  } = step;
  if (thinking !== "") yield { type: "thinking_delta", index: 0, text: thinking };
  // In pieces, as vendors send it.
  for (const piece of text.match(/\S+\s*|\s+/g) ?? []) yield { type: "text_delta", text: piece };
  for (const [
    index,
    { name, input = {}, id = `call_${request + 1}_${index + 1}` },
  ] of calls.entries()) {
    yield toolCallDelta(index, { id, name, arguments: JSON.stringify(input) });
  }
  if (failure !== undefined) {
    yield modelFailure(failure, "The script says so.", { partial: text !== "" });
  } else yield messageStop(calls.length > 0 ? "tool_use" : stopReason, { ...noUsage, ...usage });
}

/** What an agent says about its models. */
export interface ModelSettings {
  /** `<provider>/<id>`, a comma separates fallbacks. */
  model: string;
  extra?: Readonly<Record<string, RequestExtra>>;
  hostedTools?: Readonly<Record<string, readonly HostedTool[]>>;
}

/** Finds models by `<provider>/<id>`; what engines know of a model is shared by all their agents. */
export class ModelBook {
  readonly #providers: Readonly<Record<string, ModelProvider>>;
  readonly #clock: Clock;
  readonly #retry: Partial<RetryPolicy>;
  readonly #health = new Map<string, ModelHealth>();

  constructor(
    providers: Readonly<Record<string, ModelProvider>>,
    clock: Clock,
    retry: Partial<RetryPolicy> = {},
  ) {
    this.#providers = providers;
    this.#clock = clock;
    this.#retry = retry;
  }

  /** The models of an agent. Throws a TypeError that names what is unknown, or cannot be sent. */
  chosen(agent: string, { model: names, ...additions }: ModelSettings): ChosenModel {
    const models = names.split(",").map((name) => this.#modelOf(name.trim(), agent, additions));
    const chain = createModelChain({ models, retry: this.#retry, clock: this.#clock });
    return chosenModel(names, chain);
  }

  #modelOf(
    name: string,
    agent: string,
    { extra = {}, hostedTools = {} }: Omit<ModelSettings, "model">,
  ) {
    const slash = name.indexOf("/");
    const [provider, id] = [name.slice(0, slash), name.slice(slash + 1)];
    const backend = Object.hasOwn(this.#providers, provider)
      ? this.#providers[provider]
      : undefined;
    if (slash < 1 || id === "" || backend === undefined) {
      const known = Object.keys(this.#providers).join(", ");
      throw new TypeError(
        `agents.${agent}.model: ${JSON.stringify(name)} is no "<provider>/<id>" of models (${known})`,
      );
    }
    const health =
      this.#health.get(name) ??
      new ModelHealth({ slots: Number.POSITIVE_INFINITY, clock: this.#clock });
    this.#health.set(name, health);
    const info = findModelInfo(provider, id, backend.models?.() ?? []);
    // A provider of the embedder's own may leave out what it does not know.
    const added = extra[provider] ?? {};
    const problem = extraProblem(added);
    if (problem !== undefined) throw new TypeError(`agents.${agent}.extra.${provider}.${problem}`);
    return {
      info: completeModelInfo({ ...findModelInfo("", id), ...info }),
      backend,
      health,
      extra: added,
      hostedTools: hostedTools[provider] ?? [],
    };
  }
}
