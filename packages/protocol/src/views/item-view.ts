import { isTerminal, type EventRecord } from "../event.ts";
import type { RunEvent, RunEventOf, RunRecord } from "./engine-events.ts";
import { EngineView, type RunFacts } from "./engine-view.ts";
import {
  addItemUsage,
  continuedInput,
  noItemUsage,
  runItemOf,
  toolCallOutputItem,
} from "./item-helpers.ts";
import type {
  FunctionCall,
  InputItem,
  ItemUsage,
  ModelResponse,
  OutputItem,
  OutputPart,
  RunItem,
} from "./run-items.ts";

// From the events of a run to its items. A block of a step becomes an item when the step is decided: by its first call,
// by its end, or by that of the run. Until then a restart can void it, and a refusal or a limit change it.

/** Something that a run waits for people with. */
export interface Interruption {
  type: "approval" | "question";
  /** Of the approval, or of the question. */
  id: string;
  /** The call that waits; empty where it is not known. */
  callId: string;
  /** The tool's name and the arguments; absent of a question. */
  toolName?: string;
  input?: Record<string, unknown>;
  message: string;
}

/** `waiting`: for people, while nothing else is done. */
export type RunState = "queued" | "running" | "waiting" | "done" | "error" | "cancelled";

/** What has become of a run so far. */
export interface RunResult {
  state: RunState;
  /** For a run that has ended: why, empty for a normal end. */
  reason: string;
  error: Pick<RunEventOf<"error">, "code" | "message" | "suggestion" | "retryable"> | null;
  /** Epoch ms; null until the run has ended. */
  endedAtMs: number | null;
  costUsd: number;
  newItems: RunItem[];
  /** The value of a structured answer, else the text; null while there is none. */
  finalOutput: unknown;
  lastAgent: string;
  usage: ItemUsage;
  /** One for each model step that has ended. */
  rawResponses: ModelResponse[];
  responseIds: (string | null)[];
  interruptions: Interruption[];
  /** The input and everything that came of it, for another run to continue from. */
  toInputList: () => InputItem[];
}

/** The items of a whole run, or of what there is of it. */
export function runItems(run: RunFacts, records: Iterable<EventRecord>): RunItem[] {
  const view = new ItemView(run);
  return Array.from(records).flatMap((record) => view.push(record));
}

/** A block that waits for its step to be decided. */
interface Block {
  type: "text" | "thinking";
  text: string;
  seq: number;
  agent: string;
  vendorItem?: Record<string, unknown>;
  before: readonly Record<string, unknown>[];
}

/** A call until its result is there. */
type OpenCall = Pick<RunEventOf<"tool_use">, "handoff" | "mcp"> & { raw: FunctionCall };

/** The result of a hand-over until an event says who took over. */
type HeldHandoff = { raw: FunctionCall; event: RunEventOf<"tool_result">; agent: string };

/** Makes items of the events of one run, pushed in order from the first one. */
export class ItemView {
  readonly #keepsItems: boolean;
  readonly #run: RunFacts;
  readonly #events: EngineView;
  readonly #input: readonly InputItem[];
  readonly #items: RunItem[] = [];
  readonly #responses: ModelResponse[] = [];
  readonly #calls = new Map<string, OpenCall>();
  readonly #waiting = new Map<string, Interruption>();
  #blocks: Block[] = [];
  /** Blocks of the step that are items already. */
  #decidedBlocks = 0;
  /** Text of the step that no complete block has repeated yet. */
  #openText = "";
  /** Items of the vendor that come after the blocks. */
  #trailing: Pick<Block, "agent" | "before"> | undefined;
  #output: OutputItem[] = [];
  #handoff: HeldHandoff | undefined;
  #usage: ItemUsage = noItemUsage;
  #costUsd = 0;
  #lastAgent: string;
  #finalOutput: unknown = null;
  #begun = false;
  #end: RunRecord | undefined;

  /** `input`: what the run was given, as items. `keep`: `totals` forgets the items once they are returned. */
  constructor(run: RunFacts, input: readonly InputItem[] = [], keep: "items" | "totals" = "items") {
    this.#keepsItems = keep === "items";
    this.#run = run;
    this.#events = new EngineView(run);
    this.#input = input;
    this.#lastAgent = run.agent;
  }

