import {
  builtinModels,
  isKnownModel,
  parseModelList,
  type ModelChoice,
  type ModelInfo,
  type ProviderType,
} from "@larkline/model";
import type { ParseResult } from "@larkline/protocol";
import { Type, type Static } from "typebox";
import { didYouMean } from "./did-you-mean.ts";
import { createEnvReader, type Env } from "./environment.ts";

/** A server that models are reached at, under a name of the operator's own. */
export const ProviderInput = Type.Object(
  {
    /** The interface it speaks. */
    type: Type.Enum(["anthropic", "openai", "openai-responses"]),
    /** Its address, as in `ANTHROPIC_BASE_URL` or `OPENAI_BASE_URL`. Default: the vendor's own. */
    baseUrl: Type.Optional(Type.String({ pattern: "^https?://[^\\s]+$", maxLength: 2_000 })),
    /** The environment variable of the workers that holds its key. Absent: the server needs none. */
    keyEnv: Type.Optional(Type.String({ pattern: "^[A-Z][A-Z0-9_]{0,99}$" })),
  },
  { additionalProperties: false },
);
export type ProviderInput = Static<typeof ProviderInput>;

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
}

function accessOf(name: string, { type, keyEnv, baseUrl }: Given, apiKey: string | undefined): ModelAccess {
  return {
    name,
    type,
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(keyEnv === undefined ? {} : { keyEnv }),
    ...(baseUrl === undefined ? {} : { baseUrl }),
  };
}

/** What the names of models are checked against. */
export interface KnownModels {
  providers: ModelProviders;
  /** Facts of the configuration about models. */
  models: readonly ModelInfo[];
}

/**
 * Reads a list such as `MODEL` (`<provider>/<model id>`, a comma between fallbacks) and checks every name in
 * it: the provider must exist and have its key, and at a vendor's own address the model must be one that the
 * built-in table or `models[]` knows. Other servers have models of their own. The error names every wrong entry.
 */
export function readModelNames(text: string, { providers, models }: KnownModels): ParseResult<ModelChoice[]> {
  const list = parseModelList(text);
  if (!list.ok) return list;
  const problems = list.value.flatMap((choice) => problemOf(choice, { providers, models }) ?? []);
  return problems.length === 0 ? list : { ok: false, error: problems.join("; ") };
}

function problemOf({ provider, id }: ModelChoice, { providers, models }: KnownModels): string | undefined {
  const access = providers[provider];
  if (access === undefined) {
    const near = didYouMean(provider, Object.keys(providers));
    return `'${provider}/${id}' names an unknown provider${near || `; there are ${Object.keys(providers).join(", ")}`}`;
  }
  if (access.keyEnv !== undefined && access.apiKey === undefined) return `${provider}/${id} needs ${access.keyEnv}.`;
  if (access.baseUrl !== undefined || isKnownModel(provider, id, models)) return undefined;
  const near = didYouMean(`${provider}/${id}`, namesOf(provider, { providers, models }));
  return `'${provider}/${id}' is an unknown model${near || ";"} ${near === "" ? "d" : "D"}escribe it in models[] if it is new`;
}

/** Known models as they would be named: those of this provider, then those of others. */
function namesOf(provider: string, { providers, models }: KnownModels): string[] {
  const known = [...models, ...builtinModels];
  const others = Object.keys(providers).filter((name) => name !== provider);
  return [provider, ...others].flatMap((name) =>
    known.filter(({ id }) => isKnownModel(name, id, models)).map(({ id }) => `${name}/${id}`),
  );
}
