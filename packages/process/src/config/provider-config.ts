import { fileURLToPath } from "node:url";
import {
  builtinModels,
  checkedBackend,
  extraProblem,
  hostedToolProblem,
  isKnownModel,
  profileNames,
  profileOf,
  type HostedTool,
  type LlmBackend,
  type ModelChoice,
  type ModelInfo,
  type ProviderType,
  type RequestExtra,
  type VendorProfile,
} from "@larkline/model";
import type { ParseResult } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import { didYouMean, nearestName } from "./did-you-mean.ts";
import { createEnvReader, type Env } from "./environment.ts";
import { placeOfError } from "./module-errors.ts";

const words = Type.Optional(
  Type.Array(Type.String({ minLength: 1, maxLength: 200 }), { maxItems: 50 }),
);
const tag = Type.String({ minLength: 1, maxLength: 40 });
const limit = Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000_000 }));

/** What is particular about a server: lists and tables add to what is known of it, all else replaces it. */
const ProfileChanges = Type.Object(
  {
    /** The profile that it is like: a name of the documented table. Default: by its address and each model. */
    like: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
    /** Fields of a message that hold thoughts. */
    thoughtFields: words,
    /** Tags around thoughts at the beginning of the text. */
    thoughtTags: Type.Optional(
      Type.Array(Type.Object({ open: tag, close: tag }, { additionalProperties: false }), {
        maxItems: 10,
      }),
    ),
    /** The field in which its thoughts go back to it, or `tags` (within the text) or `none`. */
    thoughtsBack: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
    /** It refuses a call without thoughts beside it. */
    callsNeedThoughts: Type.Optional(Type.Boolean()),
    /** How it is asked to think. */
    thoughtRequest: Type.Optional(
      Type.Enum([
        "reasoning_effort",
        "thinking",
        "enable_thinking",
        "reasoning",
        "chat_template_kwargs",
        "none",
      ]),
    ),
    /** The form of ids that it demands of calls that another model has made. */
    callIds: Type.Optional(Type.Enum(["any", "functions.name:index", "nine-letters"])),
    /** What its words for the end of an answer mean; `again` repeats the request, `overflow` shortens the conversation. */
    ends: Type.Optional(
      Type.Record(
        Type.String({ minLength: 1, maxLength: 100 }),
        Type.Enum(["end_turn", "tool_use", "max_tokens", "refusal", "again", "overflow"]),
      ),
    ),
    /** Codes, and words in any case, of refusals because the request is too long. */
    overflowCodes: words,
    overflowWords: words,
    /** Codes of refusals by its filter of contents. */
    filterCodes: words,
    /** Its field for the limit of the answer. */
    limitField: Type.Optional(Type.Enum(["max_tokens", "max_completion_tokens"])),
    /** Limits of pictures: longest side and pixels, bytes of one, number of a request. */
    pictures: Type.Optional(
      Type.Object(
        { maxSide: limit, maxPixels: limit, maxBytes: limit, maxCount: limit },
        { additionalProperties: false },
      ),
    ),
    /** Keywords of JSON Schema that it refuses in tools. */
    schemaWithout: words,
  },
  { additionalProperties: false },
);

/** What goes with every request to a server, beside what Larkline says itself. */
export const ExtraInput = Type.Object(
  {
    /** Fields of the body, such as `service_tier`, or a router's `provider`. */
    body: Type.Optional(Type.Record(Type.String({ minLength: 1, maxLength: 100 }), Type.Unknown())),
    /** Such as `anthropic-beta`. No secrets: the key of a server is in the variable of its `keyEnv`. */
    headers: Type.Optional(
      Type.Record(
        Type.String({ pattern: "^[A-Za-z0-9-]{1,100}$" }),
        Type.String({ pattern: "^[\\x20-\\x7e]{1,2000}$" }),
      ),
    ),
  },
  { additionalProperties: false },
);

/** A tool that a vendor runs; its `type` and all else are the vendor's words. */
export const HostedToolInput = Type.Record(
  Type.String({ minLength: 1, maxLength: 100 }),
  Type.Unknown(),
);

export const providerName = Type.String({ pattern: "^[a-z][a-z0-9-]{0,31}$" });

