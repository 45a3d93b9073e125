import type { ReplyView } from "@larkline/protocol";
import type { CardLedger } from "@larkline/store";
import type { CardHandover } from "./card-handover.ts";
import type { FeishuApi } from "./feishu-api.ts";
import { createLiveImages } from "./live-images.ts";
import { ReplyTyper, type LiveReply, type ReplyStart } from "./live-reply.ts";
import { noLogger, type FeishuLogger } from "./logger.ts";
import type { ImageResolver } from "./reply-finisher.ts";

export interface LiveRepliesOptions {
  /** By app id. */
  apis: ReadonlyMap<string, FeishuApi>;
  ledger: Pick<CardLedger, "load" | "save">;
  /**
   * Whether the session's earlier replies are delivered. A card that appears before them would turn
   * the order of answers around, so it waits. Default: they always are.
   */
  mayAppear?: (session: string) => Promise<boolean>;
  /** Uploads the images that answers name while they type; without it cards show names until the last frame. */
  imageOf?: ImageResolver;
  /** The one of the sender that delivers the answers. */
  handover?: CardHandover;
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
  const { mayAppear = async () => true, imageOf, handover } = options;
  const liveImages = imageOf === undefined ? undefined : createLiveImages({ imageOf });
  const suspended = new Map<string, ReplyTyper>();

  const remember = (replyId: string, typer: ReplyTyper): void => {
    suspended.set(replyId, typer);
    const [oldest] = suspended.keys();
    if (suspended.size > maxRemembered && oldest !== undefined) suspended.delete(oldest);
  };

  const withImages = (start: ReplyStart, api: FeishuApi, changed: () => void): ReplyStart => {
    const images = liveImages?.ofReply(api, changed);
    if (images === undefined) return start;
    const view = (): ReplyView => {
      const shown = start.view();
      images.look(shown.answer);
      return shown;
    };
    return { ...start, view, images: images.keys };
  };

  return {
    open: (given) => {
      const { replyId, target } = given;
      const api = apis.get(target.app);
      if (api === undefined) return undefined;
      const start = withImages(given, api, () => typer.changed());
      const known = suspended.get(replyId);
      suspended.delete(replyId);
      known?.resume(start);
      const typer: ReplyTyper =
        known ?? new ReplyTyper(start, { api, ledger, mayAppear, handover, logger, now, onFrame });
      return {
        changed: () => typer.changed(),
        answered: () => typer.answered(),
        pause: () => {
          typer.pause();
          remember(replyId, typer);
        },
        release: async () => await typer.release(),
      };
    },
  };
}
