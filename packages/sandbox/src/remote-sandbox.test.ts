import { once } from "node:events";
import { createServer, request as requestHttp, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { systemClock, type Clock } from "@larkline/protocol";
import { afterEach, describe, expect, it } from "vitest";
import { type SandboxHost, type SandboxHostEvent, type SandboxHostOptions, serveSandbox } from "./remote-host.ts";
import { createRemoteSandbox, type RemoteSandboxOptions } from "./remote-sandbox.ts";
import type { Sandbox, SandboxRequest, SandboxResult } from "./sandbox.ts";

const token = "a-token-of-the-runner";
const open: { close(): Promise<void> | void }[] = [];
const events: SandboxHostEvent[] = [];

const result: SandboxResult = {
  status: "ok",
  value: { answer: 42, 文字: "值" },
  stdout: "out",
  stderr: "err",
  files: [{ name: "plot.bin", bytes: Uint8Array.from([0, 255, 10, 13]) }],
  skipped: [{ name: "link", reason: "a symbolic link" }],
  denied: ["denied: evil.test:80"],
  wallMs: 12.5,
  cpuMs: 3,
  peakMemoryBytes: 1_000,
};

/** The other end: a sandbox of which only `run` matters. */
function sandboxOf(run: (request: SandboxRequest) => Promise<SandboxResult>): Sandbox {
  return { tier: "test", run, open: () => Promise.reject(new Error("none")), close: () => Promise.resolve() };
}

async function serve(run: Sandbox["run"], options: Partial<SandboxHostOptions> = {}): Promise<SandboxHost> {
  const onEvent = (event: SandboxHostEvent): void => void events.push(event);
  const common = { host: "127.0.0.1", port: 0, token, maxConcurrent: 4, onEvent, drainMs: 50 };
  const host = await serveSandbox({ sandbox: sandboxOf(run), ...common, ...options });
  open.push(host);
  return host;
}

/** A host with set answers, to be wrong on purpose. */
async function serveRaw(
  answer: (response: ServerResponse, path: string) => void,
): Promise<{ port: number; requests: () => number }> {
  let requests = 0;
  const server = createServer((request, response) => {
    requests += 1;
    request.resume().on("end", () => answer(response, request.url ?? ""));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  open.push({
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  });
  return { port: (server.address() as AddressInfo).port, requests: () => requests }; // listening on TCP
}

function remote(port: number, options: Partial<RemoteSandboxOptions> = {}): Sandbox {
  const sandbox = createRemoteSandbox({ url: `http://127.0.0.1:${port}`, token, ...options });
  open.push(sandbox);
  return sandbox;
}

const python: SandboxRequest = {
  program: { runtime: "python", code: "result = 1" },
  signal: new AbortController().signal,
};

/** The clock of a runner for which the time without a word of the host is over when the test says so. */
function silenceOf(silenceMs: number): { silenceMs: number; clock: Clock; pass: () => void } {
  const waits = new Set<() => void>();
  const after: Clock["after"] = (ms, work) => {
    if (ms !== silenceMs) return systemClock.after(ms, work);
    waits.add(work);
    return () => waits.delete(work);
  };
  const pass = (): void => {
    for (const work of waits) work();
  };
  return { silenceMs, clock: { ...systemClock, after }, pass };
}

function untilAborted(signal: AbortSignal): Promise<SandboxResult> {
  const cancelled = { ...result, status: "cancelled" as const };
  if (signal.aborted) return Promise.resolve(cancelled);
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve(cancelled), { once: true }));
}

afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
  events.length = 0;
});