/** A server that models are reached at, under a name of the operator's own. */
export const ProviderInput = Type.Object(
  {
    /** The interface it speaks. Absent where a module answers. */
    type: Type.Optional(Type.Enum(["anthropic", "openai", "openai-responses"])),
    /**
     * A module in place of an interface: its default export is a model backend, or makes one. A path from the folder of
     * this file, or a package.
     */
    module: Type.Optional(Type.String({ minLength: 1, maxLength: 1_000 })),
    /** Its address, as in `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL`. Default: the vendor's own. */
    baseUrl: Type.Optional(Type.String({ pattern: "^https?://[^\\s]+$", maxLength: 2_000 })),
    /** The environment variable of the workers that holds its key. Absent: the server needs none. */
    keyEnv: Type.Optional(Type.String({ pattern: "^[A-Z][A-Z0-9_]{0,99}$" })),
    /** Its dialect: the name of a profile, or what is particular about it. Default: by its address and each model. */
    profile: Type.Optional(
      Type.Union([Type.String({ minLength: 1, maxLength: 40 }), ProfileChanges]),
    ),
    /** What goes with every request to it. */
    extra: Type.Optional(ExtraInput),
  },
  { additionalProperties: false },
);
export type ProviderInput = Static<typeof ProviderInput>;

/** What writes down voice messages that the platform has not written down itself. */
export const TranscriptionInput = Type.Object(
  {
    /** `<provider>/<model id>`: a server with `/audio/transcriptions`. What is said in voice messages reaches it. */
    model: Type.String({ pattern: "^[a-z][a-z0-9-]{0,31}/.{1,200}$" }),
    /** Largest recording. Default 10,000,000. */
    maxBytes: Type.Optional(Type.Integer({ minimum: 1, maximum: 25_000_000 })),
  },
  { additionalProperties: false },
);
export type TranscriptionInput = Static<typeof TranscriptionInput>;

/** What reaches the models of one provider. */
export interface ModelAccess {
  readonly name: string;
  /** `module`: the backend of a module. */
  readonly type: ProviderType | "module";
  /** Its URL. */
  readonly module?: string;
  /** Absent: the variable is not set, so none of its models can be used. */
  readonly apiKey?: string;
  /** The variable of the key; absent: the provider needs none. */
  readonly keyEnv?: string;
  /** Absent: the vendor's own address. */
  readonly baseUrl?: string;
  /** Its dialect, where the configuration says so. */
  readonly profile?: ProviderInput["profile"];
  /** What goes with every request. */
  readonly extra?: RequestExtra;
}

/** The profile that a model of a provider is asked by; undefined where a module answers, which knows for itself. */
export function profileOfModel(
  { type, baseUrl, profile }: ModelAccess,
  model: string,
): VendorProfile | undefined {
  return type === "module" ? undefined : profileOf({ type, baseUrl }, model, profile);
}

/** By name: those of the configuration, and the three that the environment describes. */
export type ModelProviders = Readonly<Record<string, ModelAccess>>;

const builtInNames: readonly ProviderType[] = ["anthropic", "openai", "openai-responses"];

type OwnProviders = Readonly<Record<string, ProviderInput>>;

/** What an agent adds to its requests, by provider. */
interface AgentAdditions {
  extra?: Readonly<Record<string, RequestExtra>> | undefined;
  hostedTools?: Readonly<Record<string, readonly HostedTool[]>> | undefined;
  model?: string | undefined;
  storeResponses?: boolean | undefined;
}

/**
 * The providers of the configuration: none may have the name of a built-in one, and what `models[]` and agents say must
 * be about one of them.
 */
export function resolveProviders(
  own: OwnProviders = {},
  models: readonly Pick<ModelInfo, "provider">[] = [],
  agents: Readonly<Record<string, AgentAdditions>> = {},
): ParseResult<OwnProviders> {
  const taken = builtInNames.filter((name) => own[name] !== undefined);
  const names = [...builtInNames, ...Object.keys(own)];
  const problems = [
    ...taken.map((name) => `providers.${name}: this provider is built in, choose another name`),
    ...Object.entries(own).flatMap(([name, provider]) =>
      providerProblems(`providers.${name}`, provider),
    ),
    ...Object.entries(agents).flatMap(([name, agent]) =>
      additionProblems(`agents.${name}`, agent, own),
    ),
    ...models.flatMap(({ provider }, at) => {
      if (names.includes(provider)) return [];
      return `models.${at} names the unknown provider '${provider}'${didYouMean(provider, names)}`;
    }),
  ];
  return problems.length === 0
    ? { ok: true, value: own }
    : { ok: false, error: problems.join("; ") };
}

