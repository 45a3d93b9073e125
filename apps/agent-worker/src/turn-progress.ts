import type { Transition, TurnEnvironment } from "@larkline/agent";
import type { Approval, ControlEntry, EngineEvent, EventOf, Message, TurnState } from "@larkline/protocol";
import type {
  CommitRequest,
  CommitResult,
  SaveRequest,
  SaveResult,
  SessionSettings,
  SessionStore,
} from "@larkline/store";
import { openCallsOf, waitsForPeopleOnly } from "./call-facts.ts";
import { EventWriter, type PublishedEvents } from "./event-writer.ts";

/** Where a turn's writes go and what proves that they may. */
export interface ProgressOptions {
  store: Pick<SessionStore, "save" | "commit" | "emit">;
  session: string;
  epoch: string;
  turn: TurnState;
  history: readonly Message[];
  published?: PublishedEvents | undefined;
  /** What its next writes put in place of what cannot be read. */
  replaced?: Pick<Unsaved, "context" | "settings">;
  /** Called when another worker has taken the session over, or Redis refuses. */
  onLost: () => void;
  /** Told of questions to people once they are stored. */
  onAsked: (approvals: readonly Approval[]) => void;
}

/** What was decided and goes with the next write. */
interface Unsaved {
  history: Message[];
  approvals: Approval[];
  absorbed: { seq: number; runId: string }[];
  context?: CommitRequest["context"];
  settings?: SessionSettings;
}

/** How a commit ends a turn. */
export type Ending = Pick<CommitRequest, "seq" | "more" | "outbox">;

/** The state of a running turn: decisions are taken here, and written together with what came with them. */
export class TurnProgress {
  readonly #options: ProgressOptions;
  readonly #events: EventWriter;
  #turn: TurnState;
  #history: Message[];
  #unsaved: Unsaved = { history: [], approvals: [], absorbed: [] };
  /** Control entries decided on but not yet acknowledged. */
  #consumed = 0;
  #settings: SessionSettings | undefined;

  constructor(options: ProgressOptions) {
    this.#options = options;
    this.#turn = options.turn;
    this.#history = [...options.history];
    const { store, session, epoch, turn, published = new Set(), onLost } = options;
    this.#events = new EventWriter({ store, session, epoch, runId: turn.turnId, published, onLost });
    Object.assign(this.#unsaved, options.replaced);
  }

  get turn(): TurnState {
    return this.#turn;
  }

  /** What the model gets to see. */
  get history(): Message[] {
    return this.#history;
  }

  /** The choices that this turn has made for the session, if any. */
  get settings(): SessionSettings | undefined {
    return this.#settings;
  }

  /** Publishes what happens between writes. */
  publish(event: EngineEvent): void {
    this.#events.push(event);
  }

  /** Makes a decision ours: it is stored with the next write. */
  take({ turn, history, events, context, settings, absorbed = [], approvals = [] }: Transition): void {
    this.#turn = turn;
    this.#history.push(...history);
    this.#unsaved.history.push(...history);
    this.#unsaved.absorbed.push(...absorbed);
    this.#unsaved.approvals.push(...approvals);
    const cut = this.#unsaved.context;
    // A cut counts the messages up to its write, which come in the same write as these.
    if (cut !== undefined) this.#unsaved.context = { ...cut, keep: cut.keep + history.length };
    if (context !== undefined) {
      const kept = context.keep === 0 ? [] : this.#history.slice(-context.keep);
      this.#history = context.summary === undefined ? kept : [context.summary, ...kept];
      this.#unsaved.context = context;
    }
    if (settings !== undefined) this.#settings = this.#unsaved.settings = settings;
    for (const event of events) this.#events.push(event);
  }

  /** These control entries are dealt with by the decision that follows. */
  heard(control: readonly ControlEntry[]): void {
    this.#consumed += control.length;
  }

  /** `hold`: go on running while the open calls are worked on. */
  async save(how: SaveRequest["mode"] | "hold"): Promise<SaveResult> {
    const mode = how === "hold" ? "continue" : how;
    const { store, session, epoch } = this.#options;
    const { history, context, absorbed, approvals } = this.#unsaved;
    const result = await store.save({
      session,
      epoch,
      history,
      events: await this.#takenEvents(),
      consumed: this.#consumed,
      turn: this.#turn,
      open: how === "suspend" || how === "hold" ? openCallsOf(this.#turn) : [],
      mode,
      ...(this.#turn.putOff === undefined ? {} : { wakeAtMs: this.#turn.putOff.atMs }),
      ...(context === undefined ? {} : { context }),
      ...(approvals.length === 0 ? {} : { approvals }),
      ...(mode === "suspend" && waitsForPeopleOnly(this.#turn) ? { waits: this.#turn.message.sender.id } : {}),
      ...(absorbed.length === 0 ? {} : { absorbed: absorbed.map(({ seq }) => seq) }),
    });
    const { settings } = this.#unsaved;
    this.#unsaved = { history: [], approvals: [], absorbed: [], ...(settings === undefined ? {} : { settings }) };
    this.#consumed = 0;
    if (result.state !== "fenced" && approvals.length > 0) this.#options.onAsked(approvals);
    return result;
  }

  async commit(ending: Ending): Promise<CommitResult> {
    const { store, session, epoch } = this.#options;
    const { history, context, settings } = this.#unsaved;
    return await store.commit({
      ...ending,
      session,
      epoch,
      history,
      events: await this.#takenEvents(),
      consumed: this.#consumed,
      ...(context === undefined ? {} : { context }),
      ...(settings === undefined ? {} : { settings }),
    });
  }

  /** With the ends of the runs of messages that have joined this one. */
  async #takenEvents(): Promise<{ runId: string; event: EngineEvent }[]> {
    const events = await this.#events.take();
    const takenBy = this.#turn.turnId;
    return [...events, ...this.#unsaved.absorbed.map(({ runId }) => ({ runId, event: joinedEvent(takenBy) }))];
  }
}

/** The end of the run of a message that has become part of another one. */
function joinedEvent(takenBy: string): EventOf<"done"> {
  const reason = "joined";
  return {
    type: "done",
    totalInputTokens: 0,
    totalOutputTokens: 0,
    totalCacheReadTokens: 0,
    totalCacheCreationTokens: 0,
    totalCostUsd: 0,
    turnCount: 0,
    reason,
    final: "",
    takenBy,
  };
}

/** A decision that waits for the facts of the moment. */
export type Decision = (environment: TurnEnvironment) => Transition;
