import type { ProviderType } from "./model-catalog.ts";

/*
 * What is particular about the servers and families of models that speak a known interface in a dialect of their own.
 * It is data: the adapters ask a profile and name no vendor. A deployment adds its own (`providers.<name>.profile`).
 */

/** What an end of a stream means: one of our stop reasons, a broken answer to ask for again, or a full window. */
export type EndMeaning = "end_turn" | "tool_use" | "max_tokens" | "refusal" | "again" | "overflow";

/** How a server is asked to think. `none`: it cannot be asked. */
export type ThoughtRequest =
  | "reasoning_effort"
  | "thinking"
  | "enable_thinking"
  | "reasoning"
  | "chat_template_kwargs"
  | "none";

/** Which ids a server takes for calls that another one has made. */
export type CallIdRule = "any" | "functions.name:index" | "nine-letters";

export interface PictureLimits {
  /** Longest side, in pixels. */
  maxSide: number;
  /** Width times height. */
  maxPixels: number;
  /** Of one picture, before base64. */
  maxBytes: number;
  /** Pictures of one request; the latest count. */
  maxCount: number;
}

/** What a model writes around its thoughts. */
export interface ThoughtTags {
  open: string;
  close: string;
}

export interface VendorProfile {
  /** The layers that it was made of, such as `openrouter+kimi`. */
  name: string;
  /** Fields of a message that hold thoughts. The first one with text counts. */
  thoughtFields: readonly string[];
  /** Tags around thoughts at the beginning of the text. */
  thoughtTags: readonly ThoughtTags[];
  /** How its own thoughts go back to it: in this field, within the text between its first tags, or not at all. */
  thoughtsBack: "tags" | "none" | (string & {});
  /** A call without thoughts beside it is refused. */
  callsNeedThoughts: boolean;
  thoughtRequest: ThoughtRequest;
  callIds: CallIdRule;
  /** By the vendor's word for the end. */
  ends: Readonly<Record<string, EndMeaning>>;
  /** A refusal with one of these codes, or with one of these words in any case, says that the request is too long. */
  overflowCodes: readonly string[];
  overflowWords: readonly string[];
  /** A refusal with one of these codes comes from the filter of contents. */
  filterCodes: readonly string[];
  /** The field for the limit of the answer. */
  limitField: "max_tokens" | "max_completion_tokens";
  pictures: PictureLimits;
  /** Keywords of JSON Schema that tools must do without. */
  schemaWithout: readonly string[];
}

/** What one entry, or a deployment, says of a server: lists and tables add to what is known, all else replaces it. */
export type ProfileLayer = Partial<Omit<VendorProfile, "name" | "pictures">> & {
  pictures?: Partial<PictureLimits>;
};

/** A profile by name, or that profile with changes. Without a name it adds to the one that would be found. */
export type ProfileInput = string | (ProfileLayer & { like?: string });

/** Holds for every server. */
const base: Omit<VendorProfile, "name"> = {
  thoughtFields: ["reasoning_content", "reasoning"],
  thoughtTags: [],
  thoughtsBack: "reasoning_content",
  callsNeedThoughts: false,
  thoughtRequest: "reasoning_effort",
  callIds: "any",
  ends: {
    stop: "end_turn",
    end_turn: "end_turn",
    stop_sequence: "end_turn",
    tool_calls: "tool_use",
    tool_use: "tool_use",
    function_call: "tool_use",
    length: "max_tokens",
    max_tokens: "max_tokens",
    // Anthropic: the answer has filled the window.
    model_context_window_exceeded: "max_tokens",
    content_filter: "refusal",
    refusal: "refusal",
  },
  overflowCodes: ["context_length_exceeded", "request_too_large", "string_above_max_length"],
  overflowWords: [
    "prompt is too long",
    "context length",
    "context_length",
    "context window",
    "maximum context",
    "input is too long",
    "too many tokens",
    "too many input tokens",
    "token limit exceeded",
  ],
  filterCodes: ["content_filter", "content_policy_violation"],
  limitField: "max_tokens",
  pictures: { maxSide: 8_000, maxPixels: 36_000_000, maxBytes: 10_000_000, maxCount: 50 },
  schemaWithout: [],
};

