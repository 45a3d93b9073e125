import { sharedNow } from "@larkline/protocol";
import type { LongConnection } from "@larkline/feishu";
import type { AppFeed } from "@larkline/store";
import type { EventRouter, Transport } from "./event-router.ts";

/** How events of one app come in, for people who look. */
export interface EdgeFeeds {
  /** The router, with a note of when its last event came. */
  noting(route: EventRouter): EventRouter;
  /** What is known at this moment. */
  feeds(connection: Pick<LongConnection, "state"> | undefined, hasWebhook: boolean): AppFeed[];
}

export function createEdgeFeeds(app: string, now: () => number = sharedNow): EdgeFeeds {
  const last = new Map<Transport, number>();
  const feedOf = (transport: Transport, state: string): AppFeed => {
    const lastEventAtMs = last.get(transport);
    return { app, transport, state, ...(lastEventAtMs === undefined ? {} : { lastEventAtMs }) };
  };
  return {
    noting: (route) => async (envelope, transport) => {
      last.set(transport, now());
      return await route(envelope, transport);
    },
    feeds: (connection, hasWebhook) => [
      ...(connection === undefined ? [] : [feedOf("websocket", connection.state())]),
      ...(hasWebhook ? [feedOf("webhook", "listening")] : []),
    ],
  };
}
