import { ItemView } from "@larkline/protocol/views/item-view";
import { Connection, RequestError, type ConnectionOptions } from "./connection.ts";
import { Feed, type Emission } from "./feed.ts";
import { toInputItem, type InputItem } from "./items.ts";
import type {
  Approval,
  EngineEvent,
  Question,
  RunItem,
  RunMessage,
  RunReport,
  Usage,
} from "./wire-types.ts";

export interface ClientOptions extends ConnectionOptions {
  /**
   * How much of each view of a run is kept, in characters of JSON; default 8,000,000. An iterator that begins when the
   * beginning has gone reads it from the server again, and one that is not read from makes the server wait.
   */
  keepCharacters?: number;
}

/** An event with its place in the session. */
export type RunEvent = EngineEvent & {
  /** Grows over the runs of a session. */
  seq: number;
  runId: string;
  /** Name of the agent that answered. */
  agent: string;
  /** Epoch ms, of the server's clock. */
  atMs: number;
  /** Of a run that works for another one. */
  parentRunId?: string;
};

/** What a view shows. */
export interface ViewOptions {
  /** Also what the helpers of the run do, and theirs: each with its `runId` and `parentRunId`, before the call's result. */
  nested?: boolean;
}

/** An item with its run. */
export type NestedItem = RunItem & { runId: string; parentRunId?: string };

/** What is said about an approval. `remember`: approve without asking from now on, where that is offered. */
export type Decision =
  | Approval["decisions"][number]
  | { decision: Approval["decisions"][number]; note?: string; remember?: boolean };

/** What a run may ask of models. */
export interface ModelOptions {
  thinking?: boolean;
  effort?: "low" | "medium" | "high";
  temperature?: number;
  topP?: number;
  maxOutputTokens?: number;
}

/** What a run is started with, beside its input. */
export interface RunOptions {
  /** Name of the agent that answers; absent: the default agent. */
  agent?: string;
  /** Continues this conversation; absent: a new one. At most 64 letters, digits, `_` and `-`. */
  session?: string;
  /** A run of the same session and message id is the same run, however often it is started; absent: a new one. */
  messageId?: string;
  /** Tool calls of the run come after those of others. */
  background?: boolean;
  /** Options of the model requests, each in place of the agent's. */
  model?: ModelOptions;
  /** The answer is a JSON object of this JSON Schema: `result().finalOutput`, unless the reason is `output_invalid`. */
  output?: { name: string; schema: Record<string, unknown>; format?: string };
  /**
   * The last of `responseIds` of an earlier run: the vendor has kept what was said until then, and gets this message alone. For
   * agents with `storeResponses`.
   */
  previousResponseId?: string;
  /** For yourself: at most 16 texts of up to 512 characters, which `report()` gives back. */
  metadata?: Record<string, string>;
  /** The run continues when its last iterator is left early. */
  detach?: boolean;
  /** Ends requests and iterators; the run continues. */
  signal?: AbortSignal;
}

/** A run that ended with an error. */
export class RunError extends Error {
  override readonly name = "RunError";
  readonly runId: string;
  /** Such as `api_overloaded`; new codes may come. */
  readonly code: string;
  /** Whether the same input may succeed later. */
  readonly retryable: boolean;
  /** What to do. */
  readonly suggestion: string;

  constructor(runId: string, error: NonNullable<RunReport["error"]>) {
    super(error.message);
    this.runId = runId;
    this.code = error.code;
    this.retryable = error.retryable;
    this.suggestion = error.suggestion;
  }
}

/** What has become of a run. */
export interface RunResult {
  runId: string;
  sessionId: string;
  /** The text of the last message, or the structured value where the agent answers in a form of its own. */
  finalOutput: unknown;
  newItems: RunItem[];
  /** Name of the agent that had the last word. */
  lastAgent: string;
  usage: Usage;
  costUsd: number;
  /** One for each model step that has ended: what the model has produced. */
  rawResponses: ModelResponse[];
  /** One for each model step: the vendor's id of its answer, or null. */
  responseIds: (string | null)[];
  /** Approvals and questions that the run waits for. */
  interruptions: (Approval | Question)[];
  /** Empty for a normal end; otherwise why it was stopped, such as `cancelled`. */
  reason: string;
  /** The input and everything that the run has added, as the input of another run. */
  toInputList(): InputItem[];
}

