import { jsonParserOf, SessionKey } from "@larkline/protocol";
import { Type, type Static } from "typebox";

const Cancellation = Type.Object({ session: SessionKey, turnId: Type.Optional(Type.String()) });

/** Says that a turn (or whatever runs in the session) is to stop now. */
export type Cancellation = Static<typeof Cancellation>;

/** The part of a Redis connection that the bus needs. */
export interface PubSubConnection {
  publish(channel: string, message: string): Promise<number>;
  duplicate(): PubSubConnection;
  subscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...values: string[]) => void): unknown;
  disconnect(): void;
}

/**
 * Tells every process at once. Best effort: the durable cancel is the control entry in the
 * session's inbox, which also finds turns that nobody is running.
 */
export interface CancelBus {
  publish(cancellation: Cancellation): Promise<void>;
  /** Calls `listener` for every cancellation until `signal` aborts. */
  subscribe(listener: (cancellation: Cancellation) => void, signal: AbortSignal): Promise<void>;
}

const parse = jsonParserOf(Cancellation);

export function createCancelBus(options: { connection: PubSubConnection; channel?: string }): CancelBus {
  const channel = options.channel ?? "{larkline}:cancel";
  return {
    publish: async (cancellation) => {
      await options.connection.publish(channel, JSON.stringify(cancellation));
    },
    subscribe: async (listener, signal) => {
      const subscriber = options.connection.duplicate();
      subscriber.on("error", () => undefined); // reconnects and subscribes again by itself
      subscriber.on("message", (_channel, text) => {
        const parsed = parse(text ?? "");
        if (parsed.ok && !signal.aborted) listener(parsed.value);
      });
      signal.addEventListener("abort", () => subscriber.disconnect(), { once: true });
      await subscriber.subscribe(channel);
      if (signal.aborted) subscriber.disconnect();
    },
  };
}
