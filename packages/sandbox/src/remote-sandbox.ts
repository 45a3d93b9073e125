import { randomUUID } from "node:crypto";
import { limitsFrom } from "./limits.ts";
import { bodyOf, parseLine, requestIdHeader, resultOf, runsPath, type RemoteLine } from "./remote-protocol.ts";
import type { Sandbox, SandboxRequest, SandboxResult, SandboxStatus } from "./sandbox.ts";

export interface RemoteSandboxOptions {
  /** Where `serveSandbox` answers, such as `https://sandbox.internal:8005`. */
  url: string;
  token: string;
  /** Default: Node's own, which follows no redirects here. */
  fetch?: typeof fetch;
  /** Silence after which the host counts as dead, ms. Default 20,000: four of its beats. */
  silenceMs?: number;
}

/** Beyond the result itself: files, output and what JSON adds. */
const lineMarginBytes = 32 * 1_048_576;
/** For the way there and back and a place in the host's line, besides the time of the run itself. */
const waitMs = 120_000;
const lost = "whether the program came to its end is not known";

class HostFailure extends Error {}

function ended(status: SandboxStatus, error: string, startedMs: number): SandboxResult {
  const wallMs = performance.now() - startedMs;
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
function createWatch(silenceMs: number, totalMs: number) {
  const controller = new AbortController();
  const giveUp = (reason: string) => () => controller.abort(new HostFailure(`${reason}; ${lost}`));
  const silence = setTimeout(giveUp(`the sandbox host was silent for ${silenceMs} ms`), silenceMs);
  const total = setTimeout(giveUp(`the sandbox host gave no result within ${totalMs} ms`), totalMs);
  return {
    signal: controller.signal,
    touch: () => void silence.refresh(),
    stop: () => {
      clearTimeout(silence);
      clearTimeout(total);
    },
  };
}

async function refusalOf(response: Response, startedMs: number): Promise<SandboxResult> {
  const reason = (await response.text()).slice(0, 1_000).trim();
  if (response.status === 401) return ended("refused", "the sandbox host refuses this runner's token", startedMs);
  if (response.status === 400 || response.status === 413) return ended("refused", reason, startedMs);
  return ended("crashed", `the sandbox host answered ${response.status}: ${reason}`, startedMs);
}

function hand(line: RemoteLine, request: SandboxRequest): void {
  if (line.type === "progress") request.onProgress?.(line.fraction, line.detail);
  if (line.type === "output") request.onOutput?.(line.stream, line.text);
}

interface RemoteCall {
  options: RemoteSandboxOptions;
  request: SandboxRequest;
  closing: AbortSignal;
  startedMs: number;
}

/** Sends one run and reads its answer to the end. Rejects when the host cannot be reached or breaks off. */
async function send({ options, request, closing, startedMs }: RemoteCall): Promise<SandboxResult> {
  const body = bodyOf(request);
  if (!body.ok) return ended("refused", body.error, startedMs);
  if ((await request.begin?.()) === false) return ended("cancelled", "the run was not to begin any more", startedMs);
  const { resultBytes, wallMs } = limitsFrom(request.limits);
  const watch = createWatch(options.silenceMs ?? 20_000, wallMs + waitMs);
  try {
    const response = await (options.fetch ?? fetch)(new URL(runsPath, options.url), {
      method: "POST",
      headers: {
        authorization: `Bearer ${options.token}`,
        "content-type": "application/json",
        [requestIdHeader]: randomUUID(),
      },
      body: body.value,
      redirect: "error",
      signal: AbortSignal.any([request.signal, closing, watch.signal]),
    });
    watch.touch();
    if (response.status !== 200 || response.body === null) return await refusalOf(response, startedMs);
    for await (const bytes of linesOf(response.body, resultBytes + lineMarginBytes)) {
      watch.touch();
      const line = parseLine(bytes);
      if (!line.ok) throw new HostFailure(`the sandbox host sent something else than its protocol; ${lost}`);
      if (line.value.type === "result") return resultOf(line.value);
      hand(line.value, request);
    }
    throw new HostFailure(`the sandbox host broke off; ${lost}`);
  } finally {
    watch.stop();
  }
}

function failureOf(error: unknown, { request, closing, startedMs }: RemoteCall): SandboxResult {
  if (request.signal.aborted || closing.aborted) return ended("cancelled", "cancelled", startedMs);
  // Limits out of range, or an input that is no JSON.
  if (error instanceof RangeError || (error instanceof TypeError && error.cause === undefined)) {
    return ended("refused", error.message, startedMs);
  }
  if (error instanceof HostFailure) return ended("crashed", error.message, startedMs);
  const { cause } = error instanceof Error ? error : {};
  const code = cause instanceof Error && "code" in cause ? String(cause.code) : "";
  // Nothing was sent when there was no connection to send it over.
  if (code === "ECONNREFUSED" || code === "ENOTFOUND") {
    return ended("crashed", `the sandbox host cannot be reached (${code}); the program did not run`, startedMs);
  }
  return ended("crashed", `the connection to the sandbox host failed${code && ` (${code})`}; ${lost}`, startedMs);
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
  const closing = new AbortController();
  const running = new Set<Promise<SandboxResult>>();
  const run = async (request: SandboxRequest): Promise<SandboxResult> => {
    const call = { options, request, closing: closing.signal, startedMs: performance.now() };
    if (request.signal.aborted || closing.signal.aborted) return ended("cancelled", "cancelled", call.startedMs);
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
