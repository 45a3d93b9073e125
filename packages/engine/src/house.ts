import {
  turnLimits,
  type CallPolicy,
  type OfferedTool,
  type SchemaFacts,
  type TurnLimits,
} from "@larkline/agent";
import {
  createBudgetBook,
  type BudgetAccount,
  type BudgetBook,
  type BudgetPolicy,
} from "@larkline/agent/budgets";
import { useWith, type ChosenModel, type SessionUse } from "@larkline/agent/drive";
import { decideCall, unknownOutcomeOf, type PermissionPolicy } from "@larkline/agent/permissions";
import type { ChainRequest, HostedTool, RequestExtra, RetryPolicy } from "@larkline/model";
import type {
  InboundMessage,
  OutputForm,
  QueuedMessage,
  ReplyLanguage,
  Sender,
} from "@larkline/protocol";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import type { Message } from "@larkline/protocol/content";
import { compileJsonSchema, schemaProblem } from "@larkline/protocol/json-schema";
import type { TurnState } from "@larkline/protocol/turn";
import { announcementOf, type HandlerTool, type Tool } from "@larkline/tool-kit";
import { ModelBook, type ModelProvider } from "./models.ts";

// What the runs of an engine share: its agents and stores, and the session that each run belongs to.

/** An agent, by the names that `agents.<name>` of `larkline.config.ts` has. */
export interface EngineAgent {
  /** `<provider>/<id>`, a comma separates fallbacks; the providers are those of `models`. */
  model: string;
  /** The system prompt. */
  instructions?: string;
  /** Names of the tools it may use; absent: all. */
  tools?: readonly string[];
  /** Model steps in one turn. Default 25. */
  maxIterations?: number;
  /** What a message does that comes while the session is busy: it waits, or it joins the running turn. */
  busy?: "queue" | "steer";
  /** Hosts that its tools may reach unasked after text from outside was read. */
  egress?: readonly string[];
  thinking?: boolean;
  effort?: "low" | "medium" | "high";
  temperature?: number;
  topP?: number;
  maxOutputTokens?: number;
  fast?: boolean;
  /** By provider: what goes with its requests, beside what the engine says itself. */
  extra?: Readonly<Record<string, RequestExtra>>;
  /** By provider: tools that the vendor runs, as its interface describes them. */
  hostedTools?: Readonly<Record<string, readonly HostedTool[]>>;
  /** The vendor keeps what it answers, so that a run may continue an answer by its id: OpenAI's Responses interface alone. */
  storeResponses?: boolean;
  /** The answer is a JSON value of this schema. `format`: how people read it, with `{field}` for its parts. */
  output?: { name: string; schema: Record<string, unknown>; format?: string };
  /** Language of what the engine itself says; default: that of the message. */
  language?: "auto" | ReplyLanguage;
}

/** Where conversations are kept. The default is memory; `get` of an unknown session is an empty list. */
export interface ConversationStore {
  get(sessionId: string): Promise<readonly Message[]> | readonly Message[];
  append(sessionId: string, ...messages: readonly Message[]): Promise<void> | void;
  /** Replaces the whole conversation, as when its older part has become a summary. */
  set(sessionId: string, messages: readonly Message[]): Promise<void> | void;
}

/** Watches runs. Called synchronously; what it throws is dropped. */
export interface EngineObserver {
  /** Something happened: `model.retried`, `turn.ended`. */
  event(name: string, data: Record<string, string | number | boolean>): void;
  error(error: unknown, context: Record<string, string | number | boolean>): void;
  /** One sample: `model.step_seconds`. */
  metric?(name: string, value: number, tags: Record<string, string | number | boolean>): void;
}

