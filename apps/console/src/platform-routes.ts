import { sharedNow } from "@larkline/protocol";
import { botOfApp, type LarklineConfig } from "@larkline/process/config";
import { apiBuckets, monthOf, tenantTokenName } from "@larkline/feishu/limits";
import type { KnownInstance } from "@larkline/store";
import type { FastifyInstance } from "fastify";
import { feishuPage, type PlatformState } from "./feishu-page.ts";
import { instancesPage, type KnownInstances } from "./instances-page.ts";
import { answerPage, type PagesDeps } from "./pages.ts";

export interface PlatformDeps extends PagesDeps {
  settings: Pick<LarklineConfig, "bots">;
  /** The bots' app ids. */
  bots: readonly string[];
  /** Platform of the bot of `FEISHU_APP_ID`: `feishu`, `lark` or a base URL. */
  domain: string;
}

async function stateOf({ backend, settings, domain }: PlatformDeps, app: string): Promise<PlatformState> {
  const { governor, tokens } = backend;
  const bot = botOfApp(settings, app);
  const { monthlyCalls, rateLimits } = bot.feishu;
  const [calls, tokenMs, buckets] = await Promise.all([
    governor.callsOf(app, monthOf(sharedNow())),
    tokens.validity(tenantTokenName(bot.app?.domain ?? domain, app)),
    governor.look(apiBuckets(app)),
  ]);
  return { app, calls, monthlyCalls, isLimited: rateLimits, tokenMs, buckets };
}

function byServiceAndAge(one: KnownInstance, other: KnownInstance): number {
  return one.service.localeCompare(other.service) || one.startedAtMs - other.startedAtMs;
}

async function knownInstances({ backend, bots }: PlatformDeps): Promise<KnownInstances> {
  const [instances, workers, watches] = await Promise.all([
    backend.instances.instances(),
    backend.presence.members(),
    Promise.all(bots.map(async (app) => ({ app, report: await backend.watches.of(app) }))),
  ]);
  const named = new Set(instances.map(({ id }) => id));
  return {
    instances: instances.sort(byServiceAndAge),
    unnamed: workers.filter((id) => !named.has(id)),
    watches,
    nowMs: sharedNow(),
    clock: backend.clockProblem(),
  };
}

/** Adds the pages about the platform's limits and about the processes that talk to it. They change nothing. */
export function registerPlatformRoutes(server: FastifyInstance, deps: PlatformDeps): void {
  server.get("/feishu", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) =>
      feishuPage(view, await Promise.all(deps.bots.map(async (app) => await stateOf(deps, app)))),
    ),
  );
  server.get("/instances", async (request, reply) =>
    answerPage(deps, [request, reply], async (view) => instancesPage(view, await knownInstances(deps))),
  );
}
