import { answerUuid, noticeText } from "@larkline/agent";
import { sharedNow, type InboundMessage } from "@larkline/protocol";
import { applyOrder, type OrderDeps, type OutboxRecord } from "@larkline/store";
import type { OperatorOrders } from "@larkline/store/redis";
import type { Logger } from "@larkline/process/telemetry";

export interface OperatorDeskOptions extends Omit<OrderDeps, "replyOf"> {
  orders: Pick<OperatorOrders, "serve">;
  logger: Logger;
}

/** Pause between looks for orders. */
const lookMs = 100;

/** Does what operators order at the console. Every worker looks; each order is taken by one, once. */
export function startOperatorDesk(options: OperatorDeskOptions): { close(): Promise<void> } {
  const { orders, logger } = options;
  const closing = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const serve = async (): Promise<void> => {
    try {
      while (!closing.signal.aborted && (await orders.serve(async (order) => await obey(options, order)))) {
        // The next one.
      }
    } catch (error) {
      logger.warn({ error }, "an order of an operator may not have been done");
    }
    if (!closing.signal.aborted) timer = setTimeout(start, lookMs);
  };
  let serving = Promise.resolve();
  const start = (): void => {
    serving = serve();
  };
  start();
  return {
    close: async () => {
      closing.abort();
      clearTimeout(timer);
      await serving;
    },
  };
}

const replyOf: OrderDeps["replyOf"] = async (...given) => resetReply(...given);

async function obey(options: OperatorDeskOptions, order: Parameters<typeof applyOrder>[1]) {
  const { by, act } = order;
  options.logger.info({ by, order: act.do, ...("session" in act ? { session: act.session } : {}) }, "operator order");
  return await applyOrder({ ...options, replyOf }, order);
}

/**
 * What ends the card, or stands in place of the answer: ids and key are those of the turn's own answer, so
 * that a person gets one of the two. `onCard`: whether the turn has one.
 */
export function resetReply(turnId: string, message: InboundMessage, onCard: boolean): OutboxRecord | undefined {
  const { id, session, reply, language = "en" } = message;
  if (reply.channel === "none") return undefined;
  const text = [noticeText("stopped", language), noticeText("newConversation", language)].join(" ");
  const { channel: _channel, ...target } = reply;
  const nothing = { thinking: "", tools: [], earlierTools: 0, footer: {} };
  return {
    v: 1,
    id: turnId,
    uuid: answerUuid(reply.app, id),
    session,
    target,
    text,
    ...(onCard ? { view: { v: 1, language, state: "stopped", answer: text, ...nothing } } : {}),
    createdAtMs: sharedNow(),
    attempts: 0,
    uncertainSinceMs: 0,
  };
}
