import type { UserPart } from "../content.ts";
import { hasJoined, type EventRecord, type PersonMessage } from "../event.ts";
import type {
  AnyMessage,
  ChatMessage,
  FunctionCall,
  LlmMessage,
  MessageOf,
  RequestUsage,
} from "./chat-messages.ts";
import { toModelMessage } from "./chat-texts.ts";
import type { RunEvent, RunEventOf, RunRecord } from "./engine-events.ts";
import { EngineView, type RunFacts } from "./engine-view.ts";

// From the events of a run to chat messages. What a step has said is a thought when calls follow, and an answer when
// none do: it waits until that is known. Everything else comes with its event.

/** The messages of a whole run, or of what there is of it. */
export function runMessages(run: RunFacts, records: Iterable<EventRecord>): AnyMessage[] {
  const view = new MessageView(run);
  return Array.from(records).flatMap((record) => view.push(record));
}

/** The tools that run what a model wrote, each with its language. */
const languages: Readonly<Record<string, string>> = {
  run_javascript: "javascript",
  run_python: "python",
  run_shell: "shell",
};

/** A call of the step under way. */
interface Call {
  use: RunEventOf<"tool_use">;
  /** Of code: the calls in a row before it that failed. */
  retryAttempt: number;
  result?: RunEventOf<"tool_result">;
}

/** Where a message stands. */
type Place = Omit<RunRecord, "event">;

/** The latest messages of a conversation that a hand-over passes on. */
const contextLength = 20;

/**
 * Makes chat messages of the events of one run, pushed in order from the first one. `metadata.seq` of a message is the
 * position of the event that completed it: who comes back drops those that they have seen.
 */
export class MessageView {
  readonly #run: RunFacts;
  readonly #events: EngineView;
  /** The conversation of this run, for a hand-over. */
  readonly #conversation: LlmMessage[] = [];
  /** The reasons of calls that ask for a hand-over. */
  readonly #reasons = new Map<string, string>();
  #person: PersonMessage | undefined;
  #begun = false;
  /** Position of the latest message that has joined the run. */
  #lastJoined = 0;
  #attempt = 1;
  /** Complete blocks of text of the step, and what no complete block has repeated yet. */
  #text = "";
  #openText = "";
  #calls: Call[] = [];
  #requested = false;
  /** The step has ended and its text is no message yet. */
  #answerWaits = false;
  /** Code calls in a row that failed. */
  #failures = 0;
  /** What steps have used that no message carries yet. */
  #untold: RequestUsage | undefined;
  #stepIsTold = false;

  constructor(run: RunFacts) {
    this.#run = run;
    this.#events = new EngineView(run);
  }