/** What a model has produced in one step. */
export interface ModelResponse {
  /** In the model's order. {@link toInputItems} makes input of it. */
  output: RunItem["rawItem"][];
  usage: Usage;
  /** The vendor's id of the answer. */
  responseId: string | null;
}

/** A deployment of Larkline. */
export interface Client {
  /** Starts a run. Errors of the request are thrown by what is called of the run first. */
  run(input: string | InputItem[], options?: RunOptions): Run;
  /** A run that was started elsewhere, or before. It continues when its iterators are left, unless `detach` is false. */
  attach(runId: string, options?: Pick<RunOptions, "detach" | "signal">): Run;
  /**
   * Gives an order such as `/new` or `/status` to a session: the answer, or the run that answers it. Rejects with a
   * {@link RequestError} of the code `no_command` when the text is none; the input of a run is never taken for one.
   */
  command(text: string, options: CommandOptions): Promise<string | Run>;
}

/** What an order is given with. */
export interface CommandOptions extends Pick<
  RunOptions,
  "agent" | "detach" | "messageId" | "signal"
> {
  session: string;
}

/** Makes a client. It keeps no connection open while no run is followed. */
export function createClient(options: ClientOptions): Client {
  const connection = new Connection(options);
  const keep = options.keepCharacters ?? 8_000_000;
  return {
    run: (input, runOptions = {}) =>
      new Run(connection, startOf(connection, input, runOptions), { ...runOptions, input, keep }),
    attach: (runId, runOptions = {}) =>
      new Run(connection, Promise.resolve(runId), { detach: true, ...runOptions, keep }),
    command: async (text, given) => {
      const { agent, messageId = newId(), session, signal } = given;
      const answer = await connection.json(`/v1/sessions/${pathPart(session)}/commands`, {
        method: "POST",
        body: { command: text, message_id: messageId, ...(agent === undefined ? {} : { agent }) },
        ...(signal === undefined ? {} : { signal }),
      });
      const answered = answer as { text: string } | { run_id: string }; // as the server answers 200 and 202
      if ("text" in answered) return answered.text;
      return new Run(connection, Promise.resolve(answered.run_id), { ...given, keep });
    },
  };
}

/** The ids are made here, so that a request that is repeated after a broken connection means the same run. */
async function startOf(
  connection: Connection,
  input: string | InputItem[],
  options: RunOptions,
): Promise<string> {
  const { agent, session = newId(), messageId = newId(), signal } = options;
  const { background, metadata, model, output, previousResponseId } = options;
  const body = {
    input,
    session_id: session,
    message_id: messageId,
    ...(agent === undefined ? {} : { agent }),
    ...(background === undefined ? {} : { background }),
    ...(model === undefined ? {} : { model }),
    ...(output === undefined ? {} : { output }),
    ...(metadata === undefined ? {} : { metadata }),
    ...(previousResponseId === undefined ? {} : { previous_response_id: previousResponseId }),
  };
  const started = await connection.json("/v1/runs", {
    method: "POST",
    body,
    ...(signal === undefined ? {} : { signal }),
  });
  return (started as { run_id: string }).run_id; // as the server answers 200 and 202
}

/**
 * An id as one part of a path. Whatever it holds, it is a part of its own: URLs resolve `.` and `..` even where they are
 * encoded, so these cannot be ids.
 */
function pathPart(id: string): string {
  if (id === "" || id === "." || id === "..") {
    throw new RequestError(404, `${JSON.stringify(id)} is not an id`);
  }
  return encodeURIComponent(id.toWellFormed());
}

/** Browsers have `crypto.randomUUID` on pages of HTTPS only. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What a run is made with, beside its connection and its id. */
interface Given extends RunOptions {
  /** Absent: of a run that was started elsewhere. */
  input?: string | InputItem[];
  keep: number;
}

/**
 * One run. Its views may each be iterated several times and at once: every iterator sees everything from the
 * beginning. Iterators do not throw for what happens in the run; a refused request throws a {@link RequestError}.
 */