describe("a remote sandbox", () => {
  it("carries a run there and its result back, unchanged", async () => {
    let got: SandboxRequest | undefined;
    const { port } = await serve(async (request) => {
      got = request;
      return await Promise.resolve(result);
    });
    const sent: SandboxRequest = {
      program: {
        runtime: "node",
        code: "return 1",
        input: { a: [1, null] },
        files: [{ name: "in.bin", bytes: Buffer.from([7, 0]) }],
      },
      limits: { wallMs: 5_000, memoryMb: 64 },
      env: { NAME: "值" },
      network: { allow: ["api.example.com"] },
      signal: new AbortController().signal,
    };
    expect(await remote(port).run(sent)).toEqual({
      ...result,
      files: [{ name: "plot.bin", bytes: Buffer.from([0, 255, 10, 13]) }],
    });
    expect(got).toMatchObject({ program: sent.program, limits: sent.limits, env: sent.env, network: sent.network });
    expect(events).toEqual([
      { event: "run_started", requestId: expect.any(String), runtime: "node" },
      { event: "run_ended", requestId: expect.any(String), status: "ok", wallMs: 12.5 },
    ]);
  });

  it("hands progress and output over while the program runs", async () => {
    const release = Promise.withResolvers<void>();
    const { port } = await serve(async (request) => {
      request.onProgress?.(0.5, "half");
      request.onOutput?.("stdout", "line 1\n");
      request.onOutput?.("stderr", "oops");
      await release.promise;
      return result;
    });
    const seen: unknown[] = [];
    const running = remote(port).run({
      ...python,
      onProgress: (fraction, detail) => void seen.push([fraction, detail]),
      onOutput: (stream, text) => {
        seen.push([stream, text]);
        if (stream === "stderr") release.resolve();
      },
    });
    expect((await running).status).toBe("ok");
    expect(seen).toEqual([
      [0.5, "half"],
      ["stdout", "line 1\n"],
      ["stderr", "oops"],
    ]);
  });

  it("cancels the program on the other machine", async () => {
    const started = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    const { port } = await serve(async (request) => {
      started.resolve();
      const cancelled = await untilAborted(request.signal);
      ended.resolve();
      return cancelled;
    });
    const controller = new AbortController();
    const running = remote(port).run({ ...python, signal: controller.signal });
    await started.promise;
    controller.abort();
    expect(await running).toMatchObject({ status: "cancelled" });
    await ended.promise;
    await expect.poll(() => events.map((event) => event.event)).toEqual(["run_started", "run_abandoned"]);
    expect(await remote(port).run({ ...python, signal: controller.signal })).toMatchObject({ status: "cancelled" });
  });

  it("cancels what runs when it is closed, and then runs nothing more", async () => {
    const started = Promise.withResolvers<void>();
    const { port } = await serve(async ({ signal }) => {
      started.resolve();
      return await untilAborted(signal);
    });
    const sandbox = remote(port);
    const running = sandbox.run(python);
    await started.promise;
    await sandbox.close();
    await sandbox.close();
    expect([await running, await sandbox.run(python)]).toMatchObject([
      { status: "cancelled" },
      { status: "cancelled" },
    ]);
  });

  it("refuses sessions, modules, unknown limits and inputs that are no JSON, without a request", async () => {
    const sandbox = remote(1);
    await expect(sandbox.open({ command: "sh", args: [], readable: [] })).rejects.toThrow("holds no sessions");
    const cyclic: unknown[] = [];
    cyclic.push(cyclic);
    const requests: SandboxRequest[] = [
      { ...python, program: { runtime: "node", module: "/a.ts", readable: [] } },
      { ...python, limits: { wallMs: 0 } },
      { ...python, program: { runtime: "node", code: "", input: cyclic } },
      { ...python, program: { runtime: "node", code: "", input: 1n } },
    ];
    for (const request of requests) expect(await sandbox.run(request)).toMatchObject({ status: "refused" });
    expect(() => createRemoteSandbox({ url: "ftp://x", token })).toThrow(TypeError);
  });

  it("says that the program did not run when the host cannot be reached", async () => {
    const { port, close } = await serve(async () => await Promise.resolve(result));
    await close();
    expect(await remote(port).run(python)).toMatchObject({
      status: "crashed",
      error: expect.stringContaining("the program did not run"),
    });
  });

  it("notices a host that breaks off, falls silent or talks nonsense, and sends the run once", async () => {
    const answers: [(response: ServerResponse) => void, string][] = [
      [(response) => response.destroy(), "failed"],
      [(response) => response.end('{"type":"accepted"}\n'), "broke off"],
      [(response) => response.write('{"type":"accepted"}\n', () => response.destroy()), "failed"],
      [(response) => response.write('{"type":"accepted"}\n'), "silent for 100 ms"],
      [() => {}, "silent for 100 ms"],
      [(response) => response.end("<html>\n"), "something else"],
      [(response) => response.end(`${"[".repeat(100_000)}\n`), "something else"],
      [(response) => response.end('{"type":"result","status":"splendid"}\n'), "something else"],
      [(response) => response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(), "failed"],
    ];
    for (const [answer, error] of answers) {
      const { pass, ...silence } = silenceOf(100);
      const { port, requests } = await serveRaw((response) => {
        answer(response);
        if (error.startsWith("silent")) setImmediate(pass);
      });
      expect(await remote(port, silence).run(python)).toMatchObject({
        status: "crashed",
        error: expect.stringMatching(new RegExp(`${error}.*is not known`)),
      });
      expect(requests()).toBe(1);
    }
  });

  it("drops what would change prototypes, though the other machine sends it", async () => {
    const value = '{"a":1,"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}';
    const rest = '"stdout":"","stderr":"","files":[],"skipped":[],"denied":[],"wallMs":1';
    const { port } = await serveRaw((response) =>
      response.end(`{"type":"result","status":"ok","value":${value},${rest}}\n`),
    );
    const { value: got } = await remote(port).run(python);
    expect(Object.getOwnPropertyNames(got)).toEqual(["a"]);
  });

  it("does not collect an endless line", async () => {
    const { port } = await serveRaw((response) => {
      const more = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(1_048_576, 120)));
      };
      response.on("drain", more);
      more();
    });
    expect(await remote(port).run(python)).toMatchObject({
      status: "crashed",
      error: expect.stringContaining("without an end"),
    });
  });

  it("stays with a quiet program as long as the host shows life", async () => {
    let begun = 0;
    let waits = 0;
    const quiet = Promise.withResolvers<SandboxResult>();
    const { port } = await serve(async () => await quiet.promise, { beatMs: 50 });
    // Each word of the host ends the wait for one, and begins another. As many as fill a second come.
    const after: Clock["after"] = (ms, work) => {
      if (ms !== 1_000) return systemClock.after(ms, work);
      begun += 1;
      waits += 1;
      if (begun > 20) quiet.resolve(result);
      return () => void (waits -= 1);
    };
    const clock = { ...systemClock, after };
    expect(await remote(port, { silenceMs: 1_000, clock }).run(python)).toMatchObject({ status: "ok" });
    expect(waits).toBe(0);
  });
});

