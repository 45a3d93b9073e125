import { jsonParserOf, SessionKey, type ParseResult } from "@larkline/protocol";
import { Type, type Static } from "@larkline/protocol/type";

const Cancellation = Type.Object({ session: SessionKey, turnId: Type.Optional(Type.String()) });

/** Order to stop a turn, or whatever runs in the session. */
export type Cancellation = Static<typeof Cancellation>;

/**
 * The durable cancel is the control entry in the session's inbox, which also finds turns that no worker
 * runs; this makes it quick.
 */
export type CancelBus = Bus<Cancellation>;

const parseCancellation = jsonParserOf(Cancellation);

/** The channel of one runner, with the calls that it has to stop. */
export function cancelChannelOf(namespace: string, runner: string): string {
  return `{${namespace}}:cancel:${runner}`;
}

export function createCancelBus(options: { connection: PubSubConnection; channel?: string }): CancelBus {
  return createBus({
    connection: options.connection,
    channel: options.channel ?? "{larkline}:cancel",
    parse: parseCancellation,
  });
}

/** The part of a Redis connection that a bus needs. */
export interface PubSubConnection {
  publish(channel: string, message: string): Promise<number>;
  duplicate(): PubSubConnection;
  subscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...values: string[]) => void): unknown;
  disconnect(): void;
}

/** Publishes to every connected process, best effort: others miss it. */
export interface Bus<T> {
  publish(message: T): Promise<void>;
  /** Calls `listener` for every message until `signal` aborts. */
  subscribe(listener: (message: T) => void, signal: AbortSignal): Promise<void>;
}

export interface BusOptions<T> {
  connection: PubSubConnection;
  channel: string;
  parse: (text: string) => ParseResult<T>;
}

export function createBus<T>({ connection, channel, parse }: BusOptions<T>): Bus<T> {
  return {
    publish: async (message) => {
      await connection.publish(channel, JSON.stringify(message));
    },
    subscribe: async (listener, signal) => {
      const subscriber = connection.duplicate();
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
