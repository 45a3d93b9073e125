/** What happens to a matched call. Times are milliseconds. */
export type FaultAction =
  /** Answers at once; the call is not applied. Without a body: `{code: status, msg}`. */
  | { kind: "respond"; status: number; body?: unknown; headers?: Record<string, string> }
  /** Never answers; the call is not applied. */
  | { kind: "hang" }
  /** Applies the call, that much later. */
  | { kind: "delay"; delayMs: number }
  /** Applies the call, then cuts the connection instead of answering. */
  | { kind: "lose_response" }
  /** Cuts the connection; the call is not applied. */
  | { kind: "drop" }
  /** Applies the call, then sends the answer's body in small pieces with a wait after each. */
  | { kind: "trickle"; chunkBytes: number; everyMs: number }
  /** Applies the call, announces the whole length, and cuts the connection after that much of the body (at least 1). */
  | { kind: "truncate"; afterBytes: number }
  /** Answers 200 with a body of zeros and without a length; the call is not applied. Without a size it never ends. */
  | { kind: "flood"; sizeBytes?: number };

export interface Fault {
  match?: {
    method?: string;
    /** A prefix of the path, or an expression tested against it. */
    path?: string | RegExp;
  };
  /** How many calls are hit; without it, all until `clear`. */
  times?: number;
  action: FaultAction;
}

/** Faults of the open API, first match first. */
export interface FaultTable {
  /** Adds a fault; the result removes it. */
  add(fault: Fault): () => void;
  clear(): void;
  /** How many faults are armed. */
  readonly size: number;
}

export interface FaultSource extends FaultTable {
  take(method: string, path: string): FaultAction | undefined;
}

export function createFaultTable(): FaultSource {
  let faults: { fault: Fault; left: number }[] = [];
  return {
    add(fault) {
      const entry = { fault, left: fault.times ?? Number.POSITIVE_INFINITY };
      faults.push(entry);
      return () => {
        faults = faults.filter((candidate) => candidate !== entry);
      };
    },
    clear() {
      faults = [];
    },
    get size() {
      return faults.length;
    },
    take(method, path) {
      if (faults.length === 0) return undefined;
      const entry = faults.find(({ fault }) => matches(fault, method, path));
      if (entry === undefined) return undefined;
      entry.left -= 1;
      if (entry.left <= 0) faults = faults.filter((candidate) => candidate !== entry);
      return entry.fault.action;
    },
  };
}

function matches({ match }: Fault, method: string, path: string): boolean {
  if (match?.method !== undefined && match.method.toUpperCase() !== method) return false;
  if (match?.path === undefined) return true;
  return typeof match.path === "string" ? path.startsWith(match.path) : match.path.test(path);
}