export class Run {
  readonly #connection: Connection;
  readonly #runId: Promise<string>;
  readonly #options: Given;
  readonly #views = new Map<string, Feed<unknown>>();
  #readers = 0;
  #awaited = 0;
  /** Its end has been received. */
  #isOver = false;

  /** Made by {@link Client.run} and {@link Client.attach}. */
  constructor(connection: Connection, runId: Promise<string>, given: Given) {
    this.#connection = connection;
    this.#runId = runId;
    this.#options = given;
    // Thrown again by everything that asks for the id.
    runId.catch(() => undefined);
  }

  /** Resolves when the server has taken the run. */
  async id(): Promise<string> {
    return await this.#runId;
  }

  /**
   * Everything that happens, as it happens. The run ends with `done` or `error`; the totals of its session follow
   * (`session_info`). Throws where the end is no longer kept.
   */
  stream(options: ViewOptions = {}): AsyncIterable<RunEvent> {
    return this.#view<RunEvent>("engine", options, (data, runId) => {
      const { event, ...about } = data as {
        event: EngineEvent;
        runId: string;
        parentRunId?: string;
      }; // as the server sends this view
      const isHelpers = about.parentRunId !== undefined && about.runId !== runId;
      this.#isOver ||= !isHelpers && (event.type === "done" || event.type === "error");
      return { ...about, ...event } as RunEvent; // the same
    });
  }

  /** Messages, calls and their outputs, each when it is complete. */
  items(): AsyncIterable<RunItem>;
  items(options: ViewOptions & { nested: true }): AsyncIterable<NestedItem>;
  items(options: ViewOptions = {}): AsyncIterable<RunItem> {
    return this.#view<RunItem>("items", options, (data) => data as RunItem); // as the server sends this view
  }

  /** Messages between person and agents, and what agents tell meanwhile, in the form of AutoGen's. */
  messages(options: ViewOptions = {}): AsyncIterable<RunMessage> {
    return this.#view<RunMessage>("messages", options, (data) => data as RunMessage); // as the server sends this view
  }

  /** Resolves when the run has ended. Rejects with a {@link RunError} when it ended with an error. */
  async result(): Promise<RunResult> {
    this.#awaited += 1;
    try {
      const runId = await this.#runId;
      const newItems: RunItem[] = [];
      for await (const item of this.items()) newItems.push(item);
      const report = await this.report();
      if (report.error !== null) throw new RunError(runId, report.error);
      return {
        ...resultOf(report, newItems, this.#options.input),
        rawResponses: await this.#responses(runId),
      };
    } finally {
      this.#awaited -= 1;
    }
  }

  /** As the server makes items of events. */
  async #responses(runId: string): Promise<ModelResponse[]> {
    const view = new ItemView({ runId, sessionId: "", agent: "", startedAtMs: 0 });
    for await (const event of this.stream()) view.push({ ...event, event } as never); // the server's record of the event
    return view.result().rawResponses as never; // of the same schemas
  }

  /** What is known of the run at this moment, with all pages of its lists. */
  async report(): Promise<RunReport> {
    const path = `/v1/runs/${pathPart(await this.#runId)}`;
    const pageAt = async (query: string) =>
      (await this.#connection.json(`${path}${query}`, this.#signal())) as RunReport; // as the server answers
    const report = await pageAt("");
    while (report.next !== null) {
      const page = await pageAt(`?after=${encodeURIComponent(report.next)}`);
      report.response_ids.push(...page.response_ids);
      report.interruptions.push(...page.interruptions);
      report.children.push(...page.children);
      report.next = page.next;
    }
    return report;
  }

  /** Stops the run; one that has ended stays as it is. */
  async cancel(): Promise<void> {
    const runId = await this.#runId;
    try {
      await this.#connection.json(`/v1/runs/${pathPart(runId)}/cancel`, {
        method: "POST",
        ...this.#signal(),
      });
    } catch (error) {
      if (!(error instanceof RequestError && error.status === 409)) throw error;
    }
  }

  /** Decides an approval that the run waits for: the `id` of its `permission_request`, or of an interruption. */
  async approve(approvalId: string, decision: Decision): Promise<void> {
    const body = typeof decision === "string" ? { decision } : decision;
    const path = `/v1/approvals/${pathPart(approvalId)}`;
    await this.#connection.json(path, { method: "POST", body, ...this.#signal() });
  }

  /**
   * Answers a question that the run asks: the `requestId` of its `input_requested`. Rejects with a {@link RequestError}
   * of status 404 when nothing asks it any more, and 409 when others were faster.
   */
  async answer(questionId: string, value: unknown): Promise<void> {
    const path = `/v1/inputs/${pathPart(questionId)}`;
    try {
      await this.#connection.json(path, { method: "POST", body: { value }, ...this.#signal() });
    } catch (error) {
      const isUnexplained =
        error instanceof RequestError && error.status === 404 && error.code === "";
      throw isUnexplained ? new RequestError(404, noQuestion) : error;
    }
  }

  #signal(): { signal?: AbortSignal } {
    return this.#options.signal === undefined ? {} : { signal: this.#options.signal };
  }

  #view<T>(
    name: string,
    { nested = false }: ViewOptions,
    read: (data: unknown, runId: string) => T,
  ): AsyncIterable<T> {
    const view = nested ? `${name}&nested=1` : name;
    const known = this.#views.get(view) as Feed<T> | undefined; // each name has one type
    const feed =
      known ??
      new Feed<T>((after, stop) => this.#follow({ view, after }, read, stop), this.#options.keep);
    this.#views.set(view, feed as Feed<unknown>);
    return { [Symbol.asyncIterator]: () => this.#reading(feed) };
  }

  async *#reading<T>(feed: Feed<T>): AsyncGenerator<T> {
    this.#readers += 1;
    try {
      yield* feed.read();
    } finally {
      this.#readers -= 1;
      if (!feed.hasEnded && this.#readers === 0) this.#leave();
    }
  }

  /** The last iterator was left early. */
  #leave(): void {
    for (const feed of this.#views.values()) feed.stop();
    this.#views.clear();
    if (this.#isOver || this.#awaited > 0 || this.#options.detach === true) return;
    if (this.#options.signal?.aborted === true) return;
    void this.cancel().catch(() => undefined); // best effort: the run ends by itself otherwise
  }

  async *#follow<T>(
    { view, after }: { view: string; after: string },
    read: (data: unknown, runId: string) => T,
    stop: AbortSignal,
  ): AsyncGenerator<Emission<T>> {
    const runId = await this.#runId;
    const { signal } = this.#options;
    const path = `/v1/runs/${pathPart(runId)}/events?view=${view}`;
    const ended = signal === undefined ? stop : AbortSignal.any([signal, stop]);
    for await (const { id, name, data } of this.#connection.events(path, ended, after)) {
      if (name !== "end") yield { value: read(JSON.parse(data), runId), id, size: data.length };
      else if ((JSON.parse(data) as { lost?: true }).lost === true) {
        throw new RequestError(404, lostEvents, lostRun);
      } // as the server ends a view
    }
  }
}

const noQuestion =
  "there is no such question: it was answered or has expired, or this deployment asks none";
const lostEvents = "the events of this run are no longer kept";
const lostRun = "session_not_found";

function resultOf(
  report: RunReport,
  newItems: RunItem[],
  input: string | InputItem[] | undefined,
): Omit<RunResult, "rawResponses"> {
  return {
    runId: report.run_id,
    sessionId: report.session_id,
    finalOutput: report.output === undefined ? report.final_output : report.output,
    newItems,
    lastAgent: report.last_agent,
    usage: report.usage,
    costUsd: report.cost_usd,
    responseIds: report.response_ids,
    interruptions: report.interruptions,
    reason: report.reason,
    toInputList: () => {
      if (input === undefined) {
        throw new Error("the input of a run that was started elsewhere is not known here");
      }
      const asked: InputItem[] =
        typeof input === "string" ? [{ role: "user", content: input }] : structuredClone(input);
      return [...asked, ...newItems.map(toInputItem)];
    },
  };
}