interface Entry extends ProfileLayer {
  /** Ends of host names, or a port with a colon before it. */
  hosts?: readonly string[];
  /** What the id of a model begins with, behind the last slash. */
  models?: readonly string[];
}

const thinkTags: readonly ThoughtTags[] = [{ open: "<think>", close: "</think>" }];

/** The servers and families that are known. A family counts wherever it is served, a server for all it serves. */
const entries: Readonly<Record<string, Entry>> = {
  // Vendor page "Vision": 8,000 pixels a side, 5 MB.
  anthropic: {
    hosts: ["api.anthropic.com"],
    pictures: { maxSide: 8_000, maxBytes: 5_000_000, maxCount: 100 },
  },
  openai: {
    hosts: ["api.openai.com"],
    limitField: "max_completion_tokens",
    pictures: { maxBytes: 20_000_000 },
  },
  deepseek: {
    hosts: ["api.deepseek.com"],
    models: ["deepseek"],
    thoughtTags: thinkTags,
    thoughtRequest: "thinking",
    callsNeedThoughts: true,
    ends: { insufficient_system_resource: "again" },
  },
  qwen: {
    hosts: ["dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com"],
    models: ["qwen", "qwq", "qvq"],
    thoughtTags: thinkTags,
    thoughtRequest: "enable_thinking",
    overflowWords: ["range of input length should be"],
    filterCodes: ["data_inspection_failed", "DataInspectionFailed"],
    pictures: { maxBytes: 7_000_000 },
  },
  kimi: {
    hosts: ["api.moonshot.cn", "api.moonshot.ai", "api.kimi.com"],
    models: ["kimi", "moonshot"],
    thoughtTags: [{ open: "◁think▷", close: "◁/think▷" }, ...thinkTags],
    thoughtRequest: "thinking",
    callsNeedThoughts: true,
    callIds: "functions.name:index",
    overflowWords: [
      "exceeded model token limit",
      "model max length exceeded",
      "input token length too long",
    ],
    pictures: { maxSide: 4_096 },
  },
  glm: {
    hosts: ["open.bigmodel.cn", "api.z.ai"],
    models: ["glm", "chatglm"],
    thoughtTags: thinkTags,
    thoughtRequest: "thinking",
    ends: {
      network_error: "again",
      model_context_window_exceeded: "overflow",
      sensitive: "refusal",
    },
    overflowCodes: ["1261"],
    overflowWords: ["exceeds max length"],
    filterCodes: ["1301"],
    pictures: { maxSide: 6_000, maxBytes: 5_000_000 },
  },
  minimax: {
    hosts: ["api.minimax.io", "api.minimaxi.com", "api.minimax.chat"],
    models: ["minimax", "abab"],
    thoughtTags: thinkTags,
    // The vendor's guide asks for the thoughts of earlier steps where they came from: within the text.
    thoughtsBack: "tags",
    thoughtRequest: "none",
    overflowCodes: ["1039"],
    overflowWords: ["context window exceeds limit"],
    filterCodes: ["1026", "1027"],
  },
  ark: {
    hosts: ["volces.com", "bytepluses.com"],
    models: ["doubao", "ep-"],
    thoughtRequest: "thinking",
    overflowCodes: ["OutofContextError"],
    overflowWords: ["exceed max message tokens", "exceeds the maximum length"],
    filterCodes: [
      "SensitiveContentDetected",
      "InputTextSensitiveContentDetected",
      "InputImageSensitiveContentDetected",
    ],
    pictures: { maxBytes: 10_000_000, maxPixels: 36_000_000 },
  },
  openrouter: {
    hosts: ["openrouter.ai"],
    thoughtFields: ["reasoning", "reasoning_content"],
    thoughtsBack: "reasoning",
    thoughtRequest: "reasoning",
    callIds: "any",
    ends: { error: "again" },
  },
  vllm: {
    // No address tells it from others: a deployment names it, and others that serve open models are alike.
    thoughtsBack: "none",
    callsNeedThoughts: false,
    thoughtRequest: "chat_template_kwargs",
    ends: { abort: "again", error: "again" },
    overflowWords: ["longer than the maximum model length", "is too long to fit into the model"],
  },
  ollama: {
    hosts: [":11434"],
    thoughtFields: ["reasoning"],
    thoughtsBack: "none",
    callsNeedThoughts: false,
    thoughtRequest: "reasoning_effort",
    callIds: "any",
    overflowWords: [
      "exceeds the available context size",
      "exceed_context_size",
      "input length exceeds",
    ],
  },
  mistral: {
    hosts: ["api.mistral.ai"],
    callIds: "nine-letters",
    thoughtsBack: "none",
    thoughtRequest: "none",
  },
};

