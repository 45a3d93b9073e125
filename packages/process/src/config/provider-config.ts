import {
  builtinModels,
  isKnownModel,
  profileNames,
  profileOf,
  type ModelChoice,
  type ModelInfo,
  type ProviderType,
  type VendorProfile,
} from "@larkline/model";
import type { ParseResult } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import { didYouMean, nearestName } from "./did-you-mean.ts";
import { createEnvReader, type Env } from "./environment.ts";

const words = Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 200 }), { maxItems: 50 }));
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
      Type.Array(Type.Object({ open: tag, close: tag }, { additionalProperties: false }), { maxItems: 10 }),
    ),
    /** The field in which its thoughts go back to it, or `tags` (within the text) or `none`. */
    thoughtsBack: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
    /** It refuses a call without thoughts beside it. */
    callsNeedThoughts: Type.Optional(Type.Boolean()),
    /** How it is asked to think. */
    thoughtRequest: Type.Optional(
      Type.Enum(["reasoning_effort", "thinking", "enable_thinking", "reasoning", "chat_template_kwargs", "none"]),
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

/** A server that models are reached at, under a name of the operator's own. */
export const ProviderInput = Type.Object(
  {
    /** The interface it speaks. */
    type: Type.Enum(["anthropic", "openai", "openai-responses"]),
    /** Its address, as in `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL`. Default: the vendor's own. */
    baseUrl: Type.Optional(Type.String({ pattern: "^https?://[^\\s]+$", maxLength: 2_000 })),
    /** The environment variable of the workers that holds its key. Absent: the server needs none. */
    keyEnv: Type.Optional(Type.String({ pattern: "^[A-Z][A-Z0-9_]{0,99}$" })),
    /** Its dialect: the name of a profile, or what is particular about it. Default: by its address and each model. */
    profile: Type.Optional(Type.Union([Type.String({ minLength: 1, maxLength: 40 }), ProfileChanges])),
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
  readonly type: ProviderType;
  /** Absent: the variable is not set, so none of its models can be used. */
  readonly apiKey?: string;
  /** The variable of the key; absent: the provider needs none. */
  readonly keyEnv?: string;
  /** Absent: the vendor's own address. */
  readonly baseUrl?: string;
  /** Its dialect, where the configuration says so. */
  readonly profile?: ProviderInput["profile"];
}

/** The profile that a model of a provider is asked by. */
export function profileOfModel({ type, baseUrl, profile }: ModelAccess, model: string): VendorProfile {
  return profileOf({ type, baseUrl }, model, profile);
}

/** By name: those of the configuration, and the three that the environment describes. */
export type ModelProviders = Readonly<Record<string, ModelAccess>>;

const builtInNames: readonly ProviderType[] = ["anthropic", "openai", "openai-responses"];

type OwnProviders = Readonly<Record<string, ProviderInput>>;

/**
 * The providers of the configuration: none may have the name of a built-in one, and what `models[]` says must be
 * about models of one of them.
 */
export function resolveProviders(
  own: OwnProviders = {},
  models: readonly Pick<ModelInfo, "provider">[] = [],
): ParseResult<OwnProviders> {
  const taken = builtInNames.filter((name) => own[name] !== undefined);
  const names = [...builtInNames, ...Object.keys(own)];
  const problems = [
    ...taken.map((name) => `providers.${name}: this provider is built in, choose another name`),
    ...Object.entries(own).flatMap(([name, { profile }]) => {
      const like = typeof profile === "string" ? profile : profile?.like;
      if (like === undefined || profileNames.includes(like)) return [];
      const others = didYouMean(like, profileNames) || `; there are ${profileNames.join(", ")}`;
      return `providers.${name}.profile names the unknown profile '${like}'${others}`;
    }),
    ...models.flatMap(({ provider }, at) => {
      if (names.includes(provider)) return [];
      return `models.${at} names the unknown provider '${provider}'${didYouMean(provider, names)}`;
    }),
  ];
  return problems.length === 0 ? { ok: true, value: own } : { ok: false, error: problems.join("; ") };
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
  return reader.finish(Object.fromEntries([...builtIn, ...named].map((access) => [access.name, access])));
}

interface Given {
  type: ProviderType;
  keyEnv?: string | undefined;
  baseUrl?: string | undefined;
  profile?: ProviderInput["profile"];
}

function accessOf(name: string, { type, keyEnv, baseUrl, profile }: Given, apiKey: string | undefined): ModelAccess {
  return {
    name,
    type,
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(keyEnv === undefined ? {} : { keyEnv }),
    ...(baseUrl === undefined ? {} : { baseUrl }),
    ...(profile === undefined ? {} : { profile }),
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
  const names = Object.values(providers).flatMap((one) => (one.type === "anthropic" ? [] : [one.name]));
  if (access === undefined || access.type === "anthropic") {
    const why = access === undefined ? "names an unknown provider" : "names a provider that writes nothing down";
    const others = didYouMean(name, names) || `; there are ${names.join(", ")}`;
    return { ok: false, error: `transcription.model ${why}${others}` };
  }
  const { apiKey, keyEnv, baseUrl } = access;
  if (keyEnv !== undefined && apiKey === undefined) {
    return { ok: false, error: `transcription.model ${given.model} needs ${keyEnv}.` };
  }
  const reached = { ...(apiKey === undefined ? {} : { apiKey }), ...(baseUrl === undefined ? {} : { baseUrl }) };
  return { ok: true, value: { model, maxBytes: given.maxBytes ?? 10_000_000, ...reached } };
}

/** What the names of models are checked against. */
export interface KnownModels {
  providers: ModelProviders;
  /** Facts of the configuration about models. */
  models: readonly ModelInfo[];
}

/** The model of a deployment that names none, by the vendor that it has a key for. */
export const standardModels = { anthropic: "anthropic/claude-sonnet-5-5", openai: "openai/gpt-6.1-sol" } as const;

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
  if (access.keyEnv !== undefined && access.apiKey === undefined) return `${entry} needs ${access.keyEnv}.`;
  if (access.baseUrl !== undefined || isKnownModel(provider, id, models)) return undefined;
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
