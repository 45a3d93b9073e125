import type { LedgerEntry } from "./memory-session.ts";
import type { HandedIn, HandoffRefusal } from "./session-store.ts";

/** The entries of runners that were carried over. */
export class MemoryHandoffs {
  readonly #carried = new Set<string>();

  /** An entry is carried over once, and only into the very call that it is about. */
  refusal(call: LedgerEntry | undefined, handed: HandedIn | undefined): HandoffRefusal | undefined {
    if (handed === undefined) return undefined;
    const { entry, ...claims } = handed;
    const id = `${claims.runner} ${entry}`;
    if (this.#carried.has(id)) return "taken";
    this.#carried.add(id);
    const known: Record<string, unknown> = { ...(call?.state === "done" ? {} : call?.facts) };
    const isForeign = Object.entries(claims).some(([name, value]) => (known[name] ?? value) !== value);
    return isForeign ? "foreign" : undefined;
  }
}