/** The profile of a server that nothing is known of. */
export const plainProfile: VendorProfile = { name: "plain", ...base };

/** The names that a configuration may use. */
export const profileNames: readonly string[] = Object.keys(entries);

const ownHosts: Readonly<Record<ProviderType, string>> = {
  anthropic: "https://api.anthropic.com",
  openai: "https://api.openai.com",
  "openai-responses": "https://api.openai.com",
};

/**
 * The profile of a model at an address: what is known of its family, then of the server, then what the deployment says,
 * the later ones winning. Throws a RangeError for the name of no profile.
 */
export function profileOf(
  { type, baseUrl = ownHosts[type] }: { type: ProviderType; baseUrl?: string | undefined },
  model: string,
  given: ProfileInput = {},
): VendorProfile {
  const { like, ...own } = typeof given === "string" ? { like: given } : given;
  const id = model.slice(model.lastIndexOf("/") + 1).toLowerCase();
  const { host } = new URL(baseUrl);
  const family = nameOf(({ models = [] }) => models.some((start) => id.startsWith(start)));
  const server = like ?? nameOf(({ hosts = [] }) => hosts.some((end) => isAt(host, end)));
  const names = [...new Set([server, family])].filter((name) => name !== undefined);
  const layers: ProfileLayer[] = names.toReversed().map(entryOf);
  const isOwn = Object.keys(own).length > 0;
  const name = [...(names.length === 0 ? ["plain"] : names), ...(isOwn ? ["own"] : [])].join("+");
  return { name, ...[...layers, own].reduce<Omit<VendorProfile, "name">>(withLayer, base) };
}

/** The same, worked out once for each model. Models are named by the configuration, so there are few. */
export function onceEach<Result>(find: (model: string) => Result): (model: string) => Result {
  const known = new Map<string, Result>();
  return (model) => {
    const result = known.get(model) ?? find(model);
    known.set(model, result);
    return result;
  };
}

function nameOf(matches: (entry: Entry) => boolean): string | undefined {
  return Object.entries(entries).find(([, entry]) => matches(entry))?.[0];
}

function isAt(host: string, end: string): boolean {
  const name = host.replace(/:\d+$/, "");
  return end.startsWith(":") ? host.endsWith(end) : name === end || name.endsWith(`.${end}`);
}

function entryOf(name: string): ProfileLayer {
  const entry = Object.hasOwn(entries, name) ? entries[name] : undefined;
  if (entry === undefined) {
    throw new RangeError(`no profile ${name}; there are ${profileNames.join(", ")}`);
  }
  const { hosts: _hosts, models: _models, ...layer } = entry;
  return layer;
}

function withLayer(
  known: Omit<VendorProfile, "name">,
  layer: ProfileLayer,
): Omit<VendorProfile, "name"> {
  return {
    ...known,
    ...layer,
    thoughtFields: all(layer.thoughtFields, known.thoughtFields),
    thoughtTags: layer.thoughtTags ?? known.thoughtTags,
    ends: { ...known.ends, ...layer.ends },
    overflowCodes: all(layer.overflowCodes, known.overflowCodes),
    overflowWords: all(layer.overflowWords, known.overflowWords),
    filterCodes: all(layer.filterCodes, known.filterCodes),
    schemaWithout: all(layer.schemaWithout, known.schemaWithout),
    pictures: { ...known.pictures, ...layer.pictures },
  };
}

function all<Item>(first: readonly Item[] | undefined, rest: readonly Item[]): Item[] {
  return [...new Set([...(first ?? []), ...rest])];
}

/** Who understands what a model has signed: the model at its address. Names of providers may come to mean another. */
export function signerOf(
  { type, baseUrl = ownHosts[type] }: { type: ProviderType; baseUrl?: string | undefined },
  model: string,
): string {
  const { host, pathname } = new URL(baseUrl);
  return `${host}${pathname.replace(/\/+$/, "")} ${model}`;
}
