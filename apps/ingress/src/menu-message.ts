import { sharedNow } from "@larkline/protocol";
import type { FeishuMessage } from "@larkline/feishu";
import type { Logger, Observation } from "@larkline/process/telemetry";
import { servesTenant } from "./admission.ts";
import type { Place, Placer } from "./conversation-place.ts";
import type { Admitted, ArrivalOutcome, MessageDesk } from "./message-desk.ts";
import { watched } from "./message-watch.ts";

/** Something said in a person's name, as by a press on the bot's menu. */
export interface SaidFor {
  openId: string;
  /** The person's chat with the bot, else their open_id again. */
  chatId: string;
  text: string;
  eventId: string;
  /** Tenant that has the app, not always the person's; absent when the platform does not say it. */
  tenant: string | undefined;
  createdAtMs: number;
}

export interface MenuMessageDeps {
  app: string;
  /** Keys of the tenants whose people are answered; `null`: everybody. */
  tenants: readonly string[] | null;
  maxAgeMs: number;
  placer: Pick<Placer, "of">;
  desk: MessageDesk;
  count: (outcome: ArrivalOutcome) => void;
  observation: Observation;
  logger: Logger;
}

function messageOf({ openId, chatId, text, eventId, createdAtMs }: SaidFor): FeishuMessage {
  return {
    messageId: `menu-${eventId}`.slice(0, 128),
    chatId,
    chatType: "p2p",
    senderOpenId: openId,
    senderType: "user",
    messageType: "text",
    text,
    attachments: [],
    forwarded: false,
    mentions: [],
    mentionsBot: false,
    mentionsAll: false,
    createdAtMs,
  };
}

/**
 * The event names the tenant that has the app, not the person's: at a bot for certain tenants only those start
 * something who have written to it before, as one of theirs.
 */
function admitPress(tenants: MenuMessageDeps["tenants"], { openId, chatId, tenant }: SaidFor): Admitted {
  if (!servesTenant(tenants, tenant)) return { verdict: "foreign_tenant" };
  return { verdict: tenants === null || chatId !== openId ? "accept" : "empty" };
}

/** Sends a press on the menu the way of a message; the platform's answer to it has no message to hang on. */
export function createMenuMessages(deps: MenuMessageDeps): (said: SaidFor) => Promise<void> {
  const { app, placer, desk, observation, logger } = deps;
  return async (said) => {
    const { openId: person, chatId, eventId, tenant, createdAtMs } = said;
    if (createdAtMs > 0 && sharedNow() - createdAtMs > deps.maxAgeMs) {
      logger.info({ eventId }, "a press on the menu came too late");
      return;
    }
    const message = messageOf(said);
    const { session } = await placer.of(message);
    const place: Place = { session, target: { app, chatId, messageId: "", inThread: false } };
    const admitted = admitPress(deps.tenants, said);
    const arriving = { app, id: message.messageId, chat: chatId, person, channel: "feishu" } as const;
    const work = async () => await desk({ message, place, tenant, fromMenu: true }, admitted);
    deps.count(await watched(observation, arriving, work));
  };
}
