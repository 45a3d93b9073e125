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
  /** The form of what it stores, see {@link stateVersion}; absent: the first. */
  stateVersion?: number;
  startedAtMs: number;
  /** Apps as which it speaks. */
  apps: readonly string[];
  /** Apps whose events it takes. */
  feeds: readonly AppFeed[];
  /** Which clocks it finds to differ, in English; absent: none. */
  clock?: string | undefined;
}

/** One that has not said goodbye. */
export interface KnownInstance extends Instance {
  /** Epoch ms; past: it has gone without a word. */
  expiresAtMs: number;
}

/** Which processes there are: for people who look, and for workers that wait until older ones have stopped. */
export interface InstanceDirectory {
  /** Announces or renews an instance; it counts as gone after `ttlMs` without another word. */
  announce(instance: Instance, ttlMs: number): Promise<void>;
  withdraw(id: string): Promise<void>;
  /** The living ones, and those that went silent within the last hour. */
  instances(): Promise<KnownInstance[]>;
}

/**
 * The form in which sessions are stored. Raised when processes of an older form must have stopped before those of a
 * newer one may begin.
 */
export const stateVersion = 2;

/** How long an instance that went silent is still shown. */
export const silentInstanceMs = 3_600_000;
