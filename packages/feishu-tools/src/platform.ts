import {
  callWithToken,
  type Client,
  type FileAnswer,
  FileTooLargeError,
  type RequestOptions,
  TokenCallError,
} from "@larkline/feishu/token-call";
import { pause, systemClock, type Clock } from "@larkline/protocol/clock";
import {
  type Exclusive,
  GrantRefusedError,
  type ToolContext,
  type ToolIdentity,
} from "@larkline/tool-kit";
import { Lanes } from "./lanes.ts";

// The platform as one call of a tool sees it: with the token of that call, with what its codes mean, and with patience
// for its limits and locks.

/** What the tools of this package take from outside; all have defaults. */
export interface WorkToolSettings {
  clock?: Clock;
  /**
   * How long the platform is trusted to know a key again, in ms, for the operations whose page names no time. Default 60
   * seconds. A write without an answer is never repeated later than that.
   */
  keyWindowMs?: number;
  /** How long the platform knows the key of a new task, in ms. Default 5 minutes ("Task v2 overview"). */
  taskKeyWindowMs?: number;
  /** How long the platform knows the key of a message, in ms. Default 1 hour ("Send message"). */
  messageKeyWindowMs?: number;
  /**
   * For how long what a write without a key has made is looked for, in ms: the platform may list it a moment later. Default
   * 2 seconds.
   */
  readBackMs?: number;
  /** How long a call waits for limits and locks of the platform in all, in ms. Default 20 seconds. */
  patienceMs?: number;
}

/** The settings with their defaults, and what the tools share. */
export interface Settings extends Required<WorkToolSettings> {
  lanes: Lanes;
}

export function completed(settings: WorkToolSettings): Settings {
  return {
    clock: systemClock,
    keyWindowMs: 60_000,
    taskKeyWindowMs: 300_000,
    messageKeyWindowMs: 3_600_000,
    readBackMs: 2_000,
    patienceMs: 20_000,
    ...settings,
    lanes: new Lanes(),
  };
}

/** The platform has refused; the model reads the message. Nothing has changed. */
export class PlatformRefusal extends Error {
  override readonly name = "PlatformRefusal";
  readonly code: number;

  constructor(code: number, words: string) {
    super(`${words} (code ${code})`);
    this.code = code;
  }
}

/** A write may have taken effect, or not: the platform has not said. */
export class UnansweredError extends Error {
  override readonly name = "UnansweredError";
  /** Of its server error, if it gave one; else 0. */
  readonly code: number;

  constructor(code = 0) {
    super("the platform did not answer");
    this.code = code;
  }
}

/** What the codes of a family of operations mean, and what the model can do about them. */
export type Remedies = Readonly<Record<number, string>>;

export interface Platform {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** For how long what was just written is looked for. */
  readonly readBackMs: number;
  readonly as: "person" | "bot";
  /** Open id of the person as whom calls are made; undefined: the bot. */
  readonly openId: string | undefined;
  /** The call may only look for what a run of it has made that began then; undefined: it may write. */
  readonly beganAtMs: number | undefined;
  /** Repeated while the platform does not answer. */
  read<T>(run: Operation<T>, pace?: Pace): Promise<Partial<T>>;
  /**
   * Repeated only where the platform has refused because of a limit or a lock. Rejects with an UnansweredError when it
   * is not known whether it took effect, as is that of every write of a call that may only look.
   */
  write<T>(run: Operation<T>, pace?: Pace): Promise<Partial<T>>;
  /** The bytes at a path of the Open API, 20 MiB at most; throws with words for the model when there are more. */
  download(path: string, params: Readonly<Record<string, string>>, pace: Pace): Promise<Buffer>;
  /**
   * The bytes at an address that the platform has given, 20 MiB at most; the token does not go there. Throws with words for
   * the model.
   */
  fetched(address: string): Promise<Buffer>;
  /** Runs the work when no other call works at the object, such as a table, whose parallel writes are refused. */
  exclusive<T>(object: string, work: () => Promise<T>): Promise<T>;
}

/** A limit that many operations share, so low that waiting for its refusals would be unfair. */
export interface Pace {
  /** Such as `documents`. */
  of: string;
  everyMs: number;
}

/** A typed method of the SDK: `(client, as) => client.wiki.v2.space.list({}, as)`. */
export type Operation<T> = (
  client: Client,
  as: RequestOptions,
) => Promise<{ data?: T | undefined }>;

/** Permissions of the person: "The user has not granted", also of messages across companies. */
const personCodes = new Set([99991679, 99991676, 230027]);
const tokenCodes = new Set([99991668, 99991677]);
const appScopeCode = 99991672;

