import type { ProviderType } from "./model-catalog.ts";

// What an operator adds to the requests of a vendor that Larkline has no setting for, and the tools that a vendor runs
// itself. The loop's own part of a request cannot be changed by either.

/** Fields of the body and headers that go with every request of a provider. */
export interface RequestExtra {
  /** A service tier, a router's `provider`. */
  readonly body?: Readonly<Record<string, unknown>>;
  /** Such as `anthropic-beta`. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** A tool that the vendor runs, as its interface describes it. */
export type HostedTool = Readonly<Record<string, unknown>>;

/** Fields that belong to the loop, in any of the interfaces. Others that a request sets itself win over an extra one. */
const ownFields: ReadonlySet<string> = new Set(
  (
    "model messages input system instructions prompt tools functions stream stream_options background n " +
    "max_tokens max_completion_tokens max_output_tokens store previous_response_id conversation"
  ).split(" "),
);

/** Headers that say who asks, or how the message is framed. */
const ownHeaders =
  /^(?:authorization|proxy-.*|x-api-key|api-key|x-goog-api-key|cookie|host|connection|content-.*|transfer-encoding|accept|accept-encoding|te|trailer|upgrade|expect|keep-alive)$/i;

const maxBodyChars = 100_000;

/** Why this cannot go with requests, or undefined. */
export function extraProblem({ body = {}, headers = {} }: RequestExtra): string | undefined {
  const field = Object.keys(body).find((name) => ownFields.has(name));
  if (field !== undefined) return `body.${field} belongs to Larkline, which sets it itself`;
  const header = Object.keys(headers).find((name) => ownHeaders.test(name));
  if (header !== undefined) return `headers.${header} belongs to Larkline, which sets it itself`;
  const chars = jsonChars(body);
  if (chars === undefined) return "body is not JSON";
  return chars > maxBodyChars
    ? `body has ${chars} characters, ${maxBodyChars} may be sent`
    : undefined;
}

function jsonChars(value: unknown): number | undefined {
  try {
    return JSON.stringify(value).length;
  } catch {
    return undefined;
  }
}

/** The later one wins where both set the same. */
export function joinedExtra(first: RequestExtra = {}, second: RequestExtra = {}): RequestExtra {
  return {
    body: joined(first.body ?? {}, second.body ?? {}) as RequestExtra["body"] & object,
    headers: headersWith(lowerCase(second.headers), first.headers),
  };
}

/** A request's body with what is added to it: objects are joined, lists too, and of all else the request's own value stays. */
export function bodyWith<T extends object>(body: T, extra: RequestExtra | undefined): T {
  if (extra?.body === undefined) return body;
  const added = Object.entries(extra.body).filter(([name]) => !ownFields.has(name));
  if (added.length === 0) return body;
  return joined(Object.fromEntries(added), body) as T; // a superset of the body
}

/** A request's headers with what is added to them; the request's own stay. */
export function headersWith(
  headers: Record<string, string>,
  extra: Record<string, string> | undefined = {},
) {
  const added = Object.entries(lowerCase(extra)).filter(([name]) => !ownHeaders.test(name));
  return { ...Object.fromEntries(added), ...headers };
}

function lowerCase(headers: Readonly<Record<string, string>> = {}): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}

function joined(low: unknown, high: unknown): unknown {
  if (Array.isArray(low) && Array.isArray(high)) {
    return [...high, ...low.filter((item) => !high.includes(item))];
  }
  if (!isRecord(low) || !isRecord(high)) return high;
  const names = new Set([...Object.keys(low), ...Object.keys(high)]);
  return Object.fromEntries(
    [...names].map((name) => {
      const [of, over] = [Object.hasOwn(low, name), Object.hasOwn(high, name)];
      return [name, of && over ? joined(low[name], high[name]) : over ? high[name] : low[name]];
    }),
  );
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Tools of a vendor's interface that its client has to run: those are tools of a runner here. */
const runByClient: Readonly<Record<ProviderType, RegExp>> = {
  anthropic: /^(?:custom|bash_|text_editor_|computer_|memory_)/,
  "openai-responses": /^(?:function|custom|computer|local_shell|apply_patch)/,
  openai: /./,
};

/** Why the vendor of this interface cannot be given the tool, or undefined. */
export function hostedToolProblem(type: ProviderType, tool: HostedTool): string | undefined {
  if (type === "openai") {
    return "Chat Completions has no hosted tools; openai-responses and anthropic have";
  }
  const { type: kind } = tool;
  if (typeof kind !== "string" || kind === "") return "a hosted tool needs its `type`";
  if (runByClient[type].test(kind)) {
    return `'${kind}' is run by the client, not by the vendor: write a tool of your own`;
  }
  return jsonChars(tool) === undefined ? `'${kind}' is not JSON` : undefined;
}
