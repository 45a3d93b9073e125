/** How one process gets the events of one app. */
export interface AppFeed {
  app: string;
  transport: "websocket" | "webhook";
  /** Of a long connection: its state. A webhook listens as long as its process lives. */
  state: string;
  /** Epoch ms; absent before the first event. */
  lastEventAtMs?: number;
}

/** One process of a deployment, as it tells about itself. */
export interface Instance {
  id: string;
  /** Such as `ingress`. */
  service: string;
  host: string;
  version: string;
  startedAtMs: number;
  /** Apps as which it speaks. */
  apps: readonly string[];
  /** Apps whose events it takes. */
  feeds: readonly AppFeed[];
}

/** One that has not said goodbye. */
export interface KnownInstance extends Instance {
  /** Epoch ms; past: it has gone without a word. */
  expiresAtMs: number;
}

/** Which processes there are. For people who look: nothing is decided by it. */
export interface InstanceDirectory {
  /** Announces or renews an instance; it counts as gone after `ttlMs` without another word. */
  announce(instance: Instance, ttlMs: number): Promise<void>;
  withdraw(id: string): Promise<void>;
  /** The living ones, and those that went silent within the last hour. */
  instances(): Promise<KnownInstance[]>;
}

/** How long an instance that went silent is still shown. */
export const silentInstanceMs = 3_600_000;