export interface EngineOptions {
  /** By name. A run that names none is answered by `default`, or else by the first. */
  agents: Readonly<Record<string, EngineAgent>>;
  /** By the name that stands before the slash of `agents.<name>.model`. */
  models: Readonly<Record<string, ModelProvider>>;
  /** They run in this process. Tools that run programs need a runner, and are refused. */
  tools?: readonly Tool[];
  store?: ConversationStore;
  observers?: readonly EngineObserver[];
  /** Who is asked before a call runs, as the configuration resolves it. Default: the tool's own `requiresApproval`. */
  permissions?: Partial<PermissionPolicy>;
  /** What may be spent, counted by this process alone. */
  budgets?: BudgetPolicy;
  /** Bounds of each turn. */
  limits?: Partial<TurnLimits>;
  /** How calls of models that break are repeated. */
  retry?: Partial<RetryPolicy>;
  clock?: Clock;
}

export interface EngineRunOptions {
  /** Name of the agent that answers. */
  agent?: string;
  /** Cancels the run. */
  signal?: AbortSignal;
  /** Whom tools act for, and whose budget is used. Default `{ id: "user" }`. */
  user?: Sender;
  /**
   * The last of `responseIds` of an earlier run: the vendor has kept what was said until then, and gets this message alone. For
   * agents with `storeResponses`.
   */
  previousResponseId?: string;
}

/** What is known of a session at this moment; its title is empty before a run of it has ended. */
export interface SessionStats extends SessionUse {
  sessionId: string;
  /** `waiting`: for a person. */
  state: "idle" | "running" | "waiting";
  cacheReadTokens: number;
  cacheCreationTokens: number;
}

/** An agent with what its runs need. */
export interface ReadyAgent {
  name: string;
  config: EngineAgent;
  chosen: ChosenModel;
  limits: TurnLimits;
  tools: ReadonlyMap<string, OfferedTool>;
  request: Omit<ChainRequest, "messages" | "tools" | "system">;
  answers: { output?: OutputForm };
  speech: { texts?: ReplyLanguage };
}

const runner = "engine";

const defaultPermissions: PermissionPolicy = {
  roles: {},
  entries: [],
  approvers: { requester: true, people: [], roles: [], fourEyes: false, count: 1 },
  expiresMs: 86_400_000,
  rulesExpireMs: 90 * 86_400_000,
  risky: "suggest",
  unknownOutcome: "ask_feishu",
  remember: false,
  learnAfter: 0,
  maxDenials: 3,
};

const noBudgets: BudgetPolicy = { timeZone: "UTC", budgets: [] };

/** Everything that the runs of one engine share. */
export class House {
  readonly clock: Clock;
  readonly store: ConversationStore;
  readonly permissions: PermissionPolicy;
  readonly budgets: BudgetBook;
  readonly handlers = new Map<string, HandlerTool>();
  /** Schemas are those of the program that has made the engine: they are compiled where it runs. */
  readonly schemas: SchemaFacts = { check: (schema, value) => this.#compiled(schema)(value) };
  readonly #checks = new WeakMap<object, ReturnType<typeof compileJsonSchema>>();
  readonly #observers: readonly EngineObserver[];
  readonly #agents = new Map<string, ReadyAgent>();
  readonly #sessions = new Map<string, Session>();
  readonly #spent = new Map<string, { tokens: number; usd: number }>();
  isClosed = false;

  constructor(options: EngineOptions) {
    const {
      agents,
      models,
      tools = [],
      observers = [],
      store = new MemoryConversations(),
    } = options;
    this.clock = options.clock ?? systemClock;
    this.store = store;
    this.permissions = { ...defaultPermissions, ...options.permissions };
    this.budgets = createBudgetBook(options.budgets ?? noBudgets);
    this.#observers = observers;
    for (const tool of tools) this.#addTool(tool);
    const book = new ModelBook(models, this.clock, options.retry);
    for (const [name, config] of Object.entries(agents)) {
      this.#agents.set(
        name,
        this.#readyAgent(name, config, { book, limits: options.limits ?? {} }),
      );
    }
    if (this.#agents.size === 0) throw new TypeError("agents names no agent");
  }

  #addTool(tool: Tool): void {
    const { name, kind } = tool;
    if (kind === "program") {
      throw new TypeError(`tool ${name} runs programs: that needs a runner with a sandbox`);
    }
    if (this.handlers.has(name)) throw new TypeError(`tool ${name} is given twice`);
    this.handlers.set(name, tool);
  }

