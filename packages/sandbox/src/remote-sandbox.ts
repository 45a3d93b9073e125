import { type Clock, pause, type Random, systemClock, systemRandom } from "@larkline/protocol";
import {
  beginPath,
  bodyOf,
  heldRunsPath,
  parseLine,
  type RemoteLine,
  requestIdHeader,
  resultOf,
  runsPath,
} from "./remote-protocol.ts";
import { limitsFrom, type Sandbox, type SandboxRequest, type SandboxResult, type SandboxStatus } from "./sandbox.ts";

export interface RemoteSandboxOptions {
  /** Where `serveSandbox` answers, such as `https://sandbox.internal:8005`. */
  url: string;
  token: string;
  /** Default: Node's own, which follows no redirects here. */
  fetch?: typeof fetch;
  /** Silence after which the host counts as dead, ms. Default 20,000: four of its beats. */
  silenceMs?: number;
  clock?: Clock | undefined;
  random?: Random | undefined;
}

/** Beyond the result itself: files, output and what JSON adds. */
const lineMarginBytes = 32 * 1_048_576;
/** For the way there and back and a place in the host's line, besides the time of the run itself. */
const waitMs = 120_000;
const lost = "whether the program came to its end is not known";
/** How long the start of a run is confirmed to a host, ms: another one of several behind one address may answer first. */
const beginForMs = 15_000;
const beginAgainMs = 100;
/** How a run can end that was never to begin. */
const beforeBegin: readonly SandboxStatus[] = ["refused", "cancelled", "crashed", "disk_limit"];

class HostFailure extends Error {}
/** The caller does not let the run begin. */
class NotToBegin extends Error {}

function ended(status: SandboxStatus, error: string, { clock, startedMs }: Timing): SandboxResult {
  const wallMs = clock.monotonic() - startedMs;
  return { status, error, stdout: "", stderr: "", files: [], skipped: [], denied: [], wallMs };
}

/** Splits a stream into lines, none longer than `maxBytes`. */
async function* linesOf(body: AsyncIterable<Uint8Array>, maxBytes: number): AsyncGenerator<Buffer> {
  let parts: Buffer[] = [];
  let size = 0;
  for await (const bytes of body) {
    let chunk = Buffer.from(bytes);
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10)) {
      yield Buffer.concat([...parts, chunk.subarray(0, end)]);
      chunk = chunk.subarray(end + 1);
      parts = [];
      size = 0;
    }
    parts.push(chunk);
    size += chunk.length;
    if (size > maxBytes) throw new HostFailure("the sandbox host sent a line without an end");
  }
}

/** Aborts when it was not touched for `silenceMs`, or after `totalMs` in any case. */
function createWatch(clock: Clock, silenceMs: number, totalMs: number) {
  const controller = new AbortController();
  const abortAfter = (ms: number, reason: string): (() => void) =>
    clock.after(ms, () => controller.abort(new HostFailure(`${reason}; ${lost}`)));
  const waitInSilence = (): (() => void) => abortAfter(silenceMs, `the sandbox host was silent for ${silenceMs} ms`);
  let cancelSilence = waitInSilence();
  const cancelTotal = abortAfter(totalMs, `the sandbox host gave no result within ${totalMs} ms`);
  return {
    signal: controller.signal,
    touch: () => {
      cancelSilence();
      cancelSilence = waitInSilence();
    },
    stop: () => {
      cancelSilence();
      cancelTotal();
    },
  };
}

async function refusalOf(response: Response, timing: Timing): Promise<SandboxResult> {
  const reason = (await response.text()).slice(0, 1_000).trim();
  if (response.status === 401) return ended("refused", "the sandbox host refuses this runner's token", timing);
  if (response.status === 400 || response.status === 413) return ended("refused", reason, timing);
  return ended("crashed", `the sandbox host answered ${response.status}: ${reason}`, timing);
}