  /** The items that a record completes. */
  push(stored: EventRecord): RunItem[] {
    const record = this.#events.push(stored);
    if (record === undefined) return [];
    this.#begun = true;
    if (isTerminal(record.event)) this.#end = record;
    this.#lastAgent = record.event.type === "agent_changed" ? record.event.to : record.agent;
    const items = this.#itemsOf(record, record.event);
    if (this.#keepsItems) this.#items.push(...items);
    return items;
  }

  /** What has become of the run so far. */
  result(): RunResult {
    const newItems = structuredClone(this.#items);
    const event = this.#end?.event;
    return {
      state: this.#state(),
      reason: event?.type === "done" ? event.reason : event?.type === "error" ? event.code : "",
      error: event?.type === "error" ? errorOf(event) : null,
      endedAtMs: this.#end?.atMs ?? null,
      costUsd: this.#costUsd,
      newItems,
      finalOutput: structuredClone(this.#finalOutput),
      lastAgent: this.#lastAgent,
      usage: { ...this.#usage },
      rawResponses: structuredClone(this.#responses),
      responseIds: this.#responses.map(({ responseId }) => responseId),
      interruptions: [...this.#waiting.values()],
      toInputList: () => continuedInput(this.#input, newItems, this.#responses),
    };
  }

  #state(): RunState {
    const event = this.#end?.event;
    if (event?.type === "done") return event.reason === "cancelled" ? "cancelled" : "done";
    if (event !== undefined) return "error";
    if (!this.#begun) return "queued";
    const isWaiting =
      this.#waiting.size > 0 && [...this.#calls.keys()].every((id) => this.#waiting.has(id));
    return isWaiting ? "waiting" : "running";
  }

  #itemsOf(record: RunRecord, event: RunEvent): RunItem[] {
    switch (event.type) {
      case "text_delta":
        this.#openText += event.text;
        return [];
      case "text":
      case "thinking":
        this.#keepBlock(record, event);
        return [];
      case "step_restarted":
        this.#forgetStep();
        return [];
      case "turn_start": {
        const items = [...this.#handedOver(), ...this.#decided()];
        this.#forgetStep();
        this.#output = [];
        return items;
      }
      case "tool_use":
        return [...this.#decided("", event.blocksBefore), ...this.#called(record, event)];
      case "permission_request":
        return this.#asked(record, event);
      case "input_requested": {
        const { requestId: id, callId, question: message } = event;
        this.#waiting.set(callId || id, { type: "question", id, callId, message });
        return [];
      }
      case "tool_result":
        return [...this.#decided(), ...this.#answered(record, event)];
      case "agent_changed":
        return [...this.#decided(), ...this.#handedOver(event)];
      case "turn_end":
        this.#stepEnded(record, event);
        return [];
      case "done":
        return this.#done(record, event);
      case "error":
        this.#forgetStep();
        this.#waiting.clear();
        return this.#handedOver();
      default:
        return [];
    }
  }

  #keepBlock({ seq, agent }: RunRecord, event: RunEventOf<"text" | "thinking">): void {
    if (event.type === "text") this.#openText = "";
    const { type, text, vendorItem, vendorItems: before = [] } = event;
    this.#blocks.push({
      type,
      text,
      seq,
      agent,
      before,
      ...(vendorItem === undefined ? {} : { vendorItem }),
    });
  }

  #forgetStep(): void {
    this.#blocks = [];
    this.#decidedBlocks = 0;
    this.#trailing = undefined;
    this.#openText = "";
  }

  /**
   * The items of the blocks that wait, of the first `upTo` of the step. `reason`: of the end of the run, if it is that.
   */
  #decided(reason = "", upTo = Infinity): RunItem[] {
    const blocks = this.#blocks.splice(0, Math.max(0, upTo - this.#decidedBlocks));
    this.#decidedBlocks += blocks.length;
    const trailing = this.#trailing;
    this.#trailing = undefined;
    const lastText = blocks.findLast(({ type }) => type === "text");
    const items = blocks.flatMap((block) => {
      const before = this.#vendorItems(block);
      const own =
        block.type === "thinking"
          ? this.#reasoning(block)
          : this.#message(block, block === lastText ? reason : "");
      const raw = vendorsOwn(block) ?? own;
      return [...before, ...this.#produced(raw, block.agent)];
    });
    return trailing === undefined ? items : [...items, ...this.#vendorItems(trailing)];
  }

  #reasoning({ text, seq }: Block): OutputItem {
    const id = this.#idOf("rs", seq);
    return { type: "reasoning", id, summary: [{ type: "summary_text", text }] };
  }

  #message({ text, seq }: Pick<Block, "text" | "seq">, reason: string): OutputItem {
    const part: OutputPart =
      reason === "refusal"
        ? { type: "refusal", refusal: text }
        : { type: "output_text", text, annotations: [] };
    const status = reason === "max_tokens" || reason === "cancelled" ? "incomplete" : "completed";
    return {
      type: "message",
      id: this.#idOf("msg", seq),
      role: "assistant",
      status,
      content: [part],
    };
  }

  /** The same on every reading. */
  #idOf(prefix: string, seq: number): string {
    return `${prefix}_${this.#run.runId}_${seq}`;
  }

  #vendorItems({ before, agent }: Pick<Block, "agent" | "before">): RunItem[] {
    return before.flatMap((item) => this.#produced(item as unknown as OutputItem, agent)); // the vendor's own
  }

  /** Something that the model has produced: part of its response, and mostly an item. */
  #produced(raw: OutputItem, agent: string, isHandoff = false): RunItem[] {
    this.#output.push(raw);
    return [runItemOf(raw, agent, () => isHandoff) ?? []].flat();
  }

  #called({ seq, agent }: RunRecord, event: RunEventOf<"tool_use">): RunItem[] {
    const {
      id: call_id,
      toolName: name,
      input,
      handoff,
      mcp,
      vendorItem,
      vendorItems: before = [],
    } = event;
    const call = {
      type: "function_call",
      call_id,
      name,
      arguments: JSON.stringify(input),
    } as const;
    const own: FunctionCall = { id: this.#idOf("fc", seq), ...call, status: "completed" };
    const raw: FunctionCall = vendorItem === undefined ? own : { ...own, ...vendorItem, ...call };
    this.#calls.set(call_id, {
      raw,
      ...(handoff === undefined ? {} : { handoff }),
      ...(mcp === undefined ? {} : { mcp }),
    });
    return [
      ...this.#vendorItems({ before, agent }),
      ...(mcp?.tools === undefined
        ? []
        : [this.#listedTools(mcp.server, mcp.tools, { seq, agent })]),
      ...this.#produced(raw, agent, handoff !== undefined),
    ];
  }

  #listedTools(
    server: string,
    tools: readonly { name: string; description: string; inputSchema: object }[],
    { seq, agent }: Pick<RunRecord, "seq" | "agent">,
  ): RunItem {
    const listed = tools.map(({ name, description, inputSchema }) => ({
      name,
      description,
      input_schema: inputSchema,
    }));
    const rawItem = {
      type: "mcp_list_tools",
      id: this.#idOf("mcpl", seq),
      server_label: server,
      tools: listed,
    } as const;
    return { type: "mcp_list_tools_item", agent, rawItem };
  }

  #asked({ agent }: RunRecord, event: RunEventOf<"permission_request">): RunItem[] {
    const { id, toolName, input, message, toolCallId: callId = this.#callWith(event) } = event;
    this.#waiting.set(callId || id, { type: "approval", id, callId, toolName, input, message });
    const server = this.#calls.get(callId)?.mcp?.server;
    if (server === undefined) return [];
    const rawItem = {
      type: "mcp_approval_request",
      id,
      server_label: server,
      name: toolName,
    } as const;
    return [
      {
        type: "mcp_approval_request_item",
        agent,
        rawItem: { ...rawItem, arguments: JSON.stringify(input) },
      },
    ];
  }

  /** The open call that a request of the version before is about. */
  #callWith({ toolName, input }: RunEventOf<"permission_request">): string {
    const text = JSON.stringify(input);
    const found = [...this.#calls].find(
      ([, { raw }]) => raw.name === toolName && raw.arguments === text,
    );
    return found?.[0] ?? "";
  }

  #answered({ agent }: RunRecord, event: RunEventOf<"tool_result">): RunItem[] {
    const call = this.#calls.get(event.id);
    const raw = call?.raw ?? {
      type: "function_call",
      call_id: event.id,
      name: event.toolName,
      arguments: "{}",
    };
    this.#calls.delete(event.id);
    const decided = call?.mcp === undefined ? [] : this.#approvalDecided(event, agent);
    this.#waiting.delete(event.id);
    if (call?.handoff !== undefined && !event.isError) {
      const before = this.#handedOver();
      this.#handoff = { raw, event, agent };
      return [...decided, ...before];
    }
    return [...decided, outputItem(raw, event, agent)];
  }

