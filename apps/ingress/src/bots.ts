import { botOfApp, type EdgeAccess, type LarklineConfig } from "@larkline/process/config";
import { FeishuApi } from "@larkline/feishu";
import type { RateGovernor, TokenCache } from "@larkline/store";
import { watchPlatform, type Logger, type Observation } from "@larkline/process/telemetry";
import type { ReachableBot } from "./ingress.ts";

/** What all bots of a deployment share; limits and tokens are kept by app. */
export interface BotsDeps {
  settings: LarklineConfig;
  backend: { tokenCache: TokenCache; governor: RateGovernor };
  observation: Observation;
  logger: Logger;
}

/** Lets this process speak as its bots; whoever calls closes their `api`. */
export function connectBots(accesses: readonly EdgeAccess[], deps: BotsDeps): ReachableBot[] {
  const { settings, backend, observation, logger } = deps;
  const watch = watchPlatform(observation).calls;
  return accesses.map((access) => {
    const { appId, appSecret, domain } = access;
    const { tokenCache, governor } = backend;
    const { monthlyCalls, rateLimits } = botOfApp(settings, appId).feishu;
    const limiter = rateLimits ? { governor } : {};
    const shared = { ...limiter, tokenCache, monthlyCalls, watch, logger };
    return { access, api: new FeishuApi({ appId, appSecret, domain, ...shared }) };
  });
}