describe("a run that is to be confirmed", () => {
  /** The other end: asks before it runs, as a sandbox does that has a place. */
  const asking: Sandbox["run"] = async ({ begin }) =>
    (await begin?.()) === false ? { ...result, status: "cancelled" } : result;
  const yes = async (): Promise<boolean> => await Promise.resolve(true);

  it("is confirmed after the host had a place, by the host that has it", async () => {
    const order: string[] = [];
    const place = Promise.withResolvers<void>();
    const { port, running } = await serve(async (request) => {
      await place.promise;
      const told = await asking(request);
      order.push("run");
      return told;
    });
    const { port: other } = await serve(asking);
    let sent = 0;
    /** Two hosts behind one address: the first to get the start is the wrong one. */
    const balanced: typeof fetch = async (input, init) => {
      const url = new URL(String(input));
      if (url.pathname.endsWith("/begin")) sent += 1;
      if (sent === 1) url.port = String(other);
      return await fetch(url, init);
    };
    const begin = async (): Promise<boolean> => {
      order.push("begin");
      return await yes();
    };
    const ended = remote(port, { fetch: balanced }).run({ ...python, begin });
    await expect.poll(() => running()).toBe(1);
    expect(order).toEqual([]);
    place.resolve();
    expect(await ended).toMatchObject({ status: "ok" });
    expect(order).toEqual(["begin", "run"]);
    expect(sent).toBe(2);
  });

  it("does not run where it was not confirmed in time, and says so", async () => {
    const { port } = await serve(asking, { confirmMs: 50 });
    const deaf: typeof fetch = async (input, init) => {
      if (String(input).endsWith("/begin")) throw new TypeError("fetch failed");
      return await fetch(input, init);
    };
    expect(await remote(port, { fetch: deaf }).run({ ...python, begin: yes })).toMatchObject({
      status: "crashed",
      error: expect.stringContaining("the program did not run"),
    });
  });

  it("ends at the host when the caller does not let it begin", async () => {
    const { port } = await serve(asking);
    const begin = async (): Promise<boolean> => await Promise.resolve(false);
    expect(await remote(port).run({ ...python, begin })).toMatchObject({ status: "cancelled" });
    await expect.poll(() => events.map(({ event }) => event)).toEqual(["run_started", "run_abandoned"]);
  });

  it("is confirmed before it is sent where the host is of the version before", async () => {
    const order: string[] = [];
    const { port } = await serveRaw((response, path) => {
      order.push(path);
      if (path !== "/v1/runs") return response.writeHead(404).end("only /v1/runs is served here");
      const { files: _files, ...rest } = result;
      return response.end(`${JSON.stringify({ type: "result", ...rest, files: [] })}\n`);
    });
    const begin = async (): Promise<boolean> => {
      order.push("begin");
      return await yes();
    };
    expect(await remote(port).run({ ...python, begin })).toMatchObject({ status: "ok" });
    expect(order).toEqual(["/v1/held-runs", "begin", "/v1/runs"]);
  });

  it("has no result from a host that did not ask: it may have run too early", async () => {
    const { files: _files, ...rest } = result;
    const line = `${JSON.stringify({ type: "result", ...rest, files: [] })}\n`;
    const { port } = await serveRaw((response) => response.end(line));
    expect(await remote(port).run({ ...python, begin: yes })).toMatchObject({
      status: "crashed",
      error: expect.stringMatching(/before it was to begin.*is not known/),
    });
  });
});

