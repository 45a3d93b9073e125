import { jsonParserOf, SessionKey } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";
import { type RedisConnection, subscriberOf } from "../connection.ts";
import { createKeyspace } from "../keys.ts";

const Cancellation = Type.Object({ session: SessionKey, turnId: Type.Optional(Type.String()) });

/** Order to stop a turn, or whatever runs in the session. */
export type Cancellation = Static<typeof Cancellation>;

const parseCancellation = jsonParserOf(Cancellation);

/** The channel of all workers, or that of one runner, with the calls that it has to stop. */
export function cancelChannelOf(namespace: string, runner?: string): string {
  const { cancels, cancelsOf } = createKeyspace(namespace);
  return runner === undefined ? cancels : cancelsOf(runner);
}

/**
 * Publishes cancels to the processes that listen at that moment. The durable cancel is the control entry in the session's
 * inbox, which also finds turns that no worker runs; this makes it quick.
 */
export interface CancelBus {
  publish(cancel: Cancellation): Promise<void>;
  /** Calls `listener` for every cancel until `signal` aborts. */
  subscribe(listener: (cancel: Cancellation) => void, signal: AbortSignal): Promise<void>;
}

export function createCancelBus(options: {
  connection: RedisConnection;
  channel: string;
}): CancelBus {
  const { connection, channel } = options;
  return {
    publish: async (cancel) => {
      await connection.publish(channel, JSON.stringify(cancel));
    },
    subscribe: async (listener, signal) => {
      const subscriber = subscriberOf(connection);
      subscriber.on("error", () => undefined); // reconnects and subscribes again by itself
      subscriber.on("message", (_channel: string, text: string) => {
        const parsed = parseCancellation(text);
        if (parsed.ok && !signal.aborted) listener(parsed.value);
      });
      signal.addEventListener("abort", () => subscriber.disconnect(), { once: true });
      await subscriber.subscribe(channel);
      if (signal.aborted) subscriber.disconnect();
    },
  };
}
