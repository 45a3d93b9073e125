import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { getPriority } from "node:os";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";

const program = fileURLToPath(new URL("run-until-signal.fixture.ts", import.meta.url));
let child: ChildProcess | undefined;

interface Started {
  process: ChildProcess;
  output: () => string;
  /** The exit code, once all output was read. */
  exitCode: Promise<unknown>;
}

/** Starts the program and waits until its signal handlers stand. */
async function start(
  mode: "quick" | "giving way" | "stuck" | "failing" | "throwing",
): Promise<Started> {
  const started = fork(program, [mode], { silent: true });
  child = started;
  let text = "";
  started.stdout?.on("data", (data: Buffer) => (text += data.toString()));
  // From here on: the end of a program that lives shortly may be read before its message.
  const exitCode = exitCodeOf(started);
  await once(started, "message");
  return { process: started, output: () => text, exitCode };
}

/** `close` never comes after a disconnect. */
async function exitCodeOf(started: ChildProcess): Promise<unknown> {
  const output = started.stdout === null ? undefined : once(started.stdout, "end");
  const [code]: unknown[] = await once(started, "exit");
  await output;
  return code;
}

afterEach(() => child?.kill("SIGKILL"));

describe("runUntilSignal", () => {
  it.each(["SIGTERM", "SIGINT"] as const)("closes and exits with 0 on %s", async (signal) => {
    const { process, output, exitCode } = await start("quick");
    process.kill(signal);
    expect(await exitCode).toBe(0);
    expect(output()).toContain("fixture closed its things");
  });

  it("lets others have the processor first if it is set to", async () => {
    const own = getPriority();
    expect(getPriority((await start("quick")).process.pid)).toBe(own);
    child?.kill("SIGKILL");
    expect(getPriority((await start("giving way")).process.pid)).toBe(Math.min(19, own + 5));
  });

  it("exits with 1 on the second signal while closing hangs", async () => {
    const { process, exitCode } = await start("stuck");
    process.kill("SIGTERM");
    await once(process, "message");
    process.kill("SIGTERM");
    expect(await exitCode).toBe(1);
  });

  it("exits with 1 when closing takes longer than its deadline", async () => {
    const { process, output, exitCode } = await start("stuck");
    process.kill("SIGTERM");
    expect(await exitCode).toBe(1);
    expect(output()).toContain("closing took too long");
  });

  it("exits with 1 when closing fails", async () => {
    const { process, output, exitCode } = await start("failing");
    process.kill("SIGTERM");
    expect(await exitCode).toBe(1);
    expect(output()).toContain("closing failed");
  });

  it("logs an uncaught error and exits with 1", async () => {
    const { output, exitCode } = await start("throwing");
    expect(await exitCode).toBe(1);
    expect(output()).toContain("unhandledRejection");
  });

  it("closes when the parent that started it is gone", async () => {
    const { process, output, exitCode } = await start("quick");
    process.disconnect();
    expect(await exitCode).toBe(0);
    expect(output()).toContain("parent is gone");
  });

  it("exits although its log has no reader any more", async () => {
    const { process } = await start("quick");
    process.stdout?.destroy();
    process.stderr?.destroy();
    const exit = once(process, "exit");
    process.disconnect();
    expect((await exit)[0]).toBe(0);
  });
});
