import { FeishuApi } from "@larkline/feishu";
import {
  accept,
  openApp,
  startError,
  StartError,
  type AppOptions,
  type RunningApp,
} from "@larkline/process/app";
import {
  botOfApp,
  loadConfigFile,
  readIngressBots,
  readTriggerSecrets,
  type Env,
  type IngressBotAccess,
} from "@larkline/process/config";
import { openInstruments, watchPlatform } from "@larkline/process/telemetry";
import { systemClock, systemRandom } from "@larkline/protocol/clock";
import { formatErrorForDisplay } from "@larkline/protocol/error";
import { isRedisTrouble } from "@larkline/store/redis";
import { refuseOlderInstances } from "@larkline/store/operations";
import { Bot } from "./bot.ts";
import { loadConfig } from "./config.ts";
import { eventConsumers } from "./other-events.ts";
import { startIngress } from "./server.ts";
import { connectStores, createServices, type Services } from "./services.ts";
import { startWarmUp } from "./warm-up.ts";

/** Starts ingress with this environment. Rejects with a {@link StartError}. */
export async function startIngressApp(env: Env, options: AppOptions = {}): Promise<RunningApp> {
  const { clock = systemClock, random = systemRandom, destination } = options;
  const config = accept(loadConfig(env));
  const settings = accept(await loadConfigFile(config.configFile, clock));
  const accesses = accept(readIngressBots(env, settings.bots, config.feishu));
  const triggerSecrets = accept(readTriggerSecrets(env, settings.doors));
  const consumers = accept(await eventConsumers(clock, settings.events, config.eventsKey));
  return await openApp(async (opened) => {
    const { log, metrics, telemetry, close } = accept(
      await openInstruments({ service: "ingress", config, settings, destination, clock, random }),
    );
    opened.defer(close);
    const stores = connectStores(config, { log, clock, random });
    opened.defer(stores.close);
    const problem = await stores.rightsProblem();
    if (problem !== undefined) throw new StartError(problem);
    // Where Redis does not answer yet, nothing can be asked; sessions of an older form are refused then, one by one.
    await refuseOlderInstances(stores.instances, {
      clock,
      onWait: (processes) =>
        log.warn({ processes }, "processes of the version before still run: waiting for their end"),
    }).catch((error: unknown) => {
      if (!isRedisTrouble(error)) {
        throw new StartError(formatErrorForDisplay(error), { cause: error });
      }
    });
    const parts = { config, settings, stores, metrics, log, telemetry, consumers, clock, random };
    const services = createServices({ ...parts, triggerSecrets });
    const bots = accesses.map((access) => new Bot(services, access, openApi(services, access)));
    opened.defer(() => {
      for (const { api } of bots) api.close();
    });
    const warmUp = startWarmUp(services, stores.warmUp);
    opened.defer(warmUp.close);
    const ingress = await startIngress(services, bots, warmUp.first).catch(
      startError("ingress cannot start"),
    );
    opened.defer(ingress.close);
    const served = accesses.map(({ name, websocket, webhook }) => ({ name, websocket, webhook }));
    log.info({ port: ingress.port, bots: served }, "ingress ready");
    return { port: ingress.port, log, ready: ingress.ready, closeMs: 8_000 };
  });
}

/** Limits and tokens are kept by app, for all processes of the deployment. */
function openApi(services: Services, { appId, appSecret, domain }: IngressBotAccess): FeishuApi {
  const { governor, tokenCache, settings, telemetry, log, clock, random } = services;
  const { monthlyCalls, rateLimits } = botOfApp(settings, appId).feishu;
  const limiter = rateLimits ? { governor } : {};
  const { calls } = watchPlatform(telemetry, clock);
  const shared = { ...limiter, tokenCache, monthlyCalls, watch: calls, logger: log, clock, random };
  return new FeishuApi({ appId, appSecret, domain, ...shared });
}
