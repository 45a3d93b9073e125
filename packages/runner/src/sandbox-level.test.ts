import { systemClock } from "@larkline/protocol/clock";
import type { ToolOutcome } from "@larkline/protocol/tool";
import type { SandboxRequest, SandboxResult, SandboxStatus } from "@larkline/sandbox";
import { defineProgramTool, type IsolationSettings, type ProgramTool } from "@larkline/tool-kit";
import { describe, expect, it } from "vitest";
import { createSandboxLevel } from "./sandbox-level.ts";
import { toolsFrom } from "./tool-modules.ts";

const online = { allow: ["api.example.com"] };

function toolWith(
  effect: "pure" | "once",
  isolation: Partial<IsolationSettings> = {},
): ProgramTool {
  return defineProgramTool({
    name: "code",
    description: "d",
    input: { type: "object", properties: { code: { type: "string" } } },
    effect,
    timeoutMs: 5_000,
    isolation: { level: "sandbox", ...isolation },
    program: ({ code = "" }) => ({ runtime: "node", code: String(code) }),
  });
}

interface Run {
  outcome: ToolOutcome;
  requests: SandboxRequest[];
}

/** A run in a sandbox that ends every program as the test sets it, one after the other. */
async function runWith(
  tool: ProgramTool,
  results: (Partial<SandboxResult> & { begins?: boolean })[],
  {
    cancelled = false,
    instead,
    ...bounds
  }: { timeoutMs?: number; endsWithinMs?: number; cancelled?: boolean; instead?: ToolOutcome } = {},
): Promise<Run> {
  const loaded = toolsFrom([tool]);
  if (!loaded.ok) throw new Error(loaded.error);
  const requests: SandboxRequest[] = [];
  const level = createSandboxLevel({
    clock: systemClock,
    sandbox: {
      run: async (request) => {
        const { begins = true, ...result } = results[requests.length] ?? {};
        requests.push(request);
        if (begins) await request.begin?.();
        const nothing = { stdout: "", stderr: "", files: [], skipped: [], denied: [], wallMs: 1 };
        return await Promise.resolve({ status: "ok", ...nothing, ...result });
      },
      close: async () => await Promise.resolve(),
    },
    refusal: () => undefined,
    loaded: loaded.value,
    environment: { REDIS_URL: "geheim", GIVEN: "given" },
    readable: new Map(),
  });
  const outcome = await level.run(
    tool,
    {
      argumentsText: '{"code":"1"}',
      ...bounds,
      context: {
        callId: "c1",
        turnId: "t1",
        signal: cancelled
          ? AbortSignal.abort(new Error("cancelled"))
          : new AbortController().signal,
        actor: { app: "app", userId: "ou_1", chatId: "oc_1" },
        authority: { by: "policy" },
        progress: () => {},
        log: () => {},
      },
    },
    async () => await Promise.resolve(instead),
  );
  return { outcome, requests };
}

const interrupted: SandboxStatus[] = ["timeout", "oom", "output_limit", "disk_limit", "protocol"];