  /** The messages that a record completes. What a message says that joins the run comes with the end of its own run. */
  push(stored: EventRecord): AnyMessage[] {
    if (hasJoined(stored, this.#run.runId)) return this.#joined(stored);
    if (!this.#begun && stored.runId === this.#run.runId) this.#person ??= stored.person;
    const record = this.#events.push(stored);
    if (record === undefined) return [];
    // Versions before did not store what the person said, nor does a run that was cancelled before it began.
    const first =
      this.#begun || this.#person === undefined ? [] : [this.#said(record, this.#person)];
    this.#begun = true;
    const { event } = record;
    // The calls of a step come together: another event says that there are no more.
    const requests = event.type === "tool_use" ? [] : this.#requestsOf(record);
    return [...first, ...requests, ...this.#messagesOf(record, event)];
  }

  #joined({ person, ...stored }: EventRecord): AnyMessage[] {
    if (person === undefined || stored.seq <= this.#lastJoined) return []; // of a version before, or reported already
    this.#lastJoined = stored.seq;
    const { agent = this.#run.agent, atMs = person.atMs, event: _event, ...place } = stored;
    const record = { ...place, runId: this.#run.runId, agent, atMs };
    return [...this.#answers(record), this.#said(record, person)];
  }

  #messagesOf(record: RunRecord, event: RunEvent): AnyMessage[] {
    switch (event.type) {
      case "turn_start": {
        const answers = this.#answers(record);
        this.#beginStep();
        return answers;
      }
      case "step_restarted":
        this.#attempt += 1;
        this.#text = "";
        this.#openText = "";
        return [];
      case "text_delta":
        this.#openText += event.text;
        return [
          { ...this.#common(record), content: event.text, type: "ModelClientStreamingChunkEvent" },
        ];
      case "text":
        this.#text += event.text;
        this.#openText = "";
        return [];
      case "thinking":
        return event.text === ""
          ? []
          : [{ ...this.#common(record), content: event.text, type: "ThoughtEvent" }];
      case "tool_use":
        return this.#called(record, event);
      case "tool_result":
        return this.#answered(record, event);
      case "turn_end":
        return this.#stepEnded(record, event);
      case "agent_changed":
        return [...this.#answers(record), ...this.#changed(record, event)];
      case "memory_query":
        return [this.#remembered(record, event)];
      case "input_requested":
        return [this.#asked(record, event.requestId)];
      case "permission_request":
        return [this.#asked(record, event.id)];
      case "done":
        return this.#done(record, event);
      case "error":
        return [this.#stop(record, event.code)];
      default:
        return [];
    }
  }

  /** The fields of every message. */
  #common({ agent, seq, runId, atMs, parentRunId }: Place, usage: RequestUsage | null = null) {
    return {
      source: agent,
      models_usage: usage,
      metadata: {
        run_id: runId,
        session_id: this.#run.sessionId,
        seq: String(seq),
        ...(parentRunId === undefined ? {} : { parent_run_id: parentRunId }),
        ...(this.#attempt > 1 ? { attempt: String(this.#attempt) } : {}),
      },
      created_at: new Date(atMs).toISOString(),
    };
  }

  #said(record: Place, { parts, source, atMs }: PersonMessage): ChatMessage {
    const common = { ...this.#common({ ...record, atMs }), source };
    const content = parts.map(contentOf);
    const isText = content.every((part) => typeof part === "string");
    const said: ChatMessage = isText
      ? { ...common, content: content.join("\n"), type: "TextMessage" }
      : { ...common, content, type: "MultiModalMessage" };
    this.#conversation.push(toModelMessage(said));
    return said;
  }

  #beginStep(): void {
    this.#attempt = 1;
    this.#text = "";
    this.#openText = "";
    this.#calls = [];
    this.#requested = false;
    this.#stepIsTold = false;
  }

  #called(record: RunRecord, use: RunEventOf<"tool_use">): AnyMessage[] {
    const isCode = languages[use.toolName] !== undefined;
    this.#calls.push({ use, retryAttempt: isCode ? this.#failures : 0 });
    if (!isCode) this.#failures = 0;
    if (use.handoff !== undefined) this.#reasons.set(use.id, reasonIn(use.input));
    if (use.step !== undefined) this.#used(use.step);
    const [first] = this.#calls;
    return this.#calls.length === first?.use.step?.calls ? this.#requestsOf(record) : [];
  }

  /** What the step has said beside its calls, and the calls. */
  #requestsOf(record: RunRecord): AnyMessage[] {
    if (this.#requested || this.#calls.length === 0) return [];
    this.#requested = true;
    const thought = this.#text === "" ? null : this.#text;
    const all = this.#calls.map(({ use }) => functionCallOf(use));
    this.#conversation.push({
      content: all,
      thought,
      source: record.agent,
      type: "AssistantMessage",
    });
    const calls = this.#calls.filter(({ use }) => languages[use.toolName] === undefined);
    const code = this.#calls.filter(({ use }) => languages[use.toolName] !== undefined);
    const content = calls.map(({ use }) => functionCallOf(use));
    const messages: AnyMessage[] = [];
    if (thought !== null) {
      messages.push({ ...this.#common(record), content: thought, type: "ThoughtEvent" });
    }
    if (calls.length > 0) {
      messages.push({
        ...this.#common(record, this.#takeUsage()),
        content,
        type: "ToolCallRequestEvent",
      });
    }
    messages.push(...code.map((call) => this.#generated(record, call)));
    this.#attempt = 1;
    return messages;
  }

  #generated(record: RunRecord, { use, retryAttempt }: Call): MessageOf<"CodeGenerationEvent"> {
    const { command, code: given = command } = use.input;
    const code = typeof given === "string" ? given : JSON.stringify(use.input);
    const language = languages[use.toolName] ?? "";
    return {
      ...this.#common(record, this.#takeUsage()),
      retry_attempt: retryAttempt,
      content: fenced(code, language),
      code_blocks: [{ code, language }],
      type: "CodeGenerationEvent",
    };
  }

  #answered(record: RunRecord, result: RunEventOf<"tool_result">): AnyMessage[] {
    const call = this.#calls.find(({ use }) => use.id === result.id);
    if (call !== undefined) call.result = result;
    // One message of the step has to tell its usage: if the calls do not, their results wait for the step's end.
    return this.#stepIsTold ? this.#executions(record) : [];
  }

  /** The results of a step, once they are all there. */
  #executions(record: RunRecord): AnyMessage[] {
    const calls = this.#calls;
    const isWhole = calls.length > 0 && calls.every(({ result }) => result !== undefined);
    if (!isWhole) return [];
    this.#calls = [];
    this.#text = "";
    const results = calls.map(executionOf);
    this.#conversation.push({ content: results, type: "FunctionExecutionResultMessage" });
    const content = results.filter(({ name }) => languages[name] === undefined);
    return [
      ...(content.length === 0
        ? []
        : [
            {
              ...this.#common(record, this.#takeUsage()),
              content,
              type: "ToolCallExecutionEvent" as const,
            },
          ]),
      ...calls.flatMap((call) =>
        languages[call.use.toolName] === undefined ? [] : [this.#executed(record, call)],
      ),
      ...calls.flatMap(({ use: { helper: source }, result }) => {
        if (source === undefined || result === undefined || result.isError) return [];
        return [
          {
            ...this.#common(record),
            source,
            content: result.output,
            type: "ToolCallSummaryMessage" as const,
          },
        ];
      }),
    ];
  }

  #executed(record: RunRecord, { retryAttempt, result }: Call): MessageOf<"CodeExecutionEvent"> {
    const exitCode = exitCodeOf(result);
    this.#failures = exitCode === 0 ? 0 : this.#failures + 1;
    return {
      ...this.#common(record, this.#takeUsage()),
      retry_attempt: retryAttempt,
      result: { exit_code: exitCode, output: result?.output ?? "" },
      type: "CodeExecutionEvent",
    };
  }

  #stepEnded(record: RunRecord, event: RunEventOf<"turn_end">): AnyMessage[] {
    if (!this.#stepIsTold) this.#used(event);
    if (this.#requested) return this.#executions(record);
    this.#answerWaits = true;
    return [];
  }

  /** A step has used this. The vendors' caches count as prompt. */
  #used(
    use: Pick<
      RunEventOf<"turn_end">,
      "inputTokens" | "outputTokens" | "cacheReadTokens" | "cacheCreationTokens"
    >,
  ): void {
    const { prompt_tokens = 0, completion_tokens = 0 } = this.#untold ?? {};
    this.#stepIsTold = true;
    this.#untold = {
      prompt_tokens:
        prompt_tokens + use.inputTokens + use.cacheReadTokens + use.cacheCreationTokens,
      completion_tokens: completion_tokens + use.outputTokens,
    };
  }

  #takeUsage(): RequestUsage | null {
    const usage = this.#untold ?? null;
    this.#untold = undefined;
    return usage;
  }

  /** The answer of a step without calls that is over. Another step or another agent follows. */
  #answers(record: Place): AnyMessage[] {
    return this.#answerWaits ? [this.#textMessage(record)] : [];
  }

  #textMessage(record: Place): ChatMessage {
    const content = this.#text + this.#openText;
    const message = {
      ...this.#common(record, this.#takeUsage()),
      content,
      type: "TextMessage",
    } as const;
    this.#answerWaits = false;
    this.#text = "";
    this.#openText = "";
    this.#attempt = 1;
    this.#conversation.push({
      content,
      thought: null,
      source: record.agent,
      type: "AssistantMessage",
    });
    return message;
  }

  #changed(
    record: RunRecord,
    { from, to, reason, callId, context }: RunEventOf<"agent_changed">,
  ): AnyMessage[] {
    if (reason === "selected") {
      return [{ ...this.#common(record), content: [to], type: "SelectSpeakerEvent" }];
    }
    if (reason !== "handoff") return [];
    return [
      {
        ...this.#common(record),
        source: from,
        content: this.#reasons.get(callId) ?? "",
        target: to,
        context:
          context === "last" ? [] : structuredClone(this.#conversation.slice(-contextLength)),
        type: "HandoffMessage",
      },
    ];
  }

  #remembered(
    record: RunRecord,
    { items }: RunEventOf<"memory_query">,
  ): MessageOf<"MemoryQueryEvent"> {
    const content = items.map(({ id, text, owner }) => ({
      content: text,
      mime_type: "text/plain",
      metadata: { id, owner },
    }));
    return { ...this.#common(record), content, type: "MemoryQueryEvent" };
  }

  #asked(record: RunRecord, id: string): MessageOf<"UserInputRequestedEvent"> {
    return {
      ...this.#common(record),
      request_id: id,
      content: "",
      type: "UserInputRequestedEvent",
    };
  }

  #done(record: RunRecord, event: RunEventOf<"done">): AnyMessage[] {
    const { reason, mention, output, outputName, outputFormat = null } = event;
    const isStop = reason !== "" && !answeredReasons.has(reason);
    const why = mention === undefined ? reason : "mention";
    const stop = () => (isStop || mention !== undefined ? [this.#stop(record, why)] : []);
    const said = this.#text + this.#openText;
    // A run can be stopped while its calls run: what was said beside them has been reported already.
    const isAnswer = !this.#requested && (said !== "" || !isStop);
    if (!isAnswer) return stop();
    if (isObject(output) && outputName !== undefined) {
      this.#answerWaits = false;
      const common = {
        ...this.#common(record, this.#takeUsage()),
        content: output,
        format_string: outputFormat,
      };
      return [{ ...common, type: `StructuredMessage[${outputName}]` }, ...stop()];
    }
    return [this.#textMessage(record), ...stop()];
  }

  #stop(record: RunRecord, content: string): ChatMessage {
    return { ...this.#common(record, this.#takeUsage()), content, type: "StopMessage" };
  }
}

/** Reasons of ends whose last word is the model's. */
const answeredReasons: ReadonlySet<string> = new Set(["refusal", "output_invalid"]);

/** Text or an image. Images that are only named, and files, are text. */
function contentOf(part: UserPart): string | { data: string } {
  if (part.type === "text") return part.text;
  if (part.type === "file") return `[file: ${part.name}]`;
  return part.source.sourceType === "base64" ? { data: part.source.data } : "[image]";
}

function functionCallOf({ id, input, toolName }: RunEventOf<"tool_use">): FunctionCall {
  return { id, arguments: JSON.stringify(input), name: toolName };
}

function executionOf({ use, result }: Call) {
  return {
    content: result?.output ?? "",
    name: use.toolName,
    call_id: use.id,
    is_error: result?.isError ?? null,
  };
}

function reasonIn({ reason }: Record<string, unknown>): string {
  return typeof reason === "string" ? reason : "";
}

/** The fence is longer than any in the code. */
function fenced(code: string, language: string): string {
  const longest = Math.max(2, ...(code.match(/`+/g) ?? []).map(({ length }) => length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${code}\n${fence}`;
}

function exitCodeOf(result: RunEventOf<"tool_result"> | undefined): number {
  // For a result that was cut the event has the text only: the code is at its head.
  const [, atHead] = /^\{"exitCode":(\d{1,10})[,}]/.exec(result?.output ?? "") ?? [];
  const value = isObject(result?.result) ? result.result["exitCode"] : atHead && Number(atHead);
  if (typeof value === "number" && Number.isInteger(value)) return value;
  return result?.isError === true ? 1 : 0;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