/**
 * Limits and locks that pass: gateway, folder, revision of a document, writes to a table, wiki tree, drive, permissions.
 */
const passing = new Set([
  99991400, 1277001, 1770036, 1254290, 1254291, 1254607, 1254036, 1255040, 131009, 1061045, 1066002,
  1063006, 2889980,
]);

const everywhere: Remedies = {
  99991400: "The platform's limit for such calls is reached; try again in a minute.",
  99991663: "The platform takes no token of this kind here.",
  99991403: "The company's calls to the platform are used up for this month.",
  99991662: "The bot's app is switched off; an administrator can switch it on.",
  99991673: "The bot's app is not installed in this company.",
  21000: "The company's access policy wants a check by the person first, in the Feishu client.",
};

/** The platform for this call. Throws when the runner was given no identity for it. */
export function platformOf(
  {
    identity,
    signal,
    actor,
    exclusive,
    beganAtMs,
  }: Pick<ToolContext, "identity" | "signal" | "actor" | "exclusive" | "beganAtMs">,
  { clock, patienceMs, readBackMs, lanes }: Settings,
  remedies: Remedies = {},
): Platform {
  if (identity === undefined) {
    throw new Error(
      "This call has no identity on the platform: the deployment gives none to this runner.",
    );
  }
  // Runners share these with their other processes. Elsewhere limits are met, and waited for.
  const share: Exclusive =
    exclusive ??
    (async (object, { everyMs, signal: waiting }, work) =>
      everyMs === undefined
        ? await lanes.run(object, identity.openId ?? actor.userId, waiting, work)
        : await work());
  // Gives up before the call's deadline, which could not tell whether the work had begun.
  const alone = async <T>(
    object: string,
    options: { everyMs?: number },
    work: () => Promise<T>,
  ): Promise<T> => {
    const late = new AbortController();
    const cancel = clock.after(maxLineMs, () => late.abort(new Error(lateWords)));
    try {
      return await share(
        object,
        { ...options, signal: AbortSignal.any([signal, late.signal]) },
        async () => {
          cancel();
          return await work();
        },
      );
    } finally {
      cancel();
    }
  };
  const attempt = async <T>(
    run: Operation<T>,
    { isRead = false, maxFileBytes }: { isRead?: boolean; maxFileBytes?: number },
    pace?: Pace,
  ): Promise<Partial<T>> => {
    const giveUpAt = clock.monotonic() + patienceMs;
    for (let waitMs = firstWaitMs; ; waitMs = Math.min(waitMs * 2, maxWaitMs)) {
      if (pace !== undefined) {
        await alone(pace.of, { everyMs: pace.everyMs }, () => Promise.resolve());
      }
      try {
        return await callWithToken(identity, run, signal, maxFileBytes);
      } catch (error) {
        if (!(error instanceof TokenCallError)) throw error;
        signal.throwIfAborted();
        if (!isRead && error.uncertain && !passing.has(error.code)) {
          throw new UnansweredError(error.code);
        }
        const nextMs = Math.max(waitMs, error.retryAfterMs);
        if (!passes(error) || clock.monotonic() + nextMs > giveUpAt) {
          throw refusalOf(error, remedies);
        }
        await pause(clock, nextMs, signal);
      }
    }
  };
  return {
    clock,
    signal,
    readBackMs,
    as: identity.as,
    openId: identity.as === "person" ? identity.openId : undefined,
    read: async (run, pace) => await attempt(run, { isRead: true }, pace),
    beganAtMs,
    write: async (run, pace) => {
      if (beganAtMs !== undefined) throw new UnansweredError();
      return await attempt(run, {}, pace);
    },
    download: async (url, params, pace) => {
      const get: Operation<FileAnswer> = async (client, as) => ({
        data: (await client.request({ method: "GET", url, params }, as)) as FileAnswer, // as `maxFileBytes` makes it
      });
      try {
        const { bytes } = await attempt(get, { isRead: true, maxFileBytes }, pace);
        return bytes ?? Buffer.alloc(0);
      } catch (error) {
        if (!(error instanceof FileTooLargeError)) throw error;
        throw new Error(tooLargeWords, { cause: error });
      }
    },
    fetched: async (address) => await fetchedFrom(address, { clock, signal, identity }),
    exclusive: async (object, work) => await alone(object, {}, work),
  };
}