  #readyAgent(
    name: string,
    config: EngineAgent,
    given: { book: ModelBook; limits: Partial<TurnLimits> },
  ): ReadyAgent {
    const unknown = config.tools?.find((tool) => !this.handlers.has(tool));
    if (unknown !== undefined) {
      throw new TypeError(`agents.${name}.tools: there is no tool ${JSON.stringify(unknown)}`);
    }
    const offered = [...this.handlers.values()].filter(
      (tool) => config.tools?.includes(tool.name) !== false,
    );
    const { maxIterations, language = "auto", output } = config;
    const problem = output === undefined ? undefined : schemaProblem(output.schema);
    if (problem !== undefined) throw new TypeError(`agents.${name}.output: ${problem}`);
    const { maxDenials } = this.permissions;
    return {
      name,
      config,
      chosen: given.book.chosen(name, config),
      limits: turnLimits({
        maxDenials,
        ...given.limits,
        ...(maxIterations === undefined ? {} : { maxIterations }),
      }),
      tools: new Map(
        offered.map((tool) => [tool.name, { runner, announcement: announcementOf(tool) }]),
      ),
      request: requestOf(config),
      answers: output === undefined ? {} : { output },
      speech: language === "auto" ? {} : { texts: language },
    };
  }

  #compiled(schema: object): ReturnType<typeof compileJsonSchema> {
    const check = this.#checks.get(schema) ?? compileJsonSchema(schema);
    this.#checks.set(schema, check);
    return check;
  }

  /** Throws a TypeError for an unknown name. */
  agentNamed(wanted: string | undefined): ReadyAgent {
    const [first] = this.#agents.values();
    const found =
      wanted === undefined ? (this.#agents.get("default") ?? first) : this.#agents.get(wanted);
    if (found === undefined) {
      throw new TypeError(`agent: there is no agent ${JSON.stringify(wanted)}`);
    }
    return found;
  }

  session(id: string): Session {
    const session = this.#sessions.get(id) ?? new Session(id);
    this.#sessions.set(id, session);
    return session;
  }

  /** Whether calls of this message's turn run. */
  callPolicyOf({ config, tools }: ReadyAgent, message: InboundMessage, nowMs: number): CallPolicy {
    const { sender, session: chatId, chatType } = message;
    const facts = { person: { id: sender.id, groups: [] }, chatId, chatType, nowMs };
    const { egress = [] } = config;
    return {
      verdict: ({ name, ...call }) => {
        const tool = tools.get(name)?.announcement;
        if (tool === undefined) {
          return { do: "refuse", reason: "its tool is not offered", findings: [] };
        }
        return decideCall(this.permissions, { ...call, ...facts, tool, rules: [], egress });
      },
      unknownOutcome: ({ name: toolName, ...call }) =>
        unknownOutcomeOf(this.permissions, { ...call, ...facts, toolName }),
    };
  }

  spentOf(account: BudgetAccount): { tokens: number; usd: number } {
    return this.#spent.get(accountKey(account)) ?? { tokens: 0, usd: 0 };
  }

  charge(accounts: readonly BudgetAccount[], used: { tokens: number; usd: number }): void {
    for (const account of accounts) {
      const { tokens, usd } = this.spentOf(account);
      this.#spent.set(accountKey(account), { tokens: tokens + used.tokens, usd: usd + used.usd });
    }
  }

  /** Calls the observers; what they throw disturbs no run. */
  observe(tell: (observer: EngineObserver) => void): void {
    for (const observer of this.#observers) {
      try {
        tell(observer);
      } catch {
        // Its own affair.
      }
    }
  }

  async close(): Promise<void> {
    this.isClosed = true;
    await Promise.all([...this.#sessions.values()].map(async (session) => await session.close()));
  }
}

function accountKey({ per, id, bucket }: BudgetAccount): string {
  return JSON.stringify([per, id, bucket]);
}

function requestOf(agent: EngineAgent): ReadyAgent["request"] {
  const {
    thinking,
    effort,
    temperature,
    topP,
    maxOutputTokens,
    fast,
    storeResponses = false,
    output,
  } = agent;
  return {
    ...(storeResponses ? { storeResponses } : {}),
    ...(thinking === undefined ? {} : { needsThinking: thinking }),
    ...(effort === undefined ? {} : { effort }),
    ...(temperature === undefined ? {} : { temperature }),
    ...(topP === undefined ? {} : { topP }),
    ...(maxOutputTokens === undefined ? {} : { maxTokens: maxOutputTokens }),
    ...(fast === undefined ? {} : { fastMode: fast }),
    hosted: true,
    ...(output === undefined
      ? {}
      : {
          responseFormat: {
            type: "json_schema" as const,
            name: output.name,
            jsonSchema: output.schema,
          },
        }),
  };
}

/** Conversations in the memory of this process. */
class MemoryConversations implements ConversationStore {
  readonly #conversations = new Map<string, Message[]>();

  get(sessionId: string): readonly Message[] {
    return structuredClone(this.#conversations.get(sessionId) ?? []);
  }

  append(sessionId: string, ...messages: readonly Message[]): void {
    this.set(sessionId, [...(this.#conversations.get(sessionId) ?? []), ...messages]);
  }

  set(sessionId: string, messages: readonly Message[]): void {
    this.#conversations.set(sessionId, structuredClone([...messages]));
  }
}

/** One conversation: its runs, one after the other, and what they have used. */
export class Session {
  readonly id: string;
  #messages = 0;
  #events = 0;
  #current: SessionRun | undefined;
  #waiting: SessionRun[] = [];
  #use: SessionUse | undefined;
  #cacheReadTokens = 0;
  #cacheCreationTokens = 0;

  constructor(id: string) {
    if (!/^[A-Za-z0-9_.-]{1,240}$/.test(id)) {
      throw new TypeError(
        `a session id has 1 to 240 letters, digits, "_", "." and "-": ${JSON.stringify(id)}`,
      );
    }
    this.id = id;
  }

  nextMessage(): number {
    return (this.#messages += 1);
  }

  nextEvent(): number {
    return (this.#events += 1);
  }

  /** Runs that have been started and wait for the one before them. */
  get waiting(): readonly SessionRun[] {
    return this.#waiting;
  }

  enter(run: SessionRun): void {
    this.#waiting.push(run);
    this.#next();
  }

  leave(run: SessionRun): void {
    this.#waiting = this.#waiting.filter((other) => other !== run);
  }

  #next(): void {
    if (this.#current !== undefined) return;
    this.#current = this.#waiting.shift();
    void this.#current?.drive().finally(() => {
      this.#current = undefined;
      this.#next();
    });
  }

  /** The turn of a run has ended. */
  count(turn: TurnState): void {
    const { cacheReadTokens = 0, cacheCreationTokens = 0 } = turn.totals;
    this.#use = useWith(turn, this.#use);
    this.#cacheReadTokens += cacheReadTokens;
    this.#cacheCreationTokens += cacheCreationTokens;
  }

  stats(): SessionStats {
    const run = this.#current;
    return {
      sessionId: this.id,
      title: "",
      state: run === undefined ? "idle" : run.isWaiting ? "waiting" : "running",
      turnCount: 0,
      inputTokens: 0,
      outputTokens: 0,
      cacheReadTokens: this.#cacheReadTokens,
      cacheCreationTokens: this.#cacheCreationTokens,
      costUsd: 0,
      denials: 0,
      ...this.#use,
    };
  }

  async close(): Promise<void> {
    const runs = [...this.#waiting, ...(this.#current === undefined ? [] : [this.#current])];
    for (const run of runs) run.cancel();
    await Promise.all(runs.map(async (run) => await run.over));
  }
}

/** A run as its session sees it. */
export interface SessionRun {
  readonly id: string;
  readonly head: QueuedMessage;
  /** Whether only a person can bring it further. */
  readonly isWaiting: boolean;
  readonly over: Promise<void>;
  /** Does its work. Called once; never rejects. */
  drive(): Promise<void>;
  cancel(): void;
  /** Its message has become part of this run: it ends. */
  join(takenBy: string): void;
}