function hand(line: RemoteLine, request: SandboxRequest): void {
  if (line.type === "progress") request.onProgress?.(line.fraction, line.detail);
  if (line.type === "output") request.onOutput?.(line.stream, line.text);
}

interface Timing {
  clock: Clock;
  startedMs: number;
}

interface RemoteCall extends Timing {
  options: RemoteSandboxOptions;
  request: SandboxRequest;
  closing: AbortSignal;
}

async function send(call: RemoteCall): Promise<SandboxResult> {
  const body = bodyOf(call.request);
  return body.ok ? await new Sending(call, body.value).run() : ended("refused", body.error, call);
}

/** One run on its way. */
class Sending {
  readonly #call: RemoteCall;
  readonly #body: string;
  readonly #id: string;
  readonly #watch: ReturnType<typeof createWatch>;
  /** Ends the run when the caller does not let it begin, or the host cannot be reached. */
  readonly #stop = new AbortController();
  readonly #signal: AbortSignal;
  /** Whether the program may begin; undefined: the caller was not asked yet. */
  #asking: Promise<boolean> | undefined;
  #mayHaveBegun: boolean;

  constructor(call: RemoteCall, body: string) {
    const { options, request, closing, clock } = call;
    this.#call = call;
    this.#id = (options.random ?? systemRandom).uuid();
    this.#body = body;
    this.#mayHaveBegun = request.begin === undefined;
    this.#watch = createWatch(clock, options.silenceMs ?? 20_000, limitsFrom(request.limits).wallMs + waitMs);
    this.#signal = AbortSignal.any([request.signal, closing, this.#watch.signal, this.#stop.signal]);
  }

  /** Rejects when the host cannot be reached or breaks off. */
  async run(): Promise<SandboxResult> {
    const { request } = this.#call;
    try {
      if (request.begin === undefined) return await this.#follow(await this.#post(runsPath, this.#body));
      const held = await this.#post(heldRunsPath, this.#body);
      if (held.status !== 404) return await this.#follow(held);
      // A host of the version before, which has not taken the run and cannot say when it has a place.
      await held.body?.cancel();
      if (!(await request.begin())) throw new NotToBegin();
      this.#mayHaveBegun = true;
      return await this.#follow(await this.#post(runsPath, this.#body));
    } finally {
      this.#watch.stop();
      this.#stop.abort(); // of telling the host that it may begin
      await this.#asking; // so that the caller knows whether the call has begun
    }
  }

  async #post(path: string, body?: string): Promise<Response> {
    const { options } = this.#call;
    const response = await (options.fetch ?? fetch)(new URL(path, options.url), {
      method: "POST",
      headers: {
        authorization: `Bearer ${options.token}`,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        [requestIdHeader]: this.#id,
      },
      ...(body === undefined ? {} : { body }),
      redirect: "error",
      signal: this.#signal,
    });
    this.#watch.touch();
    return response;
  }

  async #follow(response: Response): Promise<SandboxResult> {
    const { request } = this.#call;
    if (response.status !== 200 || response.body === null) return await refusalOf(response, this.#call);
    for await (const bytes of linesOf(response.body, limitsFrom(request.limits).resultBytes + lineMarginBytes)) {
      this.#watch.touch();
      const line = parseLine(bytes);
      if (!line.ok) throw new HostFailure(`the sandbox host sent something else than its protocol; ${lost}`);
      if (line.value.type === "place") this.#confirm();
      else if (line.value.type === "result") return this.#resultOf(line.value);
      else hand(line.value, request);
    }
    throw new HostFailure(`the sandbox host broke off; ${lost}`);
  }

  #resultOf(line: RemoteLine & { type: "result" }): SandboxResult {
    if (!this.#mayHaveBegun && !beforeBegin.includes(line.status)) {
      throw new HostFailure(`the sandbox host ran the program before it was to begin; ${lost}`);
    }
    if (line.status !== "cancelled") return resultOf(line);
    return ended("crashed", "the sandbox host gave up the place of the run; the program did not run", this.#call);
  }

  /** Asks once whether the run may begin, while its lines are read on. */
  #confirm(): void {
    const { begin } = this.#call.request;
    if (begin === undefined || this.#asking !== undefined) return;
    this.#asking = begin();
    const tell = async (mayBegin: boolean): Promise<void> => {
      if (!mayBegin) throw new NotToBegin();
      this.#mayHaveBegun = true;
      await this.#sendBegin();
    };
    this.#asking.then(tell).catch((error: unknown) => this.#stop.abort(error));
  }

  /** Confirms to the host that the run may begin, until the host has acknowledged it. Idempotent. */
  async #sendBegin(): Promise<void> {
    const { clock } = this.#call;
    const untilMs = clock.monotonic() + beginForMs;
    for (let answer = "no answer"; ;) {
      try {
        const response = await this.#post(beginPath(this.#id));
        await response.body?.cancel();
        if (response.status === 204) return;
        answer = String(response.status);
      } catch (error) {
        if (this.#signal.aborted) return;
        answer = error instanceof Error ? error.message : String(error);
      }
      if (clock.monotonic() >= untilMs) {
        throw new HostFailure(`the sandbox host did not acknowledge that the program may begin (${answer}); ${lost}`);
      }
      await pause(clock, beginAgainMs);
    }
  }
}