/** What is wrong with a provider. A module is asked for models in place of a server. */
function providerProblems(
  where: string,
  { type, module, profile, extra = {} }: ProviderInput,
): string[] {
  const like = typeof profile === "string" ? profile : profile?.like;
  const problems = [
    type === undefined && module === undefined ? `${where} needs a type or a module` : "",
    type !== undefined && module !== undefined
      ? `${where} has both a type and a module: one of them answers`
      : "",
    module !== undefined && profile !== undefined
      ? `${where}.profile is for servers: the module has its own dialect`
      : "",
  ];
  if (like !== undefined && !profileNames.includes(like)) {
    const others = didYouMean(like, profileNames) || `; there are ${profileNames.join(", ")}`;
    problems.push(`${where}.profile names the unknown profile '${like}'${others}`);
  }
  const wrong = extraProblem(extra);
  if (wrong !== undefined) problems.push(`${where}.extra.${wrong}`);
  return problems.filter((problem) => problem !== "");
}

/** What is wrong with what an agent adds to its requests. */
function additionProblems(
  where: string,
  { extra = {}, hostedTools = {}, storeResponses = false, model }: AgentAdditions,
  own: OwnProviders,
): string[] {
  const names = [...builtInNames, ...Object.keys(own)];
  const isStored =
    !storeResponses || model === undefined || model.split(",").some((name) => mayStore(name, own));
  const unknown = (field: string, provider: string): string[] =>
    names.includes(provider)
      ? []
      : [
          `${where}.${field} names the unknown provider '${provider}'${didYouMean(provider, names)}`,
        ];
  return [
    ...Object.entries(extra).flatMap(([provider, added]) => {
      const wrong = extraProblem(added);
      return [
        ...unknown("extra", provider),
        ...(wrong === undefined ? [] : [`${where}.extra.${provider}.${wrong}`]),
      ];
    }),
    ...Object.entries(hostedTools).flatMap(([provider, tools]) => {
      const type = builtInNames.find((name) => name === provider) ?? own[provider]?.type;
      // A module takes what it likes.
      const wrong =
        type === undefined ? [] : tools.flatMap((tool) => hostedToolProblem(type, tool) ?? []);
      return [
        ...unknown("hostedTools", provider),
        ...[...new Set(wrong)].map((problem) => `${where}.hostedTools.${provider}: ${problem}`),
      ];
    }),
    ...(isStored
      ? []
      : [
          `${where}.storeResponses needs a model of openai-responses: no other vendor keeps answers`,
        ]),
  ];
}

/** Whether the vendor of a model can keep answers; a module says it itself. */
function mayStore(model: string, own: OwnProviders): boolean {
  const [provider = ""] = model.trim().split("/");
  const named = Object.hasOwn(own, provider) ? own[provider] : undefined;
  return (
    provider === "openai-responses" ||
    named?.type === "openai-responses" ||
    named?.module !== undefined
  );
}

/** The providers of a deployment with their keys, which are in the environment only. */
export function readProviders(env: Env, own: OwnProviders): ParseResult<ModelProviders> {
  const reader = createEnvReader(env);
  const anthropic = { keyEnv: "ANTHROPIC_API_KEY", baseUrl: reader.url("ANTHROPIC_BASE_URL") };
  const anthropicKey = reader.secret("ANTHROPIC_API_KEY");
  const openai = { keyEnv: "OPENAI_API_KEY", baseUrl: reader.url("OPENAI_BASE_URL") };
  const openaiKey = reader.secret("OPENAI_API_KEY");
  const builtIn = builtInNames.map((type) =>
    type === "anthropic"
      ? accessOf(type, { type, ...anthropic }, anthropicKey)
      : accessOf(type, { type, ...openai }, openaiKey),
  );
  const named = Object.entries(own).map(([name, given]) =>
    accessOf(name, given, given.keyEnv === undefined ? undefined : reader.secret(given.keyEnv)),
  );
  return reader.finish(
    Object.fromEntries([...builtIn, ...named].map((access) => [access.name, access])),
  );
}

type Given = { [Name in keyof ProviderInput]?: ProviderInput[Name] | undefined };