  /** People have decided about a call when its result is there: it was not allowed, or it has run. */
  #approvalDecided({ id, code }: RunEventOf<"tool_result">, agent: string): RunItem[] {
    const asked = this.#waiting.get(id);
    if (asked?.type !== "approval") return [];
    const approve = code !== "permission_denied";
    const rawItem = {
      type: "mcp_approval_response",
      approval_request_id: asked.id,
      approve,
    } as const;
    return [{ type: "mcp_approval_response_item", agent, rawItem }];
  }

  /** The result of a hand-over that waits for this; of one that no agent took up it is that of any call. */
  #handedOver(change?: RunEventOf<"agent_changed">): RunItem[] {
    if (this.#handoff === undefined) return [];
    const { raw, event, agent } = this.#handoff;
    this.#handoff = undefined;
    if (change?.callId !== event.id) return [outputItem(raw, event, agent)];
    const rawItem = toolCallOutputItem(raw, event.output);
    return [
      {
        type: "handoff_output_item",
        agent,
        rawItem,
        sourceAgent: change.from,
        targetAgent: change.to,
      },
    ];
  }

  /** The blocks still wait: how the run ends says what the last one is. */
  #stepEnded({ agent }: RunRecord, event: RunEventOf<"turn_end">): void {
    if (event.vendorItems !== undefined) this.#trailing = { before: event.vendorItems, agent };
    const usage = {
      requests: event.attempts,
      input_tokens: event.inputTokens,
      output_tokens: event.outputTokens,
      total_tokens: event.inputTokens + event.outputTokens,
      cache_read_tokens: event.cacheReadTokens,
      cache_write_tokens: event.cacheCreationTokens,
    };
    this.#usage = addItemUsage(this.#usage, usage);
    this.#costUsd += event.costUsd;
    const output = this.#keepsItems ? this.#output : [];
    this.#responses.push({ output, usage, responseId: event.responseId });
  }

  #done({ seq, agent }: RunRecord, event: RunEventOf<"done">): RunItem[] {
    const items = this.#decided(event.reason);
    const broken = this.#openText;
    const isBroken = event.reason === "cancelled" && broken !== "";
    const rest = isBroken
      ? this.#produced(this.#message({ text: broken, seq }, event.reason), agent)
      : [];
    const { historyNote: text = "" } = event;
    const note = text === "" ? [] : this.#produced(this.#message({ text, seq }, ""), agent);
    this.#forgetStep();
    this.#waiting.clear();
    this.#finalOutput = event.output ?? event.final;
    return [...this.#handedOver(), ...items, ...rest, ...note];
  }
}

/** The item as the vendor made it, where it is one that a block can be. */
function vendorsOwn({ vendorItem }: Block): OutputItem | undefined {
  if (vendorItem === undefined) return undefined;
  const raw = vendorItem as unknown as OutputItem; // read next
  return runItemOf(raw, "", () => false) === undefined ? undefined : raw;
}

function outputItem(
  raw: FunctionCall,
  { output, result, isError }: RunEventOf<"tool_result">,
  agent: string,
): RunItem {
  const value = isError || result === undefined ? output : result;
  const rawItem = toolCallOutputItem(raw, output);
  if (isError) rawItem.status = "incomplete";
  return { type: "tool_call_output_item", agent, rawItem, output: value };
}

function errorOf({
  code,
  message,
  suggestion,
  retryable,
}: RunEventOf<"error">): RunResult["error"] {
  return { code, message, suggestion, retryable };
}