function failureOf(error: unknown, call: RemoteCall): SandboxResult {
  const { request, closing } = call;
  if (request.signal.aborted || closing.aborted) return ended("cancelled", "cancelled", call);
  // Limits out of range, or an input that is no JSON.
  if (error instanceof RangeError || (error instanceof TypeError && error.cause === undefined)) {
    return ended("refused", error.message, call);
  }
  if (error instanceof NotToBegin) return ended("cancelled", "the run was not to begin any more", call);
  if (error instanceof HostFailure) return ended("crashed", error.message, call);
  const { cause } = error instanceof Error ? error : {};
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  // Nothing was sent when there was no connection to send it over.
  if (code === "ECONNREFUSED" || code === "ENOTFOUND") {
    return ended("crashed", `the sandbox host cannot be reached (${code}); the program did not run`, call);
  }
  return ended("crashed", `the connection to the sandbox host failed${code && ` (${code})`}; ${lost}`, call);
}

/**
 * A sandbox on another machine that runs `serveSandbox`. `run` never rejects and sends each run once:
 * a host that refuses the token or the request gives `refused`; one that is busy, cannot be reached,
 * breaks off or falls silent gives `crashed`, and the error says whether the program may have run.
 * `close` cancels what runs; it does not stop the host. Throws at a URL that is none.
 */
export function createRemoteSandbox(options: RemoteSandboxOptions): Sandbox {
  const { protocol } = new URL(options.url);
  if (protocol !== "http:" && protocol !== "https:") throw new TypeError("the URL of a sandbox host is http or https");
  const { clock = systemClock } = options;
  const closing = new AbortController();
  const running = new Set<Promise<SandboxResult>>();
  const run = async (request: SandboxRequest): Promise<SandboxResult> => {
    const call = { options, request, closing: closing.signal, clock, startedMs: clock.monotonic() };
    if (request.signal.aborted || closing.signal.aborted) return ended("cancelled", "cancelled", call);
    return await send(call).catch((error: unknown) => failureOf(error, call));
  };
  return {
    tier: "remote",
    run: async (request) => {
      const result = run(request);
      running.add(result);
      return await result.finally(() => running.delete(result));
    },
    open: () =>
      Promise.reject(
        new Error(
          "a remote sandbox holds no sessions: run stdio MCP servers where a sandbox of its own holds, or reach them over HTTP",
        ),
      ),
    close: async () => {
      closing.abort();
      await Promise.all(running);
    },
  };
}