function accessOf(
  name: string,
  { type = "openai", module, keyEnv, baseUrl, profile, extra }: Given,
  apiKey: string | undefined,
): ModelAccess {
  return {
    name,
    ...(module === undefined ? { type } : { type: "module", module }),
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(keyEnv === undefined ? {} : { keyEnv }),
    ...(baseUrl === undefined ? {} : { baseUrl }),
    ...(profile === undefined ? {} : { profile }),
    ...(extra === undefined ? {} : { extra }),
  };
}

/** What reaches the model that writes down voice messages. */
export interface Transcription {
  readonly model: string;
  readonly apiKey?: string;
  readonly baseUrl?: string;
  readonly maxBytes: number;
}

/** The model of `transcription`; undefined where the configuration has none. */
export function readTranscription(
  given: TranscriptionInput | undefined,
  providers: ModelProviders,
): ParseResult<Transcription | undefined> {
  if (given === undefined) return { ok: true, value: undefined };
  const [, name = "", model = ""] = entryForm.exec(given.model) ?? [];
  const access = Object.hasOwn(providers, name) ? providers[name] : undefined;
  const names = Object.values(providers).flatMap((one) =>
    one.type === "openai" || one.type === "openai-responses" ? [one.name] : [],
  );
  if (access === undefined || access.type === "anthropic" || access.type === "module") {
    const why =
      access === undefined
        ? "names an unknown provider"
        : "names a provider that writes nothing down";
    const others = didYouMean(name, names) || `; there are ${names.join(", ")}`;
    return { ok: false, error: `transcription.model ${why}${others}` };
  }
  const { apiKey, keyEnv, baseUrl } = access;
  if (keyEnv !== undefined && apiKey === undefined) {
    return { ok: false, error: `transcription.model ${given.model} needs ${keyEnv}.` };
  }
  const reached = {
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(baseUrl === undefined ? {} : { baseUrl }),
  };
  return { ok: true, value: { model, maxBytes: given.maxBytes ?? 10_000_000, ...reached } };
}

/** Where and with which key a module reaches its server, as the configuration says. */
export interface ModuleBackendOptions {
  /** The name of the provider. */
  name: string;
  apiKey?: string;
  baseUrl?: string;
}

/**
 * Imports the modules that answer in place of servers. The default export is a backend, or a function that makes one of
 * {@link ModuleBackendOptions}. All problems are reported at once, one per line.
 */
export async function loadModelModules(
  providers: ModelProviders,
): Promise<ParseResult<Map<string, LlmBackend>>> {
  const backends = new Map<string, LlmBackend>();
  const problems: string[] = [];
  for (const { name, module, apiKey, baseUrl } of Object.values(providers)) {
    if (module === undefined) continue;
    const options = {
      name,
      ...(apiKey === undefined ? {} : { apiKey }),
      ...(baseUrl === undefined ? {} : { baseUrl }),
    };
    try {
      backends.set(name, await backendOf(module, options));
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const path = module.startsWith("file:") ? fileURLToPath(module) : module;
      problems.push(
        `plugin_load_error: providers.${name}.module: cannot use ${path}: ${why}.${placeOfError(error, path)}`,
      );
    }
  }
  return problems.length === 0
    ? { ok: true, value: backends }
    : { ok: false, error: problems.join("\n") };
}

async function backendOf(url: string, options: ModuleBackendOptions): Promise<LlmBackend> {
  const module: unknown = await import(url);
  const exported: unknown =
    typeof module === "object" && module !== null && "default" in module
      ? module.default
      : undefined;
  const made: unknown =
    typeof exported === "function" ? await Reflect.apply(exported, undefined, [options]) : exported;
  if (!isBackend(made)) {
    throw new TypeError(
      exported === undefined
        ? "it has no default export"
        : "its default export is neither an object with a method stream nor a function that makes one",
    );
  }
  return checkedBackend(made, options.name);
}

function isBackend(value: unknown): value is LlmBackend {
  return (
    typeof value === "object" &&
    value !== null &&
    typeof Reflect.get(value, "stream") === "function"
  );
}

/** What the names of models are checked against. */
export interface KnownModels {
  providers: ModelProviders;
  /** Facts of the configuration about models. */
  models: readonly ModelInfo[];
}

/** The model of a deployment that names none, by the vendor that it has a key for. */
export const standardModels = {
  anthropic: "anthropic/claude-sonnet-5-5",
  openai: "openai/gpt-6.1-sol",
} as const;