describe("how a run in a sandbox ended", () => {
  it.each(interrupted)(
    "%s: an exit code without a network, unknown of a `once` call that had one",
    async (status) => {
      const ended = [{ status, error: `ended by ${status}`, stdout: "one" }];
      const error = expect.stringContaining(`ended by ${status}`);
      const exitCode = { timeout: 124, protocol: 1 }[String(status)] ?? 137;
      expect((await runWith(toolWith("once"), ended)).outcome).toEqual({
        ok: true,
        result: { exitCode, stdout: "one", stderr: `ended by ${status}` },
      });
      expect((await runWith(toolWith("pure", { network: online }), ended)).outcome).toEqual({
        ok: false,
        error,
      });
      const unknown = await runWith(toolWith("once", { network: online }), ended);
      expect(unknown).toMatchObject({
        outcome: { ok: false, error, unknown: true },
        requests: [{ network: online }],
      });
    },
  );

  it("refused: an error, never unknown", async () => {
    const { outcome } = await runWith(toolWith("once", { network: online }), [
      { status: "refused", error: "why" },
    ]);
    expect(outcome).toEqual({ ok: false, error: "why" });
  });

  it.each([
    [
      { status: "ok", value: 7, exitCode: 0 },
      { exitCode: 0, result: 7 },
    ],
    [
      { status: "error", exitCode: 1, stdout: "one", stderr: "two\n", error: "Error: why" },
      { exitCode: 1, stdout: "one", stderr: "two\n\nError: why" },
    ],
    [
      { status: "crashed", exitCode: 3, stderr: "left", error: "The program ended" },
      { exitCode: 3, stderr: "left" },
    ],
    [
      { status: "error", error: "of a host of the version before" },
      { exitCode: 1, stderr: expect.any(String) },
    ],
  ] as const)("AT-26: %o: its exit code, of a single run", async (ended, result) => {
    const { outcome, requests } = await runWith(toolWith("once", { network: online }), [ended]);
    expect({ outcome, runs: requests.length }).toEqual({ outcome: { ok: true, result }, runs: 1 });
  });

  it("crashed: tried once more where that does no harm", async () => {
    const results: Partial<SandboxResult>[] = [{ status: "crashed", error: "gone" }, { value: 7 }];
    expect(await runWith(toolWith("once"), results)).toMatchObject({
      outcome: { ok: true, result: { result: 7 } },
    });
    const online2 = await runWith(toolWith("once", { network: online }), results);
    expect(online2.requests).toHaveLength(1);
    expect(online2.outcome).toMatchObject({ ok: false, unknown: true });
    const twice = await runWith(toolWith("pure"), [
      ...results.slice(0, 1),
      { status: "crashed", error: "again" },
    ]);
    expect(twice.requests).toHaveLength(2);
    expect(twice.outcome).toEqual({ ok: false, error: "again" });
  });

  it("cancelled: with the reason of the caller that cancelled", async () => {
    const { outcome } = await runWith(toolWith("once"), [{ status: "cancelled" }], {
      cancelled: true,
    });
    expect(outcome).toEqual({ ok: false, error: "cancelled" });
  });

  it("without having begun: an error that says so, also of a `once` call with a network", async () => {
    for (const status of ["cancelled", "crashed"] as const) {
      const { outcome } = await runWith(toolWith("once", { network: online }), [
        { status, error: "no place", begins: false },
        { status, error: "no place", begins: false },
      ]);
      expect(outcome).toEqual({
        ok: false,
        error: expect.stringMatching(/it was not run|no place/),
      });
    }
  });

  it("as its outcome says, where the call may not begin any more", async () => {
    const closed: ToolOutcome = { ok: false, error: "the call was already answered" };
    const { outcome } = await runWith(toolWith("once"), [{ status: "cancelled", begins: true }], {
      instead: closed,
    });
    expect(outcome).toEqual(closed);
  });

  it("tells the model what the program printed and which hosts it did not reach", async () => {
    const result: Partial<SandboxResult> = {
      status: "cancelled",
      stdout: "one",
      stderr: "two",
      denied: ["denied: evil.test:80"],
    };
    const { outcome } = await runWith(toolWith("pure"), [result]);
    expect(outcome).toEqual({
      ok: false,
      error: expect.stringMatching(
        /^the call's deadline was reached\nstdout:\none\n\nstderr:\ntwo\n\nnetwork:\ndenied: evil\.test:80$/,
      ),
    });
  });
});

describe("what a run is given", () => {
  it("is the same for every call of a tool, so that sandboxes can be booted ahead; a near deadline is a signal", async () => {
    const tool = toolWith("pure", { memoryMb: 64, limits: { processes: 4 } });
    const limits = { memoryMb: 64, processes: 4, wallMs: 5_000 };
    const calm = await runWith(tool, []);
    const hurried = await runWith(tool, [], { timeoutMs: 1 });
    expect(calm.requests).toMatchObject([{ limits, network: "none" }]);
    expect(hurried.requests).toMatchObject([{ limits }]);
    await expect.poll(() => hurried.requests[0]?.signal.aborted).toBe(true);
  });

  it("ends with the call's deadline although it has all its time left: it may have waited for a place", async () => {
    const { requests } = await runWith(toolWith("pure"), [], { timeoutMs: 5_000, endsWithinMs: 1 });
    await expect.poll(() => requests[0]?.signal.aborted).toBe(true);
  });

  it("holds the variables that it names, and no others", async () => {
    const { requests } = await runWith(toolWith("pure", { env: ["GIVEN", "ABSENT"] }), []);
    expect(requests[0]?.env).toEqual({ GIVEN: "given" });
  });
});
