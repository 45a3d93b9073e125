import type { ChosenModel } from "@larkline/agent/drive";
import {
  completeModelInfo,
  createModelChain,
  findModelInfo,
  isKnownModel,
  type ChainModel,
  type LlmBackend,
  type ModelInfo,
} from "@larkline/model";
import {
  addedProviderProblem,
  isNamedHost,
  type AgentConfig,
  type LarklineConfig,
} from "@larkline/process/config";
import type { Logger } from "@larkline/process/telemetry";
import { deadline, type Clock } from "@larkline/protocol/clock";
import type {
  AddedProviders,
  AgentVersions,
  OpenedProvider,
  OrderAct,
  AddedProvider,
  OrderResult,
} from "@larkline/store/operations";
import { serverBackend, type AgentModels } from "./agent.ts";
import { publicFetch } from "./remote-images.ts";

// Servers of models that operators add at the console while turns run: what reaches them, and what operators order.

interface OfModels {
  settings: LarklineConfig;
  addedProviders: AddedProviders;
  clock: Clock;
  log: Logger;
}

/** The models of the servers that the file lets operators add. */
export class AddedModels {
  readonly #fetchPublic: typeof fetch;
  /** By `<provider>/<id>`. */
  #models: ReadonlyMap<string, ChainModel> = new Map();

  /** `fetchPublic`: reaches public addresses only, at each connection. */
  constructor(fetchPublic = publicFetch()) {
    this.#fetchPublic = fetchPublic;
  }

  /** Reads what has changed; true when something has. */
  async refresh({ settings, addedProviders, clock, log }: OfModels): Promise<boolean> {
    if (settings.modelHosts === undefined) return false;
    const { isNew, refused } = await addedProviders.refresh();
    for (const provider of refused) {
      log.error(
        { provider },
        "a server of models that operators have added is not used: it is damaged, or no GRANT_KEY here opens its key",
      );
    }
    if (!isNew) return false;
    const models = new Map<string, ChainModel>();
    for (const opened of addedProviders.known().values()) {
      const { provider } = opened;
      const problem = addedProviderProblem(settings, provider);
      if (problem === "in_file") {
        log.warn(
          { provider: provider.name },
          "operators have added a server of models whose name larkline.config.ts has, too: the file wins",
        );
      }
      if (problem !== undefined) continue;
      const backend = this.#backendOf(opened, settings, clock);
      for (const id of provider.models) {
        models.set(`${provider.name}/${id}`, { info: infoOf(provider, id, settings), backend });
      }
    }
    this.#models = models;
    return true;
  }

  names(): string[] {
    return [...this.#models.keys()];
  }

  model(name: string): ChainModel | undefined {
    return this.#models.get(name);
  }

  /** Such a model as the one of an agent; undefined where there is none of the name. */
  choice(models: AgentModels, agent: AgentConfig, name: string): ChosenModel | undefined {
    const model = this.#models.get(name);
    return model && models.added(agent, name, model);
  }

  /** Reaches public addresses only, and hosts that the file names. It follows no redirect. */
  #backendOf(
    { provider: { type, baseUrl }, apiKey }: OpenedProvider,
    { modelHosts = [] }: Pick<LarklineConfig, "modelHosts">,
    clock: Clock,
  ): LlmBackend {
    const isFree = baseUrl === undefined || isNamedHost(modelHosts, baseUrl);
    const guarded: typeof fetch = async (input, init) =>
      await this.#fetchPublic(input, { ...init, redirect: "manual" });
    return serverBackend(type, {
      clock,
      ...(isFree ? {} : { fetch: guarded }),
      ...(apiKey === undefined ? {} : { apiKey }),
      ...(baseUrl === undefined ? {} : { baseUrl }),
    });
  }
}

/** Of a model that the table does not know, limits are cautious and prices unknown. */
function infoOf(
  { name, type, contextWindow }: AddedProvider,
  id: string,
  { models }: LarklineConfig,
): ModelInfo {
  const known = findModelInfo(type, id, models);
  if (contextWindow === undefined || isKnownModel(type, id, models)) {
    return { ...known, provider: name };
  }
  const { maxOutputTokens } = known;
  return completeModelInfo({ id, provider: name, contextWindow, maxOutputTokens });
}

