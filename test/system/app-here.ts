import { StartError, type RunningApp, type StartApp } from "@larkline/process/app";
import { startConsoleApp } from "@larkline/console";
import { startIngressApp } from "@larkline/ingress";
import { startToolRunnerApp } from "@larkline/tool-runner";
import { startWorkerApp } from "@larkline/agent-worker";
import { startTcpLine, type TcpLine } from "@larkline/testkit";
import type { App, AppName } from "./app-process.ts";

const starts: Record<AppName, StartApp> = {
  ingress: startIngressApp,
  "agent-worker": startWorkerApp,
  "tool-runner": startToolRunnerApp,
  console: startConsoleApp,
};

/** As much of the output as `App.output` keeps. */
const keptCharacters = 20_000;

/**
 * Starts an app in this process; resolves when it is ready. `lines` are all its ways to its servers. With lines an app
 * can be killed: they are cut, and that to its own server, so that nothing it still does is seen outside. Calls of a
 * killed runner would run on: one that is to die in the middle of a call has to be a process.
 */
export async function startAppHere(
  kind: AppName,
  env: Record<string, string>,
  lines: readonly TcpLine[],
): Promise<App> {
  let text = "";
  const destination = {
    write: (line: string) => void (text = (text + line).slice(-keptCharacters)),
  };
  const own = { HOST: "127.0.0.1", PORT: "0", LOG_LEVEL: "info", RUNNER_DRAIN_MS: "1000", ...env };
  const app = await starts[kind](own, { destination }).catch((error: unknown) => {
    if (error instanceof StartError) {
      throw new Error(`${kind} does not start: ${error.message}`, { cause: error });
    }
    throw error;
  });
  await untilReady(app).catch(async (error: unknown) => {
    await app.close();
    throw new Error(`${kind}: ${String(error)}\n${text}`, { cause: error });
  });
  const front = lines.length === 0 ? undefined : await startTcpLine(app.port);
  return {
    name: kind,
    url: `http://127.0.0.1:${front?.port ?? app.port}`,
    output: () => text,
    stop: async () => {
      await app.close();
      front?.close();
      return 0;
    },
    kill: async () => {
      if (front === undefined) {
        throw new Error("only a system with lines can kill an app of the test's own process");
      }
      for (const line of [front, ...lines]) line.close();
      void app.close(); // for the sake of its timers; `stop` waits for it
      await Promise.resolve();
    },
  };
}

const readyWithinMs = 60_000;
const askAgainMs = 20;

async function untilReady(app: RunningApp): Promise<void> {
  const until = Date.now() + readyWithinMs;
  for (;;) {
    const checks = await app.ready();
    if (Object.values(checks).every(Boolean)) return;
    if (Date.now() > until) {
      throw new Error(`not ready after ${readyWithinMs} ms: ${JSON.stringify(checks)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, askAgainMs));
  }
}
