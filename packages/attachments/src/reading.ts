import type { AttachedFile } from "./extraction.ts";

/** One file for the reading process. */
export interface ReadingJob extends AttachedFile {
  maxChars: number;
  /** When this time has passed, ms, what was read so far is the answer. */
  patienceMs: number;
  /** The same for CPU time, ms. */
  patienceCpuMs: number;
}

/** Thrown by readers: the file cannot be read, for a reason that the model may hear. */
export class Refusal extends Error {
  readonly state: "unsupported" | "failed";

  constructor(state: "unsupported" | "failed", detail: string) {
    super(detail);
    this.state = state;
  }
}

/** The reason for every kind of file that wants a password. */
export function passwordNeeded(): Refusal {
  return new Refusal("failed", "The file is protected with a password.");
}
