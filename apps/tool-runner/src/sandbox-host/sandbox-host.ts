import { availableParallelism } from "node:os";
import { takeEnvironment } from "@larkline/process/config";
import { openSandbox, probeTiers, serveSandbox } from "@larkline/sandbox";
import { createLogger, Metrics, runUntilSignal, startOpsServer } from "@larkline/process/telemetry";
import { loadConfig } from "./config.ts";
import { createHostReport } from "./host-report.ts";
import { watchTier } from "./tier-watch.ts";

function refuse(problem: string): never {
  process.stderr.write(`${problem}\n`);
  process.exit(1);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** `tool-runner --sandbox-host`: runs programs for the runners of other machines, and offers no tools itself. Resolves when it works. */
export async function runSandboxHost(): Promise<void> {
  const { env, problem: unclean } = takeEnvironment();
  const loaded = loadConfig(env);
  if (!loaded.ok) refuse(loaded.error);
  const { token, host, port, opsPort, logLevel, waiting, warm, tiers, allowUnboundedMemory } = loaded.value;
  const slots = loaded.value.slots ?? Math.min(32, 2 * availableParallelism());

  const logger = createLogger({ service: "sandbox-host", level: logLevel });
  if (unclean !== undefined) logger.warn({ reason: unclean }, "other processes of this user can read the environment");
  const metrics = new Metrics({ service: "sandbox-host" });
  const report = createHostReport({ logger, metrics });
  const opening = await openSandbox({
    tiers,
    allowUnboundedMemory,
    warm,
    slots,
    onEvent: report.onSandboxEvent,
  });
  for (const { tier, holds, reason } of opening.findings) logger.info({ tier, holds, reason }, "tier probed");
  if (!opening.ok) {
    refuse(
      ["No sandbox holds on this host:", ...opening.findings.map(({ tier, reason }) => `  ${tier}: ${reason}`)].join(
        "\n",
      ),
    );
  }
  const { sandbox } = opening;

  const server = await serveSandbox({
    sandbox,
    host,
    port,
    token,
    maxConcurrent: slots + waiting,
    onEvent: report.onHostEvent,
  }).catch(async (error: unknown) => {
    await sandbox.close();
    return refuse(`Cannot listen on ${host}:${port} (HOST, PORT): ${messageOf(error)}`);
  });
  const running = metrics.createObservableGauge("larkline_sandbox_running");
  running.addCallback((result) => result.observe(server.running()));

  const watch = watchTier({
    probe: async () => await probeTiers({ tiers: tiers.filter((tier) => tier === sandbox.tier), allowUnboundedMemory }),
    // A program must not run in something that keeps nothing in: a fresh start picks a tier that holds, or none.
    onLost: (reason) => {
      logger.error({ tier: sandbox.tier, reason }, "the sandbox no longer holds, leaving");
      process.exit(1);
    },
  });
  const ops = await startOpsServer({
    host,
    port: opsPort,
    metrics,
    logger,
    ready: () => Promise.resolve({ sandbox: true }),
  }).catch(async (error: unknown) => {
    await server.close();
    await sandbox.close();
    return refuse(`Cannot listen on ${host}:${opsPort} (HOST, SANDBOX_OPS_PORT): ${messageOf(error)}`);
  });
  logger.info({ port: server.port, opsPort: ops.port, tier: sandbox.tier }, "sandbox-host ready");

  runUntilSignal({
    logger,
    givesWay: true,
    deadlineMs: 12_000,
    close: async () => {
      watch.stop();
      await ops.close();
      await server.close();
      await sandbox.close();
    },
  });
}
