import { FeishuApi } from "@larkline/feishu";
import {
  botOfApp,
  loadConfigFile,
  readIngressBots,
  takeEnvironment,
  type IngressBotAccess,
} from "@larkline/process/config";
import { createLogger, Metrics, openTelemetry, runUntilSignal, watchPlatform } from "@larkline/process/telemetry";
import { formatErrorForDisplay, systemClock } from "@larkline/protocol";
import { isRedisTrouble } from "@larkline/store/redis";
import { TraceLog, refuseOlderInstances } from "@larkline/store/operations";
import { Bot } from "./bot.ts";
import { loadConfig } from "./config.ts";
import { eventConsumers } from "./other-events.ts";
import { startIngress } from "./server.ts";
import { connectStores, createServices } from "./services.ts";
import { warmUp } from "./warm-up.ts";

const { env, problem: unclean } = takeEnvironment();
const loaded = loadConfig(env);
if (!loaded.ok) refuse(loaded.error);
const config = loaded.value;
const settings = await loadConfigFile(config.configFile);
if (!settings.ok) refuse(settings.error);
const accesses = readIngressBots(env, settings.value.bots, config.feishu);
if (!accesses.ok) refuse(accesses.error);

const log = createLogger({ service: "ingress", level: config.logLevel });
if (unclean !== undefined) log.warn({ reason: unclean }, "other processes of this user can read the environment");
const metrics = new Metrics({ service: "ingress" });
const traceLog = TraceLog.connect({ ...config, ttlMs: settings.value.retention.traceDays * 86_400_000 });
const watch = { service: "ingress", logger: log, metrics, traceLog, modules: settings.value.observers } as const;
const opened = await openTelemetry({ ...watch, ...config });
if (!opened.ok) refuse(opened.error);
const { telemetry, close: closeTelemetry } = opened.value;
const consumers = await eventConsumers(systemClock, settings.value.events, config.eventsKey);
if (!consumers.ok) refuse(consumers.error);

const stores = connectStores(config, log);
// Where Redis does not answer yet, nothing can be asked; sessions of an older form are refused then, one by one.
await refuseOlderInstances(stores.instances, {
  onWait: (processes) => log.warn({ processes }, "processes of the version before still run: waiting for their end"),
}).catch((error: unknown) => (isRedisTrouble(error) ? undefined : refuse(formatErrorForDisplay(error))));
const parts = { config, settings: settings.value, stores, metrics, log, telemetry, consumers: consumers.value };
const services = createServices(parts);
const bots = accesses.value.map((access) => new Bot(services, access, openApi(access)));
const ingress = await startIngress(services, bots, async () => await warmUp(services, stores.warmUp)).catch(
  (error: unknown) => refuse(`ingress cannot start: ${error instanceof Error ? error.message : String(error)}`),
);
const served = accesses.value.map(({ name, websocket, webhook }) => ({ name, websocket, webhook }));
log.info({ port: ingress.port, bots: served }, "ingress ready");

runUntilSignal({
  logger: log,
  close: async () => {
    await ingress.close();
    for (const { api } of bots) api.close();
    await stores.close();
    await closeTelemetry();
  },
});

function refuse(problem: string): never {
  console.error(problem);
  process.exit(1);
}

/** Limits and tokens are kept by app, for all processes of the deployment. */
function openApi({ appId, appSecret, domain }: IngressBotAccess): FeishuApi {
  const { governor, tokenCache } = stores;
  const { monthlyCalls, rateLimits } = botOfApp(services.settings, appId).feishu;
  const limiter = rateLimits ? { governor } : {};
  const { calls } = watchPlatform(services.telemetry);
  return new FeishuApi({ appId, appSecret, domain, ...limiter, tokenCache, monthlyCalls, watch: calls, logger: log });
}
