import { scrubText } from "@larkline/process/telemetry";
import type { SessionKey } from "@larkline/protocol";
import { compileTurnSchemas } from "@larkline/store";
import { createTurnWorker, type JobWorker } from "@larkline/store/queues";
import { Announcer, refuseOlderInstances } from "@larkline/store/operations";
import manifest from "../package.json" with { type: "json" };
import { warnOfMissingPrices } from "./agents.ts";
import { followPauses, startSweeper } from "./background-jobs.ts";
import { startOrders } from "./operator-orders.ts";
import type { Connections } from "./connections.ts";
import { startDataKeeper } from "./data-keeping.ts";
import type { Services } from "./services.ts";
import { SessionRunner } from "./session-runner.ts";
import { warnOfUnknownTools } from "./tools.ts";

export interface AgentWorker {
  /** What `/ready` reports. */
  ready(): Promise<Record<string, boolean | string>>;
  /** Hands running turns over and closes everything. Idempotent. */
  close(): Promise<void>;
}

/** Starts to work once no process of an older form lives; rejects when one still does after half a minute. */
export async function startWorker(connections: Connections): Promise<AgentWorker> {
  const { services, serverClock } = connections;
  const { cancels, runningTurns, handoffs, presence, owner, toolCatalog, approvalCards, log } =
    services;
  const onError = (error: unknown): void => log.warn({ error }, "background error");
  const stopping = new AbortController();
  await refuseOlderInstances(services.instances, {
    clock: services.clock,
    onWait: (processes) =>
      log.warn({ processes }, "processes of the version before still run: waiting for their end"),
  });
  await toolCatalog.start(stopping.signal);
  await followPauses(services, stopping.signal);
  await services.changedAgents.follow(services, stopping.signal);
  await cancels.subscribe(
    ({ session, turnId }) => runningTurns.cancel(session, turnId),
    stopping.signal,
  );
  // Announces this instance for the console. Its heartbeat decides whether it counts as living.
  const announcer = new Announcer({
    directory: services.instances,
    id: owner,
    service: "agent-worker",
    version: manifest.version,
    apps: [...services.bots.keys()],
    serverClock,
    clock: services.clock,
    onError,
  });
  await services.helperReadiness.start(services, stopping.signal);
  warnOfMissingPrices(services);
  warnOfUnknownTools(services, stopping.signal);

  compileTurnSchemas();
  await handoffs.listen(stopping.signal);
  const work = startWork(connections);

  const close = async (): Promise<void> => {
    await Promise.all([work.close(), approvalCards.close()]);
    stopping.abort();
    await handoffs.settled();
    await services.personTokens?.settled();
    await Promise.all([presence.close(), announcer.close()]);
    await connections.close();
  };
  let closed: Promise<void> | undefined;
  return {
    ready: async () => ({
      ...(await connections.checkRedis()),
      clock: serverClock.problem ?? true,
      queue: work.turns.isRunning() && connections.isQueueAnswering(),
    }),
    close: async () => await (closed ??= close()),
  };
}

/** What a worker does once the stored state has the form of this version. */
interface Work {
  turns: JobWorker;
  close(): Promise<void>;
}

function startWork(connections: Connections): Work {
  const { services } = connections;
  const runner = new SessionRunner(services);
  const turns = startTurns(connections, runner);
  services.presence.onEnded(
    () => void turns.recover().catch((error: unknown) => services.log.warn({ error }, "recovery")),
  );
  const jobs = [startSweeper(services, runner), startDataKeeper(services), startOrders(services)];
  return {
    turns,
    close: async () => {
      // At the same time, because each may take some seconds to finish its work.
      await Promise.all([
        turns.close({ deadlineMs: 5_000 }),
        ...jobs.map(async (job) => await job.close()),
      ]);
    },
  };
}

/** Wake-ups of dead workers are put back when their deaths are noticed; this finds the rest. */
const stalledIntervalMs = 5_000;

function startTurns({ services, queue }: Connections, runner: SessionRunner): JobWorker {
  return createTurnWorker({
    redact: scrubText,
    ...queue,
    concurrency: services.config.concurrency,
    presence: services.presence,
    stalledIntervalMs,
    handle: async (job, signal, alone) => await runner.run(job, signal, alone),
    onFailed: async ({ session, gen }, error) => await wakeAgain(services, session, { gen, error }),
  });
}

/**
 * A wake-up failed for good, or was lost too often: the session is woken again where there is something to run. One that
 * runs has a worker, and is looked after by the sweeper.
 */
async function wakeAgain(
  { store, turns, telemetry, log }: Services,
  session: SessionKey,
  { gen, error }: { gen: number; error: Error },
): Promise<void> {
  log.error({ session, error }, "a wake-up failed; the session is woken again");
  telemetry.events.emit({ exception: error, attributes: { session } });
  const healed = await store.heal(session, gen, "");
  if (healed !== undefined) await turns.ensure(session, healed);
}
