import type { CardLedger } from "@larkline/session";
import type { FeishuApi } from "./feishu-api.ts";
import { ReplyTyper, type LiveReply, type ReplyStart } from "./live-reply.ts";
import { noLogger, type FeishuLogger } from "./logger.ts";

export interface LiveRepliesOptions {
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  ledger: Pick<CardLedger, "load" | "save">;
  /**
   * Whether the session's earlier replies are delivered. A card that appears before them would turn
   * the order of answers around, so it waits. Default: they always are.
   */
  mayAppear?: (session: string) => Promise<boolean>;
  logger?: FeishuLogger;
  /** Epoch ms. */
  now?: () => number;
  /** Told when a frame has reached the platform, with the time since the reply began. */
  onFrame?: (sinceStartMs: number, isFirst: boolean) => void;
}

/** The replies that this process is typing. */
export interface LiveReplies {
  /** Begins the reply of a turn, or goes on with it. Undefined when nobody has credentials for its app. */
  open(start: ReplyStart): LiveReply | undefined;
}

/** Suspended replies that are remembered: one that is forgotten costs one more operation when it goes on. */
const maxRemembered = 500;

export function createLiveReplies(options: LiveRepliesOptions): LiveReplies {
  const { apis, ledger, logger = noLogger, now = Date.now, onFrame = () => undefined } = options;
  const { mayAppear = async () => true } = options;
  const suspended = new Map<string, ReplyTyper>();

  const remember = (replyId: string, typer: ReplyTyper): void => {
    suspended.set(replyId, typer);
    const [oldest] = suspended.keys();
    if (suspended.size > maxRemembered && oldest !== undefined) suspended.delete(oldest);
  };

  return {
    open: (start) => {
      const { replyId, target } = start;
      const api = apis.get(target.app);
      if (api === undefined) return undefined;
      const known = suspended.get(replyId);
      suspended.delete(replyId);
      known?.resume(start);
      const typer = known ?? new ReplyTyper(start, { api, ledger, mayAppear, logger, now, onFrame });
      return {
        changed: () => typer.changed(),
        pause: () => {
          typer.pause();
          remember(replyId, typer);
        },
        release: async () => await typer.release(),
      };
    },
  };
}