describe("a sandbox host", () => {
  /** A request that our client did not make. */
  async function post(
    port: number,
    {
      headers = {},
      body = JSON.stringify({ program: { runtime: "node", code: "" } }),
      ...rest
    }: { headers?: Record<string, string>; body?: string; path?: string; method?: string } = {},
  ): Promise<{ status: number; text: string }> {
    const auth = { authorization: `Bearer ${token}`, "x-request-id": "request-1" };
    // A connection of its own: one that is used again may be closed by the host at that moment.
    const common = { agent: false, port, path: "/v1/runs", method: "POST" };
    const request = requestHttp({ ...common, headers: { ...auth, ...headers }, ...rest });
    request.end(body);
    const [response] = await once(request, "response");
    let text = "";
    for await (const chunk of response) text += String(chunk);
    return { status: response.statusCode, text };
  }

  it.each([
    [401, { headers: { authorization: "Bearer wrong" } }],
    [401, { headers: { authorization: "" } }],
    [401, { headers: { authorization: `Basic ${token}` } }],
    [404, { path: "/v1/other" }],
    [405, { method: "GET", body: "" }],
    [400, { headers: { "x-request-id": "short" } }],
    [400, { body: "no json" }],
    [400, { body: JSON.stringify({ program: { runtime: "perl", code: "" } }) }],
    [400, { body: JSON.stringify({ program: { runtime: "node", module: "/etc/passwd", readable: ["/"] } }) }],
    [400, { body: JSON.stringify({ program: { runtime: "node", code: "" }, signal: {} }) }],
    [400, { body: JSON.stringify({ program: { runtime: "node", code: "" }, limits: { wallMs: "1" } }) }],
    [413, { body: " ".repeat(2_000) }],
    [413, { body: " ".repeat(2_000), headers: { "transfer-encoding": "chunked" } }],
  ])("answers %i to a request that it does not run", async (status, request) => {
    const { port } = await serve(() => Promise.reject(new Error("ran")), { bodyBytes: 1_000 });
    expect(await post(port, request)).toMatchObject({ status });
    expect(events).toEqual([
      { event: "run_refused", requestId: expect.any(String), httpStatus: status, reason: expect.any(String) },
    ]);
    expect(JSON.stringify(events)).not.toContain(token);
  });

  it("tells the client's runner what was refused", async () => {
    const { port } = await serve(async () => await Promise.resolve(result), { bodyBytes: 1_000 });
    expect(await remote(port, { token: "wrong" }).run(python)).toMatchObject({
      status: "refused",
      error: expect.stringContaining("token"),
    });
    const large = { runtime: "python" as const, code: "#".repeat(2_000) };
    expect(await remote(port).run({ ...python, program: large })).toMatchObject({
      status: "refused",
      error: expect.stringContaining("larger than"),
    });
  });

  it("runs a request once, though something between sends it again", async () => {
    const { port } = await serve(async () => await Promise.resolve(result));
    expect((await post(port)).status).toBe(200);
    expect((await post(port)).status).toBe(409);
    expect((await post(port, { headers: { "x-request-id": "request-2" } })).status).toBe(200);
  });

  it("turns runs away past its number", async () => {
    const held = Promise.withResolvers<SandboxResult>();
    const { port, running } = await serve(() => held.promise, { maxConcurrent: 1 });
    const first = remote(port).run(python);
    await expect.poll(() => running()).toBe(1);
    expect(await remote(port).run(python)).toMatchObject({ status: "crashed", error: expect.stringContaining("503") });
    held.resolve(result);
    expect((await first).status).toBe("ok");
  });

  it("lets runs end before it closes, kills them when they take too long, and takes no more", async () => {
    const held = Promise.withResolvers<SandboxResult>();
    const { port, running, close } = await serve(({ program, signal }) =>
      "code" in program && program.code === "hang" ? untilAborted(signal) : held.promise,
    );
    const short = remote(port).run(python);
    const endless = remote(port).run({ ...python, program: { runtime: "python", code: "hang" } });
    await expect.poll(() => running()).toBe(2);
    const closing = Promise.all([close(), close()]);
    held.resolve(result);
    await closing;
    expect((await short).status).toBe("ok");
    expect((await endless).status).toBe("crashed");
    expect((await remote(port).run(python)).status).toBe("crashed");
  });

  it("reports a sandbox that throws, and continues", async () => {
    const { port } = await serve(() => Promise.reject(new Error("a defect")));
    for (let count = 0; count < 2; count += 1) expect((await remote(port).run(python)).status).toBe("crashed");
    expect(events.at(-1)).toMatchObject({ event: "run_failed", error: new Error("a defect") });
  });
});