/** Over TLS, or from where the calls go; redirects are not followed. */
async function fetchedFrom(
  address: string,
  { clock, signal, identity }: Pick<Platform, "clock" | "signal"> & { identity: ToolIdentity },
): Promise<Buffer> {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  const isOwn = url?.origin === new URL(identity.apiOrigin).origin;
  if (url === undefined || (url.protocol !== "https:" && !isOwn)) {
    throw new Error("The platform gave no address of the file.");
  }
  const late = new AbortController();
  const cancel = clock.after(fetchMs, () => late.abort());
  try {
    const response = await fetch(url, {
      redirect: "error",
      signal: AbortSignal.any([signal, late.signal]),
    });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for await (const piece of response.body ?? []) {
      pieces.push(piece);
      bytes += piece.byteLength;
      if (bytes > maxFileBytes) throw new FileTooLargeError("too large");
    }
    return Buffer.concat(pieces);
  } catch (error) {
    signal.throwIfAborted();
    const words =
      error instanceof FileTooLargeError
        ? tooLargeWords
        : "The file could not be fetched; try again.";
    throw new Error(words, { cause: error });
  } finally {
    cancel();
  }
}

const fetchMs = 60_000;
const tooLargeWords = "The file has more than 20 MB: give the person its link.";

const maxFileBytes = 20 * 1024 * 1024;
/** A call waits that long in line for others. */
const maxLineMs = 60_000;
const lateWords =
  "Other calls are at work there, and this one has waited for a minute. Nothing more was changed. Try again later.";
const firstWaitMs = 300;
const maxWaitMs = 4_000;

/** Whether the same call may succeed in a moment. */
function passes({ code, httpStatus, uncertain }: TokenCallError): boolean {
  return (
    passing.has(code) ||
    httpStatus === 429 ||
    httpStatus >= 500 ||
    (code === 0 && (uncertain || httpStatus === 0))
  );
}

function refusalOf({ code, httpStatus, scopes, link }: TokenCallError, remedies: Remedies): Error {
  if (personCodes.has(code)) return new GrantRefusedError({ kind: "scopes", scopes: [...scopes] });
  if (tokenCodes.has(code)) return new GrantRefusedError({ kind: "token" });
  if (code === appScopeCode) {
    return new GrantRefusedError({
      kind: "app-scopes",
      scopes: [...scopes],
      ...(link === undefined ? {} : { link }),
    });
  }
  if (code === 0) {
    return new Error("The platform does not answer; nothing was changed. Try again later.");
  }
  const words =
    remedies[code] ?? everywhere[code] ?? `The platform refused the call with HTTP ${httpStatus}.`;
  return new PlatformRefusal(code, words);
}

/** Whether the platform has refused with one of these codes. */
export function isRefusal(error: unknown, ...codes: number[]): error is PlatformRefusal {
  return error instanceof PlatformRefusal && codes.includes(error.code);
}

/* ---- Ids and links ---- */

const idForm = /^[A-Za-z0-9_-]{1,100}$/;

/** What a link or a bare id names. */
export interface Target {
  kind: "docx" | "wiki" | "base" | "sheets" | "file" | "minutes" | "unknown";
  id: string;
  /** Origin of the link, with which links to others are made; undefined for a bare id. */
  origin: string | undefined;
  /** The other parts of its query, such as `table` of a Base. */
  query: URLSearchParams;
}

/**
 * Reads a link of the platform or a bare id, whose kind is `unknown`. Throws with words for the model for anything else:
 * ids become parts of paths.
 */
export function targetOf(text: string): Target {
  const trimmed = text.trim();
  if (idForm.test(trimmed)) {
    return { kind: "unknown", id: trimmed, origin: undefined, query: new URLSearchParams() };
  }
  const url = URL.canParse(trimmed) ? new URL(trimmed) : undefined;
  const [, kind, id] =
    /^\/(docx|wiki|base|sheets|file|minutes)\/([A-Za-z0-9_-]{1,100})\/?$/.exec(
      url?.pathname ?? "",
    ) ?? [];
  if (url === undefined || kind === undefined || id === undefined) {
    throw new Error(
      `${JSON.stringify(trimmed.slice(0, 200))} is neither a link to a document nor an id.`,
    );
  }
  return { kind: kind as Target["kind"], id, origin: url.origin, query: url.searchParams }; // as the expression says
}

/** The id, when it has the form of one. Throws with words for the model otherwise. */
export function checkedId(id: string, what: string): string {
  if (!idForm.test(id)) throw new Error(`${JSON.stringify(id.slice(0, 100))} is no id of ${what}.`);
  return id;
}

/* ---- Text of others ---- */

/** Marks text that other people wrote, so that the model takes it as data. */
export function quoted(source: string, text: string): string {
  const mark = "content-of-others";
  const safe = text.replaceAll(new RegExp(`<(/?)${mark}`, "gi"), `<$1 ${mark}`);
  return `<${mark} from="${source.replaceAll(/["<>\n]/g, " ").slice(0, 200)}">\n${safe}\n</${mark}>`;
}