const entryForm = /^([a-z][a-z0-9-]*)\/(.+)$/;

/**
 * Reads a list such as `MODEL` (`<provider>/<model id>`, which may hold further slashes; a comma between fallbacks) and
 * checks every name in it: the provider must exist and have its key, and at a vendor's own address the model must be one
 * that the built-in table or `models[]` knows. Other servers have models of their own. The error names every wrong entry.
 */
export function readModelNames(text: string, known: KnownModels): ParseResult<ModelChoice[]> {
  const entries = text.split(",").flatMap((entry) => entry.trim() || []);
  if (entries.length === 0) return { ok: false, error: "no model is named" };
  const problems = entries.flatMap((entry) => problemOf(entry, known) ?? []);
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  const choices = entries.map((entry) => entryForm.exec(entry) ?? []);
  return { ok: true, value: choices.map(([, provider = "", id = ""]) => ({ provider, id })) };
}

function problemOf(entry: string, known: KnownModels): string | undefined {
  const { providers, models } = known;
  const names = Object.keys(providers);
  const [, provider, id] = entryForm.exec(entry) ?? [];
  if (provider === undefined || id === undefined) {
    return `'${entry}' is not <provider>/<model id>${meantBy(entry, known) || `; providers are ${names.join(", ")}`}`;
  }
  const access = providers[provider];
  if (access === undefined) {
    return `'${entry}' names an unknown provider${didYouMean(provider, names) || `; there are ${names.join(", ")}`}`;
  }
  if (access.keyEnv !== undefined && access.apiKey === undefined) {
    return `${entry} needs ${access.keyEnv}.`;
  }
  if (
    access.type === "module" ||
    access.baseUrl !== undefined ||
    isKnownModel(provider, id, models)
  ) {
    return undefined;
  }
  const near = meantBy(entry, known);
  return `'${entry}' is an unknown model${near || ";"} ${near === "" ? "d" : "D"}escribe it in models[] if it is new`;
}

/**
 * The known model that a wrong entry may mean, as a question: the same but for signs ("Claude-Sonnet-5.5"), or one that
 * begins with it ("claude-sonnet") or has it as a part ("sonnet"), the newest first, or one that is spelt alike.
 */
function meantBy(entry: string, known: KnownModels): string {
  const [, named = "", id = ""] = /^\s*(?:([\w-]+)\s*[/:])?(.*)$/s.exec(entry.toLowerCase()) ?? [];
  const provider = Object.hasOwn(known.providers, named)
    ? named
    : (nearestName(named, Object.keys(known.providers)) ?? "");
  const names = namesOf(provider, known);
  const wanted = lettersOf(id);
  const found =
    names.find((name) => lettersOf(idOf(name)) === wanted) ??
    names.find((name) => lettersOf(idOf(name)).startsWith(wanted)) ??
    names.find((name) => wanted.length > 2 && lettersOf(idOf(name)).includes(wanted)) ??
    speltLike(id, names);
  return found === undefined ? "" : `, did you mean '${found}'?`;
}

/** Also a family is looked for, as in "claude-sonet": its newest model. */
function speltLike(id: string, names: readonly string[]): string | undefined {
  const spelt = [
    ...names.map((name) => ({ is: idOf(name), name })),
    ...names.map((name) => ({ is: idOf(name).replace(/-[\d.-]+$/, ""), name })),
  ];
  const near = nearestName(id, new Set(spelt.map(({ is }) => is)));
  return spelt.find(({ is }) => is === near)?.name;
}

function idOf(name: string): string {
  return name.slice(name.indexOf("/") + 1);
}

function lettersOf(id: string): string {
  return id.toLowerCase().replaceAll(/[^a-z0-9]/g, "");
}

/** Known models as they would be named: those of this provider first, of each provider the usual one first. */
function namesOf(provider: string, { providers, models }: KnownModels): string[] {
  const usual = Object.values(standardModels).map(idOf);
  const known = [...models.map(({ id }) => id), ...usual, ...builtinModels.map(({ id }) => id)];
  const others = Object.keys(providers).filter((name) => name !== provider);
  const all = [...(provider === "" ? [] : [provider]), ...others].flatMap((name) =>
    known.filter((id) => isKnownModel(name, id, models)).map((id) => `${name}/${id}`),
  );
  return [...new Set(all)];
}