/** The services of a worker, as far as orders about servers of models depend on them. */
interface OfOrders extends OfModels {
  agentVersions: AgentVersions;
  changedAgents: { readonly added: AddedModels; readonly models: AgentModels };
}

/** Adds a server, or replaces it, if the file allows it and no agent loses its model. */
export async function setProvider(
  services: OfOrders,
  by: string,
  { provider, sealedKey }: OrderAct<"set_provider">,
): Promise<OrderResult> {
  const { settings, addedProviders, clock } = services;
  if (addedProviderProblem(settings, provider) !== undefined) return { result: "not_possible" };
  const kept = new Set(provider.models);
  const agents = usersOf(services, provider.name, (id) => !kept.has(id));
  if (agents.length > 0) return { result: "in_use", agents };
  return { result: await addedProviders.set({ provider, sealedKey, by, atMs: clock.now() }) };
}

/** Removes a server that no agent uses. */
export async function removeProvider(
  services: OfOrders,
  by: string,
  name: string,
): Promise<OrderResult> {
  if (services.settings.modelHosts === undefined) return { result: "not_possible" };
  const agents = usersOf(services, name, () => true);
  if (agents.length > 0) return { result: "in_use", agents };
  return { result: await services.addedProviders.remove(name, by) };
}

/** Agents whose version in force names one of these models of a server. */
function usersOf(
  { agentVersions }: OfOrders,
  provider: string,
  isMeant: (id: string) => boolean,
): string[] {
  return [...agentVersions.known()].flatMap(([agent, versions]) => {
    const { model = "" } = versions.at(-1)?.change ?? {};
    const isUser = model.startsWith(`${provider}/`) && isMeant(model.slice(provider.length + 1));
    return isUser ? [agent] : [];
  });
}

const testMs = 12_000;
/** Some models think before they say a word. */
const testTokens = 1_000;
const maxAnswer = 200;
const maxMessage = 600;

const testRequest = {
  messages: [
    {
      role: "user" as const,
      content: [{ type: "text" as const, text: "Reply with the single word: ready" }],
    },
  ],
  maxTokens: testTokens,
};

/** Asks a model for a word, once. What it says, or why it says nothing, is the result; it comes in bounded time. */
export async function testModel(
  { changedAgents: { added, models }, clock }: OfOrders,
  wanted: string | undefined,
  signal?: AbortSignal,
): Promise<OrderResult> {
  const own = wanted === undefined ? undefined : added.model(wanted);
  const asked =
    wanted !== undefined && own !== undefined
      ? { ok: true as const, value: { name: wanted, model: own } }
      : models.configured(wanted);
  const sinceMs = clock.monotonic();
  const ended = (model: string, found: { answer: string } | { code: string; message: string }) => ({
    result: "done" as const,
    test: { model, ...found, tookMs: Math.round(clock.monotonic() - sinceMs) },
  });
  if (!asked.ok) return ended(wanted ?? "", { code: "unknown_model", message: asked.error });
  const { name, model } = asked.value;
  const chain = createModelChain({ models: [model], retry: { attempts: 1 }, clock });
  const timeout = deadline(clock, testMs);
  const stop = signal === undefined ? timeout : AbortSignal.any([timeout, signal]);
  let answer = "";
  for await (const chunk of chain.stream(testRequest, stop)) {
    if (chunk.type === "text_delta") answer = (answer + chunk.text).slice(0, maxAnswer);
    if (chunk.type === "message_stop") return ended(name, { answer });
    if (chunk.type !== "error") continue;
    const { vendor, message } = chunk;
    // A vendor that is busy says so; without a word of it there was no connection.
    const isAway = chunk.code === "api_overloaded" && vendor === undefined;
    const code = isAway ? "unreachable" : chunk.code;
    return ended(name, { code, message: (vendor?.message ?? message).slice(0, maxMessage) });
  }
  const seconds = testMs / 1_000;
  return ended(name, { code: "timeout", message: `There was no answer within ${seconds} s.` });
}
