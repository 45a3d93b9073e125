import type { AppInspector, FeishuApi, GrantsApi } from "@larkline/feishu";
import { GroupLookup, StatusReactions } from "@larkline/feishu";
import {
  botOfApp,
  groupsAtBot,
  type BotConfig,
  type LarklineConfig,
} from "@larkline/process/config";
import type { Logger } from "@larkline/process/telemetry";
import type { Clock } from "@larkline/protocol/clock";
import type { LookupCache } from "@larkline/store/platform";

interface BotParts {
  lookups: LookupCache;
  clock: Clock;
  grantsApi?: GrantsApi;
  openInspector?: () => AppInspector;
}

/** One bot: how this process reaches the platform on its behalf. */
export class Bot {
  readonly app: string;
  readonly settings: BotConfig;
  readonly api: FeishuApi;
  /** Consent of people, and their tokens. */
  readonly grantsApi: GrantsApi | undefined;
  /** Looks at its app from outside; its caller closes it. */
  readonly openInspector: (() => AppInspector) | undefined;
  readonly log: Logger;
  readonly reactions: StatusReactions;
  readonly #groups: GroupLookup;

  constructor(
    settings: LarklineConfig,
    api: FeishuApi,
    { lookups, clock, grantsApi, openInspector }: BotParts,
    log: Logger,
  ) {
    this.app = api.appId;
    this.grantsApi = grantsApi;
    this.openInspector = openInspector;
    this.settings = botOfApp(settings, api.appId);
    this.api = api;
    this.log = log.child({ bot: this.settings.name });
    this.reactions = new StatusReactions({ api, lookups, logger: log });
    this.#groups = new GroupLookup({ api, lookups, clock });
  }

  /** The person's user groups on the bot's own platform. Rejects when they cannot be found out. */
  async groupsOf(openId: string): Promise<readonly string[]> {
    return groupsAtBot(this.settings, await this.#groups.groupsOf(openId));
  }
}
